/* A loop that may take no step stands in a branch, where what only the loop reads is computed with it.
 *
 * Solvers that save their state at given times look in every step whether a time was passed, and compute before that
 * how the state went along. An If around the loop costs 1 to 1.5 us in ONNX Runtime, a node of few numbers 0.25. It is
 * done in steps of another loop, where that counts, and last, as sink_into_branches moves the nodes.
 */
#include "passes/loop_body.h"
#include "passes/rewrite.h"
#include "target/target.h"

enum {
  FEWEST_NODES = 12, /* that are worth a branch */
  LOOKED_AT = 256,   /* nodes before the loop */
};

/* Does the loop read it, or its body? Whether the loop begins is asked outside. */
static bool is_read_by(const Use *use, const Node *loop) {
  if (!use->node) return false;
  if (use->node == loop) return use != &loop->inputs[1];
  const Graph *graph = use->node->graph;
  while (graph->owner && graph->owner != loop) graph = graph->owner->graph;
  return graph->owner == loop;
}

static bool can_move(const Node *node, const Node *loop, const Map *moved) {
  if (node->domain[0] || node_has_subgraph(node) || node_has(node, RANDOM) || !node->input_count) return false;
  for (uint32_t i = 0; i < node->output_count; i++) {
    for (const Use *use = node->outputs[i] ? node->outputs[i]->uses : NULL; use; use = use->next) {
      if (!is_read_by(use, loop) && !(use->node && map_get_pointer(moved, use->node))) return false;
    }
  }
  return true;
}

static size_t count_movable(Context *context, const Node *loop) {
  Map moved = {0};
  size_t count = 0;
  int left = LOOKED_AT;
  for (Node *node = loop->previous; node && left-- > 0; node = node->previous) {
    if (!can_move(node, loop, &moved)) continue;
    *map_slot_pointer(context, &moved, node) = node;
    count++;
  }
  return count;
}

/* A loop of which every result is carried, and that a computed condition begins. */
static bool may_take_no_step(const Node *loop) {
  LoopShape shape;
  if (!node_is(loop, OP_Loop) || !loop_shape(loop, &shape) || shape.carried != loop->output_count) return false;
  const Value *begins = node_input(loop, 1);
  if (!begins || !begins->producer || begins->type.rank || type_is_unranked(begins->type)) return false;
  for (uint32_t i = 0; i < loop->output_count; i++) {
    const Value *first = node_input(loop, shape.first_input + i);
    if (!loop->outputs[i] || !first || !type_equal(first->type, loop->outputs[i]->type)) return false;
  }
  return true;
}

static void give(Graph *branch, const Origin *origin, Value *value) {
  graph_output(branch, graph_node(branch, origin, OP_Identity, &value, 1, &value->type, 1, NULL)->outputs[0]);
}

static void visit(Rewriter *rewriter, Node *loop) {
  Context *context = rewriter->context;
  if (!may_take_no_step(loop) || !stands_in_loop(loop->graph)) return;
  if (count_movable(context, loop) < FEWEST_NODES) return;
  const Origin *origin = REWRITE_ORIGIN(rewriter, loop);
  Graph *then_branch = graph_new(rewriter->model, str_intern(context, "then_branch"));
  Graph *else_branch = graph_new(rewriter->model, str_intern(context, "else_branch"));
  Type *types = arena_new_array(&context->arena, loop->output_count, Type);
  for (uint32_t i = 0; i < loop->output_count; i++) types[i] = loop->outputs[i]->type;
  Value *begins = node_input(loop, 1);
  Node *choice = graph_node(loop->graph, origin, OP_If, &begins, 1, types, loop->output_count, loop);
  for (uint32_t i = 0; i < loop->output_count; i++) {
    rewrite_take_name(choice->outputs[i], loop->outputs[i]);
    value_replace(loop->outputs[i], choice->outputs[i]);
    give(then_branch, origin, loop->outputs[i]);
    give(else_branch, origin, node_input(loop, loop->input_count - loop->output_count + i));
  }
  node_set_graph(choice, "then_branch", then_branch);
  node_set_graph(choice, "else_branch", else_branch);
  node_move(loop, then_branch->first);
  rewriter->changed = true;
}

bool branch_around_loops(Model *model) {
  Rewriter rewriter;
  if (target_has(model->target, QUIRK_IF_IS_REFUSED_BESIDE_ANOTHER)) return false;
  if (target_has(model->target, QUIRK_IF_CRASHES_INSIDE_ANOTHER)) return false;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
