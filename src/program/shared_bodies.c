/* Modules of programs that are called more than once.
 *
 * JAX traces a function once for all arguments of one structure: `jit` of a function of a block, called for each block
 * of a model, is one jaxpr whose equations know the modules of the first block. Which block a call was for is told by
 * the weights that are given to it: where the first call was given blocks.0.proj.kernel and this one
 * blocks.1.proj.kernel, blocks.1 was running wherever the jaxpr says blocks.0. Such a call gets a copy of the jaxpr. */
#include <string.h>

#include "program/program.h"

/* What is called `from` in a jaxpr is `to` in this call; no path is empty. */
typedef struct Renaming {
  Str from, to;
} Renaming;

typedef struct Renamings {
  ARRAY(Renaming) all;
  Map by_from; /* to `to` */
} Renamings;

typedef struct Search {
  Program *program;
  Map first_calls;               /* jaxpr -> the names of the weights that its inputs were, NULL for anything else */
  Map with_parts;                /* jaxpr -> YES or NO */
  Map copies;                    /* (jaxpr, renamings as text) -> jaxpr */
  Map weights;                   /* var -> name of the weight that it is */
  Map by_path;                   /* path -> Module */
  ARRAY(const Module *) modules; /* of the program, and those that were found */
} Search;

enum { NO = 1, YES }; /* values of a map */

/* ---- which jaxprs matter ---- */

static bool has_parts(Search *search, const Jaxpr *jaxpr);

static bool param_has_parts(Search *search, const Param *param) {
  if (param->kind == PARAM_JAXPR) return has_parts(search, param->jaxpr);
  if (param->kind != PARAM_LIST && param->kind != PARAM_RECORD) return false;
  for (size_t i = 0; i < param->list.count; i++) {
    if (param_has_parts(search, &param->list.items[i])) return true;
  }
  return false;
}

static bool equation_has_parts(Search *search, const Equation *equation) {
  const Module *module = equation->trace ? equation->trace->module : NULL;
  if (module && module->path && (module->class_name || module->part)) return true;
  for (uint32_t i = 0; i < equation->param_count; i++) {
    if (param_has_parts(search, &equation->params[i])) return true;
  }
  return false;
}

static bool has_parts(Search *search, const Jaxpr *jaxpr) {
  void *known = map_get_pointer(&search->with_parts, jaxpr);
  if (known) return (uintptr_t)known == YES;
  bool found = false;
  for (size_t i = 0; i < jaxpr->equation_count && !found; i++) found = equation_has_parts(search, jaxpr->equations[i]);
  *map_slot_pointer(search->program->context, &search->with_parts, jaxpr) = (void *)(uintptr_t)(found ? YES : NO);
  return found;
}

/* ---- what a call renames ---- */

/* Up to the last dot before `length`; 0: there is none. */
static size_t parent_length(Str path, size_t length) {
  while (length && path[length - 1] != '.') length--;
  return length ? length - 1 : 0;
}

/* blocks.0.proj.kernel and blocks.1.proj.kernel: blocks.0 is blocks.1. False when the names say nothing like that. */
static bool renaming_of(Context *context, Str first, Str now, Renaming *renaming) {
  size_t a = str_length(first), b = str_length(now);
  bool shares = false;
  for (;;) {
    size_t parent_a = parent_length(first, a), parent_b = parent_length(now, b);
    if (!parent_a || !parent_b || a - parent_a != b - parent_b) break;
    if (!same_bytes(first + parent_a, now + parent_b, a - parent_a)) break;
    shares = true;
    a = parent_a;
    b = parent_b;
  }
  *renaming = (Renaming){str_intern_sized(context, first, a), str_intern_sized(context, now, b)};
  return shares && renaming->from != renaming->to;
}

/* The first one counts. */
static void add_renaming(Context *context, Renamings *renamings, Renaming renaming) {
  void **slot = map_slot_pointer(context, &renamings->by_from, renaming.from);
  if (*slot) return;
  *slot = (void *)(uintptr_t)renaming.to;
  array_push(context, &renamings->all, renaming);
}

/* Those of the weights, then those of the call around it. */
static Renamings renamings_of(Search *search, const Jaxpr *jaxpr, const Str *first, const Str *weights,
                              const Renamings *around) {
  Context *context = search->program->context;
  Renamings renamings = {0};
  Renaming renaming;
  for (uint32_t i = 0; i < jaxpr->input_count; i++) {
    Str before = first[i], now = weights[i];
    if (before && now && before != now && renaming_of(context, before, now, &renaming)) {
      add_renaming(context, &renamings, renaming);
    }
  }
  for (size_t i = 0; i < around->all.count; i++) add_renaming(context, &renamings, around->all.items[i]);
  return renamings;
}

static Str renamings_text(Context *context, const Renamings *renamings) {
  Builder text;
  builder_init(&text, context);
  for (size_t i = 0; i < renamings->all.count; i++) {
    builder_format(&text, "%s\t%s\n", renamings->all.items[i].from, renamings->all.items[i].to);
  }
  return str_intern_sized(context, builder_text(&text), text.length);
}

/* ---- modules ---- */

/* The path itself where nothing renames it; the longest beginning counts. */
static Str renamed_path(Context *context, const Renamings *renamings, Str path) {
  for (size_t length = str_length(path); length; length = parent_length(path, length)) {
    Str to = map_get_pointer(&renamings->by_from, str_intern_sized(context, path, length));
    if (to) return str_intern(context, arena_format(&context->arena, "%s%s", to, path + length));
  }
  return path;
}

static void know_module(Search *search, const Module *module) {
  void **slot = map_slot_pointer(search->program->context, &search->by_path, module->path);
  if (*slot) return;
  *slot = (void *)(uintptr_t)module;
  array_push(search->program->context, &search->modules, module);
}

/* The part at another path, which is of the same class; and the parts that hold it, which a reader shows around it. */
static const Module *renamed_part(Search *search, const Renamings *renamings, const Module *part) {
  Context *context = search->program->context;
  Str path = renamed_path(context, renamings, part->path);
  const Module *known = map_get_pointer(&search->by_path, path);
  if (known || path == part->path) return known ? known : part;
  Module *renamed = arena_copy(&context->arena, part, sizeof *part);
  renamed->path = path;
  know_module(search, renamed);
  for (size_t length = parent_length(part->path, str_length(part->path)); length;
       length = parent_length(part->path, length)) {
    const Module *holder = map_get_pointer(&search->by_path, str_intern_sized(context, part->path, length));
    if (holder) renamed_part(search, renamings, holder);
  }
  return renamed;
}

static const Module *renamed_module(Search *search, const Renamings *renamings, const Module *module) {
  if (module->class_name) return renamed_part(search, renamings, module);
  if (!module->part) return module;
  return module_inside(search->program->provenance, renamed_part(search, renamings, module->part), module->scopes);
}

/* ---- copies ---- */

static Var *copied_var(Search *search, Map *copies, Var *var) {
  if (!var) return NULL;
  void **slot = map_slot_pointer(search->program->context, copies, var);
  if (!*slot) {
    Var *copy = *slot = program_var(search->program, var->type);
    copy->form = var->form;
    copy->literal = var->literal;
  }
  return *slot;
}

static Var **copied_vars(Search *search, Map *copies, Var *const *vars, uint32_t count) {
  Var **copied = arena_new_array(&search->program->context->arena, count, Var *);
  for (uint32_t i = 0; i < count; i++) copied[i] = copied_var(search, copies, vars[i]);
  return copied;
}

/* The jaxprs in it are those of the original until visit_params finds others. */
static Param *copied_params(Context *context, const Param *params, size_t count) {
  Param *copied = arena_copy(&context->arena, params, count * sizeof *params);
  for (size_t i = 0; i < count; i++) {
    if (copied[i].kind != PARAM_LIST && copied[i].kind != PARAM_RECORD) continue;
    copied[i].list.items = copied_params(context, params[i].list.items, params[i].list.count);
  }
  return copied;
}

static Equation *copied_equation(Search *search, Map *copies, const Equation *equation, const Renamings *renamings) {
  Equation *copy = arena_copy(&search->program->context->arena, equation, sizeof *equation);
  copy->inputs = copied_vars(search, copies, equation->inputs, equation->input_count);
  copy->outputs = copied_vars(search, copies, equation->outputs, equation->output_count);
  copy->params = copied_params(search->program->context, equation->params, equation->param_count);
  const Module *module = equation->trace ? equation->trace->module : NULL;
  if (module && module->path) {
    copy->trace =
        trace_in_module(search->program->provenance, equation->trace, renamed_module(search, renamings, module));
  }
  return copy;
}

static Jaxpr *copied_jaxpr(Search *search, const Jaxpr *jaxpr, const Renamings *renamings) {
  Context *context = search->program->context;
  Map copies = {0};
  Jaxpr *copy = arena_copy(&context->arena, jaxpr, sizeof *jaxpr);
  copy->consts = copied_vars(search, &copies, jaxpr->consts, jaxpr->const_count);
  copy->inputs = copied_vars(search, &copies, jaxpr->inputs, jaxpr->input_count);
  copy->equations = arena_new_array(&context->arena, jaxpr->equation_count, Equation *);
  for (size_t i = 0; i < jaxpr->equation_count; i++) {
    copy->equations[i] = copied_equation(search, &copies, jaxpr->equations[i], renamings);
  }
  copy->outputs = copied_vars(search, &copies, jaxpr->outputs, jaxpr->output_count);
  map_release(context, &copies);
  jaxpr_link(copy);
  return copy;
}

/* ---- calls, in the order in which they were traced ---- */

static Str weight_of(const Search *search, const Var *var) {
  return var->literal ? var->literal->name : map_get_pointer(&search->weights, var);
}

static void name_weight(Search *search, const Var *var, Str name) {
  if (var && name) *map_slot_pointer(search->program->context, &search->weights, var) = (void *)(uintptr_t)name;
}

static void visit_equations(Search *search, Jaxpr *jaxpr, const Renamings *around);

/* What stands for the jaxpr in this call: it, or a copy. What comes before the jaxpr's own inputs is not given to it,
 * such as the index of `cond`. */
static Jaxpr *visit_call(Search *search, const Equation *equation, Jaxpr *jaxpr, const Renamings *around) {
  Context *context = search->program->context;
  if (!has_parts(search, jaxpr)) return jaxpr;
  Str *weights = arena_new_array(&context->arena, (size_t)jaxpr->input_count + 1, Str);
  for (uint32_t i = jaxpr->input_count, k = equation->input_count; i-- && k--;) {
    weights[i] = weight_of(search, equation->inputs[k]);
  }
  const Str *first = map_get_pointer(&search->first_calls, jaxpr);
  Renamings renamings = {0};
  if (first) {
    renamings = renamings_of(search, jaxpr, first, weights, around);
    if (!renamings.all.count) return jaxpr;
    uint64_t text = (uint64_t)(uintptr_t)renamings_text(context, &renamings);
    void **copy = map_slot(context, &search->copies, (uint64_t)(uintptr_t)jaxpr, text);
    if (*copy) return *copy;
    jaxpr = *copy = copied_jaxpr(search, jaxpr, &renamings);
  }
  *map_slot_pointer(context, &search->first_calls, jaxpr) = weights;
  for (uint32_t i = 0; i < jaxpr->input_count; i++) name_weight(search, jaxpr->inputs[i], weights[i]);
  visit_equations(search, jaxpr, &renamings);
  return jaxpr;
}

static bool visit_params(Search *search, const Equation *equation, Param *params, size_t count,
                         const Renamings *around) {
  bool calls = false;
  for (size_t i = 0; i < count; i++) {
    Param *param = &params[i];
    if (param->kind == PARAM_JAXPR) {
      param->jaxpr = visit_call(search, equation, param->jaxpr, around);
      calls = true;
    } else if (param->kind == PARAM_LIST || param->kind == PARAM_RECORD) {
      calls = visit_params(search, equation, param->list.items, param->list.count, around) || calls;
    }
  }
  return calls;
}

/* A weight that is cast, transposed or cut on the way to a call is still that weight. */
static void visit_equations(Search *search, Jaxpr *jaxpr, const Renamings *around) {
  for (size_t i = 0; i < jaxpr->equation_count; i++) {
    Equation *equation = jaxpr->equations[i];
    bool calls = visit_params(search, equation, equation->params, equation->param_count, around);
    if (!calls && equation->input_count == 1 && equation->output_count == 1) {
      name_weight(search, equation->outputs[0], weight_of(search, equation->inputs[0]));
    }
  }
}

void program_place_shared_bodies(Program *program) {
  Provenance *provenance = program->provenance;
  Search search = {.program = program};
  Renamings none = {0};
  for (size_t i = 0; i < provenance->module_count; i++) know_module(&search, provenance->modules[i]);
  if (!search.modules.count) return;
  visit_equations(&search, program->main, &none);
  provenance->modules = search.modules.items;
  provenance->module_count = search.modules.count;
}
