/* The tree of levels. */
#include "tool/page/levels.h"

#include "base/bytes.h"
#include "tool/tally.h"

Level *level_new(Levels *levels, LevelKind kind, Str name, Level *parent) {
  Level *level = arena_new(&levels->context->arena, Level);
  *level = (Level){.kind = kind, .name = name, .parent = parent, .node = SIZE_MAX};
  level->depth = parent ? parent->depth + 1 : 0;
  return level;
}

static void add_item(Context *context, Level *level, LevelBox item) { array_push(context, &level->items, item); }

void level_add_level(Level *level, Level *inside, Context *context) {
  inside->slot = (uint32_t)level->items.count;
  add_item(context, level, (LevelBox){.kind = BOX_LEVEL, .inside = inside, .node = SIZE_MAX});
}

static bool is_constant_node(const Node *node) {
  return node_is(node, OP_Constant) || (node->input_count == 0 && node_is(node, OP_ConstantOfShape));
}

bool value_is_constant(const Value *value) {
  return value->tensor || (value->producer && is_constant_node(value->producer));
}

/* ---- the bodies of a node ---- */

static void divide_graph(Levels *levels, Level *level, const Graph *graph);

static const Attribute *next_body(const Node *node, size_t *at) {
  while (*at < node->attributes.count) {
    const Attribute *attribute = &node->attributes.items[(*at)++];
    if (attribute->kind == ATTRIBUTE_GRAPH && !attribute->reference) return attribute;
  }
  return NULL;
}

static Level *body_level(Levels *levels, Level *parent, const Attribute *body, size_t node) {
  Level *level = level_new(levels, LEVEL_BODY, body->name, parent);
  level->node = node;
  divide_graph(levels, level, body->graph);
  return level;
}

/* One body is what the node opens to; several stand in a level of their own. */
static Level *inside_of(Levels *levels, Level *home, uint32_t slot, size_t index) {
  const Node *node = level_item(levels, index)->node;
  size_t at = 0;
  const Attribute *first = next_body(node, &at), *second = first ? next_body(node, &at) : NULL;
  if (!first) return NULL;
  Level *inside;
  if (!second) {
    inside = body_level(levels, home, first, index);
  } else {
    inside = level_new(levels, LEVEL_NODE, operator_name(levels->context, node), home);
    inside->node = index;
    at = 0;
    for (const Attribute *body; (body = next_body(node, &at));) {
      Level *level = body_level(levels, inside, body, index);
      level_add_level(inside, level, levels->context);
    }
  }
  inside->slot = slot;
  return inside;
}

void level_add_node(Levels *levels, Level *level, size_t node) {
  uint32_t slot = (uint32_t)level->items.count;
  levels->homes[node] = level;
  levels->slots[node] = slot;
  add_item(levels->context, level, (LevelBox){.kind = BOX_NODE, .node = node});
  Level *inside = inside_of(levels, level, slot, node);
  level->items.items[slot].inside = inside;
}

/* ---- ports ---- */

enum { MOST_PORTS = 40 };

/* Is it in the interface of the level's graph, or does it pass the border on its way? */
static bool is_named(const Level *level, LayoutPlace place, const Value *value) {
  if (!level->graph || !value) return false;
  return place == LAYOUT_BOTTOM || (!value->producer && value->graph == level->graph);
}

static uint32_t add_port(Levels *levels, Level *level, LayoutPlace place, const Value *value) {
  LevelBox port = {.kind = BOX_PORT, .place = place, .node = SIZE_MAX, .value = value};
  port.named = is_named(level, place, value);
  add_item(levels->context, level, port);
  return (uint32_t)level->items.count - 1;
}

uint32_t level_port(Levels *levels, Level *level, LayoutPlace place, const Value *value) {
  size_t *count = &level->port_counts[place == LAYOUT_BOTTOM];
  bool named = is_named(level, place, value);
  if (named || *count < MOST_PORTS) {
    *count += !named;
    return add_port(levels, level, place, value);
  }
  for (uint32_t i = (uint32_t)level->items.count; i-- > 0;) {
    const LevelBox *item = &level->items.items[i];
    if (item->kind == BOX_PORT && item->place == place && !item->value) return i;
  }
  return add_port(levels, level, place, NULL);
}

/* ---- graphs ---- */

static void divide_graph(Levels *levels, Level *level, const Graph *graph) {
  ARRAY(size_t) nodes = {0};
  void **slot = map_slot_pointer(levels->context, &levels->of_graphs, graph);
  *slot = level;
  level->graph = graph;
  for (const Node *node = graph->first; node; node = node->next) {
    if (!is_constant_node(node)) array_push(levels->context, &nodes, node_index(node));
  }
  levels_divide(levels, level, nodes.items, nodes.count);
}

static void add_graph_level(Levels *levels, Level *outermost, LevelKind kind, Str name, const Graph *graph) {
  Level *level = level_new(levels, kind, name, outermost);
  divide_graph(levels, level, graph);
  level_add_level(outermost, level, levels->context);
}

static Str graph_name(Levels *levels, const Graph *graph) {
  return graph->name ? graph->name : str_intern(levels->context, "graph");
}

static Level *outermost_level(Levels *levels, size_t model_count) {
  const Model *first = levels->indexes[0]->model;
  const Graph *graph = first->graph;
  if (model_count == 1 && !first->functions.count) {
    Level *level = level_new(levels, LEVEL_GRAPH, graph_name(levels, graph), NULL);
    divide_graph(levels, level, graph);
    return level;
  }
  Level *outermost = level_new(levels, LEVEL_MODEL, graph_name(levels, graph), NULL);
  for (size_t i = 0; i < model_count; i++) {
    const Model *model = levels->indexes[i]->model;
    add_graph_level(levels, outermost, LEVEL_GRAPH, graph_name(levels, model->graph), model->graph);
    for (size_t k = 0; k < model->functions.count; k++) {
      const Function *function = model->functions.items[k];
      add_graph_level(levels, outermost, LEVEL_FUNCTION, function->name, function->body);
    }
  }
  return outermost;
}

/* Levels that were put around others after those were made are deeper than what is in them thinks. */
static size_t number_levels(Levels *levels, Level *level) {
  level->number = (uint32_t)levels->all.count;
  level->depth = level->parent ? level->parent->depth + 1 : 0;
  if (level->path) level->class = map_get_pointer(&levels->classes, level->path);
  array_push(levels->context, &levels->all, level);
  for (size_t i = 0; i < level->items.count; i++) {
    LevelBox *item = &level->items.items[i];
    level->node_count += item->kind == BOX_NODE;
    if (item->inside) level->node_count += number_levels(levels, item->inside);
  }
  return level->node_count;
}

/* ---- what nodes read ---- */

/* The node of that graph which is this one or has it inside; NULL: it is in none. */
static const Node *node_in_graph(const Node *node, const Graph *graph) {
  while (node && node->graph != graph) node = node->graph->owner;
  return node;
}

typedef struct Read {
  size_t reader, read;
} Read;

static Neighbours find_reads(Levels *levels) {
  size_t count = levels->node_count;
  ARRAY(Read) reads = {0};
  for (size_t i = 0; i < count; i++) {
    const Node *node = level_item(levels, i)->node;
    for (uint32_t k = 0; k < node->input_count; k++) {
      const Value *value = node->inputs[k].value;
      const Node *reader = value && value->producer ? node_in_graph(node, value->producer->graph) : NULL;
      if (!reader || reader == value->producer) continue;
      Read read = {node_index(reader), node_index(value->producer)};
      array_push(levels->context, &reads, read);
    }
  }
  Neighbours found = {.starts = arena_new_array(&levels->context->arena, count + 2, uint32_t),
                      .items = arena_new_array(&levels->context->arena, reads.count + 1, uint32_t)};
  for (size_t i = 0; i < reads.count; i++) found.starts[reads.items[i].reader + 2]++;
  for (size_t i = 2; i < count + 2; i++) found.starts[i] += found.starts[i - 1];
  for (size_t i = 0; i < reads.count; i++) {
    found.items[found.starts[reads.items[i].reader + 1]++] = (uint32_t)reads.items[i].read;
  }
  return found;
}

/* pkg.jax2onnx.modules of the model: a line for each module, its path, a tab, its class. */
static void read_classes(Levels *levels, const Model *model) {
  Context *context = levels->context;
  for (size_t i = 0; i < model->metadata.count; i++) {
    if (strcmp(model->metadata.items[i].key, METADATA_PREFIX "modules") != 0) continue;
    const char *at = model->metadata.items[i].value, *end = at + str_length(model->metadata.items[i].value);
    while (at < end) {
      const char *stop = find_letter(at, '\n', (size_t)(end - at));
      if (!stop) stop = end;
      const char *tab = find_letter(at, '\t', (size_t)(stop - at));
      if (tab) {
        Str path = str_intern_sized(context, at, (size_t)(tab - at));
        void **slot = map_slot_pointer(context, &levels->classes, path);
        *slot = (void *)(uintptr_t)str_intern_sized(context, tab + 1, (size_t)(stop - tab - 1));
      }
      at = stop + 1;
    }
  }
}

const Levels *model_levels(Context *context, OriginIndex *const *indexes, size_t count) {
  Levels *levels = arena_new(&context->arena, Levels);
  levels->context = context;
  levels->first_count = indexes[0]->counts[INDEX_NODE];
  for (size_t i = 0; i < count; i++) {
    levels->indexes[i] = indexes[i];
    levels->node_count += indexes[i]->counts[INDEX_NODE];
    read_classes(levels, indexes[i]->model);
  }
  levels->homes = arena_new_array(&context->arena, levels->node_count + 1, Level *);
  levels->slots = arena_new_array(&context->arena, levels->node_count + 1, uint32_t);
  levels->marks = arena_new_array(&context->arena, levels->node_count + 1, size_t);
  levels->reads = find_reads(levels);
  number_levels(levels, outermost_level(levels, count));
  levels_connect(levels);
  levels_lay_out(levels);
  return levels;
}
