/* onnx_function: a call of a function of the model, whose body is lowered into a definition of its own.
 *
 * A body refers to nothing outside. Its arguments are its first inputs, then come the parameters and sizes that it
 * captured (Scope.captures), which the call hands in. Calls that may share a definition do so when the bodies are the
 * same; the others each have their own: Block, Block_2, … */
#include "lower/lower.h"
#include "onnx/graph/definitions.h"

/* A call being lowered. */
typedef struct Call {
  Str name, domain;
  bool unique;
  size_t defined;              /* functions before its body was lowered */
  Scope scope;                 /* of the body */
  ARRAY(Value *) outer_inputs; /* what the call hands in */
} Call;

static Str text_param(Lowering *l, const char *name) {
  const Param *param = param_get(l->context, l->equation, name);
  rely_on(l, param->kind == PARAM_STRING);
  return param->text;
}

/* What the function calls its argument, or NULL. */
static Str input_name(Lowering *l, uint32_t index) {
  const Param *names = param_find(l->equation, "inputs");
  if (!names || names->kind != PARAM_LIST || index >= names->list.count) return NULL;
  const Param *name = &names->list.items[index];
  return name->kind == PARAM_STRING && name->text[0] ? name->text : NULL;
}

/* Constants among the arguments are constants of the body, or captured as parameters: never its first inputs. */
static Value **body_arguments(Lowering *l, Call *call, Value *const *outer, uint32_t count) {
  Value **inner = arena_new_array(&l->context->arena, count, Value *);
  for (uint32_t i = 0; i < count; i++) {
    if (outer[i]->tensor) continue;
    inner[i] = graph_input(call->scope.graph, outer[i]->type, NULL);
    inner[i]->name = input_name(l, i);
    array_push(l->context, &call->outer_inputs, outer[i]);
  }
  for (uint32_t i = 0; i < count; i++) {
    if (outer[i]->tensor) inner[i] = constant(l, outer[i]->tensor);
  }
  return inner;
}

static void lower_body(Lowering *l, Here here, Call *call) {
  const Equation *equation = l->equation;
  const Jaxpr *jaxpr = param_jaxpr(l->context, equation, l->plugin->calls);
  rely_on(l, jaxpr->input_count == equation->input_count && jaxpr->output_count == equation->output_count);
  Value **outer = arena_new_array(&l->context->arena, equation->input_count, Value *);
  for (uint32_t i = 0; i < equation->input_count; i++) outer[i] = input(l, i);
  Scope *outer_scope = l->scope;
  Graph *outer_graph = l->graph;
  call->scope = (Scope){.graph = graph_new(l->model, call->name), .is_function = true};
  l->scope = &call->scope;
  l->graph = call->scope.graph;
  Value **arguments = body_arguments(l, call, outer, equation->input_count);
  Value **results = arena_new_array(&l->context->arena, jaxpr->output_count, Value *);
  lower_region(l, here, jaxpr, arguments, results);
  for (uint32_t i = 0; i < jaxpr->output_count; i++) subgraph_output(l, results[i]);
  l->scope = outer_scope;
  l->graph = outer_graph;
  for (size_t i = 0; i < call->scope.captures.count; i++) {
    const Capture *capture = &call->scope.captures.items[i];
    Value *value = capture->tensor ? constant(l, capture->tensor) : dimension_value(l, capture->dim);
    array_push(l->context, &call->outer_inputs, value);
  }
}

/* The name itself for the first definition, then name_2, name_3, … */
static Str free_name(Lowering *l, const Call *call) {
  for (;;) {
    void **slot =
        map_slot(l->context, &l->functions, (uint64_t)(uintptr_t)call->name, (uint64_t)(uintptr_t)call->domain);
    uintptr_t number = (uintptr_t)*slot + 1;
    *slot = (void *)number;
    if (number == 1) return call->name;
    Str name = str_intern(l->context, arena_format(&l->context->arena, "%s_%zu", call->name, (size_t)number));
    slot = map_slot(l->context, &l->functions, (uint64_t)(uintptr_t)name, (uint64_t)(uintptr_t)call->domain);
    if (*slot) continue; /* another function is called just that */
    *slot = (void *)(uintptr_t)1;
    return name;
  }
}

static Function *define(Lowering *l, const Call *call) {
  Function *function = arena_new(&l->context->arena, Function);
  *function = (Function){.name = free_name(l, call), .domain = call->domain, .body = call->scope.graph};
  array_push(l->context, &l->model->functions, function);
  import_domain(l, function->domain, 1);
  return function;
}

/* The last steps that two paths have in common; NULL when there are none. */
static Str common_steps(Lowering *l, Str a, Str b) {
  size_t length_a = str_length(a), length_b = str_length(b), same = 0, steps = 0;
  while (same < length_a && same < length_b && a[length_a - 1 - same] == b[length_b - 1 - same]) {
    same++;
    bool at_start = (same == length_a || strchr("./", a[length_a - 1 - same])) &&
                    (same == length_b || strchr("./", b[length_b - 1 - same]));
    if (at_start) steps = same;
  }
  return steps ? str_intern(l->context, a + length_a - steps) : NULL;
}

/* What serves several layers is named by what their parameters' paths share: kernel, for layers.0.kernel and
 * layers.1.kernel. */
static void name_shared_inputs(Lowering *l, Graph *body, const Graph *twin) {
  for (size_t i = 0; i < body->inputs.count; i++) {
    Value *input = body->inputs.items[i];
    Str other = twin->inputs.items[i]->name;
    if (input->name != other) input->name = input->name && other ? common_steps(l, input->name, other) : NULL;
  }
}

/* Takes back the definitions that came with a body that is not needed. */
static void forget_functions(Lowering *l, size_t count) {
  while (l->model->functions.count > count) {
    const Function *function = l->model->functions.items[--l->model->functions.count];
    uint64_t domain = (uint64_t)(uintptr_t)function->domain;
    void **slot = map_slot(l->context, &l->functions, (uint64_t)(uintptr_t)function->body->name, domain);
    uintptr_t left = (uintptr_t)*slot - 1;
    if (left) *slot = (void *)left;
    else map_remove(&l->functions, (uint64_t)(uintptr_t)function->body->name, domain);
    if (function->name == function->body->name) continue;
    map_remove(&l->functions, (uint64_t)(uintptr_t)function->name, domain);
  }
}

/* One that is defined already, else a new one. A hash that another body holds moves on by one. */
static Function *share(Lowering *l, const Call *call) {
  uint64_t hash = hash_mix(graph_hash(call->scope.graph), (uint64_t)(uintptr_t)call->name);
  for (;; hash++) {
    void **slot = map_slot(l->context, &l->shared, hash, (uint64_t)(uintptr_t)call->domain);
    Function *known = *slot;
    if (!known) return *slot = define(l, call);
    if (!graph_same(known->body, call->scope.graph)) continue;
    array_push(l->context, &known->twins, call->scope.graph);
    name_shared_inputs(l, known->body, call->scope.graph);
    forget_functions(l, call->defined);
    return known;
  }
}

static void lower_function(Lowering *l) {
  Call call = {.name = text_param(l, "name"),
               .domain = text_param(l, "namespace"),
               .unique = param_bool_or(l->equation, "unique", false),
               .defined = l->model->functions.count};
  lower_body(l, HERE, &call);
  Function *function = call.unique ? share(l, &call) : define(l, &call);
  uint32_t count = l->equation->output_count;
  Type *types = arena_new_array(&l->context->arena, count, Type);
  for (uint32_t i = 0; i < count; i++) types[i] = output_type(l, i);
  Node *node = emit_foreign(l, HERE, function->name, function->domain, types, count, call.outer_inputs.items,
                            call.outer_inputs.count);
  node->callee = function;
  for (uint32_t i = 0; i < count; i++) bind(l, i, node->outputs[i]);
}

/* Marks without a partner (see program/outline.c). */
static void lower_begin(Lowering *l) { bind(l, 0, constant_integer(l, output_type(l, 0).dtype, 0)); }

static void lower_end(Lowering *l) {
  for (uint32_t i = 0; i < l->equation->output_count; i++) bind(l, i, input(l, i + 1));
}

/* clang-format off */
const Plugin function_plugins[] = {
    PLUGIN("onnx_function", lower_function, .calls = "jaxpr"),
    PLUGIN("onnx_function_begin", lower_begin),
    PLUGIN("onnx_function_end", lower_end),
    {0},
};
/* clang-format on */
