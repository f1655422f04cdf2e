/* Frames that many models have: of JAX, of the libraries built on it and of the converter. A table of origins names
 * them by number, so that the trace of an ordinary line takes a few digits (provenance/table.h).
 *
 * A file of an installed package is written "@" and its path in there. Lines are those of one version of a library;
 * those of the converter, which change with every version of it, are 0.
 *
 * The list belongs to the tables of version 6 and is never changed.
 */
#ifndef J2O_PROVENANCE_KNOWN_FRAMES_H
#define J2O_PROVENANCE_KNOWN_FRAMES_H

#include "base/context.h"

/* Parts of the list's text. */
typedef struct KnownText {
  const char *text;
  size_t length;
} KnownText;

typedef struct KnownFrame {
  KnownText file, name;
  uint32_t line;
  uint32_t number; /* from 1 */
} KnownFrame;

typedef struct KnownFrames {
  KnownFrame *sorted; /* by file, name and line */
  const KnownFrame **by_number;
  uint32_t count;
} KnownFrames;

const KnownFrames *known_frames(Context *context);

/* The one with this line, else any of that function, else NULL. */
const KnownFrame *known_frame(const KnownFrames *known, Str file, Str name, uint32_t line);
const KnownFrame *known_frame_of_file(const KnownFrames *known, Str file); /* any; NULL: there is none */

#endif
