/* Following axes, and putting them in other orders (attention_axes.h). */
#include "passes/fuse/attention_axes.h"

#include "base/bytes.h"

/* ---- atoms ---- */

Axis axis_begin(Atoms *atoms, Dim size) {
  Axis axis = {0};
  if (dim_is(size, 1) || atoms->count == MOST_ATOMS) return axis;
  atoms->sizes[atoms->count] = size;
  atoms->parts[atoms->count] = (Axis){0};
  axis.atoms[axis.count++] = (uint8_t)atoms->count++;
  return axis;
}

bool axes_begin(Atoms *atoms, Type type, Axes *axes) {
  if (type.dtype == DTYPE_NONE || type.rank > MOST_AXES || atoms->count + type.rank > MOST_ATOMS) return false;
  *axes = (Axes){.rank = type.rank};
  for (uint32_t i = 0; i < type.rank; i++) axes->axis[i] = axis_begin(atoms, type.dims[i]);
  return true;
}

static bool refine_axis(const Atoms *atoms, Axis *axis) {
  for (uint32_t i = 0; i < axis->count;) {
    const Axis *parts = &atoms->parts[axis->atoms[i]];
    if (parts->count == 0) {
      i++;
      continue;
    }
    Axis old = *axis;
    if (old.count - 1 + parts->count > MOST_MERGED) return false;
    axis->count = old.count - 1 + parts->count;
    copy_bytes(axis->atoms + i, parts->atoms, parts->count);
    copy_bytes(axis->atoms + i + parts->count, old.atoms + i + 1, old.count - i - 1);
  }
  return true;
}

bool axes_refine(const Atoms *atoms, Axes *axes) {
  for (uint32_t i = 0; i < axes->rank; i++) {
    if (!refine_axis(atoms, &axes->axis[i])) return false;
  }
  return true;
}

bool same_axis(const Axis *a, const Axis *b) {
  return a->count == b->count && same_bytes(a->atoms, b->atoms, a->count);
}

AtomSet axis_set(const Axis *axis) {
  AtomSet set = 0;
  for (uint32_t i = 0; i < axis->count; i++) set |= (AtomSet)1 << axis->atoms[i];
  return set;
}

AtomSet axes_set(const Axes *axes) {
  AtomSet set = 0;
  for (uint32_t i = 0; i < axes->rank; i++) set |= axis_set(&axes->axis[i]);
  return set;
}

void axis_append(Axis *axis, const Axis *more) {
  for (uint32_t i = 0; i < more->count && axis->count < MOST_MERGED; i++) axis->atoms[axis->count++] = more->atoms[i];
}

Axis axis_of_set(const Axes *axes, AtomSet set) {
  Axis made = {0};
  for (uint32_t i = 0; i < axes->rank; i++) {
    for (uint32_t k = 0; k < axes->axis[i].count && made.count < MOST_MERGED; k++) {
      uint8_t atom = axes->axis[i].atoms[k];
      if (set >> atom & 1) made.atoms[made.count++] = atom;
    }
  }
  return made;
}

static Dim product_of(const Atoms *atoms, const uint8_t *list, size_t count) {
  Dim size = dim_of(1);
  for (size_t i = 0; i < count; i++) size = dim_multiply(atoms->context, size, atoms->sizes[list[i]]);
  return size;
}

Type axes_type(const Atoms *atoms, const Axes *axes, DType dtype) {
  Dim dims[MOST_AXES];
  for (uint32_t i = 0; i < axes->rank; i++) dims[i] = product_of(atoms, axes->axis[i].atoms, axes->axis[i].count);
  return type_make(atoms->context, dtype, dims, axes->rank);
}

static size_t flatten(const Axes *axes, uint8_t flat[MOST_AXES * MOST_MERGED]) {
  size_t count = 0;
  for (uint32_t i = 0; i < axes->rank; i++) {
    for (uint32_t k = 0; k < axes->axis[i].count; k++) flat[count++] = axes->axis[i].atoms[k];
  }
  return count;
}

/* ---- following ---- */

bool keeps_numbers(const Node *node) {
  return (node_moves_all(node) && node->outputs[0]->type.dtype != DTYPE_NONE) || is_cast_of_half(node);
}

typedef struct Deal {
  Atoms *atoms;
  const uint8_t *flat;
  size_t left;       /* atoms */
  const Dim *sizes;  /* of axes that are not of size 1 */
  Axis *const *axes; /* what they get */
  size_t axes_left;
} Deal;

/* Several atoms become one axis, or one atom several: the fewest whose sizes multiply to the same. */
static bool deal_some(Deal *deal) {
  Context *context = deal->atoms->context;
  Dim merged = dim_of(1), split = dim_of(1);
  for (size_t n = 1; n <= MOST_MERGED; n++) {
    if (n <= deal->left) {
      merged = dim_multiply(context, merged, deal->atoms->sizes[deal->flat[n - 1]]);
      if (dim_equal(merged, deal->sizes[0])) {
        deal->axes[0]->count = (uint32_t)n;
        copy_bytes(deal->axes[0]->atoms, deal->flat, n);
        deal->flat += n, deal->left -= n, deal->sizes++, deal->axes++, deal->axes_left--;
        return true;
      }
    }
    if (n > deal->axes_left) continue;
    split = dim_multiply(context, split, deal->sizes[n - 1]);
    if (n == 1 || !dim_equal(split, deal->atoms->sizes[deal->flat[0]])) continue;
    Axis parts = {0};
    for (size_t i = 0; i < n; i++) {
      if (deal->atoms->count == MOST_ATOMS) return false;
      *deal->axes[i] = axis_begin(deal->atoms, deal->sizes[i]);
      axis_append(&parts, deal->axes[i]);
    }
    deal->atoms->parts[deal->flat[0]] = parts;
    deal->flat++, deal->left--, deal->sizes += n, deal->axes += n, deal->axes_left -= n;
    return true;
  }
  return false;
}

/* Reads the atoms in order and deals them out to axes of the given sizes. */
static bool regroup(Atoms *atoms, Axes *axes, Type type) {
  uint8_t flat[MOST_AXES * MOST_MERGED];
  Dim sizes[MOST_AXES];
  Axis *dealt[MOST_AXES];
  size_t wanted = 0;
  if (type.rank > MOST_AXES || !axes_refine(atoms, axes)) return false;
  size_t count = flatten(axes, flat);
  *axes = (Axes){.rank = type.rank};
  for (uint32_t i = 0; i < type.rank; i++) {
    if (dim_is(type.dims[i], 1)) continue;
    sizes[wanted] = type.dims[i];
    dealt[wanted++] = &axes->axis[i];
  }
  Deal deal = {atoms, flat, count, sizes, dealt, wanted};
  while (deal.left && deal.axes_left) {
    if (!deal_some(&deal)) return false;
  }
  return deal.left == 0 && deal.axes_left == 0;
}

static bool permute(const Node *node, Axes *axes, bool back) {
  const Attribute *order = node_attribute(node, "perm");
  Axes from = *axes;
  if (!order || order->count != axes->rank) return false;
  for (uint32_t i = 0; i < axes->rank; i++) {
    uint32_t other = (uint32_t)order->integers[i];
    axes->axis[back ? other : i] = from.axis[back ? i : other];
  }
  return true;
}

bool follow_axes(Atoms *atoms, const Node *node, Axes *axes) {
  Type type = node->outputs[0]->type;
  if (node_is(node, OP_Transpose)) return permute(node, axes, false);
  if (node_has(node, RENAMES)) return regroup(atoms, axes, type);
  return axes->rank == type.rank;
}

bool follow_axes_back(Atoms *atoms, const Node *node, Axes *axes) {
  Type type = node_input(node, 0)->type;
  if (type.dtype == DTYPE_NONE) return false;
  if (node_is(node, OP_Transpose)) return permute(node, axes, true);
  if (node_has(node, RENAMES)) return regroup(atoms, axes, type);
  if (node_is(node, OP_Expand)) return broadcast_axes(axes, type, axes);
  return axes->rank == type.rank;
}

bool broadcast_axes(const Axes *result, Type type, Axes *axes) {
  Axes from = *result;
  if (type.dtype == DTYPE_NONE || type.rank > from.rank) return false;
  *axes = (Axes){.rank = type.rank};
  for (uint32_t i = 0; i < type.rank; i++) {
    if (!dim_is(type.dims[i], 1)) axes->axis[i] = from.axis[from.rank - type.rank + i];
  }
  return true;
}

/* ---- arranging ---- */

/* Where a Reshape gets a size from, beside what is known: at most one is left for the operator to find. */
enum { SIZE_KNOWN = -1, SIZE_FOUND = -2 };

/* The place of the same size in the other type: its own, or any; SIZE_FOUND: there is none. */
static int size_source(Type from, Type to, uint32_t i) {
  if (dim_is_constant(to.dims[i])) return SIZE_KNOWN;
  if (i < from.rank && dim_equal(from.dims[i], to.dims[i])) return (int)i;
  for (uint32_t k = 0; k < from.rank; k++) {
    if (dim_equal(from.dims[k], to.dims[i])) return (int)k;
  }
  return SIZE_FOUND;
}

/* How many sizes are at other places, so that a constant cannot tell all; -1: not even their Shape can. */
static int sizes_elsewhere(Type from, Type to) {
  int elsewhere = 0, unknown = 0;
  for (uint32_t i = 0; i < to.rank; i++) {
    int source = size_source(from, to, i);
    unknown += source == SIZE_FOUND;
    elsewhere += source >= 0 && source != (int)i;
  }
  if (unknown > 1) return -1;
  return elsewhere + unknown > 1 ? elsewhere : 0;
}

static bool can_reshape(Type from, Type to) { return sizes_elsewhere(from, to) == 0; }

static Value *reshape_by(Match *match, Value *value, Type type, Value *shape) {
  return EMIT_BEFORE(match, OP_Reshape, type, value, shape)->outputs[0];
}

static Value *reshape_before(Match *match, Value *value, Type type) {
  int64_t numbers[MOST_AXES];
  size_t unknown = 0;
  for (uint32_t i = 0; i < type.rank; i++) {
    numbers[i] = dim_is_constant(type.dims[i]) ? type.dims[i].constant : -1;
    unknown += numbers[i] < 0;
  }
  for (uint32_t i = 0; i < type.rank && unknown > 1; i++) { /* at most one is left for the operator to find */
    bool is_kept = i < value->type.rank && dim_equal(value->type.dims[i], type.dims[i]);
    if (numbers[i] < 0 && is_kept) numbers[i] = 0, unknown--;
  }
  return reshape_by(match, value, type,
                    rewrite_constant_ints(match->rewriter, match->root, numbers, type.rank, match->root->origin));
}

static Value *sizes_of(Match *match, Value *value, int first, int end) {
  Type type = type_make(match->rewriter->context, DTYPE_INT64, (Dim[]){dim_of(end - first)}, 1);
  Node *node = EMIT_BEFORE(match, OP_Shape, type, value);
  node_set_int(node, "start", first);
  node_set_int(node, "end", end);
  return node->outputs[0];
}

/* To sizes of which several are at other places: their shape is put together from that of the value. A size may turn
 * out to be 0, which is not to be copied then. */
static Value *reshape_at_run_time(Match *match, Value *value, Type type) {
  Value *parts[MOST_AXES];
  uint32_t count = 0;
  bool is_all_known = true;
  for (uint32_t i = 0, end; i < type.rank; i = end) {
    int64_t numbers[MOST_AXES];
    int source = size_source(value->type, type, i);
    for (end = i; end < type.rank; end++) {
      int next = size_source(value->type, type, end);
      if (source < 0 ? next >= 0 : next != source + (int)(end - i)) break;
      numbers[end - i] = next == SIZE_KNOWN ? type.dims[end].constant : -1;
      is_all_known = is_all_known && next != SIZE_FOUND;
    }
    parts[count++] = source < 0
                         ? rewrite_constant_ints(match->rewriter, match->root, numbers, end - i, match->root->origin)
                         : sizes_of(match, value, source, source + (int)(end - i));
  }
  Type shape = type_make(match->rewriter->context, DTYPE_INT64, (Dim[]){dim_of(type.rank)}, 1);
  Node *joined = match_node_before(match, OP_Concat, shape, parts, count, REWRITE_EMITTER(match->rewriter));
  node_set_int(joined, "axis", 0);
  Value *made = reshape_by(match, value, type, joined->outputs[0]);
  if (is_all_known) node_set_int(made->producer, "allowzero", 1);
  return made;
}

/* Axes of size 1 that are only in one of the two; false when there is more to it. */
static bool only_ones(Type shorter, Type longer, int64_t ones[MOST_AXES], size_t *count) {
  uint32_t next = 0;
  *count = 0;
  for (uint32_t i = 0; i < longer.rank; i++) {
    if (next < shorter.rank && dim_equal(shorter.dims[next], longer.dims[i])) next++;
    else if (dim_is(longer.dims[i], 1)) ones[(*count)++] = i;
    else return false;
  }
  return next == shorter.rank;
}

/* The sizes that are not 1, in order. */
static Type without_size_one(Context *context, Type type) {
  Dim dims[MAX_RANK];
  uint32_t rank = 0;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (!dim_is(type.dims[i], 1)) dims[rank++] = type.dims[i];
  }
  return type_make(context, type.dtype, dims, rank);
}

static bool same_but_for_ones(Context *context, Type a, Type b) {
  return type_same_shape(without_size_one(context, a), without_size_one(context, b));
}

static Value *squeezed(Match *match, Value *value) {
  int64_t ones[MOST_AXES];
  size_t count = 0;
  Type type = value->type;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (dim_is(type.dims[i], 1)) ones[count++] = i;
  }
  Value *axes = rewrite_constant_ints(match->rewriter, match->root, ones, count, match->root->origin);
  return EMIT_BEFORE(match, OP_Squeeze, without_size_one(match->rewriter->context, type), value, axes)->outputs[0];
}

Value *with_shape(Match *match, Value *value, Type type) {
  int64_t ones[MOST_AXES];
  size_t count;
  if (type_same_shape(value->type, type)) return value;
  bool more = type.rank > value->type.rank;
  if (type.rank == value->type.rank || !only_ones(more ? value->type : type, more ? type : value->type, ones, &count)) {
    if (can_reshape(value->type, type)) return reshape_before(match, value, type);
    if (same_but_for_ones(match->rewriter->context, value->type, type))
      return with_shape(match, squeezed(match, value), type);
    return reshape_at_run_time(match, value, type);
  }
  Value *axes = rewrite_constant_ints(match->rewriter, match->root, ones, count, match->root->origin);
  return EMIT_BEFORE(match, more ? OP_Unsqueeze : OP_Squeeze, type, value, axes)->outputs[0];
}

static bool can_have_shape(Context *context, Type from, Type to) {
  return type_same_shape(from, to) || sizes_elsewhere(from, to) >= 0 || same_but_for_ones(context, from, to);
}

/* Operators that give it that shape. */
static size_t shape_cost(Context *context, Type from, Type to) {
  if (type_same_shape(from, to)) return 0;
  bool is_known = can_reshape(from, to) || same_but_for_ones(context, from, to);
  return is_known ? 1 : 3;
}

/* The longest lists of atoms that stand together in both, in the order of the first. */
static bool find_runs(const Axes *have, const Axes *want, Axes *runs) {
  uint8_t a[MOST_AXES * MOST_MERGED], b[MOST_AXES * MOST_MERGED];
  size_t count = flatten(have, a), others = flatten(want, b);
  if (count != others) return false;
  *runs = (Axes){0};
  for (size_t i = 0; i < count;) {
    size_t at = 0, length = 0;
    while (at < count && b[at] != a[i]) at++;
    while (i + length < count && at + length < count && a[i + length] == b[at + length]) length++;
    if (length == 0 || length > MOST_MERGED || runs->rank == MOST_AXES) return false;
    Axis *run = &runs->axis[runs->rank++];
    run->count = (uint32_t)length;
    copy_bytes(run->atoms, a + i, length);
    i += length;
  }
  return true;
}

/* The place of each axis of `to` in `from`; false when an axis is not there. */
static bool find_order(const Axes *from, const Axes *to, int64_t order[MOST_AXES]) {
  bool taken[MOST_AXES] = {0};
  if (from->rank != to->rank) return false;
  for (uint32_t i = 0; i < to->rank; i++) {
    uint32_t k = 0;
    while (k < from->rank && (taken[k] || !same_axis(&from->axis[k], &to->axis[i]))) k++;
    if (k == from->rank) return false;
    taken[k] = true;
    order[i] = k;
  }
  return true;
}

static bool is_in_order(const int64_t *order, uint32_t rank) {
  for (uint32_t i = 0; i < rank; i++) {
    if (order[i] != (int64_t)i) return false;
  }
  return true;
}

/* The axes that have atoms, those of `axes` in the order in which their first atoms stand in `want`. */
static Axes in_order_of(const Axes *axes, const Axes *want) {
  uint8_t flat[MOST_AXES * MOST_MERGED];
  size_t count = flatten(want, flat);
  Axes made = {0};
  for (size_t i = 0; i < count; i++) {
    for (uint32_t k = 0; k < axes->rank; k++) {
      if (axes->axis[k].count && axes->axis[k].atoms[0] == flat[i]) made.axis[made.rank++] = axes->axis[k];
    }
  }
  return made;
}

static bool is_together(const Axis *axis, const Axes *others) {
  uint8_t flat[MOST_AXES * MOST_MERGED];
  size_t count = flatten(others, flat), at = 0;
  if (axis->count == 0) return true;
  while (at < count && flat[at] != axis->atoms[0]) at++;
  return at + axis->count <= count && same_bytes(flat + at, axis->atoms, axis->count);
}

static bool are_together(const Axes *axes, const Axes *others) {
  for (uint32_t i = 0; i < axes->rank; i++) {
    if (!is_together(&axes->axis[i], others)) return false;
  }
  return true;
}

static Axes without_ones(const Axes *axes) {
  Axes made = {0};
  for (uint32_t i = 0; i < axes->rank; i++) {
    if (axes->axis[i].count) made.axis[made.rank++] = axes->axis[i];
  }
  return made;
}

/* The axes between a first Reshape and a last one that the Transpose works on: those that are there, if they need not
 * be split; those that are wanted, if they are all together already; else the longest lists that stand together. */
static bool choose_middle(const Axes *have, const Axes *want, Axes *before, Axes *after) {
  Axes runs;
  if (find_order(have, want, (int64_t[MOST_AXES]){0})) {
    *before = *have, *after = *want;
    return true;
  }
  if (are_together(have, want)) {
    *before = without_ones(have);
    *after = in_order_of(before, want);
    return true;
  }
  if (are_together(want, have)) {
    *after = without_ones(want);
    *before = in_order_of(after, have);
    return true;
  }
  if (!find_runs(have, want, &runs)) return false;
  *before = runs;
  *after = in_order_of(&runs, want);
  return true;
}

/* What is wanted of a value that has only some of the atoms: `apart`, where each atom of an axis that it has in part is
 * an axis of its own, `full` once those are spread over, and the axes in the end. False when one cannot be spread. */
static bool plan_spread(const Atoms *atoms, const Axes *want, AtomSet there, Arrangement *plan, Axes parts[3]) {
  Axes *apart = &parts[0], *full = &parts[1], *last = &parts[2];
  *apart = *full = (Axes){0};
  *last = (Axes){.rank = want->rank};
  for (uint32_t i = 0; i < want->rank; i++) {
    Axis axis = want->axis[i];
    AtomSet here = axis_set(&axis) & there;
    bool in_part = here && here != axis_set(&axis);
    if (!here) axis.count = 0;
    last->axis[i] = axis;
    for (uint32_t k = 0; k < (in_part ? axis.count : 1); k++) {
      bool missing = in_part && !(there >> axis.atoms[k] & 1);
      Dim size = missing ? atoms->sizes[axis.atoms[k]] : dim_of(1);
      if (apart->rank == MOST_AXES || !dim_is_constant(size)) return false;
      Axis one = in_part ? (Axis){1, {axis.atoms[k]}} : axis;
      plan->times[apart->rank] = size.constant;
      plan->is_spread = plan->is_spread || missing;
      apart->axis[apart->rank++] = missing ? (Axis){0} : one;
      full->axis[full->rank++] = one;
    }
  }
  return true;
}

bool is_transposed(const Arrangement *plan) { return !is_in_order(plan->order, plan->permuted.rank); }

bool plan_arrangement(const Atoms *atoms, Value *source, const Axes *given, const Axes *wanted, Arrangement *plan) {
  Axes parts[3], before, after, have = *given, want = *wanted;
  DType dtype = source->type.dtype;
  Context *context = atoms->context;
  *plan = (Arrangement){.context = context, .source = source};
  if (!axes_refine(atoms, &have) || !axes_refine(atoms, &want)) return false;
  AtomSet there = axes_set(&have);
  if (there & ~axes_set(&want)) return false;
  if (!plan_spread(atoms, &want, there, plan, parts) || !choose_middle(&have, &parts[0], &before, &after)) return false;
  if (!find_order(&before, &after, plan->order)) return false;
  plan->split = axes_type(atoms, &before, dtype);
  plan->permuted = axes_type(atoms, &after, dtype);
  plan->apart = axes_type(atoms, &parts[0], dtype);
  plan->full = axes_type(atoms, &parts[1], dtype);
  plan->last = axes_type(atoms, &parts[2], dtype);
  if (!can_have_shape(context, plan->full, plan->last)) return false;
  if (!is_transposed(plan)) return can_have_shape(context, source->type, plan->apart);
  return can_have_shape(context, source->type, plan->split) && can_have_shape(context, plan->permuted, plan->apart);
}

/* In order, the first shape is passed over. */
size_t arrangement_cost(const Arrangement *plan) {
  Type given = plan->source->type;
  Context *context = plan->context;
  size_t cost = shape_cost(context, plan->full, plan->last) + plan->is_spread;
  if (!is_transposed(plan)) return cost + shape_cost(context, given, plan->apart);
  return cost + 1 + shape_cost(context, given, plan->split) + shape_cost(context, plan->permuted, plan->apart);
}

Value *arrange(Match *match, const Arrangement *plan) {
  Value *value = plan->source;
  if (is_transposed(plan)) {
    value = with_shape(match, value, plan->split);
    Node *node = EMIT_BEFORE(match, OP_Transpose, plan->permuted, value);
    node_set_ints(node, "perm", plan->order, plan->permuted.rank);
    value = node->outputs[0];
  }
  value = with_shape(match, value, plan->apart);
  if (plan->is_spread) {
    Value *times =
        rewrite_constant_ints(match->rewriter, match->root, plan->times, plan->full.rank, match->root->origin);
    value = EMIT_BEFORE(match, OP_Expand, plan->full, value, times)->outputs[0];
  }
  return with_shape(match, value, plan->last);
}
