/* Places within ranks, after Brandes and Köpf: each box is lined up with the middle one of those it is joined with,
 * four times (from above and from below, from the left and from the right); the lines are packed; a box goes to the
 * middle of its four places. Edges through many ranks are straight: nothing that crosses their inner part is lined up.
 */
#include <stdlib.h>

#include "base/bytes.h"
#include "tool/page/layout.h"

/* One of the four. Mirrored, a rank is walked from its right end and x grows to the left. */
typedef struct Run {
  const Layout *layout;
  const Ranks *ranks;
  const bool *conflicts; /* by the index of a segment in ranks->above.items */
  bool upwards, mirrored;
  uint32_t *root, *next; /* of the line a box is in: its first box, the box after */
  double *x;
} Run;

static uint32_t rank_width(const Ranks *ranks, uint32_t rank) { return ranks->starts[rank + 1] - ranks->starts[rank]; }

static uint32_t box_at(const Run *run, uint32_t rank, uint32_t at) {
  uint32_t start = run->ranks->starts[rank], width = rank_width(run->ranks, rank);
  return run->ranks->boxes[start + (run->mirrored ? width - 1 - at : at)];
}

static uint32_t order_in(const Run *run, uint32_t box) {
  const LayoutBox *placed = &run->layout->boxes.items[box];
  return run->mirrored ? rank_width(run->ranks, placed->rank) - 1 - placed->order : placed->order;
}

/* ---- conflicts ---- */

static bool is_point(const Layout *layout, uint32_t box) { return box >= layout->box_count; }

/* The order of the point above, when the box is a point below a point. */
static bool inner_above(const Layout *layout, const Ranks *ranks, uint32_t box, uint32_t *order) {
  if (!is_point(layout, box) || ranks->above.starts[box] == ranks->above.starts[box + 1]) return false;
  uint32_t above = ranks->above.items[ranks->above.starts[box]];
  *order = layout->boxes.items[above].order;
  return is_point(layout, above);
}

static void mark_in_rank(const Layout *layout, const Ranks *ranks, uint32_t rank, bool *conflicts) {
  uint32_t width = rank_width(ranks, rank), above_width = rank_width(ranks, rank - 1), scanned = 0, left = 0;
  for (uint32_t i = 0; i < width; i++) {
    uint32_t right = above_width;
    bool is_inner = inner_above(layout, ranks, ranks->boxes[ranks->starts[rank] + i], &right);
    if (!is_inner && i + 1 < width) continue;
    if (!is_inner) right = above_width;
    for (; scanned <= i; scanned++) {
      uint32_t box = ranks->boxes[ranks->starts[rank] + scanned];
      for (uint32_t k = ranks->above.starts[box]; k < ranks->above.starts[box + 1]; k++) {
        uint32_t above = ranks->above.items[k], order = layout->boxes.items[above].order;
        bool both = is_point(layout, box) && is_point(layout, above);
        if (!both && (order < left || order > right)) conflicts[k] = true;
      }
    }
    left = right;
  }
}

static bool *mark_conflicts(Context *context, const Layout *layout, const Ranks *ranks) {
  bool *conflicts = arena_new_array(&context->arena, ranks->segment_count + 1, bool);
  for (uint32_t rank = 1; rank < layout->rank_count; rank++) mark_in_rank(layout, ranks, rank, conflicts);
  return conflicts;
}

static bool in_conflict(const Run *run, uint32_t one, uint32_t other) {
  const Neighbours *above = &run->ranks->above;
  uint32_t lower = run->upwards ? other : one, upper = run->upwards ? one : other;
  for (uint32_t k = above->starts[lower]; k < above->starts[lower + 1]; k++) {
    if (above->items[k] == upper) return run->conflicts[k];
  }
  return false;
}

/* ---- lines ---- */

typedef struct Joined {
  uint32_t order, box;
} Joined;

static int compare_joined(const void *a, const void *b) {
  const Joined *first = a, *second = b;
  return first->order < second->order ? -1 : first->order > second->order;
}

/* Lines the boxes of a rank up with those of the rank before; lines never cross. */
static void align_rank(Run *run, uint32_t rank, Joined *joined) {
  const Neighbours *neighbours = run->upwards ? &run->ranks->below : &run->ranks->above;
  int64_t taken = -1;
  for (uint32_t i = 0; i < rank_width(run->ranks, rank); i++) {
    uint32_t box = box_at(run, rank, i), count = 0;
    for (uint32_t k = neighbours->starts[box]; k < neighbours->starts[box + 1]; k++) {
      joined[count++] = (Joined){order_in(run, neighbours->items[k]), neighbours->items[k]};
    }
    if (!count) continue;
    sort_items(joined, count, sizeof *joined, compare_joined);
    for (uint32_t middle = (count - 1) / 2; middle <= count / 2; middle++) {
      Joined other = joined[middle];
      if (run->next[box] != box || (int64_t)other.order <= taken || in_conflict(run, box, other.box)) continue;
      run->next[other.box] = box;
      run->next[box] = run->root[box] = run->root[other.box];
      taken = other.order;
    }
  }
}

static double separation(const Layout *layout, uint32_t left, uint32_t right) {
  const LayoutBox *one = &layout->boxes.items[left], *other = &layout->boxes.items[right];
  double gap = one->width > 0 && other->width > 0 ? LAYOUT_GAP : LAYOUT_POINT_GAP;
  return (one->width + other->width) / 2 + gap;
}

/* ---- packing ---- */

/* Lines that stand beside each other in some rank, and how far apart they must be. */
typedef struct Beside {
  uint32_t left, right;
  double separation;
} Beside;
typedef ARRAY(Beside) Besides;

static Besides besides_of(Context *context, const Run *run) {
  Besides besides = {0};
  for (uint32_t rank = 0; rank < run->layout->rank_count; rank++) {
    for (uint32_t i = 1; i < rank_width(run->ranks, rank); i++) {
      uint32_t left = box_at(run, rank, i - 1), right = box_at(run, rank, i);
      Beside beside = {run->root[left], run->root[right], separation(run->layout, left, right)};
      array_push(context, &besides, beside);
    }
  }
  return besides;
}

/* Besides by the line on one side of them. */
static Neighbours besides_by(Context *context, const Besides *besides, size_t count, bool left) {
  Neighbours found = {.starts = arena_new_array(&context->arena, count + 2, uint32_t),
                      .items = arena_new_array(&context->arena, besides->count + 1, uint32_t)};
  for (size_t i = 0; i < besides->count; i++) {
    found.starts[(left ? besides->items[i].left : besides->items[i].right) + 2]++;
  }
  for (size_t i = 2; i < count + 2; i++) found.starts[i] += found.starts[i - 1];
  for (size_t i = 0; i < besides->count; i++) {
    found.items[found.starts[(left ? besides->items[i].left : besides->items[i].right) + 1]++] = (uint32_t)i;
  }
  return found;
}

/* Each line as far left as those on its left allow, then as far right as those on its right allow. */
static void pack(Context *context, Run *run) {
  size_t count = run->layout->boxes.count, sorted = 0, taken = 0;
  Besides besides = besides_of(context, run);
  Neighbours after = besides_by(context, &besides, count, true);
  uint32_t *order = arena_new_array(&context->arena, count + 1, uint32_t);
  uint32_t *waiting = arena_new_array(&context->arena, count + 1, uint32_t);
  for (size_t i = 0; i < besides.count; i++) waiting[besides.items[i].right]++;
  for (uint32_t i = 0; i < count; i++) {
    if (run->root[i] == i && !waiting[i]) order[sorted++] = i;
  }
  while (taken < sorted) {
    uint32_t line = order[taken++];
    for (uint32_t k = after.starts[line]; k < after.starts[line + 1]; k++) {
      const Beside *beside = &besides.items[after.items[k]];
      double least = run->x[line] + beside->separation;
      if (least > run->x[beside->right]) run->x[beside->right] = least;
      if (!--waiting[beside->right]) order[sorted++] = beside->right;
    }
  }
  for (size_t i = sorted; i-- > 0;) {
    uint32_t line = order[i];
    double most = -1;
    for (uint32_t k = after.starts[line]; k < after.starts[line + 1]; k++) {
      const Beside *beside = &besides.items[after.items[k]];
      double limit = run->x[beside->right] - beside->separation;
      if (most < 0 || limit < most) most = limit;
    }
    if (most > run->x[line]) run->x[line] = most;
  }
  for (size_t i = 0; i < count; i++) run->x[i] = run->x[run->root[i]];
}

static void do_run(Context *context, Run *run) {
  size_t count = run->layout->boxes.count;
  uint32_t ranks = run->layout->rank_count;
  Joined *joined = arena_new_array(&context->arena, run->ranks->segment_count + 1, Joined);
  run->root = arena_new_array(&context->arena, count + 1, uint32_t);
  run->next = arena_new_array(&context->arena, count + 1, uint32_t);
  run->x = arena_new_array(&context->arena, count + 1, double);
  for (uint32_t i = 0; i < count; i++) run->root[i] = run->next[i] = i;
  for (uint32_t i = 1; i < ranks; i++) align_rank(run, run->upwards ? ranks - 1 - i : i, joined);
  pack(context, run);
  for (size_t i = 0; run->mirrored && i < count; i++) run->x[i] = -run->x[i];
}

/* ---- the middle of four ---- */

typedef struct Extent {
  double left, right;
} Extent;

static Extent extent_of(const Layout *layout, const double *x) {
  Extent extent = {0};
  for (size_t i = 0; i < layout->boxes.count; i++) {
    double half = layout->boxes.items[i].width / 2;
    if (!i || x[i] - half < extent.left) extent.left = x[i] - half;
    if (!i || x[i] + half > extent.right) extent.right = x[i] + half;
  }
  return extent;
}

static int compare_places(const void *a, const void *b) {
  double first = *(const double *)a, second = *(const double *)b;
  return first < second ? -1 : first > second;
}

enum { RUNS = 4 };

/* All runs stand on an edge of the narrowest, on the side to which they pack. */
static void bring_together(const Layout *layout, Run *runs) {
  Extent extents[RUNS];
  int narrowest = 0;
  for (int i = 0; i < RUNS; i++) {
    extents[i] = extent_of(layout, runs[i].x);
    double width = extents[i].right - extents[i].left;
    if (width < extents[narrowest].right - extents[narrowest].left) narrowest = i;
  }
  for (int i = 0; i < RUNS; i++) {
    double shift =
        runs[i].mirrored ? extents[narrowest].right - extents[i].right : extents[narrowest].left - extents[i].left;
    for (size_t k = 0; k < layout->boxes.count; k++) runs[i].x[k] += shift;
  }
}

void layout_align(Context *context, Layout *layout, const Ranks *ranks) {
  const bool *conflicts = mark_conflicts(context, layout, ranks);
  Run runs[RUNS];
  for (int i = 0; i < RUNS; i++) {
    runs[i] = (Run){.layout = layout, .ranks = ranks, .conflicts = conflicts, .upwards = i & 1, .mirrored = i & 2};
    do_run(context, &runs[i]);
  }
  bring_together(layout, runs);
  double left = 0;
  for (size_t i = 0; i < layout->boxes.count; i++) {
    double places[RUNS] = {runs[0].x[i], runs[1].x[i], runs[2].x[i], runs[3].x[i]};
    qsort(places, RUNS, sizeof *places, compare_places);
    LayoutBox *box = &layout->boxes.items[i];
    box->x = (places[1] + places[2]) / 2;
    if (!i || box->x - box->width / 2 < left) left = box->x - box->width / 2;
  }
  for (size_t i = 0; i < layout->boxes.count; i++) layout->boxes.items[i].x -= left;
}
