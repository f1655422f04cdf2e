/* Equations whose results nobody reads: dropped before lowering, so that they need none (the random keys that a layer
 * splits in vain, a branch of the user's that came to nothing). */
#include "program/program.h"

typedef struct Search {
  Program *program;
  bool *used; /* by number of the variable */
  Map visited;
} Search;

static bool is_needed(const Search *search, const Equation *equation) {
  if (equation->has_effects || !equation->output_count) return true;
  for (uint32_t i = 0; i < equation->output_count; i++) {
    if (search->used[equation->outputs[i]->id]) return true;
  }
  return false;
}

static void visit_jaxpr(Search *search, Jaxpr *jaxpr);

static void visit_param(Search *search, const Param *param) {
  if (param->kind == PARAM_JAXPR) visit_jaxpr(search, param->jaxpr);
  if (param->kind != PARAM_LIST && param->kind != PARAM_RECORD) return;
  for (size_t i = 0; i < param->list.count; i++) visit_param(search, &param->list.items[i]);
}

/* From the last equation to the first, so that whoever reads a result is seen before what makes it. */
static void visit_jaxpr(Search *search, Jaxpr *jaxpr) {
  void **slot = map_slot_pointer(search->program->context, &search->visited, jaxpr);
  if (*slot) return;
  *slot = jaxpr;
  for (uint32_t i = 0; i < jaxpr->output_count; i++) search->used[jaxpr->outputs[i]->id] = true;
  size_t first = jaxpr->equation_count;
  ARRAY(Equation *) dropped = {0};
  for (size_t i = jaxpr->equation_count; i--;) {
    Equation *equation = jaxpr->equations[i];
    if (!is_needed(search, equation)) {
      array_push(search->program->context, &dropped, equation);
      continue;
    }
    for (uint32_t j = 0; j < equation->input_count; j++) search->used[equation->inputs[j]->id] = true;
    for (uint32_t p = 0; p < equation->param_count; p++) visit_param(search, &equation->params[p]);
    jaxpr->equations[--first] = equation;
  }
  jaxpr->equations += first;
  jaxpr->equation_count -= first;
  jaxpr->dropped = dropped.items;
  jaxpr->dropped_count = dropped.count;
}

void program_drop_unused(Program *program) {
  Search search = {.program = program};
  search.used = arena_new_array(&program->context->arena, program->var_count, bool);
  visit_jaxpr(&search, program->main);
}
