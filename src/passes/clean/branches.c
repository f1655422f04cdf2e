/* Branches: an If whose condition is known is the branch that is taken, and a result that both branches take from
 * around them is what it is there. */
#include "passes/loop_body.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

/* From now on the result is a value of the graph that the If stands in, by a node that tells of the If until no-ops
 * go. */
static void replace_result(Rewriter *rewriter, Node *choice, Value *result, Value *source) {
  value_replace(result, rewrite_copy_for(result, source, choice, REWRITE_ORIGIN(rewriter, choice)));
  rewriter->changed = true;
}

static void take_branch(Rewriter *rewriter, Node *choice, Graph *taken, Graph *other) {
  while (taken->first) node_move(taken->first, choice);
  for (uint32_t i = 0; i < choice->output_count; i++) {
    Value *result = choice->outputs[i];
    if (result && result->uses) replace_result(rewriter, choice, result, taken->outputs.items[i]->value);
  }
  remove_all_nodes(taken);
  remove_all_nodes(other);
  node_remove(choice);
  rewriter->changed = true;
}

/* What both branches give, where it comes from around them. */
static Value *common_result(const Graph *then_branch, const Graph *else_branch, size_t index) {
  Value *one = behind_identities(then_branch->outputs.items[index]->value);
  Value *other = behind_identities(else_branch->outputs.items[index]->value);
  if (one == other) return one->graph != then_branch && one->graph != else_branch ? one : NULL;
  return one->tensor && are_same_small(one, other) ? one : NULL;
}

static void visit(Rewriter *rewriter, Node *node) {
  if (!node_is(node, OP_If)) return;
  Graph *then_branch = subgraph_of(node, "then_branch"), *else_branch = subgraph_of(node, "else_branch");
  const Value *condition = node_input(node, 0);
  if (!then_branch || !else_branch || !condition) return;
  if (then_branch->outputs.count != node->output_count || else_branch->outputs.count != node->output_count) return;
  if (is_boolean(condition, true)) {
    take_branch(rewriter, node, then_branch, else_branch);
    return;
  }
  if (is_boolean(condition, false)) {
    take_branch(rewriter, node, else_branch, then_branch);
    return;
  }
  for (uint32_t i = 0; i < node->output_count; i++) {
    Value *result = node->outputs[i], *common = common_result(then_branch, else_branch, i);
    if (!common || !result || !result->uses || !type_equal(common->type, result->type)) continue;
    replace_result(rewriter, node, result, common);
  }
}

bool decide_branches(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
