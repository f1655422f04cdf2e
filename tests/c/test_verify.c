/* The verifier of graphs: every kind of fault is planted and found, and what is well made is left alone. */
#include "base/builder.h"
#include "onnx/facts/schema.h"
#include "onnx/file/read.h"
#include "onnx/graph/verify.h"
#include "passes/passes.h"
#include "test.h"

typedef struct Bed {
  Context context;
  Model *model;
  Graph *graph; /* nodes go here: the main graph, or a body */
  Value *x;     /* f32[2,3] */
} Bed;

/* "f32[2,B]"; "f32": a rank that is not known. */
static Type type_of(Bed *bed, const char *text) {
  char name[16];
  const char *open = strchr(text, '[');
  snprintf(name, sizeof name, "%.*s", (int)(open ? (size_t)(open - text) : strlen(text)), text);
  if (!open) return (Type){.dtype = dtype_from_name(name), .dims = UNRANKED};
  Dim dims[MAX_RANK];
  uint32_t rank = 0;
  for (const char *at = open + 1; *at && *at != ']';) {
    size_t length = strcspn(at, ",]");
    CHECK(dim_parse(&bed->context, at, length, &dims[rank++]));
    at += length + (at[length] == ',');
  }
  return type_make(&bed->context, dtype_from_name(name), dims, rank);
}

static Value *in(Bed *bed, const char *type) { return graph_input(bed->graph, type_of(bed, type), NULL); }

static Node *put(Bed *bed, Op op, const char *type, Value *a, Value *b, Value *c) {
  Value *inputs[] = {a, b, c};
  Type to = type_of(bed, type);
  return graph_node(bed->graph, NULL, op, inputs, c ? 3 : b ? 2 : a ? 1 : 0, &to, 1, NULL);
}

static Value *ints(Bed *bed, size_t count, const int64_t *values) {
  Arena *arena = &bed->context.arena;
  Tensor *tensor = arena_new(arena, Tensor);
  int64_t length = (int64_t)count;
  *tensor = (Tensor){.dtype = DTYPE_INT64, .rank = 1, .size = count * sizeof *values};
  tensor->dims = arena_copy(arena, &length, sizeof length);
  tensor->data = arena_copy(arena, values, tensor->size);
  return graph_initializer(bed->graph, tensor);
}

#define INTS(bed, ...) ints((bed), sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})
#define SET_INTS(node, name, ...) \
  node_set_ints((node), (name), (int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void give(Bed *bed, Node *node) { graph_output(bed->graph, node->outputs[0]); }

static void make(Bed *bed) {
  context_init(&bed->context);
  bed->model = model_new(&bed->context, NULL, 21);
  bed->graph = bed->model->graph = graph_new(bed->model, str_intern(&bed->context, "g"));
  bed->x = graph_input(bed->graph, type_of(bed, "f32[2,3]"), str_intern(&bed->context, "x"));
}

/* A graph that is the attribute of a node and gives `type`. */
static Graph *body(Bed *bed, Node *owner, const char *attribute) {
  Graph *graph = graph_new(bed->model, str_intern(&bed->context, attribute));
  node_set_graph(owner, attribute, graph);
  return graph;
}

static Node *in_body(Bed *bed, Graph *graph, Op op, const char *type, Value *a, Value *b) {
  Graph *outer = bed->graph;
  bed->graph = graph;
  Node *node = put(bed, op, type, a, b, NULL);
  bed->graph = outer;
  return node;
}

/* ---- structure ---- */

static void used_before_made(Bed *bed) {
  Node *sin = put(bed, OP_Sin, "f32[2,3]", bed->x, NULL, NULL);
  Node *cos = put(bed, OP_Cos, "f32[2,3]", sin->outputs[0], NULL, NULL);
  node_move(cos, sin);
  give(bed, cos);
}

static void used_after_removal(Bed *bed) {
  Node *sin = put(bed, OP_Sin, "f32[2,3]", bed->x, NULL, NULL);
  Value *made = sin->outputs[0];
  node_remove(sin);
  give(bed, put(bed, OP_Cos, "f32[2,3]", made, NULL, NULL));
}

static Node *plain_if(Bed *bed, const char *type) {
  Node *branch = put(bed, OP_If, type, in(bed, "bool[]"), NULL, NULL);
  Graph *then_body = body(bed, branch, "then_branch"), *else_body = body(bed, branch, "else_branch");
  graph_output(then_body, in_body(bed, then_body, OP_Sin, "f32[2,3]", bed->x, NULL)->outputs[0]);
  graph_output(else_body, in_body(bed, else_body, OP_Cos, "f32[2,3]", bed->x, NULL)->outputs[0]);
  give(bed, branch);
  return branch;
}

static Graph *branch_of(Node *node, const char *name) { return node_attribute(node, name)->graph; }

static void used_from_another_branch(Bed *bed) {
  Node *node = plain_if(bed, "f32[2,3]");
  Node *inner = branch_of(node, "then_branch")->first;
  use_set(&branch_of(node, "else_branch")->first->inputs[0], inner->outputs[0]);
}

static void used_outside_its_body(Bed *bed) {
  Node *node = plain_if(bed, "f32[2,3]");
  give(bed, put(bed, OP_Sin, "f32[2,3]", branch_of(node, "then_branch")->first->outputs[0], NULL, NULL));
}

static void defined_nowhere(Bed *bed) {
  Value *stray = arena_new(&bed->context.arena, Value);
  stray->type = type_of(bed, "f32[2,3]");
  stray->name = str_intern(&bed->context, "stray");
  give(bed, put(bed, OP_Sin, "f32[2,3]", stray, NULL, NULL));
}

static void use_that_is_on_no_list(Bed *bed) {
  Node *sin = put(bed, OP_Sin, "f32[2,3]", bed->x, NULL, NULL);
  give(bed, sin);
  bed->x->uses = NULL;
}

static void use_on_the_list_of_another_value(Bed *bed) {
  Node *sin = put(bed, OP_Sin, "f32[2,3]", bed->x, NULL, NULL);
  give(bed, put(bed, OP_Cos, "f32[2,3]", sin->outputs[0], NULL, NULL));
  bed->graph->last->inputs[0].value = bed->x;
}

static void list_with_a_use_too_many(Bed *bed) {
  give(bed, put(bed, OP_Sin, "f32[2,3]", bed->x, NULL, NULL));
  Node *apart = arena_new(&bed->context.arena, Node);
  Use *use = arena_new(&bed->context.arena, Use);
  apart->inputs = use;
  apart->input_count = 1;
  use->node = apart;
  use_set(use, bed->x);
}

static void input_of_another_node(Bed *bed) {
  Node *sin = put(bed, OP_Sin, "f32[2,3]", bed->x, NULL, NULL);
  give(bed, put(bed, OP_Cos, "f32[2,3]", sin->outputs[0], NULL, NULL));
  bed->graph->last->inputs[0].node = sin;
}

static void output_of_another_node(Bed *bed) {
  give(bed, put(bed, OP_Sin, "f32[2,3]", bed->x, NULL, NULL));
  bed->graph->first->outputs[0]->output_index = 1;
}

static void value_of_another_graph(Bed *bed) {
  give(bed, put(bed, OP_Sin, "f32[2,3]", bed->x, NULL, NULL));
  bed->graph->first->outputs[0]->graph = graph_new(bed->model, NULL);
}

static void made_twice(Bed *bed) {
  Node *sin = put(bed, OP_Sin, "f32[2,3]", bed->x, NULL, NULL), *cos = put(bed, OP_Cos, "f32[2,3]", bed->x, NULL, NULL);
  cos->outputs[0] = sin->outputs[0];
  give(bed, sin);
}

static void broken_list(Bed *bed) {
  give(bed, put(bed, OP_Sin, "f32[2,3]", bed->x, NULL, NULL));
  bed->graph->node_count = 2;
}

static void one_name_twice(Bed *bed) {
  Node *sin = put(bed, OP_Sin, "f32[2,3]", bed->x, NULL, NULL);
  sin->outputs[0]->name = str_intern(&bed->context, "x");
  give(bed, sin);
}

static void one_name_in_a_body_and_around(Bed *bed) {
  Node *node = plain_if(bed, "f32[2,3]");
  branch_of(node, "then_branch")->first->outputs[0]->name = str_intern(&bed->context, "x");
}

static void no_output(Bed *bed) {
  give(bed, put(bed, OP_Sin, "f32[2,3]", bed->x, NULL, NULL));
  use_set(bed->graph->outputs.items[0], NULL);
}

static void one_output_twice(Bed *bed) {
  Node *sin = put(bed, OP_Sin, "f32[2,3]", bed->x, NULL, NULL);
  give(bed, sin);
  give(bed, sin);
}

static void body_gives_an_outer_value(Bed *bed) {
  Node *node = plain_if(bed, "f32[2,3]");
  use_set(branch_of(node, "else_branch")->outputs.items[0], bed->x);
}

static void body_of_another_node(Bed *bed) {
  Node *node = plain_if(bed, "f32[2,3]");
  branch_of(node, "then_branch")->owner = NULL;
}

static void too_deep(Bed *bed) {
  Node *node = plain_if(bed, "f32[2,3]");
  Graph *outer = bed->graph;
  Value *condition = node_input(node, 0);
  for (int depth = 0; depth < MOST_NESTED_GRAPHS; depth++) {
    Graph *graph = branch_of(node, "then_branch");
    Node *inner = in_body(bed, graph, OP_If, "f32[2,3]", condition, NULL);
    use_set(graph->outputs.items[0], inner->outputs[0]);
    for (int b = 0; b < 2; b++) {
      Graph *branch = body(bed, inner, b ? "else_branch" : "then_branch");
      graph_output(branch, in_body(bed, branch, OP_Sin, "f32[2,3]", bed->x, NULL)->outputs[0]);
    }
    node = inner;
  }
  bed->graph = outer;
}

static void initializer_without_data(Bed *bed) {
  Value *value = INTS(bed, 1, 2);
  value->tensor = NULL;
  give(bed, put(bed, OP_Sin, "f32[2,3]", bed->x, NULL, NULL));
}

static void initializer_of_another_type(Bed *bed) {
  INTS(bed, 1, 2)->type.dtype = DTYPE_INT32;
  give(bed, put(bed, OP_Sin, "f32[2,3]", bed->x, NULL, NULL));
}

static void domain_not_imported(Bed *bed) {
  Type type = type_of(bed, "f32[2,3]");
  give(bed, graph_named_node(bed->graph, NULL, "Thing", "com.example", &bed->x, 1, &type, 1, NULL));
}

static Function *function_of(Bed *bed, Node **call) {
  Context *context = &bed->context;
  Function *function = arena_new(&context->arena, Function);
  function->name = str_intern(context, "twice");
  function->domain = str_intern(context, "custom");
  function->body = graph_new(bed->model, function->name);
  Value *a = graph_input(function->body, type_of(bed, "f32[2,3]"), str_intern(context, "a"));
  graph_output(function->body, in_body(bed, function->body, OP_Add, "f32[2,3]", a, a)->outputs[0]);
  array_push(context, &bed->model->functions, function);
  array_push(context, &bed->model->opsets, ((OpsetImport){function->domain, 1}));
  Type type = type_of(bed, "f32[2,3]");
  *call = graph_named_node(bed->graph, NULL, "twice", "custom", &bed->x, 1, &type, 1, NULL);
  (*call)->callee = function;
  give(bed, *call);
  return function;
}

static void function_uses_the_graph(Bed *bed) {
  Node *call;
  use_set(&function_of(bed, &call)->body->first->inputs[1], bed->x);
}

static void call_with_too_much(Bed *bed) {
  Node *call;
  Function *function = function_of(bed, &call);
  Value *inputs[] = {bed->x, bed->x};
  give(bed, graph_named_node(bed->graph, NULL, function->name, function->domain, inputs, 2, &bed->x->type, 1, NULL));
}

static void call_of_another_type(Bed *bed) {
  Node *call;
  function_of(bed, &call);
  call->outputs[0]->type.dtype = DTYPE_FLOAT64;
}

static void call_with_a_wrong_attribute(Bed *bed) {
  Node *call;
  function_of(bed, &call);
  node_set_int(call, "axis", 1);
}

static void call_of_another_name(Bed *bed) {
  Node *call;
  function_of(bed, &call)->name = str_intern(&bed->context, "thrice");
}

/* ---- operators ---- */

static void unknown_operator(Bed *bed) {
  Type type = type_of(bed, "f32[2,3]");
  give(bed, graph_named_node(bed->graph, NULL, "Tahn", "", &bed->x, 1, &type, 1, NULL));
}

static void operator_of_a_later_opset(Bed *bed) {
  give(bed, put(bed, OP_RMSNormalization, "f32[2,3]", bed->x, in(bed, "f32[3]"), NULL));
}

static void operator_that_was_withdrawn(Bed *bed) {
  give(bed, put(bed, OP_Scatter, "f32[2,3]", bed->x, in(bed, "i64[2,3]"), in(bed, "f32[2,3]")));
}

static void too_few_inputs(Bed *bed) { give(bed, put(bed, OP_Add, "f32[2,3]", bed->x, NULL, NULL)); }
static void too_many_inputs(Bed *bed) {
  bed->model->opset = 17;
  give(bed, put(bed, OP_ReduceMax, "f32[2,1]", bed->x, INTS(bed, 1), NULL));
}
static void input_left_out(Bed *bed) {
  give(bed, put(bed, OP_Add, "f32[2,3]", bed->x, bed->x, NULL));
  use_set(&bed->graph->first->inputs[0], NULL);
}
static void too_many_outputs(Bed *bed) {
  Type types[] = {type_of(bed, "f32[2,3]"), type_of(bed, "f32[2,3]")};
  give(bed, graph_node(bed->graph, NULL, OP_Sin, &bed->x, 1, types, 2, NULL));
}
static void unknown_attribute(Bed *bed) {
  give(bed, put(bed, OP_Sin, "f32[2,3]", bed->x, NULL, NULL));
  node_set_int(bed->graph->first, "axis", 1);
}
static void attribute_of_another_kind(Bed *bed) {
  give(bed, put(bed, OP_Softmax, "f32[2,3]", bed->x, NULL, NULL));
  node_set_float(bed->graph->first, "axis", 1);
}
static void attribute_missing(Bed *bed) { give(bed, put(bed, OP_Cast, "f64[2,3]", bed->x, NULL, NULL)); }
static void attribute_of_an_older_opset(Bed *bed) {
  give(bed, put(bed, OP_ReduceMax, "f32[2,1]", bed->x, NULL, NULL));
  SET_INTS(bed->graph->first, "axes", 1);
}
static void attribute_twice(Bed *bed) {
  Node *node = put(bed, OP_Softmax, "f32[2,3]", bed->x, NULL, NULL);
  node_set_int(node, "axis", 1);
  array_push(&bed->context, &node->attributes, node->attributes.items[0]);
  give(bed, node);
}
static void type_not_allowed(Bed *bed) { give(bed, put(bed, OP_Sin, "i32[2]", in(bed, "i32[2]"), NULL, NULL)); }
static void types_that_differ(Bed *bed) { give(bed, put(bed, OP_Add, "f32[2,3]", bed->x, in(bed, "f64[2,3]"), NULL)); }
static void result_of_another_type(Bed *bed) { give(bed, put(bed, OP_Sin, "f64[2,3]", bed->x, NULL, NULL)); }
static void comparison_that_is_no_boolean(Bed *bed) { give(bed, put(bed, OP_Less, "f32[2,3]", bed->x, bed->x, NULL)); }
static void cast_to_another_type(Bed *bed) {
  Node *cast = put(bed, OP_Cast, "f64[2,3]", bed->x, NULL, NULL);
  node_set_int(cast, "to", onnx_dtype(DTYPE_INT32));
  give(bed, cast);
}

/* ---- shapes ---- */

static void no_broadcast(Bed *bed) { give(bed, put(bed, OP_Add, "f32[2,3]", bed->x, in(bed, "f32[2]"), NULL)); }
static void broadcast_to_another_shape(Bed *bed) {
  give(bed, put(bed, OP_Add, "f32[2,3]", bed->x, in(bed, "f32[4,1,1]"), NULL));
}
static void where_of_another_shape(Bed *bed) {
  give(bed, put(bed, OP_Where, "f32[2,4]", in(bed, "bool[3]"), bed->x, bed->x));
}
static void elementwise_of_another_shape(Bed *bed) { give(bed, put(bed, OP_Sin, "f32[3,2]", bed->x, NULL, NULL)); }
static void reshape_of_other_count(Bed *bed) { give(bed, put(bed, OP_Reshape, "f32[7]", bed->x, INTS(bed, -1), NULL)); }
static void reshape_to_another_shape(Bed *bed) {
  give(bed, put(bed, OP_Reshape, "f32[6]", bed->x, INTS(bed, 3, 2), NULL));
}
static void reshape_with_two_open_sizes(Bed *bed) {
  give(bed, put(bed, OP_Reshape, "f32[3,2]", bed->x, INTS(bed, -1, -1), NULL));
}
static void transpose_of_an_axis_twice(Bed *bed) {
  give(bed, put(bed, OP_Transpose, "f32[3,3]", bed->x, NULL, NULL));
  SET_INTS(bed->graph->first, "perm", 1, 1);
}
static void transpose_of_too_few_axes(Bed *bed) {
  give(bed, put(bed, OP_Transpose, "f32[3,2]", bed->x, NULL, NULL));
  SET_INTS(bed->graph->first, "perm", 0);
}
static void transpose_of_another_shape(Bed *bed) {
  give(bed, put(bed, OP_Transpose, "f32[2,3]", bed->x, NULL, NULL));
  SET_INTS(bed->graph->first, "perm", 1, 0);
}
static Node *concat(Bed *bed, const char *type, Value *b, int64_t axis) {
  Node *node = put(bed, OP_Concat, type, bed->x, b, NULL);
  node_set_int(node, "axis", axis);
  give(bed, node);
  return node;
}
static void concat_that_does_not_fit(Bed *bed) { concat(bed, "f32[4,3]", in(bed, "f32[2,4]"), 0); }
static void concat_of_another_size(Bed *bed) { concat(bed, "f32[5,3]", bed->x, 0); }
static void concat_without_its_axis(Bed *bed) { concat(bed, "f32[4,3]", bed->x, 2); }
static void matmul_of_other_sizes(Bed *bed) {
  give(bed, put(bed, OP_MatMul, "f32[2,5]", bed->x, in(bed, "f32[4,5]"), NULL));
}
static void matmul_of_another_shape(Bed *bed) {
  give(bed, put(bed, OP_MatMul, "f32[7,2,4]", bed->x, in(bed, "f32[7,3,5]"), NULL));
}
static void gemm_of_other_sizes(Bed *bed) {
  give(bed, put(bed, OP_Gemm, "f32[2,5]", bed->x, in(bed, "f32[5,3]"), NULL));
}
static void gemm_with_a_wrong_bias(Bed *bed) {
  give(bed, put(bed, OP_Gemm, "f32[2,5]", bed->x, in(bed, "f32[3,5]"), in(bed, "f32[4]")));
}
static void slice_of_more_axes(Bed *bed) {
  Value *three = INTS(bed, 0, 0, 0);
  give(bed, put(bed, OP_Slice, "f32[2,3]", bed->x, three, INTS(bed, 1, 1, 1)));
}
static void slice_of_unequal_lists(Bed *bed) {
  give(bed, put(bed, OP_Slice, "f32[1,3]", bed->x, INTS(bed, 0), INTS(bed, 1, 2)));
}
static void slice_of_another_size(Bed *bed) {
  give(bed, put(bed, OP_Slice, "f32[2,3]", bed->x, INTS(bed, 0), INTS(bed, 1)));
}
static void reduction_of_no_axis(Bed *bed) {
  give(bed, put(bed, OP_ReduceSum, "f32[2,1]", bed->x, INTS(bed, 2), NULL));
}
static void reduction_of_an_axis_twice(Bed *bed) {
  give(bed, put(bed, OP_ReduceSum, "f32[2,1]", bed->x, INTS(bed, 1, -1), NULL));
}
static void reduction_of_another_shape(Bed *bed) {
  give(bed, put(bed, OP_ReduceSum, "f32[2]", bed->x, INTS(bed, 1), NULL));
}
static void expand_that_cannot_be(Bed *bed) {
  give(bed, put(bed, OP_Expand, "f32[2,4]", bed->x, INTS(bed, 2, 4), NULL));
}
static void gather_of_another_rank(Bed *bed) {
  give(bed, put(bed, OP_Gather, "f32[5,3]", bed->x, in(bed, "i64[5,5]"), NULL));
}
static void gather_of_no_axis(Bed *bed) {
  Node *node = put(bed, OP_Gather, "f32[2,3]", bed->x, in(bed, "i64[]"), NULL);
  node_set_int(node, "axis", 5);
  give(bed, node);
}
static void gather_nd_of_too_many(Bed *bed) {
  give(bed, put(bed, OP_GatherND, "f32[1]", bed->x, in(bed, "i64[1,3]"), NULL));
}
static void scatter_of_other_updates(Bed *bed) {
  give(bed, put(bed, OP_ScatterND, "f32[2,3]", bed->x, in(bed, "i64[4,1]"), in(bed, "f32[4,2]")));
}
static void squeeze_of_a_real_axis(Bed *bed) {
  give(bed, put(bed, OP_Squeeze, "f32[2,3]", bed->x, INTS(bed, 1), NULL));
}
static void unsqueeze_of_another_rank(Bed *bed) {
  give(bed, put(bed, OP_Unsqueeze, "f32[1,2,3]", bed->x, INTS(bed, 0, 3), NULL));
}
static void softmax_of_no_axis(Bed *bed) {
  give(bed, put(bed, OP_Softmax, "f32[2,3]", bed->x, NULL, NULL));
  node_set_int(bed->graph->first, "axis", -3);
}
static void conv_of_a_matrix(Bed *bed) { give(bed, put(bed, OP_Conv, "f32[2,3]", bed->x, in(bed, "f32[3,3]"), NULL)); }
static Node *conv(Bed *bed, const char *x, const char *w, const char *y) {
  Node *node = put(bed, OP_Conv, y, in(bed, x), in(bed, w), NULL);
  give(bed, node);
  return node;
}
static void conv_of_other_channels(Bed *bed) { conv(bed, "f32[1,4,8,8]", "f32[6,3,3,3]", "f32[1,6,6,6]"); }
static void conv_of_another_size(Bed *bed) { conv(bed, "f32[1,3,8,8]", "f32[6,3,3,3]", "f32[1,6,8,6]"); }
static void conv_with_too_few_pads(Bed *bed) {
  SET_INTS(conv(bed, "f32[1,3,8,8]", "f32[6,3,3,3]", "f32[1,6,8,8]"), "pads", 1, 1);
}
static void pool_of_another_size(Bed *bed) {
  Node *node = put(bed, OP_MaxPool, "f32[1,3,8]", in(bed, "f32[1,3,8]"), NULL, NULL);
  SET_INTS(node, "kernel_shape", 2);
  SET_INTS(node, "strides", 2);
  give(bed, node);
}
static void pads_that_do_not_fit(Bed *bed) { give(bed, put(bed, OP_Pad, "f32[3,3]", bed->x, INTS(bed, 0, 1), NULL)); }
static void split_of_other_sizes(Bed *bed) {
  Type types[] = {type_of(bed, "f32[2,1]"), type_of(bed, "f32[2,1]")};
  Value *inputs[] = {bed->x, INTS(bed, 1, 1)};
  Node *node = graph_node(bed->graph, NULL, OP_Split, inputs, 2, types, 2, NULL);
  node_set_int(node, "axis", 1);
  give(bed, node);
}
static void split_of_sizes_beyond_64_bits(Bed *bed) {
  Type types[] = {type_of(bed, "f32[2,1]"), type_of(bed, "f32[2,1]")};
  Value *inputs[] = {bed->x, INTS(bed, INT64_MAX, INT64_MAX)};
  Node *node = graph_node(bed->graph, NULL, OP_Split, inputs, 2, types, 2, NULL);
  node_set_int(node, "axis", 1);
  give(bed, node);
}
static void shape_of_another_length(Bed *bed) { give(bed, put(bed, OP_Shape, "i64[3]", bed->x, NULL, NULL)); }
static void weights_of_other_gates(Bed *bed) {
  Value *inputs[] = {in(bed, "f32[7,2,3]"), in(bed, "f32[1,15,3]"), in(bed, "f32[1,15,5]")};
  Type type = type_of(bed, "f32[7,1,2,5]");
  give(bed, graph_node(bed->graph, NULL, OP_LSTM, inputs, 3, &type, 1, NULL));
}

/* ---- bodies ---- */

static void branch_with_an_input(Bed *bed) {
  graph_input(branch_of(plain_if(bed, "f32[2,3]"), "then_branch"), type_of(bed, "f32[]"), NULL);
}
static void branch_of_another_type(Bed *bed) { plain_if(bed, "f32[2,4]"); }

static Node *plain_loop(Bed *bed, const char *condition) {
  Value *inputs[] = {in(bed, "i64[]"), in(bed, condition), bed->x};
  Type type = type_of(bed, "f32[2,3]");
  Node *loop = graph_node(bed->graph, NULL, OP_Loop, inputs, 3, &type, 1, NULL);
  Graph *graph = body(bed, loop, "body");
  graph_input(graph, type_of(bed, "i64[]"), NULL);
  Value *go_on = graph_input(graph, type_of(bed, "bool[]"), NULL);
  Value *carried = graph_input(graph, type_of(bed, "f32[2,3]"), NULL);
  graph_output(graph, in_body(bed, graph, OP_Identity, "bool[]", go_on, NULL)->outputs[0]);
  graph_output(graph, in_body(bed, graph, OP_Sin, "f32[2,3]", carried, NULL)->outputs[0]);
  give(bed, loop);
  return loop;
}
static void loop_with_a_number_for_a_condition(Bed *bed) { plain_loop(bed, "bool[2]"); }
static void loop_whose_body_gives_less(Bed *bed) { drop_graph_output(branch_of(plain_loop(bed, "bool[]"), "body"), 1); }
static void loop_that_carries_another_type(Bed *bed) {
  Graph *graph = branch_of(plain_loop(bed, "bool[]"), "body");
  graph->inputs.items[2]->type = type_of(bed, "f32[3,3]");
  graph->last->outputs[0]->type = type_of(bed, "f32[3,3]");
}

static Node *plain_scan(Bed *bed, int64_t scanned) {
  Type type = type_of(bed, "f32[2,3]");
  Node *scan = graph_node(bed->graph, NULL, OP_Scan, &bed->x, 1, &type, 1, NULL);
  node_set_int(scan, "num_scan_inputs", scanned);
  Graph *graph = body(bed, scan, "body");
  Value *row = graph_input(graph, type_of(bed, "f32[3]"), NULL);
  graph_output(graph, in_body(bed, graph, OP_Sin, "f32[3]", row, NULL)->outputs[0]);
  give(bed, scan);
  return scan;
}
static void scan_of_too_much(Bed *bed) { plain_scan(bed, 2); }
static void scan_of_whole_arrays(Bed *bed) {
  Graph *graph = branch_of(plain_scan(bed, 1), "body");
  graph->inputs.items[0]->type = graph->last->outputs[0]->type = bed->x->type;
}

typedef struct Plant {
  void (*plant)(Bed *bed);
  const char *found; /* by the first fault */
} Plant;

static const Plant plants[] = {
    {used_before_made,
     "Cos, node 0 of graph 'g': input 0, output 0 of a Sin, is used before it is defined, or its producer was removed"},
    {used_after_removal,
     "Cos, node 0 of graph 'g': input 0, output 0 of a Sin, is used before it is defined, or its producer was removed"},
    {used_from_another_branch,
     "Cos, node 0 of graph 'else_branch': input 0, output 0 of a Sin, belongs to a graph that does not enclose this "
     "one"},
    {used_outside_its_body,
     "Sin, node 1 of graph 'g': input 0, output 0 of a Sin, belongs to a graph that does not enclose this one"},
    {defined_nowhere, "Sin, node 0 of graph 'g': input 0, 'stray', is not defined here"},
    {use_that_is_on_no_list, "Sin, node 0 of graph 'g': input 0 is not on the use list of 'x'"},
    {use_on_the_list_of_another_value, "Sin, node 0 of graph 'g': the use list of output 0 of a Sin is broken"},
    {list_with_a_use_too_many, "graph 'g': use lists contain 3 uses, but there are 2"},
    {input_of_another_node, "Cos, node 1 of graph 'g': input 0 does not refer back to its node"},
    {output_of_another_node, "Sin, node 0 of graph 'g': output 0 does not have this node as its producer"},
    {value_of_another_graph, "Sin, node 0 of graph 'g': the value output 0 of a Sin belongs to another graph"},
    {made_twice, "Cos, node 1 of graph 'g': output 0 does not have this node as its producer"},
    {broken_list, "graph 'g': the list of nodes is broken after 1 of 2"},
    {one_name_twice, "Sin, node 0 of graph 'g': duplicate name 'x'"},
    {one_name_in_a_body_and_around, "Sin, node 0 of graph 'then_branch': duplicate name 'x'"},
    {no_output, "graph 'g': output 0 is missing"},
    {one_output_twice, "graph 'g': output 0, output 0 of a Sin, is listed twice"},
    {body_gives_an_outer_value, "If, node 0 of graph 'g': output 0 of its body, 'x', belongs to an enclosing graph"},
    {body_of_another_node, "If, node 0 of graph 'g': its body then_branch belongs to another node"},
    {too_deep, "If, node 1 of graph 'then_branch': graphs are nested more than 32 levels deep, which readers reject"},
    {initializer_without_data, "graph 'g': initializer 0, without a name, has no data of its own"},
    {initializer_of_another_type, "graph 'g': initializer 0 is int32 but its data is int64"},
    {domain_not_imported, "Thing, node 0 of graph 'g': the domain 'com.example' is not imported"},
    {function_uses_the_graph, "Add, node 0 of graph 'twice': input 1, 'x', is not defined here"},
    {call_with_too_much, "twice, node 1 of graph 'g': has 2 inputs but accepts at most 1"},
    {call_of_another_type, "twice, node 0 of graph 'g': output 0 is float64, but in the function it is float32"},
    {call_with_a_wrong_attribute, "twice, node 0 of graph 'g': the function twice has no attribute axis"},
    {call_of_another_name, "twice, node 0 of graph 'g': calls the function thrice, which has another name"},
    {unknown_operator, "Tahn, node 0 of graph 'g': there is no operator Tahn at opset 21"},
    {operator_of_a_later_opset,
     "RMSNormalization, node 0 of graph 'g': there is no operator RMSNormalization at opset 21"},
    {operator_that_was_withdrawn, "Scatter, node 0 of graph 'g': there is no operator Scatter at opset 21"},
    {too_few_inputs, "Add, node 0 of graph 'g': has 1 input but needs 2"},
    {too_many_inputs, "ReduceMax, node 0 of graph 'g': has 2 inputs but needs 1"},
    {input_left_out, "Add, node 0 of graph 'g': input 0 is missing"},
    {too_many_outputs, "Sin, node 0 of graph 'g': has 2 outputs but needs 1"},
    {unknown_attribute, "Sin, node 0 of graph 'g': there is no attribute axis"},
    {attribute_of_another_kind, "Softmax, node 0 of graph 'g': the attribute axis is a float but must be an integer"},
    {attribute_missing, "Cast, node 0 of graph 'g': the attribute to is missing"},
    {attribute_of_an_older_opset, "ReduceMax, node 0 of graph 'g': there is no attribute axes at opset 21"},
    {attribute_twice, "Softmax, node 0 of graph 'g': duplicate attribute axis"},
    {type_not_allowed, "Sin, node 0 of graph 'g': input 0 is int32, which Sin does not accept at opset 21"},
    {types_that_differ, "Add, node 0 of graph 'g': input 1 is float64 but must be float32 like input 0"},
    {result_of_another_type, "Sin, node 0 of graph 'g': output 0 is float64 but must be float32 like input 0"},
    {comparison_that_is_no_boolean,
     "Less, node 0 of graph 'g': output 0 is float32, which Less does not accept at opset 21"},
    {cast_to_another_type, "Cast, node 0 of graph 'g': output 0 is float64 but the attribute to says int32"},
    {no_broadcast, "Add, node 0 of graph 'g': input 1 of shape [2] does not broadcast with the inputs before it"},
    {broadcast_to_another_shape, "Add, node 0 of graph 'g': output 0 has shape [2,3] but must have [4,2,3]"},
    {where_of_another_shape, "Where, node 0 of graph 'g': output 0 has shape [2,4] but must have [2,3]"},
    {elementwise_of_another_shape, "Sin, node 0 of graph 'g': output 0 has shape [3,2] but must have [2,3]"},
    {reshape_of_other_count,
     "Reshape, node 0 of graph 'g': input 0 of shape [2,3] does not have the 7 elements of shape [7]"},
    {reshape_to_another_shape, "Reshape, node 0 of graph 'g': output 0 has shape [6] but must have [3,2]"},
    {reshape_with_two_open_sizes, "Reshape, node 0 of graph 'g': 2 sizes are left open, but at most one can be"},
    {transpose_of_an_axis_twice, "Transpose, node 0 of graph 'g': axis 1 is listed twice"},
    {transpose_of_too_few_axes, "Transpose, node 0 of graph 'g': perm has length 1 but input 0 has rank 2"},
    {transpose_of_another_shape, "Transpose, node 0 of graph 'g': output 0 has shape [2,3] but must have [3,2]"},
    {concat_that_does_not_fit,
     "Concat, node 0 of graph 'g': input 1 of shape [2,4] does not match input 0 of shape [2,3] along axis 0"},
    {concat_of_another_size, "Concat, node 0 of graph 'g': output 0 has shape [5,3] but must have [4,3]"},
    {concat_without_its_axis, "Concat, node 0 of graph 'g': axis 2 is out of range for rank 2"},
    {matmul_of_other_sizes, "MatMul, node 0 of graph 'g': inputs of shapes [2,3] and [4,5] cannot be multiplied"},
    {matmul_of_another_shape, "MatMul, node 0 of graph 'g': output 0 has shape [7,2,4] but must have [7,2,5]"},
    {gemm_of_other_sizes, "Gemm, node 0 of graph 'g': inputs of shapes [2,3] and [5,3] cannot be multiplied"},
    {gemm_with_a_wrong_bias, "Gemm, node 0 of graph 'g': input 2 of shape [4] does not broadcast to [2,5]"},
    {slice_of_more_axes, "Slice, node 0 of graph 'g': slices 3 axes of 2"},
    {slice_of_unequal_lists, "Slice, node 0 of graph 'g': starts, ends, axes and steps differ in length"},
    {slice_of_another_size, "Slice, node 0 of graph 'g': output 0 has shape [2,3] but must have [1,3]"},
    {reduction_of_no_axis, "ReduceSum, node 0 of graph 'g': axis 2 is out of range for rank 2"},
    {reduction_of_an_axis_twice, "ReduceSum, node 0 of graph 'g': axis 1 is listed twice"},
    {reduction_of_another_shape, "ReduceSum, node 0 of graph 'g': output 0 has shape [2] but must have [2,1]"},
    {expand_that_cannot_be, "Expand, node 0 of graph 'g': input 0 of shape [2,3] does not expand to [2,4]"},
    {gather_of_another_rank, "Gather, node 0 of graph 'g': output 0 has shape [5,3] but must have [5,5,3]"},
    {gather_of_no_axis, "Gather, node 0 of graph 'g': axis 5 is out of range for rank 2"},
    {gather_nd_of_too_many, "GatherND, node 0 of graph 'g': the indices have 3 components each but there are 2 axes"},
    {scatter_of_other_updates, "ScatterND, node 0 of graph 'g': the updates have shape [4,2] but must have [4,3]"},
    {squeeze_of_a_real_axis, "Squeeze, node 0 of graph 'g': axis 1 does not have size 1"},
    {unsqueeze_of_another_rank, "Unsqueeze, node 0 of graph 'g': output 0 has shape [1,2,3] but must have [1,2,3,1]"},
    {softmax_of_no_axis, "Softmax, node 0 of graph 'g': axis -3 is out of range for rank 2"},
    {conv_of_a_matrix, "Conv, node 0 of graph 'g': input 0 has rank 2 but must have rank 3 or more"},
    {conv_of_other_channels, "Conv, node 0 of graph 'g': 4 channels, but the weights expect 3 in 1 group"},
    {conv_of_another_size, "Conv, node 0 of graph 'g': output 0 has shape [1,6,8,6] but must have [1,6,6,6]"},
    {conv_with_too_few_pads, "Conv, node 0 of graph 'g': pads has 2 values but must have 4"},
    {pool_of_another_size, "MaxPool, node 0 of graph 'g': output 0 has shape [1,3,8] but must have [1,3,4]"},
    {pads_that_do_not_fit, "Pad, node 0 of graph 'g': 2 pads for 2 axes, which need two each"},
    {split_of_other_sizes, "Split, node 0 of graph 'g': the sizes add up to 2 but axis 1 has size 3"},
    {split_of_sizes_beyond_64_bits,
     "Split, node 0 of graph 'g': output 0 has shape [2,1] but must have [2,9223372036854775807]"},
    {shape_of_another_length, "Shape, node 0 of graph 'g': output 0 has shape [3] but must have [2]"},
    {weights_of_other_gates, "LSTM, node 0 of graph 'g': the weights [1,15,3] and [1,15,5] do not match 4 gates"},
    {branch_with_an_input,
     "If, node 0 of graph 'g': then_branch takes 1 and returns 1 values, but must take 0 and return 1"},
    {branch_of_another_type, "If, node 0 of graph 'g': output 0 is float32[2,4] outside but float32[2,3] in the body"},
    {loop_with_a_number_for_a_condition,
     "Loop, node 0 of graph 'g': the condition, input 1, is bool[2] but must be a single bool"},
    {loop_whose_body_gives_less,
     "Loop, node 0 of graph 'g': body takes 3 and returns 1 values, but must take 3 and return 2"},
    {loop_that_carries_another_type,
     "Loop, node 0 of graph 'g': input 2 is float32[2,3] outside but float32[3,3] in the body"},
    {scan_of_too_much, "Scan, node 0 of graph 'g': scans 2 of 1 inputs"},
    {scan_of_whole_arrays, "Scan, node 0 of graph 'g': input 0 is float32[2,3] outside but float32[2,3] in the body"},
};

static void planted_faults_are_found(void) {
  for (size_t i = 0; i < sizeof plants / sizeof *plants; i++) {
    Bed bed;
    make(&bed);
    plants[i].plant(&bed);
    FaultList faults = model_verify(bed.model, VERIFY_ALL);
    CHECK_TEXT(faults.count ? fault_text(bed.model, &faults.items[0]) : "nothing", plants[i].found);
    context_release(&bed.context);
  }
}

/* ---- what is well made ---- */

static void check_sound(Bed *bed) {
  FaultList faults = model_verify(bed->model, VERIFY_ALL);
  CHECK_TEXT(faults.count ? fault_text(bed->model, &faults.items[0]) : "", "");
  context_release(&bed->context);
}

static void bodies_and_calls_that_fit_are_sound(void) {
  Bed bed;
  Node *call;
  make(&bed);
  function_of(&bed, &call);
  plain_if(&bed, "f32[2,3]");
  plain_loop(&bed, "bool[]");
  plain_scan(&bed, 1);
  check_sound(&bed);
}

/* Sizes that are symbols, ranks and types that are not known: never a fault. */
static void what_is_not_known_is_sound(void) {
  static const struct {
    Op op;
    const char *a, *b, *to;
  } cases[] = {
      {OP_Add, "f32[B,3]", "f32[2,3]", "f32[C,3]"},  {OP_Add, "f32[B,3]", "f32[1,1]", "f32[B,3]"},
      {OP_Add, "f32", "f32[2]", "f32[7]"},           {OP_MatMul, "f32[2,B]", "f32[3,C]", "f32[2,C]"},
      {OP_MatMul, "f32[B,2,3]", "f32[3,4]", "f32"},  {OP_Reshape, "f32[B,4]", "i64[2]", "f32[2*B,2]"},
      {OP_Expand, "f32[1,B]", "i64[2]", "f32[N,B]"}, {OP_Gather, "f32[V,8]", "i64[B,T]", "f32[B,T,8]"},
      {OP_Slice, "f32[B,8]", "i64[1]", "f32[C,8]"},  {OP_Mul, "f32[2,3]", "f32[B,1]", "f32[2,3]"},
  };
  Bed bed;
  make(&bed);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Value *a = in(&bed, cases[i].a), *b = in(&bed, cases[i].b);
    give(&bed, put(&bed, cases[i].op, cases[i].to, a, b, cases[i].op == OP_Slice ? b : NULL));
  }
  Value *untyped = graph_input(bed.graph, (Type){0}, NULL);
  give(&bed, put(&bed, OP_Add, "f32[2,3]", bed.x, untyped, NULL));
  check_sound(&bed);
}

/* Newer than the facts, or older: nothing is claimed. */
static void opsets_that_are_not_known_are_left_alone(void) {
  static const int64_t opsets[] = {SCHEMA_NEWEST_OPSET + 1, 7};
  for (size_t i = 0; i < 2; i++) {
    Bed bed;
    make(&bed);
    bed.model->opset = opsets[i];
    too_few_inputs(&bed);
    unknown_operator(&bed);
    check_sound(&bed);
  }
}

/* A file may hold as many faults as it likes. */
static void faults_are_counted_up_to_a_limit(void) {
  Bed bed;
  make(&bed);
  for (int i = 0; i < MOST_FAULTS + 10; i++) give(&bed, put(&bed, OP_Add, "f32[2,3]", bed.x, NULL, NULL));
  CHECK(model_verify(bed.model, VERIFY_ALL).count == MOST_FAULTS);
  context_release(&bed.context);
}

static void run_checked(void *argument) {
  Bed *bed = argument;
  run_passes(bed->model, &(PassOptions){.check = true});
}

static void checked_passes_name_who_left_the_fault(void) {
  Bed bed;
  make(&bed);
  no_broadcast(&bed);
  CHECK(!context_protect(&bed.context, run_checked, &bed));
  CHECK_TEXT(bed.context.message ? bed.context.message : "",
             "the conversion left an invalid graph: Add, node 0 of graph 'g': input 1 of shape [2] does not broadcast "
             "with the inputs before it");
  context_release(&bed.context);
}

const Test verify_tests[] = {
    {"planted_faults_are_found", planted_faults_are_found},
    {"bodies_and_calls_that_fit_are_sound", bodies_and_calls_that_fit_are_sound},
    {"what_is_not_known_is_sound", what_is_not_known_is_sound},
    {"opsets_that_are_not_known_are_left_alone", opsets_that_are_not_known_are_left_alone},
    {"faults_are_counted_up_to_a_limit", faults_are_counted_up_to_a_limit},
    {"checked_passes_name_who_left_the_fault", checked_passes_name_who_left_the_fault},
    {0},
};
