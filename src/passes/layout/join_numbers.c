/* Numbers that are taken out of an array and joined to one again stay arrays of one number in between.
 *
 * A system of equations is often written number by number: x, y, z are taken out of the state, and what is computed of
 * them is stacked. Each number then loses its axis by Gather and gets one again by Unsqueeze. An array of one number
 * broadcasts as the number does, so Gather can keep the axis, and where a Squeeze took it the array is read itself.
 * What cannot take an axis gets a Squeeze; where that would need as many nodes as it saves, all is left as it is.
 */
#include "passes/passes.h"
#include "passes/rewrite.h"

/* Numbers that get an axis together, for one is computed of another. */
typedef struct Family {
  struct Family *merged_into; /* or NULL */
  size_t joined;              /* nodes that give a number its axis, or take it off: they go */
  size_t blocked;             /* numbers that something needs without one */
} Family;

typedef struct Numbers {
  Rewriter *rewriter;
  Map families; /* value -> Family */
  ARRAY(Value *) values;
} Numbers;

static Family *family_of(const Numbers *numbers, const Value *value) {
  Family *family = value ? map_get_pointer(&numbers->families, value) : NULL;
  while (family && family->merged_into) family = family->merged_into;
  return family;
}

static Family *merged(Family *a, Family *b) {
  if (!a || a == b) return b;
  b->merged_into = a;
  a->joined += b->joined;
  a->blocked += b->blocked;
  return a;
}

static bool is_number(const Value *value) {
  return value && !type_is_unranked(value->type) && value->type.dtype != DTYPE_NONE && value->type.rank == 0;
}

static bool is_one_number(Type type) { return !type_is_unranked(type) && type.rank == 1 && dim_is(type.dims[0], 1); }

/* Takes one number out of a row, by an index that is a constant. */
static bool takes_number(const Node *node) {
  if (!node_is(node, OP_Gather) || !is_number(node->outputs[0]) || node_input(node, 0)->type.rank != 1) return false;
  const Tensor *index = constant_of(node_input(node, 1));
  return index && index->rank == 0 && index->dtype == DTYPE_INT64;
}

/* Takes the axis of an array of one number, and does nothing else. */
static bool takes_axis_off(const Node *node) {
  return (node_is(node, OP_Squeeze) || node_is(node, OP_Reshape)) && is_number(node->outputs[0]) &&
         node_input(node, 0)->type.dtype != DTYPE_NONE && is_one_number(node_input(node, 0)->type);
}

/* Does the reader take an array of one number where it took the number, with a result of the same or one more axis? */
static bool takes_axis(const Use *use) {
  const Node *node = use->node;
  if (!node || node->output_count != 1 || !node_has(node, ELEMENTWISE)) return false;
  Type type = node->outputs[0]->type;
  if (type.dtype == DTYPE_NONE || type_is_unranked(type)) return false;
  return node_has(node, BROADCASTS) || use == &node->inputs[0];
}

/* Gives the number an axis, and does nothing else. */
static bool gives_axis(const Use *use) {
  const Node *node = use->node;
  return node && use == &node->inputs[0] && (node_is(node, OP_Unsqueeze) || node_is(node, OP_Reshape)) &&
         is_one_number(node->outputs[0]->type) && !value_is_output(node->outputs[0]);
}

static bool is_blocked_by(const Value *value, const Use *use) {
  if (gives_axis(use)) return false;
  return !use->node || use->node->graph != value->graph || !takes_axis(use);
}

static void enlist(Numbers *numbers, Value *value, Family *family) {
  bool blocked = false;
  for (const Use *use = value->uses; use; use = use->next) {
    family->joined += gives_axis(use);
    blocked = blocked || is_blocked_by(value, use);
  }
  family->blocked += blocked;
  *map_slot_pointer(numbers->rewriter->context, &numbers->families, value) = family;
  array_push(numbers->rewriter->context, &numbers->values, value);
}

/* A node whose result is a number belongs to the families of the numbers it is computed of. */
static void look_at(Numbers *numbers, Node *node) {
  if (node->output_count != 1 || !is_number(node->outputs[0])) return;
  Family *family = NULL;
  if (takes_number(node) || takes_axis_off(node)) {
    family = arena_new(&numbers->rewriter->context->arena, Family);
    *family = (Family){.joined = takes_axis_off(node)};
  } else if (node_has(node, ELEMENTWISE)) {
    for (uint32_t i = 0; i < node->input_count; i++) {
      Family *other = family_of(numbers, node_input(node, i));
      if (other && takes_axis(&node->inputs[i])) family = merged(family, other);
    }
  }
  if (family) enlist(numbers, node->outputs[0], family);
}

static Node *squeeze_behind(const Numbers *numbers, Value *value) {
  static const int64_t leading[] = {0};
  Rewriter *rewriter = numbers->rewriter;
  Node *node = value->producer;
  const Origin *origin = REWRITE_ORIGIN(rewriter, node);
  Value *inputs[] = {value, rewrite_constant_ints(rewriter, node, leading, 1, node->origin)};
  Type type = type_scalar(value->type.dtype);
  return graph_node(node->graph, origin, OP_Squeeze, inputs, 2, &type, 1, node->next);
}

static void keep_index_axis(const Numbers *numbers, Node *gather) {
  int64_t index = *(const int64_t *)constant_of(node_input(gather, 1))->data;
  use_set(&gather->inputs[1], rewrite_constant_ints(numbers->rewriter, gather, &index, 1, gather->origin));
}

/* What is read instead may be no node's, which could take over where the Squeeze came from: its readers do. */
static void read_array(Rewriter *rewriter, Node *squeeze) {
  for (const Use *use = squeeze->outputs[0]->uses; use; use = use->next) {
    rewrite_hand_over(rewriter, use->node, squeeze);
  }
  rewrite_replace(rewriter, squeeze, node_input(squeeze, 0));
}

/* Readers that need the number get it by a Squeeze; those that gave it an axis go. */
static void give_axis(const Numbers *numbers, Value *value) {
  static const Dim one[] = {{.constant = 1}};
  Node *squeeze = NULL;
  bool takes_off = takes_axis_off(value->producer);
  value->type = type_make(numbers->rewriter->context, value->type.dtype, one, 1);
  if (node_is(value->producer, OP_Gather)) keep_index_axis(numbers, value->producer);
  for (Use *use = value->uses, *next; use; use = next) {
    next = use->next;
    if (squeeze && use->node == squeeze) continue;
    if (gives_axis(use)) {
      Node *node = use->node;
      while (next && next->node == node) next = next->next;
      rewrite_replace(numbers->rewriter, node, value);
    } else if (is_blocked_by(value, use)) {
      if (!squeeze) squeeze = squeeze_behind(numbers, value);
      if (!use->node) rewrite_take_name(squeeze->outputs[0], value);
      use_set(use, squeeze->outputs[0]);
    }
  }
  if (takes_off) read_array(numbers->rewriter, value->producer);
}

static void join_in_graph(Graph *graph, void *data) {
  Numbers numbers = {.rewriter = data};
  FOR_EACH_NODE(node, graph) look_at(&numbers, node);
  for (size_t i = 0; i < numbers.values.count; i++) {
    const Family *family = family_of(&numbers, numbers.values.items[i]);
    if (family->joined <= family->blocked) continue;
    give_axis(&numbers, numbers.values.items[i]);
    numbers.rewriter->changed = true;
  }
}

bool join_numbers(Model *model) {
  Rewriter rewriter;
  if (!model->made[OP_Gather] && !model->made[OP_Squeeze]) return false;
  rewrite_begin(&rewriter, model, __func__);
  model_each_graph(model, join_in_graph, &rewriter);
  return rewrite_end(&rewriter);
}
