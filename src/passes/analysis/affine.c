/* Reading affine sums out of a loop's body and out of what is computed for all its steps before it. */
#include "passes/analysis/affine.h"

#include "passes/pattern.h"
#include "types/moved.h"
#include "types/numbers.h"

enum { DEEPEST = 24 /* operators on the way from a gate to a product */ };

/* Where to look: which axis of the value holds the features, and which of them are wanted. */
typedef struct Place {
  const Node *scan;
  const Graph *body;
  uint32_t rank, axis;
  int64_t offset, length;
  double factor;
  bool batch_first; /* around the loop: the batch axis stands before the steps */
  const Type *flat; /* around the loop: steps and batch are one axis, which has these sizes; else NULL */
  uint32_t gates;   /* one more than an axis before the features, of which `gate` is wanted; 0: there is none */
  int64_t gate;
  int depth;
} Place;

static bool collect(Affine *sum, Value *value, Place at);

Value *affine_bare(Value *value) {
  while (value->producer && is_cast_of_floats(value->producer)) value = node_input(value->producer, 0);
  return value;
}

static bool add_term(Affine *sum, AffineTerm term) {
  if (sum->count == AFFINE_TERMS) return false;
  sum->terms[sum->count++] = term;
  return true;
}

/* One element for each feature, or one for all, and nothing along the other axes. */
static bool collect_bias(Affine *sum, const Tensor *bias, Place at) {
  if (!dtype_fits_float32(bias->dtype) || bias->rank > at.rank) return false;
  int64_t count = 1, gates = 1;
  for (uint32_t i = 0; i < bias->rank; i++) {
    uint32_t axis = i + at.rank - bias->rank;
    if (axis == at.axis) count = bias->dims[i];
    else if (axis + 1 == at.gates) gates = bias->dims[i];
    else if (bias->dims[i] != 1) return false;
  }
  if (count != 1 && at.offset + at.length > count) return false;
  if (gates != 1 && (at.gates > at.axis || at.gate >= gates || count == 1)) return false;
  int64_t offset = at.offset + (gates == 1 ? 0 : at.gate * count);
  return add_term(sum, (AffineTerm){.matrix = bias, .offset = offset, .factor = at.factor});
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

static bool is_matrix(const Tensor *tensor) { return tensor && dtype_fits_float32(tensor->dtype) && tensor->rank == 2; }

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

/* What a Reshape made one row of each step of each element of the batch of; else NULL. */
static Value *unflattened(Value *value, Type rows) {
  const Node *node = affine_bare(value)->producer;
  if (!node || !node_is(node, OP_Reshape)) return NULL;
  Value *source = node_input(node, 0);
  Type type = source->type;
  bool same = type.rank == 3 && dim_equal(type.dims[0], rows.dims[0]) && dim_equal(type.dims[1], rows.dims[1]);
  return same ? source : NULL;
}

/* Features that are joined in the step before the product, as inputs and state are, each have rows of the matrix. */
static bool collect_product(Affine *sum, Value *source, const Tensor *matrix, bool transposed, Place at) {
  int64_t count;
  if (at.gates || (at.flat && !(source = unflattened(source, *at.flat)))) return false;
  if (!is_matrix(matrix) || at.offset + at.length > matrix->dims[transposed ? 0 : 1]) return false;
  if (!features_of(source, &count) || count != matrix->dims[transposed ? 1 : 0]) return false;
  AffineTerm term = {NULL, at.batch_first, matrix, transposed, at.offset, 0, at.factor};
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

/* Gates by features by inputs, times the transposed source: the matrix of one gate below that of the one before. */
static bool collect_gate_matrices(Affine *sum, const Value *left, Value *right, Place at) {
  const Tensor *matrices = constant_of(left);
  const Node *transpose = affine_bare(right)->producer;
  if (!matrices || matrices->rank != 3 || !dtype_fits_float32(matrices->dtype) || !transpose || !swaps_two(transpose))
    return false;
  Value *source = node_input(transpose, 0);
  int64_t count;
  if (!features_of(source, &count) || count != matrices->dims[2]) return false;
  int64_t row = at.gate * matrices->dims[1] + at.offset;
  Place inside = at;
  inside.rank = 2;
  return collect_source(sum, source, (AffineTerm){NULL, false, matrices, true, row, 0, at.factor}, inside);
}

/* source times matrix with the features last; matrix times source, or its transpose, with the features first. */
static bool collect_matmul(Affine *sum, const Node *node, Place at) {
  Value *left = node_input(node, 0), *right = node_input(node, 1);
  if (at.axis == at.rank - 1 && constant_of(right) && left->type.rank == at.rank) {
    return collect_product(sum, left, constant_of(right), false, at);
  }
  if (at.gates == 1 && at.axis == 1 && at.rank == 3) return collect_gate_matrices(sum, left, right, at);
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

static bool same_axis(const Node *node, int64_t axis, uint32_t wanted) {
  uint32_t rank = node_input(node, 0)->type.rank;
  return (axis < 0 ? axis + (int64_t)rank : axis) == (int64_t)wanted;
}

static bool split_start(const Value *value, uint32_t axis, int64_t *start) {
  const Node *node = value->producer;
  if (!same_axis(node, node_int_or(node, "axis", 0), axis)) return false;
  for (uint32_t i = 0; i < value->output_index; i++) {
    const Value *part = node->outputs[i];
    if (!part || part->type.rank <= axis || !dim_is_constant(part->type.dims[axis])) return false;
    *start += part->type.dims[axis].constant;
  }
  return true;
}

static bool slice_start(const Node *node, uint32_t wanted, int64_t *start) {
  int64_t first, axis, step = 1;
  if (!only_integer(node_input(node, 1), &first) || !only_integer(node_input(node, 3), &axis)) return false;
  if (node_input(node, 4) && !only_integer(node_input(node, 4), &step)) return false;
  if (step != 1 || !same_axis(node, axis, wanted)) return false;
  Dim size = node_input(node, 0)->type.dims[wanted];
  if (!dim_is_constant(size)) return false;
  if (first < 0) first += size.constant;
  if (first < 0 || first > size.constant) return false;
  *start += first;
  return true;
}

/* Is the value a part of what its node reads, along this axis? Then `start` grows by where it begins. */
static bool is_part(const Value *value, uint32_t axis, int64_t *start) {
  const Node *node = value->producer;
  if (!node || !(node_is(node, OP_Split) || node_is(node, OP_Slice))) return false;
  if (node_input(node, 0)->type.rank != value->type.rank) return false;
  return node_is(node, OP_Split) ? split_start(value, axis, start) : slice_start(node, axis, start);
}

Lane affine_lane(Value *value) {
  Lane lane = {affine_bare(value), 0};
  while (lane.value->type.rank > 0 && is_part(lane.value, lane.value->type.rank - 1, &lane.offset)) {
    lane.value = affine_bare(node_input(lane.value->producer, 0));
  }
  return lane;
}

/* Among gates and features in a step, any order of axes; else steps and batch, or the two axes of a step. */
static bool collect_transpose(Affine *sum, const Node *node, Place at) {
  const Attribute *order = node_attribute(node, "perm");
  if (at.gates) {
    if (!order || order->count != at.rank || node->graph != at.body) return false;
    at.axis = (uint32_t)order->integers[at.axis];
    at.gates = (uint32_t)order->integers[at.gates - 1] + 1;
    return collect(sum, node_input(node, 0), at);
  }
  if (!swaps(node, at.rank)) return false;
  if (at.rank == 3) at.batch_first = !at.batch_first;
  else if (node->graph == at.body) at.axis = 1 - at.axis;
  else return false;
  return collect(sum, node_input(node, 0), at);
}

/* One of several gates that have an axis of their own. */
static bool collect_gather(Affine *sum, const Node *node, Place at) {
  Value *source = node_input(node, 0);
  const Tensor *index = constant_of(node_input(node, 1));
  int64_t axis = node_int_or(node, "axis", 0), rank = source->type.rank;
  if (axis < 0) axis += rank;
  if (at.gates || !index || index->rank != 0 || !only_integer(node_input(node, 1), &at.gate)) return false;
  if (at.flat || rank != (int64_t)at.rank + 1 || !dim_is_constant(source->type.dims[axis])) return false;
  if (at.gate < 0) at.gate += source->type.dims[axis].constant;
  if (at.gate < 0 || at.gate >= source->type.dims[axis].constant) return false;
  at.rank++;
  at.axis += axis <= (int64_t)at.axis;
  at.gates = (uint32_t)axis + 1;
  return collect(sum, source, at);
}

static bool same_sizes(Type a, Type b, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (!dim_equal(a.dims[i], b.dims[i])) return false;
  }
  return true;
}

/* Rows of all steps that were one axis; two axes of a step, one of size 1, that change places; gates beside features.
 */
static bool collect_reshape(Affine *sum, const Node *node, Place at) {
  Value *source = node_input(node, 0);
  Type from = source->type, to = node->outputs[0]->type;
  bool keeps_features = from.rank > 0 && dim_equal(from.dims[from.rank - 1], to.dims[to.rank - 1]);
  if (at.gates) {
    bool merges = at.gates == at.axis && at.axis + 1 == at.rank && from.rank + 1 == to.rank;
    if (!merges || !dim_is_constant(to.dims[at.axis]) || !same_sizes(from, to, at.axis - 1)) return false;
    at.offset += at.gate * to.dims[at.axis].constant;
    at.gates = 0;
    at.rank--;
    at.axis--;
    return collect(sum, source, at);
  }
  if (node->graph != at.body && !at.flat && to.rank == 3 && from.rank == 2 && at.axis == 2 && keeps_features) {
    at.flat = &node->outputs[0]->type;
    at.rank = 2;
    at.axis = 1;
    return collect(sum, source, at);
  }
  if (node->graph != at.body || !swaps_two(node)) return false;
  at.axis = 1 - at.axis;
  return collect(sum, source, at);
}

/* A number times the rest, or minus it. */
static bool collect_scaled(Affine *sum, const Node *node, Place at) {
  double number = -1;
  size_t rest = 0;
  if (!node_is(node, OP_Neg) && !uniform_number(node_input(node, 1), &number)) {
    rest = 1;
    if (!node_is(node, OP_Mul) || !uniform_number(node_input(node, 0), &number)) return false;
  }
  at.factor *= node_is(node, OP_Div) ? 1 / number : number;
  return collect(sum, node_input(node, rest), at);
}

static bool collect_sum(Affine *sum, const Node *node, Place at) {
  if (!collect(sum, node_input(node, 0), at)) return false;
  if (node_is(node, OP_Sub)) at.factor = -at.factor;
  return collect(sum, node_input(node, 1), at);
}

/* An elementwise product in place of a term. */
static bool take_product(Affine *sum, Value *value, Place at) {
  const Node *node = value->producer;
  double number;
  if (uniform_number(node_input(node, 0), &number) || uniform_number(node_input(node, 1), &number)) return false;
  bool taken = sum->takes_product && !sum->product && node->graph == at.body && at.factor == 1;
  if (!taken || at.gates || at.offset != 0 || at.axis != at.rank - 1) return false;
  sum->product = value;
  return true;
}

static bool collect_node(Affine *sum, Value *value, Place at) {
  const Node *node = value->producer;
  if (node_is(node, OP_Add) || node_is(node, OP_Sub)) return collect_sum(sum, node, at);
  if (node_is(node, OP_MatMul)) return collect_matmul(sum, node, at);
  if (node_is(node, OP_Gemm)) return collect_gemm(sum, node, at);
  if (node_is(node, OP_Transpose)) return collect_transpose(sum, node, at);
  if (node_is(node, OP_Reshape)) return collect_reshape(sum, node, at);
  if (node_is(node, OP_Gather)) return collect_gather(sum, node, at);
  if (node_is(node, OP_Identity) || is_cast_of_floats(node)) return collect(sum, node_input(node, 0), at);
  if (is_part(value, at.axis, &at.offset)) return collect(sum, node_input(node, 0), at);
  if (node_is(node, OP_Mul) && take_product(sum, value, at)) return true;
  return (node_is(node, OP_Mul) || node_is(node, OP_Neg) || node_is(node, OP_Div)) && collect_scaled(sum, node, at);
}

static bool collect(Affine *sum, Value *value, Place at) {
  const Tensor *constant = constant_of(value);
  if (constant) return collect_bias(sum, constant, at);
  if (at.depth-- == 0 || !dtype_fits_float32(value->type.dtype) || value->type.rank != at.rank) return false;
  Dim features = value->type.dims[at.axis];
  if (!dim_is_constant(features) || at.offset + at.length > features.constant) return false;
  if (value->producer) return collect_node(sum, value, at);
  Value *all = scanned(&at, value);
  if (!all || at.gates) return false;
  at.rank++;
  at.axis++;
  return collect(sum, all, at);
}

bool affine_read(const Node *scan, Lane lane, int64_t length, double factor, Affine *sum) {
  const Attribute *body = node_attribute(scan, "body");
  uint32_t rank = lane.value->type.rank;
  if (rank == 0) return false;
  Place at = {.scan = scan, .body = body->graph, .rank = rank, .axis = rank - 1, .depth = DEEPEST};
  at.offset = lane.offset;
  at.length = length;
  at.factor = factor;
  return collect(sum, lane.value, at);
}

static double element(const Tensor *tensor, int64_t index) {
  return number_decode(tensor->dtype, (const char *)tensor->data + (size_t)index * dtype_bytes(tensor->dtype, 1));
}

void affine_copy(const AffineTerm *term, float *to, int64_t features, int64_t inputs) {
  int64_t columns = term->matrix->dims[term->matrix->rank - 1];
  int64_t by_feature = term->transposed ? columns : 1, by_input = term->transposed ? 1 : columns;
  int64_t first = term->offset * by_feature + term->first_input * by_input;
  tensor_ready(term->matrix);
  for (int64_t feature = 0; feature < features; feature++) {
    int64_t row = first + feature * by_feature;
    for (int64_t input = 0; input < inputs; input++) {
      *to++ = (float)(term->factor * element(term->matrix, row + input * by_input));
    }
  }
}

void affine_add(const AffineTerm *term, float *to, int64_t features) {
  bool same = term->matrix->size == dtype_bytes(term->matrix->dtype, 1);
  tensor_ready(term->matrix);
  for (int64_t i = 0; i < features; i++) {
    to[i] += (float)(term->factor * element(term->matrix, same ? 0 : term->offset + i));
  }
}
