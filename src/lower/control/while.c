/* while: ONNX Loop without a trip count. The condition is evaluated once before the loop and at the end of each step.
 *
 * Under vmap JAX gives the condition a batch of predicates: the loop then goes on while any holds, and only the
 * elements whose own predicate holds take the step. The predicates are carried along, first of the carried values.
 */
#include "lower/elementwise/arithmetic.h"
#include "lower/lower.h"

typedef struct WhileLoop {
  const Jaxpr *condition, *body;
  uint32_t condition_const_count, body_const_count, carry_count;
  Value **condition_arguments; /* its constants, then the carries */
  Value **body_arguments;
} WhileLoop;

static WhileLoop read_while(Lowering *l) {
  const Equation *equation = l->equation;
  WhileLoop loop = {.condition = param_jaxpr(l->context, equation, "cond_jaxpr"),
                    .body = param_jaxpr(l->context, equation, "body_jaxpr"),
                    .condition_const_count = (uint32_t)param_int(l->context, equation, "cond_nconsts"),
                    .body_const_count = (uint32_t)param_int(l->context, equation, "body_nconsts"),
                    .carry_count = equation->output_count};
  uint64_t const_count = (uint64_t)loop.condition_const_count + loop.body_const_count;
  rely_on(l, const_count + loop.carry_count == equation->input_count);
  rely_on(l, loop.condition->input_count == loop.condition_const_count + loop.carry_count);
  rely_on(l, loop.body->input_count == loop.body_const_count + loop.carry_count);
  rely_on(l, loop.condition->output_count == 1 && loop.body->output_count == loop.carry_count);
  loop.condition_arguments = arena_new_array(&l->context->arena, loop.condition->input_count, Value *);
  loop.body_arguments = arena_new_array(&l->context->arena, loop.body->input_count, Value *);
  uint32_t next = 0;
  for (uint32_t i = 0; i < loop.condition_const_count; i++) loop.condition_arguments[i] = input(l, next++);
  for (uint32_t i = 0; i < loop.body_const_count; i++) loop.body_arguments[i] = input(l, next++);
  for (uint32_t i = 0; i < loop.carry_count; i++) loop.body_arguments[loop.body_const_count + i] = input(l, next++);
  return loop;
}

/* A carry that the body returns as it got it is captured, not carried. */
static bool is_fixed(const WhileLoop *loop, uint32_t carry) {
  return loop->body->inputs[loop->body_const_count + carry] == loop->body->outputs[carry];
}

static Value *lower_condition(Lowering *l, WhileLoop *loop, Value *const *carries) {
  Value *predicate;
  for (uint32_t i = 0; i < loop->carry_count; i++) {
    loop->condition_arguments[loop->condition_const_count + i] = carries[i];
  }
  lower_call(l, HERE, loop->condition, loop->condition_arguments, &predicate);
  return predicate;
}

/* Does any predicate hold? */
static Value *any_of(Lowering *l, Value *predicates) {
  if (predicates->type.rank == 0) return predicates;
  Value *any = EMIT_AROUND(l, OP_ReduceMax, type_scalar(DTYPE_BOOL), predicates);
  Node *reduce = node_is(any->producer, OP_ReduceMax) ? any->producer : node_input(any->producer, 0)->producer;
  node_set_int(reduce, "keepdims", 0);
  return any;
}

/* The step of an element counts only where its predicate holds. Predicates stand for the leading axes. */
static Value *step_where(Lowering *l, Value *predicates, Value *after, Value *before) {
  uint32_t missing = before->type.rank - predicates->type.rank;
  int64_t *axes = arena_new_array(&l->context->arena, missing, int64_t);
  for (uint32_t i = 0; i < missing; i++) axes[i] = predicates->type.rank + i;
  return emit_where(l, HERE, unsqueeze_at(l, predicates, axes, missing), after, before);
}

/* One step: the body, then the condition on what it returned. Adds all outputs of the subgraph. */
static void lower_step(Lowering *l, WhileLoop *loop, Value *predicates) {
  Value **before = loop->body_arguments + loop->body_const_count;
  Value **after = arena_new_array(&l->context->arena, loop->carry_count, Value *);
  lower_call(l, HERE, loop->body, loop->body_arguments, after);
  for (uint32_t i = 0; i < loop->carry_count; i++) {
    if (is_fixed(loop, i)) after[i] = before[i];
    else if (predicates) after[i] = step_where(l, predicates, after[i], before[i]);
  }
  Value *next = lower_condition(l, loop, after);
  subgraph_output(l, any_of(l, next));
  if (predicates) subgraph_output(l, next);
  for (uint32_t i = 0; i < loop->carry_count; i++) {
    if (!is_fixed(loop, i)) subgraph_output(l, after[i]);
  }
}

static bool is_integer(const Var *var, int64_t *value) { return var->literal && literal_int(var->literal, value); }

/* Does the carry count up by one? */
static bool counts(const WhileLoop *loop, uint32_t carry) {
  const Equation *add = loop->body->outputs[carry]->definition;
  int64_t step;
  return add && strcmp(add->primitive, "add") == 0 && is_integer(add->inputs[1], &step) && step == 1 &&
         add->inputs[0] == loop->body->inputs[loop->body_const_count + carry];
}

/* A counter that is one below its bound at the start: what interpreters of kernels make of a grid of one block. */
static bool takes_one_step(Lowering *l, const WhileLoop *loop) {
  const Jaxpr *condition = loop->condition;
  const Equation *test = condition->equation_count == 1 ? condition->equations[0] : NULL;
  int64_t bound, start;
  if (!test || strcmp(test->primitive, "lt") != 0 || test->outputs[0] != condition->outputs[0]) return false;
  if (!is_integer(test->inputs[1], &bound)) return false;
  for (uint32_t i = 0; i < loop->carry_count; i++) {
    if (condition->inputs[loop->condition_const_count + i] != test->inputs[0]) continue;
    const Var *first = l->equation->inputs[loop->condition_const_count + loop->body_const_count + i];
    return counts(loop, i) && is_integer(first, &start) && start == bound - 1;
  }
  return false;
}

static void inline_step(Lowering *l, const WhileLoop *loop) {
  Value **results = arena_new_array(&l->context->arena, loop->carry_count, Value *);
  lower_call(l, HERE, loop->body, loop->body_arguments, results);
  for (uint32_t i = 0; i < loop->carry_count; i++) bind(l, i, results[i]);
}

static void lower_while(Lowering *l) {
  WhileLoop loop = read_while(l);
  if (takes_one_step(l, &loop)) {
    inline_step(l, &loop);
    return;
  }
  Value **carries = loop.body_arguments + loop.body_const_count;
  Value **inputs = arena_new_array(&l->context->arena, loop.carry_count + 3, Value *);
  Type *types = arena_new_array(&l->context->arena, loop.carry_count + 1, Type);
  Value *first = lower_condition(l, &loop, carries), *predicates = NULL;
  bool batched = first->type.rank > 0;
  uint32_t carried = 0;
  inputs[0] = constant_integer(l, DTYPE_INT64, INT64_MAX); /* may be left out, but not every reader knows */
  inputs[1] = any_of(l, first);
  Graph *outer = subgraph_begin(l, "while_body");
  graph_input(l->graph, type_scalar(DTYPE_INT64), NULL); /* the step's number */
  graph_input(l->graph, type_scalar(DTYPE_BOOL), NULL);
  if (batched) {
    predicates = graph_input(l->graph, first->type, NULL);
    types[carried] = first->type;
    inputs[2 + carried++] = first;
  }
  for (uint32_t i = 0; i < loop.carry_count; i++) {
    if (is_fixed(&loop, i)) continue;
    types[carried] = output_type(l, i);
    inputs[2 + carried++] = carries[i];
    carries[i] = graph_input(l->graph, output_type(l, i), NULL);
  }
  lower_step(l, &loop, predicates);
  Graph *body = subgraph_end(l, outer);
  Node *node = emit_node(l, HERE, OP_Loop, types, carried, inputs, carried + 2);
  node_set_graph(node, "body", body);
  Value **outputs = node->outputs + batched;
  for (uint32_t i = 0; i < loop.carry_count; i++) bind(l, i, is_fixed(&loop, i) ? carries[i] : *outputs++);
}

/* clang-format off */
const Plugin while_plugins[] = {
    PLUGIN("while", lower_while),
    {0},
};
/* clang-format on */
