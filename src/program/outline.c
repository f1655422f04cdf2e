/* Functions: the equations between two marks that a decorated function left (jax2onnx/_door/function_marks.py).
 *
 * Any run of equations can be outlined, whatever a transformation of JAX's did to it: what it reads from before are the
 * inputs of the function, what is read of it behind are the outputs. Marks without a partner stay, and hand on what
 * they are given. */
#include "program/program.h"

typedef ARRAY(Equation *) EquationList;

typedef struct Outliner {
  Program *program;
  Context *context;
  Map visited;        /* jaxprs */
  const Jaxpr *jaxpr; /* being outlined */
  Map last_uses;      /* of it: Var -> one more than the number of the last equation that reads it */
  size_t *partners;   /* of it: for each begin the number of its end, else 0 */
} Outliner;

/* Variables of a function: the outer ones and what stands for them inside. */
typedef struct Region {
  EquationList equations;
  Map defined;                   /* Var -> set when an equation of the region gives it */
  Map renamed;                   /* Var -> the Var that takes its place inside */
  ARRAY(Var *) inputs, outside;  /* the function's, and what each stands for */
  Map names;                     /* Var outside -> Param, a string: what the function calls it */
  ARRAY(Var *) outputs, results; /* likewise, for those who read them behind it */
  ARRAY(Var *) escaping;         /* what is read behind the function without being its result */
} Region;

static bool is_mark(const Equation *equation, const char *name) { return strcmp(equation->primitive, name) == 0; }
static bool is_begin(const Equation *equation) { return is_mark(equation, "onnx_function_begin"); }
static bool is_end(const Equation *equation) {
  return is_mark(equation, "onnx_function_end") && equation->input_count == equation->output_count + 1;
}

static void find_last_uses(Outliner *outliner, const Jaxpr *jaxpr) {
  outliner->last_uses = (Map){0};
  for (size_t i = 0; i < jaxpr->equation_count; i++) {
    const Equation *equation = jaxpr->equations[i];
    for (uint32_t k = 0; k < equation->input_count; k++) {
      *map_slot_pointer(outliner->context, &outliner->last_uses, equation->inputs[k]) = (void *)(uintptr_t)(i + 1);
    }
  }
  for (uint32_t i = 0; i < jaxpr->output_count; i++) {
    *map_slot_pointer(outliner->context, &outliner->last_uses, jaxpr->outputs[i]) = (void *)(uintptr_t)SIZE_MAX;
  }
}

/* A begin whose function was left by an exception has no end; what it encloses counts for the function around it. */
static bool find_partners(Outliner *outliner, const Jaxpr *jaxpr) {
  ARRAY(size_t) open = {0};
  bool any = false;
  outliner->partners = NULL;
  for (size_t i = 0; i < jaxpr->equation_count; i++) {
    const Equation *equation = jaxpr->equations[i];
    if (is_begin(equation) && equation->output_count == 1) array_push(outliner->context, &open, i);
    if (!is_end(equation)) continue;
    for (size_t depth = open.count; depth--;) {
      if (jaxpr->equations[open.items[depth]]->outputs[0] != equation->inputs[0]) continue;
      if (!any) outliner->partners = arena_new_array(&outliner->context->arena, jaxpr->equation_count, size_t);
      outliner->partners[open.items[depth]] = i;
      open.count = depth;
      any = true;
      break;
    }
  }
  return any;
}

static bool is_read_behind(const Outliner *outliner, const Var *var, size_t end) {
  return var && (size_t)(uintptr_t)map_get_pointer(&outliner->last_uses, var) > end + 1;
}

static Var *inside(Outliner *outliner, Region *region, Var *var) {
  void **slot = map_slot_pointer(outliner->context, &region->renamed, var);
  if (!*slot) *slot = program_var(outliner->program, var->type);
  return *slot;
}

/* The variable as the region's equations read it; one from outside becomes an input. */
static Var *read_inside(Outliner *outliner, Region *region, Var *var) {
  if (var->literal) return var;
  Var *known = map_get_pointer(&region->renamed, var);
  if (known || map_get_pointer(&region->defined, var)) return known ? known : var;
  known = inside(outliner, region, var);
  array_push(outliner->context, &region->outside, var);
  array_push(outliner->context, &region->inputs, known);
  return known;
}

static void add_output(Outliner *outliner, Region *region, Var *result, Var *output) {
  array_push(outliner->context, &region->results, result);
  array_push(outliner->context, &region->outputs, output);
}

/* What is read behind the function keeps its variable there; inside another takes its place. */
static void define_outputs(Outliner *outliner, Region *region, size_t end) {
  for (size_t i = 0; i < region->equations.count; i++) {
    Equation *equation = region->equations.items[i];
    for (uint32_t k = 0; k < equation->output_count; k++) {
      Var *var = equation->outputs[k];
      if (!var) continue;
      *map_slot_pointer(outliner->context, &region->defined, var) = var;
      if (!is_read_behind(outliner, var, end)) continue;
      equation->outputs[k] = inside(outliner, region, var);
      array_push(outliner->context, &region->escaping, var);
    }
  }
}

/* The begin lists the arguments, which gives the inputs their order; one that nothing reads is none. */
static void define_inputs(Outliner *outliner, Region *region, const Equation *begin, const Equation *end) {
  Map read = {0};
  for (size_t i = 0; i < region->equations.count; i++) {
    const Equation *equation = region->equations.items[i];
    for (uint32_t k = 0; k < equation->input_count; k++) {
      *map_slot_pointer(outliner->context, &read, equation->inputs[k]) = region;
    }
  }
  for (uint32_t i = 1; i < end->input_count; i++) {
    *map_slot_pointer(outliner->context, &read, end->inputs[i]) = region;
  }
  const Param *names = param_find(begin, "inputs");
  bool named = names && names->kind == PARAM_LIST && names->list.count == begin->input_count;
  for (uint32_t i = 0; i < begin->input_count; i++) {
    if (!map_get_pointer(&read, begin->inputs[i])) continue;
    read_inside(outliner, region, begin->inputs[i]);
    void **slot = map_slot_pointer(outliner->context, &region->names, begin->inputs[i]);
    if (named && !*slot) *slot = &names->list.items[i];
  }
  for (size_t i = 0; i < region->equations.count; i++) {
    Equation *equation = region->equations.items[i];
    for (uint32_t k = 0; k < equation->input_count; k++) {
      equation->inputs[k] = read_inside(outliner, region, equation->inputs[k]);
    }
  }
}

static void link_again(Jaxpr *jaxpr) {
  for (size_t i = 0; i < jaxpr->equation_count; i++) {
    const Equation *equation = jaxpr->equations[i];
    for (uint32_t k = 0; k < equation->input_count + equation->output_count; k++) {
      Var *var = k < equation->input_count ? equation->inputs[k] : equation->outputs[k - equation->input_count];
      if (!var || var->literal) continue;
      var->definition = NULL;
      var->user = NULL;
      var->use_count = 0;
    }
  }
  for (uint32_t i = 0; i < jaxpr->output_count; i++) {
    if (!jaxpr->outputs[i]->literal) jaxpr->outputs[i]->use_count = 0;
  }
  jaxpr_link(jaxpr);
}

/* One name for each input; None where the function has none for it. */
static Param input_names(Outliner *outliner, const Region *region) {
  Param names = {.kind = PARAM_LIST, .name = str_intern(outliner->context, "inputs")};
  names.list.count = region->outside.count;
  names.list.items = arena_new_array(&outliner->context->arena, names.list.count, Param);
  for (size_t i = 0; i < names.list.count; i++) {
    const Param *name = map_get_pointer(&region->names, region->outside.items[i]);
    if (name) names.list.items[i] = *name;
  }
  return names;
}

static Equation *function_equation(Outliner *outliner, const Region *region, const Equation *begin) {
  Arena *arena = &outliner->context->arena;
  Jaxpr *jaxpr = arena_new(arena, Jaxpr);
  *jaxpr = (Jaxpr){.input_count = (uint32_t)region->inputs.count,
                   .inputs = region->inputs.items,
                   .output_count = (uint32_t)region->outputs.count,
                   .outputs = region->outputs.items,
                   .equations = region->equations.items,
                   .equation_count = region->equations.count};
  link_again(jaxpr);
  Equation *equation = arena_new(arena, Equation);
  *equation = (Equation){.primitive = str_intern(outliner->context, "onnx_function"),
                         .input_count = (uint32_t)region->outside.count,
                         .inputs = region->outside.items,
                         .output_count = (uint32_t)region->results.count,
                         .outputs = region->results.items,
                         .param_count = begin->param_count + 1,
                         .trace = begin->trace};
  equation->params = arena_new_array(arena, equation->param_count, Param);
  for (uint32_t p = 0; p < begin->param_count; p++) {
    const Param *param = &begin->params[p];
    equation->params[p] = strcmp(param->name, "inputs") == 0 ? input_names(outliner, region) : *param;
  }
  Str name = str_intern(outliner->context, "jaxpr");
  equation->params[begin->param_count] = (Param){.kind = PARAM_JAXPR, .name = name, .jaxpr = jaxpr};
  for (size_t i = 0; i < jaxpr->equation_count; i++) equation->has_effects |= jaxpr->equations[i]->has_effects;
  return equation;
}

/* Without a reader there is nothing to call the function for. */
static bool is_needed(const Outliner *outliner, const Region *region, const Equation *end, size_t to) {
  for (uint32_t i = 0; i < end->output_count; i++) {
    if (is_read_behind(outliner, end->outputs[i], to)) return true;
  }
  for (size_t i = 0; i < region->equations.count; i++) {
    const Equation *equation = region->equations.items[i];
    for (uint32_t k = 0; k < equation->output_count; k++) {
      if (is_read_behind(outliner, equation->outputs[k], to)) return true;
    }
  }
  return false;
}

static void outline_range(Outliner *outliner, size_t from, size_t to, EquationList *list);

static void outline_region(Outliner *outliner, size_t from, size_t to, EquationList *list) {
  Equation *begin = outliner->jaxpr->equations[from], *end = outliner->jaxpr->equations[to];
  Region region = {0};
  outline_range(outliner, from + 1, to, &region.equations);
  if (!is_needed(outliner, &region, end, to)) {
    for (size_t i = 0; i < region.equations.count; i++) {
      array_push(outliner->context, list, region.equations.items[i]);
    }
    return;
  }
  define_outputs(outliner, &region, to);
  define_inputs(outliner, &region, begin, end);
  for (uint32_t i = 0; i < end->output_count; i++) {
    if (!is_read_behind(outliner, end->outputs[i], to)) continue;
    add_output(outliner, &region, end->outputs[i], read_inside(outliner, &region, end->inputs[i + 1]));
  }
  for (size_t i = 0; i < region.escaping.count; i++) {
    Var *var = region.escaping.items[i];
    add_output(outliner, &region, var, inside(outliner, &region, var));
  }
  array_push(outliner->context, list, function_equation(outliner, &region, begin));
}

static void outline_range(Outliner *outliner, size_t from, size_t to, EquationList *list) {
  for (size_t i = from; i < to; i++) {
    if (outliner->partners[i]) {
      outline_region(outliner, i, outliner->partners[i], list);
      i = outliner->partners[i];
    } else {
      array_push(outliner->context, list, outliner->jaxpr->equations[i]);
    }
  }
}

static void outline_jaxpr(Outliner *outliner, Jaxpr *jaxpr);

static void outline_param(Outliner *outliner, const Param *param) {
  if (param->kind == PARAM_JAXPR) outline_jaxpr(outliner, param->jaxpr);
  if (param->kind != PARAM_LIST && param->kind != PARAM_RECORD) return;
  for (size_t i = 0; i < param->list.count; i++) outline_param(outliner, &param->list.items[i]);
}

static void outline_jaxpr(Outliner *outliner, Jaxpr *jaxpr) {
  void **slot = map_slot_pointer(outliner->context, &outliner->visited, jaxpr);
  if (*slot) return;
  *slot = jaxpr;
  for (size_t i = 0; i < jaxpr->equation_count; i++) {
    const Equation *equation = jaxpr->equations[i];
    for (uint32_t p = 0; p < equation->param_count; p++) outline_param(outliner, &equation->params[p]);
  }
  if (!find_partners(outliner, jaxpr)) return;
  find_last_uses(outliner, jaxpr);
  outliner->jaxpr = jaxpr;
  EquationList list = {0};
  outline_range(outliner, 0, jaxpr->equation_count, &list);
  jaxpr->equations = list.items;
  jaxpr->equation_count = list.count;
  link_again(jaxpr);
}

void program_outline_functions(Program *program) {
  Outliner outliner = {.program = program, .context = program->context};
  outline_jaxpr(&outliner, program->main);
}
