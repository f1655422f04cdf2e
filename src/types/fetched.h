/* Fetched: a constant whose bytes lie on another device or in a checkpoint, and are asked for when they are needed.
 *
 * All of these may fail. Nothing that was fetched stays in memory but what is held.
 */
#ifndef J2O_TYPES_FETCHED_H
#define J2O_TYPES_FETCHED_H

#include <stddef.h>

typedef void PieceFunction(const void *bytes, size_t size, void *data);

typedef struct Fetched {
  void *owner;
  size_t number; /* which of the owner's */
  const void *(*hold)(const struct Fetched *fetched);
  void (*let_go)(const struct Fetched *fetched);
  /* The bytes in order, each piece gone when the next comes. */
  void (*each_piece)(const struct Fetched *fetched, PieceFunction *visit, void *data);
  /* It is wanted next: the way here can begin while something else is written. */
  void (*start)(const struct Fetched *fetched);
} Fetched;

#endif
