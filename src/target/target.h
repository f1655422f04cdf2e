/* Target: the runtime that a model is made for, and what it cannot do, or does otherwise than the standard says.
 *
 * Each such fact is a row (quirks.inc) with a test that shows it (tests/python/test_runtime_quirks.py). Lowering and
 * passes ask for it by name, so that a row that is closed changes what they make, and nothing else has to. Which
 * element types a runtime has kernels for is measured apart (onnx/facts/schema.h).
 */
#ifndef J2O_TARGET_TARGET_H
#define J2O_TARGET_TARGET_H

#include <stdbool.h>

typedef enum Runtime { RUNTIME_STANDARD, RUNTIME_ONNX_RUNTIME } Runtime;

/* Major * 1000 + minor. */
#define RUNTIME_VERSION(major, minor) ((major) * 1000 + (minor))
enum { NEWEST_VERSION = 999999 };

typedef struct Target {
  Runtime runtime; /* RUNTIME_STANDARD: whatever does as the standard says */
  int version;
} Target;

typedef enum Quirk {
#define QUIRK(name, ...) QUIRK_##name,
#include "target/quirks.inc"
#undef QUIRK
  QUIRK_COUNT
} Quirk;

typedef struct QuirkRow {
  const char *name;
  Runtime runtime;
  int first, last; /* versions in which it was seen; last 0: it is still there */
  const char *what;
} QuirkRow;

extern const QuirkRow quirk_rows[QUIRK_COUNT];

/* A target of NULL is the newest ONNX Runtime. A version before the first one that was looked at is taken to have it.
 */
bool target_has(const Target *target, Quirk quirk);

/* One row by itself. */
bool quirk_applies(const QuirkRow *row, const Target *target);

const char *runtime_name(Runtime runtime);

#endif
