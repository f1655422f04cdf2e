/* Passes on graphs made by hand: what goes, what must stay, and the books that are kept meanwhile. */
#include <math.h>

#include "base/builder.h"
#include "onnx/evaluate/evaluate.h"
#include "onnx/facts/schema.h"
#include "onnx/file/print.h"
#include "passes/check_provenance.h"
#include "passes/passes.h"
#include "provenance/ledger.h"
#include "test.h"

typedef struct Bench {
  Context context;
  Provenance *provenance;
  Model *model;
  Graph *graph;
  int line;       /* every node has a site of its own */
  bool unchecked; /* the graph is faulty on purpose */
} Bench;

static void make(Bench *bench) {
  context_init(&bench->context);
  bench->provenance = provenance_new(&bench->context);
  bench->model = model_new(&bench->context, bench->provenance, 21);
  bench->graph = graph_new(bench->model, str_intern(&bench->context, "g"));
  bench->model->graph = bench->graph;
  bench->line = 0;
  bench->unchecked = false;
}

static const Origin *next_origin(Bench *bench) {
  Context *context = &bench->context;
  Str file = str_intern(context, "user.py"), function = str_intern(context, "f");
  Frame *frame = frame_intern(bench->provenance, file, function, ++bench->line, FRAME_USER);
  const Site *site = site_intern(bench->provenance, trace_intern(bench->provenance, frame, NULL), NULL);
  return origin_new(bench->provenance, site, (Emitter){.name = function, .file = "src/x.c", .line = 1}, NULL);
}

static int line_of(const Site *site) { return site->trace->frame->line; }

static bool says_line(const Origin *origin, int line) {
  for (uint32_t i = 0; origin && i < origin->site_count; i++) {
    if (line_of(origin->sites[i]) == line) return true;
  }
  return false;
}

/* "f32[2,B]" */
static Type type_of(Bench *bench, const char *text) {
  char name[16];
  const char *open = strchr(text, '[');
  snprintf(name, sizeof name, "%.*s", (int)(open - text), text);
  Dim dims[MAX_RANK];
  uint32_t rank = 0;
  for (const char *at = open + 1; *at && *at != ']';) {
    size_t length = strcspn(at, ",]");
    CHECK(dim_parse(&bench->context, at, length, &dims[rank++]));
    at += length + (at[length] == ',');
  }
  return type_make(&bench->context, dtype_from_name(name), dims, rank);
}

static Value *in(Bench *bench, const char *type) {
  const char *name = arena_format(&bench->context.arena, "x%zu", bench->graph->inputs.count);
  return graph_input(bench->graph, type_of(bench, type), str_intern(&bench->context, name));
}

static Value *emit(Bench *bench, Op op, const char *type, Value *a, Value *b) {
  Value *inputs[] = {a, b};
  Type to = type_of(bench, type);
  return graph_node(bench->graph, next_origin(bench), op, inputs, b ? 2 : 1, &to, 1, NULL)->outputs[0];
}

static Value *constant(Bench *bench, const char *type, const void *data) {
  Type of = type_of(bench, type);
  int64_t count, dims[MAX_RANK];
  CHECK(type_count(of, &count));
  for (uint32_t i = 0; i < of.rank; i++) dims[i] = of.dims[i].constant;
  Arena *arena = &bench->context.arena;
  Tensor *tensor = arena_new(arena, Tensor);
  *tensor = (Tensor){.dtype = of.dtype, .rank = of.rank, .size = dtype_bytes(of.dtype, (size_t)count)};
  tensor->dims = arena_copy(arena, dims, of.rank * sizeof *dims);
  tensor->data = arena_copy(arena, data, tensor->size);
  return graph_initializer(bench->graph, tensor);
}

static Value *transpose(Bench *bench, const char *type, Value *x, int64_t a, int64_t b, int64_t c) {
  Value *value = emit(bench, OP_Transpose, type, x, NULL);
  node_set_ints(value->producer, "perm", (int64_t[]){a, b, c}, 3);
  return value;
}

static Value *cast(Bench *bench, const char *type, Value *x) {
  Value *value = emit(bench, OP_Cast, type, x, NULL);
  node_set_int(value->producer, "to", onnx_dtype(value->type.dtype));
  return value;
}

static void output(Bench *bench, Value *value) {
  value->name = str_intern(&bench->context, arena_format(&bench->context.arena, "out%zu", bench->graph->outputs.count));
  value->name_fixed = true;
  graph_output(bench->graph, value);
}

static void run_all(void *argument) {
  Bench *bench = argument;
  run_passes(bench->model, &(PassOptions){.check = !bench->unchecked});
}

/* The operators that are left, in order: "Sin Add". */
static const char *optimised(Bench *bench) {
  if (!context_protect(&bench->context, run_all, bench)) {
    check_failed(__FILE__, __LINE__, bench->context.message);
    return "failed";
  }
  Builder out;
  builder_init(&out, &bench->context);
  FOR_EACH_NODE(node, bench->graph) builder_format(&out, "%s%s", out.length ? " " : "", node->op_type);
  return builder_text(&out);
}

static void transposes_cancel_and_compose(void) {
  Bench bench;
  make(&bench);
  Value *x = emit(&bench, OP_Sin, "f32[2,3,4]", in(&bench, "f32[2,3,4]"), NULL); /* line 1 */
  Value *there = transpose(&bench, "f32[3,4,2]", x, 1, 2, 0);                    /* line 2 */
  Value *back = transpose(&bench, "f32[2,3,4]", there, 2, 0, 1);                 /* line 3 */
  output(&bench, emit(&bench, OP_Exp, "f32[2,3,4]", back, NULL));
  CHECK_TEXT(optimised(&bench), "Sin Exp");
  CHECK(says_line(bench.graph->first->origin, 2) && says_line(bench.graph->first->origin, 3));
  CHECK(line_of(bench.graph->first->origin->sites[0]) == 1);
  context_release(&bench.context);

  make(&bench);
  x = in(&bench, "f32[2,3,4]");
  there = transpose(&bench, "f32[3,4,2]", x, 1, 2, 0);
  output(&bench, transpose(&bench, "f32[4,2,3]", there, 1, 2, 0));
  CHECK_TEXT(optimised(&bench), "Transpose");
  const Attribute *perm = node_attribute(bench.graph->first, "perm");
  CHECK(perm->integers[0] == 2 && perm->integers[1] == 0 && perm->integers[2] == 1);
  CHECK(says_line(bench.graph->first->origin, 1) && line_of(bench.graph->first->origin->sites[0]) == 2);
  context_release(&bench.context);
}

static void an_output_keeps_its_node_and_its_name(void) {
  Bench bench;
  make(&bench);
  Value *x = in(&bench, "f32[2,3,4]");
  Value *there = transpose(&bench, "f32[3,4,2]", x, 1, 2, 0);
  output(&bench, transpose(&bench, "f32[2,3,4]", there, 2, 0, 1)); /* equal to an input: a node must stay */
  Value *y = emit(&bench, OP_Sin, "f32[2,3,4]", x, NULL);
  output(&bench, emit(&bench, OP_Identity, "f32[2,3,4]", y, NULL)); /* the name moves to y */
  output(&bench, emit(&bench, OP_Identity, "f32[2,3,4]", y, NULL)); /* a second output of y */
  CHECK_TEXT(optimised(&bench), "Identity Sin Identity");
  for (size_t i = 0; i < 3; i++) {
    const Value *value = bench.graph->outputs.items[i]->value;
    char name[] = {'o', 'u', 't', (char)('0' + i), '\0'};
    CHECK(value->producer && value->name_fixed);
    CHECK_TEXT(value->name, name);
  }
  context_release(&bench.context);
}

static void casts_go_only_where_nothing_is_lost(void) {
  static const struct {
    const char *from, *through, *to, *left;
  } rows[] = {
      {"f32[2]", "f64[2]", "f32[2]", "Sign"},        {"f64[2]", "f32[2]", "f64[2]", "Cast Cast Sign"},
      {"i8[2]", "i32[2]", "u8[2]", "Cast Sign"},     {"i32[2]", "i8[2]", "i32[2]", "Cast Cast Sign"},
      {"u8[2]", "i8[2]", "u8[2]", "Cast Cast Sign"}, {"i32[2]", "f32[2]", "i32[2]", "Cast Cast Sign"},
      {"i32[2]", "f64[2]", "i32[2]", "Sign"},        {"f16[2]", "bf16[2]", "f16[2]", "Cast Cast Sign"},
      {"bool[2]", "f32[2]", "i64[2]", "Cast Sign"},  {"f32[2]", "bool[2]", "f32[2]", "Cast Cast Sign"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Bench bench;
    make(&bench);
    Value *x = in(&bench, rows[i].from);
    Value *y = cast(&bench, rows[i].to, cast(&bench, rows[i].through, x));
    output(&bench, emit(&bench, OP_Sign, rows[i].to, y, NULL));
    CHECK_TEXT(optimised(&bench), rows[i].left);
    context_release(&bench.context);
  }
}

static void neutral_elements_are_exact_for_their_type(void) {
  static const float zero = 0, minus_zero = -0.0f, one = 1;
  static const int32_t integer_zero = 0;
  const struct {
    Op op;
    const char *type, *scalar;
    const void *data;
    const char *left;
  } rows[] = {
      {OP_Add, "f32[3]", "f32[]", &zero, "Abs Add Sign"},   {OP_Add, "f32[3]", "f32[]", &minus_zero, "Abs Sign"},
      {OP_Sub, "f32[3]", "f32[]", &zero, "Abs Sign"},       {OP_Sub, "f32[3]", "f32[]", &minus_zero, "Abs Sub Sign"},
      {OP_Mul, "f32[3]", "f32[]", &one, "Abs Sign"},        {OP_Mul, "f32[3]", "f32[]", &zero, "Abs Mul Sign"},
      {OP_Div, "f32[3]", "f32[]", &one, "Abs Sign"},        {OP_Add, "i32[3]", "i32[]", &integer_zero, "Abs Sign"},
      {OP_Mul, "f32[3]", "f32[1,1]", &one, "Abs Mul Sign"}, /* one more axis */
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Bench bench;
    make(&bench);
    Value *x = emit(&bench, OP_Abs, rows[i].type, in(&bench, rows[i].type), NULL);
    const char *to = strcmp(rows[i].scalar, "f32[1,1]") == 0 ? "f32[1,3]" : rows[i].type;
    Value *y = emit(&bench, rows[i].op, to, x, constant(&bench, rows[i].scalar, rows[i].data));
    output(&bench, emit(&bench, OP_Sign, to, y, NULL));
    CHECK_TEXT(optimised(&bench), rows[i].left);
    context_release(&bench.context);
  }
}

static void broadcasting_operators_need_no_expand(void) {
  static const struct {
    const char *small, *large;
    Op op;
    const char *left;
  } rows[] = {
      {"f32[1,3]", "f32[2,3]", OP_Add, "Add"},
      {"f32[B,1]", "f32[B,3]", OP_Mul, "Mul"},
      {"f32[1,3]", "f32[1,3]", OP_Add, "Expand Add"}, /* only the Expand gives the first axis */
      {"f32[1,3]", "f32[3,3]", OP_MatMul, "Expand MatMul"},
      {"f32[3]", "f32[B,3]", OP_Less, "Less"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Bench bench;
    make(&bench);
    bool other_is_small = strcmp(rows[i].small, rows[i].large) == 0;
    const char *full = other_is_small ? "f32[2,3]" : rows[i].large;
    const int64_t target[] = {rows[i].op == OP_MatMul ? 3 : 2, 3};
    Value *shape = strchr(full, 'B') ? in(&bench, "i64[2]") : constant(&bench, "i64[2]", target);
    Value *x = emit(&bench, OP_Expand, full, in(&bench, rows[i].small), shape);
    output(&bench, emit(&bench, rows[i].op, rows[i].op == OP_Less ? "bool[B,3]" : full, x, in(&bench, rows[i].large)));
    CHECK_TEXT(optimised(&bench), rows[i].left);
    context_release(&bench.context);
  }
}

static void reshapes_become_one(void) {
  Bench bench;
  make(&bench);
  Value *x = in(&bench, "f32[B,6]");
  Value *y = emit(&bench, OP_Reshape, "f32[B,2,3]", x, constant(&bench, "i64[3]", (int64_t[]){0, 2, 3}));
  Value *z = emit(&bench, OP_Reshape, "f32[B,3,2]", y, constant(&bench, "i64[3]", (int64_t[]){0, 3, 2}));
  output(&bench, emit(&bench, OP_Sin, "f32[B,3,2]", z, NULL));
  Value *squeezed = emit(&bench, OP_Unsqueeze, "f32[1,B,6]", x, constant(&bench, "i64[1]", (int64_t[]){0}));
  output(&bench,
         emit(&bench, OP_Exp, "f32[B,6]",
              emit(&bench, OP_Squeeze, "f32[B,6]", squeezed, constant(&bench, "i64[1]", (int64_t[]){0})), NULL));
  CHECK_TEXT(optimised(&bench), "Reshape Sin Exp");
  CHECK(node_input(bench.graph->first, 0) == x && says_line(bench.graph->first->origin, 1));
  context_release(&bench.context);
}

static void equal_nodes_become_one(void) {
  Bench bench;
  make(&bench);
  Value *x = in(&bench, "f32[2]"), *y = in(&bench, "f32[2]");
  Value *a = emit(&bench, OP_Add, "f32[2]", x, y), *b = emit(&bench, OP_Add, "f32[2]", y, x); /* lines 1, 2 */
  Value *c = emit(&bench, OP_Sub, "f32[2]", x, y), *d = emit(&bench, OP_Sub, "f32[2]", y, x);
  Value *e = emit(&bench, OP_RandomNormalLike, "f32[2]", x, NULL);
  Value *f = emit(&bench, OP_RandomNormalLike, "f32[2]", x, NULL);
  output(&bench, emit(&bench, OP_Mul, "f32[2]", a, b));
  output(&bench, emit(&bench, OP_Mul, "f32[2]", c, d));
  output(&bench, emit(&bench, OP_Mul, "f32[2]", e, f));
  CHECK_TEXT(optimised(&bench), "Add Sub Sub RandomNormalLike RandomNormalLike Mul Mul Mul");
  CHECK(says_line(bench.graph->first->origin, 1) && says_line(bench.graph->first->origin, 2));
  context_release(&bench.context);
}

static void what_a_subgraph_repeats_is_taken_from_outside(void) {
  Bench bench;
  make(&bench);
  Value *x = in(&bench, "f32[2]"), *flag = in(&bench, "bool[]");
  Graph *outer = bench.graph, *branches[2];
  Value *first = emit(&bench, OP_Sin, "f32[2]", x, NULL);
  for (int i = 0; i < 2; i++) {
    branches[i] = bench.graph = graph_new(bench.model, str_intern(&bench.context, "branch"));
    Value *again = emit(&bench, OP_Sin, "f32[2]", x, NULL), *own = emit(&bench, OP_Cos, "f32[2]", x, NULL);
    graph_output(bench.graph, emit(&bench, OP_Add, "f32[2]", again, own));
  }
  bench.graph = outer;
  Value *choice = emit(&bench, OP_If, "f32[2]", flag, NULL);
  node_set_graph(choice->producer, "then_branch", branches[0]);
  node_set_graph(choice->producer, "else_branch", branches[1]);
  output(&bench, emit(&bench, OP_Mul, "f32[2]", choice, first));
  CHECK_TEXT(optimised(&bench), "Sin If Mul");
  for (int i = 0; i < 2; i++) CHECK(branches[i]->node_count == 2 && node_is(branches[i]->first, OP_Cos));
  CHECK(first->producer->origin->site_count == 3);
  context_release(&bench.context);
}

static void constants_are_folded_with_their_origin(void) {
  Bench bench;
  make(&bench);
  ledger_open(bench.provenance);
  const int32_t numbers[] = {INT32_MAX, -7, 0}, others[] = {1, 2, 5};
  Value *a = constant(&bench, "i32[3]", numbers), *b = constant(&bench, "i32[3]", others);
  Value *sum = emit(&bench, OP_Add, "i32[3]", a, b);    /* line 1 */
  Value *rest = emit(&bench, OP_Mod, "i32[3]", sum, b); /* line 2 */
  output(&bench, emit(&bench, OP_Max, "i32[3]", rest, in(&bench, "i32[3]")));
  output(&bench, emit(&bench, OP_Neg, "i32[3]", b, NULL)); /* an output: a node stays */
  CHECK_TEXT(optimised(&bench), "Max Identity");
  const Value *folded = node_input(bench.graph->first, 0);
  const int32_t *data = folded->tensor->data;
  CHECK(data[0] == 0 && data[1] == 1 && data[2] == 0); /* INT32_MIN mod 1, -5 mod 2, 5 mod 5 */
  settle_accounts(bench.model);
  CHECK(says_line(folded->origin, 2) && says_line(folded->origin, 1));
  CHECK_TEXT(folded->origin->emitter.name, "fold_constants");
  context_release(&bench.context);
}

static void what_has_no_value_is_not_folded(void) {
  static const int32_t low[] = {INT32_MIN}, zero[] = {0}, minus_one[] = {-1};
  static const float nan_value[] = {NAN}, large[] = {3e9f};
  static const uint32_t word[] = {5}, shift[] = {32};
  Bench bench;
  make(&bench);
  output(&bench, emit(&bench, OP_Div, "i32[1]", constant(&bench, "i32[1]", low), constant(&bench, "i32[1]", zero)));
  output(&bench, emit(&bench, OP_Mod, "i32[1]", constant(&bench, "i32[1]", low), constant(&bench, "i32[1]", zero)));
  output(&bench,
         emit(&bench, OP_Div, "i32[1]", constant(&bench, "i32[1]", low), constant(&bench, "i32[1]", minus_one)));
  output(&bench, cast(&bench, "i32[1]", constant(&bench, "f32[1]", nan_value)));
  output(&bench, cast(&bench, "i32[1]", constant(&bench, "f32[1]", large)));
  Value *by = constant(&bench, "u32[1]", shift);
  Value *shifted = emit(&bench, OP_BitShift, "u32[1]", constant(&bench, "u32[1]", word), by);
  node_set_string(shifted->producer, "direction", "LEFT");
  output(&bench, shifted);
  output(&bench, emit(&bench, OP_Gather, "f32[1]", constant(&bench, "f32[1]", large), constant(&bench, "i32[1]", low)));
  CHECK_TEXT(optimised(&bench), "Div Mod Div Cast Cast BitShift Gather");
  Value *two = constant(&bench, "i64[1]", (int64_t[]){2});
  output(&bench, emit(&bench, OP_Reshape, "f32[2]", constant(&bench, "f32[1]", large), two));
  bench.unchecked = true;
  CHECK_TEXT(optimised(&bench), "Div Mod Div Cast Cast BitShift Gather Reshape");
  context_release(&bench.context);
}

static void floats_are_folded_to_the_last_bit(void) {
  static const float values[] = {NAN, -0.0f, INFINITY, 1e38f}, others[] = {1, 0.0f, -INFINITY, 10};
  Bench bench;
  make(&bench);
  Value *a = constant(&bench, "f32[4]", values), *b = constant(&bench, "f32[4]", others);
  output(&bench, emit(&bench, OP_Add, "f32[4]", a, b));
  output(&bench, emit(&bench, OP_Mul, "f32[4]", a, b));
  output(&bench, emit(&bench, OP_Max, "f32[4]", a, b));
  output(&bench, emit(&bench, OP_Equal, "bool[4]", a, a));
  output(&bench, cast(&bench, "bool[4]", a));
  output(&bench, cast(&bench, "f16[4]", a));
  CHECK_TEXT(optimised(&bench), "Identity Identity Identity Identity Identity Identity");
  const Tensor *results[6];
  for (size_t i = 0; i < 6; i++) results[i] = node_input(bench.graph->outputs.items[i]->value->producer, 0)->tensor;
  const float *sum = results[0]->data, *product = results[1]->data, *most = results[2]->data;
  CHECK(isnan(sum[0]) && sum[1] == 0 && !signbit(sum[1]) && isnan(sum[2]) && sum[3] == 1e38f);
  CHECK(isnan(product[0]) && product[1] == 0 && signbit(product[1]));
  CHECK(product[2] == -INFINITY && product[3] == INFINITY);
  CHECK(isnan(most[0]) && !signbit(most[1]) && most[2] == INFINITY);
  CHECK(memcmp(results[3]->data, "\0\1\1\1", 4) == 0);
  CHECK(memcmp(results[4]->data, "\1\0\1\1", 4) == 0);
  const uint16_t *halves = results[5]->data;
  CHECK(halves[1] == 0x8000 && halves[2] == 0x7C00 && halves[3] == 0x7C00);
  context_release(&bench.context);
}

static void a_long_chain_costs_its_length(void) {
  Bench bench;
  make(&bench);
  enum { LENGTH = 20000 };
  Value *x = emit(&bench, OP_Sin, "f32[2]", in(&bench, "f32[2]"), NULL);
  for (int i = 0; i < LENGTH; i++) x = emit(&bench, OP_Identity, "f32[2]", x, NULL);
  output(&bench, emit(&bench, OP_Exp, "f32[2]", x, NULL));
  CHECK_TEXT(optimised(&bench), "Sin Exp");
  CHECK(bench.graph->first->origin->site_count == LENGTH + 1);
  CHECK(bench.context.arena.total < 512u << 20);
  context_release(&bench.context);
}

/* ---- the checker ---- */

typedef struct Sabotage {
  Bench bench;
  void (*damage)(Bench *bench);
} Sabotage;

static void forget_origin(Bench *bench) { bench->graph->first->origin = NULL; }

static void swap_origin(Bench *bench) { bench->graph->first->origin = bench->graph->last->origin; }

/* Removes a node as a pass would, and tells nobody where it came from. */
static void remove_silently(Bench *bench) {
  Node *node = bench->graph->first->next;
  value_replace(node->outputs[0], node_input(node, 0));
  node_remove(node);
}

static void replace_silently(Bench *bench) {
  Node *old = bench->graph->first->next;
  Value *source = node_input(old, 0);
  Node *node = graph_node(bench->graph, bench->graph->first->origin, OP_Cos, &source, 1, &source->type, 1, old);
  value_replace(old->outputs[0], node->outputs[0]);
  node_remove(old);
}

static void fold_silently(Bench *bench) {
  Node *node = bench->graph->first->next;
  value_replace(node->outputs[0], constant(bench, "f32[2]", (float[]){1, 2}));
  node_remove(node);
}

/* The weight that the first node reads, made anew. */
static Tensor *remake_weight(Bench *bench) {
  Value *made = constant(bench, "f32[2]", (float[]){3, 4});
  use_set(&bench->graph->first->inputs[1], made);
  made->origin = bench->graph->first->origin;
  Tensor *tensor = arena_copy(&bench->context.arena, made->tensor, sizeof *tensor);
  made->tensor = tensor;
  return tensor;
}

static void remake_weight_silently(Bench *bench) { remake_weight(bench); }

static void rename_weight(Bench *bench) { remake_weight(bench)->name = str_intern(&bench->context, "another"); }

static void say_what_it_was_made_of(Bench *bench) {
  remake_weight(bench)->made_of = str_intern(&bench->context, "a.scale,a.weight");
}

static void do_nothing(Bench *bench) { (void)bench; }

static void remove_what_is_unused(Bench *bench) {
  Node *last = bench->graph->last;
  use_set(bench->graph->outputs.items[0], node_input(bench->graph->first, 0));
  node_remove(last);
}

static void damage_and_check(void *argument) {
  Sabotage *sabotage = argument;
  ProvenanceSnapshot *before = provenance_snapshot(sabotage->bench.model);
  sabotage->damage(&sabotage->bench);
  provenance_check(sabotage->bench.model, before, "sabotage");
}

static bool accepts_after(void (*build)(Bench *bench), void (*damage)(Bench *bench), char *message, size_t size) {
  Sabotage sabotage = {.damage = damage};
  Bench *bench = &sabotage.bench;
  make(bench);
  build(bench);
  bool accepted = context_protect(&bench->context, damage_and_check, &sabotage);
  snprintf(message, size, "%s", accepted ? "" : bench->context.message);
  context_release(&bench->context);
  return accepted;
}

static void build_chain(Bench *bench) {
  Value *x = emit(bench, OP_Sin, "f32[2]", in(bench, "f32[2]"), NULL);
  Value *y = emit(bench, OP_Cos, "f32[2]", x, NULL);
  output(bench, emit(bench, OP_Exp, "f32[2]", y, NULL));
}

static bool checker_accepts(void (*damage)(Bench *bench), char *message, size_t size) {
  return accepts_after(build_chain, damage, message, size);
}

static void the_checker_sees_lost_provenance(void) {
  char message[512];
  CHECK(checker_accepts(do_nothing, message, sizeof message));
  CHECK(checker_accepts(remove_what_is_unused, message, sizeof message));
  CHECK(!checker_accepts(forget_origin, message, sizeof message));
  CHECK_TEXT(message, "the pass sabotage left a node Sin without an origin");
  CHECK(!checker_accepts(swap_origin, message, sizeof message));
  CHECK_TEXT(message, "the pass sabotage lost a trace of Sin:\nuser.py:1 (f)");
  CHECK(!checker_accepts(remove_silently, message, sizeof message));
  CHECK_TEXT(message, "the pass sabotage lost a trace of Cos:\nuser.py:2 (f)");
  CHECK(!checker_accepts(replace_silently, message, sizeof message));
  CHECK(!checker_accepts(fold_silently, message, sizeof message));
}

static void build_weight(Bench *bench) {
  Value *weight = constant(bench, "f32[2]", (float[]){1, 2});
  Tensor *named = arena_copy(&bench->context.arena, weight->tensor, sizeof *named);
  named->name = str_intern(&bench->context, "a.weight");
  weight->tensor = named;
  output(bench, emit(bench, OP_Mul, "f32[2]", in(bench, "f32[2]"), weight));
}

static bool checker_accepts_weight(void (*damage)(Bench *bench), char *message, size_t size) {
  return accepts_after(build_weight, damage, message, size);
}

static void the_checker_sees_weights_that_do_not_say_what_they_are_made_of(void) {
  char message[512];
  CHECK(checker_accepts_weight(do_nothing, message, sizeof message));
  CHECK(checker_accepts_weight(say_what_it_was_made_of, message, sizeof message));
  CHECK(!checker_accepts_weight(remake_weight_silently, message, sizeof message));
  CHECK_TEXT(message, "the pass sabotage does not say of a constant that it was made of a.weight");
  CHECK(!checker_accepts_weight(rename_weight, message, sizeof message));
}

static void run_without_unknown(void *argument) {
  Bench *bench = argument;
  const char *names[] = {"remove_nothing"};
  run_passes(bench->model, &(PassOptions){.disabled = names, .disabled_count = 1});
}

static void passes_can_be_disabled_by_name(void) {
  Bench bench;
  make(&bench);
  Value *x = emit(&bench, OP_Identity, "f32[2]", in(&bench, "f32[2]"), NULL);
  output(&bench, emit(&bench, OP_Exp, "f32[2]", x, NULL));
  const char *names[] = {"remove_no_ops"};
  run_passes(bench.model, &(PassOptions){.disabled = names, .disabled_count = 1, .check = true});
  CHECK(bench.graph->node_count == 2);
  CHECK(!context_protect(&bench.context, run_without_unknown, &bench) && bench.context.error == ERROR_VALUE);
  context_release(&bench.context);
}

const Test pass_tests[] = {
    {"transposes_cancel_and_compose", transposes_cancel_and_compose},
    {"an_output_keeps_its_node_and_its_name", an_output_keeps_its_node_and_its_name},
    {"casts_go_only_where_nothing_is_lost", casts_go_only_where_nothing_is_lost},
    {"neutral_elements_are_exact_for_their_type", neutral_elements_are_exact_for_their_type},
    {"broadcasting_operators_need_no_expand", broadcasting_operators_need_no_expand},
    {"reshapes_become_one", reshapes_become_one},
    {"equal_nodes_become_one", equal_nodes_become_one},
    {"what_a_subgraph_repeats_is_taken_from_outside", what_a_subgraph_repeats_is_taken_from_outside},
    {"constants_are_folded_with_their_origin", constants_are_folded_with_their_origin},
    {"what_has_no_value_is_not_folded", what_has_no_value_is_not_folded},
    {"floats_are_folded_to_the_last_bit", floats_are_folded_to_the_last_bit},
    {"a_long_chain_costs_its_length", a_long_chain_costs_its_length},
    {"the_checker_sees_lost_provenance", the_checker_sees_lost_provenance},
    {"the_checker_sees_weights_that_do_not_say_what_they_are_made_of",
     the_checker_sees_weights_that_do_not_say_what_they_are_made_of},
    {"passes_can_be_disabled_by_name", passes_can_be_disabled_by_name},
    {0},
};
