/* Facts about runtimes. */
#include "target/target.h"

#include <string.h>

const QuirkRow quirk_rows[QUIRK_COUNT] = {
#define QUIRK(name, runtime, first, last, what) {#name, runtime, first, last, what},
#include "target/quirks.inc"
#undef QUIRK
};

static const Target targets[] = {
#define TARGET(name, runtime, version, opset, ir_version, title) {runtime, version, name, title, opset, ir_version},
#include "target/runtimes.inc"
#undef TARGET
};

const Target *target_named(const char *name) {
  for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
    if (strcmp(targets[i].name, name) == 0) return &targets[i];
  }
  return NULL;
}

const Target *target_at(size_t index) { return index < sizeof targets / sizeof *targets ? &targets[index] : NULL; }

bool quirk_applies(const QuirkRow *row, const Target *target) {
  if (row->runtime == RUNTIME_ONNX_RUNTIME) {
    if (target->runtime == RUNTIME_STANDARD) return false;
    if (row->last) return target->runtime == RUNTIME_ONNX_RUNTIME && target->version <= row->last;
    return true;
  }
  return (target->runtime & row->runtime) != 0;
}

bool target_has(const Target *target, Quirk quirk) {
  return quirk_applies(&quirk_rows[quirk], target ? target : &targets[0]);
}

bool quirk_concerns_nan(Quirk quirk) {
  switch (quirk) {
    case QUIRK_ARG_EXTREME_SKIPS_NAN:
    case QUIRK_MAX_POOL_SKIPS_NAN:
    case QUIRK_REDUCE_EXTREME_SKIPS_NAN:
    case QUIRK_SCATTER_FORGETS_NAN:
    case QUIRK_SIGN_OF_HALF_NAN_IS_ZERO: return true;
    default: return false;
  }
}

const char *runtime_names(Context *context, Runtime runtimes) {
  const char *names = "";
  for (unsigned bit = 1; bit < RUNTIME_PORTABLE; bit <<= 1) {
    const Target *target = targets;
    while ((unsigned)target->runtime != bit) target++;
    if (runtimes & bit) names = arena_format(&context->arena, "%s%s%s", names, *names ? ", " : "", target->title);
  }
  return *names ? names : "the standard";
}
