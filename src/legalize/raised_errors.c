/* Checks at run time: a choice between values as they are and a callback that raises an error in their place.
 *
 * That is what equinox.error_if traces to, and what people write themselves. A callback that is given the values may
 * well compute with them, and is none. Such a choice becomes an equation "runtime_check" of the index and the values,
 * whose parameter is the index at which all is well; the callback, which no model can hold, is gone with its branch. */
#include "legalize/legalize.h"

/* What a variable of a branch depends on. */
enum { ON_VALUES = 1, ON_CALLBACK = 2 };

typedef struct CheckSearch {
  Program *program;
  Str cond, pure_callback, io_callback, runtime_check;
  unsigned char *depends; /* by number of the variable */
  Map visited;            /* jaxprs */
} CheckSearch;

static int64_t input_returned(const Jaxpr *jaxpr, uint32_t output) {
  for (uint32_t i = 0; i < jaxpr->input_count; i++) {
    if (jaxpr->inputs[i] == jaxpr->outputs[output]) return i;
  }
  return -1;
}

static bool returns_inputs(const Jaxpr *jaxpr) {
  for (uint32_t i = 0; i < jaxpr->output_count; i++) {
    if (input_returned(jaxpr, i) < 0) return false;
  }
  return jaxpr->output_count && !jaxpr->equation_count;
}

static unsigned char dependence(const CheckSearch *search, Var *const *vars, size_t count) {
  unsigned char all = 0;
  for (size_t i = 0; i < count; i++) all |= search->depends[vars[i]->id];
  return all;
}

/* Does the branch return nothing but what a callback gives that was not told the values? */
static bool raises_error(CheckSearch *search, const Jaxpr *branch, const Jaxpr *quiet) {
  if (branch->input_count != quiet->input_count || branch->output_count != quiet->output_count) return false;
  for (uint32_t i = 0; i < branch->input_count; i++) search->depends[branch->inputs[i]->id] = 0;
  for (uint32_t i = 0; i < quiet->output_count; i++) {
    search->depends[branch->inputs[input_returned(quiet, i)]->id] = ON_VALUES;
  }
  for (size_t i = 0; i < branch->equation_count; i++) {
    const Equation *equation = branch->equations[i];
    bool calls = equation->primitive == search->pure_callback || equation->primitive == search->io_callback;
    unsigned char on = dependence(search, equation->inputs, equation->input_count);
    if (calls && on & ON_VALUES) return false;
    for (uint32_t j = 0; j < equation->output_count; j++) {
      search->depends[equation->outputs[j]->id] = calls ? ON_CALLBACK : on;
    }
  }
  for (uint32_t i = 0; i < branch->output_count; i++) {
    if (!(dependence(search, &branch->outputs[i], 1) & ON_CALLBACK)) return false;
  }
  return true;
}

/* The branch that returns what it got when every other one raises an error; -1: it is no check. */
static int64_t branch_without_error(CheckSearch *search, const Param *branches) {
  int64_t quiet = -1;
  for (size_t i = 0; i < branches->list.count; i++) {
    if (branches->list.items[i].kind != PARAM_JAXPR) return -1;
    if (!returns_inputs(branches->list.items[i].jaxpr)) continue;
    if (quiet >= 0) return -1;
    quiet = (int64_t)i;
  }
  for (size_t i = 0; quiet >= 0 && i < branches->list.count; i++) {
    if (i == (size_t)quiet) continue;
    if (!raises_error(search, branches->list.items[i].jaxpr, branches->list.items[quiet].jaxpr)) return -1;
  }
  return branches->list.count > 1 ? quiet : -1;
}

static void become_check(CheckSearch *search, Equation *cond, const Jaxpr *quiet, int64_t index) {
  Arena *arena = &search->program->context->arena;
  Var **inputs = arena_new_array(arena, cond->output_count + 1, Var *);
  inputs[0] = cond->inputs[0];
  for (uint32_t i = 0; i < cond->output_count; i++) inputs[i + 1] = cond->inputs[input_returned(quiet, i) + 1];
  Param *param = arena_new(arena, Param);
  *param = (Param){.kind = PARAM_INT, .name = str_intern(search->program->context, "passes_at"), .integer = index};
  cond->primitive = search->runtime_check;
  cond->inputs = inputs;
  cond->input_count = cond->output_count + 1;
  cond->params = param;
  cond->param_count = 1;
}

static void visit_jaxpr(CheckSearch *search, const Jaxpr *jaxpr);

static void visit_param(CheckSearch *search, const Param *param) {
  if (param->kind == PARAM_JAXPR) visit_jaxpr(search, param->jaxpr);
  if (param->kind != PARAM_LIST && param->kind != PARAM_RECORD) return;
  for (size_t i = 0; i < param->list.count; i++) visit_param(search, &param->list.items[i]);
}

static void visit_equation(CheckSearch *search, Equation *equation) {
  const Param *branches = equation->primitive == search->cond ? param_find(equation, "branches") : NULL;
  if (branches && branches->kind == PARAM_LIST) {
    int64_t quiet = branch_without_error(search, branches);
    const Jaxpr *branch = quiet < 0 ? NULL : branches->list.items[quiet].jaxpr;
    if (branch && branch->input_count + 1 == equation->input_count && branch->output_count == equation->output_count) {
      become_check(search, equation, branch, quiet);
      return;
    }
  }
  for (uint32_t p = 0; p < equation->param_count; p++) visit_param(search, &equation->params[p]);
}

static void visit_jaxpr(CheckSearch *search, const Jaxpr *jaxpr) {
  void **slot = map_slot_pointer(search->program->context, &search->visited, jaxpr);
  if (*slot) return;
  *slot = search;
  for (size_t i = 0; i < jaxpr->equation_count; i++) visit_equation(search, jaxpr->equations[i]);
}

void legalize_checks(Program *program) {
  Context *context = program->context;
  CheckSearch search = {.program = program,
                        .cond = str_intern(context, "cond"),
                        .pure_callback = str_intern(context, "pure_callback"),
                        .io_callback = str_intern(context, "io_callback"),
                        .runtime_check = str_intern(context, "runtime_check")};
  search.depends = arena_new_array(&context->arena, program->var_count, unsigned char);
  visit_jaxpr(&search, program->main);
}
