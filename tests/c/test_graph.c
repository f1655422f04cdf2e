/* Use lists, and moving and removing nodes. */
#include "base/builder.h"
#include "onnx/file/print.h"
#include "onnx/graph/graph.h"
#include "test.h"
#include "types/strided_copy.h"

typedef struct Small {
  Context context;
  Model *model;
  Graph *graph;
  Value *x, *y;
  Type type;
} Small;

static void make(Small *small) {
  context_init(&small->context);
  small->model = model_new(&small->context, NULL, 21);
  small->graph = graph_new(small->model, str_intern(&small->context, "g"));
  small->model->graph = small->graph;
  small->model->ir_version = 10;
  int64_t dims[] = {2};
  small->type = type_constant(&small->context, DTYPE_FLOAT32, dims, 1);
  small->x = graph_input(small->graph, small->type, str_intern(&small->context, "x"));
  small->y = graph_input(small->graph, small->type, str_intern(&small->context, "y"));
}

static Node *add(Small *small, Op op, Value *a, Value *b) {
  Value *inputs[] = {a, b};
  return graph_node(small->graph, NULL, op, inputs, b ? 2 : 1, &small->type, 1, NULL);
}

static void uses_follow_their_value(void) {
  Small small;
  make(&small);
  Node *sum = add(&small, OP_Add, small.x, small.x);
  Node *product = add(&small, OP_Mul, sum->outputs[0], small.x);
  graph_output(small.graph, product->outputs[0]);
  CHECK(value_use_count(small.x) == 3);
  CHECK(value_is_output(product->outputs[0]) && !value_is_output(sum->outputs[0]));
  value_replace(small.x, small.y);
  CHECK(value_use_count(small.x) == 0 && value_use_count(small.y) == 3);
  CHECK(node_input(product, 1) == small.y && node_input(product, 2) == NULL);
  use_set(&sum->inputs[0], NULL);
  CHECK(value_use_count(small.y) == 2);
  use_set(&sum->inputs[0], small.x);
  CHECK(value_use_count(small.x) == 1 && small.x->uses->node == sum);
  value_replace(small.x, small.x);
  CHECK(value_use_count(small.x) == 1);
  context_release(&small.context);
}

static void remove_first(void *argument) { node_remove(((Small *)argument)->graph->first); }

static void nodes_leave_no_trace(void) {
  Small small;
  make(&small);
  Node *first = add(&small, OP_Sin, small.x, NULL);
  Node *second = add(&small, OP_Cos, first->outputs[0], NULL);
  Node *third = add(&small, OP_Tan, small.x, NULL);
  CHECK(!context_protect(&small.context, remove_first, &small));
  CHECK(small.context.error == ERROR_INTERNAL);
  node_move(third, first);
  CHECK(small.graph->first == third && third->next == first && small.graph->last == second);
  node_remove(second);
  CHECK(small.graph->last == first && value_use_count(first->outputs[0]) == 0);
  node_remove(first);
  node_remove(third);
  CHECK(!small.graph->first && !small.graph->last && small.graph->node_count == 0);
  CHECK(value_use_count(small.x) == 0);
  context_release(&small.context);
}

static void names_are_unique_and_the_text_shows_them(void) {
  Small small;
  make(&small);
  Node *a = add(&small, OP_Sin, small.x, NULL);
  Node *b = add(&small, OP_Sin, a->outputs[0], NULL);
  node_set_int(b, "axis", 1);
  node_set_int(b, "axis", -2);
  node_set_float(b, "alpha", 0.5f);
  node_set_string(b, "mode", "a\"b");
  CHECK(node_int_or(b, "axis", 7) == -2 && node_int_or(b, "other", 7) == 7);
  static const float data[] = {1, 2};
  int64_t dims[] = {2};
  Tensor tensor = {.dtype = DTYPE_FLOAT32, .rank = 1, .dims = dims, .data = data, .size = sizeof data};
  Node *sum = add(&small, OP_Add, b->outputs[0], graph_initializer(small.graph, &tensor));
  graph_output(small.graph, sum->outputs[0]);
  model_name(small.model);
  Builder out;
  builder_init(&out, &small.context);
  model_print(&out, small.model);
  CHECK_TEXT(builder_text(&out),
             "<\n   ir_version: 10,\n   opset_import: [\"\": 21]\n>\n"
             "g (float[2] x, float[2] y) => (float[2] add_0) <\n"
             "      float[2] const_f32_2 = {1.0, 2.0},\n"
             "      float[2] sin_0, float[2] sin_1>\n"
             "{\n"
             "   [Sin_0] sin_0 = Sin (x)\n"
             "   [Sin_1] sin_1 = Sin <axis: int = -2, alpha: float = 0.5, mode: string = \"a\\\"b\"> (sin_0)\n"
             "   [Add_0] add_0 = Add (sin_1, const_f32_2)\n"
             "}\n");
  context_release(&small.context);
}

/* Element by element, as the definition says. */
static void slow_copy(char *to, const char *from, size_t width, const int64_t *dims, const int64_t *strides,
                      size_t rank, int64_t at) {
  static char *next;
  if (to) next = to;
  if (rank == 0) {
    memcpy(next, from + at * (int64_t)width, width);
    next += width;
    return;
  }
  for (int64_t i = 0; i < dims[0]; i++) {
    slow_copy(NULL, from, width, dims + 1, strides + 1, rank - 1, at + i * strides[0]);
  }
}

static void strided_copies_are_those_of_the_definition(void) {
  enum { MOST = 70 * 70 * 8 };
  static const struct {
    size_t rank;
    int64_t dims[4], strides[4], start;
  } cases[] = {
      {0, {0}, {0}, 0},
      {1, {7}, {1}, 0},
      {1, {7}, {-1}, 6},
      {2, {70, 33}, {1, 70}, 0},
      {2, {33, 70}, {70, 1}, 0},
      {2, {19, 22}, {1, 19}, 0}, /* some tiles, and what is left over on both sides */
      {2, {3, 70}, {1, 3}, 0},
      {3, {5, 1, 6}, {0, 9, 1}, 0},
      {4, {8, 6, 3, 4}, {1, 8, 4 * 48, 48}, 0}, /* the weights of a convolution */
      {4, {2, 3, 4, 5}, {60, 20, 5, 1}, 0},
      {4, {5, 4, 3, 2}, {1, 5, 20, 60}, 0},
      {3, {4, 3, 5}, {-15, 5, 1}, 45},
  };
  static const size_t widths[] = {1, 2, 4, 8, 16};
  static char from[MOST * 2 + 1], found[MOST * 2 + 1], expected[MOST * 2];
  for (size_t i = 0; i < sizeof from; i++) from[i] = (char)(i * 31 + i / 256);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
      for (size_t shift = 0; shift < 2; shift++) { /* shifted data is not aligned */
        size_t width = widths[w], size = width;
        for (size_t axis = 0; axis < cases[i].rank; axis++) size *= (size_t)cases[i].dims[axis];
        memset(found, 0, sizeof found);
        memset(expected, 0, sizeof expected);
        const char *start = from + shift + (size_t)cases[i].start * width;
        strided_copy(found + shift, start, width, cases[i].dims, cases[i].strides, cases[i].rank);
        slow_copy(expected, start, width, cases[i].dims, cases[i].strides, cases[i].rank, 0);
        CHECK(memcmp(found + shift, expected, size) == 0);
      }
    }
  }
}

const Test graph_tests[] = {
    {"uses_follow_their_value", uses_follow_their_value},
    {"nodes_leave_no_trace", nodes_leave_no_trace},
    {"names_are_unique_and_the_text_shows_them", names_are_unique_and_the_text_shows_them},
    {"strided_copies_are_those_of_the_definition", strided_copies_are_those_of_the_definition},
    {0},
};
