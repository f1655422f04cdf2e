/* How the nodes of a graph are divided into boxes. */
#include <stdlib.h>

#include "base/bytes.h"
#include "tool/page/levels.h"

/* A level with more boxes than this is divided by calls; if that is not enough, into parts of so many. */
enum { MOST_BOXES = 160, PART_SIZE = 40, MOST_DEPTH = 24 };

/* With more than this many modules side by side, their names are taken apart at underscores, as libraries that have
 * flat names write them: conv2_block1_1_relu. Such a part begins with a mark. */
enum { MANY_MODULES = 40, WORD_MARK = '\x1f' };

/* ---- paths ---- */

static bool is_digits(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if (text[i] < '0' || text[i] > '9') return false;
  }
  return length > 0;
}

typedef ARRAY(Str) Parts;

/* Parts between separators; a number belongs to the part before it: blocks.0.attn is blocks.0 and attn. */
static void add_parts(Context *context, Parts *parts, const char *text, size_t length, char separator) {
  const char *end = text + length;
  while (text < end && parts->count < MOST_DEPTH) {
    const char *stop = find_letter(text, separator, (size_t)(end - text));
    const char *after = stop ? stop : end;
    while (after < end && separator == '.') {
      const char *next = find_letter(after + 1, separator, (size_t)(end - after - 1));
      const char *limit = next ? next : end;
      if (!is_digits(after + 1, (size_t)(limit - after - 1))) break;
      after = limit;
    }
    if (after > text) array_push(context, parts, str_intern_sized(context, text, (size_t)(after - text)));
    text = after + 1;
  }
}

static void add_modules(Levels *levels, Parts *parts, const Item *item) {
  const Node *node = item->node;
  const char *slash = item->module || !node->name ? NULL : strrchr(node->name, '/');
  if (item->module) add_parts(levels->context, parts, item->module, str_length(item->module), '.');
  else if (slash) add_parts(levels->context, parts, node->name, (size_t)(slash - node->name), '/');
}

/* The program's calls that led to a node, outermost first: each a function and the line that called it. */
static Parts *call_parts(Levels *levels, const OriginIndex *index, const IndexOrigin *origin) {
  void **slot = map_slot_pointer(levels->context, &levels->calls, origin);
  if (*slot) return *slot;
  Parts *parts = *slot = arena_new(&levels->context->arena, Parts);
  const Chain *chain = &origin->chains.items[0];
  uint32_t caller = 0; /* its line; 0: none yet */
  for (size_t i = chain->count; i-- && parts->count < MOST_DEPTH;) {
    const IndexFrame *frame = &index->frames.items[chain->frames[i]];
    const IndexLine *line = &index->lines.items[frame->line];
    if (line->is_library) continue;
    if (caller) {
      const char *text = arena_format(&levels->context->arena, "%s, line %u", frame->function, caller);
      array_push(levels->context, parts, str_intern(levels->context, text));
    }
    caller = line->number;
  }
  return parts;
}

/* A node's path: the modules it is in, or else the calls that led to it. */
typedef struct NodePath {
  const Str *modules, *calls;
  uint32_t module_count, call_count;
} NodePath;

static NodePath node_path(Levels *levels, size_t node) {
  const Item *item = level_item(levels, node);
  const OriginIndex *index = levels->indexes[node >= levels->first_count];
  const IndexOrigin *origin = item->origin == NO_ROW ? NULL : &index->origins.items[item->origin];
  Parts modules = {0};
  add_modules(levels, &modules, item);
  const Parts *calls = origin && origin->chains.count ? call_parts(levels, index, origin) : NULL;
  return (NodePath){.modules = modules.items,
                    .module_count = (uint32_t)modules.count,
                    .calls = calls ? calls->items : NULL,
                    .call_count = calls ? (uint32_t)calls->count : 0};
}

/* The path with the part at a depth taken apart into its words. */
static NodePath path_in_words(Context *context, const NodePath *path, uint32_t depth) {
  if (depth >= path->module_count) return *path;
  Parts parts = {0}, words = {0};
  for (uint32_t i = 0; i < path->module_count; i++) {
    words.count = 0;
    if (i == depth) add_parts(context, &words, path->modules[i], str_length(path->modules[i]), '_');
    if (words.count < 2) array_push(context, &parts, path->modules[i]);
    for (size_t k = 0; words.count >= 2 && k < words.count; k++) {
      const char *marked = arena_format(&context->arena, "%c%s", WORD_MARK, words.items[k]);
      array_push(context, &parts, k ? str_intern(context, marked) : words.items[k]);
    }
  }
  NodePath taken = *path;
  taken.modules = parts.items;
  taken.module_count = (uint32_t)parts.count;
  return taken;
}

/* ---- clusters: the nodes that become one box ---- */

typedef struct Cluster {
  Str name; /* NULL: one node that is a box by itself */
  ARRAY(size_t) nodes;
  ARRAY(size_t) reads; /* clusters */
} Cluster;

typedef struct Division {
  Levels *levels;
  Level *level;
  const size_t *nodes;
  const NodePath *paths; /* of the nodes */
  size_t count;
  bool by_calls;
  uint32_t depth;
  ARRAY(Cluster) clusters;
} Division;

static Str part_of(const NodePath *path, bool by_calls, uint32_t depth) {
  if (by_calls) return depth < path->call_count ? path->calls[depth] : NULL;
  return depth < path->module_count ? path->modules[depth] : NULL;
}

static void make_clusters(Division *division) {
  Context *context = division->levels->context;
  Map known = {0};
  division->clusters.count = 0;
  for (size_t i = 0; i < division->count; i++) {
    Str name = part_of(&division->paths[i], division->by_calls, division->depth);
    void **slot = name ? map_slot_pointer(context, &known, name) : NULL;
    if (!slot || !*slot) {
      Cluster fresh = {.name = name};
      array_push(context, &division->clusters, fresh);
      if (slot) *slot = (void *)(uintptr_t)division->clusters.count;
    }
    size_t cluster = slot ? (size_t)(uintptr_t)*slot - 1 : division->clusters.count - 1;
    array_push(context, &division->clusters.items[cluster].nodes, i);
  }
}

/* Which cluster reads from which. */
static void join_clusters(Division *division) {
  Levels *levels = division->levels;
  for (size_t i = 0; i < division->clusters.count; i++) {
    const Cluster *cluster = &division->clusters.items[i];
    for (size_t k = 0; k < cluster->nodes.count; k++) {
      levels->marks[division->nodes[cluster->nodes.items[k]]] = i + 1;
    }
  }
  for (size_t i = 0; i < division->clusters.count; i++) {
    Cluster *cluster = &division->clusters.items[i];
    cluster->reads.count = 0;
    for (size_t k = 0; k < cluster->nodes.count; k++) {
      size_t node = division->nodes[cluster->nodes.items[k]];
      for (uint32_t r = levels->reads.starts[node]; r < levels->reads.starts[node + 1]; r++) {
        size_t read = levels->marks[levels->reads.items[r]];
        if (read && read - 1 != i) array_push(levels->context, &cluster->reads, read - 1);
      }
    }
  }
  for (size_t i = 0; i < division->count; i++) levels->marks[division->nodes[i]] = 0;
}

/* ---- cycles ---- */

/* Tarjan's walk: clusters that read from each other, in an order in which all that one reads comes before it. */
typedef struct Walk {
  const Division *division;
  size_t *low, *found, *next; /* by cluster; found is 0 until it is met */
  bool *on_stack;
  ARRAY(size_t) path, stack;
  ARRAY(size_t) order;  /* clusters, cycle by cycle */
  ARRAY(size_t) cycles; /* where each begins in it */
  size_t met;
} Walk;

static void meet(Walk *walk, size_t cluster, Context *context) {
  walk->low[cluster] = walk->found[cluster] = ++walk->met;
  walk->on_stack[cluster] = true;
  array_push(context, &walk->path, cluster);
  array_push(context, &walk->stack, cluster);
}

static void leave(Walk *walk, size_t cluster, Context *context) {
  walk->path.count--;
  if (walk->path.count) {
    size_t parent = walk->path.items[walk->path.count - 1];
    if (walk->low[cluster] < walk->low[parent]) walk->low[parent] = walk->low[cluster];
  }
  if (walk->low[cluster] != walk->found[cluster]) return;
  array_push(context, &walk->cycles, walk->order.count);
  size_t member;
  do {
    member = walk->stack.items[--walk->stack.count];
    walk->on_stack[member] = false;
    array_push(context, &walk->order, member);
  } while (member != cluster);
}

static void walk_from(Walk *walk, size_t start, Context *context) {
  meet(walk, start, context);
  while (walk->path.count) {
    size_t cluster = walk->path.items[walk->path.count - 1];
    const Cluster *at = &walk->division->clusters.items[cluster];
    if (walk->next[cluster] == at->reads.count) {
      leave(walk, cluster, context);
      continue;
    }
    size_t read = at->reads.items[walk->next[cluster]++];
    if (!walk->found[read]) meet(walk, read, context);
    else if (walk->on_stack[read] && walk->found[read] < walk->low[cluster]) walk->low[cluster] = walk->found[read];
  }
}

static Walk walk_clusters(Division *division) {
  Context *context = division->levels->context;
  size_t count = division->clusters.count;
  Walk walk = {.division = division};
  walk.low = arena_new_array(&context->arena, count + 1, size_t);
  walk.found = arena_new_array(&context->arena, count + 1, size_t);
  walk.next = arena_new_array(&context->arena, count + 1, size_t);
  walk.on_stack = arena_new_array(&context->arena, count + 1, bool);
  for (size_t i = 0; i < count; i++) {
    if (!walk.found[i]) walk_from(&walk, i, context);
  }
  array_push(context, &walk.cycles, walk.order.count);
  return walk;
}

static int compare_sizes(const void *a, const void *b) {
  size_t first = *(const size_t *)a, second = *(const size_t *)b;
  return first < second ? -1 : first > second;
}

/* Clusters that read from each other are taken apart into runs of nodes that follow each other in the file: whatever a
 * node reads comes before it there, so runs cannot form a cycle. */
static void add_runs(Division *division, const Walk *walk, size_t cycle, Cluster **made, size_t *made_count) {
  Context *context = division->levels->context;
  size_t first = walk->cycles.items[cycle], end = walk->cycles.items[cycle + 1];
  ARRAY(size_t) nodes = {0};
  size_t *owner = division->levels->marks; /* by the number of a node in the division, here */
  for (size_t i = first; i < end; i++) {
    const Cluster *cluster = &division->clusters.items[walk->order.items[i]];
    for (size_t k = 0; k < cluster->nodes.count; k++) {
      array_push(context, &nodes, cluster->nodes.items[k]);
      owner[cluster->nodes.items[k]] = walk->order.items[i] + 1;
    }
  }
  sort_items(nodes.items, nodes.count, sizeof *nodes.items, compare_sizes);
  size_t before = 0;
  for (size_t i = 0; i < nodes.count; i++) {
    size_t cluster = owner[nodes.items[i]];
    if (cluster != before) (*made)[(*made_count)++] = (Cluster){.name = division->clusters.items[cluster - 1].name};
    array_push(context, &(*made)[*made_count - 1].nodes, nodes.items[i]);
    before = cluster;
    owner[nodes.items[i]] = 0;
  }
}

/* Clusters in an order in which all that one reads comes before it, without cycles. */
static void order_clusters(Division *division) {
  join_clusters(division);
  Walk walk = walk_clusters(division);
  Cluster *made = arena_new_array(&division->levels->context->arena, division->count + 1, Cluster);
  size_t made_count = 0;
  for (size_t i = 0; i + 1 < walk.cycles.count; i++) {
    size_t first = walk.cycles.items[i];
    if (walk.cycles.items[i + 1] - first > 1) add_runs(division, &walk, i, &made, &made_count);
    else made[made_count++] = division->clusters.items[walk.order.items[first]];
  }
  division->clusters.items = made;
  division->clusters.count = division->clusters.capacity = made_count;
}

/* ---- parts of very many boxes ---- */

/* How many edges lead from clusters before a place to clusters behind it, for every place. */
static int64_t *count_cuts(Division *division) {
  size_t count = division->clusters.count;
  int64_t *cuts = arena_new_array(&division->levels->context->arena, count + 2, int64_t);
  join_clusters(division);
  for (size_t i = 0; i < count; i++) {
    const Cluster *cluster = &division->clusters.items[i];
    for (size_t k = 0; k < cluster->reads.count; k++) {
      if (cluster->reads.items[k] >= i) continue;
      cuts[cluster->reads.items[k] + 1]++;
      cuts[i + 1]--;
    }
  }
  for (size_t i = 1; i <= count; i++) cuts[i] += cuts[i - 1];
  return cuts;
}

/* Where parts begin: about as many clusters in each, divided where the fewest edges are cut. */
static size_t next_cut(const int64_t *cuts, size_t from, size_t count, size_t size) {
  if (count - from <= size + size / 2) return count;
  size_t best = from + size;
  for (size_t at = from + size / 2; at <= from + size + size / 2 && at < count; at++) {
    if (cuts[at] < cuts[best]) best = at;
  }
  return best;
}

static Str range_name(Division *division, size_t first, size_t end) {
  const char *text = arena_format(&division->levels->context->arena, "%zu–%zu", first + 1, end);
  return str_intern(division->levels->context, text);
}

static void fill_level(Division *division, Level *level, size_t first, size_t end);

/* Levels of parts of parts, until one has few enough boxes. */
static void add_parts_of(Division *division, Level *level, const int64_t *cuts, size_t first, size_t end) {
  size_t size = PART_SIZE;
  if (end - first <= MOST_BOXES) {
    fill_level(division, level, first, end);
    return;
  }
  while ((end - first) / size > MOST_BOXES) size *= PART_SIZE;
  for (size_t at = first; at < end;) {
    size_t stop = next_cut(cuts, at, end, size);
    Level *part = level_new(division->levels, LEVEL_PART, range_name(division, at, stop), level);
    level_add_level(level, part, division->levels->context);
    add_parts_of(division, part, cuts, at, stop);
    at = stop;
  }
}

/* ---- the whole ---- */

static void divide(Levels *levels, Level *level, const size_t *nodes, const NodePath *paths, size_t count,
                   bool by_calls, uint32_t depth);

static Str plain_name(Levels *levels, Str name) {
  return name && *name == WORD_MARK ? str_intern(levels->context, name + 1) : name;
}

static Str joined(Levels *levels, Str before, Str name) {
  char between = *name == WORD_MARK ? '_' : '.';
  const char *text = arena_format(&levels->context->arena, "%s%c%s", before, between, name + (*name == WORD_MARK));
  return str_intern(levels->context, text);
}

static Str joined_path(Levels *levels, const Level *parent, Str name) {
  while (parent && parent->kind == LEVEL_PART) parent = parent->parent;
  if (!parent || parent->kind != LEVEL_MODULE || !parent->path) return plain_name(levels, name);
  return joined(levels, parent->path, name);
}

static void add_cluster(Division *division, Level *level, const Cluster *cluster) {
  Levels *levels = division->levels;
  if (cluster->nodes.count == 1) {
    level_add_node(levels, level, division->nodes[cluster->nodes.items[0]]);
    return;
  }
  LevelKind kind = division->by_calls ? LEVEL_CALL : LEVEL_MODULE;
  Level *inside = level_new(levels, kind, plain_name(levels, cluster->name), level);
  if (!division->by_calls) inside->path = joined_path(levels, level, cluster->name);
  level_add_level(level, inside, levels->context);
  size_t *nodes = arena_new_array(&levels->context->arena, cluster->nodes.count, size_t);
  NodePath *paths = arena_new_array(&levels->context->arena, cluster->nodes.count, NodePath);
  for (size_t i = 0; i < cluster->nodes.count; i++) {
    nodes[i] = division->nodes[cluster->nodes.items[i]];
    paths[i] = division->paths[cluster->nodes.items[i]];
  }
  divide(levels, inside, nodes, paths, cluster->nodes.count, division->by_calls, division->depth + 1);
}

static void fill_level(Division *division, Level *level, size_t first, size_t end) {
  for (size_t i = first; i < end; i++) add_cluster(division, level, &division->clusters.items[i]);
}

/* Takes names apart at underscores when that leaves half as many boxes. */
static bool take_words(Division *division) {
  NodePath *paths = arena_new_array(&division->levels->context->arena, division->count, NodePath);
  const NodePath *before = division->paths;
  size_t boxes = division->clusters.count;
  for (size_t i = 0; i < division->count; i++) {
    paths[i] = path_in_words(division->levels->context, &before[i], division->depth);
  }
  division->paths = paths;
  make_clusters(division);
  if (division->clusters.count <= boxes / 2) return true;
  division->paths = before;
  make_clusters(division);
  return false;
}

/* Passes over parts of the path that all nodes share: they tell nothing apart. */
static void find_clusters(Division *division) {
  for (;;) {
    make_clusters(division);
    bool is_one = division->clusters.count == 1 && division->clusters.items[0].name;
    bool is_plain = division->clusters.count == division->count;
    if (is_one) {
      Level *level = division->level;
      Str name = division->clusters.items[0].name;
      if (level->kind == LEVEL_MODULE && !division->by_calls) {
        level->path = joined_path(division->levels, level, name);
        level->name = joined(division->levels, level->name, name);
      }
      division->depth++;
    } else if (is_plain && !division->by_calls && division->count > MOST_BOXES) {
      division->by_calls = true;
      division->depth = 0;
    } else if (!division->by_calls && division->clusters.count > MANY_MODULES && take_words(division)) {
      return;
    } else {
      return;
    }
  }
}

static void divide(Levels *levels, Level *level, const size_t *nodes, const NodePath *paths, size_t count,
                   bool by_calls, uint32_t depth) {
  Division division = {.levels = levels,
                       .level = level,
                       .nodes = nodes,
                       .paths = paths,
                       .count = count,
                       .by_calls = by_calls,
                       .depth = depth};
  find_clusters(&division);
  order_clusters(&division);
  const int64_t *cuts = division.clusters.count > MOST_BOXES ? count_cuts(&division) : NULL;
  add_parts_of(&division, level, cuts, 0, division.clusters.count);
}

void levels_divide(Levels *levels, Level *level, const size_t *nodes, size_t count) {
  NodePath *paths = arena_new_array(&levels->context->arena, count + 1, NodePath);
  for (size_t i = 0; i < count; i++) paths[i] = node_path(levels, nodes[i]);
  divide(levels, level, nodes, paths, count, false, 0);
}
