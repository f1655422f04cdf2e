/* j2o inspect --json: everything, for programs. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/spelling.h"
#include "onnx/read.h"
#include "tool/tool.h"

static void add(Report *report, const char *text) { builder_add(&report->line, text); }
static void add_string(Report *report, const char *text, size_t length) {
  spell_text(&report->line, SPELL_JSON, text, length);
}
static void add_name(Report *report, Str text) {
  if (text) add_string(report, text, str_length(text));
  else add(report, "null");
}

/* A key after others; the first one of an object is written by hand. */
static void add_key(Report *report, const char *key) { builder_format(&report->line, ", \"%s\": ", key); }

/* JSON has no word for these numbers: they are strings. */
static void add_float(Report *report, float value) {
  if (!isfinite(value)) add(report, "\"");
  spell_float(&report->line, value);
  if (!isfinite(value)) add(report, "\"");
}

static void add_metadata(Report *report, const Metadata *items, size_t count) {
  add(report, "[");
  for (size_t i = 0; i < count; i++) {
    add(report, i ? ", {\"key\": " : "{\"key\": ");
    add_name(report, items[i].key);
    add_key(report, "value");
    add_name(report, items[i].value);
    add(report, "}");
  }
  add(report, "]");
}

static void add_type(Report *report, Type type) {
  if (type.dtype == DTYPE_NONE) {
    add(report, "null");
    return;
  }
  builder_format(&report->line, "{\"dtype\": \"%s\"", dtype_name(type.dtype));
  add_key(report, "shape");
  if (type_is_unranked(type)) {
    add(report, "null}");
    return;
  }
  add(report, "[");
  for (uint32_t i = 0; i < type.rank; i++) {
    if (i) add(report, ", ");
    const char *text = dim_text(report->context, type.dims[i]);
    if (dim_is_constant(type.dims[i])) add(report, text);
    else if (strcmp(text, UNKNOWN_DIMENSION) == 0) add(report, "null");
    else add_string(report, text, strlen(text));
  }
  add(report, "]}");
}

static void add_tensor(Report *report, const Model *model, const Tensor *tensor) {
  if (!tensor) {
    add(report, "null");
    return;
  }
  add(report, "{\"type\": ");
  add_type(report, tensor_type(report->context, tensor));
  builder_format(&report->line, ", \"bytes\": %zu", tensor->size);
  const StoredTensor *stored = tensor_stored(model, tensor);
  if (stored && stored->location) {
    add(report, ", \"external\": {\"location\": ");
    add_name(report, stored->location);
    builder_format(&report->line, ", \"offset\": %" PRIu64 ", \"length\": %" PRIu64 "}", stored->offset,
                   stored->length);
  }
  add(report, "}");
}

static void add_value(Report *report, const Model *model, const Value *value) {
  if (!value) {
    add(report, "null");
    return;
  }
  add(report, "{\"name\": ");
  add_name(report, value->name);
  add_key(report, "type");
  add_type(report, value->type);
  if (value->tensor) {
    add_key(report, "tensor");
    add_tensor(report, model, value->tensor);
  }
  add(report, "}");
}

static void add_graph(Report *report, const Graph *graph);

static void add_list(Report *report, const Attribute *attribute) {
  add(report, "[");
  for (size_t i = 0; i < attribute->count; i++) {
    if (i) add(report, ", ");
    if (attribute->kind == ATTRIBUTE_INTS) builder_format(&report->line, "%" PRId64, attribute->integers[i]);
    else if (attribute->kind == ATTRIBUTE_FLOATS) add_float(report, attribute->reals[i]);
    else add_name(report, attribute->strings[i]);
  }
  add(report, "]");
}

static void add_attribute(Report *report, const Model *model, const Attribute *attribute) {
  static const char *const kinds[] = {
      [ATTRIBUTE_INT] = "int", [ATTRIBUTE_FLOAT] = "float", [ATTRIBUTE_STRING] = "string",
      [ATTRIBUTE_TENSOR] = "tensor", [ATTRIBUTE_GRAPH] = "graph", [ATTRIBUTE_INTS] = "ints",
      [ATTRIBUTE_FLOATS] = "floats", [ATTRIBUTE_STRINGS] = "strings", [ATTRIBUTE_OTHER] = "other",
  };
  add(report, "{\"name\": ");
  add_name(report, attribute->name);
  builder_format(&report->line, ", \"kind\": \"%s\"", kinds[attribute->kind]);
  if (attribute->reference) {
    add_key(report, "reference");
    add_name(report, attribute->reference);
    add(report, "}");
    return;
  }
  add_key(report, "value");
  switch (attribute->kind) {
    case ATTRIBUTE_INT: builder_format(&report->line, "%" PRId64, attribute->integer); break;
    case ATTRIBUTE_FLOAT: add_float(report, attribute->real); break;
    case ATTRIBUTE_STRING: add_string(report, attribute->string, attribute->count); break;
    case ATTRIBUTE_TENSOR: add_tensor(report, model, attribute->tensor); break;
    case ATTRIBUTE_GRAPH: add_graph(report, attribute->graph); break;
    case ATTRIBUTE_OTHER: add(report, "null"); break;
    default: add_list(report, attribute); break;
  }
  add(report, "}");
}

static void add_node(Report *report, const Model *model, const Node *node) {
  add(report, "{\"name\": ");
  add_name(report, node->name);
  add_key(report, "op_type");
  add_name(report, node->op);
  add_key(report, "domain");
  add_name(report, node->domain);
  add_key(report, "inputs");
  add(report, "[");
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (i) add(report, ", ");
    add_name(report, node->inputs[i].value ? node->inputs[i].value->name : NULL);
  }
  add(report, "], \"outputs\": [");
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (i) add(report, ", ");
    add_value(report, model, node->outputs[i]);
  }
  add(report, "], \"attributes\": [");
  for (size_t i = 0; i < node->attributes.count; i++) {
    if (i) add(report, ", ");
    add_attribute(report, model, &node->attributes.items[i]);
  }
  add(report, "], \"metadata\": ");
  add_metadata(report, node->metadata.items, node->metadata.count);
  add(report, "}");
  report_flush(report);
}

static void add_graph(Report *report, const Graph *graph) {
  const Model *model = graph->model;
  add(report, "{\"name\": ");
  add_name(report, graph->name);
  add(report, ", \"inputs\": [");
  for (size_t i = 0; i < graph->inputs.count; i++) {
    if (i) add(report, ", ");
    add_value(report, model, graph->inputs.items[i]);
  }
  add(report, "], \"outputs\": [");
  for (size_t i = 0; i < graph->outputs.count; i++) {
    if (i) add(report, ", ");
    add_value(report, model, graph->outputs.items[i]->value);
  }
  add(report, "], \"initializers\": [");
  for (size_t i = 0; i < graph->initializers.count; i++) {
    if (i) add(report, ",\n");
    add_value(report, model, graph->initializers.items[i]);
    report_flush(report);
  }
  add(report, "], \"nodes\": [\n");
  FOR_EACH_NODE(node, graph) {
    add_node(report, model, node);
    add(report, node->next ? ",\n" : "\n");
  }
  add(report, "]}");
}

static void add_function(Report *report, const Function *function) {
  add(report, "{\"name\": ");
  add_name(report, function->name);
  add_key(report, "domain");
  add_name(report, function->domain);
  add(report, ", \"attributes\": [");
  for (size_t i = 0; i < function->attributes.count; i++) {
    if (i) add(report, ", ");
    add_name(report, function->attributes.items[i]);
  }
  add(report, "], \"metadata\": ");
  add_metadata(report, function->metadata.items, function->metadata.count);
  add_key(report, "body");
  add_graph(report, function->body);
  add(report, "}");
}

void inspect_json(Report *report, const char *path, const Model *model) {
  add(report, "{\"file\": ");
  add_string(report, path, strlen(path));
  builder_format(&report->line, ", \"ir_version\": %" PRId64 ", \"opset\": %" PRId64, model->ir_version, model->opset);
  add(report, ", \"opset_imports\": [");
  for (size_t i = 0; i < model->opsets.count; i++) {
    add(report, i ? ", {\"domain\": " : "{\"domain\": ");
    add_name(report, model->opsets.items[i].domain);
    builder_format(&report->line, ", \"version\": %" PRId64 "}", model->opsets.items[i].version);
  }
  add(report, "], \"producer_name\": ");
  add_name(report, model->producer_name);
  add_key(report, "producer_version");
  add_name(report, model->producer_version);
  add_key(report, "metadata");
  add_metadata(report, model->metadata.items, model->metadata.count);
  add_key(report, "graph");
  add_graph(report, model->graph);
  add(report, ", \"functions\": [");
  for (size_t i = 0; i < model->functions.count; i++) {
    if (i) add(report, ",\n");
    add_function(report, model->functions.items[i]);
  }
  add(report, "]}\n");
  report_flush(report);
}
