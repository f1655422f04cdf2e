/* Building programs and reading parameters. */
#include "program/program.h"

#include <string.h>
#include <strings.h>

#include "types/numbers.h"

Program *program_new(Context *context, Provenance *provenance) {
  Program *program = arena_new(&context->arena, Program);
  program->context = context;
  program->provenance = provenance;
  return program;
}

Var *program_var(Program *program, Type type) {
  Var *var = arena_new(&program->context->arena, Var);
  var->id = program->var_count++;
  var->type = type;
  if (dtype_kind(type.dtype) == KIND_COMPLEX || type.dtype == DTYPE_KEY_WORDS) program->has_complex = true;
  if (type.dtype == DTYPE_KEY) program->has_keys = true;
  return var;
}

void jaxpr_link(Jaxpr *jaxpr) {
  for (size_t i = 0; i < jaxpr->equation_count; i++) {
    const Equation *equation = jaxpr->equations[i];
    for (uint32_t k = 0; k < equation->output_count; k++) {
      if (equation->outputs[k]) equation->outputs[k]->definition = equation; /* NULL: nobody reads it */
    }
    for (uint32_t k = 0; k < equation->input_count; k++) {
      Var *var = equation->inputs[k];
      if (!var->user) var->user = equation;
      var->use_count++;
    }
  }
  for (uint32_t i = 0; i < jaxpr->output_count; i++) jaxpr->outputs[i]->use_count++;
}

static const Param *find(const Param *items, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++) {
    if (items[i].name && strcmp(items[i].name, name) == 0) return &items[i];
  }
  return NULL;
}

const Param *param_find(const Equation *equation, const char *name) {
  return find(equation->params, equation->param_count, name);
}

const Param *param_field(const Param *record, const char *name) {
  if (record->kind != PARAM_RECORD) return NULL;
  return find(record->list.items, record->list.count, name);
}

const Param *param_get(Context *context, const Equation *equation, const char *name) {
  const Param *param = param_find(equation, name);
  if (!param) {
    fail(context, ERROR_UNSUPPORTED, "%s has no parameter '%s'; this version of JAX is not supported",
         equation->primitive, name);
  }
  return param;
}

static bool as_int(const Param *param, int64_t *integer) {
  if (param->kind == PARAM_INT || param->kind == PARAM_BOOL || param->kind == PARAM_ENUM) {
    *integer = param->integer;
    return true;
  }
  /* NumPy's integers are arrays of one element. */
  if (param->kind != PARAM_TENSOR || param->tensor->rank != 0 || !dtype_is_integer(param->tensor->dtype)) return false;
  *integer = number_decode_int(param->tensor->dtype, param->tensor->data);
  return true;
}

int64_t param_int(Context *context, const Equation *equation, const char *name) {
  int64_t integer;
  if (!as_int(param_get(context, equation, name), &integer)) {
    fail(context, ERROR_UNSUPPORTED, "%s: parameter '%s' is not an integer", equation->primitive, name);
  }
  return integer;
}

int64_t param_int_or(const Equation *equation, const char *name, int64_t otherwise) {
  const Param *param = param_find(equation, name);
  int64_t integer;
  return param && as_int(param, &integer) ? integer : otherwise;
}

bool param_bool_or(const Equation *equation, const char *name, bool otherwise) {
  return param_int_or(equation, name, otherwise) != 0;
}

Jaxpr *param_jaxpr(Context *context, const Equation *equation, const char *name) {
  const Param *param = param_get(context, equation, name);
  if (param->kind != PARAM_JAXPR) {
    fail(context, ERROR_UNSUPPORTED, "%s: parameter '%s' is not a jaxpr", equation->primitive, name);
  }
  return param->jaxpr;
}

const int64_t *param_list_ints(Context *context, const Param *list, size_t *count) {
  if (list->kind != PARAM_LIST) {
    fail(context, ERROR_UNSUPPORTED, "parameter '%s' is not a list of integers", list->name ? list->name : "?");
  }
  int64_t *values = arena_new_array(&context->arena, list->list.count, int64_t);
  for (size_t i = 0; i < list->list.count; i++) {
    if (!as_int(&list->list.items[i], &values[i])) {
      fail(context, ERROR_UNSUPPORTED, "parameter '%s' contains something other than constant integers",
           list->name ? list->name : "?");
    }
  }
  *count = list->list.count;
  return values;
}

const int64_t *param_ints(Context *context, const Equation *equation, const char *name, size_t *count) {
  return param_list_ints(context, param_get(context, equation, name), count);
}

const Dim *param_dims(Context *context, const Param *list, size_t *count) {
  if (list->kind != PARAM_LIST) {
    fail(context, ERROR_UNSUPPORTED, "parameter '%s' is not a list of dimensions", list->name ? list->name : "?");
  }
  Dim *dims = arena_new_array(&context->arena, list->list.count, Dim);
  for (size_t i = 0; i < list->list.count; i++) {
    const Param *item = &list->list.items[i];
    int64_t integer;
    if (item->kind == PARAM_DIM) dims[i] = item->dim;
    else if (as_int(item, &integer)) dims[i] = dim_of(integer);
    else
      fail(context, ERROR_UNSUPPORTED, "parameter '%s' contains something other than dimensions",
           list->name ? list->name : "?");
  }
  *count = list->list.count;
  return dims;
}

bool param_is(const Param *param, const char *name) {
  if (!param) return false;
  if (param->kind == PARAM_STRING) return strcasecmp(param->text, name) == 0;
  if (param->kind == PARAM_ENUM) return strcasecmp(param->text2, name) == 0;
  return false;
}

void program_set_frames(Program *program, Frame *root, Frame *const *entries, size_t count) {
  Provenance *provenance = program->provenance;
  provenance->definition = root;
  program->root = root ? trace_intern(provenance, root, NULL) : NULL;
  provenance->entry_frames = entries;
  provenance->entry_count = count;
}
