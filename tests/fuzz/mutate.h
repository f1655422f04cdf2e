/* Changes to a model that keep most of it a model: they are made on the fields of protobuf messages, not on bytes.
 * Texts are changed by their words. */
#ifndef J2O_FUZZ_MUTATE_H
#define J2O_FUZZ_MUTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Random {
  uint64_t state;
} Random;

uint64_t random_next(Random *random);
size_t random_below(Random *random, size_t limit); /* 0 for 0 */

typedef struct Bytes {
  uint8_t *data; /* from malloc */
  size_t size;
} Bytes;

enum { LARGEST_MUTANT = 64 << 10 };

/* One change of the model, which may take a field of the donor. */
void mutate(Random *random, Bytes *model, const Bytes *donor);

/* The same for a text, by its lines, words and numbers (mutate_text.c). */
void mutate_text(Random *random, Bytes *text, const Bytes *donor);

/* One change of what the model computes: an element, an attribute, an operator, a shape, the order of inputs or
 * outputs. False when none was found to make. */
bool change_meaning(Random *random, Bytes *model);

#endif
