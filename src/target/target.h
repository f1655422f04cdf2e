/* Target: the runtime that a model is made for, and what it cannot do, or does otherwise than the standard says.
 *
 * Each such fact is a row (quirks.inc) with a test that shows it (tests/python/test_runtime_quirks.py). Lowering and
 * passes ask for it by name, so that a row that is closed changes what they make, and nothing else has to. Which
 * element types a runtime has kernels for is measured apart (onnx/facts/schema.h).
 */
#ifndef J2O_TARGET_TARGET_H
#define J2O_TARGET_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/context.h"

/* Bits: a fact may be about several. */
typedef enum Runtime {
  RUNTIME_STANDARD = 0, /* whatever does as the standard says */
  RUNTIME_ONNX_RUNTIME = 1 << 0,
  RUNTIME_ONNX_RUNTIME_WEB = 1 << 1,
  RUNTIME_OPENVINO = 1 << 2,
  RUNTIME_TRACT = 1 << 3,
  RUNTIME_IREE = 1 << 4,
  RUNTIME_MNN = 1 << 5,
  RUNTIME_TINYGRAD = 1 << 6,
  RUNTIME_REFERENCE = 1 << 7,
  RUNTIME_PORTABLE = (1 << 8) - 1, /* all of them at once */
} Runtime;

/* Major * 1000 + minor. */
#define RUNTIME_VERSION(major, minor) ((major) * 1000 + (minor))
enum { NEWEST_VERSION = 999999 };

typedef struct Target {
  Runtime runtime;
  int version;
  const char *name, *title;
  int64_t opset;      /* the newest that it loads; 0: whatever there is */
  int64_t ir_version; /* likewise, of the file's format */
} Target;

/* NULL where there is none of the name. Versions of ONNX Runtime are "onnxruntime-1.18" and the like. */
const Target *target_named(const char *name);

/* One after the other, the default first; NULL behind the last. */
const Target *target_at(size_t index);

typedef enum Quirk {
#define QUIRK(name, ...) QUIRK_##name,
#include "target/quirks.inc"
#undef QUIRK
  QUIRK_COUNT
} Quirk;

typedef struct QuirkRow {
  const char *name;
  Runtime runtime; /* one of them, or several */
  int first, last; /* versions in which it was seen; last 0: it is still there */
  const char *what;
} QuirkRow;

extern const QuirkRow quirk_rows[QUIRK_COUNT];

/* A target of NULL is the newest ONNX Runtime. A version before the first one that was looked at is taken to have it.
 * What is made for another runtime keeps the forms that ONNX Runtime needs: they are as right there. */
bool target_has(const Target *target, Quirk quirk);
/* Was no runtime asked for? The default may be named or not. */
static inline bool target_is_default(const Target *target) { return !target || target == target_at(0); }
/* For forms that were measured with it alone. */
static inline bool target_is_onnx_runtime(const Target *target) {
  return !target || target->runtime == RUNTIME_ONNX_RUNTIME;
}

/* Is it about a NaN that is lost on the way, and nothing else? */
bool quirk_concerns_nan(Quirk quirk);

/* One row by itself. */
bool quirk_applies(const QuirkRow *row, const Target *target);

/* "tract, IREE": of one or of several. */
const char *runtime_names(Context *context, Runtime runtimes);

#endif
