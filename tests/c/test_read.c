/* Reading models: a small one of everything, then the same one damaged in every way. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/builder.h"
#include "onnx/facts/schema_fields.h"
#include "onnx/file/print.h"
#include "onnx/file/read.h"
#include "test.h"
#include "tool/index.h"
#include "unwinding.h"

/* ---- a writer, independent of the one under src ---- */

typedef struct Bytes {
  unsigned char data[4096];
  size_t size;
} Bytes;

static void put(Bytes *out, const void *data, size_t size) {
  if (size > sizeof out->data - out->size) abort();
  memcpy(out->data + out->size, data, size);
  out->size += size;
}

static void write_varint(Bytes *out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) put(out, &(unsigned char){(unsigned char)(value | 0x80)}, 1);
  put(out, &(unsigned char){(unsigned char)value}, 1);
}

static void put_number(Bytes *out, unsigned field, uint64_t value) {
  write_varint(out, field << 3);
  write_varint(out, value);
}

static void write_bytes(Bytes *out, unsigned field, const void *data, size_t size) {
  write_varint(out, field << 3 | 2);
  write_varint(out, size);
  put(out, data, size);
}

static void write_text(Bytes *out, unsigned field, const char *text) { write_bytes(out, field, text, strlen(text)); }
static void write_message(Bytes *out, unsigned field, const Bytes *message) {
  write_bytes(out, field, message->data, message->size);
}

static void put_entry(Bytes *out, unsigned field, const char *key, const char *value) {
  Bytes entry = {.size = 0};
  write_text(&entry, FIELD_ENTRY_KEY, key);
  write_text(&entry, FIELD_ENTRY_VALUE, value);
  write_message(out, field, &entry);
}

/* f32[2,B,?] */
static void put_value_info(Bytes *out, unsigned field, const char *name) {
  Bytes two = {.size = 0}, symbol = {.size = 0}, unknown = {.size = 0}, shape = {.size = 0}, tensor = {.size = 0},
        type = {.size = 0}, info = {.size = 0};
  put_number(&two, FIELD_DIMENSION_DIM_VALUE, 2);
  write_text(&symbol, FIELD_DIMENSION_DIM_PARAM, "B");
  write_message(&shape, FIELD_SHAPE_DIM, &two);
  write_message(&shape, FIELD_SHAPE_DIM, &symbol);
  write_message(&shape, FIELD_SHAPE_DIM, &unknown);
  put_number(&tensor, FIELD_TENSOR_TYPE_ELEM_TYPE, ONNX_FLOAT);
  write_message(&tensor, FIELD_TENSOR_TYPE_SHAPE, &shape);
  write_message(&type, FIELD_TYPE_TENSOR_TYPE, &tensor);
  write_text(&info, FIELD_VALUE_INFO_NAME, name);
  write_message(&info, FIELD_VALUE_INFO_TYPE, &type);
  write_message(out, field, &info);
}

static Bytes make_node(const char *op, const char *input, const char *output) {
  Bytes node = {.size = 0};
  if (input) write_text(&node, FIELD_NODE_INPUT, input);
  write_text(&node, FIELD_NODE_OUTPUT, output);
  write_text(&node, FIELD_NODE_OP_TYPE, op);
  return node;
}

static void put_attribute(Bytes *node, const char *name, int type, unsigned field, const Bytes *value) {
  Bytes attribute = {.size = 0};
  write_text(&attribute, FIELD_ATTRIBUTE_NAME, name);
  put_number(&attribute, FIELD_ATTRIBUTE_TYPE, (uint64_t)type);
  write_message(&attribute, field, value);
  write_message(node, FIELD_NODE_ATTRIBUTE, &attribute);
}

static void put_initializers(Bytes *graph) {
  static const float data[] = {1.5f, -2.0f};
  Bytes raw = {.size = 0}, typed = {.size = 0}, external = {.size = 0}, packed = {.size = 0};
  put_number(&raw, FIELD_TENSOR_DIMS, 2);
  put_number(&raw, FIELD_TENSOR_DATA_TYPE, ONNX_FLOAT);
  write_text(&raw, FIELD_TENSOR_NAME, "w");
  write_bytes(&raw, FIELD_TENSOR_RAW_DATA, data, sizeof data);
  write_message(graph, FIELD_GRAPH_INITIALIZER, &raw);
  write_varint(&packed, 3);
  write_varint(&packed, (uint64_t)-1);
  put_number(&typed, FIELD_TENSOR_DIMS, 2);
  put_number(&typed, FIELD_TENSOR_DATA_TYPE, ONNX_INT64);
  write_text(&typed, FIELD_TENSOR_NAME, "i");
  write_message(&typed, FIELD_TENSOR_INT64_DATA, &packed);
  write_message(graph, FIELD_GRAPH_INITIALIZER, &typed);
  put_number(&external, FIELD_TENSOR_DIMS, 1000);
  put_number(&external, FIELD_TENSOR_DATA_TYPE, ONNX_FLOAT);
  write_text(&external, FIELD_TENSOR_NAME, "far");
  put_entry(&external, FIELD_TENSOR_EXTERNAL_DATA, "location", "weights.bin");
  put_entry(&external, FIELD_TENSOR_EXTERNAL_DATA, "offset", "64");
  put_entry(&external, FIELD_TENSOR_EXTERNAL_DATA, "length", "4000");
  put_number(&external, FIELD_TENSOR_DATA_LOCATION, 1);
  write_message(graph, FIELD_GRAPH_INITIALIZER, &external);
}

static void put_function(Bytes *model) {
  Bytes function = {.size = 0}, node = make_node("Neg", "a", "b");
  write_text(&function, FIELD_FUNCTION_NAME, "Fn");
  write_text(&function, FIELD_FUNCTION_DOMAIN, "my.domain");
  write_text(&function, FIELD_FUNCTION_INPUT, "a");
  write_text(&function, FIELD_FUNCTION_OUTPUT, "b");
  write_text(&function, FIELD_FUNCTION_ATTRIBUTE, "alpha");
  write_message(&function, FIELD_FUNCTION_NODE, &node);
  put_entry(&function, FIELD_FUNCTION_METADATA_PROPS, "k", "v");
  write_message(model, FIELD_MODEL_FUNCTIONS, &function);
}

static Bytes make_model(void) {
  Bytes model = {.size = 0}, graph = {.size = 0}, branch = {.size = 0}, opset = {.size = 0}, ints = {.size = 0};
  Bytes inner = make_node("Sin", "x", "s"); /* x is from the enclosing graph */
  write_text(&branch, FIELD_GRAPH_NAME, "then");
  write_message(&branch, FIELD_GRAPH_NODE, &inner);
  put_value_info(&branch, FIELD_GRAPH_OUTPUT, "s");
  Bytes choice = make_node("If", "c", "y");
  write_text(&choice, FIELD_NODE_NAME, "If_0");
  put_attribute(&choice, "then_branch", ONNX_ATTRIBUTE_GRAPH, FIELD_ATTRIBUTE_G, &branch);
  put_entry(&choice, FIELD_NODE_METADATA_PROPS, "pkg.jax2onnx.callsite", "fn:12");
  Bytes call = make_node("Fn", "y", "z");
  write_text(&call, FIELD_NODE_INPUT, "");
  write_text(&call, FIELD_NODE_INPUT, "nowhere");
  write_text(&call, FIELD_NODE_DOMAIN, "my.domain");
  write_varint(&ints, 5);
  write_varint(&ints, 300);
  put_attribute(&call, "axes", ONNX_ATTRIBUTE_INTS, FIELD_ATTRIBUTE_INTS, &ints);
  put_number(&call, 1000, 7); /* a field of the future */
  write_message(&graph, FIELD_GRAPH_NODE, &choice);
  write_message(&graph, FIELD_GRAPH_NODE, &call);
  write_text(&graph, FIELD_GRAPH_NAME, "main");
  put_initializers(&graph);
  put_value_info(&graph, FIELD_GRAPH_INPUT, "x");
  put_value_info(&graph, FIELD_GRAPH_INPUT, "c");
  put_value_info(&graph, FIELD_GRAPH_OUTPUT, "z");
  put_value_info(&graph, FIELD_GRAPH_VALUE_INFO, "y");
  put_number(&opset, FIELD_OPSET_VERSION, 21);
  put_number(&model, FIELD_MODEL_IR_VERSION, 10);
  write_text(&model, FIELD_MODEL_PRODUCER_NAME, "test");
  write_message(&model, FIELD_MODEL_OPSET_IMPORT, &opset);
  write_message(&model, FIELD_MODEL_GRAPH, &graph);
  put_function(&model);
  put_entry(&model, FIELD_MODEL_METADATA_PROPS, "key", "value");
  return model;
}

/* ---- tests ---- */

typedef struct Work {
  Context context;
  const unsigned char *data;
  size_t size;
  FILE *sink; /* where inspect's output goes; NULL: no inspect */
  Model *model;
} Work;

static void read_and_show(void *argument) {
  Work *work = argument;
  work->model = model_read(&work->context, work->data, work->size);
  Builder out;
  builder_init(&out, &work->context);
  model_print(&out, work->model);
  if (!work->sink) return;
  Report report = {.context = &work->context, .stream = work->sink, .full = true};
  builder_init(&report.line, &work->context);
  const OriginIndex *index = model_index(&work->context, work->model);
  inspect_text(&report, "model.onnx", index);
  inspect_json(&report, "model.onnx", index, NULL);
}

static bool run(Work *work, const unsigned char *data, size_t size) {
  context_init(&work->context);
  work->data = data;
  work->size = size;
  return context_protect(&work->context, read_and_show, work);
}

static void a_model_is_read_as_written(void) {
  Bytes bytes = make_model();
  Work work = {.sink = NULL};
  CHECK(run(&work, bytes.data, bytes.size));
  const Model *model = work.model;
  CHECK(model->ir_version == 10 && model->opset == 21);
  const Graph *graph = model->graph;
  CHECK(graph->node_count == 2 && graph->inputs.count == 2 && graph->initializers.count == 3);
  const Node *choice = graph->first, *call = choice->next;
  CHECK_TEXT(choice->metadata.items[0].value, "fn:12");
  const Graph *branch = node_attribute(choice, "then_branch")->graph;
  CHECK(branch->owner == choice);
  CHECK(node_input(branch->first, 0) == graph->inputs.items[0]);
  CHECK(node_input(call, 0) == choice->outputs[0] && node_input(call, 1) == NULL);
  CHECK(node_input(call, 2) && !node_input(call, 2)->producer);
  CHECK(value_is_output(call->outputs[0]));
  CHECK(choice->outputs[0]->type.dtype == DTYPE_FLOAT32 && choice->outputs[0]->type.rank == 3);
  CHECK(node_attribute(call, "axes")->count == 2 && node_attribute(call, "axes")->integers[1] == 300);
  const Tensor *raw = graph->initializers.items[0]->tensor;
  CHECK((const unsigned char *)raw->data > bytes.data && (const unsigned char *)raw->data < bytes.data + bytes.size);
  int64_t integers[2];
  memcpy(integers, graph->initializers.items[1]->tensor->data, sizeof integers);
  CHECK(integers[0] == 3 && integers[1] == -1);
  const Tensor *far = graph->initializers.items[2]->tensor;
  CHECK(far->data == NULL && far->size == 4000);
  const StoredTensor *stored = tensor_stored(model, far);
  CHECK(stored && strcmp(stored->location, "weights.bin") == 0 && stored->offset == 64 && stored->length == 4000);
  CHECK(tensor_stored(model, raw) == NULL);
  CHECK(model->functions.count == 1 && model->functions.items[0]->body->node_count == 1);
  context_release(&work.context);
}

static void a_model_is_printed_in_onnx_syntax(void) {
  Bytes bytes = make_model();
  Work work = {.sink = NULL};
  CHECK(run(&work, bytes.data, bytes.size));
  Builder out;
  builder_init(&out, &work.context);
  model_print(&out, work.model);
  CHECK_TEXT(builder_text(&out),
             "<\n   ir_version: 10,\n   opset_import: [\"\": 21],\n   producer_name: \"test\",\n"
             "   metadata_props: [\"key\": \"value\"]\n>\n"
             "main (float[2,B,?] x, float[2,B,?] c) => (float[2,B,?] z) <\n"
             "      float[2] w = {1.5, -2.0},\n"
             "      int64[2] i = {3, -1},\n"
             "      float[1000] far = [\"location\": \"weights.bin\", \"offset\": \"64\", \"length\": \"4000\"],\n"
             "      float[2,B,?] y>\n"
             "{\n"
             "   # pkg.jax2onnx.callsite = fn:12\n"
             "   [If_0] y = If <then_branch: graph = then () => (float[2,B,?] s) {\n"
             "      s = Sin (x)\n"
             "   }> (c)\n"
             "   z = my.domain.Fn <axes: ints = [5, 300]> (y, \"\", nowhere)\n"
             "}\n\n"
             "# k = v\n"
             "<domain: \"my.domain\", opset_import: [\"\": 21]>\n"
             "Fn <alpha> (a) => (b) {\n"
             "   b = Neg (a)\n"
             "}\n");
  context_release(&work.context);
}

static void what_is_no_model_is_refused(void) {
  static const char *const cases[] = {"",
                                      "hello world",
                                      "\x7f"
                                      "ELF",
                                      "{\"json\": 1}",
                                      "PK\x03\x04",
                                      "\x08\x07",
                                      "\x89PNG\r\n",
                                      "\n\n\n"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Work work = {.sink = NULL};
    CHECK(!run(&work, (const unsigned char *)cases[i], strlen(cases[i])));
    CHECK(work.context.error == ERROR_FORMAT);
    context_release(&work.context);
  }
}

static void nested_graphs_are_bounded(void) {
  Bytes graph = {.size = 0};
  write_text(&graph, FIELD_GRAPH_NAME, "g");
  for (int i = 0; i < 100; i++) {
    Bytes node = make_node("If", NULL, "o"), around = {.size = 0};
    put_attribute(&node, "b", ONNX_ATTRIBUTE_GRAPH, FIELD_ATTRIBUTE_G, &graph);
    write_message(&around, FIELD_GRAPH_NODE, &node);
    graph = around;
  }
  Bytes model = {.size = 0};
  write_message(&model, FIELD_MODEL_GRAPH, &graph);
  Work work = {.sink = NULL};
  CHECK(!run(&work, model.data, model.size));
  CHECK(work.context.error == ERROR_FORMAT && strstr(work.context.message, "nested too deeply at byte"));
  context_release(&work.context);
}

static void varints_and_lengths_are_checked(void) {
  static const struct {
    const char *bytes;
    size_t size;
    const char *message;
  } cases[] = {
      {"\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 12, "malformed data: number longer than 64 bits at byte 1"},
      {"\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02", 11, "malformed data: number longer than 64 bits at byte 1"},
      {"\x08\xFF", 2, "malformed data: truncated number at byte 1"},
      {"\x3A\x7F\x00", 3, "malformed data: a field extends past the end of its message at byte 2"},
      {"\x3A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 11,
       "malformed data: a field extends past the end of its message at byte 11"},
      {"\x08\x01\x0E", 3, "malformed data: unknown wire type at byte 2"},
      {"\x08\x01\x00\x00", 4, "malformed data: invalid field number at byte 2"},
      {"\x08\x01\xA3\x06\x08\x01", 6, "malformed data: truncated group at byte 2"},
      {"\x08\x01\xA4\x06", 4, "malformed data: end of a group that was never started at byte 2"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Work work = {.sink = NULL};
    CHECK(!run(&work, (const unsigned char *)cases[i].bytes, cases[i].size));
    CHECK_TEXT(work.context.message, cases[i].message);
    context_release(&work.context);
  }
}

static void try_damaged(const unsigned char *data, size_t size, FILE *sink) {
  unsigned char *copy = malloc(size ? size : 1); /* exactly as large: reading too far is seen */
  memcpy(copy, data, size);
  Work work = {.sink = sink};
  if (!run(&work, copy, size)) CHECK(work.context.error == ERROR_FORMAT);
  context_release(&work.context);
  free(copy);
  rewind(sink);
}

static void damaged_models_are_read_or_refused(void) {
  FILE *sink = tmpfile();
  CHECK(sink != NULL);
  if (!sink) return;
  Bytes bytes = make_model();
  for (size_t cut = 0; cut < bytes.size; cut++) try_damaged(bytes.data, cut, sink);
  for (size_t at = 0; at < bytes.size; at++) {
    static const unsigned char changes[] = {0x01, 0x08, 0x80, 0xFF};
    for (size_t c = 0; c < sizeof changes; c++) {
      bytes.data[at] ^= changes[c];
      try_damaged(bytes.data, bytes.size, sink);
      bytes.data[at] ^= changes[c];
    }
  }
  fclose(sink);
}

static bool attempt(int64_t fail_at, void *given) {
  Work work = *(Work *)given;
  rewind(work.sink);
  return attempt_in(&work.context, fail_at, read_and_show, &work);
}

static void every_failing_allocation_unwinds(void) {
  FILE *sink = tmpfile();
  CHECK(sink != NULL);
  if (!sink) return;
  Bytes bytes = make_model();
  check_unwinds(attempt, &(Work){.data = bytes.data, .size = bytes.size, .sink = sink});
  fclose(sink);
}

const Test read_tests[] = {
    {"a_model_is_read_as_written", a_model_is_read_as_written},
    {"a_model_is_printed_in_onnx_syntax", a_model_is_printed_in_onnx_syntax},
    {"what_is_no_model_is_refused", what_is_no_model_is_refused},
    {"nested_graphs_are_bounded", nested_graphs_are_bounded},
    {"varints_and_lengths_are_checked", varints_and_lengths_are_checked},
    {"damaged_models_are_read_or_refused", damaged_models_are_read_or_refused},
    {"read: every_failing_allocation_unwinds", every_failing_allocation_unwinds},
    {0},
};
