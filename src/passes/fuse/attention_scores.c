/* softmax(scale * Q Kᵀ + bias, masked) V as one operator.
 *
 * It is read backwards, from the last operator that only moves axes of the result, through the second product, the
 * softmax, and what is done to the scores, to the first product. Then the axes are followed forwards, so that it is
 * known what each stands for, and whatever their order was, they are put where Attention wants them. */
#include <math.h>

#include "onnx/facts/schema.h"
#include "passes/analysis/masks.h"
#include "passes/fuse/attention_reading.h"

/* ---- reading backwards ---- */

static bool extend(Reading *reading, Chain *chain, Node *node, Value *source, Term *term) {
  Match *match = reading->match;
  if (chain->count == LONGEST_CHAIN || !source) return false;
  if (node != match->root && !match_take(match, node->outputs[0], node->op)) return false;
  chain->terms[chain->count] = term;
  chain->nodes[chain->count++] = node;
  chain->source = source;
  return true;
}

static bool walk_moves(Reading *reading, Chain *chain) {
  for (Node *node; (node = chain->source->producer) && keeps_numbers(node);) {
    if (!extend(reading, chain, node, node_input(node, 0), NULL)) return false;
  }
  return true;
}

bool read_factor(const Node *node, size_t *side, double *factor) {
  double number;
  *side = node_is(node, OP_Mul) && uniform_number(node_input(node, 0), &number);
  if (!uniform_number(node_input(node, 1 - *side), &number)) return false;
  *factor = node_is(node, OP_Div) ? 1 / number : number;
  return true;
}

/* Of two matrices, with a bias, it is a Gemm already. */
static bool is_product(const Node *node) { return node_is(node, OP_MatMul) || node_is(node, OP_Gemm); }

/* Does it come from a product, through what is done to scores? */
static bool comes_from_product(const Value *value, int depth) {
  const Node *node = value->producer;
  double number;
  if (!node || depth == 0) return false;
  if (is_product(node)) return true;
  if (keeps_numbers(node) || node_is(node, OP_Tanh)) return comes_from_product(node_input(node, 0), depth - 1);
  if (node_is(node, OP_Where))
    return comes_from_product(node_input(node, spread_number(node_input(node, 1), &number) ? 2 : 1), depth - 1);
  if (!is_scaled(node) && !node_is(node, OP_Add) && !node_is(node, OP_Sub)) return false;
  for (size_t i = 0; i < 2; i++) {
    const Value *input = node_input(node, i);
    if (same_from_end(input->type, value->type) && comes_from_product(input, depth - 1)) return true;
  }
  return false;
}

static Term *new_term(Scores *scores, Term term) {
  if (scores->term_count == MOST_TERMS) return NULL;
  scores->terms[scores->term_count] = term;
  return &scores->terms[scores->term_count++];
}

/* What takes the place of a score is scaled with it. */
static bool step_over_mask(Reading *reading, Chain *chain, Node *node, double factor) {
  double fill;
  for (size_t kept = 1; kept <= 2; kept++) {
    if (!spread_number(node_input(node, 3 - kept), &fill)) continue;
    Term *term = new_term(&reading->scores, (Term){.value = node_input(node, 0),
                                                   .is_mask = true,
                                                   .inverted = kept == 2,
                                                   .fill = fill * factor,
                                                   .dtype = node->outputs[0]->type.dtype});
    return term && extend(reading, chain, node, node_input(node, kept), term);
  }
  return false;
}

static bool step_over_blend(Reading *reading, Chain *chain, Node *node, const Blend *blend, double factor) {
  Term *term = new_term(&reading->scores, (Term){.value = blend->mask,
                                                 .numbers = blend->numbers,
                                                 .is_mask = true,
                                                 .inverted = blend->inverted,
                                                 .fill = blend->fill * factor,
                                                 .dtype = node->outputs[0]->type.dtype});
  return term && extend(reading, chain, node, blend->product->outputs[0], term) &&
         extend(reading, chain, blend->product, node_input(blend->product, blend->side), NULL);
}

static bool step_over_bias(Reading *reading, Chain *chain, Node *node, double factor) {
  enum { DEEP = 10 };
  bool is_sum = node_is(node, OP_Add);
  Type type = node->outputs[0]->type;
  for (size_t side = 0; side < (is_sum ? 2 : 1); side++) {
    Value *source = node_input(node, side);
    if (!same_from_end(source->type, type) || !comes_from_product(source, DEEP)) continue;
    Term *term =
        new_term(&reading->scores,
                 (Term){.value = node_input(node, 1 - side), .factor = is_sum ? factor : -factor, .dtype = type.dtype});
    return term && extend(reading, chain, node, source, term);
  }
  return false;
}

static bool step_over_sum(Reading *reading, Chain *chain, Node *node, double factor) {
  Blend blend;
  if (read_blend(reading->match, node, &blend)) return step_over_blend(reading, chain, node, &blend, factor);
  return step_over_bias(reading, chain, node, factor);
}

/* A factor that is the same for all keys, as one that is learned for each head: it goes to the queries, if nothing was
 * masked or added before. */
static bool step_over_factor(Reading *reading, Chain *chain, Node *node) {
  enum { DEEP = 10 };
  Term *term = &reading->factor;
  if (term->value) return false;
  for (size_t side = 0; side < (node_is(node, OP_Mul) ? 2 : 1); side++) {
    Value *source = node_input(node, side);
    if (!same_from_end(source->type, node->outputs[0]->type) || !comes_from_product(source, DEEP)) continue;
    *term = (Term){.value = node_input(node, 1 - side)};
    reading->is_quotient = node_is(node, OP_Div);
    return extend(reading, chain, node, source, term);
  }
  return false;
}

/* cap * tanh(scores / cap), before which nothing can be masked or added. */
static bool step_over_cap(Reading *reading, Chain *chain, Node *node, double *factor) {
  Scores *scores = &reading->scores;
  if (scores->cap != 0 || !(*factor > 0) || !isfinite(*factor)) return false;
  scores->cap = *factor;
  *factor = 1;
  return extend(reading, chain, node, node_input(node, 0), NULL);
}

/* The first product, with what a Gemm adds to it. */
static bool read_first(Reading *reading, double factor) {
  Chain *chain = &reading->of_scores;
  Scores *scores = &reading->scores;
  Node *node = chain->source->producer;
  reading->first = node ? match_take(reading->match, chain->source, node->op) : NULL;
  if (!reading->first || !node_is(node, OP_Gemm)) return reading->first != NULL;
  Value *bias = node_input(node, 2);
  if (node_attribute(node, "alpha") || node_attribute(node, "beta")) return false;
  if (!bias) return true;
  if (scores->cap != 0 || reading->factor.value || chain->count == LONGEST_CHAIN) return false;
  Term *term = new_term(scores, (Term){.value = bias, .factor = factor, .dtype = node->outputs[0]->type.dtype});
  chain->terms[chain->count] = term;
  chain->nodes[chain->count++] = node;
  return term != NULL;
}

/* Back from the softmax to the product. */
static bool walk_scores(Reading *reading) {
  Chain *chain = &reading->of_scores;
  Scores *scores = &reading->scores;
  double factor = 1, number;
  size_t side;
  for (Node *node; (node = chain->source->producer) && !is_product(node);) {
    bool is_passed = false;
    if (keeps_numbers(node)) {
      is_passed = extend(reading, chain, node, node_input(node, 0), NULL);
    } else if (is_scaled(node) && read_factor(node, &side, &number)) {
      is_passed = extend(reading, chain, node, node_input(node, side), NULL);
      factor *= number;
    } else if (is_scaled(node)) {
      is_passed = step_over_factor(reading, chain, node);
    } else if (reading->factor.value) {
      is_passed = false;
    } else if (node_is(node, OP_Where) && scores->cap == 0) {
      is_passed = step_over_mask(reading, chain, node, factor);
    } else if ((node_is(node, OP_Add) || node_is(node, OP_Sub)) && scores->cap == 0) {
      is_passed = step_over_sum(reading, chain, node, factor);
    } else if (node_is(node, OP_Tanh)) {
      is_passed = step_over_cap(reading, chain, node, &factor);
    }
    if (!is_passed) return false;
  }
  scores->scale = factor;
  return read_first(reading, factor);
}

/* Weights that are put out once more, by 0 in place of them. */
static bool step_over_zeros(Reading *reading, Chain *chain, Node *node) {
  double number;
  Term *term = &reading->scores.zeroed;
  if (term->value) return false;
  for (size_t kept = 1; kept <= 2; kept++) {
    if (!spread_number(node_input(node, 3 - kept), &number) || number != 0) continue;
    *term = (Term){.value = node_input(node, 0), .is_mask = true, .inverted = kept == 2};
    return extend(reading, chain, node, node_input(node, kept), term);
  }
  return false;
}

/* The same by a product with ones and zeros. */
static bool step_over_product(Reading *reading, Chain *chain, Node *node) {
  Scores *scores = &reading->scores;
  Blend kept;
  if (scores->zeroed.value) return false;
  for (size_t side = 0; side < 2; side++) {
    Value *weights = node_input(node, 1 - side);
    if (!same_from_end(weights->type, node->outputs[0]->type)) continue;
    if (!read_kept(reading->match, node_input(node, side), &kept)) continue;
    scores->zeroed = (Term){.value = kept.mask, .numbers = kept.numbers, .is_mask = true, .inverted = kept.inverted};
    scores->is_zeroed_by_product = true;
    return extend(reading, chain, node, weights, &scores->zeroed);
  }
  return false;
}

static bool step_over_triangle(Reading *reading, Chain *chain, Node *node) {
  Scores *scores = &reading->scores;
  if (scores->triangle.value || node_int_or(node, "upper", 1)) return false;
  scores->diagonal = 0;
  if (node_input(node, 1) && !only_integer(node_input(node, 1), &scores->diagonal)) return false;
  scores->triangle = (Term){.value = node->outputs[0]};
  return extend(reading, chain, node, node_input(node, 0), &scores->triangle);
}

/* exp(x - logsumexp(x)), which is the same in a product: where it is 0 beside a NaN, that is NaN altogether. */
static Value *softmax_by_logarithm(Reading *reading, Node *node) {
  Match *match = reading->match;
  bool axes[MAX_RANK];
  if (!match_take(match, node->outputs[0], OP_Exp)) return NULL;
  Node *difference = match_take(match, node_input(node, 0), OP_Sub);
  if (!difference) return NULL;
  Value *x = node_input(difference, 0), *total = node_input(difference, 1);
  while (total->producer && (node_has(total->producer, RENAMES) || is_cast_of_half(total->producer)) &&
         match_take(match, total, total->producer->op))
    total = node_input(total->producer, 0);
  Node *sum = match_take(match, total, OP_ReduceLogSumExp);
  if (!sum || !reduced_axes(sum, axes)) return NULL;
  Value *summed = node_input(sum, 0); /* halves are added up in float32 */
  if (summed != x && summed->producer && is_cast_of_half(summed->producer) && match_take(match, summed, OP_Cast))
    summed = node_input(summed->producer, 0);
  if (summed != x) return NULL;
  if (!is_reduced_shape(node_input(difference, 1)->type, x->type, axes)) return NULL;
  reading->scores.is_by_logarithm = true;
  reading->softmax_axis = -1;
  for (uint32_t i = 0; i < x->type.rank; i++) {
    if (!axes[i]) continue;
    if (reading->softmax_axis >= 0) return NULL;
    reading->softmax_axis = i;
  }
  return reading->softmax_axis < 0 ? NULL : x;
}

/* What the softmax is of, that the value is made by. */
static Value *read_softmax(Reading *reading, Value *value) {
  Node *node = value->producer;
  if (node && node_is(node, OP_Exp)) return softmax_by_logarithm(reading, node);
  Node *softmax = match_take(reading->match, value, OP_Softmax);
  if (!softmax) return NULL;
  Value *source = node_input(softmax, 0);
  reading->softmax_axis = node_int_or(softmax, "axis", -1);
  if (reading->softmax_axis < 0) reading->softmax_axis += source->type.rank;
  return source;
}

static bool walk_weights(Reading *reading) {
  Chain *chain = &reading->of_weights;
  for (;;) {
    if (!walk_moves(reading, chain)) return false;
    Node *node = chain->source->producer;
    bool is_stepped_over = true;
    if (node && node_is(node, OP_Where)) is_stepped_over = step_over_zeros(reading, chain, node);
    else if (node && node_is(node, OP_Trilu)) is_stepped_over = step_over_triangle(reading, chain, node);
    else if (node && node_is(node, OP_Mul)) is_stepped_over = step_over_product(reading, chain, node);
    else break;
    if (!is_stepped_over) return false;
  }
  Value *source = read_softmax(reading, chain->source);
  reading->of_scores = (Chain){.source = source};
  return source != NULL;
}

static bool find_products(Reading *reading) {
  Match *match = reading->match;
  size_t before = match->node_count;
  for (size_t side = 0; side < 2; side++) {
    match->node_count = before;
    reading->scores = (Scores){.match = match};
    reading->factor = (Term){0};
    reading->of_weights = (Chain){.source = node_input(reading->second, side)};
    reading->weights_side = side;
    if (walk_weights(reading) && walk_scores(reading)) return true;
  }
  return false;
}

/* ---- following forwards ---- */

/* Leading axes of size 1 that a mask brought in. */
static bool widen(Axes *axes, Type from, Type to) {
  if (to.rank > MOST_AXES || !same_from_end(from, to)) return false;
  Axes wide = {.rank = to.rank};
  for (uint32_t i = 1; i <= axes->rank && i <= to.rank; i++) wide.axis[to.rank - i] = axes->axis[axes->rank - i];
  *axes = wide;
  return true;
}

static bool follow_node(Reading *reading, const Chain *chain, size_t i, Axes *axes) {
  Atoms *atoms = &reading->scores.atoms;
  const Node *node = chain->nodes[i];
  if (node_moves_all(node)) return follow_axes(atoms, node, axes);
  Type from = i + 1 < chain->count ? chain->nodes[i + 1]->outputs[0]->type : chain->source->type;
  Term *term = chain->terms[i];
  if (!widen(axes, from, node->outputs[0]->type)) return false;
  if (!term || !term->numbers) return !term || broadcast_axes(axes, term->value->type, &term->axes);
  return broadcast_axes(axes, term->numbers->type, &term->axes) &&
         follow_back_to_mask(atoms, term->numbers, term->value, &term->axes);
}

static bool follow_chain(Reading *reading, const Chain *chain, Axes *axes) {
  for (size_t i = chain->count; i-- > 0;) {
    if (!follow_node(reading, chain, i, axes)) return false;
  }
  return true;
}

static Axes product_axes(const Axes *lead, Axis first, Axis second) {
  Axes axes = *lead;
  axes.axis[axes.rank - 2] = first;
  axes.axis[axes.rank - 1] = second;
  return axes;
}

static bool has_all(const Axis *axis, const Axis *part) { return (axis_set(part) & ~axis_set(axis)) == 0; }

/* The softmax must be over the keys and nothing else: columns of the first product, or rows of it. Those of a batch
 * whose queries are the same stand beside each other. */
static bool find_keys(Reading *reading, Axes axes) {
  Atoms *atoms = &reading->scores.atoms;
  Axes *made = &reading->score_axes;
  if (reading->softmax_axis < 0 || reading->softmax_axis >= (int64_t)axes.rank) return false;
  if (!axes_refine(atoms, &axes) || !axes_refine(atoms, made)) return false;
  const Axis *keys = &axes.axis[reading->softmax_axis];
  if (keys->count == 0) return false;
  reading->query_side = has_all(&made->axis[made->rank - 1], keys) ? 0 : 1;
  reading->scores.key = *keys;
  return has_all(&made->axis[made->rank - 1 - reading->query_side], keys);
}

/* What the axes of the values stand for; the weights must have all that they have. */
static bool read_values(Reading *reading, Axes *axes) {
  const Axes *weights = &reading->weight_axes;
  Type type = node_input(reading->second, 1 - reading->weights_side)->type;
  size_t key = reading->weights_side == 0 ? 2 : 1; /* from the last */
  Axis features = reading->value_features;
  Axes lead =
      product_axes(weights, key == 2 ? reading->scores.key : features, key == 2 ? features : reading->scores.key);
  if (type.rank < 2 || !broadcast_axes(&lead, type, axes)) return false;
  for (uint32_t i = 0; i + 2 < type.rank; i++) {
    if (!dim_is(type.dims[i], 1) && !axes->axis[i].count) return false;
  }
  return true;
}

/* Were atoms of these split since? */
static bool is_split(const Atoms *atoms, const Atoms *before, AtomSet set) {
  for (size_t i = 0; i < before->count; i++) {
    if ((set >> i & 1) && atoms->parts[i].count != before->parts[i].count) return true;
  }
  return false;
}

/* Rows that are taken apart in the end, as pixels of an image, stay whole for Attention. */
static bool follow_result(Reading *reading, AtomSet rows) {
  Axes axes = reading->result_axes;
  Atoms *atoms = &reading->scores.atoms;
  for (size_t i = reading->of_result.count; i-- > 0;) {
    const Atoms before = *atoms;
    if (!follow_node(reading, &reading->of_result, i, &axes)) break;
    if (is_split(atoms, &before, rows)) {
      *atoms = before;
      break;
    }
    reading->result_axes = axes;
    reading->followed++;
  }
  return axes_refine(atoms, &reading->result_axes);
}

static bool follow_all(Reading *reading) {
  Scores *scores = &reading->scores;
  Atoms *atoms = &scores->atoms;
  Type products = reading->first->outputs[0]->type;
  if (products.rank < 2 || !axes_begin(atoms, products, &reading->score_axes)) return false;
  Axes axes = reading->score_axes;
  if (!follow_chain(reading, &reading->of_scores, &axes) || !find_keys(reading, axes)) return false;
  if (!follow_chain(reading, &reading->of_weights, &axes) || !axes_refine(atoms, &axes)) return false;
  size_t side = reading->weights_side;
  Type values = node_input(reading->second, 1 - side)->type;
  if (values.dtype == DTYPE_NONE || values.rank < 2 || values.rank > axes.rank || axes.rank < 2) return false;
  if (!same_axis(&axes.axis[axes.rank - 1 - side], &scores->key)) return false;
  reading->weight_axes = axes;
  reading->value_features = axis_begin(atoms, values.dims[values.rank - 1 - side]);
  Axis rows = axes.axis[axes.rank - 2 + side];
  reading->result_axes = side == 0 ? product_axes(&axes, rows, reading->value_features)
                                   : product_axes(&axes, reading->value_features, rows);
  return follow_result(reading, axis_set(&rows));
}

/* ---- operands ---- */

static bool is_turned(const Node *product, size_t side) { return node_int_or(product, side ? "transB" : "transA", 0); }

/* Of axes as the result's; features where the other operand has them. */
static bool read_operand(Reading *reading, size_t side, Operand *operand) {
  Value *value = node_input(reading->first, side);
  Axes lead = reading->score_axes;
  Axis own = lead.axis[lead.rank - 2 + side];
  lead = (side == 0) != is_turned(reading->first, side) ? product_axes(&lead, own, reading->query_features)
                                                        : product_axes(&lead, reading->query_features, own);
  *operand = (Operand){.value = value, .scale = 1};
  return value->type.rank >= 2 && broadcast_axes(&lead, value->type, &operand->axes);
}

/* ---- the operator ---- */

/* The type that it is computed in; DTYPE_NONE when there is none. Halves are computed in float32 where ONNX Runtime has
 * no kernel for them, and where a mask is added, which they are not precise enough for. */
static DType computed_in(const Match *match, DType dtype, MaskUse use) {
  if (!schema_runs(OP_Attention, NULL, match_opset(match), DTYPE_FLOAT32) || !dtype_fits_float32(dtype))
    return DTYPE_NONE;
  bool is_native = dtype == DTYPE_FLOAT32 || schema_runs(OP_Attention, NULL, match_opset(match), dtype);
  return is_native && use != MASK_ADDED ? dtype : DTYPE_FLOAT32;
}

/* 1 / sqrt of the number of features is what the operator does by itself. */
static bool is_default_scale(const Scores *scores, const Axis *features) {
  Dim size = features->count ? scores->atoms.sizes[features->atoms[0]] : dim_of(1);
  return features->count <= 1 && dim_is_constant(size) &&
         near_number(DTYPE_FLOAT32, scores->scale, 1 / sqrt((double)size.constant));
}

static Node *emit_operator(Reading *reading, const Layout *layout, Value *const inputs[4], Type type, bool causal) {
  Match *match = reading->match;
  const Scores *scores = &reading->scores;
  Emitter emitter = REWRITE_EMITTER(match->rewriter);
  Node *node = match_node_before(match, OP_Attention, type, inputs, inputs[3] ? 4 : 3, emitter);
  if (causal) node_set_int(node, "is_causal", 1);
  if (layout->heads) {
    node_set_int(node, "kv_num_heads", layout->heads);
    node_set_int(node, "q_num_heads", layout->heads);
  }
  if (!is_default_scale(scores, &reading->query_features)) node_set_float(node, "scale", (float)scores->scale);
  if (scores->cap != 0) node_set_float(node, "softcap", (float)scores->cap);
  for (size_t i = 1; i < match->node_count; i++) rewrite_hand_over(match->rewriter, node, match->nodes[i]);
  return node;
}

/* Operators at the end whose axes could not be followed are made once more. */
static Value *emit_rest(Reading *reading, Value *value) {
  const Chain *chain = &reading->of_result;
  for (size_t i = chain->count - reading->followed; i-- > 0;) {
    const Node *node = chain->nodes[i];
    Type type = type_with(node->outputs[0]->type, value->type.dtype);
    if (is_cast_of_half(node)) continue;
    Value *inputs[] = {value, node_input(node, 1)};
    Emitter emitter = REWRITE_EMITTER(reading->match->rewriter);
    Node *copy = match_node_before(reading->match, node->op, type, inputs, inputs[1] ? 2 : 1, emitter);
    node_copy_attributes(copy, node);
    value = copy->outputs[0];
  }
  return value;
}

/* Queries for each of the batch, if they are the same for all. */
static Value *spread_over_batch(Match *match, Value *query, Value *keys) {
  Context *context = match->rewriter->context;
  Dim dims[MOST_AXES], batch = keys->type.dims[0];
  Type type = query->type;
  if (dim_equal(type.dims[0], batch)) return query;
  int64_t numbers[MOST_AXES];
  for (uint32_t i = 0; i < type.rank; i++) numbers[i] = 1, dims[i] = i ? type.dims[i] : batch;
  if (dim_is_constant(batch)) numbers[0] = batch.constant;
  size_t known = dim_is_constant(batch) ? type.rank : type.rank - 1;
  Value *shape = rewrite_constant_ints(match->rewriter, match->root, numbers, known, match->root->origin);
  if (!dim_is_constant(batch)) {
    Value *count =
        EMIT_BEFORE(match, OP_Shape, type_make(context, DTYPE_INT64, (Dim[]){dim_of(1)}, 1), keys)->outputs[0];
    node_set_int(count->producer, "start", 0);
    node_set_int(count->producer, "end", 1);
    Type sizes = type_make(context, DTYPE_INT64, (Dim[]){dim_of(type.rank)}, 1);
    shape = EMIT_BEFORE(match, OP_Concat, sizes, count, shape)->outputs[0];
    node_set_int(shape->producer, "axis", 0);
  }
  return EMIT_BEFORE(match, OP_Expand, type_make(context, type.dtype, dims, type.rank), query, shape)->outputs[0];
}

static bool emit(Reading *reading, const Layout *layout, Operand operands[3], MaskUse use) {
  Match *match = reading->match;
  Scores *scores = &reading->scores;
  DType type = match_type(match).dtype, dtype = computed_in(match, type, use);
  Arrangement back;
  Value probe = {.type = axes_type(&scores->atoms, &layout->result, dtype)};
  if (dtype == DTYPE_NONE || !plan_arrangement(&scores->atoms, &probe, &layout->result, &reading->result_axes, &back))
    return false;
  Value *inputs[4] = {0};
  for (size_t i = 0; i < 3; i++) inputs[i] = match_in_type(match, arrange(match, &operands[i].placed), dtype);
  if (reading->factor.value) {
    Value *factor = match_in_type(match, arrange(match, &reading->factor.condition.placed), dtype);
    Op op = reading->is_quotient ? OP_Div : OP_Mul;
    inputs[0] = EMIT_BEFORE(match, op, inputs[0]->type, inputs[0], factor)->outputs[0];
  }
  if (reading->missing) inputs[0] = spread_over_batch(match, inputs[0], inputs[1]);
  scores->query = inputs[0], scores->keys = inputs[1];
  inputs[3] = attention_mask(scores, use);
  Value *made = emit_operator(reading, layout, inputs, probe.type, use == MASK_CAUSAL)->outputs[0];
  back.source = times_sum_of_weights(scores, made);
  Value *value = emit_rest(reading, arrange(match, &back));
  match_replace(match, match_in_type(match, value, type));
  return true;
}

/* Another operator that moves axes, which alone reads this one, is a better end. */
static bool is_last(const Node *node) {
  const Use *use = node->outputs[0]->uses;
  return !use || use->next || !use->node || use->node->graph != node->graph || !keeps_numbers(use->node) ||
         use->node->output_count != 1;
}

/* A cheap look: weights, moved or put out, before a product. */
static bool may_be_weights(const Value *value, bool may_multiply) {
  for (int i = 0; i < LONGEST_CHAIN; i++) {
    const Node *node = value->producer;
    if (!node) return false;
    if (node_is(node, OP_Softmax) || node_is(node, OP_Exp)) return true;
    if (node_is(node, OP_Mul) && may_multiply)
      return may_be_weights(node_input(node, 0), false) || may_be_weights(node_input(node, 1), false);
    if (node_is(node, OP_Where)) value = node_input(node, node_input(node, 1)->producer ? 1 : 2);
    else if (keeps_numbers(node) || node_is(node, OP_Trilu)) value = node_input(node, 0);
    else return false;
  }
  return false;
}

static bool may_be_attention(const Node *root) {
  if (!is_last(root)) return false;
  for (int i = 0; i < LONGEST_CHAIN && !node_is(root, OP_MatMul); i++) {
    root = keeps_numbers(root) ? node_input(root, 0)->producer : NULL;
    if (!root) return false;
  }
  return node_is(root, OP_MatMul) &&
         (may_be_weights(node_input(root, 0), true) || may_be_weights(node_input(root, 1), true));
}

/* Queries, keys and values, and what their axes stand for. */
static bool read_operands(Reading *reading, Operand operands[3]) {
  Atoms *atoms = &reading->scores.atoms;
  size_t side = reading->query_side;
  Type keys = node_input(reading->first, 1 - side)->type;
  if (keys.dtype == DTYPE_NONE || keys.rank < 2) return false;
  bool stands_last = (side == 1) != is_turned(reading->first, 1 - side);
  reading->query_features = axis_begin(atoms, keys.dims[keys.rank - (stands_last ? 1 : 2)]);
  Value *values = node_input(reading->second, 1 - reading->weights_side);
  operands[2] = (Operand){.value = values, .scale = 1, .keeps_scale = true};
  if (!read_operand(reading, side, &operands[0]) || !read_operand(reading, 1 - side, &operands[1]) ||
      !read_values(reading, &operands[2].axes))
    return false;
  if (!read_masks(&reading->scores) || !axes_refine(atoms, &reading->score_axes)) return false;
  for (size_t i = 0; i < 3; i++) {
    if (!axes_refine(atoms, &operands[i].axes)) return false;
  }
  return true;
}

static bool read_chains(Reading *reading) {
  Match *match = reading->match;
  if (match_type(match).rank > MOST_AXES || !walk_moves(reading, &reading->of_result)) return false;
  Node *second = reading->of_result.source->producer;
  if (!second || !node_is(second, OP_MatMul)) return false;
  if (second != match->root && !match_take(match, reading->of_result.source, OP_MatMul)) return false;
  reading->second = second;
  if (!find_products(reading)) return false;
  reading->scores.atoms.context = match->rewriter->context;
  return follow_all(reading);
}

/* Where the queries are; a number needs no place. */
static bool place_factor(Reading *reading, const Layout *layout) {
  Term *factor = &reading->factor;
  return dtype_fits_float32(factor->value->type.dtype) &&
         plan_arrangement(&reading->scores.atoms, factor->value, &factor->axes, &layout->query,
                          &factor->condition.placed);
}

static bool read_attention(Match *match) {
  Reading reading = {.match = match, .of_result = {.source = match->root->outputs[0]}};
  Scores *scores = &reading.scores;
  Operand operands[3];
  Layout layout;
  if (!read_chains(&reading) || !read_operands(&reading, operands)) return false;
  if (!choose_layout(&reading, operands, &layout)) return false;
  const Axes *wanted[] = {&layout.query, &layout.keys, &layout.values};
  for (size_t i = 0; i < 3; i++) {
    if (!place_operand(&reading, &operands[i], wanted[i])) return false;
    scores->scale *= operands[i].scale;
  }
  if (scores->cap != 0) scores->scale *= scores->cap;
  if (!(scores->scale > 0) || !isfinite(scores->scale)) return false;
  Type shape = axes_type(&scores->atoms, &layout.mask, DTYPE_BOOL);
  scores->rows = shape.dims[2], scores->columns = shape.dims[3];
  if (reading.factor.value && !place_factor(&reading, &layout)) return false;
  MaskUse use = plan_masks(scores, &layout.mask);
  return use != MASK_UNFIT && emit(&reading, &layout, operands, use);
}

bool fuse_attention_scores(Match *match) {
  return schema_runs(OP_Attention, NULL, match_opset(match), DTYPE_FLOAT32) && may_be_attention(match->root) &&
         read_attention(match);
}
