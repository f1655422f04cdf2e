/* Scalar bodies: the jaxpr of a reduction, written for two scalars, applied to whole arrays element by element. */
#include "lower/reduce/scalar_body.h"

/* Families whose primitives mean the same on arrays as on scalars. */
static const Plugin *const elementwise_families[] = {
    elementwise_plugins, convert_plugins, integer_plugins, special_plugins, bit_plugins, call_plugins,
};

static bool is_elementwise(const Plugin *plugin) {
  for (size_t f = 0; f < sizeof elementwise_families / sizeof *elementwise_families; f++) {
    for (const Plugin *row = elementwise_families[f]; row->primitive; row++) {
      if (row == plugin) return true;
    }
  }
  return false;
}

/* The variable keeps its number, so it is the same variable to the lowering, with an array's type. */
static Var **widen_vars(Lowering *l, Var *const *vars, size_t count, Type shape) {
  Var **widened = arena_new_array(&l->context->arena, count, Var *);
  for (size_t i = 0; i < count; i++) {
    widened[i] = vars[i];
    if (vars[i]->literal) continue;
    if (vars[i]->type.rank != 0)
      unsupported(l, "its computation uses arrays, but ONNX requires a computation on scalars");
    widened[i] = arena_new(&l->context->arena, Var);
    *widened[i] = (Var){.id = vars[i]->id, .type = type_with(shape, vars[i]->type.dtype)};
  }
  return widened;
}

static const Jaxpr *widen_jaxpr(Lowering *l, const Jaxpr *jaxpr, Type shape);

static Equation *widen_equation(Lowering *l, const Equation *equation, Type shape) {
  const Plugin *plugin = map_get_pointer(&l->plugins, equation->primitive);
  if (!is_elementwise(plugin)) {
    unsupported(l, "its computation uses %s, which is not elementwise", equation->primitive);
  }
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

void apply_scalar_body(Lowering *l, Here here, const Jaxpr *jaxpr, const Param *consts, Value *const *arguments,
                       size_t count, Value **results) {
  const Jaxpr *widened = widen_jaxpr(l, jaxpr, arguments[0]->type);
  size_t const_count = consts && consts->kind == PARAM_LIST ? consts->list.count : 0;
  Value **all = arena_new_array(&l->context->arena, const_count + count, Value *);
  for (size_t i = 0; i < const_count; i++) {
    const Param *item = &consts->list.items[i];
    if (item->kind != PARAM_TENSOR) unsupported(l, "its computation closes over a value that is not a constant");
    all[i] = constant(l, item->tensor);
  }
  for (size_t i = 0; i < count; i++) all[const_count + i] = arguments[i];
  lower_call(l, here, widened, all, results);
}

Str scalar_body_primitive(const Jaxpr *jaxpr) {
  if (jaxpr->equation_count != 1 || jaxpr->input_count != 2 || jaxpr->output_count != 1) return NULL;
  const Equation *equation = jaxpr->equations[0];
  if (equation->input_count != 2 || equation->output_count != 1) return NULL;
  if (equation->inputs[0]->id != jaxpr->inputs[0]->id || equation->inputs[1]->id != jaxpr->inputs[1]->id) return NULL;
  if (equation->inputs[0]->literal || equation->inputs[1]->literal) return NULL;
  if (jaxpr->outputs[0]->literal || jaxpr->outputs[0]->id != equation->outputs[0]->id) return NULL;
  const Param *callee = param_find(equation, "jaxpr");
  return callee && callee->kind == PARAM_JAXPR ? scalar_body_primitive(callee->jaxpr) : equation->primitive;
}
