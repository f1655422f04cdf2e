/* Scalar bodies: the jaxpr of a reduction, written for two scalars, applied to whole arrays element by element. */
#include "lower/reduce/scalar_body.h"

#include "base/bytes.h"
#include "lower/complex/complex.h"
#include "lower/control/scan_axis.h"

/* Families whose primitives mean the same on arrays as on scalars. */
static const Plugin *const elementwise_families[] = {
    elementwise_plugins,
    convert_plugins,
    integer_plugins,
    special_plugins,
    bit_plugins,
    gamma_plugins,
    call_plugins,
    complex_plugins,
    complex_arithmetic_plugins,
    complex_function_plugins,
};

static bool is_elementwise(const Plugin *plugin) {
  if (!plugin) return false;
  if (strcmp(plugin->primitive, "select_n") == 0) return true; /* of pairs it stands among what moves them */
  for (size_t f = 0; f < sizeof elementwise_families / sizeof *elementwise_families; f++) {
    for (const Plugin *row = elementwise_families[f]; row->primitive; row++) {
      if (row == plugin) return true;
    }
  }
  return false;
}

/* A pair is one number. */
static bool is_scalar(const Var *var) { return var->type.rank == (var->form == FORM_PAIRS ? 1 : 0); }

static bool are_scalars(Var *const *vars, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (!vars[i]->literal && !is_scalar(vars[i])) return false;
  }
  return true;
}

/* Does it mean the same on arrays? */
static bool body_is_elementwise(Lowering *l, const Jaxpr *jaxpr) {
  if (!are_scalars(jaxpr->inputs, jaxpr->input_count) || !are_scalars(jaxpr->consts, jaxpr->const_count)) return false;
  for (size_t i = 0; i < jaxpr->equation_count; i++) {
    const Equation *equation = jaxpr->equations[i];
    if (!is_elementwise(plugin_for(l, equation))) return false;
    if (!are_scalars(equation->outputs, equation->output_count)) return false;
    for (uint32_t p = 0; p < equation->param_count; p++) {
      const Param *param = &equation->params[p];
      if (param->kind == PARAM_JAXPR && !body_is_elementwise(l, param->jaxpr)) return false;
    }
  }
  return true;
}

static Type widened_type(Lowering *l, const Var *var, Type shape) {
  Type type = type_with(shape, var->type.dtype);
  return var->form == FORM_PAIRS ? pairs_type(l, type) : type;
}

/* The variable keeps its number, so it is the same variable to the lowering, with an array's type. */
static Var **widen_vars(Lowering *l, Var *const *vars, size_t count, Type shape) {
  Var **widened = arena_new_array(&l->context->arena, count, Var *);
  for (size_t i = 0; i < count; i++) {
    widened[i] = vars[i];
    if (vars[i]->literal) continue;
    widened[i] = arena_new(&l->context->arena, Var);
    *widened[i] = (Var){.id = vars[i]->id, .form = vars[i]->form, .type = widened_type(l, vars[i], shape)};
  }
  return widened;
}

static const Jaxpr *widen_jaxpr(Lowering *l, const Jaxpr *jaxpr, Type shape);

static Equation *widen_equation(Lowering *l, const Equation *equation, Type shape) {
  Equation *widened = arena_new(&l->context->arena, Equation);
  *widened = *equation;
  widened->inputs = widen_vars(l, equation->inputs, equation->input_count, shape);
  widened->outputs = widen_vars(l, equation->outputs, equation->output_count, shape);
  widened->params = arena_copy(&l->context->arena, equation->params, equation->param_count * sizeof *equation->params);
  for (uint32_t p = 0; p < equation->param_count; p++) {
    Param *param = &widened->params[p];
    if (param->kind == PARAM_JAXPR) param->jaxpr = (Jaxpr *)(uintptr_t)widen_jaxpr(l, param->jaxpr, shape);
  }
  return widened;
}

static const Jaxpr *widen_jaxpr(Lowering *l, const Jaxpr *jaxpr, Type shape) {
  Jaxpr *widened = arena_new(&l->context->arena, Jaxpr);
  *widened = *jaxpr;
  widened->inputs = widen_vars(l, jaxpr->inputs, jaxpr->input_count, shape);
  widened->outputs = widen_vars(l, jaxpr->outputs, jaxpr->output_count, shape);
  widened->equations = arena_new_array(&l->context->arena, jaxpr->equation_count, Equation *);
  for (size_t i = 0; i < jaxpr->equation_count; i++) {
    widened->equations[i] = widen_equation(l, jaxpr->equations[i], shape);
  }
  return widened;
}

/* All elements of an array of such numbers in one row. */
static Type row_type(Lowering *l, const Var *var, Dim elements) {
  Dim dims[] = {elements, dim_of(2)};
  return type_make(l->context, var->type.dtype, dims, 1 + var->type.rank);
}

/* A computation that uses arrays, branches or loops has no namesake on arrays: a Scan goes through the elements. */
static void map_body(Lowering *l, const Jaxpr *jaxpr, Value **arguments, size_t const_count, size_t count, Type shape,
                     Value **results) {
  Dim elements = dim_of(1);
  for (uint32_t i = 0; i < shape.rank; i++) elements = dim_multiply(l->context, elements, shape.dims[i]);
  Value **rows = arena_new_array(&l->context->arena, count, Value *);
  for (size_t i = 0; i < count; i++) {
    Type row = row_type(l, jaxpr->inputs[i], elements);
    ScanAxis scan = scan_axis(l, row, 0, false);
    Value *fill = constant(l, tensor_scalar(l, row.dtype, 0));
    rows[i] = scan_operand(l, &scan, reshape_to(l, arguments[const_count + i], row.dims, row.rank), fill);
  }
  Graph *outer = subgraph_begin(l, "elements");
  for (size_t i = 0; i < count; i++) {
    arguments[const_count + i] = graph_input(l->graph, jaxpr->inputs[i]->type, NULL);
  }
  lower_call(l, HERE, jaxpr, arguments, results);
  for (uint32_t i = 0; i < jaxpr->output_count; i++) subgraph_output(l, results[i]);
  Graph *body = subgraph_end(l, outer);
  Type *types = arena_new_array(&l->context->arena, jaxpr->output_count, Type);
  ScanAxis *stacked = arena_new_array(&l->context->arena, jaxpr->output_count, ScanAxis);
  for (uint32_t i = 0; i < jaxpr->output_count; i++) {
    stacked[i] = scan_axis(l, row_type(l, jaxpr->outputs[i], elements), 0, false);
    types[i] = scan_stacked_type(l, &stacked[i]);
  }
  Node *node = emit_node(l, HERE, OP_Scan, types, jaxpr->output_count, rows, count);
  node_set_graph(node, "body", body);
  node_set_int(node, "num_scan_inputs", (int64_t)count);
  for (uint32_t i = 0; i < jaxpr->output_count; i++) {
    Type type = widened_type(l, jaxpr->outputs[i], shape);
    results[i] = reshape_to(l, scan_result(l, &stacked[i], node->outputs[i]), type.dims, type.rank);
  }
}

void apply_scalar_body(Lowering *l, Here here, const Jaxpr *jaxpr, const Param *consts, Value *const *arguments,
                       size_t count, Value **results) {
  rely_on(l, count > 0 && jaxpr->input_count == count && are_scalars(jaxpr->inputs, count));
  rely_on(l, are_scalars(jaxpr->outputs, jaxpr->output_count));
  size_t const_count = consts && consts->kind == PARAM_LIST ? consts->list.count : 0;
  Value **all = arena_new_array(&l->context->arena, const_count + count, Value *);
  for (size_t i = 0; i < const_count; i++) {
    const Param *item = &consts->list.items[i];
    if (item->kind != PARAM_TENSOR) unsupported(l, "its computation closes over a value that is not a constant");
    all[i] = constant(l, item->tensor);
  }
  copy_bytes(all + const_count, arguments, count * sizeof *all);
  Type type = arguments[0]->type, shape = jaxpr->inputs[0]->form == FORM_PAIRS ? part_type(type) : type;
  bool elementwise = body_is_elementwise(l, jaxpr), one = shape.rank == 0;
  if (elementwise || one) lower_call(l, here, elementwise ? widen_jaxpr(l, jaxpr, shape) : jaxpr, all, results);
  else map_body(l, jaxpr, all, const_count, count, shape, results);
  for (uint32_t i = 0; i < jaxpr->output_count; i++) { /* a result may be a literal */
    Type whole = widened_type(l, jaxpr->outputs[i], shape);
    results[i] = expand_to(l, results[i], whole.dims, whole.rank);
  }
}

static bool is_one_of(Str name, const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (strcmp(name, names[i]) == 0) return true;
  }
  return false;
}

static bool commutes(Str primitive) {
  static const char *const names[] = {"add", "mul", "max", "min", "and", "or", "xor"};
  return is_one_of(primitive, names, sizeof names / sizeof *names);
}

/* The jaxpr of a plain call, else NULL. */
static const Jaxpr *called_by(const Equation *equation) {
  static const char *const calls[] = {"jit", "pjit", "closed_call"};
  if (!is_one_of(equation->primitive, calls, sizeof calls / sizeof *calls)) return NULL;
  const Param *callee = param_find(equation, "jaxpr");
  bool fits = callee && callee->kind == PARAM_JAXPR && callee->jaxpr->input_count == equation->input_count &&
              callee->jaxpr->output_count == equation->output_count;
  return fits ? callee->jaxpr : NULL;
}

static bool is_var(const Var *var, const Var *other) {
  return !var->literal && !other->literal && var->id == other->id;
}

/* Where the variable stands among those, or -1. */
static int64_t place_of(const Var *var, Var *const *vars, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (is_var(vars[i], var)) return (int64_t)i;
  }
  return -1;
}

/* The primitive when the result is primitive(a, b), also in a function that is called, or one that commutes with its
 * operands exchanged. */
static Str primitive_of(const Jaxpr *jaxpr, const Var *result, const Var *a, const Var *b) {
  const Equation *equation = NULL;
  int64_t output = -1;
  for (size_t i = 0; i < jaxpr->equation_count && output < 0; i++) {
    equation = jaxpr->equations[i];
    output = place_of(result, equation->outputs, equation->output_count);
  }
  if (output < 0) return NULL;
  int64_t first = place_of(a, equation->inputs, equation->input_count);
  int64_t second = place_of(b, equation->inputs, equation->input_count);
  if (first < 0 || second < 0) return NULL;
  const Jaxpr *callee = called_by(equation);
  if (callee) {
    return primitive_of(callee, callee->outputs[output], callee->inputs[first], callee->inputs[second]);
  }
  bool two = equation->input_count == 2 && equation->output_count == 1;
  return two && (first < second || commutes(equation->primitive)) ? equation->primitive : NULL;
}

Str scalar_body_primitive(const Jaxpr *jaxpr, uint32_t index) {
  uint32_t count = jaxpr->output_count;
  if (jaxpr->input_count != 2 * count || index >= count) return NULL;
  return primitive_of(jaxpr, jaxpr->outputs[index], jaxpr->inputs[index], jaxpr->inputs[count + index]);
}

bool starts_from(Lowering *l, size_t index, const Tensor *identity) {
  const Tensor *initial = input_literal(l, index);
  return initial && initial->size == identity->size && same_bytes(initial->data, identity->data, identity->size);
}
