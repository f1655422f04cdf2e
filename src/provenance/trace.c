/* Frames, traces and sites: interned, one pointer per item. */
#include "provenance/trace.h"

#include <string.h>

Provenance *provenance_new(Context *context) {
  Provenance *provenance = arena_new(&context->arena, Provenance);
  provenance->context = context;
  return provenance;
}

Frame *frame_intern(Provenance *provenance, Str file, Str function, int line, FrameKind kind) {
  Context *context = provenance->context;
  /* Function and line in one word, without loss: interned text is 16-byte aligned in a 47-bit address space. */
  uint64_t number = (uint64_t)(uint32_t)line;
  uint64_t place = (uint64_t)(uintptr_t)function ^ ((number & 0x1FFFF) << 47) ^ ((number >> 17) & 0xF);
  void **slot = map_slot(context, &provenance->frames, (uint64_t)(uintptr_t)file, place);
  if (!*slot) {
    Frame *frame = arena_new(&context->arena, Frame);
    *frame = (Frame){.file = file, .function = function, .line = line, .kind = kind};
    *slot = frame;
  }
  return *slot;
}

static const void *or_else(const void *first, const void *second) { return first ? first : second; }

const Trace *trace_intern(Provenance *provenance, Frame *frame, const Trace *outer) {
  Context *context = provenance->context;
  void **slot = map_slot(context, &provenance->traces, (uint64_t)(uintptr_t)frame, (uint64_t)(uintptr_t)outer);
  if (!*slot) {
    Trace *trace = arena_new(&context->arena, Trace);
    trace->frame = frame;
    trace->outer = outer;
    trace->user = frame->kind == FRAME_USER ? frame : outer ? outer->user : NULL;
    trace->library = frame->kind != FRAME_JAX ? frame : outer ? outer->library : NULL;
    *slot = trace;
  }
  return *slot;
}

const Site *site_intern(Provenance *provenance, const Trace *trace, const Site *caller) {
  Context *context = provenance->context;
  void **slot = map_slot(context, &provenance->sites, (uint64_t)(uintptr_t)trace, (uint64_t)(uintptr_t)caller);
  if (!*slot) {
    Site *site = arena_new(&context->arena, Site);
    site->trace = trace;
    site->caller = caller;
    site->user = or_else(trace ? trace->user : NULL, caller ? caller->user : NULL);
    site->library = or_else(trace ? trace->library : NULL, caller ? caller->library : NULL);
    *slot = site;
  }
  return *slot;
}

const Frame *site_user_frame(const Provenance *provenance, const Site *site) {
  return or_else(or_else(site->user, site->library), provenance->definition);
}
