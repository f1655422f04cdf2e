/* Ranks: each box as high as what it reads allows, then nearer to what reads it where that makes edges shorter. Edges
 * that pass ranks get their points. */
#include <stdlib.h>

#include "tool/page/layout.h"

typedef struct Ranking {
  Context *context;
  Layout *layout;
  uint32_t *order;    /* boxes, such that edges lead forward unless they close a cycle */
  uint32_t *position; /* of a box in it */
  Neighbours in, out; /* the edges of a box */
} Ranking;

static Neighbours edges_by(Context *context, const Layout *layout, bool outgoing) {
  size_t count = layout->box_count;
  Neighbours found = {.starts = arena_new_array(&context->arena, count + 2, uint32_t),
                      .items = arena_new_array(&context->arena, layout->edges.count + 1, uint32_t)};
  for (size_t i = 0; i < layout->edges.count; i++) {
    const LayoutEdge *edge = &layout->edges.items[i];
    found.starts[(outgoing ? edge->from : edge->to) + 2]++;
  }
  for (size_t i = 2; i < count + 2; i++) found.starts[i] += found.starts[i - 1];
  for (size_t i = 0; i < layout->edges.count; i++) {
    const LayoutEdge *edge = &layout->edges.items[i];
    found.items[found.starts[(outgoing ? edge->from : edge->to) + 1]++] = (uint32_t)i;
  }
  return found;
}

/* Boxes whose edges have all come are taken first in, first out; where a cycle holds all back, the first box left. */
static void sort_boxes(Ranking *ranking) {
  const Layout *layout = ranking->layout;
  size_t count = layout->box_count, taken = 0, ready = 0, next_left = 0;
  Arena *arena = &ranking->context->arena;
  uint32_t *waiting = arena_new_array(arena, count + 1, uint32_t);
  bool *queued = arena_new_array(arena, count + 1, bool);
  ranking->order = arena_new_array(arena, count + 1, uint32_t);
  ranking->position = arena_new_array(arena, count + 1, uint32_t);
  for (size_t i = 0; i < layout->edges.count; i++) {
    const LayoutEdge *edge = &layout->edges.items[i];
    waiting[edge->to] += edge->from != edge->to;
  }
  for (size_t i = 0; i < count; i++) {
    if (waiting[i]) continue;
    queued[i] = true;
    ranking->order[ready++] = (uint32_t)i;
  }
  while (taken < count) {
    if (taken == ready) {
      while (queued[next_left]) next_left++;
      queued[next_left] = true;
      ranking->order[ready++] = (uint32_t)next_left;
    }
    uint32_t box = ranking->order[taken];
    ranking->position[box] = (uint32_t)taken++;
    for (uint32_t k = ranking->out.starts[box]; k < ranking->out.starts[box + 1]; k++) {
      uint32_t to = layout->edges.items[ranking->out.items[k]].to;
      if (to == box || queued[to] || --waiting[to]) continue;
      queued[to] = true;
      ranking->order[ready++] = to;
    }
  }
}

static bool leads_forward(const Ranking *ranking, const LayoutEdge *edge) {
  return ranking->position[edge->from] < ranking->position[edge->to];
}

/* The rank below all that the box reads, and above all that reads it. */
static uint32_t highest(const Ranking *ranking, uint32_t box) {
  uint32_t rank = 0;
  for (uint32_t k = ranking->in.starts[box]; k < ranking->in.starts[box + 1]; k++) {
    const LayoutEdge *edge = &ranking->layout->edges.items[ranking->in.items[k]];
    uint32_t after = ranking->layout->boxes.items[edge->from].rank + 1;
    if (leads_forward(ranking, edge) && after > rank) rank = after;
  }
  return rank;
}

static uint32_t lowest(const Ranking *ranking, uint32_t box, uint32_t otherwise) {
  uint32_t rank = UINT32_MAX;
  for (uint32_t k = ranking->out.starts[box]; k < ranking->out.starts[box + 1]; k++) {
    const LayoutEdge *edge = &ranking->layout->edges.items[ranking->out.items[k]];
    uint32_t to = ranking->layout->boxes.items[edge->to].rank;
    if (leads_forward(ranking, edge) && to < rank) rank = to;
  }
  return rank == UINT32_MAX ? otherwise : rank ? rank - 1 : 0;
}

static bool is_alone(const Ranking *ranking, uint32_t box) {
  return ranking->in.starts[box] == ranking->in.starts[box + 1] &&
         ranking->out.starts[box] == ranking->out.starts[box + 1];
}

/* Boxes without edges stand in rows, not in one long line. */
static void rank_lone_boxes(Ranking *ranking, uint32_t first) {
  Layout *layout = ranking->layout;
  size_t lone = 0, width = 4, seen = 0;
  for (uint32_t i = 0; i < layout->box_count; i++) {
    lone += layout->boxes.items[i].place == LAYOUT_FREE && is_alone(ranking, i);
  }
  while (width * width < lone * 3) width++;
  for (uint32_t i = 0; i < layout->box_count; i++) {
    LayoutBox *box = &layout->boxes.items[i];
    if (box->place == LAYOUT_FREE && is_alone(ranking, i)) box->rank = first + (uint32_t)(seen++ / width);
  }
}

/* What depends on nothing from the top stands right above what reads it. */
static void sink_sources(Ranking *ranking) {
  Layout *layout = ranking->layout;
  bool *floats = arena_new_array(&ranking->context->arena, layout->box_count + 1, bool);
  for (size_t i = 0; i < layout->box_count; i++) {
    uint32_t box = ranking->order[i];
    floats[box] = layout->boxes.items[box].place == LAYOUT_FREE && !is_alone(ranking, box);
    for (uint32_t k = ranking->in.starts[box]; k < ranking->in.starts[box + 1]; k++) {
      const LayoutEdge *edge = &layout->edges.items[ranking->in.items[k]];
      if (leads_forward(ranking, edge) && !floats[edge->from]) floats[box] = false;
    }
  }
  for (size_t i = layout->box_count; i-- > 0;) {
    uint32_t box = ranking->order[i];
    LayoutBox *placed = &layout->boxes.items[box];
    if (floats[box]) placed->rank = lowest(ranking, box, placed->rank);
  }
}

/* A box with more edges below than above stands as low as it can: fewer edges are long. */
static void shorten_edges(Ranking *ranking) {
  Layout *layout = ranking->layout;
  for (size_t i = layout->box_count; i-- > 0;) {
    uint32_t box = ranking->order[i];
    LayoutBox *placed = &layout->boxes.items[box];
    uint32_t in = ranking->in.starts[box + 1] - ranking->in.starts[box];
    uint32_t out = ranking->out.starts[box + 1] - ranking->out.starts[box];
    if (placed->place == LAYOUT_FREE && in && out > in) placed->rank = lowest(ranking, box, placed->rank);
  }
}

static void close_gaps(Context *context, Layout *layout, uint32_t count) {
  uint32_t *renamed = arena_new_array(&context->arena, (size_t)count + 1, uint32_t), used = 0;
  for (size_t i = 0; i < layout->box_count; i++) renamed[layout->boxes.items[i].rank] = 1;
  for (uint32_t rank = 0; rank < count; rank++) renamed[rank] = renamed[rank] ? used++ : 0;
  for (size_t i = 0; i < layout->box_count; i++) layout->boxes.items[i].rank = renamed[layout->boxes.items[i].rank];
  layout->rank_count = used;
}

static void rank_boxes(Ranking *ranking) {
  Layout *layout = ranking->layout;
  uint32_t first = 0, last = 0;
  for (size_t i = 0; i < layout->box_count; i++) first |= layout->boxes.items[i].place == LAYOUT_TOP;
  for (size_t i = 0; i < layout->box_count; i++) {
    LayoutBox *box = &layout->boxes.items[ranking->order[i]];
    uint32_t rank = highest(ranking, ranking->order[i]);
    box->rank = box->place == LAYOUT_TOP ? 0 : rank < first ? first : rank;
  }
  rank_lone_boxes(ranking, first);
  for (size_t i = 0; i < layout->box_count; i++) {
    const LayoutBox *box = &layout->boxes.items[i];
    if (box->place != LAYOUT_BOTTOM && box->rank >= last) last = box->rank + 1;
  }
  for (size_t i = 0; i < layout->box_count; i++) {
    if (layout->boxes.items[i].place == LAYOUT_BOTTOM) layout->boxes.items[i].rank = last;
  }
  sink_sources(ranking);
  shorten_edges(ranking);
  close_gaps(ranking->context, layout, last + 1);
}

/* ---- points ---- */

/* The edges of one value from one box. */
typedef struct Chain {
  uint32_t from, last_rank, points;
} Chain;

static Chain *chain_of(Context *context, Map *chains, const LayoutEdge *edge) {
  void **slot = map_slot(context, chains, edge->value, edge->from);
  if (!*slot) {
    Chain *chain = *slot = arena_new(&context->arena, Chain);
    *chain = (Chain){.from = edge->from, .points = NO_POINTS};
  }
  return *slot;
}

/* The most ranks that a chain may pass so that all points together are not too many. */
static uint32_t longest_chain(Context *context, const Layout *layout, Chain *const *chains, size_t count) {
  uint64_t *lengths = arena_new_array(&context->arena, (size_t)layout->rank_count + 1, uint64_t);
  for (size_t i = 0; i < count; i++) {
    uint32_t from = layout->boxes.items[chains[i]->from].rank;
    if (chains[i]->last_rank > from) lengths[chains[i]->last_rank - from]++;
  }
  uint64_t left = 4 * (uint64_t)layout->box_count + 2000;
  for (uint32_t length = 2; length < layout->rank_count; length++) {
    uint64_t needed = lengths[length] * (length - 1);
    if (needed > left) return length - 1;
    left -= needed;
  }
  return layout->rank_count;
}

static void add_points(Context *context, Layout *layout) {
  Map known = {0};
  ARRAY(Chain *) chains = {0};
  for (size_t i = 0; i < layout->edges.count; i++) {
    size_t before = known.count;
    Chain *chain = chain_of(context, &known, &layout->edges.items[i]);
    if (known.count > before) array_push(context, &chains, chain);
    uint32_t rank = layout->boxes.items[layout->edges.items[i].to].rank;
    if (rank > chain->last_rank) chain->last_rank = rank;
  }
  uint32_t longest = longest_chain(context, layout, chains.items, chains.count);
  for (size_t i = 0; i < chains.count; i++) {
    Chain *chain = chains.items[i];
    uint32_t from = layout->boxes.items[chain->from].rank;
    if (chain->last_rank <= from + 1 || chain->last_rank - from > longest) continue;
    chain->points = (uint32_t)layout->boxes.count;
    for (uint32_t rank = from + 1; rank < chain->last_rank; rank++) {
      LayoutBox point = {.rank = rank};
      array_push(context, &layout->boxes, point);
    }
  }
  for (size_t i = 0; i < layout->edges.count; i++) {
    LayoutEdge *edge = &layout->edges.items[i];
    bool passes = layout->boxes.items[edge->to].rank > layout->boxes.items[edge->from].rank + 1;
    edge->points = passes ? chain_of(context, &known, edge)->points : NO_POINTS;
  }
}

void layout_rank(Context *context, Layout *layout) {
  layout->box_count = layout->boxes.count;
  Ranking ranking = {.context = context, .layout = layout};
  ranking.in = edges_by(context, layout, false);
  ranking.out = edges_by(context, layout, true);
  sort_boxes(&ranking);
  rank_boxes(&ranking);
  add_points(context, layout);
}
