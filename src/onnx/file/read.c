/* Reading a model. A graph is walked twice: first everything that defines a value, then everything that uses one, so
 * that the order of fields and nodes in the file does not matter. */
#include "onnx/file/read.h"

#include <string.h>

#include "onnx/facts/schema.h"
#include "onnx/facts/schema_fields.h"
#include "onnx/file/elements.h"
#include "onnx/file/wire.h"

enum {
  MAX_GRAPH_DEPTH = 64,
  MAX_DECODED = 1024,    /* bytes of packed integers that are decoded while reading */
  EXTERNAL_LOCATION = 1, /* TensorProto.DataLocation */
};

typedef struct Scope {
  Graph *graph;
  const struct Scope *outer; /* NULL for a main graph or function body */
  unsigned depth;
} Scope;

typedef struct Reader {
  Context *context;
  Model *model;
  const unsigned char *base;
  bool is_marked;
  Map values; /* (name, graph) to Value */
} Reader;

static void read_graph(Reader *reader, Wire message, Graph *graph, const Scope *outer);

/* What is read can be found again in the bytes. */
static void mark(Reader *reader, const Wire *message, void *thing) {
  if (reader->is_marked) *map_slot_pointer(reader->context, &reader->model->messages, message->at) = thing;
}

static Str text_of(Reader *reader, const Field *field) {
  return str_intern_sized(reader->context, field->size ? (const char *)field->data : "", field->size);
}

/* ---- values and scopes ---- */

static Value *value_in(const Reader *reader, const Graph *graph, Str name) {
  return map_get(&reader->values, (uint64_t)(uintptr_t)name, (uint64_t)(uintptr_t)graph);
}

/* The first definition of a name stands: a second one is an error of the file, which reading survives. */
static void define(Reader *reader, Value *value) {
  void **slot =
      map_slot(reader->context, &reader->values, (uint64_t)(uintptr_t)value->name, (uint64_t)(uintptr_t)value->graph);
  if (!*slot) *slot = value;
}

static Value *resolve(Reader *reader, const Scope *scope, Str name) {
  for (const Scope *around = scope; around; around = around->outer) {
    Value *value = value_in(reader, around->graph, name);
    if (value) return value;
  }
  Value *value = arena_new(&reader->context->arena, Value);
  value->name = name;
  value->graph = scope->graph;
  define(reader, value);
  return value;
}

/* ---- types ---- */

static Dim read_dimension(Reader *reader, Wire message) {
  Str symbol = NULL;
  bool known = false;
  int64_t size = 0;
  Field field;
  while (wire_next(&message, &field)) {
    switch (field.key) {
      case AS_VARINT(FIELD_DIMENSION_DIM_VALUE):
        size = (int64_t)field.value;
        known = true;
        symbol = NULL;
        break;
      case AS_BYTES(FIELD_DIMENSION_DIM_PARAM):
        symbol = text_of(reader, &field);
        known = false;
        break;
      default: break;
    }
  }
  if (known) return dim_of(size);
  Context *context = reader->context;
  if (!symbol || !*symbol) symbol = str_intern(context, UNKNOWN_DIMENSION);
  const DimExpr *interned = map_get_pointer(&context->dimensions, symbol);
  return interned ? (Dim){.expr = interned} : dim_symbol(context, symbol);
}

static Type read_tensor_type(Reader *reader, Wire message) {
  Type type = {.dims = UNRANKED};
  ARRAY(Dim) dims = {0};
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key == AS_VARINT(FIELD_TENSOR_TYPE_ELEM_TYPE)) {
      type.dtype = dtype_from_onnx((int)(field.value & 0x7FFFFFFF));
    } else if (field.key == AS_BYTES(FIELD_TENSOR_TYPE_SHAPE)) {
      type.dims = NULL;
      dims.count = 0;
      Wire shape = wire_inside(&message, &field);
      while (wire_next(&shape, &field)) {
        if (field.key != AS_BYTES(FIELD_SHAPE_DIM)) continue;
        array_push(reader->context, &dims, read_dimension(reader, wire_inside(&shape, &field)));
      }
    }
  }
  if (dims.count) {
    type.rank = (uint32_t)dims.count;
    type.dims = dims.items;
  }
  return type;
}

typedef struct ValueInfo {
  Str name;
  Type type; /* DTYPE_NONE for what is not a tensor */
} ValueInfo;

static ValueInfo read_value_info(Reader *reader, Wire message) {
  ValueInfo info = {.name = str_intern(reader->context, "")};
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key == AS_BYTES(FIELD_VALUE_INFO_NAME)) {
      info.name = text_of(reader, &field);
    } else if (field.key == AS_BYTES(FIELD_VALUE_INFO_TYPE)) {
      Wire type = wire_inside(&message, &field);
      while (wire_next(&type, &field)) {
        if (field.key == AS_BYTES(FIELD_TYPE_TENSOR_TYPE)) {
          info.type = read_tensor_type(reader, wire_inside(&type, &field));
        }
      }
    }
  }
  return info;
}

static void give_type(Value *value, Type type) {
  if (value && value->type.dtype == DTYPE_NONE) value->type = type;
}

/* ---- tensors ---- */

typedef struct TensorParts {
  StoredTensor stored;
  ARRAY(int64_t) dims;
  int onnx_type;
  bool external;
  const unsigned char *raw; /* plain bytes: raw_data, or packed floats and doubles */
  size_t raw_size;
  unsigned chunks; /* of data; more than one are left alone */
  uint64_t field;  /* of the last of them: its number */
} TensorParts;

static void read_external_entry(Reader *reader, TensorParts *parts, Wire message) {
  Str key = NULL, value = NULL;
  const unsigned char *start = message.at;
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key == AS_BYTES(FIELD_ENTRY_KEY)) key = text_of(reader, &field);
    if (field.key == AS_BYTES(FIELD_ENTRY_VALUE)) value = text_of(reader, &field);
  }
  if (!key || !value) return;
  if (str_is(key, "location")) parts->stored.location = value;
  bool is_offset = str_is(key, "offset");
  if (!is_offset && !str_is(key, "length")) return;
  uint64_t number = 0;
  for (const char *c = value, *end = value + str_length(value); c < end; c++) {
    if (*c < '0' || *c > '9' || number > (UINT64_MAX - 9) / 10)
      wire_fail(&message, start, "invalid external data entry");
    number = number * 10 + (uint64_t)(*c - '0');
  }
  *(is_offset ? &parts->stored.offset : &parts->stored.length) = number;
}

static void push_dims(Reader *reader, TensorParts *parts, Wire packed) {
  while (packed.at < packed.end) array_push(reader->context, &parts->dims, (int64_t)wire_varint(&packed));
}

static void read_tensor_field(Reader *reader, TensorParts *parts, const Wire *message, const Field *field) {
  switch (field->key) {
    case AS_VARINT(FIELD_TENSOR_DIMS): array_push(reader->context, &parts->dims, (int64_t)field->value); break;
    case AS_BYTES(FIELD_TENSOR_DIMS): push_dims(reader, parts, wire_inside(message, field)); break;
    case AS_VARINT(FIELD_TENSOR_DATA_TYPE): parts->onnx_type = (int)(field->value & 0x7FFFFFFF); break;
    case AS_VARINT(FIELD_TENSOR_DATA_LOCATION): parts->external = field->value == EXTERNAL_LOCATION; break;
    case AS_BYTES(FIELD_TENSOR_EXTERNAL_DATA): read_external_entry(reader, parts, wire_inside(message, field)); break;
    case AS_BYTES(FIELD_TENSOR_RAW_DATA):
    case AS_BYTES(FIELD_TENSOR_FLOAT_DATA):
    case AS_BYTES(FIELD_TENSOR_DOUBLE_DATA):
      if (!field->size) break;
      parts->raw = field->data;
      parts->raw_size = field->size;
      parts->field = field->key >> 3;
      parts->chunks++;
      break;
    case AS_BYTES(FIELD_TENSOR_INT32_DATA):
    case AS_BYTES(FIELD_TENSOR_INT64_DATA):
    case AS_BYTES(FIELD_TENSOR_UINT64_DATA):
      if (!field->size) break;
      parts->stored.packed = field->data;
      parts->stored.packed_size = field->size;
      parts->field = field->key >> 3;
      parts->chunks++;
      break;
    case AS_FIXED32(FIELD_TENSOR_FLOAT_DATA):
    case FIELD_KEY(FIELD_TENSOR_DOUBLE_DATA, WIRE_FIXED64):
    case AS_VARINT(FIELD_TENSOR_INT32_DATA):
    case AS_VARINT(FIELD_TENSOR_INT64_DATA):
    case AS_VARINT(FIELD_TENSOR_UINT64_DATA): parts->chunks = 2; break;
    default: break;
  }
}

/* Bytes that a tensor's shape asks for; 0 where the type has no fixed size. */
static size_t expected_size(const Wire *message, DType dtype, const TensorParts *parts) {
  uint64_t count = 1, bits;
  for (size_t i = 0; i < parts->dims.count; i++) {
    int64_t dim = parts->dims.items[i];
    if (dim < 0) wire_fail(message, parts->stored.message, "a tensor with a negative dimension");
    if (__builtin_mul_overflow(count, (uint64_t)dim, &count)) count = UINT64_MAX;
    if (dim == 0) {
      count = 0;
      break;
    }
  }
  if (__builtin_mul_overflow(count, (uint64_t)dtype_bits(dtype), &bits) || bits > (uint64_t)INT64_MAX - 7) {
    wire_fail(message, parts->stored.message, "a tensor whose size overflows");
  }
  return (size_t)((bits + 7) / 8);
}

/* Integers as the little-endian bytes that raw_data would hold; NULL when they are too many or do not fit the shape. */
static void *decode_packed(Reader *reader, const Wire *message, DType dtype, const StoredTensor *stored, size_t size) {
  size_t width = dtype_bits(dtype) < 8 ? 1 : dtype_bits(dtype) / 8;
  if (stored->packed_size > MAX_DECODED || width > 8 || size / width > stored->packed_size) return NULL;
  unsigned char *bytes = arena_alloc(&reader->context->arena, size);
  Wire packed = {message->context, message->base, stored->packed, stored->packed + stored->packed_size};
  size_t at = 0;
  for (; packed.at < packed.end; at += width) {
    uint64_t number = wire_varint(&packed);
    if (size - at < width) return NULL;
    for (size_t i = 0; i < width; i++) bytes[at + i] = (unsigned char)(number >> (8 * i));
  }
  return at == size ? bytes : NULL;
}

static void remember(Reader *reader, const Tensor *tensor, const StoredTensor *stored) {
  void **slot = map_slot_pointer(reader->context, &reader->model->stored, tensor);
  *slot = arena_copy(&reader->context->arena, stored, sizeof *stored);
}

static const Tensor *read_tensor(Reader *reader, Wire message) {
  TensorParts parts = {.stored = {.message = message.at, .message_size = (size_t)(message.end - message.at)}};
  Tensor *tensor = arena_new(&reader->context->arena, Tensor);
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key == AS_BYTES(FIELD_TENSOR_NAME)) tensor->name = text_of(reader, &field);
    else read_tensor_field(reader, &parts, &message, &field);
  }
  tensor->dtype = dtype_from_onnx(parts.onnx_type);
  tensor->rank = (uint32_t)parts.dims.count;
  tensor->dims = parts.dims.items;
  tensor->size = expected_size(&message, tensor->dtype, &parts);
  bool belongs = parts.field == FIELD_TENSOR_RAW_DATA || parts.field == (uint64_t)typed_field(tensor->dtype);
  bool plain = parts.raw && parts.chunks == 1 && !parts.external && belongs;
  if (plain && dtype_bits(tensor->dtype) && parts.raw_size != tensor->size) {
    wire_fail(&message, parts.raw, "a tensor whose data does not match its shape");
  }
  if (plain) {
    tensor->data = parts.raw;
    tensor->size = parts.raw_size;
  } else if (!parts.external && parts.stored.packed && parts.chunks == 1 && belongs) {
    tensor->data = decode_packed(reader, &message, tensor->dtype, &parts.stored, tensor->size);
  }
  if (!parts.external) parts.stored.location = NULL;
  else if (!parts.stored.location) parts.stored.location = str_intern(reader->context, "");
  parts.stored.onnx_type = parts.onnx_type;
  bool is_unknown = tensor->dtype == DTYPE_NONE && parts.onnx_type;
  if (is_unknown || (!tensor->data && (tensor->size || tensor->dtype == DTYPE_STRING))) {
    remember(reader, tensor, &parts.stored);
  }
  return tensor;
}

const StoredTensor *tensor_stored(const Model *model, const Tensor *tensor) {
  return map_get_pointer(&model->stored, tensor);
}

bool stored_next_string(Context *context, const StoredTensor *stored, size_t *cursor, const char **text,
                        size_t *length) {
  Wire message = {context, stored->message, stored->message + *cursor, stored->message + stored->message_size};
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key != AS_BYTES(FIELD_TENSOR_STRING_DATA)) continue;
    *cursor = (size_t)(message.at - stored->message);
    *text = (const char *)field.data;
    *length = field.size;
    return true;
  }
  return false;
}

/* ---- attributes and metadata ---- */

static Metadata read_metadata(Reader *reader, Wire message) {
  Metadata entry = {str_intern(reader->context, ""), str_intern(reader->context, "")};
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key == AS_BYTES(FIELD_ENTRY_KEY)) entry.key = text_of(reader, &field);
    if (field.key == AS_BYTES(FIELD_ENTRY_VALUE)) entry.value = text_of(reader, &field);
  }
  return entry;
}

typedef struct AttributeParts {
  Str name, reference;
  uint64_t type;
  int64_t integer;
  float real;
  Field string, tensor, graph; /* data NULL: absent */
  ARRAY(int64_t) integers;
  ARRAY(float) reals;
  ARRAY(Str) strings;
} AttributeParts;

static float float_of_bits(uint64_t bits) {
  uint32_t word = (uint32_t)bits;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

static void push_packed_integers(Reader *reader, AttributeParts *parts, Wire packed) {
  while (packed.at < packed.end) array_push(reader->context, &parts->integers, (int64_t)wire_varint(&packed));
}

static void push_packed_reals(Reader *reader, AttributeParts *parts, const Wire *message, const Field *field) {
  if (field->size % 4) wire_fail(message, field->data, "a list of numbers with an invalid length");
  for (size_t i = 0; i < field->size; i += 4) {
    float value;
    memcpy(&value, field->data + i, sizeof value);
    array_push(reader->context, &parts->reals, value);
  }
}

static void read_attribute_field(Reader *reader, AttributeParts *parts, const Wire *message, const Field *field) {
  switch (field->key) {
    case AS_BYTES(FIELD_ATTRIBUTE_NAME): parts->name = text_of(reader, field); break;
    case AS_BYTES(FIELD_ATTRIBUTE_REF_ATTR_NAME): parts->reference = text_of(reader, field); break;
    case AS_VARINT(FIELD_ATTRIBUTE_TYPE): parts->type = field->value; break;
    case AS_VARINT(FIELD_ATTRIBUTE_I): parts->integer = (int64_t)field->value; break;
    case AS_FIXED32(FIELD_ATTRIBUTE_F): parts->real = float_of_bits(field->value); break;
    case AS_BYTES(FIELD_ATTRIBUTE_S): parts->string = *field; break;
    case AS_BYTES(FIELD_ATTRIBUTE_T): parts->tensor = *field; break;
    case AS_BYTES(FIELD_ATTRIBUTE_G): parts->graph = *field; break;
    case AS_VARINT(FIELD_ATTRIBUTE_INTS): array_push(reader->context, &parts->integers, (int64_t)field->value); break;
    case AS_BYTES(FIELD_ATTRIBUTE_INTS): push_packed_integers(reader, parts, wire_inside(message, field)); break;
    case AS_FIXED32(FIELD_ATTRIBUTE_FLOATS):
      array_push(reader->context, &parts->reals, float_of_bits(field->value));
      break;
    case AS_BYTES(FIELD_ATTRIBUTE_FLOATS): push_packed_reals(reader, parts, message, field); break;
    case AS_BYTES(FIELD_ATTRIBUTE_STRINGS): array_push(reader->context, &parts->strings, text_of(reader, field)); break;
    default: break;
  }
}

/* Writers before IR version 3 left the type out. */
static uint64_t guess_type(const AttributeParts *parts) {
  if (parts->string.data) return ONNX_ATTRIBUTE_STRING;
  if (parts->tensor.data) return ONNX_ATTRIBUTE_TENSOR;
  if (parts->graph.data) return ONNX_ATTRIBUTE_GRAPH;
  if (parts->integers.count) return ONNX_ATTRIBUTE_INTS;
  if (parts->reals.count) return ONNX_ATTRIBUTE_FLOATS;
  if (parts->strings.count) return ONNX_ATTRIBUTE_STRINGS;
  return parts->real != 0 ? ONNX_ATTRIBUTE_FLOAT : ONNX_ATTRIBUTE_INT;
}

static void fill_attribute(Reader *reader, Attribute *attribute, AttributeParts *parts, const Wire *message) {
  switch (parts->type) {
    case ONNX_ATTRIBUTE_INT:
      attribute->kind = ATTRIBUTE_INT;
      attribute->integer = parts->integer;
      break;
    case ONNX_ATTRIBUTE_FLOAT:
      attribute->kind = ATTRIBUTE_FLOAT;
      attribute->real = parts->real;
      break;
    case ONNX_ATTRIBUTE_STRING:
      attribute->kind = ATTRIBUTE_STRING;
      attribute->string = text_of(reader, &parts->string);
      attribute->count = parts->string.size;
      break;
    case ONNX_ATTRIBUTE_INTS:
      attribute->kind = ATTRIBUTE_INTS;
      attribute->integers = parts->integers.items;
      attribute->count = parts->integers.count;
      break;
    case ONNX_ATTRIBUTE_FLOATS:
      attribute->kind = ATTRIBUTE_FLOATS;
      attribute->reals = parts->reals.items;
      attribute->count = parts->reals.count;
      break;
    case ONNX_ATTRIBUTE_STRINGS:
      attribute->kind = ATTRIBUTE_STRINGS;
      attribute->strings = parts->strings.items;
      attribute->count = parts->strings.count;
      break;
    case ONNX_ATTRIBUTE_TENSOR:
      attribute->kind = ATTRIBUTE_TENSOR;
      if (parts->tensor.data) attribute->tensor = read_tensor(reader, wire_inside(message, &parts->tensor));
      else if (!parts->reference) wire_fail(message, message->end, "a tensor attribute without its tensor");
      break;
    case ONNX_ATTRIBUTE_GRAPH:
      attribute->kind = ATTRIBUTE_GRAPH;
      if (!parts->graph.data) wire_fail(message, message->end, "a graph attribute without its graph");
      break;
    default: attribute->kind = ATTRIBUTE_OTHER;
  }
}

static void read_attribute(Reader *reader, Wire message, Node *node, const Scope *scope) {
  AttributeParts parts = {.name = str_intern(reader->context, ""), .string = {.data = NULL}};
  Field field;
  while (wire_next(&message, &field)) read_attribute_field(reader, &parts, &message, &field);
  if (!parts.type) parts.type = guess_type(&parts);
  Attribute attribute = {.name = parts.name, .reference = parts.reference};
  fill_attribute(reader, &attribute, &parts, &message);
  if (attribute.kind == ATTRIBUTE_GRAPH) {
    attribute.graph = graph_new(reader->model, str_intern(reader->context, ""));
    attribute.graph->owner = node;
    read_graph(reader, wire_inside(&message, &parts.graph), attribute.graph, scope);
  }
  array_push(reader->context, &node->attributes, attribute);
}

/* ---- nodes ---- */

/* Makes the node and defines its outputs; what it uses is linked once everything is defined. */
static void define_node(Reader *reader, Wire message, Graph *graph) {
  Context *context = reader->context;
  size_t input_count = 0, output_count = 0, attribute_count = 0, metadata_count = 0;
  Str op = str_intern(context, ""), domain = op, name = op;
  Field field;
  for (Wire wire = message; wire_next(&wire, &field);) {
    switch (field.key) {
      case AS_BYTES(FIELD_NODE_INPUT): input_count++; break;
      case AS_BYTES(FIELD_NODE_OUTPUT): output_count++; break;
      case AS_BYTES(FIELD_NODE_ATTRIBUTE): attribute_count++; break;
      case AS_BYTES(FIELD_NODE_METADATA_PROPS): metadata_count++; break;
      case AS_BYTES(FIELD_NODE_OP_TYPE): op = text_of(reader, &field); break;
      case AS_BYTES(FIELD_NODE_DOMAIN): domain = text_of(reader, &field); break;
      case AS_BYTES(FIELD_NODE_NAME): name = text_of(reader, &field); break;
      default: break;
    }
  }
  if (input_count > UINT32_MAX || output_count > UINT32_MAX) {
    wire_fail(&message, message.at, "a node with too many values");
  }
  Node *node = graph_named_node(graph, NULL, op, domain, NULL, input_count, NULL, output_count, NULL);
  array_reserve(context, &node->attributes, attribute_count);
  array_reserve(context, &node->metadata, metadata_count);
  node->op_type = op; /* whole, should a NUL be in it */
  node->domain = domain;
  if (str_length(domain) || str_length(op) != strlen(op)) node->op = OP_NONE;
  node->name = name;
  mark(reader, &message, node);
  size_t index = 0;
  for (Wire wire = message; wire_next(&wire, &field);) {
    if (field.key != AS_BYTES(FIELD_NODE_OUTPUT)) continue;
    if (field.size) {
      node->outputs[index]->name = text_of(reader, &field);
      define(reader, node->outputs[index]);
    } else {
      node->outputs[index] = NULL;
    }
    index++;
  }
}

static void link_node(Reader *reader, Node *node, Wire message, const Scope *scope) {
  size_t index = 0;
  Field field;
  while (wire_next(&message, &field)) {
    switch (field.key) {
      case AS_BYTES(FIELD_NODE_INPUT):
        if (field.size) use_set(&node->inputs[index], resolve(reader, scope, text_of(reader, &field)));
        index++;
        break;
      case AS_BYTES(FIELD_NODE_ATTRIBUTE): read_attribute(reader, wire_inside(&message, &field), node, scope); break;
      case AS_BYTES(FIELD_NODE_METADATA_PROPS):
        array_push(reader->context, &node->metadata, read_metadata(reader, wire_inside(&message, &field)));
        break;
      default: break;
    }
  }
}

/* The nodes of a graph are in the order of their messages. */
static void link_nodes(Reader *reader, Wire message, int node_field, const Scope *scope) {
  Node *node = scope->graph->first;
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key != AS_BYTES(node_field)) continue;
    link_node(reader, node, wire_inside(&message, &field), scope);
    node = node->next;
  }
}

/* ---- graphs and functions ---- */

/* An initializer that gives a graph input its default is the same value. */
static Value *add_initializer(Reader *reader, Graph *graph, const Tensor *tensor) {
  Str name = tensor->name ? tensor->name : str_intern(reader->context, "");
  Value *input = value_in(reader, graph, name);
  if (input && !input->producer && !input->tensor) {
    input->tensor = tensor;
    give_type(input, tensor_type(reader->context, tensor));
    array_push(reader->context, &graph->initializers, input);
    return input;
  }
  Value *value = graph_initializer(graph, tensor);
  value->name = name;
  value->name_fixed = true;
  define(reader, value);
  return value;
}

static void read_initializer(Reader *reader, Graph *graph, Wire message) {
  Value *value = add_initializer(reader, graph, read_tensor(reader, message));
  mark(reader, &message, value);
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key != AS_BYTES(FIELD_TENSOR_METADATA_PROPS)) continue;
    array_push(reader->context, &value->metadata, read_metadata(reader, wire_inside(&message, &field)));
  }
}

static void add_input(Reader *reader, Graph *graph, ValueInfo info) {
  define(reader, graph_input(graph, info.type, info.name));
}

static void add_output(Reader *reader, const Scope *scope, ValueInfo info) {
  Value *value = resolve(reader, scope, info.name);
  /* A subgraph's output may be a value of a graph around it, which the subgraph does not name. */
  if (value->graph == scope->graph) value->name_fixed = true;
  give_type(value, info.type);
  graph_output(scope->graph, value);
}

static Scope enter(const Wire *message, Graph *graph, const Scope *outer) {
  Scope scope = {.graph = graph, .outer = outer, .depth = outer ? outer->depth + 1 : 1};
  if (scope.depth > MAX_GRAPH_DEPTH) wire_fail(message, message->at, "graphs are nested too deeply");
  return scope;
}

static void read_graph(Reader *reader, Wire message, Graph *graph, const Scope *outer) {
  Scope scope = enter(&message, graph, outer);
  Field field;
  for (Wire wire = message; wire_next(&wire, &field);) {
    if (field.key == AS_BYTES(FIELD_GRAPH_INPUT)) {
      add_input(reader, graph, read_value_info(reader, wire_inside(&wire, &field)));
    } else if (field.key == AS_BYTES(FIELD_GRAPH_NAME)) {
      graph->name = text_of(reader, &field);
    }
  }
  for (Wire wire = message; wire_next(&wire, &field);) {
    if (field.key == AS_BYTES(FIELD_GRAPH_INITIALIZER)) {
      read_initializer(reader, graph, wire_inside(&wire, &field));
    } else if (field.key == AS_BYTES(FIELD_GRAPH_NODE)) {
      define_node(reader, wire_inside(&wire, &field), graph);
    }
  }
  for (Wire wire = message; wire_next(&wire, &field);) {
    if (field.key == AS_BYTES(FIELD_GRAPH_OUTPUT)) {
      add_output(reader, &scope, read_value_info(reader, wire_inside(&wire, &field)));
    } else if (field.key == AS_BYTES(FIELD_GRAPH_VALUE_INFO)) {
      ValueInfo info = read_value_info(reader, wire_inside(&wire, &field));
      give_type(value_in(reader, graph, info.name), info.type);
    }
  }
  link_nodes(reader, message, FIELD_GRAPH_NODE, &scope);
}

static OpsetImport read_opset(Reader *reader, Wire message) {
  OpsetImport import = {.domain = str_intern(reader->context, "")};
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key == AS_BYTES(FIELD_OPSET_DOMAIN)) import.domain = text_of(reader, &field);
    if (field.key == AS_VARINT(FIELD_OPSET_VERSION)) import.version = (int64_t)field.value;
  }
  return import;
}

static bool is_own_domain(Str domain) { return !*domain || str_is(domain, "ai.onnx"); }

static void read_function_field(Reader *reader, Function *function, const Wire *wire, const Field *field) {
  switch (field->key) {
    case AS_BYTES(FIELD_FUNCTION_NAME): function->name = text_of(reader, field); break;
    case AS_BYTES(FIELD_FUNCTION_DOMAIN): function->domain = text_of(reader, field); break;
    case AS_BYTES(FIELD_FUNCTION_INPUT):
      add_input(reader, function->body, (ValueInfo){.name = text_of(reader, field)});
      break;
    case AS_BYTES(FIELD_FUNCTION_ATTRIBUTE):
      array_push(reader->context, &function->attributes, text_of(reader, field));
      break;
    case AS_BYTES(FIELD_FUNCTION_ATTRIBUTE_PROTO): { /* an attribute with a default: its name is what is kept */
      AttributeParts parts = {.name = str_intern(reader->context, ""), .string = {.data = NULL}};
      Wire attribute = wire_inside(wire, field);
      Field inner;
      while (wire_next(&attribute, &inner)) {
        if (inner.key == AS_BYTES(FIELD_ATTRIBUTE_NAME)) parts.name = text_of(reader, &inner);
      }
      array_push(reader->context, &function->attributes, parts.name);
      break;
    }
    case AS_BYTES(FIELD_FUNCTION_OPSET_IMPORT): {
      OpsetImport import = read_opset(reader, wire_inside(wire, field));
      if (is_own_domain(import.domain)) function->opset = import.version;
      break;
    }
    case AS_BYTES(FIELD_FUNCTION_METADATA_PROPS):
      array_push(reader->context, &function->metadata, read_metadata(reader, wire_inside(wire, field)));
      break;
    case AS_BYTES(FIELD_FUNCTION_NODE): define_node(reader, wire_inside(wire, field), function->body); break;
    default: break;
  }
}

static void read_function(Reader *reader, Wire message) {
  Function *function = arena_new(&reader->context->arena, Function);
  mark(reader, &message, function);
  function->name = function->domain = str_intern(reader->context, "");
  function->body = graph_new(reader->model, function->name);
  Scope scope = enter(&message, function->body, NULL);
  Field field;
  for (Wire wire = message; wire_next(&wire, &field);) read_function_field(reader, function, &wire, &field);
  function->body->name = function->name;
  for (Wire wire = message; wire_next(&wire, &field);) {
    if (field.key == AS_BYTES(FIELD_FUNCTION_OUTPUT)) {
      add_output(reader, &scope, (ValueInfo){.name = text_of(reader, &field)});
    } else if (field.key == AS_BYTES(FIELD_FUNCTION_VALUE_INFO)) {
      ValueInfo info = read_value_info(reader, wire_inside(&wire, &field));
      give_type(value_in(reader, function->body, info.name), info.type);
    }
  }
  link_nodes(reader, message, FIELD_FUNCTION_NODE, &scope);
  array_push(reader->context, &reader->model->functions, function);
}

/* ---- the model ---- */

static void read_model_field(Reader *reader, const Wire *wire, const Field *field) {
  Model *model = reader->model;
  switch (field->key) {
    case AS_VARINT(FIELD_MODEL_IR_VERSION): model->ir_version = (int64_t)field->value; break;
    case AS_BYTES(FIELD_MODEL_PRODUCER_NAME): model->producer_name = text_of(reader, field); break;
    case AS_BYTES(FIELD_MODEL_PRODUCER_VERSION): model->producer_version = text_of(reader, field); break;
    case AS_BYTES(FIELD_MODEL_OPSET_IMPORT): {
      OpsetImport import = read_opset(reader, wire_inside(wire, field));
      if (is_own_domain(import.domain)) model->opset = import.version;
      array_push(reader->context, &model->opsets, import);
      break;
    }
    case AS_BYTES(FIELD_MODEL_METADATA_PROPS):
      array_push(reader->context, &model->metadata, read_metadata(reader, wire_inside(wire, field)));
      break;
    case AS_BYTES(FIELD_MODEL_FUNCTIONS): read_function(reader, wire_inside(wire, field)); break;
    case AS_BYTES(FIELD_MODEL_GRAPH):
      model->graph = graph_new(model, str_intern(reader->context, ""));
      read_graph(reader, wire_inside(wire, field), model->graph, NULL);
      break;
    default: break;
  }
}

/* Is this the first field of a ModelProto, as any writer would begin one? */
static bool looks_like_model(const unsigned char *bytes) {
  unsigned number = bytes[0] >> 3, kind = bytes[0] & 7;
  if (bytes[0] >= 0x80) return true; /* a field number above 15: functions, or one that is not known here */
  bool is_number = number == FIELD_MODEL_IR_VERSION || number == FIELD_MODEL_MODEL_VERSION;
  bool is_bytes = (number >= FIELD_MODEL_PRODUCER_NAME && number <= FIELD_MODEL_OPSET_IMPORT && !is_number) ||
                  number == FIELD_MODEL_METADATA_PROPS;
  return (is_number && kind == WIRE_VARINT) || (is_bytes && kind == WIRE_BYTES);
}

static Model *read_model(Context *context, const void *bytes, size_t size, bool is_marked) {
  if (size == 0) fail(context, ERROR_FORMAT, "not an ONNX model: the file is empty");
  if (!looks_like_model(bytes)) {
    fail(context, ERROR_FORMAT, "not an ONNX model: unexpected first byte");
  }
  Reader reader = {.context = context, .base = bytes, .is_marked = is_marked};
  reader.model = model_new(context, NULL, 0);
  reader.model->producer_name = reader.model->producer_version = str_intern(context, "");
  Wire wire = {.context = context, .base = bytes, .at = bytes, .end = reader.base + size};
  Field field;
  while (wire_next(&wire, &field)) read_model_field(&reader, &wire, &field);
  if (!reader.model->graph) {
    fail(context, ERROR_FORMAT, "not an ONNX model, or truncated: there is no graph before its end at byte %zu", size);
  }
  return reader.model;
}

Model *model_read(Context *context, const void *bytes, size_t size) { return read_model(context, bytes, size, false); }

Model *model_read_marked(Context *context, const void *bytes, size_t size) {
  return read_model(context, bytes, size, true);
}
