/* Choices by one condition, in the step of a loop, are one conditional.
 *
 * A solver that takes or refuses a step chooses by one condition between every value of its state and what it was
 * before. A Where of few numbers takes ONNX Runtime 0.7 to 0.85 us; an If takes 0.7, 0.2 for each further result, and
 * 0.1 for handing it out. What only one of the two reads is then computed in its branch (sink_into_branches.c). It is
 * done last: a choice is recognised, simplified and computed for all steps at once as a Where.
 */
#include "passes/loop_body.h"
#include "passes/rewrite.h"
#include "target/target.h"

enum {
  FEWEST_CHOICES = 4, /* that are worth a conditional */
  MOST_NODES = 1024,  /* of a step that is looked at */
  MOST_GROUPS = 16,   /* of a step: the work stays linear */
  MOST_ELEMENTS = 64, /* of what is chosen: large arrays would be copied all the same */
};

typedef struct Group {
  Rewriter *rewriter;
  const Value *condition;
  ARRAY(Node *) choices;
  ARRAY(Node *) later; /* what reads them and stands before the last of them */
  Map results;         /* of both */
  size_t known_later;  /* of `later`, those before the last choice */
} Group;

/* A choice by a single condition between values of the result's own shape. */
static bool is_choice(const Node *node) {
  int64_t count;
  if (!node_is(node, OP_Where) || node->input_count != 3 || !node_input(node, 0) || node_input(node, 0)->type.rank)
    return false;
  Type type = node->outputs[0]->type;
  if (type_is_unranked(type) || !type_count(type, &count) || count > MOST_ELEMENTS) return false;
  return type_equal(node_input(node, 1)->type, type) && type_equal(node_input(node, 2)->type, type);
}

static void add_results(Group *group, const Node *node) {
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (node->outputs[i]) *map_slot_pointer(group->rewriter->context, &group->results, node->outputs[i]) = group;
  }
}

/* Does it read a choice of the group, or what was computed of one? What a body reads is not looked at. */
static bool reads_results(const Group *group, const Node *node) {
  if (node_has_subgraph(node)) return true;
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (node->inputs[i].value && map_get_pointer(&group->results, node->inputs[i].value)) return true;
  }
  return false;
}

/* The choices from this one on that do not depend on each other. */
static void find_group(Group *group, Node *first) {
  Context *context = group->rewriter->context;
  for (Node *node = first; node; node = node->next) {
    bool reads = reads_results(group, node);
    if (!reads && is_choice(node) && node_input(node, 0) == group->condition) {
      array_push(context, &group->choices, node);
      group->known_later = group->later.count;
      add_results(group, node);
    } else if (reads) {
      array_push(context, &group->later, node);
      add_results(group, node);
    }
  }
}

static void give(Graph *branch, const Origin *origin, Value *value) {
  graph_output(branch, graph_node(branch, origin, OP_Identity, &value, 1, &value->type, 1, NULL)->outputs[0]);
}

static void write_conditional(Group *group) {
  Rewriter *rewriter = group->rewriter;
  Context *context = rewriter->context;
  size_t count = group->choices.count;
  Node *last = group->choices.items[count - 1];
  Graph *then_branch = graph_new(rewriter->model, str_intern(context, "then_branch"));
  Graph *else_branch = graph_new(rewriter->model, str_intern(context, "else_branch"));
  Type *types = arena_new_array(&context->arena, count, Type);
  for (size_t i = 0; i < count; i++) {
    const Node *choice = group->choices.items[i];
    types[i] = choice->outputs[0]->type;
    give(then_branch, REWRITE_ORIGIN(rewriter, choice), node_input(choice, 1));
    give(else_branch, REWRITE_ORIGIN(rewriter, choice), node_input(choice, 2));
  }
  Value *condition = node_input(last, 0);
  Node *node = graph_node(last->graph, REWRITE_ORIGIN(rewriter, last), OP_If, &condition, 1, types, count, last);
  node_set_graph(node, "then_branch", then_branch);
  node_set_graph(node, "else_branch", else_branch);
  Node *behind = last->next;
  for (size_t i = 0; i < group->known_later; i++) node_move(group->later.items[i], behind);
  for (size_t i = 0; i < count; i++) {
    Node *choice = group->choices.items[i];
    rewrite_take_name(node->outputs[i], choice->outputs[0]);
    value_replace(choice->outputs[0], node->outputs[i]);
    rewrite_drop_unused(rewriter, choice, node);
  }
  rewriter->changed = true;
}

static size_t count_choices(const Value *condition, const Graph *graph) {
  size_t count = 0;
  for (const Use *use = condition->uses; use; use = use->next) {
    count += use->node && use->node->graph == graph && use == &use->node->inputs[0] && is_choice(use->node);
  }
  return count;
}

/* The first choice by a condition that decides several, and was not looked at before. */
static Node *next_choice(Rewriter *rewriter, const Graph *graph, Map *seen) {
  FOR_EACH_NODE(node, graph) {
    if (!is_choice(node)) continue;
    const Value *condition = node_input(node, 0);
    if (map_get_pointer(seen, condition) || constant_of(condition)) continue;
    *map_slot_pointer(rewriter->context, seen, condition) = node;
    if (count_choices(condition, graph) >= FEWEST_CHOICES) return node;
  }
  return NULL;
}

static void join_in(Graph *graph, void *data) {
  Rewriter *rewriter = data;
  Map seen = {0};
  if (graph->node_count > MOST_NODES || !stands_in_loop(graph)) return;
  for (int left = MOST_GROUPS; left > 0; left--) {
    Node *first = next_choice(rewriter, graph, &seen);
    if (!first) return;
    Group group = {.rewriter = rewriter, .condition = node_input(first, 0)};
    find_group(&group, first);
    if (group.choices.count >= FEWEST_CHOICES) write_conditional(&group);
  }
}

bool join_choices(Model *model) {
  Rewriter rewriter;
  if (!target_is_onnx_runtime(model->target)) return false;
  if (target_has(model->target, QUIRK_IF_IS_REFUSED_BESIDE_ANOTHER)) return false;
  if (target_has(model->target, QUIRK_IF_CRASHES_INSIDE_ANOTHER)) return false;
  rewrite_begin(&rewriter, model, __func__);
  model_each_graph(model, join_in, &rewriter);
  return rewrite_end(&rewriter);
}
