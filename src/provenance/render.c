/* How each level of detail renders an origin. */
#include "provenance/trace.h"

static void restart(Builder *out) { out->length = 0; }

void render_callsite(Builder *out, const Origin *origin) {
  const Frame *frame = site_user_frame(origin->sites[0]);
  restart(out);
  if (frame) builder_format(out, "%s:%d", frame->function, frame->line);
}

void render_plugin(Builder *out, const Origin *origin) {
  restart(out);
  builder_format(out, "%s:%d", origin->emitter.name, origin->emitter.line);
}

static Str frame_line(Provenance *provenance, Frame *frame) {
  if (!frame->traceback_line) {
    Context *context = provenance->context;
    frame->traceback_line =
        str_intern(context, arena_format(&context->arena, "%s:%d (%s)", frame->file, frame->line, frame->function));
  }
  return frame->traceback_line;
}

/* One block of frames per source, the primary one first; an empty line between blocks. */
void render_traceback(Provenance *provenance, Builder *out, const Origin *origin) {
  restart(out);
  for (uint32_t i = 0; i < origin->site_count; i++) {
    if (i) builder_add(out, "\n");
    for (const Site *site = origin->sites[i]; site; site = site->caller) {
      for (const Trace *trace = site->trace; trace; trace = trace->outer) {
        if (out->length) builder_add_sized(out, "\n", 1);
        Str line = frame_line(provenance, trace->frame);
        builder_add_sized(out, line, str_length(line));
      }
    }
  }
}

static void add_calls(Builder *out, const LowerFrame *frame) {
  if (!frame) return;
  add_calls(out, frame->outer);
  builder_format(out, "%s:%d in %s\n", frame->file, frame->line, frame->function);
}

void render_stacktrace(Provenance *provenance, Builder *out, const Origin *origin) {
  restart(out);
  for (size_t i = 0; i < provenance->entry_count; i++) {
    const Frame *frame = provenance->entry_frames[i];
    builder_format(out, "%s:%d in %s\n", frame->file, frame->line, frame->function);
  }
  add_calls(out, origin->calls);
  builder_format(out, "%s:%d in %s", origin->emitter.file, origin->emitter.line, origin->emitter.name);
}
