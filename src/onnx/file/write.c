/* Writing a model. Messages are put back to front (see encode.h), so each function reads from its last field up. */
#include "onnx/file/write.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "onnx/facts/schema.h"
#include "onnx/facts/schema_fields.h"
#include "onnx/file/external.h"
#include "onnx/file/provenance_write.h"
#include "types/moved.h"

typedef struct Writer {
  Encoder encoder;
  Context *context;
  ProvenanceWriter provenance;
  size_t threshold;            /* tensors of this size or more are external; SIZE_MAX: none */
  DataPlan data;               /* of the external ones */
  const char *stem;            /* what the names of the other files begin with */
  const char **names;          /* theirs, without directory */
  Type last_type;              /* the one that was put last, */
  const char *last_type_bytes; /* its bytes, where they lie; NULL before the first, */
  size_t last_type_size;       /* and how many */
} Writer;

static void put_stored_metadata(Encoder *encoder, int field, const Metadata *items, size_t count) {
  while (count--) put_entry(encoder, field, items[count].key, items[count].value);
}

static void put_external(Encoder *encoder, const char *location, uint64_t offset, size_t size) {
  char number[32];
  put_int(encoder, FIELD_TENSOR_DATA_LOCATION, 1);
  snprintf(number, sizeof number, "%zu", size);
  put_entry(encoder, FIELD_TENSOR_EXTERNAL_DATA, "length", number);
  snprintf(number, sizeof number, "%" PRIu64, offset);
  put_entry(encoder, FIELD_TENSOR_EXTERNAL_DATA, "offset", number);
  put_entry(encoder, FIELD_TENSOR_EXTERNAL_DATA, "location", location);
}

/* Where the bytes lie, or will: in a file that is there, in one of ours, or here. */
static void put_data(Writer *writer, const Tensor *tensor) {
  Encoder *encoder = &writer->encoder;
  const StoredAt *stored = tensor_stored_at(tensor);
  const PlacedTensor *placed = stored ? NULL : data_placed(&writer->data, tensor);
  if (stored) {
    put_external(encoder, stored->location ? stored->location : WEIGHTS_TO_COME, stored->offset, tensor->size);
  } else if (placed) {
    put_external(encoder, writer->names[placed->file], placed->offset, tensor->size);
  } else {
    put_segment(encoder, FIELD_TENSOR_RAW_DATA, tensor_segment(tensor));
  }
}

/* A tensor of a graph is an initializer; one of an attribute has no value. */
static void put_tensor(Writer *writer, int field, const Tensor *tensor, const Value *initializer) {
  Encoder *encoder = &writer->encoder;
  uint64_t mark = encoder->total;
  if (initializer) {
    put_stored_metadata(encoder, FIELD_TENSOR_METADATA_PROPS, initializer->metadata.items, initializer->metadata.count);
    put_initializer_provenance(&writer->provenance, encoder, initializer);
  }
  put_data(writer, tensor);
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

/* Values one after the other often share a type, with the memory of its sizes. */
static void put_value_type(Writer *writer, Type type) {
  Encoder *encoder = &writer->encoder;
  const Type *last = &writer->last_type;
  if (writer->last_type_bytes && type.dtype == last->dtype && type.rank == last->rank && type.dims == last->dims) {
    put_verbatim(encoder, writer->last_type_bytes, writer->last_type_size);
    return;
  }
  uint64_t mark = encoder->total;
  put_type(encoder, FIELD_VALUE_INFO_TYPE, type);
  writer->last_type = type;
  writer->last_type_size = (size_t)(encoder->total - mark);
  writer->last_type_bytes = encoded_since(encoder, mark);
}

static void put_value_info(Writer *writer, int field, const Value *value) {
  Encoder *encoder = &writer->encoder;
  uint64_t mark = encoder->total;
  if (value->type.dtype != DTYPE_NONE) put_value_type(writer, value->type);
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
  bool raised = writer->provenance.level != METADATA_OFF && model->ir_version < IR_WITH_PROVENANCE;
  put_int(encoder, FIELD_MODEL_IR_VERSION, raised ? IR_WITH_PROVENANCE : model->ir_version);
}

/* External tensors get their places in graph order. */
static void place_external(Graph *graph, void *data) {
  Writer *writer = data;
  for (size_t i = 0; i < graph->initializers.count; i++) {
    const Tensor *tensor = graph->initializers.items[i]->tensor;
    if (tensor->size < writer->threshold || tensor->size == 0 || tensor_stored_at(tensor)) continue;
    data_place(&writer->data, tensor);
  }
}

static const Segment *encode(Writer *writer, Model *model, const WriteOptions *options, size_t *count) {
  Context *context = model->context;
  *writer = (Writer){.context = context, .threshold = writer->threshold, .stem = writer->stem, .names = writer->names};
  data_plan_init(&writer->data, context, NULL);
  writer->data.alignment = options->data_alignment;
  writer->data.largest_file = options->largest_data_file;
  encoder_init(&writer->encoder, context);
  provenance_writer_init(&writer->provenance, model, options->metadata);
  if (writer->threshold != SIZE_MAX) model_each_graph(model, place_external, writer);
  if (!writer->names) writer->names = data_file_names(context, writer->stem, data_file_count(&writer->data));
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
  if (*size > PROTOBUF_LIMIT)
    fail_too_large(&writer, "; with return_mode=\"file\" its tensors can go to a second file");
  return segments;
}

/* ---- files ---- */

/* Segments on their way to a file. */
typedef struct FileWriter {
  OutputFile *file;
  Pieces pieces;
} FileWriter;

static void write_plain(OutputFile *file, const Segment *segments, size_t count) {
  enum { AT_ONCE = 64 };
  struct iovec parts[AT_ONCE];
  for (size_t at = 0; at < count;) {
    int used = 0;
    for (; at < count && used < AT_ONCE; at++) {
      parts[used++] = (struct iovec){(void *)(uintptr_t)segments[at].data, segments[at].size};
    }
    output_write(file, parts, used);
  }
}

static void write_piece(const void *bytes, size_t size, void *data) {
  write_plain(((FileWriter *)data)->file, &(Segment){.data = bytes, .size = size}, 1);
}

static void start_following(const Segment *segments, size_t count) {
  enum { LOOKED_AT = 64 };
  unsigned distance = 1;
  for (size_t i = 0; i < count && i < LOOKED_AT && distance <= FETCHED_AHEAD; i++) {
    if (segment_start(&segments[i], distance)) distance++;
  }
}

static void write_segments(FileWriter *to, const Segment *segments, size_t count) {
  for (size_t at = 0, end; at < count; at = end) {
    for (end = at; end < count && segment_is_plain(&segments[end]);) end++;
    write_plain(to->file, segments + at, end - at);
    if (end == count) break;
    start_following(segments + end + 1, count - end - 1);
    segment_each_piece(&segments[end++], &to->pieces, write_piece, to);
  }
}

bool segments_commit(Output *output, const Segment *segments, size_t count) {
  FileWriter to = {.file = output_main(output)};
  write_segments(&to, segments, count);
  return output_commit(output);
}

void segments_write_file(Context *context, const Segment *segments, size_t count, const char *path,
                         const OutputOptions *options) {
  segments_commit(output_open(context, path, options), segments, count);
}

/* A file that holds all there is: its bytes are what whoever watches is told of. */
static void write_only(const Writer *writer, const WriteOptions *options, Output *output, const Segment *segments,
                       size_t count) {
  FileWriter to = {.file = output_main(output)};
  if (options->progress) {
    *options->progress = (WriteProgress){.total = writer->encoder.total};
    output_watch(to.file, &options->progress->written);
  }
  write_segments(&to, segments, count);
  interruption_point(writer->context); /* where it is told that all is there */
  output_commit(output);
}

/* The other files come first; the model refers to them by their names. */
static void write_all(Writer *writer, Model *model, const WriteOptions *options, Output *output,
                      const Segment *segments, size_t count) {
  DataFiles files;
  data_files_write(&files, output, &writer->data, options->progress);
  do {
    if (data_files_name(&files, writer->names)) segments = encode(writer, model, options, &count);
  } while (!segments_commit(output, segments, count));
}

static const Segment *encode_for_file(Writer *writer, Model *model, const WriteOptions *options, bool single,
                                      size_t *count) {
  writer->threshold = options->external_threshold && !single ? options->external_threshold : SIZE_MAX;
  const Segment *segments = encode(writer, model, options, count);
  if (writer->encoder.total > PROTOBUF_LIMIT && !single) {
    writer->threshold = SMALL_TENSOR;
    writer->names = NULL;
    segments = encode(writer, model, options, count);
  }
  if (writer->encoder.total > PROTOBUF_LIMIT) {
    fail_too_large(writer,
                   options->single_file ? "; with export_mode=\"standard\" its tensors can go to a second file" : "");
  }
  return segments;
}

void model_write_file(Model *model, const WriteOptions *options, const char *path) {
  OutputOptions settings = options->output;
  settings.find_companions = find_external_files;
  Output *output = output_open(model->context, path, &settings);
  bool single = options->single_file || output_is_stream(output);
  Writer writer = {.stem = single ? "" : output_stem(output)};
  size_t count;
  const Segment *segments = encode_for_file(&writer, model, options, single, &count);
  if (writer.data.tensors.count) {
    if (output_is_elsewhere(output)) {
      fail(model->context, ERROR_VALUE,
           "'%s' is a link into another folder, and this model needs a second file, which readers would look for next "
           "to the link; give the path of the file itself",
           path);
    }
    write_all(&writer, model, options, output, segments, count);
  } else {
    write_only(&writer, options, output, segments, count);
  }
}
