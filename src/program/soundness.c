/* What JAX makes sure of when it traces, checked on a program that was read from a text: axes are axes, lists about the
 * axes of an array are as long as it has axes, calls are not inlined into more equations than a model can hold.
 * Lowering relies on it. */
#include <inttypes.h>
#include <string.h>

#include "program/program.h"

typedef enum Rule {
  ONE_AXIS,  /* an integer */
  SOME_AXES, /* each once */
  ALL_AXES,  /* each once, in any order */
  PER_AXIS,  /* a list of that length, or None */
  WITHIN,    /* the same, of numbers up to the sizes */
  SAME_RANK, /* no parameter: the operand has as many axes as the first */
  MATRICES,  /* no parameter: the first is matrices, all others are matrices or vectors of the same batch */
  COMPLEX,   /* no parameter: the operand's numbers are complex */
} Rule;

/* Inputs by their number. */
typedef enum Operand { OF_INPUT, OF_SECOND, OF_THIRD, OF_OUTPUT } Operand;

typedef struct Row {
  const char *primitive; /* "cum*": all that begin so */
  const char *parameter, *field;
  Rule rule;
  Operand operand;
} Row;

static const Row rows[] = {
    {"reduce_max", "axes", NULL, SOME_AXES, OF_INPUT},
    {"reduce_min", "axes", NULL, SOME_AXES, OF_INPUT},
    {"reduce_sum", "axes", NULL, SOME_AXES, OF_INPUT},
    {"reduce_prod", "axes", NULL, SOME_AXES, OF_INPUT},
    {"reduce_and", "axes", NULL, SOME_AXES, OF_INPUT},
    {"reduce_or", "axes", NULL, SOME_AXES, OF_INPUT},
    {"reduce_xor", "axes", NULL, SOME_AXES, OF_INPUT},
    {"reduce", "dimensions", NULL, SOME_AXES, OF_INPUT},
    {"argmax", "axes", NULL, SOME_AXES, OF_INPUT},
    {"argmin", "axes", NULL, SOME_AXES, OF_INPUT},
    {"cum*", "axis", NULL, ONE_AXIS, OF_INPUT},
    {"transpose", "permutation", NULL, ALL_AXES, OF_INPUT},
    {"squeeze", "dimensions", NULL, SOME_AXES, OF_INPUT},
    {"expand_dims", "dimensions", NULL, SOME_AXES, OF_OUTPUT},
    {"rev", "dimensions", NULL, SOME_AXES, OF_INPUT},
    {"concatenate", "dimension", NULL, ONE_AXIS, OF_INPUT},
    {"stack", "axis", NULL, ONE_AXIS, OF_OUTPUT},
    {"unstack", "axis", NULL, ONE_AXIS, OF_INPUT},
    {"split", "axis", NULL, ONE_AXIS, OF_INPUT},
    {"sort", "dimension", NULL, ONE_AXIS, OF_INPUT},
    {"top_k", "axis", NULL, ONE_AXIS, OF_INPUT},
    {"iota", "dimension", NULL, ONE_AXIS, OF_OUTPUT},
    {"iota", "shape", NULL, PER_AXIS, OF_OUTPUT},
    {"reshape", "new_sizes", NULL, PER_AXIS, OF_OUTPUT},
    {"broadcast_in_dim", "shape", NULL, PER_AXIS, OF_OUTPUT},
    {"broadcast_in_dim", "broadcast_dimensions", NULL, PER_AXIS, OF_INPUT},
    {"broadcast_in_dim", "broadcast_dimensions", NULL, SOME_AXES, OF_OUTPUT},
    {"slice", "start_indices", NULL, PER_AXIS, OF_INPUT},
    {"slice", "limit_indices", NULL, WITHIN, OF_INPUT},
    {"slice", "strides", NULL, PER_AXIS, OF_INPUT},
    {"slice", NULL, NULL, SAME_RANK, OF_OUTPUT},
    {"dynamic_slice", "slice_sizes", NULL, WITHIN, OF_INPUT},
    {"dynamic_slice", NULL, NULL, SAME_RANK, OF_OUTPUT},
    {"dynamic_update_slice", NULL, NULL, SAME_RANK, OF_SECOND},
    {"dynamic_update_slice", NULL, NULL, SAME_RANK, OF_OUTPUT},
    {"gather", "slice_sizes", NULL, WITHIN, OF_INPUT},
    {"gather", "dimension_numbers", "offset_dims", SOME_AXES, OF_OUTPUT},
    {"gather", "dimension_numbers", "collapsed_slice_dims", SOME_AXES, OF_INPUT},
    {"gather", "dimension_numbers", "start_index_map", SOME_AXES, OF_INPUT},
    {"gather", "dimension_numbers", "operand_batching_dims", SOME_AXES, OF_INPUT},
    {"gather", "dimension_numbers", "start_indices_batching_dims", SOME_AXES, OF_SECOND},
    {"scatter*", "dimension_numbers", "update_window_dims", SOME_AXES, OF_THIRD},
    {"scatter*", "dimension_numbers", "inserted_window_dims", SOME_AXES, OF_INPUT},
    {"scatter*", "dimension_numbers", "scatter_dims_to_operand_dims", SOME_AXES, OF_INPUT},
    {"scatter*", "dimension_numbers", "operand_batching_dims", SOME_AXES, OF_INPUT},
    {"scatter*", "dimension_numbers", "scatter_indices_batching_dims", SOME_AXES, OF_SECOND},
    {"scatter*", NULL, NULL, SAME_RANK, OF_OUTPUT},
    {"cum*", NULL, NULL, SAME_RANK, OF_OUTPUT},
    {"rev", NULL, NULL, SAME_RANK, OF_OUTPUT},
    {"sort", NULL, NULL, SAME_RANK, OF_OUTPUT},
    {"top_k", NULL, NULL, SAME_RANK, OF_OUTPUT},
    {"concatenate", NULL, NULL, SAME_RANK, OF_OUTPUT},
    {"split", NULL, NULL, SAME_RANK, OF_OUTPUT},
    {"pad", NULL, NULL, SAME_RANK, OF_OUTPUT},
    {"tile", NULL, NULL, SAME_RANK, OF_OUTPUT},
    {"pad", "padding_config", NULL, PER_AXIS, OF_INPUT},
    {"tile", "reps", NULL, PER_AXIS, OF_INPUT},
    {"complex", NULL, NULL, COMPLEX, OF_OUTPUT},
    {"conj", NULL, NULL, COMPLEX, OF_OUTPUT},
    {"real", NULL, NULL, COMPLEX, OF_INPUT},
    {"imag", NULL, NULL, COMPLEX, OF_INPUT},
    {"eig", NULL, NULL, MATRICES, OF_INPUT},
    {"schur", NULL, NULL, MATRICES, OF_INPUT},
    {"eigh", NULL, NULL, MATRICES, OF_INPUT},
    {"hessenberg", NULL, NULL, MATRICES, OF_INPUT},
    {"tridiagonal", NULL, NULL, MATRICES, OF_INPUT},
    {"cholesky", NULL, NULL, MATRICES, OF_INPUT},
    {"cholesky_update", NULL, NULL, MATRICES, OF_INPUT},
    {"geqrf", NULL, NULL, MATRICES, OF_INPUT},
    {"householder_product", NULL, NULL, MATRICES, OF_INPUT},
    {"ormqr", NULL, NULL, MATRICES, OF_INPUT},
    {"lu", NULL, NULL, MATRICES, OF_INPUT},
    {"geqp3", NULL, NULL, MATRICES, OF_INPUT},
    {"triangular_solve", NULL, NULL, MATRICES, OF_INPUT},
    {"svd", NULL, NULL, MATRICES, OF_INPUT},
    {"conv_general_dilated", "dimension_numbers", "lhs_spec", ALL_AXES, OF_INPUT},
    {"conv_general_dilated", "dimension_numbers", "rhs_spec", ALL_AXES, OF_SECOND},
    {"conv_general_dilated", "dimension_numbers", "out_spec", ALL_AXES, OF_OUTPUT},
    {"reduce_window*", "window_dimensions", NULL, PER_AXIS, OF_INPUT},
    {"reduce_window*", "window_dimensions", NULL, PER_AXIS, OF_OUTPUT},
};

typedef struct Check {
  Context *context;
  Map sizes; /* Jaxpr -> its equations, calls inlined, and one */
} Check;

static _Noreturn void refuse(Check *check, const Equation *equation, const char *parameter, const char *why) {
  fail(check->context, ERROR_FORMAT, "%s: parameter '%s' %s; JAX does not produce such a program", equation->primitive,
       parameter, why);
}

static bool is_about(const Row *row, const char *primitive) {
  size_t length = strlen(row->primitive);
  if (row->primitive[length - 1] == '*') return strncmp(row->primitive, primitive, length - 1) == 0;
  return strcmp(row->primitive, primitive) == 0;
}

static const Var *operand_of(const Equation *equation, Operand operand) {
  if (operand == OF_OUTPUT) return equation->output_count ? equation->outputs[0] : NULL;
  uint32_t index = (uint32_t)operand;
  return index < equation->input_count ? equation->inputs[index] : NULL;
}

static void check_axes(Check *check, const Equation *equation, const Row *row, const Param *param, uint32_t rank) {
  size_t count;
  const int64_t *axes = param_list_ints(check->context, param, &count);
  bool seen[MAX_RANK] = {false};
  if (row->rule == ALL_AXES && count != rank)
    refuse(check, equation, row->parameter, "does not have one entry per dimension");
  for (size_t i = 0; i < count; i++) {
    bool fits = axes[i] >= 0 && axes[i] < (int64_t)rank && !seen[axes[i]];
    if (!fits) refuse(check, equation, row->parameter, "has an axis that is out of range or repeated");
    seen[axes[i]] = true;
  }
}

static void check_within(Check *check, const Equation *equation, const Row *row, const Param *param, Type type) {
  if (param->kind == PARAM_NONE) return;
  size_t count;
  const Dim *sizes = param_dims(check->context, param, &count);
  if (count != type.rank) refuse(check, equation, row->parameter, "does not have one entry per dimension");
  for (size_t i = 0; i < count; i++) {
    bool known = dim_is_constant(sizes[i]) && dim_is_constant(type.dims[i]);
    bool fits = !known || (sizes[i].constant >= 0 && sizes[i].constant <= type.dims[i].constant);
    if (!fits) refuse(check, equation, row->parameter, "exceeds the shape");
  }
}

static void check_rank(Check *check, const Equation *equation, const Var *operand) {
  if (!equation->input_count || equation->inputs[0]->type.rank == operand->type.rank) return;
  fail(check->context, ERROR_FORMAT, "%s: the ranks differ; JAX does not produce such a program", equation->primitive);
}

static bool is_matrix_or_vector(const Var *var, uint32_t rank) {
  return !var || var->type.rank == rank || var->type.rank + 1 == rank;
}

static void check_matrices(Check *check, const Equation *equation, uint32_t rank) {
  bool fits = rank >= 2;
  for (uint32_t i = 0; i < equation->input_count; i++) fits = fits && is_matrix_or_vector(equation->inputs[i], rank);
  for (uint32_t i = 0; i < equation->output_count; i++) fits = fits && is_matrix_or_vector(equation->outputs[i], rank);
  if (!fits)
    fail(check->context, ERROR_FORMAT, "%s: the operands are not matrices; JAX does not produce such a program",
         equation->primitive);
}

static void check_complex(Check *check, const Equation *equation, DType dtype) {
  if (dtype_kind(dtype) == KIND_COMPLEX) return;
  fail(check->context, ERROR_FORMAT, "%s: the numbers are not complex; JAX does not produce such a program",
       equation->primitive);
}

static void check_row(Check *check, const Equation *equation, const Row *row) {
  const Var *operand = operand_of(equation, row->operand);
  if (!operand) return; /* lowering asks for it, or does not */
  if (row->rule == SAME_RANK) {
    check_rank(check, equation, operand);
    return;
  }
  if (row->rule == MATRICES) {
    check_matrices(check, equation, operand->type.rank);
    return;
  }
  if (row->rule == COMPLEX) {
    check_complex(check, equation, operand->type.dtype);
    return;
  }
  const Param *param = param_find(equation, row->parameter);
  if (param && row->field) param = param_field(param, row->field);
  if (!param) return;
  uint32_t rank = operand->type.rank;
  if (row->rule == ONE_AXIS) {
    int64_t axis = param_int(check->context, equation, row->parameter);
    if (axis < 0 || axis >= (int64_t)rank) refuse(check, equation, row->parameter, "is an axis that is out of range");
  } else if (row->rule == PER_AXIS) {
    bool fits = param->kind == PARAM_NONE || (param->kind == PARAM_LIST && param->list.count == rank);
    if (!fits) refuse(check, equation, row->parameter, "does not have one entry per dimension");
  } else if (row->rule == WITHIN) {
    check_within(check, equation, row, param, operand->type);
  } else {
    check_axes(check, equation, row, param, rank);
  }
}

/* ---- calls ---- */

enum { MOST_EQUATIONS = 1 << 24 };

/* Those that hand their inputs from `first` on to the jaxpr of a parameter, or to each of its list. */
static const struct Call {
  const char *primitive, *parameter;
  uint32_t first;
} calls[] = {
    {"jit", "jaxpr", 0},
    {"pjit", "jaxpr", 0},
    {"closed_call", "call_jaxpr", 0},
    {"remat2", "jaxpr", 0},
    {"checkpoint", "jaxpr", 0},
    {"custom_jvp_call", "call_jaxpr", 0},
    {"custom_vjp_call", "call_jaxpr", 0},
    {"cond", "branches", 1},
};

static void check_arguments(Check *check, const Equation *equation, uint32_t first, const Param *param) {
  if (param->kind != PARAM_JAXPR) return;
  const Jaxpr *jaxpr = param->jaxpr;
  for (uint32_t i = 0; i < jaxpr->const_count; i++) {
    if (!jaxpr->consts[i]->literal) return; /* bound before the others */
  }
  bool fits = jaxpr->input_count == equation->input_count - first && jaxpr->output_count == equation->output_count;
  for (uint32_t i = 0; fits && i < jaxpr->input_count; i++) {
    fits = jaxpr->inputs[i]->type.rank == equation->inputs[first + i]->type.rank;
  }
  for (uint32_t i = 0; fits && i < jaxpr->output_count; i++) {
    fits = !equation->outputs[i] || jaxpr->outputs[i]->type.rank == equation->outputs[i]->type.rank;
  }
  if (!fits) refuse(check, equation, param->name ? param->name : "branches", "does not accept its arguments");
}

static void check_call(Check *check, const Equation *equation) {
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    const struct Call *call = &calls[i];
    const Param *param = param_find(equation, call->parameter);
    if (!param || equation->input_count < call->first || strcmp(call->primitive, equation->primitive) != 0) continue;
    check_arguments(check, equation, call->first, param);
    if (param->kind != PARAM_LIST) continue;
    for (size_t k = 0; k < param->list.count; k++) check_arguments(check, equation, call->first, &param->list.items[k]);
  }
}

static size_t size_of_jaxpr(Check *check, const Jaxpr *jaxpr);

static size_t size_of_param(Check *check, const Param *param) {
  if (param->kind == PARAM_JAXPR) return size_of_jaxpr(check, param->jaxpr);
  size_t size = 0;
  if (param->kind != PARAM_LIST && param->kind != PARAM_RECORD) return size;
  for (size_t i = 0; i < param->list.count; i++) size += size_of_param(check, &param->list.items[i]);
  return size;
}

/* An array of keys has an axis more for their words, which some parameters count. */
static bool is_of_keys(const Var *var) {
  return var && (var->type.dtype == DTYPE_KEY || var->type.dtype == DTYPE_KEY_WORDS);
}

static bool has_keys(const Equation *equation) {
  bool found = false;
  for (uint32_t i = 0; i < equation->input_count; i++) found = found || is_of_keys(equation->inputs[i]);
  for (uint32_t i = 0; i < equation->output_count; i++) found = found || is_of_keys(equation->outputs[i]);
  return found;
}

static size_t size_of_equation(Check *check, const Equation *equation) {
  size_t size = 1;
  bool is_plain = !has_keys(equation);
  if (is_plain) check_call(check, equation);
  for (size_t i = 0; is_plain && i < sizeof rows / sizeof *rows; i++) {
    if (is_about(&rows[i], equation->primitive)) check_row(check, equation, &rows[i]);
  }
  for (uint32_t p = 0; p < equation->param_count; p++) size += size_of_param(check, &equation->params[p]);
  return size;
}

/* A text defines a jaxpr before it is called, so that this ends. */
static size_t size_of_jaxpr(Check *check, const Jaxpr *jaxpr) {
  void *known = map_get_pointer(&check->sizes, jaxpr);
  if (known) return (size_t)(uintptr_t)known - 1;
  size_t size = 0;
  for (size_t i = 0; i < jaxpr->equation_count; i++) {
    size += size_of_equation(check, jaxpr->equations[i]);
    if (size > MOST_EQUATIONS) {
      fail(check->context, ERROR_FORMAT, "the program has more than %d equations once its calls are inlined",
           MOST_EQUATIONS);
    }
  }
  *map_slot_pointer(check->context, &check->sizes, jaxpr) = (void *)(uintptr_t)(size + 1);
  return size;
}

void program_require_sound(const Program *program) {
  size_of_jaxpr(&(Check){.context = program->context}, program->main);
}
