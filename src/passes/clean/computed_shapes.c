/* Reshapes to sizes that are computed at run time: they are parts of a Concat, constants among them, or a constant that
 * leaves one of them open. */
#include "passes/clean/computed_shapes.h"

#include "passes/pattern.h"

enum { MOST_PARTS = 2 * MAX_RANK };

/* What a Reshape is told: one after the other, some of them known. */
typedef struct Sizes {
  Value *parts[MOST_PARTS];
  uint32_t count;
} Sizes;

/* How many sizes the part says; -1: not known. */
static int64_t sizes_in(const Value *part) {
  bool is_row = part && part->type.dtype == DTYPE_INT64 && part->type.rank == 1 && dim_is_constant(part->type.dims[0]);
  return is_row ? part->type.dims[0].constant : -1;
}

static bool read_sizes(const Node *reshape, Sizes *sizes) {
  Value *shape = node_is(reshape, OP_Reshape) ? node_input(reshape, 1) : NULL;
  const Node *join = shape ? shape->producer : NULL;
  int64_t count = 0;
  *sizes = (Sizes){.parts = {shape}, .count = 1};
  if (!shape || node_int_or(reshape, "allowzero", 0)) return false;
  if (join && node_is(join, OP_Concat) && join->input_count <= MOST_PARTS) {
    sizes->count = join->input_count;
    for (uint32_t i = 0; i < sizes->count; i++) sizes->parts[i] = node_input(join, i);
  } else if (!constant_of(shape)) return false;
  for (uint32_t i = 0; i < sizes->count; i++) {
    int64_t more = sizes_in(sizes->parts[i]);
    if (more < 0 || more > MAX_RANK) return false;
    count += more;
  }
  return count == reshape->outputs[0]->type.rank && count <= MAX_RANK;
}

/* The last of the axes whose size is told to stay, by a 0; -1: there is none. */
static int64_t last_that_stays(const Sizes *sizes) {
  int64_t at = 0, last = -1;
  for (uint32_t i = 0; i < sizes->count; i++) {
    const Tensor *numbers = constant_of(sizes->parts[i]);
    for (int64_t k = 0; k < sizes_in(sizes->parts[i]); k++, at++) {
      if (numbers && ((const int64_t *)numbers->data)[k] == 0) last = at;
    }
  }
  return last;
}

bool gives_the_same(const Node *reshape, Type given) {
  Sizes sizes;
  if (!read_sizes(reshape, &sizes)) return false;
  int64_t last = last_that_stays(&sizes);
  Type now = node_input(reshape, 0)->type;
  return last < given.rank && last < now.rank && same_dims(given, now, 0, (uint32_t)(last + 1));
}

/* Which axes the node leaves out. */
static bool left_out(const Node *squeeze, bool axes[MAX_RANK]) {
  const Tensor *numbers = constant_of(node_input(squeeze, 1));
  int64_t rank = node_input(squeeze, 0)->type.rank;
  if (!node_is(squeeze, OP_Squeeze) || !numbers || numbers->dtype != DTYPE_INT64 || rank > MAX_RANK) return false;
  const int64_t *given = numbers->data;
  for (size_t i = 0; i < numbers->size / sizeof *given; i++) {
    int64_t axis = given[i] < 0 ? given[i] + rank : given[i];
    if (axis < 0 || axis >= rank) return false;
    axes[axis] = true;
  }
  return true;
}

/* The part from axis `first` on without those axes: itself, or a shorter constant, or NULL where nothing is left of it.
 * False: a size that is computed would have to go. */
static bool shorten(Rewriter *rewriter, Node *before, Value *part, const bool axes[MAX_RANK], int64_t first,
                    Value **result) {
  int64_t count = sizes_in(part), kept = 0, sizes[MAX_RANK];
  const Tensor *numbers = constant_of(part);
  bool all = true;
  for (int64_t i = 0; i < count; i++) {
    all = all && !axes[first + i];
    if (!numbers || axes[first + i]) continue;
    sizes[kept++] = ((const int64_t *)numbers->data)[i];
  }
  if (!all && !numbers) return false;
  *result = all ? part : kept ? rewrite_constant_ints(rewriter, before, sizes, (size_t)kept, part->origin) : NULL;
  return true;
}

Value *shape_without_ones(Rewriter *rewriter, const Node *reshape, Node *squeeze) {
  Sizes sizes, left = {.count = 0};
  bool axes[MAX_RANK] = {false};
  int64_t at = 0;
  if (!read_sizes(reshape, &sizes) || !left_out(squeeze, axes)) return NULL;
  for (int64_t i = 0, last = last_that_stays(&sizes); i < last; i++) {
    if (axes[i]) return NULL;
  }
  for (uint32_t i = 0; i < sizes.count; i++) {
    Value *shorter;
    if (!shorten(rewriter, squeeze, sizes.parts[i], axes, at, &shorter)) return NULL;
    at += sizes_in(sizes.parts[i]);
    if (shorter) left.parts[left.count++] = shorter;
  }
  if (left.count <= 1) return left.count ? left.parts[0] : NULL;
  const Origin *origin = REWRITE_ORIGIN(rewriter, squeeze);
  Dim size = dim_of(squeeze->outputs[0]->type.rank);
  Type type = type_make(rewriter->context, DTYPE_INT64, &size, 1);
  Node *node = graph_node(squeeze->graph, origin, OP_Concat, left.parts, left.count, &type, 1, squeeze);
  node_set_int(node, "axis", 0);
  return node->outputs[0];
}
