/* Calls: a nested jaxpr is lowered in place, its equations joined to the call's site. */
#include "lower/lower.h"

/* The parameter that holds the callee differs by primitive; the row names it. */
static void lower_inlined_call(Lowering *l) {
  const Jaxpr *jaxpr = param_jaxpr(l->context, l->equation, l->plugin->op);
  uint32_t count = l->equation->input_count;
  Value **arguments = arena_new_array(&l->context->arena, count, Value *);
  Value **results = arena_new_array(&l->context->arena, jaxpr->output_count, Value *);
  const Equation *equation = l->equation;
  require(l->context, jaxpr->output_count == equation->output_count);
  for (uint32_t i = 0; i < count; i++) arguments[i] = input(l, i);
  lower_call(l, HERE, jaxpr, arguments, results);
  for (uint32_t i = 0; i < equation->output_count; i++) bind(l, i, results[i]);
}

const Plugin call_plugins[] = {
    PLUGIN("jit", lower_inlined_call, "jaxpr"),
    PLUGIN("pjit", lower_inlined_call, "jaxpr"),
    PLUGIN("closed_call", lower_inlined_call, "call_jaxpr"),
    PLUGIN("core_call", lower_inlined_call, "call_jaxpr"),
    PLUGIN("call", lower_inlined_call, "call_jaxpr"),
    PLUGIN("remat", lower_inlined_call, "jaxpr"),
    PLUGIN("remat2", lower_inlined_call, "jaxpr"),
    PLUGIN("checkpoint", lower_inlined_call, "jaxpr"),
    PLUGIN("composite", lower_inlined_call, "jaxpr"),
    PLUGIN("custom_jvp_call", lower_inlined_call, "call_jaxpr"),
    PLUGIN("custom_vjp_call", lower_inlined_call, "call_jaxpr"),
    PLUGIN("custom_vjp_call_jaxpr", lower_inlined_call, "fun_jaxpr"),
    PLUGIN("custom_vmap_call", lower_inlined_call, "call"),
    {0},
};
