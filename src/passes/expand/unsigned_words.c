/* Unsigned numbers of 32 and 64 bits are written as signed ones of the same bits for targets that compute them wrongly,
 * or not at all.
 *
 * Sums, products, logic and whatever moves or chooses numbers are the same nodes; a shift to the right is made of masks
 * and quotients, an order is compared with the top bit flipped, and a conversion fills up with zeros. Inputs and
 * outputs of the model keep their type, as do nodes of which nothing is known: Casts stand between.
 *
 * While the graph is walked the unsigned types mark what is to change; all of it changes at the end.
 */
#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/rewrite.h"
#include "target/target.h"
#include "types/numbers.h"

enum { WORD = 32, LONG = 64 /* bits */ };

typedef struct Words {
  Rewriter rewriter;
  Map kept; /* values that stay unsigned */
} Words;

/* Where nodes are put. */
typedef struct Place {
  Words *words;
  Graph *graph;
  Node *before; /* NULL: at the end */
  const Origin *origin;
} Place;

static bool is_word(const Value *value) { return value && value->type.dtype == DTYPE_UINT32; }
static bool is_long(const Value *value) { return value && value->type.dtype == DTYPE_UINT64; }
static bool is_marked(const Value *value) { return is_word(value) || is_long(value); }
static DType signed_of(DType dtype) { return dtype == DTYPE_UINT32 ? DTYPE_INT32 : DTYPE_INT64; }

static void keep(Words *words, Value *value) {
  *map_slot_pointer(words->rewriter.context, &words->kept, value) = value;
}

static Place before(Words *words, Node *node) { return (Place){words, node->graph, node, node->origin}; }
/* The same for what is made of one of its inputs, and belongs to whatever gives that. */
static Place between(Words *words, const Value *value, Node *node) {
  return (Place){words, node->graph, node, value->producer ? value->producer->origin : node->origin};
}
static Place after(Words *words, Node *node) { return (Place){words, node->graph, node->next, node->origin}; }

static Value *put(const Place *at, Op op, Type type, Value *const *inputs, size_t count) {
  Rewriter *rewriter = &at->words->rewriter;
  const Origin *origin = REWRITE_ORIGIN(rewriter, at);
  rewriter->changed = true;
  return graph_node(at->graph, origin, op, inputs, count, &type, 1, at->before)->outputs[0];
}

/* `to` is what is written, `marked` what the value is until the end. */
static Value *put_cast(const Place *at, Value *value, DType to, DType marked) {
  Value *cast = put(at, OP_Cast, type_with(value->type, marked), &value, 1);
  node_set_int(cast->producer, "to", onnx_dtype(to));
  return cast;
}

static Value *put_tensor(const Place *at, DType dtype, const int64_t *numbers, const int64_t *dims, uint32_t rank) {
  Rewriter *rewriter = &at->words->rewriter;
  Tensor *tensor = arena_new(&rewriter->context->arena, Tensor);
  size_t count = 1, width = dtype_bytes(dtype, 1);
  for (uint32_t i = 0; i < rank; i++) count *= (size_t)dims[i];
  char *data = arena_alloc(&rewriter->context->arena, count * width);
  for (size_t i = 0; i < count; i++) {
    uint64_t bits = dtype_is_float(dtype) ? number_encode(dtype, (double)numbers[i]) : (uint64_t)numbers[i];
    copy_bytes(data + i * width, &bits, width);
  }
  *tensor = (Tensor){.dtype = dtype, .rank = rank, .size = count * width, .data = data};
  tensor->dims = arena_copy(&rewriter->context->arena, dims, rank * sizeof *dims);
  return rewrite_constant(rewriter, at->before, tensor, at->origin);
}

/* Of the signed type that stands for dtype, or of dtype itself where it is none that changes. */
static Value *put_numbers(const Place *at, DType dtype, const int64_t *numbers, const int64_t *dims, uint32_t rank) {
  bool changes = dtype == DTYPE_UINT32 || dtype == DTYPE_UINT64;
  return put_tensor(at, changes ? signed_of(dtype) : dtype, numbers, dims, rank);
}

static Value *put_number(const Place *at, DType dtype, int64_t number) {
  return put_numbers(at, dtype, &number, NULL, 0);
}

static Value *put_with(const Place *at, Op op, Value *value, int64_t number) {
  return put(at, op, value->type, (Value *[]){value, put_number(at, value->type.dtype, number)}, 2);
}

static int64_t top_bit(const Value *value) { return is_word(value) ? INT32_MIN : INT64_MIN; }
static Value *top_flipped(const Place *at, Value *value) { return put_with(at, OP_Add, value, top_bit(value)); }

/* ---- results that are not what the node gives ---- */

typedef ARRAY(Use *) UseList;

static UseList uses_of(Words *words, const Value *value) {
  UseList list = {0};
  for (Use *use = value->uses; use; use = use->next) array_push(words->rewriter.context, &list, use);
  return list;
}

static void move_uses(const UseList *uses, Value *to) {
  for (size_t i = 0; i < uses->count; i++) use_set(uses->items[i], to);
}

/* A value stays unsigned: all that uses it gets the same bits as a signed number. */
static void keep_result(Words *words, Value *value, const Place *at) {
  UseList uses = uses_of(words, value);
  keep(words, value);
  if (uses.count) move_uses(&uses, put_cast(at, value, signed_of(value->type.dtype), value->type.dtype));
}

static void keep_node(Words *words, Node *node) {
  Place behind = after(words, node);
  for (uint32_t i = 0; i < node->input_count; i++) {
    Value *value = node_input(node, i);
    if (!is_marked(value)) continue;
    Place ahead = between(words, value, node);
    Value *cast = put_cast(&ahead, value, value->type.dtype, value->type.dtype);
    keep(words, cast);
    use_set(&node->inputs[i], cast);
  }
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (is_marked(node->outputs[i])) keep_result(words, node->outputs[i], &behind);
  }
}

/* ---- order ---- */

static void flip_inputs(Words *words, Node *node) {
  for (uint32_t i = 0; i < node->input_count; i++) {
    Value *value = node_input(node, i);
    if (!is_marked(value)) continue;
    Place at = between(words, value, node);
    use_set(&node->inputs[i], top_flipped(&at, value));
  }
}

static void order_as_signed(Words *words, Node *node) {
  Place behind = after(words, node);
  Value *result = node->outputs[0];
  UseList uses = uses_of(words, result);
  flip_inputs(words, node);
  if (is_marked(result)) move_uses(&uses, top_flipped(&behind, result));
}

/* ---- shifts ---- */

/* What a shift by so many bits works with; of the width and more, with nothing. */
typedef struct ShiftNumbers {
  int64_t factor, divisor, high, low, sign;
} ShiftNumbers;

static ShiftNumbers shift_numbers(uint64_t amount, unsigned width) {
  if (amount >= width) return (ShiftNumbers){.divisor = 1};
  uint64_t below = (UINT64_C(1) << amount) - 1, half = (UINT64_C(1) << width / 2) - 1;
  uint64_t all = width == LONG ? (uint64_t)INT64_MAX : INT32_MAX;
  return (ShiftNumbers){.factor = (int64_t)(UINT64_C(1) << amount),
                        .divisor = (int64_t)(UINT64_C(1) << (amount + 1 < width ? amount : 0)),
                        .high = (int64_t)(all & ~half & ~below),
                        .low = (int64_t)(half & ~below),
                        .sign = (int64_t)(UINT64_C(1) << (width - 1 - amount))};
}

typedef struct Shift {
  Place at;
  DType dtype;
  const Tensor *amounts; /* where they are known; else NULL, */
  Value *place;          /* and this is where the numbers for them stand in a table */
  Type type;             /* of the amounts */
} Shift;

static uint64_t amount_at(const Tensor *amounts, size_t index) {
  uint32_t word;
  uint64_t wide;
  if (amounts->dtype == DTYPE_UINT64) return memcpy(&wide, (const char *)amounts->data + index * 8, 8), wide;
  return memcpy(&word, (const char *)amounts->data + index * 4, 4), word;
}

/* One of the numbers of a shift, for each amount; offset is its place in ShiftNumbers. */
static Value *shift_number(const Shift *shift, size_t offset, bool *all_zero) {
  unsigned width = dtype_bits(shift->dtype);
  size_t count = shift->amounts ? shift->amounts->size / (width / 8) : width + 1;
  int64_t *numbers = arena_new_array(&shift->at.words->rewriter.context->arena, count, int64_t), length = width + 1;
  *all_zero = true;
  for (size_t i = 0; i < count; i++) {
    ShiftNumbers made = shift_numbers(shift->amounts ? amount_at(shift->amounts, i) : i, width);
    memcpy(&numbers[i], (const char *)&made + offset, sizeof *numbers);
    *all_zero = *all_zero && !numbers[i];
  }
  if (shift->amounts) {
    return put_numbers(&shift->at, shift->dtype, numbers, shift->amounts->dims, shift->amounts->rank);
  }
  Value *table = put_numbers(&shift->at, shift->dtype, numbers, &length, 1);
  return put(&shift->at, OP_Gather, shift->type, (Value *[]){table, shift->place}, 2);
}
#define SHIFT_NUMBER(shift, member, all_zero) shift_number((shift), offsetof(ShiftNumbers, member), (all_zero))

/* The part of x below a mask, moved to the right; its quotient is exact even where it is computed in float32. */
static Value *part_shifted(const Shift *shift, Value *x, Type type, Value *mask, Value *divisor) {
  Value *part = put(&shift->at, OP_BitwiseAnd, type, (Value *[]){x, mask}, 2);
  return put(&shift->at, OP_Div, type, (Value *[]){part, divisor}, 2);
}

static Value *shift_right(const Shift *shift, Value *x, Type type) {
  const Place *at = &shift->at;
  bool no_high, no_low, zero;
  Value *divisor = SHIFT_NUMBER(shift, divisor, &zero), *high = SHIFT_NUMBER(shift, high, &no_high);
  Value *sign = SHIFT_NUMBER(shift, sign, &zero), *low = SHIFT_NUMBER(shift, low, &no_low);
  Value *nothing = put_number(at, x->type.dtype, 0);
  Value *is_set = put(at, OP_Less, type_with(x->type, DTYPE_BOOL), (Value *[]){x, nothing}, 2);
  Value *sum = put(at, OP_Where, type, (Value *[]){is_set, sign, nothing}, 3);
  if (!no_high) sum = put(at, OP_Add, type, (Value *[]){part_shifted(shift, x, type, high, divisor), sum}, 2);
  if (!no_low) sum = put(at, OP_Add, type, (Value *[]){part_shifted(shift, x, type, low, divisor), sum}, 2);
  return sum;
}

/* A place in a table of width + 1 numbers, the last for all amounts that are too large. */
static Value *table_place(const Place *at, Value *amount) {
  Value *last = put_number(at, amount->type.dtype, dtype_bits(amount->type.dtype));
  Value *none = put_number(at, amount->type.dtype, 0);
  Type truth = type_with(amount->type, DTYPE_BOOL);
  Value *is_huge = put(at, OP_Less, truth, (Value *[]){amount, none}, 2);
  Value *is_past = put(at, OP_Greater, truth, (Value *[]){amount, last}, 2);
  Value *is_out = put(at, OP_Or, truth, (Value *[]){is_huge, is_past}, 2);
  return put(at, OP_Where, amount->type, (Value *[]){is_out, last, amount}, 3);
}

static void shift(Words *words, Node *node) {
  Value *x = node_input(node, 0), *amount = node_input(node, 1);
  const Attribute *direction = node_attribute(node, "direction");
  bool left = direction && direction->kind == ATTRIBUTE_STRING && strcmp(direction->string, "LEFT") == 0, zero;
  Type type = node->outputs[0]->type;
  Shift shift = {
      .at = before(words, node), .dtype = x->type.dtype, .amounts = constant_of(amount), .type = amount->type};
  if (!shift.amounts) shift.place = table_place(&shift.at, amount);
  Value *shifted = left ? put(&shift.at, OP_Mul, type, (Value *[]){x, SHIFT_NUMBER(&shift, factor, &zero)}, 2)
                        : shift_right(&shift, x, type);
  rewrite_replace(&words->rewriter, node, shifted);
}

/* ---- conversions ---- */

/* The number that the bits of a word are, as int64. */
static Value *filled_up(const Place *at, Value *word) {
  Value *wide = put_cast(at, word, DTYPE_INT64, DTYPE_INT64);
  return put_with(at, OP_BitwiseAnd, wide, UINT32_MAX);
}

/* By halves, each exact: the sum is rounded once. */
static Value *word_as_float(const Place *at, Value *word, DType dtype) {
  enum { HALF = WORD / 2 };
  uint32_t by = HALF;
  Tensor amounts = {.dtype = DTYPE_UINT32, .size = sizeof by, .data = &by};
  Shift shift = {.at = *at, .dtype = DTYPE_UINT32, .amounts = &amounts};
  Value *high = put_cast(at, shift_right(&shift, word, word->type), dtype, dtype);
  Value *low = put_cast(at, put_with(at, OP_BitwiseAnd, word, UINT16_MAX), dtype, dtype);
  return put(at, OP_Add, low->type, (Value *[]){put_with(at, OP_Mul, high, INT64_C(1) << HALF), low}, 2);
}

/* A float of a word's number as that of the signed number of the same bits, which is as exact. */
static Value *float_as_signed(const Place *at, Value *number) {
  if (number->type.dtype == DTYPE_FLOAT16) return number; /* ends before 2^31 */
  Value *half = put_number(at, number->type.dtype, -(int64_t)INT32_MIN);
  Value *is_high = put(at, OP_GreaterOrEqual, type_with(number->type, DTYPE_BOOL), (Value *[]){number, half}, 2);
  Value *lowered = put_with(at, OP_Sub, number, INT64_C(1) << WORD);
  return put(at, OP_Where, number->type, (Value *[]){is_high, lowered, number}, 3);
}

static void cast_to_word(Words *words, Node *node) {
  Value *from = node_input(node, 0);
  Place at = between(words, from, node);
  node_set_int(node, "to", onnx_dtype(DTYPE_INT32));
  if (dtype_is_float(from->type.dtype)) use_set(&node->inputs[0], float_as_signed(&at, from));
}

static void cast_to_long(Words *words, Node *node) {
  Value *from = node_input(node, 0);
  Place at = between(words, from, node);
  if (dtype_is_float(from->type.dtype)) {
    keep_node(words, node);
    return;
  }
  if (is_word(from)) use_set(&node->inputs[0], filled_up(&at, from));
  node_set_int(node, "to", onnx_dtype(DTYPE_INT64));
}

static void cast(Words *words, Node *node) {
  Value *from = node_input(node, 0), *to = node->outputs[0];
  Place at = between(words, from, node);
  DType result = to->type.dtype;
  if (is_word(to)) cast_to_word(words, node);
  else if (is_long(to)) cast_to_long(words, node);
  else if (is_word(from) && result == DTYPE_INT64) use_set(&node->inputs[0], filled_up(&at, from));
  else if (is_long(from) && dtype_is_float(result)) keep_node(words, node);
  else if (is_word(from) && dtype_is_float(result)) {
    DType through = result == DTYPE_FLOAT64 ? result : DTYPE_FLOAT32;
    use_set(&node->inputs[0], word_as_float(&at, from, through));
  }
}

/* Quotients and remainders of words, in int64. */
static void divide_wide(Words *words, Node *node) {
  Place behind = after(words, node);
  for (uint32_t i = 0; i < node->input_count; i++) {
    Place at = between(words, node_input(node, i), node);
    use_set(&node->inputs[i], filled_up(&at, node_input(node, i)));
  }
  Value *result = node->outputs[0];
  UseList uses = uses_of(words, result);
  result->type.dtype = DTYPE_INT64;
  move_uses(&uses, put_cast(&behind, result, DTYPE_INT32, DTYPE_UINT32));
}

/* ---- halves of long numbers ---- */

static bool shifts_by_word(const Node *node, const char *direction) {
  const Attribute *attribute = node_is(node, OP_BitShift) ? node_attribute(node, "direction") : NULL;
  const Tensor *amounts = attribute ? constant_of(node_input(node, 1)) : NULL;
  if (!amounts || amounts->dtype != DTYPE_UINT64 || amounts->size != 8 || amount_at(amounts, 0) != WORD) return false;
  return attribute->kind == ATTRIBUTE_STRING && strcmp(attribute->string, direction) == 0;
}

typedef struct Half {
  bool known, zero;
  Value *word;
} Half;

/* Half of a long number that was put together of words. */
static Half half_of(Value *value, bool high, int depth) {
  Node *node = value->producer;
  if (!node || depth > 4) return (Half){0};
  Value *from = node_input(node, 0);
  if (node_is(node, OP_Cast) && is_word(from)) return (Half){.known = true, .zero = high, .word = from};
  if (shifts_by_word(node, "LEFT")) return high ? half_of(from, false, depth + 1) : (Half){.known = true, .zero = true};
  if (shifts_by_word(node, "RIGHT")) return high ? (Half){.known = true, .zero = true} : half_of(from, true, depth + 1);
  if (!node_is(node, OP_Add)) return (Half){0};
  Half halves[2][2]; /* of which operand, low and high */
  for (int i = 0; i < 4; i++) {
    halves[i / 2][i % 2] = half_of(node_input(node, (size_t)i / 2), i % 2, depth + 1);
    if (!halves[i / 2][i % 2].known) return (Half){0};
  }
  bool carries = !halves[0][0].zero && !halves[1][0].zero;
  if (carries || (!halves[0][high].zero && !halves[1][high].zero)) return (Half){0};
  return halves[0][high].zero ? halves[1][high] : halves[0][high];
}

/* In the place of a node; NULL when they would be many, or their number is not known. */
static Value *zeros(Words *words, Node *node) {
  enum { MOST_ZEROS = 4096 };
  int64_t none[MOST_ZEROS] = {0}, dims[MAX_RANK], count;
  Type type = node->outputs[0]->type;
  if (!type_count(type, &count) || count > MOST_ZEROS) return NULL;
  for (uint32_t i = 0; i < type.rank; i++) dims[i] = type.dims[i].constant;
  Place at = before(words, node);
  return put_tensor(&at, type.dtype, none, dims, type.rank);
}

static void take_half(Words *words, Node *node) {
  Value *from = node_is(node, OP_Cast) ? node_input(node, 0) : NULL;
  if (!is_long(from) || !is_word(node->outputs[0])) return;
  Half half = half_of(from, false, 0);
  if (!half.known) return;
  Value *word = half.zero ? zeros(words, node) : half.word;
  if (word && type_equal(word->type, node->outputs[0]->type)) rewrite_replace(&words->rewriter, node, word);
}

static void take_halves(Graph *graph, void *data) {
  for (Node *node = graph->first, *next; node; node = next) {
    next = node->next;
    take_half(data, node);
  }
}

/* ---- the graph ---- */

/* Is the node the same on signed numbers of the same bits? */
static bool is_same_signed(const Node *node) {
  switch (node->op) {
    case OP_Add:
    case OP_BitwiseAnd:
    case OP_BitwiseNot:
    case OP_BitwiseOr:
    case OP_BitwiseXor:
    case OP_CumSum:
    case OP_Equal:
    case OP_MatMul:
    case OP_Mul:
    case OP_Neg:
    case OP_NonZero:
    case OP_OneHot:
    case OP_Pad:
    case OP_Shape:
    case OP_Size:
    case OP_Sub:
    case OP_Sum:
    case OP_Trilu:
    case OP_Where: return true;
    case OP_ScatterElements:
    case OP_ScatterND: return !node_attribute(node, "reduction");
    default: return node->callee || node_has(node, MOVES) || node_has(node, HAS_BODY);
  }
}

static bool orders_words(const Node *node) {
  switch (node->op) {
    case OP_Clip:
    case OP_Max:
    case OP_Min:
    case OP_ReduceMax:
    case OP_ReduceMin: return is_word(node->outputs[0]); /* of int64 they are wrong themselves */
    default: return node_has(node, COMPARES);
  }
}

static void visit(Words *words, Node *node) {
  bool touched = false;
  for (uint32_t i = 0; i < node->input_count; i++) touched = touched || is_marked(node_input(node, i));
  for (uint32_t i = 0; i < node->output_count; i++) touched = touched || is_marked(node->outputs[i]);
  if (!touched || is_same_signed(node)) return;
  bool divides = node_is(node, OP_Div) || node_is(node, OP_Mod);
  if (orders_words(node)) order_as_signed(words, node);
  else if (node_is(node, OP_BitShift)) shift(words, node);
  else if (node_is(node, OP_Cast)) cast(words, node);
  else if (divides && is_word(node->outputs[0])) divide_wide(words, node);
  else keep_node(words, node);
}

static const Origin *origin_of_user(const Value *value) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (use->node) return use->node->origin;
  }
  return NULL;
}

/* A constant that is no parameter is written with the other type. */
static bool keep_bits(Words *words, Value *value, const Place *at) {
  if (!value->tensor || !value->tensor->data || value->tensor->name) return false;
  Tensor *tensor = arena_copy(&words->rewriter.context->arena, value->tensor, sizeof *tensor);
  UseList uses = uses_of(words, value);
  tensor->dtype = signed_of(tensor->dtype);
  keep(words, value);
  move_uses(&uses, rewrite_constant(&words->rewriter, at->before, tensor, at->origin));
  return true;
}

static void keep_sources(Words *words, Graph *graph, Value *const *values, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (!is_marked(values[i]) || !values[i]->uses) continue;
    Place at = {words, graph, graph->first, origin_of_user(values[i])};
    if (!keep_bits(words, values[i], &at)) keep_result(words, values[i], &at);
  }
}

static void keep_outputs(Words *words, Graph *graph) {
  for (size_t i = 0; i < graph->outputs.count; i++) {
    Value *value = graph->outputs.items[i]->value;
    if (!is_marked(value) || !value->producer) continue;
    Value *cast =
        put_cast(&(Place){words, graph, NULL, value->producer->origin}, value, value->type.dtype, value->type.dtype);
    keep(words, cast);
    rewrite_take_name(cast, value);
    use_set(graph->outputs.items[i], cast);
  }
}

static void visit_graph(Graph *graph, void *data) {
  Words *words = data;
  bool is_main = graph == graph->model->graph;
  Node *last = graph->last;
  if (is_main) keep_outputs(words, graph);
  for (Node *node = graph->first, *next; node && last; node = next) {
    next = node == last ? NULL : node->next;
    visit(words, node);
  }
  keep_sources(words, graph, graph->initializers.items, graph->initializers.count);
  if (is_main) keep_sources(words, graph, graph->inputs.items, graph->inputs.count);
}

static void widen(Words *words, Value *value) {
  if (is_marked(value) && !map_get_pointer(&words->kept, value)) value->type.dtype = signed_of(value->type.dtype);
}

static void widen_all(Graph *graph, void *data) {
  for (size_t i = 0; i < graph->inputs.count; i++) widen(data, graph->inputs.items[i]);
  FOR_EACH_NODE(node, graph) {
    for (uint32_t i = 0; i < node->output_count; i++) {
      if (node->outputs[i]) widen(data, node->outputs[i]);
    }
  }
}

static void find_unsigned(Graph *graph, void *found) {
  FOR_EACH_NODE(node, graph) {
    for (uint32_t i = 0; i < node->input_count; i++) *(bool *)found = *(bool *)found || is_marked(node_input(node, i));
    for (uint32_t i = 0; i < node->output_count; i++) *(bool *)found = *(bool *)found || is_marked(node->outputs[i]);
  }
}

bool write_unsigned_as_signed(Model *model) {
  bool found = false;
  if (!target_has(model->target, QUIRK_UINT32_HAS_NO_KERNELS) && !target_has(model->target, QUIRK_UINT32_IS_WRONG)) {
    return false;
  }
  model_each_graph(model, find_unsigned, &found);
  if (!found) return false;
  Words words = {0};
  rewrite_begin(&words.rewriter, model, __func__);
  for (size_t i = 0; i < model->graph->inputs.count; i++) {
    if (is_marked(model->graph->inputs.items[i])) keep(&words, model->graph->inputs.items[i]);
  }
  model_each_graph(model, take_halves, &words);
  model_each_graph(model, visit_graph, &words);
  model_each_graph(model, widen_all, &words);
  return rewrite_end(&words.rewriter);
}
