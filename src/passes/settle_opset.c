/* The opset of a model that was asked for none: the lowest that holds its nodes as they are.
 *
 * Until here a graph has the forms of AUTO_OPSET. A node asks for the first opset from LEAST_OPSET on whose operator
 * has its inputs, attributes and element types, means the same by them, and is run on them by ONNX Runtime. Where an
 * older one has an input as an attribute, which is no loss, the node is written so. */
#include "onnx/facts/schema.h"
#include "onnx/graph/verify_node.h"
#include "passes/pattern.h"

enum { AXES_ARE_INPUT = 18, DFT_AXIS_IS_INPUT = 20 };

/* ---- what a node asks for ---- */

/* Reductions but ReduceSum, whose axes were an input before the others'. */
static bool has_movable_axes(const Node *node) {
  bool axes[MAX_RANK];
  return node_has(node, REDUCES) && !node_is(node, OP_ReduceSum) && node_input(node, 1) && reduced_axes(node, axes);
}

static bool has_movable_axis(const Node *node) {
  return node_is(node, OP_DFT) && node_input(node, 2) && constant_of(node_input(node, 2));
}

static bool says(const Node *node, const char *name, const char *value) {
  const Attribute *attribute = node_attribute(node, name);
  return attribute && attribute->kind == ATTRIBUTE_STRING && str_is(attribute->string, value);
}

/* Where a later version of an operator means something else by what an earlier one takes as well. */
static int64_t least_by_meaning(const Node *node) {
  switch (node->op) {
    case OP_GroupNormalization: return 21; /* scale and bias are by channel */
    case OP_GridSample: return 20;
    case OP_AveragePool: return node_int_or(node, "ceil_mode", 0) ? 19 : 0;
    case OP_Pad: return says(node, "mode", "wrap") ? 19 : 0;
    case OP_Resize: return says(node, "coordinate_transformation_mode", "half_pixel_symmetric") ? 19 : 0;
    case OP_ScatterElements:
    case OP_ScatterND: return says(node, "reduction", "max") || says(node, "reduction", "min") ? 18 : 0;
    default: return 0;
  }
}

/* As schema.h names the variants. */
static const char *variant_of(const Node *node) {
  static const char *const of_attribute[][2] = {{"reduction", "none"}, {"mode", "constant"}, {"mode", "nearest"}};
  if (node_is(node, OP_Mod)) return node_int_or(node, "fmod", 0) ? "fmod" : NULL;
  if (!node_is(node, OP_ScatterElements) && !node_is(node, OP_ScatterND) && !node_is(node, OP_Pad) &&
      !node_is(node, OP_Resize)) {
    return NULL;
  }
  for (size_t i = 0; i < sizeof of_attribute / sizeof *of_attribute; i++) {
    const Attribute *attribute = node_attribute(node, of_attribute[i][0]);
    if (attribute && attribute->kind == ATTRIBUTE_STRING) {
      return str_is(attribute->string, of_attribute[i][1]) ? NULL : attribute->string;
    }
  }
  return NULL;
}

/* The value whose element type a row of the schema is about. */
static const Value *typed_value(const Node *node) {
  if (node_has(node, HAS_BODY)) return NULL;
  if (node_is(node, OP_Where)) return node_input(node, 1);
  if (node_is(node, OP_OneHot)) return node_input(node, 2);
  if (node_is(node, OP_ConstantOfShape) || !node->input_count) return node->output_count ? node->outputs[0] : NULL;
  return node_input(node, 0);
}

typedef struct Settling {
  Verification at;         /* the opset that the nodes so far ask for */
  uint64_t runs[OP_COUNT]; /* bits of the element types that plain operators run on there as before, as far as asked */
} Settling;

/* What ONNX Runtime runs with the forms of AUTO_OPSET it runs with those of the opset too. */
static bool runs_as_before(Settling *settling, const Node *node) {
  int64_t opset = settling->at.opset;
  const Value *value = typed_value(node);
  if (!value || value->type.dtype == DTYPE_NONE) return true;
  const char *variant = variant_of(node);
  DType dtype = value->type.dtype;
  uint64_t bit = (uint64_t)1 << dtype;
  bool is_plain = !variant && !node_is(node, OP_Cast);
  if (is_plain && settling->runs[node->op] & bit) return true;
  if (!schema_runs(node->op, variant, node->graph->model->opset, dtype)) return true;
  if (!schema_runs(node->op, variant, opset, dtype)) return false;
  if (is_plain) settling->runs[node->op] |= bit;
  return !node_is(node, OP_Cast) || schema_runs(OP_Cast, "to", opset, node->outputs[0]->type.dtype);
}

static bool holds(Settling *settling, const Node *node) {
  Verification *at = &settling->at;
  if (*node->domain || node->op == OP_NONE) return true;
  if (at->opset < least_by_meaning(node) || !runs_as_before(settling, node)) return false;
  if (has_movable_axes(node) || has_movable_axis(node)) return schema_version(node->op, at->opset) != 0;
  size_t before = at->faults.count;
  verify_operator(at, node);
  return at->faults.count == before;
}

static void ask(Settling *settling, const Node *node) {
  Model *model = settling->at.model;
  for (int64_t newest = model->opset, opset; (opset = settling->at.opset) < newest && !holds(settling, node);) {
    *settling = (Settling){.at = {.model = model, .opset = opset + 1}};
    model->opset_asked_by = node;
  }
}

static void ask_all(Graph *graph, void *data) { FOR_EACH_NODE(node, graph) ask(data, node); }

/* ---- older forms ---- */

/* What the constant was made of is part of the node from now on. */
static void drop_for_attribute(Node *node, size_t index) {
  Value *constant = node_input(node, index);
  if (constant) constant->heir = (Heir){.node = node};
  drop_node_input(node, index);
}

static void axes_to_attribute(Node *node) {
  bool axes[MAX_RANK];
  int64_t numbers[MAX_RANK];
  size_t count = 0;
  require(node->graph->model->context, reduced_axes(node, axes));
  for (uint32_t i = 0; i < node_input(node, 0)->type.rank; i++) {
    if (axes[i]) numbers[count++] = i;
  }
  drop_for_attribute(node, 1);
  node_set_ints(node, "axes", numbers, count);
}

static void axis_to_attribute(Node *node) {
  int64_t axis = *(const int64_t *)constant_of(node_input(node, 2))->data;
  drop_for_attribute(node, 2);
  if (!node_input(node, 1)) drop_node_input(node, 1);
  node_set_int(node, "axis", axis);
}

static void write_older(Rewriter *rewriter, Node *node) {
  int64_t opset = rewriter->model->opset;
  bool changes = true;
  if (opset < AXES_ARE_INPUT && has_movable_axes(node)) axes_to_attribute(node);
  else if (opset < DFT_AXIS_IS_INPUT && has_movable_axis(node)) axis_to_attribute(node);
  else changes = false;
  rewriter->changed = rewriter->changed || changes;
}

static void write_older_forms(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, write_older);
  if (rewrite_end(&rewriter)) remove_dead_code(model);
}

void settle_opset(Model *model) {
  Settling settling = {.at = {.model = model, .opset = LEAST_OPSET}};
  model_each_graph(model, ask_all, &settling);
  model->opset = settling.at.opset;
  for (size_t i = 0; i < model->opsets.count; i++) {
    if (!*model->opsets.items[i].domain) model->opsets.items[i].version = model->opset;
  }
  write_older_forms(model);
}
