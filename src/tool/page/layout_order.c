/* Orders within ranks: each box at the mean of what it is joined with, downwards and upwards in turn, then neighbours
 * exchanged while that takes crossings away. The best order seen is kept. */
#include <stdlib.h>

#include "base/bytes.h"
#include "tool/page/layout.h"

/* ---- the drawing as ranks ---- */

typedef struct Segment {
  uint32_t above, below;
} Segment;
typedef ARRAY(Segment) Segments;

static int compare_segments(const void *a, const void *b) {
  const Segment *first = a, *second = b;
  if (first->above != second->above) return first->above < second->above ? -1 : 1;
  return first->below < second->below ? -1 : first->below > second->below;
}

/* Every step of every edge between two ranks, once. */
static Segments segments_of(Context *context, const Layout *layout) {
  Segments segments = {0};
  for (size_t i = 0; i < layout->edges.count; i++) {
    const LayoutEdge *edge = &layout->edges.items[i];
    uint32_t from = layout->boxes.items[edge->from].rank, to = layout->boxes.items[edge->to].rank;
    if (to <= from || (to > from + 1 && edge->points == NO_POINTS)) continue;
    uint32_t above = edge->from;
    for (uint32_t step = 0; step < to - from; step++) {
      uint32_t below = step + 1 == to - from ? edge->to : edge->points + step;
      Segment segment = {above, below};
      array_push(context, &segments, segment);
      above = below;
    }
  }
  sort_items(segments.items, segments.count, sizeof *segments.items, compare_segments);
  size_t kept = 0;
  for (size_t i = 0; i < segments.count; i++) {
    if (kept && compare_segments(&segments.items[kept - 1], &segments.items[i]) == 0) continue;
    segments.items[kept++] = segments.items[i];
  }
  segments.count = kept;
  return segments;
}

static Neighbours joined(Context *context, const Segments *segments, size_t count, bool below) {
  Neighbours found = {.starts = arena_new_array(&context->arena, count + 2, uint32_t),
                      .items = arena_new_array(&context->arena, segments->count + 1, uint32_t)};
  for (size_t i = 0; i < segments->count; i++) {
    found.starts[(below ? segments->items[i].above : segments->items[i].below) + 2]++;
  }
  for (size_t i = 2; i < count + 2; i++) found.starts[i] += found.starts[i - 1];
  for (size_t i = 0; i < segments->count; i++) {
    Segment one = segments->items[i];
    found.items[found.starts[(below ? one.above : one.below) + 1]++] = below ? one.below : one.above;
  }
  return found;
}

Ranks layout_ranks(Context *context, const Layout *layout) {
  Segments segments = segments_of(context, layout);
  size_t count = layout->boxes.count;
  Ranks ranks = {.starts = arena_new_array(&context->arena, (size_t)layout->rank_count + 2, uint32_t),
                 .boxes = arena_new_array(&context->arena, count + 1, uint32_t),
                 .segment_count = segments.count};
  ranks.above = joined(context, &segments, count, false);
  ranks.below = joined(context, &segments, count, true);
  for (size_t i = 0; i < count; i++) ranks.starts[layout->boxes.items[i].rank + 1]++;
  for (size_t i = 1; i <= layout->rank_count; i++) ranks.starts[i] += ranks.starts[i - 1];
  return ranks;
}

static void number_rank(Layout *layout, const Ranks *ranks, uint32_t rank) {
  uint32_t start = ranks->starts[rank];
  for (uint32_t i = start; i < ranks->starts[rank + 1]; i++) layout->boxes.items[ranks->boxes[i]].order = i - start;
}

/* A rank of boxes at the top or the bottom whose order is given. */
static bool is_kept(const Layout *layout, const Ranks *ranks, uint32_t rank) {
  return layout->keep_ends && layout->boxes.items[ranks->boxes[ranks->starts[rank]]].place != LAYOUT_FREE;
}

typedef struct Wish {
  double mean;
  uint32_t order, box;
} Wish;

static int compare_wishes(const void *a, const void *b) {
  const Wish *first = a, *second = b;
  if (first->mean != second->mean) return first->mean < second->mean ? -1 : 1;
  return first->order < second->order ? -1 : first->order > second->order;
}

static void keep_order(Context *context, const Layout *layout, uint32_t *boxes, uint32_t count) {
  Wish *wishes = arena_new_array(&context->arena, count, Wish);
  for (uint32_t i = 0; i < count; i++) wishes[i] = (Wish){layout->boxes.items[boxes[i]].order, boxes[i], boxes[i]};
  sort_items(wishes, count, sizeof *wishes, compare_wishes);
  for (uint32_t i = 0; i < count; i++) boxes[i] = wishes[i].box;
}

/* Boxes in the order in which a walk along the edges meets them, so that what hangs together stands together. */
static void first_order(Context *context, Layout *layout, Ranks *ranks) {
  uint32_t *filled = arena_new_array(&context->arena, (size_t)layout->rank_count + 1, uint32_t);
  bool *seen = arena_new_array(&context->arena, layout->boxes.count + 1, bool);
  ARRAY(uint32_t) stack = {0};
  for (uint32_t i = 0; i < layout->boxes.count; i++) {
    array_push(context, &stack, i);
    while (stack.count) {
      uint32_t box = stack.items[--stack.count], rank = layout->boxes.items[box].rank;
      if (seen[box]) continue;
      seen[box] = true;
      ranks->boxes[ranks->starts[rank] + filled[rank]++] = box;
      for (uint32_t k = ranks->below.starts[box + 1]; k-- > ranks->below.starts[box];) {
        if (!seen[ranks->below.items[k]]) array_push(context, &stack, ranks->below.items[k]);
      }
    }
  }
  for (uint32_t rank = 0; rank < layout->rank_count; rank++) {
    if (is_kept(layout, ranks, rank)) keep_order(context, layout, ranks->boxes + ranks->starts[rank], filled[rank]);
    number_rank(layout, ranks, rank);
  }
}

/* ---- crossings ---- */

typedef struct Counter {
  const Layout *layout;
  uint32_t *tree;  /* sums over the orders of a rank: a Fenwick tree */
  uint32_t *taken; /* orders of one box's neighbours */
} Counter;

static uint64_t crossings_below(Counter *counter, const Ranks *ranks, uint32_t rank) {
  uint32_t width = ranks->starts[rank + 2] - ranks->starts[rank + 1];
  uint64_t crossings = 0, before = 0;
  fill_bytes(counter->tree, 0, ((size_t)width + 1) * sizeof *counter->tree);
  for (uint32_t i = ranks->starts[rank]; i < ranks->starts[rank + 1]; i++) {
    uint32_t box = ranks->boxes[i], count = 0;
    for (uint32_t k = ranks->below.starts[box]; k < ranks->below.starts[box + 1]; k++) {
      counter->taken[count++] = counter->layout->boxes.items[ranks->below.items[k]].order;
    }
    for (uint32_t k = 0; k < count; k++) {
      crossings += before;
      for (uint32_t at = counter->taken[k] + 1; at; at &= at - 1) crossings -= counter->tree[at];
    }
    for (uint32_t k = 0; k < count; k++) {
      for (uint32_t at = counter->taken[k] + 1; at <= width; at += at & -at) counter->tree[at]++;
    }
    before += count;
  }
  return crossings;
}

uint64_t layout_crossings(Context *context, const Layout *layout, const Ranks *ranks) {
  Counter counter = {.layout = layout};
  counter.tree = arena_new_array(&context->arena, layout->boxes.count + 2, uint32_t);
  counter.taken = arena_new_array(&context->arena, ranks->segment_count + 1, uint32_t);
  uint64_t crossings = 0;
  for (uint32_t rank = 0; rank + 1 < layout->rank_count; rank++) crossings += crossings_below(&counter, ranks, rank);
  return crossings;
}

/* ---- sweeps ---- */

typedef struct Ordering {
  Context *context;
  Layout *layout;
  Ranks *ranks;
  Wish *wishes;
  uint32_t *best;
  uint64_t fewest;
} Ordering;

/* Boxes that are joined with nothing there stay where they are. */
static void order_rank(Ordering *ordering, uint32_t rank, const Neighbours *neighbours) {
  Layout *layout = ordering->layout;
  uint32_t *boxes = ordering->ranks->boxes + ordering->ranks->starts[rank];
  uint32_t count = ordering->ranks->starts[rank + 1] - ordering->ranks->starts[rank], wished = 0, given = 0;
  if (is_kept(layout, ordering->ranks, rank)) return;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t first = neighbours->starts[boxes[i]], end = neighbours->starts[boxes[i] + 1];
    if (first == end) continue;
    double sum = 0;
    for (uint32_t k = first; k < end; k++) sum += layout->boxes.items[neighbours->items[k]].order;
    ordering->wishes[wished++] = (Wish){.mean = sum / (end - first), .order = i, .box = boxes[i]};
  }
  sort_items(ordering->wishes, wished, sizeof *ordering->wishes, compare_wishes);
  for (uint32_t i = 0; i < count; i++) {
    bool is_joined = neighbours->starts[boxes[i]] != neighbours->starts[boxes[i] + 1];
    if (is_joined) boxes[i] = ordering->wishes[given++].box;
  }
  number_rank(layout, ordering->ranks, rank);
}

static void sweep(Ordering *ordering, bool down) {
  uint32_t count = ordering->layout->rank_count;
  for (uint32_t i = 1; i < count; i++) {
    order_rank(ordering, down ? i : count - 1 - i, down ? &ordering->ranks->above : &ordering->ranks->below);
  }
}

static bool remember_best(Ordering *ordering) {
  uint64_t crossings = layout_crossings(ordering->context, ordering->layout, ordering->ranks);
  if (crossings >= ordering->fewest) return false;
  ordering->fewest = crossings;
  copy_bytes(ordering->best, ordering->ranks->boxes, ordering->layout->boxes.count * sizeof *ordering->best);
  return true;
}

static void take_best(Ordering *ordering) {
  copy_bytes(ordering->ranks->boxes, ordering->best, ordering->layout->boxes.count * sizeof *ordering->best);
  for (uint32_t rank = 0; rank < ordering->layout->rank_count; rank++) {
    number_rank(ordering->layout, ordering->ranks, rank);
  }
}

/* ---- exchanges ---- */

/* Crossings of two boxes' edges with the left one first, less those with the right one first. */
static int64_t gain_of_exchange(const Layout *layout, const Neighbours *neighbours, uint32_t left, uint32_t right) {
  int64_t gain = 0;
  for (uint32_t i = neighbours->starts[left]; i < neighbours->starts[left + 1]; i++) {
    uint32_t one = layout->boxes.items[neighbours->items[i]].order;
    for (uint32_t k = neighbours->starts[right]; k < neighbours->starts[right + 1]; k++) {
      uint32_t other = layout->boxes.items[neighbours->items[k]].order;
      gain += one > other ? 1 : one < other ? -1 : 0;
    }
  }
  return gain;
}

static bool exchange_in_rank(Ordering *ordering, uint32_t rank) {
  Layout *layout = ordering->layout;
  const Ranks *ranks = ordering->ranks;
  bool changed = false;
  if (is_kept(layout, ordering->ranks, rank)) return false;
  for (uint32_t i = ranks->starts[rank]; i + 1 < ranks->starts[rank + 1]; i++) {
    uint32_t left = ranks->boxes[i], right = ranks->boxes[i + 1];
    int64_t gain = gain_of_exchange(layout, &ranks->above, left, right);
    if (gain + gain_of_exchange(layout, &ranks->below, left, right) <= 0) continue;
    ranks->boxes[i] = right;
    ranks->boxes[i + 1] = left;
    layout->boxes.items[left].order++;
    layout->boxes.items[right].order--;
    changed = true;
  }
  return changed;
}

enum { MOST_SWEEPS = 24, SWEEPS_WITHOUT_GAIN = 4, MOST_EXCHANGES = 8, WORK = 1000000, EXCHANGED_UP_TO = 4000 };

void layout_order(Context *context, Layout *layout, Ranks *ranks) {
  Arena *arena = &context->arena;
  Ordering ordering = {.context = context, .layout = layout, .ranks = ranks, .fewest = UINT64_MAX};
  ordering.wishes = arena_new_array(arena, layout->boxes.count + 1, Wish);
  ordering.best = arena_new_array(arena, layout->boxes.count + 1, uint32_t);
  first_order(context, layout, ranks);
  remember_best(&ordering);
  size_t most = WORK / (ranks->segment_count + layout->boxes.count + 1) + 2;
  for (size_t i = 0, idle = 0; i < MOST_SWEEPS && i < most && idle < SWEEPS_WITHOUT_GAIN && ordering.fewest; i++) {
    sweep(&ordering, i % 2 == 0);
    idle = remember_best(&ordering) ? 0 : idle + 1;
  }
  take_best(&ordering);
  for (int i = 0; i < MOST_EXCHANGES && ordering.fewest && ranks->segment_count < EXCHANGED_UP_TO; i++) {
    bool changed = false;
    for (uint32_t rank = 0; rank < layout->rank_count; rank++) changed |= exchange_in_rank(&ordering, rank);
    if (!changed) break;
  }
}

void layout_place(Context *context, Layout *layout) {
  layout_rank(context, layout);
  Ranks ranks = layout_ranks(context, layout);
  layout_order(context, layout, &ranks);
  layout_align(context, layout, &ranks);
}
