/* The ONNX text syntax. */
#include "onnx/file/print.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/spelling.h"
#include "onnx/file/metadata_keys.h"
#include "onnx/file/read.h"
#include "types/scalar.h"

enum { MAX_INLINE = 64, MAX_DEPTH = 100, LINE_WIDTH = 110 };

typedef struct Printer {
  Builder *out;
  Context *context;
  const Model *model;
  Map numbers; /* values that have no name yet: their number plus one */
  size_t unnamed;
  Map names; /* that values have, each to one of them */
  int depth;
  const PrintOptions *options;
} Printer;

static void print_graph(Printer *printer, const Graph *graph, const char *otherwise);

/* ---- names ---- */

const char *element_name(DType dtype) {
  switch (dtype) {
    case DTYPE_FLOAT32: return "float";
    case DTYPE_FLOAT64: return "double";
    case DTYPE_FLOAT8_E4M3FN: return "float8e4m3fn";
    case DTYPE_FLOAT8_E4M3FNUZ: return "float8e4m3fnuz";
    case DTYPE_FLOAT8_E5M2: return "float8e5m2";
    case DTYPE_FLOAT8_E5M2FNUZ: return "float8e5m2fnuz";
    case DTYPE_NONE:
    case DTYPE_FLOAT0:
    case DTYPE_KEY:
    case DTYPE_KEY_WORDS: return NULL; /* ONNX has no such type */
    default: return dtype_name(dtype);
  }
}

DType dtype_from_element_name(const char *name) {
  for (DType dtype = DTYPE_NONE; dtype < DTYPE_COUNT; dtype++) {
    const char *known = element_name(dtype);
    if (known && strcmp(known, name) == 0) return dtype;
  }
  return DTYPE_NONE;
}

bool is_type_word(const char *text) {
  static const char *const words[] = {
      "float",      "double",     "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
      "float8e8m0", "float4e2m1", "float6e2m3",   "float6e3m2",     "int2",       "uint2",
      "seq",        "map",        "optional",     "sparse_tensor",  "inf",        "infinity",
      "nan",
  };
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcmp(words[i], text) == 0) return true;
  }
  return strcmp(dtype_name(dtype_from_name(text)), text) == 0;
}

static void print_string(Printer *printer, Str text) { spell_text(printer->out, SPELL_ONNX, text, str_length(text)); }

bool is_value_number(const char *name) {
  return name[0] == '_' && name[1] && strspn(name + 1, "0123456789") == strlen(name + 1);
}

static bool is_plain(Str text) {
  return is_identifier(text, str_length(text)) && !is_type_word(text) && !is_value_number(text);
}

static void print_name(Printer *printer, Str name) {
  if (is_plain(name)) builder_add(printer->out, name);
  else print_string(printer, name);
}

/* A parameter that got no name yet goes by its path, which the first of those that have it takes. */
static bool has_own_name(Printer *printer, const Value *value) {
  Str name = value->tensor->name;
  if (!name || !*name || strncmp(name, CONSTANT_PREFIX, strlen(CONSTANT_PREFIX)) == 0) return false;
  void **slot = map_slot_pointer(printer->context, &printer->names, name);
  if (!*slot) *slot = (void *)(uintptr_t)value;
  return *slot == value;
}

static void print_value(Printer *printer, const Value *value) {
  if (!value) {
    builder_add(printer->out, "\"\"");
  } else if (value->name) {
    print_name(printer, value->name);
  } else if (value->tensor && has_own_name(printer, value)) {
    print_name(printer, value->tensor->name);
  } else {
    void **slot = map_slot_pointer(printer->context, &printer->numbers, value);
    if (!*slot) *slot = (void *)(uintptr_t)++printer->unnamed;
    builder_format(printer->out, "_%zu", (size_t)(uintptr_t)*slot - 1);
  }
}

static void indent(Printer *printer) { builder_format(printer->out, "%*s", printer->depth * 3, ""); }

/* ---- types and tensors ---- */

static void print_type(Printer *printer, Type type) {
  Builder *out = printer->out;
  builder_add(out, element_name(type.dtype));
  if (type_is_unranked(type)) builder_add(out, "[]");
  if (type.rank == 0) return;
  for (uint32_t i = 0; i < type.rank; i++) {
    builder_add(out, i ? "," : "[");
    Str text = dim_text(printer->context, type.dims[i]);
    bool plain =
        dim_is_constant(type.dims[i]) || str_is(text, UNKNOWN_DIMENSION) || is_identifier(text, str_length(text));
    if (plain) builder_add(out, text);
    else print_string(printer, text);
  }
  builder_add(out, "]");
}

static void print_typed_value(Printer *printer, const Value *value) {
  if (element_name(value->type.dtype)) {
    print_type(printer, value->type);
    builder_add(printer->out, " ");
  }
  print_value(printer, value);
}

/* One element; half floats and smaller are written as the integers of their bits, as the syntax wants them. */
static void print_element(Builder *out, DType dtype, const unsigned char *bytes) {
  Scalar as = scalar_at(bytes, dtype);
  switch (dtype) {
    case DTYPE_INT8: builder_format(out, "%d", as.i8); break;
    case DTYPE_INT16: builder_format(out, "%d", as.i16); break;
    case DTYPE_INT32: builder_format(out, "%" PRId32, as.i32); break;
    case DTYPE_INT64: builder_format(out, "%" PRId64, as.i64); break;
    case DTYPE_UINT16:
    case DTYPE_FLOAT16:
    case DTYPE_BFLOAT16: builder_format(out, "%u", as.u16); break;
    case DTYPE_UINT32: builder_format(out, "%" PRIu32, as.u32); break;
    case DTYPE_UINT64: builder_format(out, "%" PRIu64, as.u64); break;
    case DTYPE_FLOAT32: spell_float(out, as.f); break;
    case DTYPE_FLOAT64: spell_double(out, as.d); break;
    default: builder_format(out, "%u", bytes[0]); break;
  }
}

/* Two elements lie in a byte, the first one in its low half. */
static void print_packed_elements(Printer *printer, const Tensor *tensor) {
  const unsigned char *bytes = tensor->data;
  int64_t count = 0;
  type_count(tensor_type(printer->context, tensor), &count);
  builder_add(printer->out, "{");
  for (int64_t i = 0; i < count; i++) {
    int half = bytes[i / 2] >> (i % 2 * 4) & 0xF;
    if (tensor->dtype == DTYPE_INT4 && half > 7) half -= 16;
    builder_format(printer->out, "%s%d", i ? ", " : "", half);
  }
  builder_add(printer->out, "}");
}

static void print_elements(Printer *printer, const Tensor *tensor) {
  Builder *out = printer->out;
  DType part = dtype_part(tensor->dtype);
  size_t width = dtype_bits(part) / 8;
  if (!width) {
    print_packed_elements(printer, tensor);
    return;
  }
  builder_add(out, "{");
  for (size_t at = 0; at + width <= tensor->size; at += width) {
    if (at) builder_add(out, ", ");
    print_element(out, part, (const unsigned char *)tensor->data + at);
  }
  builder_add(out, "}");
}

static void print_strings(Printer *printer, const StoredTensor *stored) {
  size_t cursor = 0, length, count = 0;
  const char *text;
  builder_add(printer->out, "{");
  while (stored_next_string(printer->context, stored, &cursor, &text, &length)) {
    if (count++) builder_add(printer->out, ", ");
    spell_text(printer->out, SPELL_ONNX, text, length);
  }
  builder_add(printer->out, "}");
}

static void print_location(Printer *printer, Str location, uint64_t offset, uint64_t length) {
  Builder *out = printer->out;
  builder_add(out, "[\"location\": ");
  print_string(printer, location);
  builder_format(out, ", \"offset\": \"%" PRIu64 "\"", offset);
  if (length) builder_format(out, ", \"length\": \"%" PRIu64 "\"", length);
  builder_add(out, "]");
}

/* Few enough elements, and all of them such as a decimal says: not so a NaN with bits of its own. */
static bool is_inline(const Tensor *tensor) {
  unsigned bits = dtype_bits(tensor->dtype);
  if (!tensor->data || !bits || tensor->size * 8 / bits > MAX_INLINE) return false;
  DType part = dtype_part(tensor->dtype);
  for (size_t i = 0; part == DTYPE_FLOAT32 && i < tensor->size / 4; i++) {
    uint32_t word;
    memcpy(&word, (const char *)tensor->data + 4 * i, 4);
    if ((word & 0x7FFFFFFF) > 0x7F800000 && word != 0x7FC00000) return false;
  }
  for (size_t i = 0; part == DTYPE_FLOAT64 && i < tensor->size / 8; i++) {
    uint64_t word;
    memcpy(&word, (const char *)tensor->data + 8 * i, 8);
    if ((word & INT64_MAX) > 0x7FF0000000000000 && word != 0x7FF8000000000000) return false;
  }
  return true;
}

/* What stands after "type name =". Nothing stands for data that are not shown: the shape says how many they are. */
static void print_tensor_data(Printer *printer, const Tensor *tensor) {
  const StoredTensor *stored = tensor_stored(printer->model, tensor);
  DataPlan *data = printer->options->data;
  if (stored && stored->location) print_location(printer, stored->location, stored->offset, stored->length);
  else if (stored && tensor->dtype == DTYPE_STRING && stored->message_size <= 4096) print_strings(printer, stored);
  else if (tensor->size == 0) builder_add(printer->out, "{}");
  else if (is_inline(tensor)) print_elements(printer, tensor);
  else if (data && tensor_is_readable(tensor))
    print_location(printer, data->location, data_place(data, tensor), tensor->size);
}

static void print_tensor_type(Printer *printer, const Tensor *tensor) {
  print_type(printer, tensor_type(printer->context, tensor));
}

/* ---- attributes ---- */

static void print_list(Printer *printer, const Attribute *attribute) {
  Builder *out = printer->out;
  builder_add(out, "[");
  for (size_t i = 0; i < attribute->count; i++) {
    if (i) builder_add(out, ", ");
    if (attribute->kind == ATTRIBUTE_INTS) builder_format(out, "%" PRId64, attribute->integers[i]);
    else if (attribute->kind == ATTRIBUTE_FLOATS) spell_float(out, attribute->reals[i]);
    else print_string(printer, attribute->strings[i]);
  }
  builder_add(out, "]");
}

static const char *const kind_names[] = {
    [ATTRIBUTE_INT] = "int",       [ATTRIBUTE_FLOAT] = "float",     [ATTRIBUTE_STRING] = "string",
    [ATTRIBUTE_TENSOR] = "tensor", [ATTRIBUTE_GRAPH] = "graph",     [ATTRIBUTE_INTS] = "ints",
    [ATTRIBUTE_FLOATS] = "floats", [ATTRIBUTE_STRINGS] = "strings", [ATTRIBUTE_OTHER] = NULL,
};

AttributeKind attribute_kind_from_name(const char *name) {
  AttributeKind kind = ATTRIBUTE_INT;
  while (kind != ATTRIBUTE_OTHER && strcmp(kind_names[kind], name) != 0) kind++;
  return kind;
}

static bool is_printable(const Attribute *attribute) {
  if (attribute->kind == ATTRIBUTE_TENSOR && attribute->tensor) return element_name(attribute->tensor->dtype) != NULL;
  return attribute->kind != ATTRIBUTE_OTHER;
}

static void print_attribute(Printer *printer, const Attribute *attribute) {
  Builder *out = printer->out;
  print_name(printer, attribute->name);
  builder_format(out, ": %s = ", kind_names[attribute->kind]);
  if (attribute->reference) {
    builder_add(out, "@");
    print_name(printer, attribute->reference);
    return;
  }
  switch (attribute->kind) {
    case ATTRIBUTE_INT: builder_format(out, "%" PRId64, attribute->integer); break;
    case ATTRIBUTE_FLOAT: spell_float(out, attribute->real); break;
    case ATTRIBUTE_STRING: spell_text(out, SPELL_ONNX, attribute->string, attribute->count); break;
    case ATTRIBUTE_TENSOR:
      print_tensor_type(printer, attribute->tensor);
      if (attribute->tensor->name && is_plain(attribute->tensor->name)) {
        builder_format(out, " %s", attribute->tensor->name);
      }
      builder_add(out, " = ");
      print_tensor_data(printer, attribute->tensor);
      break;
    case ATTRIBUTE_GRAPH: print_graph(printer, attribute->graph, "body"); break;
    default: print_list(printer, attribute); break;
  }
}

static void print_attributes(Printer *printer, const Node *node) {
  size_t printed = 0;
  for (size_t i = 0; i < node->attributes.count; i++) {
    if (!is_printable(&node->attributes.items[i])) continue;
    builder_add(printer->out, printed++ ? ", " : " <");
    print_attribute(printer, &node->attributes.items[i]);
  }
  if (printed) builder_add(printer->out, ">");
}

/* ---- nodes ---- */

/* A comment, every line of it marked as one. */
static void print_comment(Printer *printer, Str key, const char *text, size_t length) {
  Builder *out = printer->out;
  indent(printer);
  builder_add(out, "# ");
  spell_text(out, SPELL_TERMINAL, key, str_length(key));
  builder_add(out, " =");
  const char *line = text, *end = text + length;
  const char *first_break = find_letter(text, '\n', length);
  if (first_break == NULL) {
    builder_add(out, " ");
    spell_text(out, SPELL_TERMINAL, text, length);
    builder_add(out, "\n");
    return;
  }
  while (line <= end) {
    const char *stop = line < end ? find_letter(line, '\n', (size_t)(end - line)) : NULL;
    if (!stop) stop = end;
    builder_add(out, "\n");
    indent(printer);
    builder_add(out, "#   ");
    spell_text(out, SPELL_TERMINAL, line, (size_t)(stop - line));
    line = stop + 1;
  }
  builder_add(out, "\n");
}

static void print_node_comments(Printer *printer, const Node *node) {
  if (node->origin && !printer->options->as_read) {
    Builder text;
    builder_init(&text, printer->context);
    render_callsite(node->graph->model->provenance, &text, node->origin);
    Str callsite = str_intern(printer->context, METADATA_PREFIX "callsite");
    if (text.length) print_comment(printer, callsite, text.text, text.length);
    render_plugin(&text, node->origin);
    print_comment(printer, str_intern(printer->context, METADATA_PREFIX "plugin"), builder_text(&text), text.length);
  }
  for (size_t i = 0; i < node->metadata.count; i++) {
    const Metadata *entry = &node->metadata.items[i];
    print_comment(printer, entry->key, entry->value, str_length(entry->value));
  }
  for (size_t i = 0; i < node->attributes.count; i++) {
    const Attribute *attribute = &node->attributes.items[i];
    if (is_printable(attribute)) continue;
    Str words = str_intern(printer->context, "an attribute that this syntax cannot express:");
    print_comment(printer, words, attribute->name, str_length(attribute->name));
  }
}

/* domain.parts.Op; what is no identifier stands in quotes, which only we read. */
static void print_operator(Printer *printer, const Node *node) {
  Builder *out = printer->out;
  for (const char *part = node->domain, *dot; *part; part = *dot ? dot + 1 : dot) {
    dot = strchr(part, '.');
    if (!dot) dot = part + strlen(part);
    size_t length = (size_t)(dot - part);
    if (is_identifier(part, length)) builder_add_sized(out, part, length);
    else spell_text(out, SPELL_ONNX, part, length);
    builder_add(out, ".");
  }
  if (is_identifier(node->op_type, str_length(node->op_type))) builder_add(out, node->op_type);
  else print_string(printer, node->op_type);
}

static void print_node(Printer *printer, const Node *node) {
  Builder *out = printer->out;
  if (!printer->options->bare) print_node_comments(printer, node);
  indent(printer);
  if (node->name && *node->name) {
    builder_add(out, "[");
    print_name(printer, node->name);
    builder_add(out, "] ");
  }
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (i) builder_add(out, ", ");
    print_value(printer, node->outputs[i]);
  }
  builder_add(out, node->output_count ? " = " : "= ");
  print_operator(printer, node);
  print_attributes(printer, node);
  builder_add(out, " (");
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (i) builder_add(out, ", ");
    print_value(printer, node->inputs[i].value);
  }
  builder_add(out, ")\n");
}

static void print_nodes(Printer *printer, const Graph *graph) {
  builder_add(printer->out, "{\n");
  if (++printer->depth > MAX_DEPTH) fail(printer->context, ERROR_VALUE, "graphs are nested too deeply to print");
  FOR_EACH_NODE(node, graph) print_node(printer, node);
  printer->depth--;
  indent(printer);
  builder_add(printer->out, "}");
}

/* ---- graphs, functions, the model ---- */

typedef struct Declarations {
  size_t printed;
  size_t line_start; /* in the builder */
} Declarations;

static void begin_declaration(Printer *printer, Declarations *list, bool own_line) {
  Builder *out = printer->out;
  builder_add(out, list->printed ? "," : " <");
  if (own_line || !list->printed || out->length - list->line_start > LINE_WIDTH) {
    builder_add(out, "\n");
    list->line_start = out->length;
    builder_format(out, "%*s", printer->depth * 3 + 6, "");
  } else {
    builder_add(out, " ");
  }
  list->printed++;
}

/* The line has begun with spaces: comments stand there in its place, each on a line of its own. */
static void print_initializer_comments(Printer *printer, const Value *value) {
  Builder *out = printer->out;
  if (printer->options->bare || !value->metadata.count) return;
  int depth = printer->depth;
  out->length -= (size_t)depth * 3 + 6;
  printer->depth += 2;
  for (size_t i = 0; i < value->metadata.count; i++) {
    const Metadata *entry = &value->metadata.items[i];
    print_comment(printer, entry->key, entry->value, str_length(entry->value));
  }
  indent(printer);
  printer->depth = depth;
}

/* An initializer that is an input's default is printed with the input. */
static void print_initializers(Printer *printer, const Graph *graph, Declarations *list) {
  Map inputs = {0};
  for (size_t i = 0; graph->initializers.count && i < graph->inputs.count; i++) {
    *map_slot_pointer(printer->context, &inputs, graph->inputs.items[i]) = graph->inputs.items[i];
  }
  for (size_t i = 0; i < graph->initializers.count; i++) {
    const Value *value = graph->initializers.items[i];
    if (map_get_pointer(&inputs, value) || !element_name(value->tensor->dtype)) continue;
    begin_declaration(printer, list, true);
    print_initializer_comments(printer, value);
    print_tensor_type(printer, value->tensor);
    builder_add(printer->out, " ");
    print_value(printer, value);
    builder_add(printer->out, " = ");
    print_tensor_data(printer, value->tensor);
  }
}

/* Types of the values that nodes make; outputs have theirs in the graph's head. */
static void print_value_types(Printer *printer, const Graph *graph, Declarations *list, bool with_outputs) {
  bool own_line = true;
  FOR_EACH_NODE(node, graph) {
    for (uint32_t i = 0; i < node->output_count; i++) {
      const Value *value = node->outputs[i];
      if (!value || !element_name(value->type.dtype)) continue;
      if (!with_outputs && value_is_output(value)) continue;
      begin_declaration(printer, list, own_line);
      print_typed_value(printer, value);
      own_line = false;
    }
  }
}

/* Of a function, whose head says only names. */
static void print_input_types(Printer *printer, const Graph *graph, Declarations *list) {
  for (size_t i = 0; i < graph->inputs.count; i++) {
    if (!element_name(graph->inputs.items[i]->type.dtype)) continue;
    begin_declaration(printer, list, i == 0);
    print_typed_value(printer, graph->inputs.items[i]);
  }
}

static void print_declarations(Printer *printer, const Graph *graph, bool is_function) {
  Declarations list = {0};
  if (is_function) print_input_types(printer, graph, &list);
  print_initializers(printer, graph, &list);
  print_value_types(printer, graph, &list, is_function);
  if (!list.printed) {
    builder_add(printer->out, " ");
    return;
  }
  builder_add(printer->out, ">\n");
  indent(printer);
}

static void print_interface(Printer *printer, const Graph *graph, bool is_function) {
  Builder *out = printer->out;
  builder_add(out, " (");
  for (size_t i = 0; i < graph->inputs.count; i++) {
    const Value *value = graph->inputs.items[i];
    if (i) builder_add(out, ", ");
    if (is_function) print_value(printer, value);
    else print_typed_value(printer, value);
    bool has_default = value->tensor && element_name(value->tensor->dtype) && element_name(value->type.dtype);
    if (has_default && !is_function) {
      builder_add(out, " = ");
      print_tensor_data(printer, value->tensor);
    }
  }
  builder_add(out, ") => (");
  for (size_t i = 0; i < graph->outputs.count; i++) {
    const Value *value = graph->outputs.items[i]->value;
    if (i) builder_add(out, ", ");
    if (is_function || !value) print_value(printer, value);
    else print_typed_value(printer, value);
  }
  builder_add(out, ")");
}

/* otherwise: what a graph without a name is called */
static void print_graph(Printer *printer, const Graph *graph, const char *otherwise) {
  Str name = graph->name;
  Str known = name && *name ? name : str_intern(printer->context, otherwise);
  if (is_identifier(known, str_length(known)) && !is_type_word(known)) builder_add(printer->out, known);
  else print_string(printer, known);
  print_interface(printer, graph, false);
  print_declarations(printer, graph, false);
  print_nodes(printer, graph);
}

static void print_opsets(Printer *printer) {
  const Model *model = printer->model;
  Builder *out = printer->out;
  bool has_own = false;
  builder_add(out, "opset_import: [");
  for (size_t i = 0; i < model->opsets.count; i++) {
    const OpsetImport *import = &model->opsets.items[i];
    if (i) builder_add(out, ", ");
    print_string(printer, import->domain);
    builder_format(out, ": %" PRId64, import->version);
    if (!*import->domain || str_is(import->domain, "ai.onnx")) has_own = true;
  }
  if (!has_own && model->opset) builder_format(out, "%s\"\": %" PRId64, model->opsets.count ? ", " : "", model->opset);
  builder_add(out, "]");
}

static void print_function(Printer *printer, const Function *function) {
  Builder *out = printer->out;
  builder_add(out, "\n\n");
  for (size_t i = 0; i < function->metadata.count; i++) {
    const Metadata *entry = &function->metadata.items[i];
    print_comment(printer, entry->key, entry->value, str_length(entry->value));
  }
  builder_add(out, "<domain: ");
  print_string(printer, function->domain);
  builder_add(out, ", ");
  print_opsets(printer);
  builder_add(out, ">\n");
  print_name(printer, function->name);
  for (size_t i = 0; i < function->attributes.count; i++) {
    builder_add(out, i ? ", " : " <");
    print_name(printer, function->attributes.items[i]);
  }
  if (function->attributes.count) builder_add(out, ">");
  print_interface(printer, function->body, true);
  print_declarations(printer, function->body, true);
  print_nodes(printer, function->body);
}

static void print_head(Printer *printer) {
  const Model *model = printer->model;
  Builder *out = printer->out;
  builder_format(out, "<\n   ir_version: %" PRId64 ",\n   ", model->ir_version);
  print_opsets(printer);
  if (model->producer_name && *model->producer_name) {
    builder_add(out, ",\n   producer_name: ");
    print_string(printer, model->producer_name);
  }
  if (model->producer_version && *model->producer_version) {
    builder_add(out, ",\n   producer_version: ");
    print_string(printer, model->producer_version);
  }
  for (size_t i = 0; i < model->metadata.count; i++) {
    builder_add(out, i ? ", " : ",\n   metadata_props: [");
    print_string(printer, model->metadata.items[i].key);
    builder_add(out, ": ");
    print_string(printer, model->metadata.items[i].value);
  }
  builder_add(out, model->metadata.count ? "]\n>\n" : "\n>\n");
}

static void take_name(Printer *printer, const Value *value) {
  if (!value || !value->name) return;
  void **slot = map_slot_pointer(printer->context, &printer->names, value->name);
  if (!*slot) *slot = (void *)(uintptr_t)value;
}

static void take_names(Graph *graph, void *data) {
  Printer *printer = data;
  for (size_t i = 0; i < graph->inputs.count; i++) take_name(printer, graph->inputs.items[i]);
  for (size_t i = 0; i < graph->initializers.count; i++) take_name(printer, graph->initializers.items[i]);
  FOR_EACH_NODE(node, graph) {
    for (uint32_t i = 0; i < node->output_count; i++) take_name(printer, node->outputs[i]);
  }
}

void model_print_with(Builder *out, const Model *model, const PrintOptions *options) {
  Printer printer = {.out = out, .context = out->context, .model = model, .options = options};
  model_each_graph((Model *)(uintptr_t)model, take_names, &printer);
  if (!options->bare) print_head(&printer);
  print_graph(&printer, model->graph, "graph");
  for (size_t i = 0; i < model->functions.count; i++) print_function(&printer, model->functions.items[i]);
  builder_add(out, "\n");
}

void model_print(Builder *out, const Model *model) { model_print_with(out, model, &(PrintOptions){0}); }
