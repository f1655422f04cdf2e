/* Writing a model. Messages are put back to front (see encode.h), so each function reads from its last field up. */
#include "onnx/file/write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "onnx/facts/schema.h"
#include "onnx/facts/schema_fields.h"
#include "onnx/file/provenance_write.h"
#include "types/moved.h"

typedef struct External {
  const Tensor *tensor;
  uint64_t offset;
} External;

typedef struct Writer {
  Encoder encoder;
  Context *context;
  ProvenanceWriter provenance;
  size_t threshold;            /* tensors of this size or more are external; SIZE_MAX: none */
  const char *location;        /* file name of the external data, without directory */
  Map offsets;                 /* tensor -> External */
  ARRAY(External *) externals; /* in file order */
} Writer;

static void put_stored_metadata(Encoder *encoder, int field, const Metadata *items, size_t count) {
  while (count--) put_entry(encoder, field, items[count].key, items[count].value);
}

static void put_external(Writer *writer, const Tensor *tensor) {
  Encoder *encoder = &writer->encoder;
  const External *external = map_get_pointer(&writer->offsets, tensor);
  char number[32];
  put_int(encoder, FIELD_TENSOR_DATA_LOCATION, 1);
  snprintf(number, sizeof number, "%zu", tensor->size);
  put_entry(encoder, FIELD_TENSOR_EXTERNAL_DATA, "length", number);
  snprintf(number, sizeof number, "%" PRIu64, external->offset);
  put_entry(encoder, FIELD_TENSOR_EXTERNAL_DATA, "offset", number);
  put_entry(encoder, FIELD_TENSOR_EXTERNAL_DATA, "location", writer->location);
}

/* A tensor of a graph is an initializer; one of an attribute has no value. */
static void put_tensor(Writer *writer, int field, const Tensor *tensor, const Value *initializer) {
  Encoder *encoder = &writer->encoder;
  uint64_t mark = encoder->total;
  if (initializer) put_initializer_provenance(&writer->provenance, encoder, initializer);
  bool external = map_get_pointer(&writer->offsets, tensor) != NULL;
  if (external) put_external(writer, tensor);
  else put_segment(encoder, FIELD_TENSOR_RAW_DATA, tensor_segment(tensor));
  if (initializer) put_text(encoder, FIELD_TENSOR_NAME, initializer->name);
  put_int(encoder, FIELD_TENSOR_DATA_TYPE, onnx_dtype(tensor->dtype));
  for (uint32_t i = tensor->rank; i--;) put_int(encoder, FIELD_TENSOR_DIMS, tensor->dims[i]);
  put_message(encoder, field, mark);
}

static void put_type(Encoder *encoder, int field, Type type) {
  uint64_t type_mark = encoder->total;
  uint64_t tensor_mark = type_mark, shape_mark = type_mark;
  for (uint32_t i = type.rank; i--;) {
    uint64_t mark = encoder->total;
    if (dim_is_constant(type.dims[i])) put_int(encoder, FIELD_DIMENSION_DIM_VALUE, type.dims[i].constant);
    else put_text(encoder, FIELD_DIMENSION_DIM_PARAM, type.dims[i].expr->text);
    put_message(encoder, FIELD_SHAPE_DIM, mark);
  }
  put_message(encoder, FIELD_TENSOR_TYPE_SHAPE, shape_mark);
  put_int(encoder, FIELD_TENSOR_TYPE_ELEM_TYPE, onnx_dtype(type.dtype));
  put_message(encoder, FIELD_TYPE_TENSOR_TYPE, tensor_mark);
  put_message(encoder, field, type_mark);
}

static void put_value_info(Writer *writer, int field, const Value *value) {
  Encoder *encoder = &writer->encoder;
  uint64_t mark = encoder->total;
  if (value->type.dtype != DTYPE_NONE) put_type(encoder, FIELD_VALUE_INFO_TYPE, value->type);
  put_text(encoder, FIELD_VALUE_INFO_NAME, value->name);
  put_message(encoder, field, mark);
}

static void put_graph(Writer *writer, int field, const Graph *graph);

static void put_attribute(Writer *writer, const Attribute *attribute) {
  static const int types[] = {
      [ATTRIBUTE_INT] = ONNX_ATTRIBUTE_INT,         [ATTRIBUTE_FLOAT] = ONNX_ATTRIBUTE_FLOAT,
      [ATTRIBUTE_STRING] = ONNX_ATTRIBUTE_STRING,   [ATTRIBUTE_TENSOR] = ONNX_ATTRIBUTE_TENSOR,
      [ATTRIBUTE_GRAPH] = ONNX_ATTRIBUTE_GRAPH,     [ATTRIBUTE_INTS] = ONNX_ATTRIBUTE_INTS,
      [ATTRIBUTE_FLOATS] = ONNX_ATTRIBUTE_FLOATS,   [ATTRIBUTE_STRINGS] = ONNX_ATTRIBUTE_STRINGS,
      [ATTRIBUTE_OTHER] = ONNX_ATTRIBUTE_UNDEFINED,
  };
  Encoder *encoder = &writer->encoder;
  uint64_t mark = encoder->total;
  if (attribute->reference) put_text(encoder, FIELD_ATTRIBUTE_REF_ATTR_NAME, attribute->reference);
  put_int(encoder, FIELD_ATTRIBUTE_TYPE, types[attribute->kind]);
  if (!attribute->reference) {
    switch (attribute->kind) {
      case ATTRIBUTE_INT: put_int(encoder, FIELD_ATTRIBUTE_I, attribute->integer); break;
      case ATTRIBUTE_FLOAT: put_float(encoder, FIELD_ATTRIBUTE_F, attribute->real); break;
      case ATTRIBUTE_STRING: put_bytes(encoder, FIELD_ATTRIBUTE_S, attribute->string, attribute->count); break;
      case ATTRIBUTE_TENSOR: put_tensor(writer, FIELD_ATTRIBUTE_T, attribute->tensor, NULL); break;
      case ATTRIBUTE_GRAPH: put_graph(writer, FIELD_ATTRIBUTE_G, attribute->graph); break;
      case ATTRIBUTE_INTS:
        for (size_t i = attribute->count; i--;) put_int(encoder, FIELD_ATTRIBUTE_INTS, attribute->integers[i]);
        break;
      case ATTRIBUTE_FLOATS:
        for (size_t i = attribute->count; i--;) put_float(encoder, FIELD_ATTRIBUTE_FLOATS, attribute->reals[i]);
        break;
      case ATTRIBUTE_STRINGS:
        for (size_t i = attribute->count; i--;) put_text(encoder, FIELD_ATTRIBUTE_STRINGS, attribute->strings[i]);
        break;
      case ATTRIBUTE_OTHER:
        fail(writer->context, ERROR_UNSUPPORTED, "attribute '%s' has a kind that cannot be written", attribute->name);
    }
  }
  put_text(encoder, FIELD_ATTRIBUTE_NAME, attribute->name);
  put_message(encoder, FIELD_NODE_ATTRIBUTE, mark);
}

static void put_node(Writer *writer, int field, const Node *node) {
  Encoder *encoder = &writer->encoder;
  uint64_t mark = encoder->total;
  put_node_provenance(&writer->provenance, encoder, node);
  put_stored_metadata(encoder, FIELD_NODE_METADATA_PROPS, node->metadata.items, node->metadata.count);
  if (node->domain[0]) put_text(encoder, FIELD_NODE_DOMAIN, node->domain);
  for (size_t i = node->attributes.count; i--;) put_attribute(writer, &node->attributes.items[i]);
  put_text(encoder, FIELD_NODE_OP_TYPE, node->op_type);
  put_text(encoder, FIELD_NODE_NAME, node->name);
  for (uint32_t i = node->output_count; i--;) {
    put_text(encoder, FIELD_NODE_OUTPUT, node->outputs[i] ? node->outputs[i]->name : "");
  }
  for (uint32_t i = node->input_count; i--;) {
    put_text(encoder, FIELD_NODE_INPUT, node->inputs[i].value ? node->inputs[i].value->name : "");
  }
  put_message(encoder, field, mark);
}

static void put_intermediate_types(Writer *writer, int field, const Graph *graph) {
  for (const Node *node = graph->last; node; node = node->previous) {
    for (uint32_t i = node->output_count; i--;) {
      const Value *value = node->outputs[i];
      if (value && value->type.dtype != DTYPE_NONE && !value_is_output(value)) put_value_info(writer, field, value);
    }
  }
}

static void put_graph(Writer *writer, int field, const Graph *graph) {
  Encoder *encoder = &writer->encoder;
  uint64_t mark = encoder->total;
  put_intermediate_types(writer, FIELD_GRAPH_VALUE_INFO, graph);
  for (size_t i = graph->outputs.count; i--;) {
    put_value_info(writer, FIELD_GRAPH_OUTPUT, graph->outputs.items[i]->value);
  }
  for (size_t i = graph->inputs.count; i--;) put_value_info(writer, FIELD_GRAPH_INPUT, graph->inputs.items[i]);
  for (size_t i = graph->initializers.count; i--;) {
    const Value *value = graph->initializers.items[i];
    put_tensor(writer, FIELD_GRAPH_INITIALIZER, value->tensor, value);
  }
  put_text(encoder, FIELD_GRAPH_NAME, graph->name);
  for (const Node *node = graph->last; node; node = node->previous) put_node(writer, FIELD_GRAPH_NODE, node);
  put_message(encoder, field, mark);
}

static void put_opset(Encoder *encoder, int field, const OpsetImport *opset) {
  uint64_t mark = encoder->total;
  put_int(encoder, FIELD_OPSET_VERSION, opset->version);
  put_text(encoder, FIELD_OPSET_DOMAIN, opset->domain);
  put_message(encoder, field, mark);
}

/* A function's inputs and outputs are names only; their types stand beside those of its other values. */
static void put_function_types(Writer *writer, const Graph *body) {
  for (size_t i = body->outputs.count; i--;) {
    const Value *value = body->outputs.items[i]->value;
    if (value->type.dtype != DTYPE_NONE) put_value_info(writer, FIELD_FUNCTION_VALUE_INFO, value);
  }
  put_intermediate_types(writer, FIELD_FUNCTION_VALUE_INFO, body);
  for (size_t i = body->inputs.count; i--;) {
    const Value *value = body->inputs.items[i];
    if (value->type.dtype != DTYPE_NONE) put_value_info(writer, FIELD_FUNCTION_VALUE_INFO, value);
  }
}

static void put_function(Writer *writer, const Model *model, const Function *function) {
  Encoder *encoder = &writer->encoder;
  uint64_t mark = encoder->total;
  const Graph *body = function->body;
  put_stored_metadata(encoder, FIELD_FUNCTION_METADATA_PROPS, function->metadata.items, function->metadata.count);
  put_function_types(writer, body);
  put_text(encoder, FIELD_FUNCTION_DOMAIN, function->domain);
  for (size_t i = model->opsets.count; i--;) put_opset(encoder, FIELD_FUNCTION_OPSET_IMPORT, &model->opsets.items[i]);
  for (const Node *node = body->last; node; node = node->previous) put_node(writer, FIELD_FUNCTION_NODE, node);
  for (size_t i = function->attributes.count; i--;) {
    put_text(encoder, FIELD_FUNCTION_ATTRIBUTE, function->attributes.items[i]);
  }
  for (size_t i = body->outputs.count; i--;) {
    put_text(encoder, FIELD_FUNCTION_OUTPUT, body->outputs.items[i]->value->name);
  }
  for (size_t i = body->inputs.count; i--;) put_text(encoder, FIELD_FUNCTION_INPUT, body->inputs.items[i]->name);
  put_text(encoder, FIELD_FUNCTION_NAME, function->name);
  put_message(encoder, FIELD_MODEL_FUNCTIONS, mark);
}

static void put_model(Writer *writer, const Model *model) {
  Encoder *encoder = &writer->encoder;
  for (size_t i = model->functions.count; i--;) put_function(writer, model, model->functions.items[i]);
  put_model_provenance(&writer->provenance, encoder);
  put_stored_metadata(encoder, FIELD_MODEL_METADATA_PROPS, model->metadata.items, model->metadata.count);
  for (size_t i = model->opsets.count; i--;) put_opset(encoder, FIELD_MODEL_OPSET_IMPORT, &model->opsets.items[i]);
  put_graph(writer, FIELD_MODEL_GRAPH, model->graph);
  if (model->producer_version) put_text(encoder, FIELD_MODEL_PRODUCER_VERSION, model->producer_version);
  if (model->producer_name) put_text(encoder, FIELD_MODEL_PRODUCER_NAME, model->producer_name);
  put_int(encoder, FIELD_MODEL_IR_VERSION, model->ir_version);
}

/* External tensors get their places in graph order, each at a multiple of 64 bytes. */
static void place_external(Graph *graph, void *data) {
  Writer *writer = data;
  for (size_t i = 0; i < graph->initializers.count; i++) {
    const Tensor *tensor = graph->initializers.items[i]->tensor;
    if (tensor->size < writer->threshold || tensor->size == 0) continue;
    void **slot = map_slot_pointer(writer->context, &writer->offsets, tensor);
    if (*slot) continue;
    External *external = arena_new(&writer->context->arena, External);
    external->tensor = tensor;
    if (writer->externals.count) {
      const External *last = writer->externals.items[writer->externals.count - 1];
      external->offset = (last->offset + last->tensor->size + 63) & ~(uint64_t)63;
    }
    *slot = external;
    array_push(writer->context, &writer->externals, external);
  }
}

static const Segment *encode(Writer *writer, Model *model, const WriteOptions *options, size_t *count) {
  Context *context = model->context;
  *writer = (Writer){.context = context, .threshold = writer->threshold, .location = writer->location};
  encoder_init(&writer->encoder, context);
  provenance_writer_init(&writer->provenance, model, options->metadata);
  if (writer->threshold != SIZE_MAX) model_each_graph(model, place_external, writer);
  put_model(writer, model);
  return encoder_finish(&writer->encoder, count);
}

enum { PROTOBUF_LIMIT = INT_MAX, SMALL_TENSOR = 1024 };

static _Noreturn void fail_too_large(const Writer *writer, const char *advice) {
  fail(writer->context, ERROR_VALUE,
       "the model takes %" PRIu64 " bytes in one piece, more than the 2 GiB that ONNX allows%s", writer->encoder.total,
       advice);
}

const Segment *model_encode(Model *model, const WriteOptions *options, size_t *count, uint64_t *size) {
  Writer writer = {.threshold = SIZE_MAX};
  const Segment *segments = encode(&writer, model, options, count);
  *size = writer.encoder.total;
  if (*size > PROTOBUF_LIMIT) fail_too_large(&writer, "; return_mode=\"file\" may use a second file for its tensors");
  return segments;
}

/* A file under a temporary name beside its final one; it takes that name only when it is whole. */
typedef struct Pending {
  Context *context;
  const char *path;
  char *temporary;
  int descriptor;
  Pieces pieces;
  const struct Pending *companion; /* goes when this one does, or NULL */
} Pending;

static _Noreturn void fail_io(Pending *pending, const char *what) {
  int reason = errno;
  if (pending->descriptor >= 0) close(pending->descriptor);
  unlink(pending->temporary);
  if (pending->companion) unlink(pending->companion->temporary);
  fail(pending->context, ERROR_IO, "cannot %s '%s': %s", what, pending->path, strerror(reason));
}

static Pending pending_open(Context *context, const char *path, const Pending *companion) {
  Pending pending = {.context = context, .path = path, .descriptor = -1, .companion = companion};
  pending.temporary = arena_format(&context->arena, "%s.%ld.tmp", path, (long)getpid());
  pending.descriptor = open(pending.temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (pending.descriptor < 0) fail_io(&pending, "write");
  return pending;
}

static void write_plain(Pending *pending, const Segment *segments, size_t count) {
  struct iovec parts[64];
  size_t at = 0, done = 0; /* done: bytes of segments[at] already written */
  while (at < count) {
    int used = 0;
    for (size_t i = at; i < count && used < 64; i++) {
      size_t skip = i == at ? done : 0;
      parts[used].iov_base = (char *)(uintptr_t)segments[i].data + skip;
      parts[used++].iov_len = segments[i].size - skip;
    }
    ssize_t written = writev(pending->descriptor, parts, used);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_io(pending, "write");
    done += (size_t)written;
    while (at < count && done >= segments[at].size) done -= segments[at++].size;
  }
}

static void write_piece(const void *bytes, size_t size, void *data) {
  write_plain(data, &(Segment){.data = bytes, .size = size}, 1);
}

static void pending_write(Pending *pending, const Segment *segments, size_t count) {
  for (size_t at = 0, end; at < count; at = end) {
    for (end = at; end < count && !segments[end].moved;) end++;
    write_plain(pending, segments + at, end - at);
    if (end < count) moved_each_piece(segments[end++].moved, &pending->pieces, write_piece, pending);
  }
}

static void pending_close(Pending *pending) {
  int descriptor = pending->descriptor;
  pending->descriptor = -1;
  if (close(descriptor) != 0) fail_io(pending, "close");
}

static void pending_commit(Pending *pending) {
  if (rename(pending->temporary, pending->path) != 0) fail_io(pending, "rename to");
}

void segments_write_file(Context *context, const Segment *segments, size_t count, const char *path) {
  Pending pending = pending_open(context, path, NULL);
  pending_write(&pending, segments, count);
  pending_close(&pending);
  pending_commit(&pending);
}

static void write_external(Writer *writer, Pending *pending) {
  static const char zeros[64];
  uint64_t position = 0;
  for (size_t i = 0; i < writer->externals.count; i++) {
    const External *external = writer->externals.items[i];
    Segment parts[2] = {{.data = zeros, .size = (size_t)(external->offset - position)},
                        tensor_segment(external->tensor)};
    pending_write(pending, parts, 2);
    position = external->offset + external->tensor->size;
  }
}

void model_write_file(Model *model, const WriteOptions *options, const char *path) {
  Context *context = model->context;
  const char *slash = strrchr(path, '/');
  char *data_path = arena_format(&context->arena, "%s.data", path);
  Writer writer = {
      .threshold = options->external_threshold && !options->single_file ? options->external_threshold : SIZE_MAX,
      .location = arena_format(&context->arena, "%s.data", slash ? slash + 1 : path)};
  size_t count;
  const Segment *segments = encode(&writer, model, options, &count);
  if (writer.encoder.total > PROTOBUF_LIMIT && !options->single_file) {
    writer.threshold = SMALL_TENSOR;
    segments = encode(&writer, model, options, &count);
  }
  if (writer.encoder.total > PROTOBUF_LIMIT) {
    fail_too_large(&writer, options->single_file ? "; export_mode=\"standard\" may use a second file" : "");
  }
  bool external = writer.externals.count > 0;
  Pending data = {.descriptor = -1};
  if (external) {
    data = pending_open(context, data_path, NULL);
    write_external(&writer, &data);
    pending_close(&data);
  }
  Pending main = pending_open(context, path, external ? &data : NULL);
  pending_write(&main, segments, count);
  pending_close(&main);
  if (external) pending_commit(&data);
  pending_commit(&main);
}
