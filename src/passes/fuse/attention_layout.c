/* Which axes of the scores are Attention's batch, heads and rows, and whether they are four or three.
 *
 * Any choice gives the same numbers. Masks say what they vary with, operands how they lie: taken is the choice that
 * leaves the fewest operators around Attention. */
#include <limits.h>

#include "passes/fuse/attention_reading.h"

/* ---- operands ---- */

bool place_operand(Reading *reading, Operand *operand, const Axes *want) {
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
bool choose_layout(Reading *reading, const Operand operands[3], Layout *layout) {
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
