/* How each level of detail renders an origin. What many nodes share is rendered once and kept. */
#include <ctype.h>

#include "provenance/trace.h"

static Str rendered(Provenance *provenance, const char *format, const char *first, int line, const char *second) {
  Context *context = provenance->context;
  Builder out;
  builder_init(&out, context);
  builder_format(&out, format, first, line, second);
  return str_intern_sized(context, builder_text(&out), out.length);
}

static void set_text(Builder *out, Str text) {
  out->length = 0;
  builder_add_sized(out, text, str_length(text));
}

void render_callsite(Provenance *provenance, Builder *out, const Origin *origin) {
  const Frame *user = site_user_frame(provenance, origin->sites[0]);
  Frame *frame = user ? user->plain : NULL;
  if (frame && !frame->callsite) frame->callsite = rendered(provenance, "%s:%d%s", frame->function, frame->line, "");
  set_text(out, frame ? frame->callsite : str_intern(provenance->context, ""));
}

Emitter emitter_rendered(Provenance *provenance, Emitter emitter) {
  emitter.label = rendered(provenance, "%s:%d%s", emitter.name, emitter.line, "");
  emitter.frame =
      rendered(provenance, "%s:%d in %s", written_file(provenance, emitter.file), emitter.line, emitter.name);
  return emitter;
}

void render_plugin(Builder *out, const Origin *origin) {
  if (origin->emitter.label) {
    set_text(out, origin->emitter.label);
  } else {
    out->length = 0;
    builder_format(out, "%s:%d", origin->emitter.name, origin->emitter.line);
  }
}

Str frame_traceback_line(Provenance *provenance, Frame *frame) {
  if (!frame->traceback_line) {
    frame->traceback_line =
        rendered(provenance, "%s:%d (%s)", written_file(provenance, frame->file), frame->line, frame->function);
  }
  return frame->traceback_line;
}

static void add_site(Provenance *provenance, Builder *out, const Site *site) {
  for (; site; site = site->caller) {
    for (const Trace *trace = site->trace; trace; trace = trace->outer) {
      Str line = frame_traceback_line(provenance, trace->frame->plain);
      if (out->length) builder_add_sized(out, "\n", 1);
      builder_add_sized(out, line, str_length(line));
    }
  }
}

/* One block of frames per source, the primary one first; an empty line between blocks. Expressions of one line give
 * the same block, which stands there once. */
void render_traceback(Provenance *provenance, Builder *out, const Origin *origin) {
  Map known = {0};
  out->length = 0;
  for (uint32_t i = 0; i < origin->site_count; i++) {
    if (origin->site_count > 1) {
      void **slot = map_slot_pointer(provenance->context, &known, site_plain(provenance, origin->sites[i]));
      if (*slot) continue;
      *slot = provenance;
    }
    if (i) builder_add(out, "\n");
    add_site(provenance, out, origin->sites[i]);
  }
}

static Str span_text(Context *context, Span span) {
  Builder out;
  builder_init(&out, context);
  builder_format(&out, "%d:%d-%d:%d", span.line, span.column, span.end_line, span.end_column);
  return str_intern_sized(context, builder_text(&out), out.length);
}

Str render_span(Provenance *provenance, const Origin *origin) {
  const Frame *frame = site_user_frame(provenance, origin->sites[0]);
  if (!frame || !frame->span.line) return NULL;
  if (!frame->span_text) ((Frame *)(uintptr_t)frame)->span_text = span_text(provenance->context, frame->span);
  return frame->span_text;
}

Str origin_module(const Origin *origin) {
  const Module *module = origin->sites[0]->module;
  return module ? module->path : NULL;
}

Str render_fused_modules(Provenance *provenance, const Origin *origin) {
  if (origin->site_count < 2) return NULL;
  Map known = {0};
  Builder out;
  builder_init(&out, provenance->context);
  Str own = origin_module(origin);
  if (own) *map_slot_pointer(provenance->context, &known, own) = provenance;
  bool any = false;
  for (uint32_t i = 1; i < origin->site_count; i++) {
    const Module *module = origin->sites[i]->module;
    if (!module || !module->path || map_get_pointer(&known, module->path)) continue;
    *map_slot_pointer(provenance->context, &known, module->path) = provenance;
    if (any) builder_add(&out, "\n");
    builder_add_sized(&out, module->path, str_length(module->path));
    any = true;
  }
  return any ? str_intern_sized(provenance->context, builder_text(&out), out.length) : NULL;
}

Str module_namespace(Context *context, Str path) {
  Builder out;
  builder_init(&out, context);
  for (const char *c = path; *c; c++) builder_add_sized(&out, *c == '.' && !isdigit((unsigned char)c[1]) ? "/" : c, 1);
  return str_intern_sized(context, builder_text(&out), out.length);
}

static Str entry_text(Provenance *provenance) {
  if (!provenance->entry_text) {
    Builder out;
    builder_init(&out, provenance->context);
    for (size_t i = 0; i < provenance->entry_count; i++) {
      const Frame *frame = provenance->entry_frames[i];
      builder_format(&out, "%s:%d in %s\n", written_file(provenance, frame->file), frame->line, frame->function);
    }
    provenance->entry_text = str_intern_sized(provenance->context, builder_text(&out), out.length);
  }
  return provenance->entry_text;
}

/* The entry frames and the lowering calls, outermost first. */
static Str calls_text(Provenance *provenance, const LowerFrame *frame) {
  if (!frame) return entry_text(provenance);
  if (!frame->text) {
    Str outer = calls_text(provenance, frame->outer);
    Str line =
        rendered(provenance, "%s:%d in %s\n", written_file(provenance, frame->file), frame->line, frame->function);
    ((LowerFrame *)(uintptr_t)frame)->text =
        str_intern(provenance->context, arena_format(&provenance->context->arena, "%s%s", outer, line));
  }
  return frame->text;
}

void render_stacktrace(Provenance *provenance, Builder *out, const Origin *origin) {
  const Emitter *emitter = &origin->emitter;
  set_text(out, calls_text(provenance, origin->calls));
  if (emitter->frame) builder_add_sized(out, emitter->frame, str_length(emitter->frame));
  else builder_format(out, "%s:%d in %s", written_file(provenance, emitter->file), emitter->line, emitter->name);
}
