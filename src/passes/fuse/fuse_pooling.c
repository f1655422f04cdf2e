/* Padding before a convolution or pooling becomes its own, and a window's sum over its size an average.
 *
 * A convolution pads with zeros, a maximum with what loses against every element, an average with zeros that count. A
 * window never lies in the padding alone: what pads must be smaller than the window.
 */
#include <math.h>

#include "onnx/facts/schema.h"
#include "onnx/graph/same.h"
#include "passes/layout/permute_axes.h"
#include "passes/pattern.h"
#include "target/target.h"

enum { SOURCE, PADDED, TURNED, POOLED, SIZE, DIVISOR };

/* ---- padding ---- */

typedef struct Pads {
  uint32_t rank;
  int64_t low[MOST_PERMUTED], high[MOST_PERMUTED];
  double fill;
} Pads;

static bool read_pad_node(const Node *pad, Pads *pads) {
  const Attribute *mode = node_attribute(pad, "mode");
  const Tensor *numbers = constant_of(node_input(pad, 1));
  Type type = pad->outputs[0]->type;
  if (mode && strcmp(mode->string, "constant") != 0) return false;
  if (!numbers || numbers->dtype != DTYPE_INT64 || node_input(pad, 3) || type.dtype == DTYPE_NONE) return false;
  if (type.rank < 3 || type.rank > MOST_PERMUTED || numbers->size != 2 * type.rank * sizeof(int64_t)) return false;
  *pads = (Pads){.rank = type.rank};
  if (node_input(pad, 2) && !uniform_number(node_input(pad, 2), &pads->fill)) return false;
  const int64_t *values = numbers->data;
  for (uint32_t i = 0; i < type.rank; i++) {
    pads->low[i] = values[i];
    pads->high[i] = values[type.rank + i];
    if (pads->low[i] < 0 || pads->high[i] < 0) return false;
  }
  return true;
}

static Pads permuted_pads(const Pads *pads, const AxisOrder *order) {
  Pads result = *pads;
  for (uint32_t i = 0; i < pads->rank; i++) {
    result.low[i] = pads->low[order->from[i]];
    result.high[i] = pads->high[order->from[i]];
  }
  return result;
}

/* Does the operator work its padding out from its sizes? */
static bool pads_automatically(const Node *node) {
  const Attribute *attribute = node_attribute(node, "auto_pad");
  return attribute && strcmp(attribute->string, "NOTSET") != 0 && strcmp(attribute->string, "VALID") != 0;
}

/* The sum of both paddings as the operator has it; false: it cannot be. */
static bool add_pads(const Node *node, const Pads *pads, int64_t *sum, bool *padded_already) {
  uint32_t space = pads->rank - 2;
  const Attribute *own = node_attribute(node, "pads"), *windows = node_attribute(node, "kernel_shape");
  if (pads_automatically(node) || (own && own->count != 2 * space)) return false;
  if (pads->low[0] || pads->high[0] || pads->low[1] || pads->high[1]) return false;
  *padded_already = false;
  for (uint32_t i = 0; i < 2 * space; i++) {
    int64_t more = i < space ? pads->low[2 + i] : pads->high[2 + i - space];
    *padded_already = *padded_already || (own && own->integers[i] != 0);
    sum[i] = more + (own ? own->integers[i] : 0);
    if (node_is(node, OP_Conv)) continue;
    if (!windows || windows->count != space || sum[i] >= windows->integers[i % space]) return false;
  }
  return true;
}

static bool is_never_negative(const Value *value) {
  const Node *node = value->producer;
  double lowest;
  if (!node) return false;
  if (node_is(node, OP_Clip)) return uniform_number(node_input(node, 1), &lowest) && lowest >= 0;
  return node_is(node, OP_Relu) || node_is(node, OP_Sigmoid) || node_is(node, OP_HardSigmoid) || node_is(node, OP_Abs);
}

/* Does the operator pad with the same? */
static bool pads_alike(const Match *match, const Pads *pads, bool padded_already) {
  const Node *root = match->root;
  if (!dtype_is_float(match_type(match).dtype)) return false;
  if (node_is(root, OP_Conv)) return pads->fill == 0;
  if (node_attribute(root, "dilations") || node_int_or(root, "ceil_mode", 0)) return false;
  if (node_is(root, OP_MaxPool)) {
    return pads->fill == -INFINITY || (pads->fill <= 0 && is_never_negative(match->values[SOURCE]));
  }
  return pads->fill == 0 && (!padded_already || node_int_or(root, "count_include_pad", 0));
}

/* The Transpose between the padding and the operator, of what was padded. */
static Value *turned(Match *match, const Node *transpose, const AxisOrder *order) {
  Rewriter *rewriter = match->rewriter;
  Value *source = match->values[SOURCE];
  Type type = order_type(rewriter->context, source->type, order);
  const Origin *origin = transpose->origin;
  origin = origin_with_emitter(rewriter->model->provenance, origin, REWRITE_EMITTER(rewriter));
  Node *node = graph_node(match->root->graph, origin, OP_Transpose, &source, 1, &type, 1, match->root);
  node_set_ints(node, "perm", order->from, order->rank);
  return node->outputs[0];
}

/* Where a Pad with zeros would be made a part of the MaxPool after it, auto_pad says that that is not padded. */
static void keep_padding_apart(const Match *match, const Pads *pads) {
  Node *pool = match->root;
  const Attribute *own = node_attribute(pool, "pads");
  if (!target_has(match->rewriter->model->target, QUIRK_MAX_POOL_TAKES_IN_PADS)) return;
  if (!node_is(pool, OP_MaxPool) || match->values[TURNED] || pads->fill != 0 || node_attribute(pool, "auto_pad"))
    return;
  for (size_t i = 0; own && i < own->count; i++) {
    if (own->integers[i] != 0) return;
  }
  node_set_string(pool, "auto_pad", "VALID");
  size_t kept = 0;
  for (size_t i = 0; i < pool->attributes.count; i++) {
    if (strcmp(pool->attributes.items[i].name, "pads") == 0) continue;
    pool->attributes.items[kept++] = pool->attributes.items[i];
  }
  pool->attributes.count = kept;
}

static bool fuse_padding(Match *match) {
  const Node *root = match->root, *transpose = match->values[TURNED] ? match->values[TURNED]->producer : NULL;
  Context *context = match->rewriter->context;
  int64_t sum[2 * MOST_PERMUTED];
  bool padded_already;
  Pads pads;
  AxisOrder order;
  if (!read_pad_node(match->values[PADDED]->producer, &pads)) return false;
  if (match->values[SOURCE]->type.rank != pads.rank) return false;
  if (transpose) {
    if (!transpose_order(transpose, &order) || order.rank != pads.rank) return false;
    pads = permuted_pads(&pads, &order);
  }
  if (!add_pads(root, &pads, sum, &padded_already) || !pads_alike(match, &pads, padded_already)) {
    keep_padding_apart(match, &pads);
    return false;
  }
  Value *inputs[3];
  if (root->input_count > 3) return false;
  for (uint32_t i = 1; i < root->input_count; i++) inputs[i] = root->inputs[i].value;
  inputs[0] = transpose ? turned(match, transpose, &order) : match->values[SOURCE];
  const Attribute *attributes = root->attributes.items; /* stay when the node goes */
  size_t count = root->attributes.count;
  Node *node = match_emit(match, root->op, inputs, root->input_count, REWRITE_EMITTER(match->rewriter));
  for (size_t i = 0; i < count; i++) {
    if (strcmp(attributes[i].name, "auto_pad") != 0) array_push(context, &node->attributes, attributes[i]);
  }
  node_set_ints(node, "pads", sum, 2 * (pads.rank - 2));
  if (node_is(node, OP_AveragePool)) node_set_int(node, "count_include_pad", 1);
  return true;
}

/* A Pad that others read, too, stays for them. */
static bool fuse_shared_padding(Match *match) {
  const Node *pad = match->values[PADDED]->producer;
  if (!pad || !node_is(pad, OP_Pad) || !node_is(match->root, OP_Conv)) return false;
  match->values[SOURCE] = node_input(pad, 0);
  return fuse_padding(match);
}

/* ---- averages ---- */

static Node *emit_average(Match *match, bool count_padding) {
  const Node *pool = match->values[POOLED]->producer;
  Node *node = EMIT_MATCH(match, OP_AveragePool, match_in_type(match, match->values[SOURCE], match_type(match).dtype));
  node_copy_attributes(node, pool);
  node_set_int(node, "count_include_pad", count_padding);
  return node;
}

/* The average times the size of the window, over that size. */
static bool fuse_average(Match *match) {
  double size = match_number(match, SIZE), divisor = match_number(match, DIVISOR);
  if (node_is(match->root, OP_Mul)) divisor = 1 / divisor;
  if (!type_equal(match_type(match), match->values[POOLED]->type)) return false;
  if (!near_number(match_type(match).dtype, divisor, size)) return false;
  emit_average(match, node_int_or(match->values[POOLED]->producer, "count_include_pad", 0) != 0);
  return true;
}

static bool agree_on(const Node *a, const Node *b, const char *name) {
  const Attribute *one = node_attribute(a, name), *other = node_attribute(b, name);
  return one && other ? same_attribute(one, other) : one == other;
}

/* Are the ones as large as what is pooled, or one for all along the outer axes? */
static bool counts_elements(Type ones, Type pooled) {
  if (ones.rank != pooled.rank) return false;
  for (uint32_t i = 0; i < ones.rank; i++) {
    if (!dim_equal(ones.dims[i], pooled.dims[i]) && !(i < 2 && dim_is(ones.dims[i], 1))) return false;
  }
  return true;
}

/* The AveragePool of ones that the value is, times its size; else NULL. It may serve several. */
static Node *window_counter(const Value *value, double size) {
  Node *product = value->producer;
  double factor, one;
  if (!product || !node_is(product, OP_Mul) || !uniform_number(node_input(product, 1), &factor) || factor != size)
    return NULL;
  Node *pool = node_input(product, 0)->producer;
  if (!pool || !node_is(pool, OP_AveragePool)) return NULL;
  const Value *ones = node_input(pool, 0);
  if (ones->producer && node_is(ones->producer, OP_Transpose)) ones = node_input(ones->producer, 0);
  if (ones->producer && node_is(ones->producer, OP_Expand)) ones = node_input(ones->producer, 0);
  return uniform_number(ones, &one) && one == 1 ? pool : NULL;
}

/* A window's sum over how many elements it has, which the same window says of ones. Sums of halves may be widened for
 * that: so is then what is summed. */
static bool fuse_counted_average(Match *match) {
  static const char *const names[] = {"kernel_shape", "strides", "pads", "dilations", "auto_pad"};
  const Node *pool = match->values[POOLED]->producer;
  Node *counter = window_counter(match->values[DIVISOR], match_number(match, SIZE));
  DType dtype = match_type(match).dtype, summed = match->values[POOLED]->type.dtype;
  if (!counter || !type_same_shape(match_type(match), match->values[POOLED]->type)) return false;
  if (dtype != summed && !(dtype == DTYPE_FLOAT32 && dtype_is_half(summed))) return false;
  if (!counts_elements(node_input(counter, 0)->type, match->values[SOURCE]->type)) return false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (!agree_on(pool, counter, names[i])) return false;
  }
  if (node_attribute(pool, "dilations") || node_int_or(pool, "ceil_mode", 0) || node_int_or(counter, "ceil_mode", 0))
    return false;
  if (!node_int_or(pool, "count_include_pad", 0) || !node_int_or(counter, "count_include_pad", 0)) return false;
  Node *average = emit_average(match, false);
  rewrite_hand_over(match->rewriter, average, match->values[DIVISOR]->producer);
  rewrite_hand_over(match->rewriter, average, counter);
  return true;
}

/* A window as large as the image: a mean, whose axes may be in any order. */
static bool fuse_whole_average(Match *match) {
  const Node *pool = match->root;
  const Attribute *windows = node_attribute(pool, "kernel_shape"), *pads = node_attribute(pool, "pads");
  const Node *user = value_only_user(pool->outputs[0]);
  Type from = match->values[SOURCE]->type, to = match_type(match);
  int64_t axes[MAX_RANK];
  if (from.rank < 3 || from.rank != to.rank || !windows || windows->count != from.rank - 2) return false;
  if (node_attribute(pool, "dilations") || pads_automatically(pool)) return false;
  if (user && node_is(user, OP_Mul) && unread_constant_of(node_input(user, 1))) return false; /* a sum: see above */
  for (size_t i = 0; pads && i < pads->count; i++) {
    if (pads->integers[i] != 0) return false;
  }
  for (uint32_t i = 2; i < from.rank; i++) {
    if (!dim_is(from.dims[i], windows->integers[i - 2]) || !dim_is(to.dims[i], 1)) return false;
    axes[i - 2] = i;
  }
  bool as_attribute = schema_version(OP_ReduceMean, match_opset(match)) < 18;
  Value *inputs[] = {match->values[SOURCE], NULL};
  if (!as_attribute) inputs[1] = rewrite_constant_ints(match->rewriter, match->root, axes, from.rank - 2, pool->origin);
  Node *mean = match_emit(match, OP_ReduceMean, inputs, as_attribute ? 1 : 2, REWRITE_EMITTER(match->rewriter));
  if (as_attribute) node_set_ints(mean, "axes", axes, from.rank - 2);
  node_set_int(mean, "keepdims", 1);
  return true;
}

#define PAD OP_AT(PADDED, Pad, ANY(SOURCE))
#define TRANSPOSED_PAD OP_AT(TURNED, Transpose, PAD)
#define WINDOW_SUM OP(Mul, OP_AT(POOLED, AveragePool, ANY(SOURCE)), UNIFORM(SIZE))

static const FusionRule rules[] = {
    {OP(Conv, PAD), OP_NONE, fuse_padding},
    {OP(Conv, TRANSPOSED_PAD), OP_NONE, fuse_padding},
    {OP(Conv, ANY(PADDED)), OP_NONE, fuse_shared_padding},
    {OP(MaxPool, PAD), OP_NONE, fuse_padding},
    {OP(MaxPool, TRANSPOSED_PAD), OP_NONE, fuse_padding},
    {OP(AveragePool, PAD), OP_NONE, fuse_padding},
    {OP(AveragePool, TRANSPOSED_PAD), OP_NONE, fuse_padding},
    {OP(Div, WINDOW_SUM, UNIFORM(DIVISOR)), OP_NONE, fuse_average},
    {OP(Mul, WINDOW_SUM, UNIFORM(DIVISOR)), OP_NONE, fuse_average},
    {OP(Div, WINDOW_SUM, ANY(DIVISOR)), OP_NONE, fuse_counted_average},
    {OP(Div, OP(Cast, WINDOW_SUM), ANY(DIVISOR)), OP_NONE, fuse_counted_average},
    {OP(AveragePool, ANY(SOURCE)), OP_ReduceMean, fuse_whole_average},
};

bool fuse_pooling(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
