/* Steps of a loop on constants, taken at export. */
#include "passes/analysis/foretold.h"

#include "base/bytes.h"
#include "onnx/evaluate/evaluate.h"
#include "passes/rewrite.h"
#include "types/numbers.h"

enum {
  LARGEST_VALUE = 256,      /* bytes of one value of one step */
  MOST_EVALUATED = 1 << 13, /* nodes, over all steps */
  MOST_ROUNDS = 8,          /* until it is found which values are known */
  LARGEST_STACK = 1 << 16,  /* bytes of what all steps compute */
};

/* The known value of a step is the value's scratch; `known` says which have one. */
typedef struct Teller {
  Context *context;
  const Node *loop;
  const LoopShape *shape;
  Map known;                    /* Value of the body -> itself */
  const Tensor **now;           /* by carried value; NULL: not known */
  ARRAY(const Node *) computed; /* what the known values are computed by, in order */
  int64_t length;               /* of a Scan */
  bool counts_only;             /* whatever ends the loop, and in whichever step it begins */
} Teller;

static const Tensor *value_now(const Teller *teller, const Value *value) {
  if (value->graph == teller->shape->body && map_get_pointer(&teller->known, value)) return value->scratch;
  const Tensor *constant = constant_of(value);
  return constant && constant->size <= LARGEST_VALUE ? constant : NULL;
}

static void set_now(Teller *teller, Value *value, const Tensor *tensor) {
  *map_slot_pointer(teller->context, &teller->known, value) = value;
  value->scratch = (void *)(uintptr_t)tensor;
}

static const Tensor *evaluate_now(const Teller *teller, const Node *node) {
  enum { MOST_INPUTS = 4 };
  const Tensor *inputs[MOST_INPUTS];
  if (node->domain[0] || node->output_count != 1 || node->input_count > MOST_INPUTS || !node->input_count) return NULL;
  if (node_has(node, RANDOM) || node_has(node, HAS_BODY)) return NULL;
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *input = node_input(node, i);
    inputs[i] = input ? value_now(teller, input) : NULL;
    if (input && !inputs[i]) return NULL;
  }
  return evaluate_node(&(Evaluation){.context = teller->context,
                                     .node = node,
                                     .inputs = inputs,
                                     .input_count = node->input_count,
                                     .opset = node->graph->model->opset,
                                     .largest = LARGEST_VALUE});
}

static const Tensor *scalar(Context *context, DType dtype, int64_t number) {
  Tensor *tensor = arena_new(&context->arena, Tensor);
  uint8_t truth = number != 0;
  const void *bytes = dtype == DTYPE_BOOL ? (const void *)&truth : (const void *)&number;
  *tensor = (Tensor){.dtype = dtype, .size = dtype_bytes(dtype, 1)};
  tensor->data = arena_copy(&context->arena, bytes, tensor->size);
  return tensor;
}

/* The step's part of an array of constants. */
static const Tensor *slice(const Teller *teller, const Tensor *all, int64_t step) {
  Tensor *part = arena_copy(&teller->context->arena, all, sizeof *all);
  int64_t at = scan_runs_backwards(teller->loop) ? teller->length - 1 - step : step;
  part->rank--;
  part->dims++;
  part->size = all->size / (size_t)teller->length;
  part->data = (const char *)all->data + (size_t)at * part->size;
  part->name = part->made_of = NULL;
  part->stored = NULL;
  return part;
}

/* What the body is given: the number of the step, slices of constants, and what is known of what is carried. */
static void begin_step(Teller *teller, int64_t step) {
  const LoopShape *shape = teller->shape;
  const Graph *body = shape->body;
  if (node_is(teller->loop, OP_Loop) && !teller->counts_only) {
    set_now(teller, body->inputs.items[0], scalar(teller->context, DTYPE_INT64, step));
    set_now(teller, body->inputs.items[1], scalar(teller->context, DTYPE_BOOL, 1));
  }
  for (size_t i = 0; i < shape->carried; i++) {
    if (teller->now[i]) set_now(teller, body->inputs.items[shape->first_body_input + i], teller->now[i]);
  }
  for (size_t i = shape->carried; node_is(teller->loop, OP_Scan) && i < teller->loop->input_count; i++) {
    const Tensor *all = constant_of(node_input(teller->loop, i));
    bool readable = all && all->rank && all->dims[0] == teller->length && dtype_bits(all->dtype) >= 8;
    if (readable && all->size / (size_t)teller->length <= LARGEST_VALUE) {
      set_now(teller, body->inputs.items[i], slice(teller, all, step));
    }
  }
}

static const Value *next_of(const Teller *teller, size_t carried) {
  return teller->shape->body->outputs.items[teller->shape->lead + carried]->value;
}

/* The first step, over and over until all that is known is computed of what stays known. */
static bool find_known(Teller *teller) {
  for (int round = 0; round < MOST_ROUNDS; round++) {
    bool changed = false;
    teller->known = (Map){0};
    teller->computed.count = 0;
    begin_step(teller, 0);
    FOR_EACH_NODE(node, teller->shape->body) {
      const Tensor *result = evaluate_now(teller, node);
      if (!result) continue;
      set_now(teller, node->outputs[0], result);
      array_push(teller->context, &teller->computed, node);
    }
    for (size_t i = 0; i < teller->shape->carried; i++) {
      if (!teller->now[i] || value_now(teller, next_of(teller, i))) continue;
      teller->now[i] = NULL;
      changed = true;
    }
    if (!changed) return true;
  }
  return false;
}

static bool is_computed(const Teller *teller, const Node *node) {
  return node && node->graph == teller->shape->body && node->output_count == 1 &&
         map_get_pointer(&teller->known, node->outputs[0]);
}

static bool has_reader(const Teller *teller, const Value *value) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (use->node && !is_computed(teller, use->node)) return true;
  }
  return false;
}

/* What steps hand out, apart from what is known of what they carry on. */
static Map handed_out(const Teller *teller) {
  const LoopShape *shape = teller->shape;
  Map values = {0};
  for (size_t i = shape->lead; i < shape->body->outputs.count; i++) {
    Value *value = shape->body->outputs.items[i]->value;
    bool is_carried = i - shape->lead < shape->carried && teller->now[i - shape->lead];
    if (!is_carried) *map_slot_pointer(teller->context, &values, value) = value;
  }
  return values;
}

/* Where the known ends: what is computed, and read by what is not. */
static void find_wanted(Teller *teller, int64_t limit, Foretold *foretold) {
  if (limit > MOST_EVALUATED / (1 + (int64_t)teller->computed.count)) return;
  Map handed = handed_out(teller);
  for (size_t i = 0; i < teller->computed.count; i++) {
    Value *value = teller->computed.items[i]->outputs[0];
    const Tensor *first = value->scratch;
    if (!has_reader(teller, value) && !map_get_pointer(&handed, value)) continue;
    if (!first->size || first->size > LARGEST_STACK / (size_t)limit) continue;
    if (!type_equal(value->type, tensor_type(teller->context, first))) continue;
    const Tensor **by_step = arena_new_array(&teller->context->arena, (size_t)limit, const Tensor *);
    array_push(teller->context, &foretold->computed, ((ForetoldValue){value, by_step}));
  }
}

/* Only what is wanted, carried on, or decides whether there is a next step, is computed in all steps. */
static void keep_needed(Teller *teller, const Foretold *foretold) {
  Map needed = {0};
  size_t first = teller->computed.count, count = 0;
  for (size_t i = 0; i < teller->shape->carried; i++) {
    if (teller->now[i]) *map_slot_pointer(teller->context, &needed, next_of(teller, i)) = teller;
  }
  if (teller->shape->lead && !teller->counts_only) {
    *map_slot_pointer(teller->context, &needed, teller->shape->body->outputs.items[0]->value) = teller;
  }
  for (size_t i = 0; i < foretold->computed.count; i++) {
    *map_slot_pointer(teller->context, &needed, foretold->computed.items[i].value) = teller;
  }
  for (size_t i = teller->computed.count; i--;) {
    const Node *node = teller->computed.items[i];
    if (!map_get_pointer(&needed, node->outputs[0])) continue;
    for (uint32_t j = 0; j < node->input_count; j++) {
      if (node_input(node, j)) *map_slot_pointer(teller->context, &needed, node_input(node, j)) = teller;
    }
    teller->computed.items[--first] = node;
  }
  while (first < teller->computed.count) teller->computed.items[count++] = teller->computed.items[first++];
  teller->computed.count = count;
}

static bool take_step(Teller *teller, int64_t step) {
  begin_step(teller, step);
  for (size_t i = 0; i < teller->computed.count; i++) {
    const Tensor *result = evaluate_now(teller, teller->computed.items[i]);
    if (!result) return false;
    teller->computed.items[i]->outputs[0]->scratch = (void *)(uintptr_t)result;
  }
  return true;
}

/* Is there a step after this one? A condition that is not known decides nothing: false by `known`. */
static bool goes_on(const Teller *teller, bool *known) {
  if (!teller->shape->lead || teller->counts_only) return true;
  const Tensor *condition = value_now(teller, teller->shape->body->outputs.items[0]->value);
  *known = condition && condition->dtype == DTYPE_BOOL && condition->size == 1;
  return *known && *(const uint8_t *)condition->data != 0;
}

/* What is carried on is read before any of it is set. */
static void carry_on(Teller *teller, Foretold *foretold) {
  for (size_t i = 0; i < teller->shape->carried; i++) {
    if (!teller->now[i]) continue;
    foretold->carried[i][foretold->steps] = value_now(teller, next_of(teller, i));
  }
  for (size_t i = 0; i < teller->shape->carried; i++) {
    if (teller->now[i]) teller->now[i] = foretold->carried[i][foretold->steps];
  }
}

static bool take_steps(Teller *teller, int64_t limit, Foretold *foretold) {
  bool known = true, more = true;
  int64_t most = MOST_EVALUATED / (1 + (int64_t)teller->computed.count);
  for (size_t i = 0; i < teller->shape->carried; i++) {
    if (!teller->now[i]) continue;
    foretold->carried[i] = arena_new_array(&teller->context->arena, (size_t)most + 1, const Tensor *);
    foretold->carried[i][0] = teller->now[i];
  }
  while (more && foretold->steps < limit) {
    if (foretold->steps == most || !take_step(teller, foretold->steps)) return false;
    for (size_t i = 0; i < foretold->computed.count; i++) {
      ForetoldValue *computed = &foretold->computed.items[i];
      computed->by_step[foretold->steps] = computed->value->scratch;
    }
    foretold->steps++;
    more = goes_on(teller, &known);
    if (!known) return false;
    carry_on(teller, foretold);
  }
  return true;
}

static bool tell(Teller *teller, int64_t limit, Foretold *foretold) {
  if (!find_known(teller)) return false;
  find_wanted(teller, limit, foretold);
  keep_needed(teller, foretold);
  return take_steps(teller, limit, foretold);
}

static void begin(Teller *teller, Foretold *foretold) {
  Arena *arena = &teller->context->arena;
  teller->now = arena_new_array(arena, teller->shape->carried, const Tensor *);
  *foretold = (Foretold){.carried = arena_new_array(arena, teller->shape->carried, const Tensor **)};
  for (size_t i = 0; i < teller->shape->carried; i++) {
    teller->now[i] = NULL;
    foretold->carried[i] = NULL;
  }
}

bool foretell(const Node *loop, const LoopShape *shape, int64_t limit, Foretold *foretold) {
  bool any = false;
  Teller teller = {.context = loop->graph->model->context, .loop = loop, .shape = shape, .length = limit};
  begin(&teller, foretold);
  for (size_t i = 0; i < shape->carried; i++) {
    const Tensor *start = constant_of(node_input(loop, shape->first_input + i));
    if (start && start->size <= LARGEST_VALUE && dtype_bits(start->dtype) >= 8) teller.now[i] = start;
    any = any || teller.now[i];
  }
  return any && tell(&teller, limit, foretold);
}

bool foretell_counter(const Node *loop, const LoopShape *shape, size_t carried, const Tensor *start, int64_t steps,
                      Foretold *foretold) {
  Context *context = loop->graph->model->context;
  Teller teller = {.context = context, .loop = loop, .shape = shape, .counts_only = true};
  begin(&teller, foretold);
  teller.now[carried] = start;
  return tell(&teller, steps, foretold) && foretold->carried[carried] && foretold->steps == steps;
}
