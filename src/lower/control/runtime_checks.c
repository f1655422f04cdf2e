/* runtime_check: values that are only good at one index (legalize/raised_errors.c). Elsewhere the program raises an
 * error; the model gives NaN, or the check is left out, as the user wants it. */
#include <math.h>

#include "lower/elementwise/arithmetic.h"
#include "lower/lower.h"

#define LEFT_OUT "it raises an error while JAX runs, and checks are to be dropped"
#define ON_INTEGERS "it raises an error while JAX runs, and the values that it guards have no NaN"

static void lower_runtime_check(Lowering *l) {
  uint32_t count = l->equation->output_count;
  bool marks = false;
  require(l->context, l->equation->input_count == count + 1);
  for (uint32_t i = 0; i < count; i++) marks = marks || dtype_is_float(output_type(l, i).dtype);
  if (l->options->drop_checks || !marks) notice(l, l->options->drop_checks ? LEFT_OUT : ON_INTEGERS);
  marks = marks && !l->options->drop_checks;
  Value *index = input(l, 0), *passes = NULL;
  if (marks)
    passes = EMIT_MATH(l, OP_Equal, index, integer_like(l, index, param_int(l->context, l->equation, "passes_at")));
  for (uint32_t i = 0; i < count; i++) {
    Value *value = input(l, i + 1);
    bool marked = marks && dtype_is_float(value->type.dtype);
    bind(l, i, marked ? EMIT_WHERE(l, passes, value, number_like(l, value, NAN)) : value);
  }
}

/* clang-format off */
const Plugin runtime_check_plugins[] = {
    PLUGIN("runtime_check", lower_runtime_check),
    {0},
};
/* clang-format on */
