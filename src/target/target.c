/* Facts about runtimes. */
#include "target/target.h"

#include <stddef.h>

const QuirkRow quirk_rows[QUIRK_COUNT] = {
#define QUIRK(name, runtime, first, last, what) {#name, runtime, first, last, what},
#include "target/quirks.inc"
#undef QUIRK
};

static const Target newest = {RUNTIME_ONNX_RUNTIME, NEWEST_VERSION};

bool quirk_applies(const QuirkRow *row, const Target *target) {
  return target->runtime == row->runtime && (!row->last || target->version <= row->last);
}

bool target_has(const Target *target, Quirk quirk) {
  return quirk_applies(&quirk_rows[quirk], target ? target : &newest);
}

const char *runtime_name(Runtime runtime) { return runtime == RUNTIME_ONNX_RUNTIME ? "ONNX Runtime" : "the standard"; }
