/* Calls: a nested jaxpr is lowered in place, its equations joined to the call's site.
 *
 * Rules for derivatives and batching that such a call carries have been applied, or not asked for, when JAX made the
 * program: only the plain callee matters. */
#include "lower/lower.h"

static void inline_call(Lowering *l, Here here, const Jaxpr *jaxpr) {
  const Equation *equation = l->equation;
  rely_on(l, jaxpr->output_count == equation->output_count && jaxpr->input_count <= equation->input_count);
  uint32_t count = equation->input_count;
  Value **arguments = arena_new_array(&l->context->arena, count, Value *);
  Value **results = arena_new_array(&l->context->arena, jaxpr->output_count, Value *);
  for (uint32_t i = 0; i < count; i++) arguments[i] = input(l, i);
  lower_call(l, here, jaxpr, arguments, results);
  for (uint32_t i = 0; i < equation->output_count; i++) bind(l, i, results[i]);
}

/* The parameter that holds the callee differs by primitive; the row names it. */
static void lower_inlined_call(Lowering *l) {
  inline_call(l, HERE, param_jaxpr(l->context, l->equation, l->plugin->calls));
}

/* Up to JAX 0.10 the callee of these is `jaxpr`, later `call_jaxpr`. */
static void lower_renamed_call(Lowering *l) {
  const char *name = param_find(l->equation, "call_jaxpr") ? "call_jaxpr" : "jaxpr";
  inline_call(l, HERE, param_jaxpr(l->context, l->equation, name));
}

/* Inputs: the constants of matvec, vecmat, solve and transpose_solve, then the right-hand sides. */
static void lower_custom_linear_solve(Lowering *l) {
  const Param *jaxprs = param_get(l->context, l->equation, "jaxprs");
  const Param *lengths = param_get(l->context, l->equation, "const_lengths");
  const Param *solve = param_field(jaxprs, "solve");
  if (!solve || solve->kind != PARAM_JAXPR || lengths->kind != PARAM_RECORD) {
    unsupported(l, "its solver has no jaxpr");
  }
  Value **arguments = arena_new_array(&l->context->arena, l->equation->input_count, Value *);
  uint32_t at = 0, count = 0;
  for (size_t f = 0; f < lengths->list.count; f++) {
    const Param *length = &lengths->list.items[f];
    rely_on(l, length->kind == PARAM_INT && length->integer >= 0);
    bool wanted = strcmp(length->name, "solve") == 0;
    for (int64_t i = 0; i < length->integer; i++, at++) {
      if (wanted) arguments[count++] = input(l, at);
    }
  }
  for (; at < l->equation->input_count; at++) arguments[count++] = input(l, at);
  rely_on(l, solve->jaxpr->input_count == count);
  rely_on(l, solve->jaxpr->output_count == l->equation->output_count);
  Value **results = arena_new_array(&l->context->arena, l->equation->output_count, Value *);
  lower_call(l, HERE, solve->jaxpr, arguments, results);
  for (uint32_t i = 0; i < l->equation->output_count; i++) bind(l, i, results[i]);
}

static void require_single_device(Lowering *l) {
  const Param *mesh = param_get(l->context, l->equation, "mesh");
  const Param *sizes = mesh->kind == PARAM_RECORD ? param_field(mesh, "axis_sizes") : NULL;
  bool single = sizes && sizes->kind == PARAM_LIST;
  for (size_t i = 0; single && i < sizes->list.count; i++) {
    single = sizes->list.items[i].kind == PARAM_INT && sizes->list.items[i].integer == 1;
  }
  if (!single)
    unsupported(l, "a model runs on a single device; export the function with a mesh whose axes all have size 1");
}

/* Over several devices it has an expansion, which computes what all of them do. */
static void lower_shard_map(Lowering *l) {
  require_single_device(l);
  inline_call(l, HERE, param_jaxpr(l->context, l->equation, "jaxpr"));
}

/* The jaxpr that JAX itself would lower in place of the primitive. */
static void lower_expansion(Lowering *l) {
  inline_call(l, HERE, param_jaxpr(l->context, l->equation, l->plugin->calls));
}

const Plugin expansion_plugin = PLUGIN("expansion", lower_expansion, .calls = "expansion");

/* clang-format off */
const Plugin call_plugins[] = {
    PLUGIN("jit", lower_inlined_call, .calls = "jaxpr"),
    PLUGIN("pjit", lower_inlined_call, .calls = "jaxpr"),
    PLUGIN("closed_call", lower_inlined_call, .calls = "call_jaxpr"),
    PLUGIN("core_call", lower_inlined_call, .calls = "call_jaxpr"),
    PLUGIN("call", lower_inlined_call, .calls = "call_jaxpr"),
    PLUGIN("eval_jaxpr", lower_renamed_call),
    PLUGIN("remat", lower_inlined_call, .calls = "jaxpr"),
    PLUGIN("remat2", lower_inlined_call, .calls = "jaxpr"),
    PLUGIN("checkpoint", lower_inlined_call, .calls = "jaxpr"),
    PLUGIN("composite", lower_renamed_call),
    PLUGIN("custom_jvp_call", lower_inlined_call, .calls = "call_jaxpr"),
    PLUGIN("custom_vjp_call", lower_inlined_call, .calls = "call_jaxpr"),
    PLUGIN("custom_vjp_call_jaxpr", lower_inlined_call, .calls = "fun_jaxpr"),
    PLUGIN("custom_vmap_call", lower_inlined_call, .calls = "call"),
    PLUGIN("linear_call", lower_inlined_call, .calls = "callee"),
    PLUGIN("custom_linear_solve", lower_custom_linear_solve, .calls = "solve"),
    PLUGIN("remat_opt", lower_inlined_call, .calls = "fwd_jaxpr"),
    PLUGIN("shard_map", lower_shard_map, .calls = "jaxpr", .flags = EXPANDABLE),
    {0},
};
/* clang-format on */
