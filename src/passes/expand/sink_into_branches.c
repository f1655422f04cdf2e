/* What only one branch of an If reads is computed there, and each branch knows the condition.
 *
 * A program computes what its branches are given before it chooses one of them. A branch that is not taken then costs
 * nothing. It is done last: inside a branch less can be recognised, joined and computed for all steps at once.
 */
#include "passes/rewrite.h"

/* The branch of an If of that graph in which the node stands, however deep; NULL: in none. */
static Graph *branch_of(const Node *node, const Graph *graph) {
  Graph *inner = node->graph;
  while (inner != graph && inner->owner && inner->owner->graph != graph) inner = inner->owner->graph;
  return inner != graph && inner->owner && node_is(inner->owner, OP_If) ? inner : NULL;
}

/* The one branch that holds all readers of the node's results; NULL: there is none. */
static Graph *only_branch(const Node *node) {
  Graph *only = NULL;
  for (uint32_t i = 0; i < node->output_count; i++) {
    for (const Use *use = node->outputs[i] ? node->outputs[i]->uses : NULL; use; use = use->next) {
      Graph *branch = use->node ? branch_of(use->node, node->graph) : NULL;
      if (!branch || (only && branch != only)) return NULL;
      only = branch;
    }
  }
  return only;
}

/* Operators of others may do anything, and so may functions; constants cost nothing where they are. */
static bool can_sink(const Node *node) {
  return !node->domain[0] && !node_has_subgraph(node) && !node_has(node, RANDOM) && !node_is(node, OP_Constant) &&
         node->input_count;
}

/* Backwards, so that what a node was computed of follows it. */
static bool sink_nodes_of(Graph *graph) {
  bool changed = false;
  for (Node *node = graph->last, *previous; node; node = previous) {
    previous = node->previous;
    Graph *branch = can_sink(node) ? only_branch(node) : NULL;
    if (!branch || !branch->first) continue;
    node_move(node, branch->first);
    changed = true;
  }
  return changed;
}

/* The condition is known in each of the branches. */
static void tell_condition(Rewriter *rewriter, Node *node) {
  const Value *condition = node_input(node, 0);
  if (!node_is(node, OP_If) || constant_of(condition)) return;
  const Origin *origin = condition->producer ? condition->producer->origin : node->origin;
  for (Use *use = condition->uses, *next; use; use = next) {
    next = use->next;
    const Graph *branch = use->node ? branch_of(use->node, node->graph) : NULL;
    if (!branch || branch->owner != node) continue;
    const Attribute *taken = node_attribute(node, "then_branch");
    bool is_taken = taken && taken->kind == ATTRIBUTE_GRAPH && taken->graph == branch;
    use_set(use, rewrite_constant_number(rewriter, use->node, DTYPE_BOOL, is_taken, origin));
    rewriter->changed = true;
  }
}

/* Outer graphs first: what sinks into a branch may sink further there. */
static bool sink_in(Graph *graph) {
  bool changed = sink_nodes_of(graph);
  FOR_EACH_NODE(node, graph) {
    for (size_t i = 0; i < node->attributes.count; i++) {
      if (node->attributes.items[i].kind == ATTRIBUTE_GRAPH) changed |= sink_in(node->attributes.items[i].graph);
    }
  }
  return changed;
}

bool sink_into_branches(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  bool changed = sink_in(model->graph);
  for (size_t i = 0; i < model->functions.count; i++) changed |= sink_in(model->functions.items[i]->body);
  rewrite_each_node(&rewriter, tell_condition);
  rewriter.changed = rewriter.changed || changed;
  return rewrite_end(&rewriter);
}
