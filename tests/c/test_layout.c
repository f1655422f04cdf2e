/* The drawing of a level: boxes do not overlap, edges lead downwards, and nothing depends on chance. */
#include <math.h>
#include <stdlib.h>

#include "test.h"
#include "tool/page/layout.h"

/* Numbers that look random and are the same everywhere. */
static uint32_t next_number(uint32_t *state) { return *state = *state * 1664525u + 1013904223u, *state >> 8; }

static void add_box(Context *context, Layout *layout, double width, LayoutPlace place) {
  LayoutBox box = {.width = width, .place = place};
  array_push(context, &layout->boxes, box);
}

static void add_edge(Context *context, Layout *layout, uint32_t value, uint32_t from, uint32_t to) {
  LayoutEdge edge = {.value = value, .from = from, .to = to};
  array_push(context, &layout->edges, edge);
}

static void check_drawing(Context *context, const Layout *layout) {
  size_t count = layout->boxes.count;
  const LayoutBox **at = arena_new_array(&context->arena, count + 1, const LayoutBox *);
  Ranks ranks = layout_ranks(context, layout);
  for (size_t i = 0; i < count; i++) {
    const LayoutBox *box = &layout->boxes.items[i];
    CHECK(box->rank < layout->rank_count && box->x - box->width / 2 >= -1e-6);
    uint32_t width = ranks.starts[box->rank + 1] - ranks.starts[box->rank];
    CHECK(box->order < width);
    if (box->order < width) at[ranks.starts[box->rank] + box->order] = box;
  }
  for (size_t i = 0; i < count; i++) CHECK(at[i]);
  for (size_t i = 1; i < count; i++) {
    if (!at[i] || !at[i - 1] || at[i]->rank != at[i - 1]->rank) continue;
    bool are_boxes = at[i]->width > 0 && at[i - 1]->width > 0;
    double apart = at[i]->x - at[i]->width / 2 - at[i - 1]->x - at[i - 1]->width / 2;
    CHECK(apart >= (are_boxes ? LAYOUT_GAP : LAYOUT_POINT_GAP) - 1e-6);
  }
}

static void check_edges(const Layout *layout) {
  for (size_t i = 0; i < layout->edges.count; i++) {
    const LayoutEdge *edge = &layout->edges.items[i];
    uint32_t from = layout->boxes.items[edge->from].rank, to = layout->boxes.items[edge->to].rank;
    CHECK(from < to);
    if (edge->points == NO_POINTS) continue;
    for (uint32_t step = 1; step < to - from; step++) {
      CHECK(layout->boxes.items[edge->points + step - 1].rank == from + step);
      CHECK(layout->boxes.items[edge->points + step - 1].width == 0);
    }
  }
}

static Layout random_layout(Context *context, uint32_t seed, uint32_t boxes, uint32_t edges) {
  Layout layout = {.keep_ends = seed % 2};
  for (uint32_t i = 0; i < boxes; i++) {
    LayoutPlace place = i < 3 && seed % 3 ? LAYOUT_TOP : i + 3 > boxes && seed % 3 == 1 ? LAYOUT_BOTTOM : LAYOUT_FREE;
    add_box(context, &layout, 40 + next_number(&seed) % 160, place);
  }
  for (uint32_t i = 0; i < edges; i++) {
    uint32_t from = next_number(&seed) % boxes, to = next_number(&seed) % boxes;
    if (from > to) {
      uint32_t other = from;
      from = to;
      to = other;
    }
    if (layout.boxes.items[to].place == LAYOUT_TOP || layout.boxes.items[from].place == LAYOUT_BOTTOM) continue;
    if (from != to) add_edge(context, &layout, i % (edges / 2 + 1), from, to);
  }
  layout_place(context, &layout);
  return layout;
}

static void random_drawings_are_sound(void) {
  for (uint32_t seed = 0; seed < 60; seed++) {
    Context context;
    context_init(&context);
    uint32_t boxes = 1 + seed * 7;
    Layout layout = random_layout(&context, seed, boxes, boxes * (seed % 4));
    check_drawing(&context, &layout);
    check_edges(&layout);
    CHECK(layout.boxes.count <= 5 * boxes + 2000);
    context_release(&context);
  }
}

static void a_drawing_is_the_same_every_time(void) {
  Context context;
  context_init(&context);
  Layout one = random_layout(&context, 7, 200, 400), other = random_layout(&context, 7, 200, 400);
  CHECK(one.boxes.count == other.boxes.count);
  for (size_t i = 0; i < one.boxes.count && i < other.boxes.count; i++) {
    CHECK(one.boxes.items[i].x == other.boxes.items[i].x && one.boxes.items[i].rank == other.boxes.items[i].rank);
  }
  context_release(&context);
}

/* A chain with an edge around it: the chain is straight, and the edge goes past it in its own points. */
static void a_chain_is_straight(void) {
  Context context;
  context_init(&context);
  Layout layout = {0};
  for (int i = 0; i < 9; i++) add_box(&context, &layout, 60 + 10 * (i % 3), LAYOUT_FREE);
  for (uint32_t i = 0; i < 8; i++) add_edge(&context, &layout, i, i, i + 1);
  add_edge(&context, &layout, 0, 0, 5);
  layout_place(&context, &layout);
  check_drawing(&context, &layout);
  CHECK(layout.rank_count == 9 && layout.boxes.count == 9 + 4);
  for (int i = 2; i < 5; i++) CHECK(fabs(layout.boxes.items[i].x - layout.boxes.items[1].x) < 1e-6);
  for (int i = 10; i < 13; i++) CHECK(fabs(layout.boxes.items[i].x - layout.boxes.items[9].x) < 1e-6);
  context_release(&context);
}

/* Two rows of boxes joined crosswise can be drawn without a crossing. */
static void crossings_are_taken_out(void) {
  Context context;
  context_init(&context);
  Layout layout = {0};
  enum { WIDE = 40 };
  for (int i = 0; i < 2 * WIDE; i++) add_box(&context, &layout, 50, LAYOUT_FREE);
  for (uint32_t i = 0; i < WIDE; i++) add_edge(&context, &layout, i, i, WIDE + (i * 7 + 3) % WIDE);
  layout_place(&context, &layout);
  Ranks ranks = layout_ranks(&context, &layout);
  for (size_t i = 0; i < layout.boxes.count; i++) {
    const LayoutBox *box = &layout.boxes.items[i];
    ranks.boxes[ranks.starts[box->rank] + box->order] = (uint32_t)i;
  }
  CHECK(layout_crossings(&context, &layout, &ranks) == 0);
  context_release(&context);
}

static void the_ends_keep_their_order(void) {
  Context context;
  context_init(&context);
  Layout layout = {.keep_ends = true};
  for (int i = 0; i < 4; i++) add_box(&context, &layout, 10, LAYOUT_TOP);
  for (int i = 0; i < 4; i++) add_box(&context, &layout, 50, LAYOUT_FREE);
  for (int i = 0; i < 4; i++) add_box(&context, &layout, 10, LAYOUT_BOTTOM);
  for (uint32_t i = 0; i < 4; i++) {
    add_edge(&context, &layout, i, i, 7 - i);
    add_edge(&context, &layout, 10 + i, 4 + i, 8 + i);
  }
  layout_place(&context, &layout);
  for (uint32_t i = 0; i < 4; i++) {
    CHECK(layout.boxes.items[i].order == i && layout.boxes.items[8 + i].order == i);
    CHECK(layout.boxes.items[i].rank == 0 && layout.boxes.items[8 + i].rank == 2);
  }
  context_release(&context);
}

static void a_cycle_is_drawn_too(void) {
  Context context;
  context_init(&context);
  Layout layout = {0};
  for (int i = 0; i < 5; i++) add_box(&context, &layout, 50, LAYOUT_FREE);
  for (uint32_t i = 0; i < 5; i++) add_edge(&context, &layout, i, i, (i + 1) % 5);
  add_edge(&context, &layout, 9, 2, 2);
  layout_place(&context, &layout);
  check_drawing(&context, &layout);
  CHECK(layout.rank_count == 5);
  context_release(&context);
}

static void many_boxes_stay_few_points(void) {
  Context context;
  context_init(&context);
  Layout layout = {0};
  enum { MANY = 3000 };
  for (int i = 0; i < MANY; i++) add_box(&context, &layout, 50, LAYOUT_FREE);
  for (uint32_t i = 0; i + 1 < MANY; i++) {
    add_edge(&context, &layout, i, i, i + 1);
    if (i % 2) add_edge(&context, &layout, i, i / 3, i + 1);
  }
  layout_place(&context, &layout);
  check_drawing(&context, &layout);
  check_edges(&layout);
  CHECK(layout.boxes.count <= 5 * MANY + 2000);
  context_release(&context);
}

const Test layout_tests[] = {
    {"layout: random drawings are sound", random_drawings_are_sound},
    {"layout: a drawing is the same every time", a_drawing_is_the_same_every_time},
    {"layout: a chain is straight", a_chain_is_straight},
    {"layout: crossings are taken out", crossings_are_taken_out},
    {"layout: the ends keep their order", the_ends_keep_their_order},
    {"layout: a cycle is drawn too", a_cycle_is_drawn_too},
    {"layout: many boxes, few points", many_boxes_stay_few_points},
    {0},
};
