/* Random keys.
 *
 * A key is two 32-bit words. Inside the graph it is one uint64, the first word in the low half: arrays of keys then
 * have the shape that JAX gives them, and every primitive that moves data moves keys. Inputs and outputs of the model
 * that are keys are uint32 with a last axis of 2, as jax.random.key_data gives them.
 *
 * Keys of other generators are their words, with a last axis for them inside the graph as well: they are moved as
 * complex numbers are (complex.h), and what is done with them is what JAX traces for their generator.
 */
#ifndef J2O_LOWER_RANDOM_KEYS_H
#define J2O_LOWER_RANDOM_KEYS_H

#include "lower/lower.h"

Type key_words_type(Lowering *l, Type type); /* of the words of keys of that shape */
Value *key_from_words(Lowering *l, Value *words);
Value *words_from_key(Lowering *l, Value *key);

#endif
