/* Random bits: what the generators share. A word is 32 bits, two of them are one uint64 with the first in the low half.
 */
#ifndef J2O_LOWER_RANDOM_RANDOM_H
#define J2O_LOWER_RANDOM_RANDOM_H

#include "lower/elementwise/arithmetic.h"

Value *emit_shift(Lowering *l, Here here, const char *direction, Value *x, Value *by);
#define EMIT_SHIFT(l, direction, x, by) emit_shift((l), HERE, (direction), (x), (by))

Value *join_words(Lowering *l, Value *low, Value *high); /* low + high * 2^32; low may be NULL for 0 */
Value *low_word(Lowering *l, Value *x);
Value *high_word(Lowering *l, Value *x);

/* The hash of (x1, x2) under the key's words (k1, k2), which broadcast to type; x1 may be NULL for 0. */
void threefry(Lowering *l, Type type, Value *const *key, Value *const *x, Value **y);

/* Stops where the opset has no bitwise operators. */
void require_bitwise(Lowering *l);

void lower_rng_bit_generator(Lowering *l); /* random_generator.c */

#endif
