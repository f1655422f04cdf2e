/* Reading affine sums out of a loop's body and out of what is computed for all its steps before it. */
#include "passes/analysis/affine.h"

enum { DEEPEST = 24 /* operators on the way from a gate to a product */ };

/* Where to look: which axis of the value holds the features, and which of them are wanted. */
typedef struct Place {
  const Node *scan;
  const Graph *body;
  uint32_t rank, axis;
  int64_t offset, length;
  bool batch_first; /* around the loop: the batch axis stands before the steps */
  int depth;
} Place;

static bool collect(Affine *sum, Value *value, Place at);

static bool add_term(Affine *sum, AffineTerm term) {
  if (sum->count == AFFINE_TERMS) return false;
  sum->terms[sum->count++] = term;
  return true;
}

/* One element for each feature, or one for all, and nothing along the other axes. */
static bool collect_bias(Affine *sum, const Tensor *bias, Place at) {
  if (bias->dtype != DTYPE_FLOAT32 || bias->rank > at.rank) return false;
  int64_t count = 1;
  for (uint32_t i = 0; i < bias->rank; i++) {
    bool features = i + at.rank - bias->rank == at.axis;
    if (!features && bias->dims[i] != 1) return false;
    if (features) count = bias->dims[i];
  }
  if (count != 1 && at.offset + at.length > count) return false;
  return add_term(sum, (AffineTerm){.matrix = bias, .offset = at.offset});
}

/* What the scan hands out slices of, when the value is a slice; else NULL. */
static Value *scanned(const Place *at, const Value *value) {
  if (value->producer || value->graph != at->body || value->tensor) return NULL;
  uint32_t states = at->scan->input_count - (uint32_t)node_int_or(at->scan, "num_scan_inputs", 0);
  for (uint32_t i = states; i < at->scan->input_count; i++) {
    if (at->body->inputs.items[i] == value) return at->scan->inputs[i].value;
  }
  return NULL;
}

static bool is_matrix(const Tensor *tensor) { return tensor && tensor->dtype == DTYPE_FLOAT32 && tensor->rank == 2; }

static bool swaps(const Node *node, uint32_t rank) {
  const Attribute *order = node_attribute(node, "perm");
  if (rank == 2) return !order || (order->count == 2 && order->integers[0] == 1);
  return rank == 3 && order && order->count == 3 && order->integers[0] == 1 && order->integers[1] == 0;
}

static bool collect_product(Affine *sum, Value *source, const Tensor *matrix, bool transposed, Place at) {
  if (!is_matrix(matrix) || at.offset + at.length > matrix->dims[transposed ? 0 : 1]) return false;
  bool inside = at.rank == source->type.rank && source->graph == at.body;
  Value *all = inside ? scanned(&at, source) : NULL;
  if (!inside && source->graph == at.body) return false;
  Type type = (all ? all : source)->type;
  if (type.rank == 0 || !dim_is(type.dims[type.rank - 1], matrix->dims[transposed ? 1 : 0])) return false;
  return add_term(sum, (AffineTerm){all ? all : source, at.batch_first, matrix, transposed, at.offset});
}

/* source times matrix with the features last; matrix times source, or its transpose, with the features first. */
static bool collect_matmul(Affine *sum, const Node *node, Place at) {
  Value *left = node_input(node, 0), *right = node_input(node, 1);
  if (at.axis == at.rank - 1 && constant_of(right) && left->type.rank == at.rank) {
    return collect_product(sum, left, constant_of(right), false, at);
  }
  if (at.axis != 0 || !constant_of(left)) return false;
  if (at.rank == 1 && right->type.rank == 1) return collect_product(sum, right, constant_of(left), true, at);
  const Node *transpose = right->producer;
  if (at.rank != 2 || !transpose || !node_is(transpose, OP_Transpose) || !swaps(transpose, 2)) return false;
  return collect_product(sum, node_input(transpose, 0), constant_of(left), true, at);
}

static bool collect_gemm(Affine *sum, const Node *node, Place at) {
  const Attribute *alpha = node_attribute(node, "alpha"), *beta = node_attribute(node, "beta");
  if (at.rank != 2 || at.axis != 1 || node_int_or(node, "transA", 0)) return false;
  if ((alpha && alpha->real != 1) || (beta && beta->real != 1)) return false;
  Value *bias = node_input(node, 2);
  bool transposed = node_int_or(node, "transB", 0) != 0;
  if (!collect_product(sum, node_input(node, 0), constant_of(node_input(node, 1)), transposed, at)) return false;
  return !bias || collect(sum, bias, at); /* one row may come from the input */
}

static bool same_axis(const Node *node, int64_t axis, const Place *at) {
  uint32_t rank = node_input(node, 0)->type.rank;
  return rank == at->rank && (axis < 0 ? axis + (int64_t)rank : axis) == (int64_t)at->axis;
}

static bool collect_split(Affine *sum, const Value *value, Place at) {
  const Node *node = value->producer;
  if (!same_axis(node, node_int_or(node, "axis", 0), &at)) return false;
  for (uint32_t i = 0; i < value->output_index; i++) {
    const Value *part = node->outputs[i];
    if (!part || part->type.rank != at.rank || !dim_is_constant(part->type.dims[at.axis])) return false;
    at.offset += part->type.dims[at.axis].constant;
  }
  return collect(sum, node_input(node, 0), at);
}

static bool only_integer(const Value *value, int64_t *number) {
  const Tensor *tensor = constant_of(value);
  if (!tensor || tensor->dtype != DTYPE_INT64 || tensor->size != sizeof *number) return false;
  memcpy(number, tensor->data, sizeof *number);
  return true;
}

static bool collect_slice(Affine *sum, const Node *node, Place at) {
  int64_t start, axis, step = 1;
  if (!only_integer(node_input(node, 1), &start) || !only_integer(node_input(node, 3), &axis)) return false;
  if (node_input(node, 4) && !only_integer(node_input(node, 4), &step)) return false;
  if (step != 1 || !same_axis(node, axis, &at)) return false;
  Dim size = node_input(node, 0)->type.dims[at.axis];
  if (!dim_is_constant(size)) return false;
  if (start < 0) start += size.constant;
  if (start < 0 || start > size.constant) return false;
  at.offset += start;
  return collect(sum, node_input(node, 0), at);
}

static bool collect_transpose(Affine *sum, const Node *node, Place at) {
  if (!swaps(node, at.rank)) return false;
  if (at.rank == 3) at.batch_first = !at.batch_first;
  else if (node->graph == at.body) at.axis = 1 - at.axis;
  else return false;
  return collect(sum, node_input(node, 0), at);
}

static bool collect_node(Affine *sum, Value *value, Place at) {
  const Node *node = value->producer;
  if (node_is(node, OP_Add)) return collect(sum, node_input(node, 0), at) && collect(sum, node_input(node, 1), at);
  if (node_is(node, OP_MatMul)) return collect_matmul(sum, node, at);
  if (node_is(node, OP_Gemm)) return collect_gemm(sum, node, at);
  if (node_is(node, OP_Split)) return collect_split(sum, value, at);
  if (node_is(node, OP_Slice)) return collect_slice(sum, node, at);
  if (node_is(node, OP_Transpose)) return collect_transpose(sum, node, at);
  if (node_is(node, OP_Identity)) return collect(sum, node_input(node, 0), at);
  bool taken = node_is(node, OP_Mul) && sum->takes_product && !sum->product && node->graph == at.body;
  if (!taken || at.offset != 0 || at.axis != at.rank - 1) return false;
  sum->product = value;
  return true;
}

static bool collect(Affine *sum, Value *value, Place at) {
  const Tensor *constant = constant_of(value);
  if (constant) return collect_bias(sum, constant, at);
  if (at.depth-- == 0 || value->type.dtype != DTYPE_FLOAT32 || value->type.rank != at.rank) return false;
  Dim features = value->type.dims[at.axis];
  if (!dim_is_constant(features) || at.offset + at.length > features.constant) return false;
  if (value->producer) return collect_node(sum, value, at);
  Value *all = scanned(&at, value);
  if (!all) return false;
  at.rank++;
  at.axis++;
  return collect(sum, all, at);
}

bool affine_read(const Node *scan, Value *value, int64_t offset, int64_t length, Affine *sum) {
  const Attribute *body = node_attribute(scan, "body");
  uint32_t rank = value->type.rank;
  if (rank == 0) return false;
  Place at = {scan, body->graph, rank, rank - 1, offset, length, false, DEEPEST};
  return collect(sum, value, at);
}

void affine_copy(const AffineTerm *term, float *to, int64_t features, int64_t inputs) {
  int64_t columns = term->matrix->dims[1];
  const float *data = term->matrix->data;
  const float *from = data + (term->transposed ? term->offset * columns : term->offset);
  int64_t by_feature = term->transposed ? columns : 1, by_input = term->transposed ? 1 : columns;
  for (int64_t feature = 0; feature < features; feature++) {
    const float *row = from + feature * by_feature;
    for (int64_t input = 0; input < inputs; input++) *to++ = row[input * by_input];
  }
}

void affine_add(const AffineTerm *term, float *to, int64_t features) {
  const float *from = term->matrix->data;
  bool same = term->matrix->size == sizeof *from;
  for (int64_t i = 0; i < features; i++) to[i] += from[same ? 0 : term->offset + i];
}
