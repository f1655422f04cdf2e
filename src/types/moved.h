/* Moved: a large constant whose elements still lie in another one, in another order and perhaps without its scale.
 *
 * Weights are transposed at export, and scaled where a normalisation is folded into them. Memory for all of them once
 * more costs more time than that work does, so it is done where the model is written, a piece at a time; or at once, by
 * tensor_ready, for whoever must read the elements.
 */
#ifndef J2O_TYPES_MOVED_H
#define J2O_TYPES_MOVED_H

#include "types/fetched.h"
#include "types/tensor.h"

typedef struct Moved {
  Context *context;
  const void *from;
  const Fetched *fetched; /* in place of `from`; or NULL */
  size_t width;           /* bytes of an element */
  size_t rank;            /* at least 1 */
  int64_t dims[MAX_RANK];
  int64_t strides[MAX_RANK]; /* in elements of `from` */
  const double *scale;       /* float32 alone: what each step along the first axis is multiplied by; or NULL */
  const void *whole;         /* once it was needed at once */
} Moved;

/* x with the axes in the order of `strides`, which count elements of x. The same data where they stay in place; NULL
 * where it is not worth it, or cannot be: the caller copies. */
const Tensor *moved_tensor(Context *context, const Tensor *x, const int64_t *dims, const int64_t *strides);

/* x times a number for each step along its first axis, computed in double and rounded once. NULL where x is no float32,
 * or could leave its range. */
Tensor *moved_scaled(Context *context, const Tensor *x, const double *scale);

/* Puts the elements where tensor->data says. Does nothing when they are there. */
void tensor_ready(const Tensor *tensor);

typedef struct Segment {
  const void *data;
  size_t size;
  const struct Moved *moved; /* in place of data: bytes that are made while they are written (moved.h); or NULL */
  const Fetched *fetched;    /* in place of data: bytes that come while they are written (fetched.h); or NULL */
} Segment;

/* The bytes of a tensor: there, moved or fetched. */
Segment tensor_segment(const Tensor *tensor);
static inline bool segment_is_plain(const Segment *segment) { return !segment->moved && !segment->fetched; }

/* Says to what must be fetched that it is wanted soon (fetched.h); false when nothing must be. Of those that follow
 * what is being written, FETCHED_AHEAD are told. */
enum { FETCHED_AHEAD = 2 };
bool segment_start(const Segment *segment, unsigned distance);

/* Makes the bytes in order, a piece at a time, each in the same memory. */
typedef struct Pieces {
  char *buffer; /* NULL at first */
  size_t capacity;
} Pieces;
void pieces_reserve(Pieces *pieces, const Moved *moved);
void segment_each_piece(const Segment *segment, Pieces *pieces, PieceFunction *visit, void *data);

#endif
