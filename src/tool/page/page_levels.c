/* The drawing of a page: levels, their boxes and edges, as numbers.
 *
 *   level  [kind, name text, what it is text, parent level, node, how many nodes, [boxes], [edges]]
 *   boxes  four numbers each: what it is, rank, middle, width. What it is: a number times four, plus 0 for a node, 1
 * for a level, 2 for a named port, of a value, 3 for a port that passes the border, -1 for a point of an edge edges
 * four numbers each: value, from box, to box, first point or -1
 */
#include "tool/page/page_rows.h"

enum { WRITTEN_NODE, WRITTEN_LEVEL, WRITTEN_PORT, WRITTEN_BORDER, WRITTEN_KINDS };

static int64_t box_of(Page *page, const LevelBox *item) {
  size_t number;
  if (item->kind == BOX_NODE) return (int64_t)item->node * WRITTEN_KINDS + WRITTEN_NODE;
  if (item->kind == BOX_LEVEL) return (int64_t)item->inside->number * WRITTEN_KINDS + WRITTEN_LEVEL;
  number = value_row(page, item->value);
  if (number == NONE) number = 0; /* stands for several: none of them is named */
  return (int64_t)number * WRITTEN_KINDS + (item->named ? WRITTEN_PORT : WRITTEN_BORDER);
}

static void add_boxes(Page *page, Builder *json, const Level *level) {
  for (size_t i = 0; i < level->layout.boxes.count; i++) {
    const LayoutBox *box = &level->layout.boxes.items[i];
    int64_t what = i < level->items.count ? box_of(page, &level->items.items[i]) : -1;
    builder_format(json, "%s%lld,%u,%.0f,%.0f", i ? "," : "", (long long)what, box->rank, box->x, box->width);
  }
}

static void add_edges(Page *page, Builder *json, const Level *level) {
  for (size_t i = 0; i < level->layout.edges.count; i++) {
    const LayoutEdge *edge = &level->layout.edges.items[i];
    builder_format(json, "%s%zu,%u,%u,", i ? "," : "", value_row(page, level->edge_values.items[i]), edge->from,
                   edge->to);
    if (edge->points == NO_POINTS) builder_add(json, "-1");
    else builder_format(json, "%u", edge->points);
  }
}

Builder page_levels(Page *page, const PageModels *models) {
  static const char *const kinds[] = {"model", "graph", "function", "node", "body", "module", "call", "part"};
  const Levels *levels = model_levels(page->context, models->indexes, models->count);
  Builder json;
  builder_init(&json, page->context);
  json.limit = job_limit(page->job);
  for (size_t i = 0; i < levels->all.count; i++) {
    const Level *level = levels->all.items[i];
    builder_format(&json, "%s[\"%s\"", i ? ",\n" : "\n", kinds[level->kind]);
    add_next(&json, text_row(page, level->name));
    add_next(&json, text_row(page, level->class));
    add_next(&json, level->parent ? level->parent->number : NONE);
    add_next(&json, level->node);
    builder_format(&json, ",%zu,[", level->node_count);
    add_boxes(page, &json, level);
    builder_add(&json, "],[");
    add_edges(page, &json, level);
    builder_add(&json, "]]");
  }
  return json;
}
