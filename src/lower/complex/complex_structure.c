/* Moving complex numbers: the real primitives, told of one more axis behind the others. */
#include <math.h>

#include "base/bytes.h"
#include "lower/complex/complex.h"
#include "types/numbers.h"

/* The words of random keys have an axis of their own, too. */
static bool moves_keys(Lowering *l) { return output_type(l, 0).dtype == DTYPE_UINT32; }

static int64_t element_size(Lowering *l) {
  Type type = output_type(l, 0);
  return type.dims[type.rank - 1].constant;
}

/* Lowers the equation, and where the parts of its operand are at hand, the same on each of them: whoever reads the
 * result takes the form that it needs, and the other is dead code. A part that is one number stays it. */
static void lower_moved(Lowering *l, Here here, Equation *equation) {
  Value *operand = input(l, 0);
  lower_as_real(l, here, equation);
  if (operand->tensor || !has_known_parts(l, operand)) return;
  Parts parts = parts_of(l, operand);
  Type before = part_type(input_type(l, 0)), after = part_type(output_type(l, 0));
  const char *primitive = l->equation->primitive;
  if (parts.re->type.rank == before.rank) parts.re = apply_real(l, here, primitive, after, &parts.re, 1);
  if (parts.im->type.rank == before.rank) parts.im = apply_real(l, here, primitive, after, &parts.im, 1);
  Value *result = l->values[l->equation->outputs[0]->id];
  if (result != operand) remember_parts(l, result, parts);
}

static void lower_unedited(Lowering *l) { lower_moved(l, HERE, real_equation(l)); }

static void lower_transpose(Lowering *l) {
  Equation *equation = real_equation(l);
  append_int(l, edit_param(l, equation, "permutation"), input_type(l, 0).rank - 1);
  lower_moved(l, HERE, equation);
}

/* It may transpose first. */
static void lower_reshape(Lowering *l) {
  Equation *equation = real_equation(l);
  const Param *order = param_find(equation, "dimensions");
  if (order && order->kind == PARAM_LIST) {
    append_int(l, edit_param(l, equation, "dimensions"), input_type(l, 0).rank - 1);
  }
  lower_moved(l, HERE, equation);
}

static bool same_constant(const Value *a, const Value *b) {
  return a->tensor && b->tensor && a->tensor->size == b->tensor->size && a->tensor->data && b->tensor->data &&
         same_bytes(a->tensor->data, b->tensor->data, a->tensor->size);
}

/* A constant whose parts are equal, as those of 0 are, is a real one that is spread. */
static void lower_broadcast_in_dim(Lowering *l) {
  Equation *equation = real_equation(l);
  Value *operand = input(l, 0);
  bool scalar = operand->tensor && operand->type.rank == 1;
  Parts parts = scalar ? parts_of(l, operand) : (Parts){NULL, NULL};
  if (scalar && same_constant(parts.re, parts.im)) equation->inputs[0] = real_operand(l, parts.re);
  else append_int(l, edit_param(l, equation, "broadcast_dimensions"), output_type(l, 0).rank - 1);
  lower_moved(l, HERE, equation);
  Value *result = l->values[equation->outputs[0]->id];
  if (scalar && !result->tensor) remember_parts(l, result, parts);
}

static void lower_slice(Lowering *l) {
  Equation *equation = real_equation(l);
  append_int(l, edit_param(l, equation, "start_indices"), 0);
  append_int(l, edit_param(l, equation, "limit_indices"), element_size(l));
  Param *strides = edit_param(l, equation, "strides");
  if (strides->kind == PARAM_LIST) append_int(l, strides, 1);
  lower_moved(l, HERE, equation);
}

/* Starts are operands, one per axis. */
static void lower_dynamic_window(Lowering *l) {
  Equation *equation = real_equation(l);
  equation->inputs[equation->input_count++] = real_operand(l, constant_integer(l, DTYPE_INT32, 0));
  lower_as_real(l, HERE, equation);
}

static void lower_tile(Lowering *l) {
  Equation *equation = real_equation(l);
  append_int(l, edit_param(l, equation, "reps"), 1);
  lower_as_real(l, HERE, equation);
}

/* What stands for windows out of bounds, as a pair: a number given is the real part, and nothing given is NaN. */
static const Tensor *fill_pair(Lowering *l, const Param *given, DType dtype) {
  double parts[2] = {(double)NAN, 0};
  if (given->kind == PARAM_FLOAT) parts[0] = given->real;
  if (given->kind == PARAM_INT || given->kind == PARAM_BOOL) parts[0] = (double)given->integer;
  if (given->kind == PARAM_TENSOR) {
    const Tensor *tensor = given->tensor;
    bool pair = dtype_kind(tensor->dtype) == KIND_COMPLEX;
    DType part = tensor->dtype == DTYPE_COMPLEX64 ? DTYPE_FLOAT32 : pair ? DTYPE_FLOAT64 : tensor->dtype;
    size_t size = dtype_bytes(part, 1);
    rely_on(l, tensor->size == size * (pair ? 2 : 1));
    parts[0] = number_decode(part, tensor->data);
    if (pair) parts[1] = number_decode(part, (const char *)tensor->data + size);
  }
  uint64_t first = number_encode(dtype, parts[0]), second = number_encode(dtype, parts[1]);
  size_t size = dtype_bytes(dtype, 1);
  char data[16];
  copy_bytes(data, &first, size);
  copy_bytes(data + size, &second, size);
  return tensor_new(l, dtype, (int64_t[]){2}, 1, data, 2 * size);
}

static void lower_gather(Lowering *l) {
  Equation *equation = real_equation(l);
  Param *fill = edit_param(l, equation, "fill_value");
  if (!moves_keys(l)) {
    *fill = (Param){.kind = PARAM_TENSOR, .name = fill->name, .tensor = fill_pair(l, fill, output_type(l, 0).dtype)};
  }
  append_int(l, edit_param(l, equation, "slice_sizes"), element_size(l));
  Param *numbers = edit_param(l, equation, "dimension_numbers");
  append_int(l, edit_field(l, numbers, "offset_dims"), output_type(l, 0).rank - 1);
  lower_as_real(l, HERE, equation);
}

/* Padding is one number: where the parts of it differ, they are padded on their own. */
static void lower_pad(Lowering *l) {
  Parts fill = input_parts(l, 1);
  if (same_constant(fill.re, fill.im)) {
    Equation *equation = real_equation(l);
    Param none = {.kind = PARAM_LIST};
    for (int i = 0; i < 3; i++) append_int(l, &none, 0);
    append_item(l, edit_param(l, equation, "padding_config"), none);
    equation->inputs[1] = real_operand(l, fill.re);
    lower_as_real(l, HERE, equation);
    return;
  }
  Type type = part_type(output_type(l, 0)), before = part_type(input_type(l, 0));
  Parts parts = input_parts(l, 0);
  Value *re = APPLY(l, "pad", type, part_array(l, parts.re, before), fill.re);
  Value *im = APPLY(l, "pad", type, part_array(l, parts.im, before), fill.im);
  bind_parts(l, 0, (Parts){re, im});
}

/* Of arrays, the choice has no axis for the parts yet. */
static void lower_select_n(Lowering *l) {
  uint32_t count = l->equation->input_count;
  bool known = !moves_keys(l);
  for (uint32_t i = 1; i < count; i++) known = known && has_known_parts(l, input(l, i));
  Value *which = input(l, 0);
  if (known) {
    Value **re = arena_new_array(&l->context->arena, count, Value *);
    Value **im = arena_new_array(&l->context->arena, count, Value *);
    re[0] = im[0] = which;
    for (uint32_t i = 1; i < count; i++) {
      Parts parts = input_parts(l, i);
      re[i] = parts.re;
      im[i] = parts.im;
    }
    Type type = part_type(output_type(l, 0));
    Value *real = apply_real(l, HERE, "select_n", type, re, count);
    bind_parts(l, 0, (Parts){real, apply_real(l, HERE, "select_n", type, im, count)});
    return;
  }
  Equation *equation = real_equation(l);
  int64_t axis = which->type.rank;
  if (axis) equation->inputs[0] = real_operand(l, unsqueeze_at(l, which, &axis, 1));
  lower_as_real(l, HERE, equation);
}

/* By the real parts first, then by the imaginary ones: every complex operand is two. */
static void lower_sort(Lowering *l) {
  uint32_t count = l->equation->input_count;
  int64_t keys = param_int_or(l->equation, "num_keys", 1), all_keys = 0;
  Equation *equation = real_equation(l);
  equation->inputs = arena_new_array(&l->context->arena, 2 * count, Var *);
  equation->outputs = arena_new_array(&l->context->arena, 2 * count, Var *);
  uint32_t used = 0;
  for (uint32_t i = 0; i < count; i++) {
    bool pairs = input_is_complex(l, i);
    Parts parts = input_parts(l, i);
    Type type = pairs ? part_type(input_type(l, i)) : input_type(l, i);
    for (int part = 0; part < (pairs ? 2 : 1); part++) {
      equation->inputs[used] = real_operand(l, part_array(l, part ? parts.im : parts.re, type));
      equation->outputs[used] = pairs ? real_operand(l, parts.re) : l->equation->outputs[i];
      equation->outputs[used++]->type = type;
      if ((int64_t)i < keys) all_keys++;
    }
  }
  equation->input_count = equation->output_count = used;
  *edit_param(l, equation, "num_keys") =
      (Param){.kind = PARAM_INT, .name = str_intern(l->context, "num_keys"), .integer = all_keys};
  lower_as_real(l, HERE, equation);
  used = 0;
  for (uint32_t i = 0; i < count; i++) {
    Value *first = l->values[equation->outputs[used++]->id];
    if (output_is_complex(l, i)) bind_parts(l, i, (Parts){first, l->values[equation->outputs[used++]->id]});
  }
}

static void lower_iota(Lowering *l) {
  Type type = part_type(output_type(l, 0));
  Value *numbers = apply_real(l, HERE, "iota", type, NULL, 0);
  bind_parts(l, 0, (Parts){numbers, number_like(l, numbers, 0)});
}

/* clang-format off */
const Plugin complex_structure_plugins[] = {
    PLUGIN("broadcast_in_dim", lower_broadcast_in_dim, OP_NONE),
    PLUGIN("dynamic_slice", lower_dynamic_window, OP_NONE),
    PLUGIN("dynamic_update_slice", lower_dynamic_window, OP_NONE),
    PLUGIN("gather", lower_gather, OP_NONE),
    PLUGIN("iota", lower_iota, OP_NONE),
    PLUGIN("pad", lower_pad, OP_NONE),
    PLUGIN("reshape", lower_reshape, OP_NONE),
    PLUGIN("rev", lower_unedited, OP_NONE),
    PLUGIN("select_n", lower_select_n, OP_NONE),
    PLUGIN("slice", lower_slice, OP_NONE),
    PLUGIN("sort", lower_sort, OP_NONE),
    PLUGIN("squeeze", lower_unedited, OP_NONE),
    PLUGIN("tile", lower_tile, OP_NONE),
    PLUGIN("transpose", lower_transpose, OP_NONE),
    {0},
};
/* clang-format on */
