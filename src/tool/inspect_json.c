/* j2o inspect --json: everything, for programs. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/spelling.h"
#include "onnx/file/read.h"
#include "tool/tool.h"

/* JSON has no word for these numbers: they are strings. */
static void add_float(Report *report, float value) {
  if (!isfinite(value)) report_add(report, "\"");
  spell_float(&report->line, value);
  if (!isfinite(value)) report_add(report, "\"");
}

static void add_metadata(Report *report, const Metadata *items, size_t count) {
  report_add(report, "[");
  for (size_t i = 0; i < count; i++) {
    report_add(report, i ? ", {\"key\": " : "{\"key\": ");
    json_name(report, items[i].key);
    json_key(report, "value");
    json_name(report, items[i].value);
    report_add(report, "}");
  }
  report_add(report, "]");
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

static void add_value(Report *report, const Model *model, const Value *value) {
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
    add_tensor(report, model, value->tensor);
  }
  if (value->metadata.count) {
    json_key(report, "metadata");
    add_metadata(report, value->metadata.items, value->metadata.count);
  }
  report_add(report, "}");
}

static void add_graph(Report *report, const Graph *graph);

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

static void add_attribute(Report *report, const Model *model, const Attribute *attribute) {
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
    case ATTRIBUTE_TENSOR: add_tensor(report, model, attribute->tensor); break;
    case ATTRIBUTE_GRAPH: add_graph(report, attribute->graph); break;
    case ATTRIBUTE_OTHER: report_add(report, "null"); break;
    default: add_list(report, attribute); break;
  }
  report_add(report, "}");
}

static void add_node(Report *report, const Model *model, const Node *node) {
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
    add_value(report, model, node->outputs[i]);
  }
  report_add(report, "], \"attributes\": [");
  for (size_t i = 0; i < node->attributes.count; i++) {
    if (i) report_add(report, ", ");
    add_attribute(report, model, &node->attributes.items[i]);
  }
  report_add(report, "], \"metadata\": ");
  add_metadata(report, node->metadata.items, node->metadata.count);
  report_add(report, "}");
  report_flush(report);
}

void inspect_json_node(Report *report, const Node *node) { add_node(report, node->graph->model, node); }

static void add_graph(Report *report, const Graph *graph) {
  const Model *model = graph->model;
  report_add(report, "{\"name\": ");
  json_name(report, graph->name);
  report_add(report, ", \"inputs\": [");
  for (size_t i = 0; i < graph->inputs.count; i++) {
    if (i) report_add(report, ", ");
    add_value(report, model, graph->inputs.items[i]);
  }
  report_add(report, "], \"outputs\": [");
  for (size_t i = 0; i < graph->outputs.count; i++) {
    if (i) report_add(report, ", ");
    add_value(report, model, graph->outputs.items[i]->value);
  }
  report_add(report, "], \"initializers\": [");
  for (size_t i = 0; i < graph->initializers.count; i++) {
    if (i) report_add(report, ",\n");
    add_value(report, model, graph->initializers.items[i]);
    report_flush(report);
  }
  report_add(report, "], \"nodes\": [\n");
  FOR_EACH_NODE(node, graph) {
    add_node(report, model, node);
    report_add(report, node->next ? ",\n" : "\n");
  }
  report_add(report, "]}");
}

static void add_function(Report *report, const Function *function) {
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
  add_metadata(report, function->metadata.items, function->metadata.count);
  json_key(report, "body");
  add_graph(report, function->body);
  report_add(report, "}");
}

void inspect_json(Report *report, const char *path, const Model *model) {
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
  add_metadata(report, model->metadata.items, model->metadata.count);
  json_key(report, "graph");
  add_graph(report, model->graph);
  report_add(report, ", \"functions\": [");
  for (size_t i = 0; i < model->functions.count; i++) {
    if (i) report_add(report, ",\n");
    add_function(report, model->functions.items[i]);
  }
  report_add(report, "]}\n");
  report_flush(report);
}
