/* j2o inspect --json: everything, for programs. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/spelling.h"
#include "onnx/file/read.h"
#include "tool/index.h"
#include "tool/source.h"

/* JSON has no word for these numbers: they are strings. */
static void add_float(Report *report, float value) {
  if (!isfinite(value)) report_add(report, "\"");
  spell_float(&report->line, value);
  if (!isfinite(value)) report_add(report, "\"");
}

static void add_metadata(Report *report, const MetadataList *list) {
  report_add(report, "[");
  for (size_t i = 0; i < list->count; i++) {
    report_add(report, i ? ", {\"key\": " : "{\"key\": ");
    json_name(report, list->items[i].key);
    json_key(report, "value");
    json_name(report, list->items[i].value);
    report_add(report, "}");
  }
  report_add(report, "]");
}

/* The row of the document's origins, and the module. */
static void add_origin(Report *report, const Item *item) {
  if (!item) return;
  json_key(report, "origin");
  if (item->origin == NO_ROW) report_add(report, "null");
  else builder_format(&report->line, "%u", item->origin);
  json_key(report, "module");
  json_name(report, item->module);
  if (item->fused_modules) {
    json_key(report, "fused_modules");
    json_lines_of(report, item->fused_modules);
  }
}

static void add_tensor(Report *report, const Model *model, const Tensor *tensor) {
  if (!tensor) {
    report_add(report, "null");
    return;
  }
  report_add(report, "{\"type\": ");
  json_type(report, tensor_type(report->context, tensor));
  builder_format(&report->line, ", \"bytes\": %zu", tensor->size);
  const StoredTensor *stored = tensor_stored(model, tensor);
  if (stored && stored->location) {
    report_add(report, ", \"external\": {\"location\": ");
    json_name(report, stored->location);
    builder_format(&report->line, ", \"offset\": %" PRIu64 ", \"length\": %" PRIu64 "}", stored->offset,
                   stored->length);
  }
  report_add(report, "}");
}

static void add_value(Report *report, const OriginIndex *index, const Value *value) {
  if (!value) {
    report_add(report, "null");
    return;
  }
  report_add(report, "{\"name\": ");
  json_name(report, value->name);
  json_key(report, "type");
  json_type(report, value->type);
  if (value->tensor) {
    json_key(report, "tensor");
    add_tensor(report, index->model, value->tensor);
    json_key(report, "metadata");
    add_metadata(report, &value->metadata);
    add_origin(report, value_item(index, value));
  }
  report_add(report, "}");
}

static void add_graph(Report *report, const OriginIndex *index, const Graph *graph);

static void add_list(Report *report, const Attribute *attribute) {
  report_add(report, "[");
  for (size_t i = 0; i < attribute->count; i++) {
    if (i) report_add(report, ", ");
    if (attribute->kind == ATTRIBUTE_INTS) builder_format(&report->line, "%" PRId64, attribute->integers[i]);
    else if (attribute->kind == ATTRIBUTE_FLOATS) add_float(report, attribute->reals[i]);
    else json_name(report, attribute->strings[i]);
  }
  report_add(report, "]");
}

static void add_attribute(Report *report, const OriginIndex *index, const Attribute *attribute) {
  static const char *const kinds[] = {
      [ATTRIBUTE_INT] = "int",       [ATTRIBUTE_FLOAT] = "float",     [ATTRIBUTE_STRING] = "string",
      [ATTRIBUTE_TENSOR] = "tensor", [ATTRIBUTE_GRAPH] = "graph",     [ATTRIBUTE_INTS] = "ints",
      [ATTRIBUTE_FLOATS] = "floats", [ATTRIBUTE_STRINGS] = "strings", [ATTRIBUTE_OTHER] = "other",
  };
  report_add(report, "{\"name\": ");
  json_name(report, attribute->name);
  builder_format(&report->line, ", \"kind\": \"%s\"", kinds[attribute->kind]);
  if (attribute->reference) {
    json_key(report, "reference");
    json_name(report, attribute->reference);
    report_add(report, "}");
    return;
  }
  json_key(report, "value");
  switch (attribute->kind) {
    case ATTRIBUTE_INT: builder_format(&report->line, "%" PRId64, attribute->integer); break;
    case ATTRIBUTE_FLOAT: add_float(report, attribute->real); break;
    case ATTRIBUTE_STRING: json_text(report, attribute->string, attribute->count); break;
    case ATTRIBUTE_TENSOR: add_tensor(report, index->model, attribute->tensor); break;
    case ATTRIBUTE_GRAPH: add_graph(report, index, attribute->graph); break;
    case ATTRIBUTE_OTHER: report_add(report, "null"); break;
    default: add_list(report, attribute); break;
  }
  report_add(report, "}");
}

static void add_node(Report *report, const OriginIndex *index, const Node *node) {
  report_add(report, "{\"name\": ");
  json_name(report, node->name);
  json_key(report, "op_type");
  json_name(report, node->op_type);
  json_key(report, "domain");
  json_name(report, node->domain);
  json_key(report, "inputs");
  report_add(report, "[");
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (i) report_add(report, ", ");
    json_name(report, node->inputs[i].value ? node->inputs[i].value->name : NULL);
  }
  report_add(report, "], \"outputs\": [");
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (i) report_add(report, ", ");
    add_value(report, index, node->outputs[i]);
  }
  report_add(report, "], \"attributes\": [");
  for (size_t i = 0; i < node->attributes.count; i++) {
    if (i) report_add(report, ", ");
    add_attribute(report, index, &node->attributes.items[i]);
  }
  report_add(report, "], \"metadata\": ");
  add_metadata(report, &node->metadata);
  add_origin(report, node_item(index, node));
  report_add(report, "}");
}

static void add_graph(Report *report, const OriginIndex *index, const Graph *graph) {
  report_add(report, "{\"name\": ");
  json_name(report, graph->name);
  report_add(report, ", \"inputs\": [");
  for (size_t i = 0; i < graph->inputs.count; i++) {
    if (i) report_add(report, ", ");
    add_value(report, index, graph->inputs.items[i]);
  }
  report_add(report, "], \"outputs\": [");
  for (size_t i = 0; i < graph->outputs.count; i++) {
    if (i) report_add(report, ", ");
    add_value(report, index, graph->outputs.items[i]->value);
  }
  report_add(report, "], \"initializers\": [");
  for (size_t i = 0; i < graph->initializers.count; i++) {
    if (i) report_add(report, ",\n");
    add_value(report, index, graph->initializers.items[i]);
    report_flush(report);
  }
  report_add(report, "], \"nodes\": [\n");
  FOR_EACH_NODE(node, graph) {
    add_node(report, index, node);
    report_add(report, node->next ? ",\n" : "\n");
    report_flush(report);
  }
  report_add(report, "]}");
}

static void add_function(Report *report, const OriginIndex *index, const Function *function) {
  report_add(report, "{\"name\": ");
  json_name(report, function->name);
  json_key(report, "domain");
  json_name(report, function->domain);
  report_add(report, ", \"attributes\": [");
  for (size_t i = 0; i < function->attributes.count; i++) {
    if (i) report_add(report, ", ");
    json_name(report, function->attributes.items[i]);
  }
  report_add(report, "], \"metadata\": ");
  add_metadata(report, &function->metadata);
  json_key(report, "body");
  add_graph(report, index, function->body);
  report_add(report, "}");
}

/* ---- origins ---- */

static void add_frames(Report *report, const Chain *chain) {
  report_add(report, "[");
  for (size_t i = 0; i < chain->count; i++) builder_format(&report->line, i ? ", %u" : "%u", chain->frames[i]);
  report_add(report, "]");
}

/* [[frame, relation], …]: every line that the origin belongs to. */
static void add_passed(Report *report, const IndexOrigin *origin) {
  report_add(report, ", \"lines\": [");
  for (size_t i = 0; i < origin->passed.count; i++) {
    const Passed *passed = &origin->passed.items[i];
    builder_format(&report->line, "%s[%u, \"%s\"]", i ? ", " : "", passed->frame, relation_names[passed->relation]);
  }
  report_add(report, "]");
}

static void add_origins(Report *report, const OriginIndex *index) {
  report_add(report, ", \"frames\": [");
  for (size_t i = 0; i < index->frames.count; i++) {
    const IndexFrame *frame = &index->frames.items[i];
    const IndexLine *line = &index->lines.items[frame->line];
    report_add(report, i ? ",\n{\"file\": " : "\n{\"file\": ");
    json_name(report, line->file);
    json_count(report, "line", line->number);
    json_key(report, "function");
    json_name(report, frame->function);
    report_add(report, line->is_library ? ", \"library\": true}" : ", \"library\": false}");
    report_flush(report);
  }
  report_add(report, "], \"origins\": [");
  for (size_t i = 0; i < index->origins.count; i++) {
    const IndexOrigin *origin = &index->origins.items[i];
    report_add(report, i ? ",\n{\"place\": " : "\n{\"place\": ");
    if (origin->frame == NO_ROW) report_add(report, "null");
    else builder_format(&report->line, "%u", origin->frame);
    add_passed(report, origin);
    report_add(report, ", \"traces\": [");
    for (size_t k = 0; k < origin->chains.count; k++) {
      if (k) report_add(report, ", ");
      add_frames(report, &origin->chains.items[k]);
    }
    report_add(report, "]}");
    report_flush(report);
  }
  report_add(report, "]");
}

static void add_removed(Report *report, const Item *item) {
  report_add(report, "{\"pass\": ");
  json_name(report, item->pass);
  json_key(report, "reason");
  json_name(report, item->reason);
  add_origin(report, item);
  report_add(report, "}");
}

static void add_all_removed(Report *report, const OriginIndex *index) {
  size_t shown = 0;
  report_add(report, ", \"removed\": [");
  for (size_t i = 0; i < index->items.count; i++) {
    if (index->items.items[i].kind != INDEX_REMOVED) continue;
    if (shown++) report_add(report, ",\n");
    add_removed(report, &index->items.items[i]);
    report_flush(report);
  }
  report_add(report, "]");
}

/* ---- one item ---- */

static void add_place(Report *report, Place place) {
  if (!place.function) {
    report_add(report, "null");
    return;
  }
  report_add(report, "{\"file\": ");
  json_name(report, place.file);
  json_key(report, "function");
  json_name(report, place.function);
  json_count(report, "line", place.line);
  report_add(report, "}");
}

void inspect_json_item(Report *report, const OriginIndex *index, const Item *item, const char *relation) {
  if (item->kind == INDEX_NODE) add_node(report, index, item->node);
  else if (item->kind == INDEX_INITIALIZER) add_value(report, index, item->value);
  else add_removed(report, item);
  report->line.length--; /* one more for the object */
  json_key(report, "place");
  add_place(report, item->place);
  if (relation) builder_format(&report->line, ", \"relation\": \"%s\"", relation);
  report_add(report, "}");
}

/* ---- the model ---- */

void inspect_json(Report *report, const char *path, const OriginIndex *index, Job *job) {
  const Model *model = index->model;
  report_add(report, "{\"file\": ");
  json_text(report, path, strlen(path));
  builder_format(&report->line, ", \"ir_version\": %" PRId64 ", \"opset\": %" PRId64, model->ir_version, model->opset);
  report_add(report, ", \"opset_imports\": [");
  for (size_t i = 0; i < model->opsets.count; i++) {
    report_add(report, i ? ", {\"domain\": " : "{\"domain\": ");
    json_name(report, model->opsets.items[i].domain);
    builder_format(&report->line, ", \"version\": %" PRId64 "}", model->opsets.items[i].version);
  }
  report_add(report, "], \"producer_name\": ");
  json_name(report, model->producer_name);
  json_key(report, "producer_version");
  json_name(report, model->producer_version);
  json_key(report, "metadata");
  add_metadata(report, &model->metadata);
  json_key(report, "graph");
  add_graph(report, index, model->graph);
  report_add(report, ", \"functions\": [");
  for (size_t i = 0; i < model->functions.count; i++) {
    if (i) report_add(report, ",\n");
    add_function(report, index, model->functions.items[i]);
  }
  report_add(report, "]");
  add_all_removed(report, index);
  add_origins(report, index);
  if (job) json_sources(job);
  report_add(report, "}\n");
  report_flush(report);
}
