/* j2o report --model-explorer: what Model Explorer shows on the nodes of a model that it has open, in the form that its
 * loader takes: for each graph, by its name there, each node's line of the program with a colour of the line's own; or
 * each node's microseconds, where a profile was given. */
#include <math.h>
#include <string.h>

#include "base/spelling.h"
#include "tool/page/page.h"

typedef struct Writing {
  Context *context;
  const PageModels *models;
  const Profile *profile;
  Builder json;
  Map lines; /* numbers of lines, plus one */
  bool has_graph, has_node;
} Writing;

static void add_text(Builder *json, const char *text) { spell_text(json, SPELL_JSON, text, strlen(text)); }

/* ---- lines and their colours ---- */

static const char *line_text(Writing *writing, Place place) {
  const char *slash = place.file ? strrchr(place.file, '/') : NULL;
  const char *where = slash ? slash + 1 : place.file ? place.file : place.function;
  return arena_format(&writing->context->arena, "%s:%u", where, place.line);
}

static size_t line_number(Writing *writing, Place place) {
  uint64_t where = (uint64_t)(uintptr_t)(place.file ? place.file : place.function);
  void **slot = map_slot(writing->context, &writing->lines, where, place.line);
  if (!*slot) *slot = (void *)(uintptr_t)writing->lines.count;
  return (size_t)(uintptr_t)*slot - 1;
}

/* A light colour; neighbouring numbers have hues far apart, each a golden angle from the one before. */
static void add_colour(Builder *json, size_t number) {
  double hue = fmod((double)number * 137.5 + 210, 360) / 60, chroma = 0.17;
  double second = chroma * (1 - fabs(fmod(hue, 2) - 1));
  double parts[3] = {0};
  int sector = (int)hue % 6;
  static const int largest[] = {0, 1, 1, 2, 2, 0}, middle[] = {1, 0, 2, 1, 0, 2};
  parts[largest[sector]] = chroma;
  parts[middle[sector]] = second;
  builder_add(json, "\"#");
  for (int i = 0; i < 3; i++) builder_format(json, "%02x", (unsigned)lround((parts[i] + 1 - chroma - 0.02) * 255));
  builder_add(json, "\"");
}

/* ---- nodes and graphs ---- */

/* A node without a name is known by what it makes. */
static Str key_of(const Node *node) {
  if (node->name && *node->name) return node->name;
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (node->outputs[i]) return node->outputs[i]->name;
  }
  return NULL;
}

static void add_node(Writing *writing, const Node *node) {
  Builder *json = &writing->json;
  Place place = page_item(writing->models, node_index(node))->place;
  const double *time = writing->profile ? map_get_pointer(&writing->profile->times, node->name) : NULL;
  Str key = key_of(node);
  if (!key || (writing->profile ? !time : !place.function)) return;
  builder_add(json, writing->has_node ? ",\n    " : "\n    ");
  writing->has_node = true;
  add_text(json, key);
  builder_add(json, ": {\"value\": ");
  if (time) {
    builder_format(json, "%.3f}", *time);
    return;
  }
  add_text(json, line_text(writing, place));
  builder_add(json, ", \"bgColor\": ");
  add_colour(json, line_number(writing, place));
  builder_add(json, ", \"textColor\": \"#1c2128\"}");
}

static void add_graph(Writing *writing, const Graph *graph, const char *name) {
  Builder *json = &writing->json;
  builder_add(json, writing->has_graph ? ",\n" : "\n");
  writing->has_graph = true;
  writing->has_node = false;
  add_text(json, name);
  builder_add(json, writing->profile ? ": {\"name\": \"microseconds\", \"gradient\": [{\"stop\": 0, \"bgColor\": "
                                       "\"#fff4e8\"}, {\"stop\": 1, \"bgColor\": \"#f0672e\"}], \"results\": {"
                                     : ": {\"name\": \"line\", \"results\": {");
  for (const Node *node = graph->first; node; node = node->next) add_node(writing, node);
  builder_add(json, "}}");
}

static void add_bodies(Writing *writing, const Graph *graph) {
  for (const Node *node = graph->first; node; node = node->next) {
    for (size_t i = 0; i < node->attributes.count; i++) {
      const Attribute *attribute = &node->attributes.items[i];
      if (attribute->kind != ATTRIBUTE_GRAPH || attribute->reference) continue;
      const char *name = arena_format(&writing->context->arena, "%s/%s", node->name, attribute->name);
      add_graph(writing, attribute->graph, name);
      add_bodies(writing, attribute->graph);
    }
  }
}

void model_explorer_write(Job *job, const PageModels *models, const Profile *profile) {
  const Model *model = models->indexes[0]->model;
  Writing writing = {.context = &job->context, .models = models, .profile = profile};
  builder_init(&writing.json, &job->context);
  builder_add(&writing.json, "{");
  add_graph(&writing, model->graph, model->graph->name && *model->graph->name ? model->graph->name : "<main>");
  add_bodies(&writing, model->graph);
  for (size_t i = 0; i < model->functions.count; i++) {
    const Function *function = model->functions.items[i];
    const char *name = arena_format(&job->context.arena, "[function]%s::%s", function->domain, function->name);
    add_graph(&writing, function->body, name);
    add_bodies(&writing, function->body);
  }
  builder_add(&writing.json, "\n}\n");
  Segment segment = {builder_text(&writing.json), writing.json.length};
  job_write(job, job->model_explorer, &segment, 1);
}
