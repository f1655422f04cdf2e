/* Reading affine sums out of a loop's body and out of what is computed for all its steps before it. */
#include "passes/analysis/affine.h"

#include "types/moved.h"
#include "types/numbers.h"

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

/* Halves are computed in float32 where the runtime lacks them: both are the same sum. */
static bool is_computed(DType dtype) { return dtype == DTYPE_FLOAT32 || dtype_is_half(dtype); }

static bool is_rounding(const Node *node) {
  if (!node_is(node, OP_Cast) && !node_is(node, OP_Narrow)) return false;
  return is_computed(node_input(node, 0)->type.dtype) && is_computed(node->outputs[0]->type.dtype);
}

Value *affine_bare(Value *value) {
  while (value->producer && is_rounding(value->producer)) value = node_input(value->producer, 0);
  return value;
}

static bool add_term(Affine *sum, AffineTerm term) {
  if (sum->count == AFFINE_TERMS) return false;
  sum->terms[sum->count++] = term;
  return true;
}

/* One element for each feature, or one for all, and nothing along the other axes. */
static bool collect_bias(Affine *sum, const Tensor *bias, Place at) {
  if (!is_computed(bias->dtype) || bias->rank > at.rank) return false;
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

static bool is_matrix(const Tensor *tensor) { return tensor && is_computed(tensor->dtype) && tensor->rank == 2; }

static bool swaps(const Node *node, uint32_t rank) {
  const Attribute *order = node_attribute(node, "perm");
  if (rank == 2) return !order || (order->count == 2 && order->integers[0] == 1);
  return rank == 3 && order && order->count == 3 && order->integers[0] == 1 && order->integers[1] == 0;
}

/* Two axes of which one is of size 1 change places, by a Transpose or a Reshape. */
static bool swaps_two(const Node *node) {
  Type from = node_input(node, 0)->type, to = node->outputs[0]->type;
  if (from.rank != 2 || to.rank != 2) return false;
  if (node_is(node, OP_Transpose)) return swaps(node, 2);
  bool is_flat = dim_is(from.dims[0], 1) || dim_is(from.dims[1], 1);
  return node_is(node, OP_Reshape) && is_flat && dim_equal(from.dims[0], to.dims[1]) &&
         dim_equal(from.dims[1], to.dims[0]);
}

/* Adds the product of the source with the term's matrix from `first_input` on. */
static bool collect_source(Affine *sum, Value *source, AffineTerm term, Place at) {
  source = affine_bare(source);
  bool inside = at.rank == source->type.rank && source->graph == at.body;
  Value *all = inside ? scanned(&at, source) : NULL;
  if (!inside && source->graph == at.body) return false;
  term.source = affine_bare(all ? all : source);
  return add_term(sum, term);
}

static bool features_of(const Value *value, int64_t *count) {
  Type type = value->type;
  if (type.rank == 0 || !dim_is_constant(type.dims[type.rank - 1])) return false;
  *count = type.dims[type.rank - 1].constant;
  return true;
}

/* Features that are joined in the step before the product, as inputs and state are, each have rows of the matrix. */
static bool collect_product(Affine *sum, Value *source, const Tensor *matrix, bool transposed, Place at) {
  int64_t count;
  if (!is_matrix(matrix) || at.offset + at.length > matrix->dims[transposed ? 0 : 1]) return false;
  if (!features_of(source, &count) || count != matrix->dims[transposed ? 1 : 0]) return false;
  AffineTerm term = {NULL, at.batch_first, matrix, transposed, at.offset, 0};
  const Node *join = affine_bare(source)->producer;
  if (!join || join->graph != at.body || !node_is(join, OP_Concat)) return collect_source(sum, source, term, at);
  int64_t axis = node_int_or(join, "axis", 0), rank = source->type.rank;
  if ((axis < 0 ? axis + rank : axis) != rank - 1) return false;
  for (uint32_t i = 0; i < join->input_count; i++) {
    if (!features_of(node_input(join, i), &count) || !collect_source(sum, node_input(join, i), term, at)) return false;
    term.first_input += count;
  }
  return true;
}

/* source times matrix with the features last; matrix times source, or its transpose, with the features first. */
static bool collect_matmul(Affine *sum, const Node *node, Place at) {
  Value *left = node_input(node, 0), *right = node_input(node, 1);
  if (at.axis == at.rank - 1 && constant_of(right) && left->type.rank == at.rank) {
    return collect_product(sum, left, constant_of(right), false, at);
  }
  if (at.axis != 0 || !constant_of(left)) return false;
  if (at.rank == 1 && right->type.rank == 1) return collect_product(sum, right, constant_of(left), true, at);
  const Node *transpose = affine_bare(right)->producer;
  if (at.rank != 2 || !transpose || !swaps_two(transpose)) return false;
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
  if (node_is(node, OP_Reshape) && node->graph == at.body && swaps_two(node)) {
    at.axis = 1 - at.axis;
    return collect(sum, node_input(node, 0), at);
  }
  if (node_is(node, OP_Identity) || is_rounding(node)) return collect(sum, node_input(node, 0), at);
  bool taken = node_is(node, OP_Mul) && sum->takes_product && !sum->product && node->graph == at.body;
  if (!taken || at.offset != 0 || at.axis != at.rank - 1) return false;
  sum->product = value;
  return true;
}

static bool collect(Affine *sum, Value *value, Place at) {
  const Tensor *constant = constant_of(value);
  if (constant) return collect_bias(sum, constant, at);
  if (at.depth-- == 0 || !is_computed(value->type.dtype) || value->type.rank != at.rank) return false;
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

static double element(const Tensor *tensor, int64_t index) {
  return number_decode(tensor->dtype, (const char *)tensor->data + (size_t)index * dtype_bytes(tensor->dtype, 1));
}

void affine_copy(const AffineTerm *term, float *to, int64_t features, int64_t inputs) {
  int64_t columns = term->matrix->dims[1];
  int64_t by_feature = term->transposed ? columns : 1, by_input = term->transposed ? 1 : columns;
  int64_t first = term->offset * by_feature + term->first_input * by_input;
  tensor_ready(term->matrix);
  for (int64_t feature = 0; feature < features; feature++) {
    int64_t row = first + feature * by_feature;
    for (int64_t input = 0; input < inputs; input++) *to++ = (float)element(term->matrix, row + input * by_input);
  }
}

void affine_add(const AffineTerm *term, float *to, int64_t features) {
  bool same = term->matrix->size == dtype_bytes(term->matrix->dtype, 1);
  tensor_ready(term->matrix);
  for (int64_t i = 0; i < features; i++) to[i] += (float)element(term->matrix, same ? 0 : term->offset + i);
}
