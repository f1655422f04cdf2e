/* A loop that splits a key and draws from it in every step has two hashes a step, one after the other. What the next
 * step makes of the next key alone is made at the end of this one, and the first time before the loop: it does not
 * depend on what this step draws, so that join_hashes makes both one.
 *
 * The step after the last one is prepared in vain: a loop of one step has as many hashes as before.
 */
#include "onnx/graph/copy.h"
#include "passes/layout/join_hashes.h"
#include "passes/loop_body.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

enum { MOST_PREPARED = 4 /* values, each carried for 0.2 us */ };

typedef struct Rotation {
  Rewriter *rewriter;
  Node *loop;
  LoopShape shape;
  size_t carried;
  NextStep next;
  Map nodes; /* that are made of x alone, as far as the next key and what was split beside it */
  size_t node_count;
  ARRAY(Value *) prepared; /* what others read of them */
} Rotation;

static bool is_chosen(const Rotation *rotation, const Node *node) {
  return node && map_get_pointer(&rotation->nodes, node) != NULL;
}

static void choose(Rotation *rotation, Node *node) {
  if (!node || node->graph != rotation->shape.body || is_chosen(rotation, node)) return;
  *map_slot_pointer(rotation->rewriter->context, &rotation->nodes, node) = node;
  rotation->node_count++;
}

static bool is_outside(const Rotation *rotation, const Value *value) {
  return !value || value->graph != rotation->shape.body;
}

static bool is_pure(const Node *node) {
  return node->op != OP_NONE && !node_has(node, HAS_BODY) && !node_has(node, RANDOM) && node->output_count == 1;
}

/* Backwards from the next key; false where it depends on more than x. */
static bool choose_key(Rotation *rotation) {
  bool hashes = false;
  choose(rotation, rotation->next.made->producer);
  for (Node *node = rotation->shape.body->last; node; node = node->previous) {
    if (!is_chosen(rotation, node)) continue;
    if (!is_pure(node)) return false;
    hashes = hashes || ends_hash(node);
    for (uint32_t i = 0; i < node->input_count; i++) {
      Value *input = node_input(node, i);
      if (is_outside(rotation, input) || input == rotation->next.x) continue;
      if (!input->producer) return false;
      choose(rotation, input->producer);
    }
  }
  return hashes;
}

/* Those that pick another part of what was made beside the key. */
static void choose_parts(Rotation *rotation) {
  FOR_EACH_NODE(node, rotation->shape.body) {
    if (is_chosen(rotation, node) || !is_pure(node) || !(moves_fewer(node) || node_has(node, RENAMES))) continue;
    bool constant = is_chosen(rotation, node_input(node, 0)->producer);
    for (uint32_t i = 1; i < node->input_count; i++) constant = constant && is_outside(rotation, node_input(node, i));
    if (constant) choose(rotation, node);
  }
}

static bool is_read_by_others(const Rotation *rotation, const Value *value) {
  for (const Use *use = value->uses; use; use = use->next) {
    if (!is_chosen(rotation, use->node)) return true;
  }
  return false;
}

static void find_prepared(Rotation *rotation) {
  FOR_EACH_NODE(node, rotation->shape.body) {
    if (!is_chosen(rotation, node) || !is_read_by_others(rotation, node->outputs[0])) continue;
    array_push(rotation->rewriter->context, &rotation->prepared, node->outputs[0]);
  }
}

/* Is there another hash, of what is prepared? */
static bool is_hashed_again(const Rotation *rotation) {
  Map later = {0};
  FOR_EACH_NODE(node, rotation->shape.body) {
    bool depends = false;
    if (is_chosen(rotation, node)) continue;
    for (uint32_t i = 0; i < node->input_count && !depends; i++) {
      const Node *producer = node_input(node, i) ? node_input(node, i)->producer : NULL;
      depends = producer && (is_chosen(rotation, producer) || map_get_pointer(&later, producer));
    }
    if (!depends) continue;
    if (ends_hash(node)) return true;
    *map_slot_pointer(rotation->rewriter->context, &later, node) = node;
  }
  return false;
}

/* ---- the steps ---- */

static void copy_chosen(const Rotation *rotation, Value *x, Graph *into, Node *before, Map *copies) {
  *map_slot_pointer(rotation->rewriter->context, copies, rotation->next.x) = x;
  copy_nodes_of(rotation->shape.body, into, before, copies, &rotation->nodes);
}

/* Those that are not prepared themselves read what was. */
static void read_prepared(const Rotation *rotation, Value *value, Value *inside) {
  for (Use *use = value->uses, *next; use; use = next) {
    next = use->next;
    if (is_chosen(rotation, use->node)) continue;
    if (use->node) use_set(use, inside);
    else
      use_set(use, graph_node(inside->graph, REWRITE_ORIGIN(rotation->rewriter, value->producer), OP_Identity, &inside,
                              1, &inside->type, 1, NULL)
                       ->outputs[0]);
  }
}

static void rotate(Rotation *rotation) {
  const LoopShape *shape = &rotation->shape;
  Node *loop = rotation->loop;
  size_t count = rotation->prepared.count;
  Value **values = rotation->prepared.items;
  Value **inside = arena_new_array(&rotation->rewriter->context->arena, count, Value *);
  Map first = {0}, after = {0};
  copy_chosen(rotation, node_input(loop, shape->first_input + rotation->carried), loop->graph, loop, &first);
  for (size_t i = 0; i < count; i++) {
    inside[i] = graph_input(shape->body, values[i]->type, NULL);
    read_prepared(rotation, values[i], inside[i]);
  }
  copy_chosen(rotation, shape->body->outputs.items[shape->lead + rotation->carried]->value, shape->body, NULL, &after);
  for (size_t i = 0; i < count; i++) {
    loop_add_carried(loop, copy_of(&first, values[i]), inside[i], copy_of(&after, values[i]));
  }
  for (Node *node = shape->body->last, *previous; node; node = previous) {
    previous = node->previous;
    if (is_chosen(rotation, node)) node_remove(node);
  }
  rotation->rewriter->changed = true;
}

/* What decides whether the key is the next one must be known before anything is drawn. */
static bool is_known_early(const Rotation *rotation, const Value *held) {
  return !held || is_outside(rotation, held) || !held->producer;
}

static bool visit_carried(Rotation *rotation) {
  rotation->next = loop_next(&rotation->shape, rotation->carried);
  const Node *made = rotation->next.made->producer;
  const Value *start = node_input(rotation->loop, rotation->shape.first_input + rotation->carried);
  if (!made || made->graph != rotation->shape.body || !is_known_early(rotation, rotation->next.held)) return false;
  if (!start || !type_equal(start->type, rotation->next.x->type) || !choose_key(rotation)) return false;
  choose_parts(rotation);
  find_prepared(rotation);
  if (rotation->prepared.count > MOST_PREPARED || !is_hashed_again(rotation)) return false;
  rotate(rotation);
  return true;
}

static void visit(Rewriter *rewriter, Node *node) {
  LoopShape shape;
  size_t hashes = 0;
  if (!node_is(node, OP_Loop) || !loop_shape(node, &shape) || node->output_count != shape.carried) return;
  FOR_EACH_NODE(inner, shape.body) hashes += ends_hash(inner);
  for (size_t i = 0; i < shape.carried && hashes > 1; i++) {
    Rotation rotation = {.rewriter = rewriter, .loop = node, .shape = shape, .carried = i};
    if (visit_carried(&rotation)) return;
  }
}

bool rotate_hashes(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
