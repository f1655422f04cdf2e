/* What a model holds beside what is compared piece by piece: sparse tensors, types that are no tensors, defaults of
 * functions' attributes, annotations, training. It is compared byte by byte, in order. */
#include <string.h>

#include "base/bytes.h"
#include "onnx/facts/schema_fields.h"
#include "onnx/file/wire.h"
#include "tool/diff.h"

typedef struct Part {
  const unsigned char *bytes;
  size_t size;
} Part;

typedef struct Rest {
  Context *context;
  ARRAY(Part) parts;
} Rest;

typedef struct RestField {
  int number;
  void (*walk)(Rest *rest, Wire message); /* NULL: the field as it is */
} RestField;

static void walk_graph(Rest *rest, Wire message);

static void walk(Rest *rest, Wire message, const RestField *fields) {
  Field field;
  while (wire_next(&message, &field)) {
    for (const RestField *row = fields; row->number; row++) {
      if (field.key != AS_BYTES(row->number)) continue;
      if (row->walk) row->walk(rest, wire_inside(&message, &field));
      else array_push(rest->context, &rest->parts, ((Part){field.start, (size_t)(message.at - field.start)}));
    }
  }
}

static void walk_type(Rest *rest, Wire message) {
  static const RestField fields[] = {{FIELD_TYPE_SEQUENCE_TYPE, NULL}, {FIELD_TYPE_MAP_TYPE, NULL},
                                     {FIELD_TYPE_OPAQUE_TYPE, NULL},   {FIELD_TYPE_SPARSE_TENSOR_TYPE, NULL},
                                     {FIELD_TYPE_OPTIONAL_TYPE, NULL}, {0}};
  walk(rest, message, fields);
}

static void walk_value_info(Rest *rest, Wire message) {
  static const RestField fields[] = {{FIELD_VALUE_INFO_TYPE, walk_type}, {0}};
  walk(rest, message, fields);
}

static void walk_attribute(Rest *rest, Wire message) {
  static const RestField fields[] = {{FIELD_ATTRIBUTE_G, walk_graph},        {FIELD_ATTRIBUTE_TENSORS, NULL},
                                     {FIELD_ATTRIBUTE_GRAPHS, NULL},         {FIELD_ATTRIBUTE_TP, NULL},
                                     {FIELD_ATTRIBUTE_TYPE_PROTOS, NULL},    {FIELD_ATTRIBUTE_SPARSE_TENSOR, NULL},
                                     {FIELD_ATTRIBUTE_SPARSE_TENSORS, NULL}, {0}};
  walk(rest, message, fields);
}

static void walk_node(Rest *rest, Wire message) {
  static const RestField fields[] = {{FIELD_NODE_ATTRIBUTE, walk_attribute}, {FIELD_NODE_OVERLOAD, NULL}, {0}};
  walk(rest, message, fields);
}

static void walk_graph(Rest *rest, Wire message) {
  static const RestField fields[] = {{FIELD_GRAPH_NODE, walk_node},
                                     {FIELD_GRAPH_INPUT, walk_value_info},
                                     {FIELD_GRAPH_OUTPUT, walk_value_info},
                                     {FIELD_GRAPH_VALUE_INFO, walk_value_info},
                                     {FIELD_GRAPH_SPARSE_INITIALIZER, NULL},
                                     {FIELD_GRAPH_QUANTIZATION_ANNOTATION, NULL},
                                     {0}};
  walk(rest, message, fields);
}

static void walk_function(Rest *rest, Wire message) {
  static const RestField fields[] = {
      {FIELD_FUNCTION_NODE, walk_node}, {FIELD_FUNCTION_ATTRIBUTE_PROTO, NULL}, {FIELD_FUNCTION_OVERLOAD, NULL}, {0}};
  walk(rest, message, fields);
}

static Rest rest_of(Context *context, const MappedFile *file) {
  static const RestField fields[] = {
      {FIELD_MODEL_GRAPH, walk_graph}, {FIELD_MODEL_FUNCTIONS, walk_function}, {FIELD_MODEL_TRAINING_INFO, NULL}, {0}};
  Rest rest = {.context = context};
  walk(&rest, (Wire){context, file->data, file->data, file->data + file->size}, fields);
  return rest;
}

bool diff_same_rest(const Diff *diff) {
  Context *context = &diff->job->context;
  Rest a = rest_of(context, &diff->job->files[0]), b = rest_of(context, &diff->job->files[1]);
  if (a.parts.count != b.parts.count) return false;
  for (size_t i = 0; i < a.parts.count; i++) {
    const Part *one = &a.parts.items[i], *two = &b.parts.items[i];
    if (one->size != two->size || !same_bytes(one->bytes, two->bytes, one->size)) return false;
  }
  return true;
}
