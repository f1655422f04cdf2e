/* Loops end when the steps that are left do nothing.
 *
 * Solvers with a tolerance are often written as a loop of the most steps there may be, each a choice between a step and
 * leaving everything as it is. Once it is left as it is, it stays so: what decided it has not changed either. The loop
 * then goes on as long as steps are taken, and begins only if the first is, where that is known before: then every step
 * is taken.
 */
#include "passes/loop_body.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

typedef struct Choice {
  Node *loop, *node; /* node: the If that takes a step or leaves everything */
  Graph *body, *rests;
  bool rests_when; /* what the predicate is then */
} Choice;

enum { FIRST_CARRIED = 2, FIRST_CARRIED_OUTPUT = 1 };

/* Does the body give back this carried value as it got it, or the branch where the If rests? */
static bool is_left(const Choice *choice, size_t carried) {
  const Value *before = choice->body->inputs.items[FIRST_CARRIED + carried];
  const Value *after = behind_identities(choice->body->outputs.items[FIRST_CARRIED_OUTPUT + carried]->value);
  if (after == before) return true;
  if (after->producer != choice->node) return false;
  const Value *rest = behind_identities(choice->rests->outputs.items[after->output_index]->value);
  return rest == before || (before == node_input(choice->node, 0) && is_boolean(rest, choice->rests_when));
}

static bool all_is_left(const Choice *choice) {
  for (size_t i = 0; i < choice->loop->output_count; i++) {
    if (!is_left(choice, i)) return false;
  }
  return true;
}

/* Whether a step is taken must not depend on the step's number, which changes even when nothing is carried on, nor on
 * chance. Bodies inside may look at both: they are not what decides. */
static bool decides_by_what_is_carried(const Choice *choice) {
  for (const Use *use = choice->body->inputs.items[0]->uses; use; use = use->next) {
    if (!use->node || use->node->graph == choice->body) return false;
  }
  FOR_EACH_NODE(node, choice->body) {
    if (node != choice->node && (node_has(node, RANDOM) || node_has(node, HAS_BODY) || node->domain[0])) return false;
  }
  return true;
}

static bool find_choice(Choice *choice) {
  FOR_EACH_NODE(node, choice->body) {
    if (!node_is(node, OP_If)) continue;
    choice->node = node;
    break;
  }
  if (!choice->node) return false;
  for (int when = 0; when < 2; when++) {
    choice->rests_when = when;
    choice->rests = subgraph_of(choice->node, when ? "then_branch" : "else_branch");
    if (choice->rests && choice->rests->outputs.count == choice->node->output_count && all_is_left(choice)) return true;
  }
  return false;
}

/* Which of the carried values the predicate is; their number where it is none. */
static size_t carried_predicate(const Choice *choice) {
  size_t i = 0, count = choice->loop->output_count;
  while (i < count && choice->body->inputs.items[FIRST_CARRIED + i] != node_input(choice->node, 0)) i++;
  return i;
}

/* The predicate as the next step will find it, where it is carried along; else as this step found it. */
static Value *next_predicate(const Choice *choice) {
  size_t which = carried_predicate(choice);
  if (which == choice->loop->output_count) return node_input(choice->node, 0);
  return choice->body->outputs.items[FIRST_CARRIED_OUTPUT + which]->value;
}

/* The loop begins only where the first step is taken: no step asks any more. */
static void ask_before(Rewriter *rewriter, const Choice *choice) {
  size_t which = carried_predicate(choice);
  if (choice->rests_when || which == choice->loop->output_count) return;
  Value *first = node_input(choice->loop, FIRST_CARRIED + which);
  if (!first || first->type.dtype != DTYPE_BOOL || type_is_unranked(first->type) || first->type.rank != 0) return;
  use_set(&choice->loop->inputs[1], first);
  Value *taken = rewrite_constant_number(rewriter, choice->node, DTYPE_BOOL, 1, choice->node->origin);
  use_set(&choice->node->inputs[0], taken);
}

static void visit(Rewriter *rewriter, Node *node) {
  Choice choice = {.loop = node};
  if (!node_is(node, OP_Loop) || !(choice.body = subgraph_of(node, "body")) || node->input_count < FIRST_CARRIED)
    return;
  bool nothing_stacked = node->output_count == node->input_count - FIRST_CARRIED;
  bool sound = choice.body->inputs.count == node->input_count &&
               choice.body->outputs.count == FIRST_CARRIED_OUTPUT + node->output_count;
  if (!nothing_stacked || !sound || !loop_takes_all_steps(node, choice.body)) return;
  if (!find_choice(&choice) || !decides_by_what_is_carried(&choice)) return;
  Value *predicate = next_predicate(&choice);
  const Origin *origin =
      origin_with_emitter(rewriter->model->provenance, choice.node->origin, REWRITE_EMITTER(rewriter));
  Node *go_on = graph_node(choice.body, origin, choice.rests_when ? OP_Not : OP_Identity, &predicate, 1,
                           &(Type){.dtype = DTYPE_BOOL}, 1, NULL);
  Node *before = choice.body->outputs.items[0]->value->producer;
  if (before) rewrite_hand_over(rewriter, go_on, before);
  use_set(choice.body->outputs.items[0], go_on->outputs[0]);
  ask_before(rewriter, &choice);
  rewriter->changed = true;
}

bool end_loops_early(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
