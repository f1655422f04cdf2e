/* Scores that are masked by a product and a sum: scores * kept + (1 - kept) * fill, where kept is 1 or 0. That is a
 * fill in place of what is put out. Weights are put out by such a product as well. */
#include "passes/analysis/masks.h"
#include "passes/fuse/attention_parts.h"
#include "types/moved.h"
#include "types/numbers.h"

static Value *without_not(Value *mask, bool *inverted) {
  for (; mask->producer && node_is(mask->producer, OP_Not); mask = node_input(mask->producer, 0))
    *inverted = !*inverted;
  return mask;
}

/* 1 or 0 by a mask, and a number or 0 by the same. Both have the elements of the mask in its order. */
static bool blends_by_mask(Value *factor, const Value *rest, Blend *blend) {
  TwoNumbers one, other;
  bool of_factor = false, of_rest = false;
  if (!read_renamed_numbers(factor, &one) || !read_renamed_numbers(rest, &other)) return false;
  if (!same_from_end(factor->type, rest->type)) return false;
  blend->numbers = factor;
  blend->mask = without_not(one.mask, &of_factor);
  if (without_not(other.mask, &of_rest) != blend->mask) return false;
  double kept = of_factor == of_rest ? other.kept : other.put_out;
  double put_out = of_factor == of_rest ? other.put_out : other.kept;
  bool is_turned = one.kept == 0 && one.put_out == 1;
  if (!is_turned && (one.kept != 1 || one.put_out != 0)) return false;
  blend->inverted = of_factor != is_turned;
  blend->fill = is_turned ? kept : put_out;
  return (is_turned ? put_out : kept) == 0;
}

/* The same of constants, from which the mask is made. */
static bool blends_by_constants(Match *match, const Value *factor, const Value *rest, Blend *blend) {
  const Tensor *one = constant_of(factor), *other = constant_of(rest);
  if (!one || !other || one->dtype != other->dtype || !dtype_is_float(one->dtype) || one->size != other->size)
    return false;
  if (!same_from_end(factor->type, rest->type)) return false;
  Tensor *mask = match_tensor(match, DTYPE_BOOL, factor->type);
  size_t width = dtype_bytes(one->dtype, 1);
  if (!mask || mask->size != one->size / width) return false;
  bool is_any_put_out = false;
  for (size_t i = 0; i < mask->size; i++) {
    double kept = number_decode(one->dtype, (const char *)one->data + i * width);
    double number = number_decode(other->dtype, (const char *)other->data + i * width);
    if (kept == 0 && !is_any_put_out) blend->fill = number;
    is_any_put_out = is_any_put_out || kept == 0;
    if (kept == 1 ? number != 0 : kept != 0 || number != blend->fill) return false;
    ((char *)(uintptr_t)mask->data)[i] = kept == 1;
  }
  blend->inverted = false;
  blend->numbers = NULL;
  blend->mask = is_any_put_out ? match_constant(match, mask) : NULL;
  return is_any_put_out;
}

/* The mask that a constant of ones and zeros is; NULL: it is none, or puts nothing out. */
static Value *mask_of_ones(Match *match, const Value *factor) {
  const Tensor *constant = constant_of(factor);
  if (!constant || !dtype_is_float(constant->dtype)) return NULL;
  Tensor *mask = match_tensor(match, DTYPE_BOOL, factor->type);
  size_t width = dtype_bytes(constant->dtype, 1);
  if (!mask || mask->size != constant->size / width) return NULL;
  bool is_any_put_out = false;
  for (size_t i = 0; i < mask->size; i++) {
    double number = number_decode(constant->dtype, (const char *)constant->data + i * width);
    if (number != 0 && number != 1) return NULL;
    is_any_put_out = is_any_put_out || number == 0;
    ((char *)(uintptr_t)mask->data)[i] = number == 1;
  }
  return is_any_put_out ? match_constant(match, mask) : NULL;
}

bool read_kept(Match *match, Value *factor, Blend *blend) {
  TwoNumbers two;
  *blend = (Blend){0};
  if (!read_renamed_numbers(factor, &two)) {
    blend->mask = mask_of_ones(match, factor);
    return blend->mask;
  }
  blend->numbers = factor;
  blend->mask = without_not(two.mask, &blend->inverted);
  bool is_turned = two.kept == 0 && two.put_out == 1;
  blend->inverted = blend->inverted != is_turned;
  return is_turned || (two.kept == 1 && two.put_out == 0);
}

bool read_blend(Match *match, const Node *sum, Blend *blend) {
  bool is_sum = node_is(sum, OP_Add);
  for (size_t side = 0; side < (is_sum ? 2 : 1); side++) {
    Node *product = node_input(sum, side)->producer;
    const Value *rest = node_input(sum, 1 - side);
    if (!product || !node_is(product, OP_Mul)) continue;
    for (size_t at = 0; at < 2; at++) {
      Value *factor = node_input(product, at);
      if (!blends_by_mask(factor, rest, blend) && !blends_by_constants(match, factor, rest, blend)) continue;
      if (!is_sum) blend->fill = -blend->fill;
      blend->product = product;
      blend->side = 1 - at;
      return true;
    }
  }
  return false;
}
