/* Randomness of the operating system, for what nobody outside may foresee: keys of hash tables. Nothing that is written
 * depends on it. */
#ifndef J2O_BASE_ENTROPY_H
#define J2O_BASE_ENTROPY_H

#include <stddef.h>

void random_bytes(void *bytes, size_t size);

#endif
