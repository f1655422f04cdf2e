/* Edges between the boxes of levels, and the places of all boxes. */
#include "tool/page/levels.h"
#include "tool/tally.h"

typedef struct End {
  Level *level;
  uint32_t slot;
} End;

typedef struct Connecting {
  Levels *levels;
  Map ports;  /* the slot of a value's port at a side of a level, plus one */
  Map edges;  /* those that are there */
  Map values; /* numbers of values, plus one */
} Connecting;

static uint64_t pair(uint32_t first, uint32_t second) { return ((uint64_t)first << 32) | second; }

static uint32_t value_number(Connecting *connecting, const Value *value) {
  void **slot = map_slot_pointer(connecting->levels->context, &connecting->values, value);
  if (!*slot) *slot = (void *)(uintptr_t)connecting->values.count;
  return (uint32_t)(uintptr_t)*slot - 1;
}

static uint32_t port_of(Connecting *connecting, Level *level, LayoutPlace place, const Value *value) {
  uint64_t side = pair(level->number, place == LAYOUT_BOTTOM);
  void **slot = map_slot(connecting->levels->context, &connecting->ports, (uint64_t)(uintptr_t)value, side);
  if (!*slot) *slot = (void *)(uintptr_t)(level_port(connecting->levels, level, place, value) + 1);
  return (uint32_t)(uintptr_t)*slot - 1;
}

static void add_edge(Connecting *connecting, Level *level, const Value *value, uint32_t from, uint32_t to) {
  Context *context = connecting->levels->context;
  uint32_t number = value_number(connecting, value);
  void **slot = map_slot(context, &connecting->edges, pair(level->number, number), pair(from, to));
  if (*slot || from == to) return;
  *slot = level;
  /* What leaves a module goes one way as far as it can: many values are one bundle. */
  bool bundled = level->items.items[from].kind == BOX_LEVEL;
  LayoutEdge edge = {.value = bundled ? UINT32_MAX : number, .from = from, .to = to, .points = NO_POINTS};
  array_push(context, &level->layout.edges, edge);
  array_push(context, &level->edge_values, value);
}

/* Out of levels and into levels until both ends are in one. */
static void connect(Connecting *connecting, const Value *value, End from, End to) {
  while (from.level != to.level) {
    bool outwards = from.level->depth >= to.level->depth, inwards = to.level->depth >= from.level->depth;
    if (outwards) {
      add_edge(connecting, from.level, value, from.slot, port_of(connecting, from.level, LAYOUT_BOTTOM, value));
      from = (End){from.level->parent, from.level->slot};
    }
    if (inwards) {
      add_edge(connecting, to.level, value, port_of(connecting, to.level, LAYOUT_TOP, value), to.slot);
      to = (End){to.level->parent, to.level->slot};
    }
    if (!from.level || !to.level) return; /* a damaged model: the value is of another graph */
  }
  if (from.slot != to.slot) add_edge(connecting, from.level, value, from.slot, to.slot);
}

static bool end_of_producer(Connecting *connecting, const Value *value, End *end) {
  const Levels *levels = connecting->levels;
  if (value_is_constant(value)) return false;
  if (value->producer) {
    size_t node = node_index(value->producer);
    *end = (End){levels->homes[node], levels->slots[node]};
    return end->level != NULL;
  }
  Level *level = map_get_pointer(&levels->of_graphs, value->graph);
  if (!level) return false;
  *end = (End){level, port_of(connecting, level, LAYOUT_TOP, value)};
  return true;
}

/* All inputs of a graph are there, in their order, also those that nobody reads. */
static void add_interface(Connecting *connecting, const Graph *graph, Level *level) {
  for (size_t i = 0; i < graph->inputs.count; i++) {
    if (!value_is_constant(graph->inputs.items[i])) port_of(connecting, level, LAYOUT_TOP, graph->inputs.items[i]);
  }
  for (size_t i = 0; i < graph->outputs.count; i++) {
    const Value *value = graph->outputs.items[i]->value;
    End from;
    if (!value) continue;
    uint32_t port = port_of(connecting, level, LAYOUT_BOTTOM, value);
    if (end_of_producer(connecting, value, &from)) connect(connecting, value, from, (End){level, port});
  }
}

void levels_connect(Levels *levels) {
  Connecting connecting = {.levels = levels};
  for (size_t i = 0; i < levels->all.count; i++) {
    Level *level = levels->all.items[i];
    if (level->graph) add_interface(&connecting, level->graph, level);
  }
  for (size_t i = 0; i < levels->node_count; i++) {
    const Node *node = level_item(levels, i)->node;
    End from, to = {levels->homes[i], levels->slots[i]};
    for (uint32_t k = 0; to.level && k < node->input_count; k++) {
      const Value *value = node->inputs[k].value;
      if (value && end_of_producer(&connecting, value, &from)) connect(&connecting, value, from, to);
    }
  }
}

/* ---- sizes ---- */

enum { LETTER = 8, SMALL_LETTER = 6, MARGIN = 26, LEAST_WIDTH = 56, MOST_WIDTH = 220, PORT_WIDTH = 8 };

static double width_of(size_t large, size_t small) {
  size_t width = large * LETTER > small * SMALL_LETTER ? large * LETTER : small * SMALL_LETTER;
  width += MARGIN;
  return width < LEAST_WIDTH ? LEAST_WIDTH : width > MOST_WIDTH ? MOST_WIDTH : (double)width;
}

static size_t letters(const char *text) {
  size_t count = 0;
  for (; *text; text++) count += ((unsigned char)*text & 0xC0) != 0x80;
  return count;
}

static size_t type_letters(Levels *levels, Type type) {
  Report words = {.context = levels->context};
  builder_init(&words.line, levels->context);
  report_type(&words, type);
  return letters(builder_text(&words.line));
}

/* The types of the constants that a node reads stand below its operator. */
static double node_width(Levels *levels, const Node *node) {
  size_t small = 0;
  for (uint32_t i = 0; i < node->input_count && small < MOST_WIDTH; i++) {
    const Value *value = node->inputs[i].value;
    if (value && value_is_constant(value)) small += type_letters(levels, value->type) + 2;
  }
  return width_of(letters(operator_name(levels->context, node)), small);
}

static double item_width(Levels *levels, const LevelBox *item) {
  if (item->kind == BOX_LEVEL) {
    Str class = item->inside->class;
    static const size_t words[] = {[LEVEL_FUNCTION] = sizeof "function", [LEVEL_PART] = sizeof "part"}; /* before it */
    return width_of(words[item->inside->kind] + letters(item->inside->name) + 2, (class ? letters(class) : 0) + 12);
  }
  if (item->kind == BOX_NODE) return node_width(levels, level_item(levels, item->node)->node);
  if (!item->named) return PORT_WIDTH;
  return width_of(letters(item->value->name), type_letters(levels, item->value->type));
}

/* ---- places ---- */

/* Where a level's ports are wanted: at what they are joined with in the level around it. */
static void wish_ports(Levels *levels, Map *wishes, const Level *level) {
  const Layout *layout = &level->layout;
  for (size_t i = 0; i < layout->edges.count; i++) {
    const LayoutEdge *edge = &layout->edges.items[i];
    const Level *source = level->items.items[edge->from].inside, *target = level->items.items[edge->to].inside;
    uint32_t passed = layout->boxes.items[edge->to].rank - layout->boxes.items[edge->from].rank;
    bool bends = edge->points != NO_POINTS && passed > 1;
    uint64_t value = (uint64_t)(uintptr_t)level->edge_values.items[i];
    if (source) {
      uint32_t next = bends ? edge->points : edge->to;
      void **slot = map_slot(levels->context, wishes, value, pair(source->number, 1));
      if (!*slot) *slot = (void *)(uintptr_t)(layout->boxes.items[next].x + 1);
    }
    if (target) {
      uint32_t before = bends ? edge->points + passed - 2 : edge->from;
      void **slot = map_slot(levels->context, wishes, value, pair(target->number, 0));
      if (!*slot) *slot = (void *)(uintptr_t)(layout->boxes.items[before].x + 1);
    }
  }
}

static void lay_out(Levels *levels, Map *wishes, Level *level) {
  for (size_t i = 0; i < level->items.count; i++) {
    const LevelBox *item = &level->items.items[i];
    LayoutBox box = {.width = item_width(levels, item), .place = item->place};
    bool is_passing = item->kind == BOX_PORT && !item->named && item->value;
    uint64_t side = pair(level->number, item->place == LAYOUT_BOTTOM);
    if (is_passing) box.order = (uint32_t)(uintptr_t)map_get(wishes, (uint64_t)(uintptr_t)item->value, side);
    array_push(levels->context, &level->layout.boxes, box);
  }
  level->layout.keep_ends = level->parent && !level->graph;
  layout_place(levels->context, &level->layout);
  wish_ports(levels, wishes, level);
}

void levels_lay_out(Levels *levels) {
  Map wishes = {0};
  for (size_t i = 0; i < levels->all.count; i++) lay_out(levels, &wishes, levels->all.items[i]);
}
