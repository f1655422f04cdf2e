/* cond: a balanced tree of If, so that one of n branches is found in log2(n) tests and every branch stands in the model
 * once. The tests compare the index with a bound, which clamps it as JAX does. */
#include "lower/lower.h"

typedef struct Switch {
  const Param *branches;
  Value *index;
  Value **operands;
} Switch;

static bool names_platform(const Param *platforms, const char *name) {
  if (platforms->kind != PARAM_LIST) return param_is(platforms, name);
  for (size_t i = 0; i < platforms->list.count; i++) {
    if (param_is(&platforms->list.items[i], name)) return true;
  }
  return false;
}

/* Models are for any machine: take what a program has for the CPU, else for the rest. Entries are names; None is the
 * rest. */
int64_t platform_choice(const Param *platforms) {
  if (!platforms || platforms->kind != PARAM_LIST) return -1;
  int64_t rest = -1;
  for (size_t i = 0; i < platforms->list.count; i++) {
    if (names_platform(&platforms->list.items[i], "cpu")) return (int64_t)i;
    if (platforms->list.items[i].kind == PARAM_NONE) rest = (int64_t)i;
  }
  return rest;
}

static void lower_platform_index(Lowering *l) {
  int64_t choice = platform_choice(param_get(l->context, l->equation, "platforms"));
  if (choice < 0) unsupported(l, "the program has neither a branch for the CPU nor a default branch");
  bind(l, 0, constant_integer(l, output_type(l, 0).dtype, choice));
}

static void lower_branch(Lowering *l, const Switch *choice, size_t branch, Value **results) {
  const Param *param = &choice->branches->list.items[branch];
  rely_on(l, param->kind == PARAM_JAXPR);
  rely_on(l, param->jaxpr->output_count == l->equation->output_count);
  rely_on(l, param->jaxpr->input_count + 1 == l->equation->input_count);
  lower_call(l, HERE, param->jaxpr, choice->operands, results);
}

/* index >= bound. The index of a two-way cond is a predicate that was cast: the predicate itself will do. */
static Value *reaches(Lowering *l, Value *index, size_t bound) {
  const Node *cast = index->producer;
  if (bound == 1 && cast && node_is(cast, OP_Cast) && node_input(cast, 0)->type.dtype == DTYPE_BOOL) {
    return node_input(cast, 0);
  }
  Value *limit = constant_integer(l, index->type.dtype, (int64_t)bound);
  return EMIT_AROUND(l, OP_GreaterOrEqual, type_scalar(DTYPE_BOOL), index, limit);
}

static void lower_range(Lowering *l, const Switch *choice, size_t first, size_t count, Value **results);

static Graph *range_subgraph(Lowering *l, const Switch *choice, size_t first, size_t count, const char *name) {
  Value **results = arena_new_array(&l->context->arena, l->equation->output_count, Value *);
  Graph *outer = subgraph_begin(l, name);
  lower_range(l, choice, first, count, results);
  for (uint32_t i = 0; i < l->equation->output_count; i++) subgraph_output(l, results[i]);
  return subgraph_end(l, outer);
}

/* Branches first .. first + count - 1. */
static void lower_range(Lowering *l, const Switch *choice, size_t first, size_t count, Value **results) {
  if (count == 1) {
    lower_branch(l, choice, first, results);
    return;
  }
  size_t half = count / 2;
  uint32_t output_count = l->equation->output_count;
  Value *upper = reaches(l, choice->index, first + half);
  Graph *then_branch = range_subgraph(l, choice, first + half, count - half, "then_branch");
  Graph *else_branch = range_subgraph(l, choice, first, half, "else_branch");
  Type *types = arena_new_array(&l->context->arena, output_count, Type);
  for (uint32_t i = 0; i < output_count; i++) types[i] = output_type(l, i);
  Node *node = emit_node(l, HERE, OP_If, types, output_count, &upper, 1);
  node_set_graph(node, "then_branch", then_branch);
  node_set_graph(node, "else_branch", else_branch);
  for (uint32_t i = 0; i < output_count; i++) results[i] = node->outputs[i];
}

/* lax.switch clamps the index to the branches, which the tests do anyway. */
static Value *without_clamp(Value *index, size_t count) {
  const Node *clip = index->producer;
  int64_t least, most;
  if (!clip || !node_is(clip, OP_Clip) || clip->input_count != 3) return index;
  const Value *low = node_input(clip, 1), *high = node_input(clip, 2);
  bool known = low && high && literal_int(low->tensor, &least) && literal_int(high->tensor, &most);
  return known && least == 0 && most == (int64_t)count - 1 ? node_input(clip, 0) : index;
}

static void lower_cond(Lowering *l) {
  const Equation *equation = l->equation;
  Switch choice = {.branches = param_get(l->context, equation, "branches"), .index = input(l, 0)};
  rely_on(l, choice.branches->kind == PARAM_LIST && choice.branches->list.count > 0);
  if (equation->output_count == 0) return;
  size_t first = 0, count = choice.branches->list.count;
  int64_t known;
  choice.index = without_clamp(choice.index, count);
  if (literal_int(choice.index->tensor, &known)) {
    first = known < 0 ? 0 : (uint64_t)known < count ? (size_t)known : count - 1;
    count = 1;
  }
  choice.operands = arena_new_array(&l->context->arena, equation->input_count, Value *);
  for (uint32_t i = 1; i < equation->input_count; i++) choice.operands[i - 1] = input(l, i);
  Value **results = arena_new_array(&l->context->arena, equation->output_count, Value *);
  lower_range(l, &choice, first, count, results);
  for (uint32_t i = 0; i < equation->output_count; i++) bind(l, i, results[i]);
}

/* clang-format off */
const Plugin cond_plugins[] = {
    PLUGIN("cond", lower_cond),
    PLUGIN("platform_index", lower_platform_index),
    {0},
};
/* clang-format on */
