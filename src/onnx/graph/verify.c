/* The verifier: scopes, order, names and use lists. */
#include "onnx/graph/verify.h"

#include <stdarg.h>
#include <stdio.h>

#include "onnx/graph/verify_node.h"

/* ---- faults ---- */

void found(Verification *verification, const Graph *graph, const Node *node, const char *format, ...) {
  if (verification->faults.count == MOST_FAULTS) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  Context *context = verification->model->context;
  Fault fault = {graph, node, arena_copy_text(&context->arena, text)};
  array_push(context, &verification->faults, fault);
}

const char *type_text(Context *context, Type type) {
  Builder out;
  builder_init(&out, context);
  builder_add(&out, dtype_name(type.dtype));
  if (type_is_unranked(type)) return builder_text(&out);
  builder_add(&out, "[");
  for (uint32_t i = 0; i < type.rank; i++) {
    builder_format(&out, "%s%s", i ? "," : "", dim_text(context, type.dims[i]));
  }
  builder_add(&out, "]");
  return builder_text(&out);
}

/* The number of a node in its graph stands in for a name that it does not have yet. */
static size_t place_of(const Node *node) {
  size_t place = 0;
  while ((node = node->previous)) place++;
  return place;
}

static const char *line_of(const Model *model, const Node *node) {
  if (!model->provenance || !node->origin || !node->origin->site_count) return NULL;
  const Frame *frame = site_user_frame(model->provenance, node->origin->sites[0]);
  return frame ? frame_traceback_line(model->provenance, (Frame *)(uintptr_t)frame) : NULL;
}

const char *fault_text(const Model *model, const Fault *fault) {
  Builder out;
  builder_init(&out, model->context);
  const Node *node = fault->node;
  Str graph = fault->graph->name;
  if (!node) {
    builder_format(&out, "graph '%s'", graph ? graph : "");
  } else if (node->name && *node->name) {
    builder_format(&out, "%s '%s'", node->op_type, node->name);
  } else {
    builder_format(&out, "%s, node %zu of graph '%s'", node->op_type, place_of(node), graph ? graph : "");
  }
  const char *line = node ? line_of(model, node) : NULL;
  if (line) builder_format(&out, ", from %s", line);
  builder_format(&out, ": %s", fault->text);
  return builder_text(&out);
}

/* ---- values and scopes ----
 *
 * A value is in scope while its scratch is the verification. Graphs are entered and left like blocks of a program. */

static bool in_scope(const Verification *verification, const Value *value) { return value->scratch == verification; }

static const char *value_text(Verification *verification, const Value *value) {
  Context *context = verification->model->context;
  if (value->name && *value->name) return arena_format(&context->arena, "'%s'", value->name);
  const Node *producer = value->producer;
  return producer ? arena_format(&context->arena, "output %u of a %s", value->output_index, producer->op_type)
                  : "without a name";
}

static void take_name(Verification *verification, const Graph *graph, const Node *node, Value *value) {
  bool is_leftover = value->producer && !value->uses && !value->producer->name; /* of a pass; it will go */
  if (!value->name || is_leftover) return;
  void **slot = map_slot_pointer(verification->model->context, &verification->names, value->name);
  if (*slot && *slot != value && in_scope(verification, *slot)) {
    found(verification, graph, node, "duplicate name '%s'", value->name);
  }
  *slot = value;
}

static void bring_into_scope(Verification *verification, const Graph *graph, const Node *node, Value *value) {
  if (verification->all) take_name(verification, graph, node, value);
  if (value->graph != graph)
    found(verification, graph, node, "the value %s belongs to another graph", value_text(verification, value));
  value->scratch = verification;
}

/* Every use on the value's list says the same of itself, and so does its user. */
static void check_uses(Verification *verification, const Graph *graph, const Value *value) {
  Use *const *link = &value->uses;
  for (const Use *use = value->uses; use; link = &use->next, use = use->next) {
    const Node *user = use->node;
    bool mine = !user || (use >= user->inputs && use < user->inputs + user->input_count);
    if (use->value != value || use->link != link || !mine) {
      found(verification, graph, value->producer, "the use list of %s is broken", value_text(verification, value));
      return;
    }
    verification->uses_listed++;
  }
}

static void take_out_of_scope(Verification *verification, const Graph *graph, Value *value) {
  if (verification->all) check_uses(verification, graph, value);
  value->scratch = NULL;
}

static bool is_inside(const Graph *inner, const Graph *outer) {
  for (const Graph *graph = inner; graph; graph = graph->owner ? graph->owner->graph : NULL) {
    if (graph == outer) return true;
  }
  return false;
}

/* Says why a value is not in scope: out of place, out of order, or not there at all. */
static void check_use(Verification *verification, const Graph *graph, const Node *node, const Use *use,
                      const char *what, uint32_t index) {
  const Value *value = use->value;
  if (!value) return;
  verification->uses_seen++;
  if (!use->link || *use->link != use) {
    found(verification, graph, node, "%s %u is not on the use list of %s", what, index,
          value_text(verification, value));
  }
  if (in_scope(verification, value)) return;
  const char *text = value_text(verification, value);
  if (value->producer && is_inside(graph, value->producer->graph)) {
    found(verification, graph, node, "%s %u, %s, is used before it is defined, or its producer was removed", what,
          index, text);
  } else if (value->producer) {
    found(verification, graph, node, "%s %u, %s, belongs to a graph that does not enclose this one", what, index, text);
  } else {
    found(verification, graph, node, "%s %u, %s, is not defined here", what, index, text);
  }
}

/* ---- graphs ---- */

static void verify_graph(Verification *verification, Graph *graph);

static void verify_bodies(Verification *verification, Node *node) {
  for (size_t i = 0; i < node->attributes.count; i++) {
    const Attribute *attribute = &node->attributes.items[i];
    if (attribute->kind != ATTRIBUTE_GRAPH || attribute->reference) continue;
    if (attribute->graph->owner != node)
      FOUND(verification, node, "its body %s belongs to another node", attribute->name);
    else verify_graph(verification, attribute->graph);
  }
}

static const Function *callee_of(const Verification *verification, const Node *node) {
  if (node->callee) return node->callee;
  return map_get(&verification->functions, (uint64_t)(uintptr_t)node->op_type, (uint64_t)(uintptr_t)node->domain);
}

static bool is_imported(const Model *model, Str domain) {
  for (size_t i = 0; i < model->opsets.count; i++) {
    if (model->opsets.items[i].domain == domain) return true;
  }
  return str_is(domain, "ai.onnx") && model->opset;
}

/* Composites live between lowering and the last phase of passes: named, they would be written. */
static void check_domain(Verification *verification, const Node *node) {
  if (node->op > OP_STANDARD_END) {
    if (node->name) FOUND(verification, node, "is a composite, which cannot be written to a file");
    return;
  }
  if (*node->domain ? is_imported(verification->model, node->domain) : verification->opset > 0) return;
  FOUND(verification, node, "the domain '%s' is not imported", node->domain);
}

static void check_outputs(Verification *verification, Node *node) {
  for (uint32_t i = 0; i < node->output_count; i++) {
    Value *value = node->outputs[i];
    if (!value) continue;
    if (value->producer != node || value->output_index != i) {
      FOUND(verification, node, "output %u does not have this node as its producer", i);
    } else if (in_scope(verification, value)) {
      FOUND(verification, node, "output %u is already defined", i);
    }
  }
}

static void verify_node(Verification *verification, Node *node) {
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (node->inputs[i].node != node) FOUND(verification, node, "input %u does not refer back to its node", i);
    check_use(verification, node->graph, node, &node->inputs[i], "input", i);
  }
  check_domain(verification, node);
  check_outputs(verification, node);
  const Function *function = node->op == OP_NONE ? callee_of(verification, node) : NULL;
  if (function) verify_call(verification, node, function);
  else if (verify_operator(verification, node) && verification->all) verify_shapes(verification, node);
  verify_bodies(verification, node);
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (node->outputs[i]) bring_into_scope(verification, node->graph, node, node->outputs[i]);
  }
}

/* The list of nodes, forwards and backwards; false when walking it would be of no use. */
static bool check_list(Verification *verification, const Graph *graph) {
  size_t count = 0;
  const Node *previous = NULL;
  for (const Node *node = graph->first; node; previous = node, node = node->next) {
    if (node->previous != previous || node->graph != graph || ++count > graph->node_count) break;
  }
  if (previous == graph->last && count == graph->node_count) return true;
  found(verification, graph, NULL, "the list of nodes is broken after %zu of %zu", count, graph->node_count);
  return false;
}

static void check_graph_outputs(Verification *verification, const Graph *graph) {
  for (size_t i = 0; i < graph->outputs.count; i++) {
    const Use *use = graph->outputs.items[i];
    if (use->node) found(verification, graph, NULL, "output %zu is marked as the input of a node", i);
    if (!use->value) {
      found(verification, graph, NULL, "output %zu is missing", i);
      continue;
    }
    check_use(verification, graph, NULL, use, "output", (uint32_t)i);
    /* ONNX Runtime refuses a body that gives a value of a graph around it as it is. */
    if (in_scope(verification, use->value) && use->value->graph != graph) {
      found(verification, graph->owner ? graph->owner->graph : graph, graph->owner,
            "output %zu of its body, %s, belongs to an enclosing graph", i, value_text(verification, use->value));
    }
  }
}

/* Values that are outputs twice have one name: the standard wants two. */
static void check_outputs_differ(Verification *verification, const Graph *graph) {
  for (size_t i = 0; i < graph->outputs.count; i++) {
    const Value *value = graph->outputs.items[i]->value;
    size_t times = 0;
    for (const Use *use = value ? value->uses : NULL; use && times < 2; use = use->next) times += !use->node;
    if (times < 2) continue;
    found(verification, graph, NULL, "output %zu, %s, is listed twice", i, value_text(verification, value));
    return; /* looking at all uses again for each output would not be linear */
  }
}

static void enter_graph(Verification *verification, const Graph *graph) {
  for (size_t i = 0; i < graph->inputs.count; i++) {
    Value *value = graph->inputs.items[i];
    if (value->producer) found(verification, graph, NULL, "input %zu is produced by a node", i);
    else if (in_scope(verification, value)) found(verification, graph, NULL, "input %zu is listed twice", i);
    bring_into_scope(verification, graph, NULL, value);
  }
  for (size_t i = 0; i < graph->initializers.count; i++) {
    Value *value = graph->initializers.items[i];
    if (value->producer || !value->tensor) {
      found(verification, graph, NULL, "initializer %zu, %s, has no data of its own", i,
            value_text(verification, value));
    } else if (value->type.dtype != value->tensor->dtype) {
      found(verification, graph, NULL, "initializer %zu is %s but its data is %s", i, dtype_name(value->type.dtype),
            dtype_name(value->tensor->dtype));
    }
    bring_into_scope(verification, graph, NULL, value);
  }
}

static void leave_graph(Verification *verification, const Graph *graph) {
  for (size_t i = 0; i < graph->inputs.count; i++) take_out_of_scope(verification, graph, graph->inputs.items[i]);
  for (size_t i = 0; i < graph->initializers.count; i++) {
    Value *value = graph->initializers.items[i];
    if (in_scope(verification, value)) take_out_of_scope(verification, graph, value); /* else it is an input too */
  }
  FOR_EACH_NODE(node, graph) {
    for (uint32_t i = 0; i < node->output_count; i++) {
      if (node->outputs[i]) take_out_of_scope(verification, graph, node->outputs[i]);
    }
  }
}

static void verify_graph(Verification *verification, Graph *graph) {
  if (!check_list(verification, graph)) return;
  if (++verification->depth > MOST_NESTED_GRAPHS) {
    found(verification, graph->owner->graph, graph->owner,
          "graphs are nested more than %d levels deep, which readers reject", MOST_NESTED_GRAPHS);
  } else {
    enter_graph(verification, graph);
    FOR_EACH_NODE(node, graph) verify_node(verification, node);
    check_graph_outputs(verification, graph);
    if (verification->all) check_outputs_differ(verification, graph);
    leave_graph(verification, graph);
  }
  verification->depth--;
}

/* ---- the model ---- */

static void set_opset(Verification *verification, int64_t opset) {
  if (opset == verification->opset) return;
  verification->opset = opset;
  memset(verification->known, 0, sizeof verification->known);
  memset(verification->right, 0, sizeof verification->right);
}

/* A call of one of several definitions with one name says by other means which it calls: it is not looked at. */
static void note_functions(Verification *verification) {
  static const Function several;
  Model *model = verification->model;
  for (size_t i = 0; i < model->functions.count; i++) {
    Function *function = model->functions.items[i];
    void **slot = map_slot(model->context, &verification->functions, (uint64_t)(uintptr_t)function->name,
                           (uint64_t)(uintptr_t)function->domain);
    *slot = *slot ? (void *)(uintptr_t)&several : function;
  }
}

static void verify_function(Verification *verification, const Function *function) {
  Graph *body = function->body;
  if (body->owner) found(verification, body, NULL, "the function's body is in a node");
  set_opset(verification, function->opset ? function->opset : verification->model->opset);
  verification->names = (Map){0};
  verify_graph(verification, body);
}

FaultList model_verify(Model *model, VerifyDepth depth) {
  /* In the arena: no value of an earlier verification can have this address in its scratch. */
  Verification *verification = arena_new(&model->context->arena, Verification);
  verification->model = model;
  verification->all = depth == VERIFY_ALL;
  note_functions(verification);
  for (size_t i = 0; i < model->functions.count; i++) verify_function(verification, model->functions.items[i]);
  set_opset(verification, model->opset);
  verification->names = (Map){0};
  verify_graph(verification, model->graph);
  if (verification->all && !verification->faults.count && verification->uses_seen != verification->uses_listed) {
    found(verification, model->graph, NULL, "use lists contain %zu uses, but there are %zu", verification->uses_listed,
          verification->uses_seen);
  }
  return verification->faults;
}

void require_sound(Model *model) {
  FaultList faults = model_verify(model, VERIFY_ALL);
  if (!faults.count) return;
  fail(model->context, ERROR_FORMAT, "the model is not valid: %s (j2o check lists all errors)",
       fault_text(model, &faults.items[0]));
}

void require_verified(Model *model, VerifyDepth depth, const char *pass) {
  FaultList faults = model_verify(model, depth);
  if (!faults.count) return;
  fail(model->context, ERROR_INTERNAL, "%s%s left an invalid graph: %s", pass ? "the pass " : "the conversion",
       pass ? pass : "", fault_text(model, &faults.items[0]));
}
