/* Reading the ONNX text syntax. A graph's head stands before its nodes, so that types and initializers are known when
 * a node is made; a value must be defined before it is used, as ONNX demands. */
#include "onnx/file/model_text.h"

#include "base/bytes.h"
#include "base/scanner.h"
#include "onnx/file/print.h"
#include "onnx/file/read.h"
#include "onnx/graph/definitions.h"

enum { MAX_GRAPH_DEPTH = 64, DEFAULT_IR_VERSION = 10 };

typedef struct Scope {
  Graph *graph;
  const struct Scope *outer; /* NULL for a main graph or function body */
  unsigned depth;
  bool is_main;
} Scope;

typedef struct Reader {
  Scanner scan;
  Context *context;
  const TextSource *source;
  Model *model;
  Map values;          /* (name, graph) to Value */
  Map types;           /* (name, graph) to Type: of the values that nodes will make */
  const char *counted; /* line is that of this place */
  size_t line;
} Reader;

static Graph *read_graph(Reader *reader, const Scope *outer);

/* ---- names ---- */

static Str name(Reader *reader, const char *what) {
  Scanner *scan = &reader->scan;
  return scan_sees(scan, '"') ? scan_quoted(scan, what) : scan_word(scan, what);
}

/* A value's name, its own or the printer's number (_0), which is not kept. */
typedef struct ValueName {
  Str text;
  bool is_number;
  const char *where;
} ValueName;

static ValueName value_name(Reader *reader) {
  Scanner *scan = &reader->scan;
  scan_space(scan);
  ValueName result = {.where = scan->at};
  bool quoted = scan_sees(scan, '"');
  result.text = name(reader, "a value's name");
  result.is_number = !quoted && is_value_number(result.text);
  return result;
}

static Value *value_in(const Reader *reader, const Graph *graph, Str text) {
  return map_get(&reader->values, (uint64_t)(uintptr_t)text, (uint64_t)(uintptr_t)graph);
}

static void define(Reader *reader, ValueName given, Value *value) {
  void **slot =
      map_slot(reader->context, &reader->values, (uint64_t)(uintptr_t)given.text, (uint64_t)(uintptr_t)value->graph);
  if (*slot) scan_fail(&reader->scan, given.where, "a value that is already defined");
  *slot = value;
  value->name = given.is_number ? NULL : given.text;
}

static Value *resolve(Reader *reader, const Scope *scope, ValueName given) {
  for (const Scope *around = scope; around; around = around->outer) {
    Value *value = value_in(reader, around->graph, given.text);
    if (value) return value;
  }
  scan_fail(&reader->scan, given.where, "a value that is not defined yet");
}

/* ---- types ---- */

static Dim dimension(Reader *reader) {
  Scanner *scan = &reader->scan;
  scan_space(scan);
  bool is_number = scan->at < scan->end && ((*scan->at >= '0' && *scan->at <= '9') || *scan->at == '-');
  if (is_number) return dim_of(scan_integer(scan));
  if (scan_accept(scan, '?')) return dim_symbol(reader->context, str_intern(reader->context, UNKNOWN_DIMENSION));
  Str text = name(reader, "a dimension: a number, a name, or ?");
  Dim dim;
  bool same =
      dim_parse(reader->context, text, str_length(text), &dim) && !dim_is_constant(dim) && dim.expr->text == text;
  return same ? dim : dim_symbol(reader->context, text); /* another producer's spelling stays as it is */
}

/* float[2,B]; float[] has a rank that is not known. False, and nothing is read, when no type stands here. */
static bool accept_type(Reader *reader, Type *type) {
  Scanner *scan = &reader->scan;
  size_t length = scan_word_length(scan);
  if (!length) return false;
  Str word = str_intern_sized(reader->context, scan->at, length);
  DType dtype = dtype_from_element_name(word);
  if (dtype == DTYPE_NONE) {
    if (is_type_word(word)) scan_fail(scan, scan->at, "unsupported type: only tensors can be read");
    return false;
  }
  scan->at += length;
  Dim dims[MAX_RANK];
  uint32_t rank = 0;
  *type = (Type){.dtype = dtype};
  if (!scan_accept(scan, '[')) return true;
  if (scan_accept(scan, ']')) {
    type->dims = UNRANKED;
    return true;
  }
  do {
    if (rank == MAX_RANK) scan_fail(scan, scan->at, "too many dimensions");
    dims[rank++] = dimension(reader);
  } while (scan_accept(scan, ','));
  scan_expect(scan, ']');
  *type = type_make(reader->context, dtype, dims, rank);
  return true;
}

/* ---- tensors ---- */

static void element(Reader *reader, DType dtype, unsigned char *bytes) {
  Scanner *scan = &reader->scan;
  unsigned bits = dtype_bits(dtype);
  if (dtype == DTYPE_FLOAT32) {
    memcpy(bytes, &(float){scan_float(scan)}, sizeof(float));
  } else if (dtype == DTYPE_FLOAT64) {
    memcpy(bytes, &(double){scan_double(scan)}, sizeof(double));
  } else { /* half floats and smaller are written as the integers of their bits */
    bool has_sign = dtype_kind(dtype) == KIND_INT;
    uint64_t value = scan_sized_integer(scan, bits, !has_sign);
    for (unsigned i = 0; i < bits / 8; i++) bytes[i] = (unsigned char)(value >> (8 * i));
    if (bits == 4) bytes[0] = (unsigned char)(value & 0xF);
  }
}

/* Two elements lie in a byte, the first one in its low half. */
static void packed_elements(Reader *reader, DType dtype, unsigned char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    unsigned char half;
    if (i) scan_expect(&reader->scan, ',');
    element(reader, dtype, &half);
    bytes[i / 2] = (unsigned char)(bytes[i / 2] | half << (i % 2 * 4));
  }
}

static const void *elements(Reader *reader, const Tensor *tensor, const char *start) {
  Scanner *scan = &reader->scan;
  DType part = dtype_part(tensor->dtype);
  size_t width = dtype_bits(part) / 8, count = width ? tensor->size / width : 0;
  if (!dtype_bits(part)) scan_fail(scan, start, "elements of a type that cannot be read");
  /* Every element takes a character at least, so the text bounds what is allocated. */
  if (tensor->size > (size_t)(scan->end - start) * 16) scan_fail(scan, start, "fewer elements than the type requires");
  unsigned char *bytes = arena_alloc(&reader->context->arena, tensor->size);
  int64_t packed = 0;
  if (!width) type_count(tensor_type(reader->context, tensor), &packed);
  if (!width) packed_elements(reader, part, bytes, (size_t)packed);
  for (size_t i = 0; i < count; i++) {
    if (i) scan_expect(scan, ',');
    element(reader, part, bytes + i * width);
  }
  scan_expect(scan, '}');
  return bytes;
}

static uint64_t quoted_number(Reader *reader) {
  scan_space(&reader->scan);
  const char *start = reader->scan.at;
  Str text = scan_quoted(&reader->scan, "a number in quotes");
  uint64_t number = 0;
  for (const char *c = text; *c; c++) {
    if (*c < '0' || *c > '9' || number > (UINT64_MAX - 9) / 10) scan_fail(&reader->scan, start, "not a number");
    number = number * 10 + (uint64_t)(*c - '0');
  }
  return number;
}

/* ["location": "file", "offset": "0", "length": "4"] */
static void external_data(Reader *reader, Tensor *tensor, const char *start) {
  Scanner *scan = &reader->scan;
  StoredTensor *stored = arena_new(&reader->context->arena, StoredTensor);
  do {
    Str key = scan_quoted(scan, "location, offset or length in quotes");
    scan_expect(scan, ':');
    if (strcmp(key, "location") == 0) stored->location = scan_quoted(scan, "a file name in quotes");
    else if (strcmp(key, "offset") == 0) stored->offset = quoted_number(reader);
    else if (strcmp(key, "length") == 0) stored->length = quoted_number(reader);
    else scan_quoted(scan, "a value in quotes");
  } while (scan_accept(scan, ','));
  scan_expect(scan, ']');
  if (!stored->location) scan_fail(scan, start, "data without a location");
  if (stored->length && stored->length != tensor->size) scan_fail(scan, start, "data that does not match the type");
  const TextSource *source = reader->source;
  if (source->data && tensor->size) {
    tensor->data = source->data(source->owner, stored->location, stored->offset, tensor->size);
    if (!tensor->data) scan_fail(scan, start, "data that cannot be read: the file is missing or too short");
    return;
  }
  *map_slot_pointer(reader->context, &reader->model->stored, tensor) = stored;
}

/* What stands after "type name =". */
static const Tensor *tensor(Reader *reader, Type type, const char *start) {
  Scanner *scan = &reader->scan;
  Tensor *result = arena_new(&reader->context->arena, Tensor);
  int64_t count, bits;
  *result = (Tensor){.dtype = type.dtype, .rank = type.rank};
  int64_t *dims = arena_new_array(&reader->context->arena, type.rank, int64_t);
  for (uint32_t i = 0; i < type.rank; i++) {
    if (!dim_is_constant(type.dims[i]) || type.dims[i].constant < 0) scan_fail(scan, start, "a tensor of unknown size");
    dims[i] = type.dims[i].constant;
  }
  result->dims = dims;
  bool counted = type_count(type, &count) && !type_is_unranked(type) &&
                 !__builtin_mul_overflow(count, (int64_t)dtype_bits(type.dtype), &bits) && bits <= INT64_MAX - 7;
  if (!counted) scan_fail(scan, start, "a tensor of unknown size");
  result->size = (size_t)(bits + 7) / 8;
  if (scan_accept(scan, '{')) result->data = elements(reader, result, scan->at);
  else if (scan_accept(scan, '[')) external_data(reader, result, start);
  return result;
}

/* ---- attributes ---- */

typedef ARRAY(Attribute) Attributes;

static void integers(Reader *reader, Attribute *attribute) {
  ARRAY(int64_t) list = {0};
  scan_expect(&reader->scan, '[');
  if (!scan_accept(&reader->scan, ']')) {
    do array_push(reader->context, &list, scan_integer(&reader->scan));
    while (scan_accept(&reader->scan, ','));
    scan_expect(&reader->scan, ']');
  }
  attribute->integers = list.items;
  attribute->count = list.count;
}

static void reals(Reader *reader, Attribute *attribute) {
  ARRAY(float) list = {0};
  scan_expect(&reader->scan, '[');
  if (!scan_accept(&reader->scan, ']')) {
    do array_push(reader->context, &list, scan_float(&reader->scan));
    while (scan_accept(&reader->scan, ','));
    scan_expect(&reader->scan, ']');
  }
  attribute->reals = list.items;
  attribute->count = list.count;
}

static void strings(Reader *reader, Attribute *attribute) {
  ARRAY(Str) list = {0};
  scan_expect(&reader->scan, '[');
  if (!scan_accept(&reader->scan, ']')) {
    do array_push(reader->context, &list, scan_quoted(&reader->scan, "a string"));
    while (scan_accept(&reader->scan, ','));
    scan_expect(&reader->scan, ']');
  }
  attribute->strings = list.items;
  attribute->count = list.count;
}

static const Tensor *attribute_tensor(Reader *reader) {
  Scanner *scan = &reader->scan;
  scan_space(scan);
  const char *start = scan->at;
  Type type;
  if (!accept_type(reader, &type)) scan_fail_expected(scan, "a tensor's type");
  Str own = scan_sees(scan, '=') || scan_sees(scan, '{') ? NULL : name(reader, "a tensor's name");
  scan_accept(scan, '=');
  const Tensor *result = tensor(reader, type, start);
  ((Tensor *)(uintptr_t)result)->name = own;
  return result;
}

static void attribute_value(Reader *reader, Attribute *attribute, const Scope *scope) {
  Scanner *scan = &reader->scan;
  switch (attribute->kind) {
    case ATTRIBUTE_INT: attribute->integer = scan_integer(scan); break;
    case ATTRIBUTE_FLOAT: attribute->real = scan_float(scan); break;
    case ATTRIBUTE_STRING:
      attribute->string = scan_quoted(scan, "a string");
      attribute->count = str_length(attribute->string);
      break;
    case ATTRIBUTE_TENSOR: attribute->tensor = attribute_tensor(reader); break;
    case ATTRIBUTE_GRAPH: attribute->graph = read_graph(reader, scope); break;
    case ATTRIBUTE_INTS: integers(reader, attribute); break;
    case ATTRIBUTE_FLOATS: reals(reader, attribute); break;
    case ATTRIBUTE_STRINGS: strings(reader, attribute); break;
    case ATTRIBUTE_OTHER: break;
  }
}

/* axis: int = 1 */
static Attribute attribute(Reader *reader, const Scope *scope) {
  Scanner *scan = &reader->scan;
  Attribute result = {.name = name(reader, "an attribute's name")};
  scan_expect(scan, ':');
  scan_space(scan);
  const char *start = scan->at;
  Str kind = scan_word(scan, "an attribute's kind");
  result.kind = attribute_kind_from_name(kind);
  if (result.kind == ATTRIBUTE_OTHER) {
    scan_fail(scan, start, "expected int, float, string, tensor, graph, ints, floats or strings");
  }
  scan_expect(scan, '=');
  if (scan_accept(scan, '@')) result.reference = name(reader, "an attribute of the function");
  else attribute_value(reader, &result, scope);
  return result;
}

static void attributes(Reader *reader, Attributes *list, const Scope *scope) {
  if (!scan_accept(&reader->scan, '<')) return;
  if (scan_accept(&reader->scan, '>')) return;
  do {
    scan_space(&reader->scan);
    const char *start = reader->scan.at;
    Attribute next = attribute(reader, scope);
    for (size_t i = 0; i < list->count; i++) {
      if (list->items[i].name == next.name) scan_fail(&reader->scan, start, "an attribute that the node already has");
    }
    array_push(reader->context, list, next);
  } while (scan_accept(&reader->scan, ','));
  scan_expect(&reader->scan, '>');
}

/* ---- comments that are metadata ---- */

typedef ARRAY(Metadata) Entries;

static const char *line_end(const Scanner *scan, const char *at) {
  const char *stop = find_letter(at, '\n', (size_t)(scan->end - at));
  return stop ? stop : scan->end;
}

/* The lines below "# key =", each behind "#   ". */
static Str lines_below(Reader *reader) {
  Scanner *scan = &reader->scan;
  Builder text;
  builder_init(&text, reader->context);
  for (size_t count = 0;; count++) {
    const char *at = scan->at;
    while (at < scan->end && (*at == '\n' || *at == ' ')) at++;
    if (scan->end - at < 4 || memcmp(at, "#   ", 4) != 0) break;
    const char *stop = line_end(scan, at);
    if (count) builder_add(&text, "\n");
    builder_add_sized(&text, at + 4, (size_t)(stop - at) - 4);
    scan->at = stop;
  }
  return str_intern_sized(reader->context, builder_text(&text), text.length);
}

/* A line "# key = value" at the scanner; false when it is another comment, which is skipped. */
static bool comment(Reader *reader, Metadata *entry) {
  Scanner *scan = &reader->scan;
  const char *stop = line_end(scan, scan->at), *key = scan->at + 1;
  scan->at = stop;
  if (key == stop || *key++ != ' ') return false;
  const char *after = key;
  while (after < stop && *after != ' ' && *after != '\r') after++;
  if (after == key || stop - after < 2 || after[1] != '=') return false;
  entry->key = str_intern_sized(reader->context, key, (size_t)(after - key));
  const char *value = after + 2;
  if (value == stop) entry->value = lines_below(reader);
  else entry->value = str_intern_sized(reader->context, value + 1, (size_t)(stop - value) - 1);
  return value == stop || *value == ' ';
}

static Entries comments(Reader *reader) {
  Scanner *scan = &reader->scan;
  Entries list = {0};
  for (; scan->at < scan->end; scan->at++) {
    Metadata entry;
    if (*scan->at == '#' && comment(reader, &entry)) array_push(reader->context, &list, entry);
    if (scan->at == scan->end) break;
    if (*scan->at != ' ' && *scan->at != '\n' && *scan->at != '\t' && *scan->at != '\r') break;
  }
  return list;
}

/* ---- nodes ---- */

/* Lines only go up, so counting them all costs one walk over the text. */
static size_t current_line(Reader *reader) {
  for (; reader->counted < reader->scan.at; reader->counted++) reader->line += *reader->counted == '\n';
  return reader->line;
}

static const Origin *node_origin(Reader *reader) {
  Provenance *provenance = reader->source->provenance;
  if (!provenance) return NULL;
  int line = (int)current_line(reader);
  Frame *frame = frame_intern(provenance, reader->source->file, str_intern(reader->context, "graph"), line, FRAME_USER);
  const Site *site = site_intern(provenance, trace_intern(provenance, frame, NULL), NULL);
  Emitter emitter = {.name = str_intern(reader->context, "text"), .file = reader->source->file, .line = line};
  return origin_new(provenance, site, emitter, NULL);
}

typedef struct OperatorName {
  Str op, domain;
} OperatorName;

/* Op, or domain.parts.Op */
static OperatorName operator_name(Reader *reader) {
  OperatorName result = {.domain = str_intern(reader->context, "")};
  result.op = name(reader, "an operator");
  while (scan_accept(&reader->scan, '.')) {
    const char *dot = *result.domain ? "." : "";
    const char *domain = arena_format(&reader->context->arena, "%s%s%s", result.domain, dot, result.op);
    result.domain = str_intern(reader->context, domain);
    result.op = name(reader, "an operator");
  }
  return result;
}

typedef ARRAY(ValueName) ValueNames;

static ValueNames value_names(Reader *reader, char before) {
  ValueNames list = {0};
  if (scan_sees(&reader->scan, before)) return list;
  do array_push(reader->context, &list, value_name(reader));
  while (scan_accept(&reader->scan, ','));
  return list;
}

static Node *make_node(Reader *reader, const Scope *scope, OperatorName operator, const Origin *origin,
                       const ValueNames *outputs, const ValueNames *inputs) {
  Arena *arena = &reader->context->arena;
  Value **values = arena_new_array(arena, inputs->count, Value *);
  Type *types = arena_new_array(arena, outputs->count, Type);
  for (size_t i = 0; i < inputs->count; i++) {
    if (*inputs->items[i].text) values[i] = resolve(reader, scope, inputs->items[i]);
  }
  for (size_t i = 0; i < outputs->count; i++) {
    const Type *declared =
        map_get(&reader->types, (uint64_t)(uintptr_t)outputs->items[i].text, (uint64_t)(uintptr_t)scope->graph);
    if (declared) types[i] = *declared;
  }
  Node *node = graph_named_node(scope->graph, origin, operator.op, operator.domain, values, inputs->count, types,
                                outputs->count, NULL);
  for (size_t i = 0; i < outputs->count; i++) {
    if (*outputs->items[i].text) define(reader, outputs->items[i], node->outputs[i]);
    else node->outputs[i] = NULL;
  }
  return node;
}

/* [name] y, z = Op <attribute: kind = …> (x, w) */
static void read_node(Reader *reader, const Scope *scope, const Entries *metadata) {
  Scanner *scan = &reader->scan;
  const Origin *origin = node_origin(reader);
  Str own_name = NULL;
  if (scan_accept(scan, '[')) {
    own_name = name(reader, "a node's name");
    scan_expect(scan, ']');
  }
  ValueNames outputs = value_names(reader, '=');
  scan_expect(scan, '=');
  OperatorName operator = operator_name(reader);
  Attributes list = {0};
  attributes(reader, &list, scope);
  scan_expect(scan, '(');
  ValueNames inputs = value_names(reader, ')');
  scan_expect(scan, ')');
  while (scan->at < scan->end && *scan->at == ' ') scan->at++; /* comments on the next lines are another node's */
  if (scan->at < scan->end && *scan->at == '<') attributes(reader, &list, scope);
  Node *node = make_node(reader, scope, operator, origin, &outputs, &inputs);
  node->name = own_name;
  for (size_t i = 0; i < list.count; i++) {
    if (list.items[i].kind == ATTRIBUTE_GRAPH && list.items[i].graph) list.items[i].graph->owner = node;
    array_push(reader->context, &node->attributes, list.items[i]);
  }
  for (size_t i = 0; i < metadata->count; i++) array_push(reader->context, &node->metadata, metadata->items[i]);
}

static void read_nodes(Reader *reader, const Scope *scope) {
  scan_expect(&reader->scan, '{');
  for (;;) {
    Entries metadata = comments(reader);
    if (scan_accept(&reader->scan, '}')) return;
    read_node(reader, scope, &metadata);
  }
}

/* ---- graphs and functions ---- */

static bool is_parameter(ValueName given) {
  return !given.is_number && strncmp(given.text, CONSTANT_PREFIX, strlen(CONSTANT_PREFIX)) != 0;
}

static void add_tensor(Value *value, ValueName given, const Tensor *data) {
  if (is_parameter(given)) ((Tensor *)(uintptr_t)data)->name = given.text;
  value->tensor = data;
}

static void declare_type(Reader *reader, const Graph *graph, ValueName given, Type type) {
  Value *known = value_in(reader, graph, given.text);
  if (known) { /* a function's input */
    known->type = type;
    return;
  }
  void **slot = map_slot(reader->context, &reader->types, (uint64_t)(uintptr_t)given.text, (uint64_t)(uintptr_t)graph);
  if (!*slot) *slot = arena_copy(&reader->context->arena, &type, sizeof type);
}

/* x, float[2] y, float z = {1} */
static void read_inputs(Reader *reader, Graph *graph, bool is_main) {
  Scanner *scan = &reader->scan;
  scan_expect(scan, '(');
  if (scan_accept(scan, ')')) return;
  do {
    Type type = {0};
    bool typed = accept_type(reader, &type);
    ValueName given = value_name(reader);
    Value *value = graph_input(graph, type, NULL);
    define(reader, given, value);
    value->name_fixed = is_main && value->name;
    if (!scan_accept(scan, '=')) continue;
    if (!typed) scan_fail(scan, given.where, "an initializer without a type");
    add_tensor(value, given, tensor(reader, type, given.where));
    array_push(reader->context, &graph->initializers, value);
  } while (scan_accept(scan, ','));
  scan_expect(scan, ')');
}

static ValueNames read_outputs(Reader *reader, const Graph *graph) {
  Scanner *scan = &reader->scan;
  ValueNames list = {0};
  scan_expect(scan, '=');
  scan_expect(scan, '>');
  scan_expect(scan, '(');
  if (scan_accept(scan, ')')) return list;
  do {
    Type type;
    bool typed = accept_type(reader, &type);
    ValueName given = value_name(reader);
    if (typed) declare_type(reader, graph, given, type);
    array_push(reader->context, &list, given);
  } while (scan_accept(scan, ','));
  scan_expect(scan, ')');
  return list;
}

/* <float w = {1}, float[2] y>: initializers, and the types of what nodes make */
static void read_declarations(Reader *reader, Graph *graph) {
  Scanner *scan = &reader->scan;
  if (!scan_accept(scan, '<')) return;
  do {
    Type type;
    Entries metadata = comments(reader);
    if (!accept_type(reader, &type)) scan_fail_expected(scan, "a type");
    ValueName given = value_name(reader);
    if (scan_accept(scan, '=')) {
      const Tensor *data = tensor(reader, type, given.where);
      Value *value = graph_initializer(graph, data);
      define(reader, given, value);
      add_tensor(value, given, data);
      for (size_t i = 0; i < metadata.count; i++) array_push(reader->context, &value->metadata, metadata.items[i]);
    } else {
      declare_type(reader, graph, given, type);
    }
  } while (scan_accept(scan, ','));
  scan_expect(scan, '>');
}

/* A subgraph's output may be a value of a graph around it, which the subgraph does not name. */
static void add_outputs(Reader *reader, const Scope *scope, const ValueNames *outputs) {
  for (size_t i = 0; i < outputs->count; i++) {
    Value *value = resolve(reader, scope, outputs->items[i]);
    if (scope->is_main && value->name) value->name_fixed = true;
    graph_output(scope->graph, value);
  }
}

/* From the inputs on. */
static void read_body(Reader *reader, Graph *graph, const Scope *outer, bool is_main) {
  Scope scope = {.graph = graph, .outer = outer, .depth = outer ? outer->depth + 1 : 1, .is_main = is_main};
  if (scope.depth > MAX_GRAPH_DEPTH) scan_fail(&reader->scan, reader->scan.at, "graphs are nested too deeply");
  read_inputs(reader, graph, is_main);
  ValueNames outputs = read_outputs(reader, graph);
  read_declarations(reader, graph);
  read_nodes(reader, &scope);
  add_outputs(reader, &scope, &outputs);
}

static Graph *read_graph(Reader *reader, const Scope *outer) {
  Graph *graph = graph_new(reader->model, name(reader, "a graph's name"));
  read_body(reader, graph, outer, outer == NULL);
  return graph;
}

/* ---- the model ---- */

static void read_opsets(Reader *reader, bool keep) {
  Scanner *scan = &reader->scan;
  Model *model = reader->model;
  scan_expect(scan, '[');
  if (scan_accept(scan, ']')) return;
  do {
    OpsetImport import = {.domain = scan_quoted(scan, "a domain in quotes")};
    scan_expect(scan, ':');
    import.version = scan_integer(scan);
    if (!keep) continue;
    if (!*import.domain || strcmp(import.domain, "ai.onnx") == 0) model->opset = import.version;
    array_push(reader->context, &model->opsets, import);
  } while (scan_accept(scan, ','));
  scan_expect(scan, ']');
}

static void read_metadata(Reader *reader) {
  Scanner *scan = &reader->scan;
  scan_expect(scan, '[');
  if (scan_accept(scan, ']')) return;
  do {
    Metadata entry = {.key = scan_quoted(scan, "a key in quotes")};
    scan_expect(scan, ':');
    entry.value = scan_quoted(scan, "a value in quotes");
    array_push(reader->context, &reader->model->metadata, entry);
  } while (scan_accept(scan, ','));
  scan_expect(scan, ']');
}

static void read_head_field(Reader *reader) {
  Scanner *scan = &reader->scan;
  Model *model = reader->model;
  scan_space(scan);
  const char *start = scan->at;
  Str key = scan_word(scan, "ir_version, opset_import, or another field of the model");
  scan_expect(scan, ':');
  if (strcmp(key, "ir_version") == 0) model->ir_version = scan_integer(scan);
  else if (strcmp(key, "opset_import") == 0) read_opsets(reader, true);
  else if (strcmp(key, "producer_name") == 0) model->producer_name = scan_quoted(scan, "a string");
  else if (strcmp(key, "producer_version") == 0) model->producer_version = scan_quoted(scan, "a string");
  else if (strcmp(key, "metadata_props") == 0) read_metadata(reader);
  else if (strcmp(key, "domain") == 0 || strcmp(key, "doc_string") == 0) scan_quoted(scan, "a string");
  else if (strcmp(key, "model_version") == 0) scan_integer(scan);
  else scan_fail(scan, start, "unknown field");
}

static void read_head(Reader *reader) {
  Model *model = reader->model;
  if (scan_accept(&reader->scan, '<')) {
    do read_head_field(reader);
    while (scan_accept(&reader->scan, ','));
    scan_expect(&reader->scan, '>');
    return;
  }
  model->ir_version = DEFAULT_IR_VERSION;
  model->opset = reader->source->opset;
  OpsetImport own = {str_intern(reader->context, ""), model->opset};
  array_push(reader->context, &model->opsets, own);
}

/* <domain: "d", opset_import: ["": 21]> name <attribute> (x) => (y) { … } */
static void read_function(Reader *reader, const Entries *metadata) {
  Scanner *scan = &reader->scan;
  Function *function = arena_new(&reader->context->arena, Function);
  function->domain = str_intern(reader->context, "");
  scan_expect(scan, '<');
  do {
    Str key = scan_word(scan, "domain, opset_import, overload or doc_string");
    scan_expect(scan, ':');
    if (strcmp(key, "opset_import") == 0) read_opsets(reader, false);
    else if (strcmp(key, "domain") == 0) function->domain = scan_quoted(scan, "a domain in quotes");
    else scan_quoted(scan, "a string");
  } while (scan_accept(scan, ','));
  scan_expect(scan, '>');
  function->name = name(reader, "a function's name");
  if (scan_accept(scan, '<')) {
    do array_push(reader->context, &function->attributes, name(reader, "an attribute's name"));
    while (scan_accept(scan, ','));
    scan_expect(scan, '>');
  }
  function->body = graph_new(reader->model, function->name);
  read_body(reader, function->body, NULL, false);
  for (size_t i = 0; i < metadata->count; i++) array_push(reader->context, &function->metadata, metadata->items[i]);
  array_push(reader->context, &reader->model->functions, function);
}

Model *model_read_text(Context *context, const TextSource *source) {
  Reader reader = {.context = context, .source = source, .counted = source->text, .line = 1};
  scanner_init(&reader.scan, context, source->text, source->length, ESCAPES_NONE);
  reader.model = model_new(context, source->provenance, 0);
  reader.model->producer_name = reader.model->producer_version = str_intern(context, "");
  read_head(&reader);
  reader.model->graph = read_graph(&reader, NULL);
  for (;;) {
    Entries metadata = comments(&reader);
    if (scan_ended(&reader.scan)) break;
    read_function(&reader, &metadata);
  }
  model_link_calls(reader.model);
  return reader.model;
}

static void require_tensor(const Model *model, const Tensor *tensor, Str name) {
  if (!tensor || tensor_is_readable(tensor)) return;
  fail(model->context, ERROR_VALUE, "the data of '%s' is missing: only its type is known", name ? name : "a tensor");
}

static void require_tensors(Graph *graph, void *data) {
  const Model *model = data;
  for (size_t i = 0; i < graph->initializers.count; i++) {
    require_tensor(model, graph->initializers.items[i]->tensor, graph->initializers.items[i]->name);
  }
  FOR_EACH_NODE(node, graph) {
    for (size_t i = 0; i < node->attributes.count; i++) {
      const Attribute *attribute = &node->attributes.items[i];
      if (attribute->kind == ATTRIBUTE_TENSOR) require_tensor(model, attribute->tensor, attribute->name);
    }
  }
}

void model_require_data(Model *model) { model_each_graph(model, require_tensors, model); }

bool model_text_is_bare(const void *bytes, size_t size) {
  Context none = {0};
  Scanner scan;
  scanner_init(&scan, &none, bytes, size, ESCAPES_NONE);
  if (scan_sees(&scan, '"')) return true;
  size_t length = scan_word_length(&scan);
  scan.at += length;
  return length && scan_sees(&scan, '(');
}

bool looks_like_model_text(const void *bytes, size_t size) {
  Context none = {0};
  Scanner scan;
  scanner_init(&scan, &none, bytes, size, ESCAPES_NONE);
  return scan_sees(&scan, '<') || model_text_is_bare(bytes, size);
}
