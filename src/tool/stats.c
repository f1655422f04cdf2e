/* j2o stats: where the bytes of a model are. Counted on the wire, so that every byte is in exactly one place. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "onnx/facts/schema_fields.h"
#include "onnx/file/metadata_edit.h"
#include "onnx/file/wire.h"
#include "tool/stats.h"
#include "tool/tally.h"

enum { DEFAULT_TOP = 10, MAX_GRAPH_DEPTH = 64 };

typedef struct BigTensor {
  Str name;
  Type type;
  uint64_t bytes;
  Str location; /* of external data; else NULL */
} BigTensor;

typedef struct Stats {
  Job *job;
  const Model *model;
  uint64_t total, tensors, metadata, external; /* external is beside the total */
  Tallies operators, keys;
  ARRAY(BigTensor) big;
  size_t tensor_count;
} Stats;

/* ---- the wire ---- */

typedef struct Parts {
  uint64_t tensors, metadata;
} Parts;

static Str entry_key(Stats *stats, Wire message) {
  Str key = str_intern(&stats->job->context, "");
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key != AS_BYTES(FIELD_ENTRY_KEY)) continue;
    key = str_intern_sized(&stats->job->context, (const char *)field.data, field.size);
  }
  return key;
}

static void count_metadata(Stats *stats, Parts *parts, const Wire *wire, const Field *field, size_t size) {
  Tally *tally = tally_count(&stats->job->context, &stats->keys, entry_key(stats, wire_inside(wire, field)), 0);
  tally->bytes += size;
  parts->metadata += size;
}

static Parts count_graph(Stats *stats, Wire message, unsigned depth);

static void count_attribute(Stats *stats, Parts *parts, Wire message, unsigned depth) {
  Field field;
  for (;;) {
    const unsigned char *start = message.at;
    if (!wire_next(&message, &field)) return;
    bool is_graph = field.key == AS_BYTES(FIELD_ATTRIBUTE_G) || field.key == AS_BYTES(FIELD_ATTRIBUTE_GRAPHS);
    bool is_tensor = field.key == AS_BYTES(FIELD_ATTRIBUTE_T) || field.key == AS_BYTES(FIELD_ATTRIBUTE_TENSORS);
    if (is_tensor) parts->tensors += (uint64_t)(message.at - start);
    if (!is_graph) continue;
    Parts inside = count_graph(stats, wire_inside(&message, &field), depth + 1);
    parts->tensors += inside.tensors;
    parts->metadata += inside.metadata;
  }
}

static Str node_operator(Stats *stats, Wire message) {
  Context *context = &stats->job->context;
  Node node = {.op_type = str_intern(context, ""), .domain = str_intern(context, "")};
  Field field;
  while (wire_next(&message, &field)) {
    const char *text = (const char *)field.data;
    if (field.key == AS_BYTES(FIELD_NODE_OP_TYPE)) node.op_type = str_intern_sized(context, text, field.size);
    if (field.key == AS_BYTES(FIELD_NODE_DOMAIN)) node.domain = str_intern_sized(context, text, field.size);
  }
  return operator_name(context, &node);
}

static Parts count_node(Stats *stats, Wire message, size_t size, unsigned depth) {
  Parts parts = {0};
  Tally *tally = tally_count(&stats->job->context, &stats->operators, node_operator(stats, message), 0);
  Field field;
  for (;;) {
    const unsigned char *start = message.at;
    if (!wire_next(&message, &field)) break;
    if (field.key == AS_BYTES(FIELD_NODE_METADATA_PROPS)) {
      count_metadata(stats, &parts, &message, &field, (size_t)(message.at - start));
    } else if (field.key == AS_BYTES(FIELD_NODE_ATTRIBUTE)) {
      count_attribute(stats, &parts, wire_inside(&message, &field), depth);
    }
  }
  /* The nodes of a body are counted on their own too: an If is as large as what it holds. */
  tally->bytes += size - parts.metadata - parts.tensors;
  tally->more_bytes += parts.metadata;
  return parts;
}

static Parts count_tensor(Stats *stats, Wire message, size_t size) {
  Parts parts = {0};
  Field field;
  for (;;) {
    const unsigned char *start = message.at;
    if (!wire_next(&message, &field)) break;
    if (field.key != AS_BYTES(FIELD_TENSOR_METADATA_PROPS)) continue;
    count_metadata(stats, &parts, &message, &field, (size_t)(message.at - start));
  }
  parts.tensors = size - parts.metadata;
  return parts;
}

static Parts count_graph(Stats *stats, Wire message, unsigned depth) {
  Parts parts = {0};
  Field field;
  if (depth > MAX_GRAPH_DEPTH) wire_fail(&message, message.at, "graphs are nested too deeply");
  for (;;) {
    const unsigned char *start = message.at;
    if (!wire_next(&message, &field)) return parts;
    size_t size = (size_t)(message.at - start);
    switch (field.key) {
      case AS_BYTES(FIELD_GRAPH_NODE): {
        Parts inside = count_node(stats, wire_inside(&message, &field), size, depth);
        parts.tensors += inside.tensors;
        parts.metadata += inside.metadata;
        break;
      }
      case AS_BYTES(FIELD_GRAPH_INITIALIZER): {
        Parts inside = count_tensor(stats, wire_inside(&message, &field), size);
        parts.tensors += inside.tensors;
        parts.metadata += inside.metadata;
        break;
      }
      case AS_BYTES(FIELD_GRAPH_SPARSE_INITIALIZER): parts.tensors += size; break;
      case AS_BYTES(FIELD_GRAPH_METADATA_PROPS): count_metadata(stats, &parts, &message, &field, size); break;
      default: break;
    }
  }
}

static Parts count_function(Stats *stats, Wire message) {
  Parts parts = {0};
  Field field;
  for (;;) {
    const unsigned char *start = message.at;
    if (!wire_next(&message, &field)) return parts;
    size_t size = (size_t)(message.at - start);
    if (field.key == AS_BYTES(FIELD_FUNCTION_METADATA_PROPS)) {
      count_metadata(stats, &parts, &message, &field, size);
    } else if (field.key == AS_BYTES(FIELD_FUNCTION_NODE)) {
      Parts inside = count_node(stats, wire_inside(&message, &field), size, 0);
      parts.tensors += inside.tensors;
      parts.metadata += inside.metadata;
    }
  }
}

static void count_model(Stats *stats, const MappedFile *file) {
  Wire message = {&stats->job->context, file->data, file->data, file->data + file->size};
  Field field;
  stats->total = file->size;
  for (;;) {
    const unsigned char *start = message.at;
    if (!wire_next(&message, &field)) return;
    Parts parts = {0};
    if (field.key == AS_BYTES(FIELD_MODEL_METADATA_PROPS)) {
      count_metadata(stats, &parts, &message, &field, (size_t)(message.at - start));
    } else if (field.key == AS_BYTES(FIELD_MODEL_GRAPH)) {
      parts = count_graph(stats, wire_inside(&message, &field), 0);
    } else if (field.key == AS_BYTES(FIELD_MODEL_FUNCTIONS)) {
      parts = count_function(stats, wire_inside(&message, &field));
    }
    stats->tensors += parts.tensors;
    stats->metadata += parts.metadata;
  }
}

/* ---- tensors ---- */

static void add_tensor(Stats *stats, Str name, const Tensor *tensor) {
  Context *context = &stats->job->context;
  const StoredTensor *stored = tensor_stored(stats->model, tensor);
  BigTensor big = {.name = name, .type = tensor_type(context, tensor), .bytes = tensor->size};
  if (stored && stored->location) {
    big.location = stored->location;
    if (stored->length) big.bytes = stored->length;
    if (__builtin_add_overflow(stats->external, big.bytes, &stats->external)) stats->external = UINT64_MAX;
  }
  stats->tensor_count++;
  array_push(context, &stats->big, big);
}

static void add_tensors(Graph *graph, void *data) {
  Stats *stats = data;
  for (size_t i = 0; i < graph->initializers.count; i++) {
    add_tensor(stats, graph->initializers.items[i]->name, graph->initializers.items[i]->tensor);
  }
  FOR_EACH_NODE(node, graph) {
    for (size_t i = 0; i < node->attributes.count; i++) {
      const Attribute *attribute = &node->attributes.items[i];
      if (attribute->kind != ATTRIBUTE_TENSOR || attribute->reference || !attribute->tensor) continue;
      const Value *made = node->output_count ? node->outputs[0] : NULL;
      add_tensor(stats, made ? made->name : node->name, attribute->tensor);
    }
  }
}

static int by_size(const void *a, const void *b) {
  const BigTensor *first = a, *second = b;
  if (first->bytes != second->bytes) return first->bytes < second->bytes ? 1 : -1;
  return str_compare(first->name, second->name);
}

static int by_bytes(const void *a, const void *b) {
  const Tally *first = *(Tally *const *)a, *second = *(Tally *const *)b;
  uint64_t one = first->bytes + first->more_bytes, two = second->bytes + second->more_bytes;
  if (one != two) return one < two ? 1 : -1;
  return str_compare(first->key, second->key);
}

static void sort_by_bytes(Tallies *tallies) {
  sort_items(tallies->items.items, tallies->items.count, sizeof(Tally *), by_bytes);
}

/* What this project's exports and PyTorch's write about where things came from. */
static uint64_t provenance_bytes(const Stats *stats) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < stats->keys.items.count; i++) {
    const Tally *tally = stats->keys.items.items[i];
    bool ours = str_begins(tally->key, METADATA_PREFIX) || is_reference_key(tally->key, str_length(tally->key));
    bool is_module = str_is(tally->key, METADATA_NAMESPACE);
    if (ours || is_module || str_begins(tally->key, TORCH_PREFIX)) bytes += tally->bytes;
  }
  return bytes;
}

/* ---- output ---- */

static void add_row(Report *report, const char *name, uint64_t bytes, uint64_t total) {
  builder_format(&report->line, "  %-12s%14" PRIu64 "  ", name, bytes);
  size_t start = report->line.length;
  report_size(report, bytes);
  report_columns(report, start, 12);
  if (total) builder_format(&report->line, "%5.1f %%", 100.0 * (double)bytes / (double)total);
  report_add(report, "\n");
}

static void add_operators(Report *report, const Tallies *operators) {
  report_add(report, "\n");
  report_heading(report, "operators, with their bodies");
  report_add(report, "\n     nodes     bytes  metadata\n");
  for (size_t i = 0; i < operators->items.count; i++) {
    const Tally *tally = operators->items.items[i];
    builder_format(&report->line, "  %8zu%10" PRIu64 "%10" PRIu64 "  ", tally->count, tally->bytes, tally->more_bytes);
    report_colored(report, COLOR_OPERATOR, tally->key);
    report_add(report, "\n");
  }
}

static void add_keys(Report *report, const Tallies *keys) {
  if (!keys->items.count) return;
  report_add(report, "\n");
  report_heading(report, "metadata");
  report_add(report, "\n   entries     bytes\n");
  for (size_t i = 0; i < keys->items.count; i++) {
    const Tally *tally = keys->items.items[i];
    builder_format(&report->line, "  %8zu%10" PRIu64 "  ", tally->count, tally->bytes);
    report_name(report, tally->key);
    report_add(report, "\n");
  }
}

static void add_big(Report *report, const Stats *stats, size_t top) {
  if (!stats->big.count || !top) return;
  report_add(report, "\n");
  report_heading(report, "largest tensors");
  builder_format(&report->line, " (of %zu)\n", stats->tensor_count);
  for (size_t i = 0; i < stats->big.count && i < top; i++) {
    const BigTensor *big = &stats->big.items[i];
    size_t start = report->line.length;
    report_add(report, "  ");
    report_size(report, big->bytes);
    report_columns(report, start, 13);
    report_name(report, big->name);
    report_add(report, " ");
    report_type(report, big->type);
    if (big->location) {
      report_add(report, " in ");
      report_name(report, big->location);
    }
    report_add(report, "\n");
  }
}

static void json_bytes(Report *report, const Tallies *tallies, const char *key, bool with_metadata) {
  report_add(report, "[");
  for (size_t i = 0; i < tallies->items.count; i++) {
    const Tally *tally = tallies->items.items[i];
    builder_format(&report->line, i ? ", {\"%s\": " : "{\"%s\": ", key);
    json_name(report, tally->key);
    json_count(report, "count", tally->count);
    json_count(report, "bytes", tally->bytes);
    if (with_metadata) json_count(report, "metadata_bytes", tally->more_bytes);
    report_add(report, "}");
  }
  report_add(report, "]");
}

static void json_stats(Report *report, const Stats *stats, size_t top) {
  report_add(report, "{\"file\": ");
  json_text(report, stats->job->path, strlen(stats->job->path));
  json_count(report, "bytes", stats->total);
  json_count(report, "graph", stats->total - stats->tensors - stats->metadata);
  json_count(report, "tensors", stats->tensors);
  json_count(report, "metadata", stats->metadata);
  json_count(report, "external", stats->external);
  report_add(report, ", \"operators\": ");
  json_bytes(report, &stats->operators, "operator", true);
  report_add(report, ", \"metadata_keys\": ");
  json_bytes(report, &stats->keys, "key", false);
  json_count(report, "tensor_count", stats->tensor_count);
  report_add(report, ", \"largest_tensors\": [");
  for (size_t i = 0; i < stats->big.count && i < top; i++) {
    const BigTensor *big = &stats->big.items[i];
    report_add(report, i ? ", {\"name\": " : "{\"name\": ");
    json_name(report, big->name);
    json_count(report, "bytes", big->bytes);
    json_key(report, "type");
    json_type(report, big->type);
    json_key(report, "location");
    json_name(report, big->location);
    report_add(report, "}");
  }
  report_add(report, "]}\n");
}

void run_stats(Job *job) {
  const MappedFile *file = job_file(job, 0);
  Model *model = model_read(&job->context, file->data, file->size);
  Stats stats = {.job = job, .model = model};
  size_t top = job->top ? strtoul(job->top, NULL, 10) : DEFAULT_TOP;
  count_model(&stats, file);
  if (job->provenance) {
    model_unfold(model, job->limit);
    if (job->original) job_graft(job, model);
    stats_provenance(job, model, provenance_bytes(&stats));
    return;
  }
  model_each_graph(model, add_tensors, &stats);
  sort_items(stats.big.items, stats.big.count, sizeof *stats.big.items, by_size);
  sort_by_bytes(&stats.operators);
  sort_by_bytes(&stats.keys);
  Report *report = &job->report;
  if (job->json) {
    json_stats(report, &stats, top);
    return;
  }
  report_color(report, COLOR_HEAD);
  report_text(report, job->path, strlen(job->path));
  report_color(report, COLOR_PLAIN);
  report_add(report, "\n");
  add_row(report, "graph", stats.total - stats.tensors - stats.metadata, stats.total);
  add_row(report, "tensors", stats.tensors, stats.total);
  add_row(report, "metadata", stats.metadata, stats.total);
  add_row(report, "file", stats.total, 0);
  if (stats.external) add_row(report, "other files", stats.external, 0);
  add_operators(report, &stats.operators);
  add_keys(report, &stats.keys);
  add_big(report, &stats, top);
}
