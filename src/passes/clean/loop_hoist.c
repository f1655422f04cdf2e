/* Work that need not be repeated leaves a loop's body.
 *
 * What depends on nothing inside Loop or Scan is computed once, before it. And where every step of a Scan multiplies
 * its slice of an input by the same matrix, as recurrent layers do, the slices of all steps are multiplied at once: one
 * large MatMul in place of many small ones. */
#include "passes/loop_body.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

static bool is_loop(const Node *node) { return node && node_has(node, LOOPS); }

/* Integer division by zero ends the process; a loop that takes no step may be there to prevent it. */
static bool may_trap(const Node *node) {
  if (!node_is(node, OP_Div) && !node_is(node, OP_Mod)) return false;
  const Value *divisor = node_input(node, 1);
  return !divisor || !dtype_is_float(divisor->type.dtype);
}

/* All inputs come from outside, and no output is the body's (which must produce its outputs itself). */
static bool is_invariant(const Node *node, const Graph *body) {
  if (node->domain[0]) return false; /* functions may hold anything, operators of others do anything */
  if (node_has_subgraph(node) || node_has(node, RANDOM)) return false;
  if (may_trap(node) && node_is(body->owner, OP_Loop)) return false;
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *value = node->inputs[i].value;
    if (value && value->graph == body) return false;
  }
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (node->outputs[i] && value_is_output(node->outputs[i])) return false;
  }
  return true;
}

static bool hoist_invariants(Graph *body) {
  bool changed = false;
  for (Node *node = body->first, *next; node; node = next) {
    next = node->next;
    if (!is_invariant(node, body)) continue;
    node_move(node, body->owner);
    changed = true;
  }
  return changed;
}

/* The step's product of a slice and an outer matrix, or NULL. */
static Node *product_of(const Value *slice) {
  for (const Use *use = slice->uses; use; use = use->next) {
    Node *node = use->node;
    if (!node || node->graph != slice->graph || !node_is(node, OP_MatMul) || node_input(node, 0) != slice) continue;
    const Value *matrix = node_input(node, 1);
    if (matrix->graph == slice->graph || matrix->type.rank != 2) continue;
    if (!value_is_output(node->outputs[0])) return node;
  }
  return NULL;
}

/* product becomes one more scan input: the slices of MatMul(all, matrix). */
static void multiply_before(Node *scan, Node *product, Value *all) {
  Model *model = scan->graph->model;
  Value *result = product->outputs[0];
  Dim dims[MAX_RANK];
  dims[0] = all->type.dims[0];
  for (uint32_t i = 0; i < result->type.rank; i++) dims[i + 1] = result->type.dims[i];
  Type type = type_make(model->context, result->type.dtype, dims, result->type.rank + 1);
  const Origin *origin = origin_with_emitter(model->provenance, product->origin, PASS_EMITTER(model));
  Value *factors[] = {all, node_input(product, 1)};
  Node *before = graph_node(scan->graph, origin, OP_MatMul, factors, 2, &type, 1, scan);
  value_replace(result, scan_add_input(scan, before->outputs[0], result->type));
  node_remove(product);
}

static bool multiply_slices_at_once(Node *scan) {
  LoopShape shape;
  if (!loop_shape(scan, &shape) || shape.body->inputs.count != scan->input_count) return false;
  if (node_attribute(scan, "scan_input_axes")) return false;
  bool changed = false;
  for (size_t i = shape.carried, end = scan->input_count; i < end; i++) {
    for (Node *product; (product = product_of(shape.body->inputs.items[i]));) {
      if (product->outputs[0]->type.rank + 1 > MAX_RANK) break;
      multiply_before(scan, product, scan->inputs[i].value);
      changed = true;
    }
  }
  return changed;
}

static void hoist_from(Graph *graph, void *data) {
  bool *changed = data;
  if (is_loop(graph->owner)) *changed = hoist_invariants(graph) || *changed;
  if (graph->owner && node_is(graph->owner, OP_Scan)) *changed = multiply_slices_at_once(graph->owner) || *changed;
}

bool hoist_from_loops(Model *model) {
  bool changed = false;
  model_each_graph(model, hoist_from, &changed);
  return changed;
}
