/* What a node of the processed model says of itself: the words of the node it came from. Of several nodes the traces
 * stand one below the other, as on a node that the converter merged; everything else is the primary one's. */
#include "graft/labels.h"

#include <string.h>

#include "base/builder.h"
#include "onnx/file/metadata_edit.h"

typedef struct Grafting {
  const Match *match;
  Context *context;
  Map descents; /* node as it was read to its descent: a body in several places is one */
  GraftCounts counts;
} Grafting;

static const char *const words[] = {[FOUND_NAME] = "name", [FOUND_STRUCTURE] = "structure", [FOUND_REGION] = "region"};

/* ---- texts ---- */

static Str entry_named(const MetadataList *list, const char *key) {
  for (size_t i = 0; i < list->count; i++) {
    if (same_text(list->items[i].key, key)) return list->items[i].value;
  }
  return NULL;
}

/* Adds the traces in `text`, which are separated by empty lines, that are not there yet. */
static void add_traces(Context *context, Builder *out, Map *known, Str text) {
  for (const char *at = text, *end = text + str_length(text); at < end;) {
    const char *stop = strstr(at, "\n\n");
    if (!stop) stop = end;
    Str block = str_intern_sized(context, at, (size_t)(stop - at));
    void **slot = map_slot_pointer(context, known, block);
    if (!*slot) {
      *slot = (void *)(uintptr_t)block;
      if (out->length) builder_add(out, "\n\n");
      builder_add_sized(out, block, str_length(block));
    }
    at = stop < end ? stop + 2 : end;
  }
}

static Str joined_traces(const Grafting *grafting, const Descent *descent, Str first) {
  Builder out;
  Map known = {0};
  builder_init(&out, grafting->context);
  add_traces(grafting->context, &out, &known, first);
  for (size_t i = 0; i < descent->other_count; i++) {
    const Node *other = side_node(grafting->match->original, descent->others[i])->node;
    Str text = entry_named(&other->metadata, METADATA_TRACE);
    if (text) add_traces(grafting->context, &out, &known, text);
  }
  return str_intern_sized(grafting->context, builder_text(&out), out.length);
}

/* ---- lists ---- */

static bool says_origin(const Metadata *entry, bool beside_ours) {
  return is_provenance(entry->key, str_length(entry->key), beside_ours);
}

/* Takes the provenance of `to` away and puts that of `from` in its place. */
static void replace(Context *context, MetadataList *to, const MetadataList *from) {
  MetadataList result = {0};
  bool ours = metadata_has_ours(to);
  for (size_t i = 0; i < to->count; i++) {
    if (!says_origin(&to->items[i], ours)) array_push(context, &result, to->items[i]);
  }
  ours = metadata_has_ours(from);
  for (size_t i = 0; i < from->count; i++) {
    const Metadata *entry = &from->items[i];
    bool stays = same_text(entry->key, METADATA_GRAFTED) || is_reference_key(entry->key, str_length(entry->key));
    if (says_origin(entry, ours) && !stays) array_push(context, &result, *entry);
  }
  *to = result;
}

static bool has_provenance(const MetadataList *list) {
  for (size_t i = 0; i < list->count; i++) {
    if (says_origin(&list->items[i], false)) return true;
  }
  return false;
}

static bool label(const Grafting *grafting, MetadataList *list, const Descent *descent) {
  const Node *from = side_node(grafting->match->original, descent->primary)->node;
  if (!has_provenance(&from->metadata)) return false;
  replace(grafting->context, list, &from->metadata);
  for (size_t i = 0; i < list->count; i++) {
    Metadata *entry = &list->items[i];
    if (same_text(entry->key, METADATA_TRACE)) entry->value = joined_traces(grafting, descent, entry->value);
  }
  Metadata how = {str_intern(grafting->context, METADATA_GRAFTED),
                  str_intern(grafting->context, words[descent->found])};
  array_push(grafting->context, list, how);
  return true;
}

/* ---- nodes ---- */

/* A body that stands in several places of the processed model must have come from one thing. */
static void gather(Grafting *grafting) {
  const Match *match = grafting->match;
  static const Descent unsure;
  for (Index i = 1; i < match->processed->nodes.count; i++) {
    const SideNode *node = side_node(match->processed, i);
    void **slot = map_slot_pointer(grafting->context, &grafting->descents, node->node);
    const Descent *before = *slot, *now = &match->descents[i];
    bool differs = before && now->primary != before->primary;
    if (!before || differs) *slot = (void *)(uintptr_t)(differs ? &unsure : now);
  }
}

static void graft_node(Grafting *grafting, Node *node) {
  const Descent *descent = map_get_pointer(&grafting->descents, node);
  grafting->counts.nodes++;
  if (descent && descent->primary && label(grafting, &node->metadata, descent)) {
    grafting->counts.by[descent->found]++;
    return;
  }
  grafting->counts.by[FOUND_NOT]++;
  grafting->counts.kept += has_provenance(&node->metadata);
}

static void graft_graph(Graph *graph, void *data) { FOR_EACH_NODE(node, graph) graft_node(data, node); }

/* ---- the rest ---- */

/* By name, else by contents that no other tensor has; a value that was folded keeps what the node said that made it. */
static void graft_initializers(Grafting *grafting) {
  const Match *match = grafting->match;
  for (Index i = 1; i < match->processed->values.count; i++) {
    const SideValue *value = side_value(match->processed, i);
    if (!value->value->tensor || !value->twin) continue;
    Index named = match->trust_values ? match_value_named(match, value->value->name) : NONE;
    const SideValue *twin = side_value(match->original, named ? named : value->twin);
    if (has_provenance(&twin->value->metadata)) {
      replace(grafting->context, &value->value->metadata, &twin->value->metadata);
    } else if (twin->producer) {
      const Node *maker = side_node(match->original, twin->producer)->node;
      replace(grafting->context, &value->value->metadata, &maker->metadata);
    }
  }
}

static void graft_functions(Grafting *grafting) {
  const Model *from = grafting->match->original->model, *to = grafting->match->processed->model;
  Map known = {0};
  for (size_t i = 0; i < from->functions.count; i++) {
    Function *function = from->functions.items[i];
    *map_slot(grafting->context, &known, (uint64_t)(uintptr_t)function->name, (uint64_t)(uintptr_t)function->domain) =
        function;
  }
  for (size_t i = 0; i < to->functions.count; i++) {
    Function *function = to->functions.items[i];
    const Function *twin = map_get(&known, (uint64_t)(uintptr_t)function->name, (uint64_t)(uintptr_t)function->domain);
    if (twin) replace(grafting->context, &function->metadata, &twin->metadata);
  }
}

GraftCounts graft_model(const Match *match) {
  Grafting grafting = {.match = match, .context = match->context};
  gather(&grafting);
  Model *model = match->processed->model;
  model_each_graph(model, graft_graph, &grafting);
  graft_initializers(&grafting);
  graft_functions(&grafting);
  replace(match->context, &model->metadata, &match->original->model->metadata);
  return grafting.counts;
}
