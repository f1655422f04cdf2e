/* Reading a model back, and looking every equation up in it. */
#include "onnx/file/check_ledger.h"

#include <string.h>

#include "onnx/file/metadata_edit.h"
#include "onnx/file/read.h"

typedef struct Found {
  Context *context;
  Map traces, removed; /* texts */
} Found;

/* The parts of a text between separators. */
static void add_parts(Found *found, Map *map, const char *text, const char *separator) {
  for (size_t length = strlen(separator);;) {
    const char *end = strstr(text, separator);
    Str part = end ? str_intern_sized(found->context, text, (size_t)(end - text)) : str_intern(found->context, text);
    *map_slot_pointer(found->context, map, part) = found;
    if (!end) return;
    text = end + length;
  }
}

static void add_traces(Found *found, const MetadataList *list) {
  for (size_t i = 0; i < list->count; i++) {
    if (str_is(list->items[i].key, METADATA_PREFIX "jax_traceback")) {
      add_parts(found, &found->traces, list->items[i].value, "\n\n");
    }
  }
}

static void read_graph(Graph *graph, void *data) {
  FOR_EACH_NODE(node, graph) add_traces(data, &node->metadata);
  for (size_t i = 0; i < graph->initializers.count; i++) add_traces(data, &graph->initializers.items[i]->metadata);
}

static Found read_back(Context *context, const void *bytes, size_t size) {
  Found found = {.context = context};
  Model *model = model_read(context, bytes, size);
  model_unfold(model, SIZE_MAX);
  model_each_graph(model, read_graph, &found);
  for (size_t i = 0; i < model->metadata.count; i++) {
    if (!str_is(model->metadata.items[i].key, METADATA_REMOVED)) continue;
    add_parts(&found, &found.removed, model->metadata.items[i].value, "\n");
  }
  return found;
}

static bool is_removed(Provenance *provenance, const Found *found, const Site *site, Builder *text) {
  const Ledger *ledger = provenance->ledger;
  size_t number = (size_t)(uintptr_t)map_get_pointer(&ledger->removed_sites, site);
  if (!number) return false;
  text->length = 0;
  render_removed(provenance, text, &ledger->removed.items[number - 1]);
  return map_get_pointer(&found->removed, str_intern(provenance->context, builder_text(text))) != NULL;
}

static bool is_found(Provenance *provenance, const Found *found, const Site *site, Builder *text) {
  if (is_removed(provenance, found, site, text)) return true;
  const Origin alone = {.sites = &site, .site_count = 1};
  render_traceback(provenance, text, &alone);
  return map_get_pointer(&found->traces, str_intern(provenance->context, builder_text(text))) != NULL;
}

void check_ledger(Context *context, Provenance *provenance, const void *bytes, size_t size) {
  const Ledger *ledger = provenance ? provenance->ledger : NULL;
  if (!ledger) return;
  Found found = read_back(context, bytes, size);
  Builder text;
  builder_init(&text, context);
  for (size_t i = 0; i < ledger->traced.count; i++) {
    const Site *site = ledger->traced.items[i], *whole = map_get_pointer(&ledger->wholes, site);
    if (is_found(provenance, &found, whole ? whole : site, &text)) continue;
    fail(context, ERROR_INTERNAL, "the written model does not say what became of an equation:\n%s",
         builder_text(&text));
  }
}
