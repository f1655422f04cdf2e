/* Copies elements that lie at strides into a plain array, at the speed of memory where that can be had. */
#ifndef J2O_TYPES_STRIDED_COPY_H
#define J2O_TYPES_STRIDED_COPY_H

#include <stddef.h>
#include <stdint.h>

enum { STRIDED_AXES = 64 };

/* to[i, j, …] = from[i * strides[0] + j * strides[1] + …]. Strides count elements of `width` bytes, and may be zero or
 * negative; at most STRIDED_AXES axes, none of them empty. */
void strided_copy(void *to, const void *from, size_t width, const int64_t *dims, const int64_t *strides, size_t rank);

/* The strides of a plain array. */
void plain_strides(const int64_t *dims, size_t rank, int64_t *strides);

#endif
