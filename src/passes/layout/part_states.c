/* States that a loop carries joined in one array, each a value of its own: h and c stacked, or those of all layers.
 *
 * A step that joins what it hands on takes it apart again in the next. Recurrent cells are states of their own, so the
 * parts are carried instead, if a trial shows that the loop then becomes an operator: elsewhere one array may be worth
 * more than its parts (join_alike.c).
 */
#include "onnx/graph/copy.h"
#include "passes/layout/roll_steps.h"
#include "passes/loop_body.h"

enum { MOST_PARTS = 16 };

typedef struct Parting {
  Rewriter *rewriter;
  Node *scan;
  LoopShape shape;
  uint32_t state; /* which is joined */
  const Node *join;
  bool is_stacked; /* the axis along which the parts are joined is made afterwards: each has one place of it */
  uint32_t axis;
  int64_t starts[MOST_PARTS + 1]; /* where each part begins along the axis, and the last ends */
  Value *parts[MOST_PARTS];       /* of the new body's inputs */
} Parting;

/* ---- finding them ---- */

static bool read_parts(Parting *p) {
  Type type = p->join->outputs[0]->type;
  int64_t axis = node_int_or(p->join, "axis", 0);
  if (type_is_unranked(type)) return false;
  if (axis < 0) axis += type.rank;
  if (p->join->input_count < 2 || p->join->input_count > MOST_PARTS || axis < 0 || axis >= type.rank) return false;
  p->axis = (uint32_t)axis;
  p->starts[0] = 0;
  for (uint32_t i = 0; i < p->join->input_count; i++) {
    Type part = node_input(p->join, i)->type;
    if (type_is_unranked(part) || part.rank != type.rank) return false;
    if (!p->is_stacked && !dim_is_constant(part.dims[axis])) return false;
    p->starts[i + 1] = p->starts[i] + (p->is_stacked ? 1 : part.dims[axis].constant);
  }
  return true;
}

/* Are the parts of one size, and is the axis that they are joined along parted into them and it? */
static bool is_stack_of(const Parting *p, Type type) {
  Type joined = p->join->outputs[0]->type;
  if (type.rank != joined.rank + 1 || !dim_is(type.dims[p->axis], p->join->input_count)) return false;
  for (uint32_t i = 0; i < p->join->input_count; i++) {
    Type part = node_input(p->join, i)->type;
    for (uint32_t k = 0; k < part.rank; k++) {
      if (!dim_equal(part.dims[k], type.dims[k < p->axis ? k : k + 1])) return false;
    }
  }
  return true;
}

static bool find_joined(Parting *p) {
  for (p->state = 0; p->state < p->shape.carried; p->state++) {
    const Value *next = behind_identities(p->shape.body->outputs.items[p->state]->value);
    Type type = next->type;
    if (type_is_unranked(type) || !dtype_is_float(type.dtype)) continue;
    p->join = next->producer;
    p->is_stacked = p->join && node_is(p->join, OP_Reshape);
    if (p->is_stacked) p->join = node_input(p->join, 0)->producer;
    if (!p->join || p->join->graph != p->shape.body || !node_is(p->join, OP_Concat)) continue;
    if (!type_equal(type, p->shape.body->inputs.items[p->state]->type) || !read_parts(p)) continue;
    if (!p->is_stacked || is_stack_of(p, type)) return true;
  }
  return false;
}

/* ---- parting ---- */

static const Origin *origin_of(const Parting *p, Emitter emitter) {
  return origin_with_emitter(p->rewriter->model->provenance, p->scan->origin, emitter);
}
#define ORIGIN(p) origin_of((p), REWRITE_EMITTER((p)->rewriter))

static uint32_t part_count(const Parting *p) { return p->join->input_count; }

static Type part_type(const Parting *p, uint32_t part) {
  Type type = node_input(p->join, part)->type;
  Dim dims[MAX_RANK];
  if (!p->is_stacked) return type;
  for (uint32_t i = 0; i <= type.rank; i++) dims[i] = i == p->axis ? dim_of(1) : type.dims[i < p->axis ? i : i - 1];
  return type_make(p->rewriter->context, type.dtype, dims, type.rank + 1);
}

/* What is cut out of a value along the axis, by a node before `before`. */
static Value *cut(Parting *p, Value *value, int64_t start, int64_t end, Type type, Node *before) {
  const int64_t numbers[] = {start, end, p->axis};
  Value *inputs[4] = {value};
  for (size_t i = 0; i < 3; i++)
    inputs[i + 1] = rewrite_constant_ints(p->rewriter, p->scan, &numbers[i], 1, p->scan->origin);
  return graph_node(before->graph, ORIGIN(p), OP_Slice, inputs, 4, &type, 1, before)->outputs[0];
}

static Value *join(Parting *p, Graph *graph, Value *const *parts, Type type, Node *before) {
  Node *node = graph_node(graph, ORIGIN(p), OP_Concat, parts, part_count(p), &type, 1, before);
  node_set_int(node, "axis", p->axis);
  return node->outputs[0];
}

/* The part that has these positions, all of them; the number of parts where none does. */
static uint32_t part_with(const Parting *p, int64_t start, int64_t end) {
  uint32_t part = 0;
  while (part < part_count(p) && (start < p->starts[part] || end > p->starts[part + 1])) part++;
  return start < end ? part : part_count(p);
}

static int64_t from_start(const Parting *p, int64_t place) {
  return place < 0 ? place + p->starts[part_count(p)] : place;
}

/* What `type` is of the parts from start to end, before the node that read it of the whole; NULL: it is of several. */
static Value *picked(Parting *p, int64_t start, int64_t end, Type type, Node *before) {
  uint32_t part = part_with(p, start, end);
  if (part == part_count(p)) return NULL;
  if (start == p->starts[part] && end == p->starts[part + 1]) return p->parts[part];
  return cut(p, p->parts[part], start - p->starts[part], end - p->starts[part], type, before);
}

/* A part has no node of its own: what reads it takes over the sites. */
static void hand_on_sites(Parting *p, Node *node) {
  const Use *use = node->outputs[0]->uses;
  if (use && use->node) rewrite_hand_over(p->rewriter, use->node, node);
}

static void read_slice(Parting *p, Node *node) {
  int64_t axis, start, end;
  if (!read_axis_slice(node, &axis, &start, &end)) return;
  if (axis < 0) axis += node->outputs[0]->type.rank;
  if (axis != p->axis) return;
  int64_t whole = p->starts[part_count(p)];
  Value *part = picked(p, from_start(p, start), end > whole ? whole : from_start(p, end), node->outputs[0]->type, node);
  if (!part) return;
  hand_on_sites(p, node);
  rewrite_replace(p->rewriter, node, part);
}

static void read_place(Parting *p, Node *node) {
  int64_t place, axis = node_int_or(node, "axis", 0);
  Type type = node_input(node, 0)->type;
  if (axis < 0) axis += type.rank;
  if (axis != p->axis || node_input(node, 1)->type.rank != 0 || !only_integer(node_input(node, 1), &place)) return;
  place = from_start(p, place);
  uint32_t part = part_with(p, place, place + 1);
  if (part == part_count(p)) return;
  place -= p->starts[part];
  Value *index = rewrite_constant_number(p->rewriter, p->scan, DTYPE_INT64, (double)place, p->scan->origin);
  use_set(&node->inputs[0], p->parts[part]);
  use_set(&node->inputs[1], index);
}

static void read_split(Parting *p, Node *node) {
  int64_t axis = node_int_or(node, "axis", 0), start = 0;
  Value *parts[MOST_PARTS];
  if (axis < 0) axis += node_input(node, 0)->type.rank;
  if (axis != p->axis || node->output_count > MOST_PARTS) return;
  for (uint32_t i = 0; i < node->output_count; i++) {
    Type type = node->outputs[i]->type;
    if (type_is_unranked(type) || !dim_is_constant(type.dims[axis])) return;
    if (part_with(p, start, start + type.dims[axis].constant) == part_count(p)) return;
    start += type.dims[axis].constant;
  }
  start = 0;
  for (uint32_t i = 0; i < node->output_count; i++) {
    Type type = node->outputs[i]->type;
    parts[i] = picked(p, start, start + type.dims[axis].constant, type, node);
    start += type.dims[axis].constant;
  }
  hand_on_sites(p, node);
  for (uint32_t i = 0; i < node->output_count; i++) value_replace(node->outputs[i], parts[i]);
  rewrite_drop_unused(p->rewriter, node, NULL);
}

/* What reads the state reads the part that it is of. */
static void read_parts_of(Parting *p, Value *whole) {
  for (Use *use = whole->uses, *next; use; use = next) {
    next = use->next;
    Node *node = use->node;
    if (!node || node->graph != whole->graph || use != &node->inputs[0]) continue;
    if (node_is(node, OP_Slice)) read_slice(p, node);
    else if (node_is(node, OP_Gather)) read_place(p, node);
    else if (node_is(node, OP_Split)) read_split(p, node);
  }
}

/* A part as the step hands it on, by a node of its own. */
static Value *handed_on(Parting *p, Graph *into, Value *part, uint32_t index) {
  const int64_t axis = p->axis;
  Value *inputs[] = {part,
                     p->is_stacked ? rewrite_constant_ints(p->rewriter, p->scan, &axis, 1, p->scan->origin) : NULL};
  Type type = part_type(p, index);
  Op op = p->is_stacked ? OP_Unsqueeze : OP_Identity;
  return graph_node(into, ORIGIN(p), op, inputs, p->is_stacked ? 2 : 1, &type, 1, NULL)->outputs[0];
}

/* The body with inputs and outputs for each part in place of those of the state. */
static Graph *parted_body(Parting *p) {
  const Graph *body = p->shape.body;
  Context *context = p->rewriter->context;
  Graph *into = graph_new(p->rewriter->model, body->name);
  Map copies = {0};
  for (uint32_t i = 0; i < body->inputs.count; i++) {
    Value *input = body->inputs.items[i];
    for (uint32_t k = 0; i == p->state && k < part_count(p); k++)
      p->parts[k] = graph_input(into, part_type(p, k), NULL);
    Value *copy = i == p->state ? join(p, into, p->parts, input->type, NULL) : graph_input(into, input->type, NULL);
    *map_slot_pointer(context, &copies, input) = copy;
  }
  copy_nodes(body, into, NULL, &copies);
  for (uint32_t i = 0; i < body->outputs.count; i++) {
    for (uint32_t k = 0; i == p->state && k < part_count(p); k++) {
      graph_output(into, handed_on(p, into, copy_of(&copies, node_input(p->join, k)), k));
    }
    if (i != p->state) graph_output(into, copy_of(&copies, body->outputs.items[i]->value));
  }
  read_parts_of(p, copy_of(&copies, body->inputs.items[p->state]));
  return into;
}

static Node *parted_scan(Parting *p) {
  Node *scan = p->scan;
  Arena *arena = &p->rewriter->context->arena;
  uint32_t parts = part_count(p), inputs = 0, outputs = 0;
  Value **values = arena_new_array(arena, scan->input_count + parts, Value *);
  Type *types = arena_new_array(arena, scan->output_count + parts, Type);
  for (uint32_t i = 0; i < scan->input_count; i++) {
    for (uint32_t k = 0; i == p->state && k < parts; k++)
      values[inputs++] = cut(p, node_input(scan, i), p->starts[k], p->starts[k + 1], part_type(p, k), scan);
    if (i != p->state) values[inputs++] = node_input(scan, i);
  }
  for (uint32_t i = 0; i < scan->output_count; i++) {
    for (uint32_t k = 0; i == p->state && k < parts; k++) types[outputs++] = part_type(p, k);
    if (i != p->state) types[outputs++] = scan->outputs[i]->type;
  }
  Node *parted = graph_node(scan->graph, ORIGIN(p), OP_Scan, values, inputs, types, outputs, scan);
  node_copy_attributes(parted, scan);
  node_set_graph(parted, "body", parted_body(p));
  return parted;
}

static void replace_output(Value *old, Value *value) {
  rewrite_take_name(value, old);
  value_replace(old, value);
}

static void part(Parting *p) {
  Node *scan = p->scan, *parted = parted_scan(p);
  for (uint32_t i = 0, at = 0; i < scan->output_count; i++) {
    if (i != p->state) {
      replace_output(scan->outputs[i], parted->outputs[at++]);
      continue;
    }
    replace_output(scan->outputs[i], join(p, scan->graph, parted->outputs + at, scan->outputs[i]->type, scan));
    at += part_count(p);
  }
  rewrite_hand_over(p->rewriter, parted, scan);
  release_nodes(p->shape.body);
  node_remove(scan);
  p->rewriter->changed = true;
}

/* ---- the pass ---- */

/* Without a product there is no cell. */
static bool has_product(const Graph *body) {
  FOR_EACH_NODE(node, body) {
    if (node_is(node, OP_MatMul) || node_is(node, OP_Gemm)) return true;
  }
  return false;
}

static bool can_part(const Parting *p) {
  for (uint32_t i = 0; i < p->scan->output_count; i++) {
    if (!p->scan->outputs[i]) return false;
  }
  return !p->shape.body->initializers.count && p->shape.body->inputs.count == p->scan->input_count;
}

static void visit(Rewriter *rewriter, Node *node) {
  Parting p = {.rewriter = rewriter, .scan = node};
  if (!node_is(node, OP_Scan) || !loop_shape(node, &p.shape) || !can_part(&p) || !find_joined(&p)) return;
  if (has_product(p.shape.body) && is_worth_a_trial(node)) part(&p);
}

bool part_states(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
