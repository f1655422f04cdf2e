/* Fetched: a constant whose bytes lie on another device or in a checkpoint, and are asked for when they are needed.
 *
 * All of these may fail. Nothing that was fetched stays in memory but what is held.
 */
#ifndef J2O_TYPES_FETCHED_H
#define J2O_TYPES_FETCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void PieceFunction(const void *bytes, size_t size, void *data);

typedef struct Fetched {
  void *owner;
  size_t number; /* which of the owner's */
  const void *(*hold)(const struct Fetched *fetched);
  void (*let_go)(const struct Fetched *fetched);
  /* The bytes in order, each piece gone when the next comes. */
  void (*each_piece)(const struct Fetched *fetched, PieceFunction *visit, void *data);
  /* It is wanted next (1), or after the next one (2): the way here can begin while something else is written. */
  void (*start)(const struct Fetched *fetched, unsigned distance);
  /* The bytes are put there by whoever has them: other processes, into the file of that name in the folder of the
   * model. False: it must be written here. They are all there when it has settled. */
  bool (*place)(const struct Fetched *fetched, const char *file, uint64_t offset);
  void (*settle)(const struct Fetched *fetched);
} Fetched;

#endif
