/* Branches that a target cannot keep apart: both are computed, and what the condition says is chosen.
 *
 * tract refuses a second If in a graph and MNN crashes on one inside another. A branch that may not end, or that
 * divides integers by what the condition may have kept from being 0, stays one, and is told at export.
 */
#include "onnx/facts/schema.h"
#include "onnx/graph/copy.h"
#include "passes/loop_body.h"
#include "passes/rewrite.h"
#include "target/target.h"

static bool stands_beside_another(const Node *node) {
  FOR_EACH_NODE(other, node->graph) {
    if (other != node && node_is(other, node->op)) return true;
  }
  return false;
}

static bool stands_inside_another(const Node *node) {
  for (const Node *owner = node->graph->owner; owner; owner = owner->graph->owner) {
    if (node_is(owner, node->op)) return true;
  }
  return false;
}

static bool is_refused(const Target *target, const Node *node) {
  return (target_has(target, QUIRK_IF_IS_REFUSED_BESIDE_ANOTHER) && stands_beside_another(node)) ||
         (target_has(target, QUIRK_IF_CRASHES_INSIDE_ANOTHER) && stands_inside_another(node));
}

/* Can the node be computed where its branch is not taken? */
static bool is_harmless(const Node *node) {
  bool divides = node_is(node, OP_Div) || node_is(node, OP_Mod);
  if (divides && dtype_is_integer(node->outputs[0]->type.dtype)) return constant_of(node_input(node, 1)) != NULL;
  return !node_has(node, HAS_BODY) || node_is(node, OP_If);
}

static bool is_harmless_branch(const Graph *branch) {
  if (branch->initializers.count) return false;
  FOR_EACH_NODE(node, branch) {
    if (!is_harmless(node)) return false;
    for (int i = 0; node_is(node, OP_If) && i < 2; i++) {
      const Graph *inner = subgraph_of(node, i ? "else_branch" : "then_branch");
      if (!inner || !is_harmless_branch(inner)) return false;
    }
  }
  return true;
}

/* Can Where choose between what the branches give? */
static bool can_choose(const Node *node, const Graph *then_branch, const Graph *else_branch) {
  if (node_input(node, 0)->type.rank != 0) return false;
  if (then_branch->outputs.count != node->output_count || else_branch->outputs.count != node->output_count)
    return false;
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (!node->outputs[i]) return false;
    Type type = node->outputs[i]->type;
    if (!type_equal(then_branch->outputs.items[i]->value->type, type)) return false;
    if (!type_equal(else_branch->outputs.items[i]->value->type, type)) return false;
  }
  return true;
}

static void compute_both_of(Rewriter *rewriter, Node *node) {
  if (!node_is(node, OP_If) || !is_refused(rewriter->model->target, node)) return;
  Graph *then_branch = subgraph_of(node, "then_branch"), *else_branch = subgraph_of(node, "else_branch");
  if (!then_branch || !else_branch || !can_choose(node, then_branch, else_branch)) return;
  if (!is_harmless_branch(then_branch) || !is_harmless_branch(else_branch)) return;
  Map copies = {0}; /* of both: the two have no value in common */
  copy_nodes(then_branch, node->graph, node, &copies);
  copy_nodes(else_branch, node->graph, node, &copies);
  const Origin *origin = REWRITE_ORIGIN(rewriter, node);
  for (uint32_t i = 0; i < node->output_count; i++) {
    Value *inputs[] = {node_input(node, 0), copy_of(&copies, then_branch->outputs.items[i]->value),
                       copy_of(&copies, else_branch->outputs.items[i]->value)};
    Value *old = node->outputs[i];
    Node *choice = graph_node(node->graph, origin, OP_Where, inputs, 3, &old->type, 1, node);
    rewrite_take_name(choice->outputs[0], old);
    value_replace(old, choice->outputs[0]);
    rewrite_hand_over(rewriter, choice, node);
  }
  release_nodes(then_branch);
  release_nodes(else_branch);
  node_remove(node);
  rewriter->changed = true;
}

/* What stood inside comes to stand beside others, and is looked at again. */
bool compute_both_branches(Model *model) {
  bool any = false, changed = true;
  while (changed) {
    Rewriter rewriter;
    rewrite_begin(&rewriter, model, __func__);
    rewrite_each_node(&rewriter, compute_both_of);
    changed = rewrite_end(&rewriter);
    any = any || changed;
  }
  return any;
}
