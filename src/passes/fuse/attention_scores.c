/* softmax(scale * Q Kᵀ + bias, masked) V as one operator.
 *
 * It is read backwards, from the last operator that only moves axes of the result, through the second product, the
 * softmax, and what is done to the scores, to the first product. Then the axes are followed forwards, so that it is
 * known what each stands for, and whatever their order was, they are put where Attention wants them. */
#include <limits.h>
#include <math.h>

#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "passes/analysis/masks.h"
#include "passes/fuse/attention_parts.h"

typedef struct Chain {
  Node *nodes[LONGEST_CHAIN]; /* the last operator first */
  Term *terms[LONGEST_CHAIN]; /* what is applied there, or NULL */
  size_t count;
  Value *source; /* what the first of them reads */
} Chain;

typedef struct Reading {
  Match *match;
  Scores scores;
  Chain of_result, of_weights, of_scores;
  Node *first, *second; /* the products */
  size_t query_side, weights_side;
  int64_t softmax_axis;
  Axes score_axes, weight_axes, result_axes;
  Axis query_features, value_features;
  AtomSet missing; /* of the batch, which all have the same queries */
  Term factor;     /* of the queries, not known before run time; no value: there is none */
  bool is_quotient;
  size_t followed; /* operators after the second product whose axes are followed; the others are left as they are */
} Reading;

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

static bool is_scaled(const Node *node) { return node_is(node, OP_Mul) || node_is(node, OP_Div); }

/* The side that is not the number, which a quotient has on the right. */
static bool read_factor(const Node *node, size_t *side, double *factor) {
  double number;
  *side = node_is(node, OP_Mul) && uniform_number(node_input(node, 0), &number);
  if (!uniform_number(node_input(node, 1 - *side), &number)) return false;
  *factor = node_is(node, OP_Div) ? 1 / number : number;
  return true;
}

/* Does it come from a product, through what is done to scores? */
static bool comes_from_product(const Value *value, int depth) {
  const Node *node = value->producer;
  double number;
  if (!node || depth == 0) return false;
  if (node_is(node, OP_MatMul)) return true;
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

/* Back from the softmax to the product. */
static bool walk_scores(Reading *reading) {
  Chain *chain = &reading->of_scores;
  Scores *scores = &reading->scores;
  double factor = 1, number;
  size_t side;
  for (Node *node; (node = chain->source->producer) && !node_is(node, OP_MatMul);) {
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
  reading->first = match_take(reading->match, chain->source, OP_MatMul);
  return reading->first != NULL;
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

static bool follow_result(Reading *reading) {
  Axes axes = reading->result_axes;
  for (size_t i = reading->of_result.count; i-- > 0;) {
    if (!follow_node(reading, &reading->of_result, i, &axes)) break;
    reading->result_axes = axes;
    reading->followed++;
  }
  return axes_refine(&reading->scores.atoms, &reading->result_axes);
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
  return follow_result(reading);
}

/* ---- operands ---- */

/* An operand, what its axes stand for, and how it gets those that are wanted. */
typedef struct Operand {
  Value *value;
  Axes axes;
  double scale;     /* that goes out of it */
  bool keeps_scale; /* it does not */
  Arrangement placed;
  int cost; /* operators that do, less those that go */
} Operand;

/* Of axes as the result's; features where the other operand has them. */
static bool read_operand(Reading *reading, size_t side, Operand *operand) {
  Value *value = node_input(reading->first, side);
  Axes lead = reading->score_axes;
  Axis own = lead.axis[lead.rank - 2 + side];
  lead =
      side == 0 ? product_axes(&lead, own, reading->query_features) : product_axes(&lead, reading->query_features, own);
  *operand = (Operand){.value = value, .scale = 1};
  return value->type.rank >= 2 && broadcast_axes(&lead, value->type, &operand->axes);
}

/* From as far back as saves the most operators: moved axes and scales on the way are left out. */
static bool place_operand(Reading *reading, Operand *operand, const Axes *want) {
  Match *match = reading->match;
  Atoms *atoms = &reading->scores.atoms;
  Operand here = *operand;
  size_t taken = match->node_count;
  int best = INT_MAX, passed = 0;
  double number;
  for (size_t steps = 0; steps < LONGEST_CHAIN; steps++) {
    if (!axes_refine(atoms, &here.axes)) break;
    if (plan_arrangement(atoms, here.value, &here.axes, want, &here.placed)) {
      int cost = (int)arrangement_cost(&here.placed) - passed;
      here.cost = cost;
      if (cost < best) *operand = here, best = cost, taken = match->node_count;
    }
    Node *node = here.value->producer;
    size_t side = 0;
    if (!node || node->graph != match->root->graph) break;
    if (is_scaled(node) && !operand->keeps_scale) {
      if (!read_factor(node, &side, &number) || !type_equal(node_input(node, side)->type, here.value->type)) break;
      here.scale *= number;
    } else if (!keeps_numbers(node) || !follow_axes_back(atoms, node, &here.axes)) {
      break;
    }
    passed += match_take(match, here.value, node->op) != NULL;
    here.value = node_input(node, side);
  }
  match->node_count = taken;
  return best < INT_MAX;
}

/* ---- the layout ---- */

/* Does it stand beside the keys in the mask? */
static bool is_beside_keys(const Scores *scores, const Term *term, uint8_t atom) {
  const Axes *axes = &term->condition.axes;
  const Axis row = {1, {atom}};
  for (uint32_t i = 0; i + 1 < axes->rank; i++) {
    for (uint32_t k = 0; k < 2; k++) {
      if (same_axis(&axes->axis[i + k], &row) && same_axis(&axes->axis[i + 1 - k], &scores->key)) return true;
    }
  }
  return false;
}

/* How much says that masks take it for the rows. */
static size_t votes_for_row(const Scores *scores, uint8_t atom) {
  size_t votes = 0;
  for (size_t i = 0; i < scores->term_count; i++) {
    const Term *term = &scores->terms[i];
    if (term_atoms(term) >> atom & 1) votes += is_beside_keys(scores, term, atom) ? 3 : 2;
  }
  return votes;
}

/* Of what only queries have, the rows: what masks vary with, the nearest to the keys; else the last. */
static uint8_t choose_row(const Reading *reading, const Axis *own) {
  const Scores *scores = &reading->scores;
  uint8_t row = own->atoms[own->count - 1];
  for (uint32_t i = 0; i < own->count; i++) {
    if (!dim_is_constant(scores->atoms.sizes[own->atoms[i]])) row = own->atoms[i];
  }
  size_t most = 0;
  for (uint32_t i = 0; i < own->count; i++) {
    size_t votes = votes_for_row(scores, own->atoms[i]);
    if (votes > most || (votes && votes == most)) most = votes, row = own->atoms[i];
  }
  return row;
}

static Axes axes_of(const Axis *const *axis, uint32_t rank) {
  Axes axes = {.rank = rank};
  for (uint32_t i = 0; i < rank; i++) axes.axis[i] = *axis[i];
  return axes;
}

/* Do positions stand before heads, and heads before features, in the value? */
static bool is_in_rows(const Atoms *atoms, Operand operand, Axes wanted) {
  Arrangement plan;
  return plan_arrangement(atoms, operand.value, &operand.axes, &wanted, &plan) && !is_transposed(&plan);
}

/* Are queries, keys and values given with heads, of which keys and values may have fewer, behind the positions? */
static bool are_in_rows(Reading *reading, const Operand operands[3], const Axis *batch, const Axis *heads,
                        const Axis *of_keys) {
  const Scores *scores = &reading->scores;
  const Axis *positions[] = {&scores->row, &scores->key, &scores->key};
  const Axis *features[] = {&reading->query_features, &reading->query_features, &reading->value_features};
  Match *match = reading->match;
  size_t taken = match->node_count;
  bool all = true;
  for (size_t i = 0; i < 3; i++) {
    Operand operand = operands[i];
    const Axis *order[] = {batch, positions[i], i ? of_keys : heads, features[i]};
    Axes want = axes_of(order, 4);
    all = all && place_operand(reading, &operand, &want) && is_in_rows(&scores->atoms, operand, want);
  }
  match->node_count = taken;
  return all;
}

/* What the axes of Attention are made of. */
typedef struct Roles {
  Axis batch, heads, group; /* of keys and values the first two, of queries all */
} Roles;

static Axis all_heads(const Roles *roles) {
  Axis heads = roles->heads;
  axis_append(&heads, &roles->group);
  return heads;
}

/* How many masks have batch or heads only in part, or some of both in one axis? */
static int split_axes(const Scores *scores, const Roles *roles) {
  Axis heads = all_heads(roles);
  AtomSet axes[] = {axis_set(&roles->batch), axis_set(&heads)};
  int found = 0;
  for (size_t i = 0; i < scores->term_count; i++) {
    const Axes *own = &scores->terms[i].condition.axes;
    AtomSet set = term_atoms(&scores->terms[i]);
    for (size_t part = 0; part < 2; part++) found += (set & axes[part]) && (set & axes[part]) != axes[part];
    for (uint32_t k = 0; k < own->rank; k++)
      found += (axis_set(&own->axis[k]) & axes[0]) && (axis_set(&own->axis[k]) & axes[1]);
  }
  return found;
}

/* What is worst comes first: masks that are spread, heads whose number is known only at run time, moved operands. */
static int cost_of_roles(Reading *reading, const Operand operands[3], const Roles *roles) {
  enum { SPLIT_COST = 100, UNKNOWN_COST = 10 };
  const Scores *scores = &reading->scores;
  Axis heads = all_heads(roles);
  int cost = split_axes(scores, roles) * SPLIT_COST;
  if (reading->missing & axis_set(&heads)) cost += SPLIT_COST;
  for (uint32_t i = 0; i < heads.count; i++)
    cost += dim_is_constant(scores->atoms.sizes[heads.atoms[i]]) ? 0 : UNKNOWN_COST;
  return cost + !are_in_rows(reading, operands, &roles->batch, &heads, &roles->heads);
}

/* Some of what keys and values have is heads, in order; the rest is the batch. */
static Roles roles_of(const Axes *made, const Axis *shared, uint32_t heads, const Axis *group) {
  AtomSet set = 0;
  for (uint32_t i = 0; i < shared->count; i++) set |= (AtomSet)(heads >> i & 1) << shared->atoms[i];
  return (Roles){axis_of_set(made, axis_set(shared) & ~set), axis_of_set(made, set), *group};
}

/* The last of several is heads, unless another choice is better: the last few first, and none only where there is a
 * group. */
static void part_shared(Reading *reading, const Operand operands[3], const Axis *shared, Roles *roles) {
  enum { MOST_SHARED = 4 };
  const Axes *made = &reading->score_axes;
  const Axis group = roles->group;
  uint32_t count = shared->count, all = (1u << count) - 1;
  *roles = roles_of(made, shared, count > 1 ? 1u << (count - 1) : 0, &group);
  if (count > MOST_SHARED) return;
  int best = cost_of_roles(reading, operands, roles);
  for (uint32_t i = count > 1 ? 2 : 1; best && i <= count + all; i++) {
    uint32_t heads = i < count ? all & ~((1u << (count - i)) - 1) : i - count;
    if (!group.count && (!heads || heads == all)) continue;
    Roles other = roles_of(made, shared, heads, &group);
    int cost = cost_of_roles(reading, operands, &other);
    if (cost < best) *roles = other, best = cost;
  }
}

/* Is what only queries have one axis, that is taken apart after all is done, as the pixels of an image are? */
static bool are_whole_rows(Reading *reading, const Operand operands[3], const Axis *own, const Roles *roles) {
  const Scores *scores = &reading->scores;
  const Axes *made = &reading->score_axes;
  if (!same_axis(&made->axis[made->rank - 2 + reading->query_side], own)) return false;
  for (size_t i = 0; i < scores->term_count; i++) {
    if (term_atoms(&scores->terms[i]) & axis_set(own)) return false;
  }
  return are_in_rows(reading, operands, &roles->batch, &roles->heads, &roles->heads);
}

/* Batch and heads are what keys and values have; of the rest one atom is the rows, the others are heads of a group. */
static bool read_roles(Reading *reading, const Operand operands[3], Roles *roles) {
  Scores *scores = &reading->scores;
  const Axes *made = &reading->score_axes;
  AtomSet all = axes_set(made) & ~axis_set(&scores->key), others = all & axes_set(&operands[1].axes);
  if (others != (all & axes_set(&operands[2].axes))) return false;
  reading->missing = all & ~axes_set(&operands[0].axes);
  if (reading->missing & ~others) return false;
  Axis shared = axis_of_set(made, others), own = axis_of_set(made, all & ~others);
  *roles = (Roles){.batch = shared};
  scores->row = own;
  if (shared.count >= 2) part_shared(reading, operands, &shared, roles);
  if (own.count < 2 || are_whole_rows(reading, operands, &own, roles)) return true;
  scores->row = (Axis){1, {choose_row(reading, &own)}};
  roles->group = axis_of_set(made, axis_set(&own) & ~axis_set(&scores->row));
  if (shared.count) part_shared(reading, operands, &shared, roles);
  return true;
}

#define AXES(...) axes_of((const Axis *[]){__VA_ARGS__}, sizeof((const Axis *[]){__VA_ARGS__}) / sizeof(Axis *))

/* Without a batch: heads and features in one axis, positions before them. */
static Layout layout_in_rows(const Reading *reading, const Axis *heads, int64_t count) {
  const Scores *scores = &reading->scores;
  Axis none = {0}, of_keys = *heads, of_values = *heads;
  axis_append(&of_keys, &reading->query_features);
  axis_append(&of_values, &reading->value_features);
  return (Layout){.query = AXES(&none, &scores->row, &of_keys),
                  .keys = AXES(&none, &scores->key, &of_keys),
                  .values = AXES(&none, &scores->key, &of_values),
                  .result = AXES(&none, &scores->row, &of_values),
                  .mask = AXES(&none, heads, &scores->row, &scores->key),
                  .heads = count};
}

/* Over four axes: batch, heads, of which keys and values may have fewer, positions, features. */
static Layout layout_apart(const Reading *reading, const Axis *batch, const Axis *heads, const Axis *of_keys) {
  const Scores *scores = &reading->scores;
  const Axis *row = &scores->row, *key = &scores->key;
  const Axis *features = &reading->query_features, *others = &reading->value_features;
  return (Layout){.query = AXES(batch, heads, row, features),
                  .keys = AXES(batch, of_keys, key, features),
                  .values = AXES(batch, of_keys, key, others),
                  .result = AXES(batch, heads, row, others),
                  .mask = AXES(batch, heads, row, key)};
}

/* Operators that give operands and the result their axes, less those that go; NO_LAYOUT: there are none. Of two layouts
 * with as many, that which moves less of keys and values, which may be caches. */
static int layout_cost(Reading *reading, const Operand operands[3], const Layout *layout) {
  enum { QUERY_COST = 4, KEYS_COST = 5, NO_LAYOUT = 1 << 20 };
  const Scores *scores = &reading->scores;
  const Axes *wanted[] = {&layout->query, &layout->keys, &layout->values};
  Match *match = reading->match;
  size_t taken = match->node_count;
  int cost = 0;
  bool found = true;
  for (size_t i = 0; i < 3 && found; i++) {
    Operand operand = operands[i];
    found = place_operand(reading, &operand, wanted[i]);
    if (found) cost += operand.cost * (i == 0 ? QUERY_COST : KEYS_COST);
  }
  match->node_count = taken;
  Arrangement back;
  Value probe = {.type = axes_type(&scores->atoms, &layout->result, DTYPE_FLOAT32)};
  if (!found || !plan_arrangement(&scores->atoms, &probe, &layout->result, &reading->result_axes, &back))
    return NO_LAYOUT;
  return cost + (int)arrangement_cost(&back) * QUERY_COST;
}

/* Is the value the same several times over? As heads of a group Attention can do without. */
static bool is_repeated(const Value *value) {
  const Node *node = value->producer;
  if (node && node_has(node, RENAMES)) node = node_input(node, 0)->producer;
  return node && node_is(node, OP_Expand);
}

/* As good a layout is better where `heads` are repeated. */
static void prefer_apart(Reading *reading, const Operand operands[3], Layout *layout, Layout apart, const Axis *heads) {
  int gain = layout_cost(reading, operands, layout) - layout_cost(reading, operands, &apart);
  if (gain > 0 || (gain == 0 && heads->count && is_repeated(operands[2].value))) *layout = apart;
}

/* Sums of weights that may differ from head to head are multiplied with results whose heads have an axis. */
static bool needs_heads_apart(const Scores *scores, const Axis *heads) {
  return scores->is_by_logarithm && (masked_atoms(scores) & axis_set(heads));
}

/* A batch of single heads has three axes, unless four is what is given; so has what has no batch, where heads stand
 * after positions. */
static bool choose_layout(Reading *reading, const Operand operands[3], Layout *layout) {
  const Scores *scores = &reading->scores;
  Roles roles;
  if (!read_roles(reading, operands, &roles)) return false;
  const Axis *batch = &roles.batch, *row = &scores->row, *key = &scores->key;
  const Axis *features = &reading->query_features, *others = &reading->value_features;
  Axis heads = all_heads(&roles);
  Dim first = batch->count ? scores->atoms.sizes[batch->atoms[0]] : dim_of(1);
  bool may_be_rows = batch->count == 1 && !heads.count && dim_is_constant(first) && !reading->missing &&
                     !needs_heads_apart(scores, batch);
  if (may_be_rows && are_in_rows(reading, operands, &(Axis){0}, batch, batch)) {
    *layout = layout_in_rows(reading, batch, first.constant);
  } else if (!heads.count) {
    const Axis *none = &heads;
    *layout = (Layout){.query = AXES(batch, row, features),
                       .keys = AXES(batch, key, features),
                       .values = AXES(batch, key, others),
                       .result = AXES(batch, row, others),
                       .mask = AXES(batch, none, row, key),
                       .heads = 1};
    if (!reading->missing) prefer_apart(reading, operands, layout, layout_apart(reading, none, batch, batch), batch);
    prefer_apart(reading, operands, layout, layout_apart(reading, batch, none, none), none);
  } else {
    *layout = layout_apart(reading, batch, &heads, &roles.heads);
  }
  return true;
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
  reading->query_features = axis_begin(atoms, keys.dims[keys.rank - (side == 0 ? 2 : 1)]);
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
