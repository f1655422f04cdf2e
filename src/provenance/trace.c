/* Frames, traces and sites: interned, one pointer per item. */
#include "provenance/trace.h"

#include <string.h>

Provenance *provenance_new(Context *context) {
  Provenance *provenance = arena_new(&context->arena, Provenance);
  provenance->context = context;
  return provenance;
}

/* A number for a pair that is part of a longer key: its own address. */
static uint64_t pair_key(Provenance *provenance, uint64_t first, uint64_t second) {
  void **slot = map_slot(provenance->context, &provenance->frames, first, second);
  if (!*slot) *slot = arena_alloc(&provenance->context->arena, 1);
  return (uint64_t)(uintptr_t)*slot;
}

/* Every key begins with an address that no other kind of key begins with, so one map holds them all. */
Frame *frame_intern(Provenance *provenance, Str file, Str function, int line, FrameKind kind) {
  uint64_t code = pair_key(provenance, (uint64_t)(uintptr_t)file, (uint64_t)(uintptr_t)function);
  void **slot = map_slot(provenance->context, &provenance->frames, code, (uint64_t)(uint32_t)line);
  if (!*slot) {
    Frame *frame = arena_new(&provenance->context->arena, Frame);
    *frame = (Frame){.file = file, .function = function, .line = line, .kind = kind, .plain = frame};
    *slot = frame;
  }
  return *slot;
}

static uint64_t two_numbers(int first, int second) { return (uint64_t)(uint32_t)first << 32 | (uint32_t)second; }

Frame *frame_with_span(Provenance *provenance, Frame *plain, Span span) {
  uint64_t lines = pair_key(provenance, (uint64_t)(uintptr_t)plain, two_numbers(span.line, span.end_line));
  uint64_t columns = two_numbers(span.column, span.end_column);
  void **slot = map_slot(provenance->context, &provenance->frames, lines, columns);
  if (!*slot) {
    Frame *frame = arena_copy(&provenance->context->arena, plain, sizeof *plain);
    frame->span = span;
    *slot = frame;
  }
  return *slot;
}

static const void *or_else(const void *first, const void *second) { return first ? first : second; }

static const Trace *plain_trace(Provenance *provenance, const Trace *trace) {
  const Trace *outer = trace->outer ? trace->outer->plain : NULL;
  if (trace->frame->plain == trace->frame && outer == trace->outer) return trace;
  return trace_intern(provenance, trace->frame->plain, outer);
}

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
    trace->plain = plain_trace(provenance, trace);
    return trace;
  }
  return *slot;
}

const Trace *trace_in_module(Provenance *provenance, const Trace *trace, const Module *module) {
  if (!trace || !module) return trace;
  Context *context = provenance->context;
  void **slot = map_slot(context, &provenance->traces, (uint64_t)(uintptr_t)trace, (uint64_t)(uintptr_t)module);
  if (!*slot) {
    Trace *placed = arena_copy(&context->arena, trace, sizeof *trace);
    placed->module = module;
    *slot = placed;
  }
  return *slot;
}

static Module **scopes_slot(Provenance *provenance, const void *of, Str scopes) {
  return (Module **)map_slot(provenance->context, &provenance->scopes, (uint64_t)(uintptr_t)of,
                             (uint64_t)(uintptr_t)scopes);
}

const Module *module_of_scopes(Provenance *provenance, Str path, Str users) {
  Module **slot = scopes_slot(provenance, path, users);
  if (!*slot) {
    *slot = arena_new(&provenance->context->arena, Module);
    **slot = (Module){.path = path, .scopes = users};
  }
  return *slot;
}

void module_settle(Provenance *provenance, Module *inside) {
  const Module *part = inside->part;
  Context *context = provenance->context;
  inside->classes = part->classes;
  inside->class_count = part->class_count;
  if (!part->path || !part->path[0]) inside->path = part->path ? inside->scopes : NULL;
  else inside->path = str_intern(context, arena_format(&context->arena, "%s.%s", part->path, inside->scopes));
}

Module *module_inside(Provenance *provenance, const Module *part, Str scopes) {
  Module **slot = scopes_slot(provenance, part, scopes);
  if (!*slot) {
    *slot = arena_new(&provenance->context->arena, Module);
    **slot = (Module){.part = part, .scopes = scopes};
    module_settle(provenance, *slot);
  }
  return *slot;
}

static bool is_in_part(const Module *module) { return module->class_name || module->part; }

/* A part of the model knows its whole path. A scope is known to its caller only by its own name; what libraries do
 * under scopes of theirs belongs to the part that calls them. */
static const Module *joined_module(Provenance *provenance, const Module *own, const Module *caller) {
  if (!own || !own->path) return caller;
  if (is_in_part(own) || !caller) return own;
  if (is_in_part(caller)) return own->scopes ? module_inside(provenance, caller, own->scopes) : caller;
  const char *path = arena_format(&provenance->context->arena, "%s.%s", caller->path, own->path);
  return module_of_scopes(provenance, str_intern(provenance->context, path), NULL);
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
    site->module = joined_module(provenance, trace ? trace->module : NULL, caller ? caller->module : NULL);
    *slot = site;
  }
  return *slot;
}

const Site *site_plain(Provenance *provenance, const Site *site) {
  if (!site || site->plain) return site ? site->plain : NULL;
  const Trace *trace = site->trace ? site->trace->plain : NULL;
  const Site *plain = site_intern(provenance, trace, site_plain(provenance, site->caller));
  ((Site *)(uintptr_t)site)->plain = plain;
  return plain;
}

/* Is the file that of a module of Python's: "package.module" is package/module.py or package/module/__init__.py? */
static bool is_file_of(Str file, const char *module) {
  static const char *const endings[] = {".py", "/__init__.py"};
  size_t length = strlen(module);
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    size_t ending = strlen(endings[i]), whole = length + ending;
    if (str_length(file) < whole || !same_bytes(file + str_length(file) - ending, endings[i], ending)) continue;
    const char *at = file + str_length(file) - whole;
    size_t same = 0;
    while (same < length &&
           (at[same] == module[same] || (module[same] == '.' && (at[same] == '/' || at[same] == '\\')))) {
      same++;
    }
    if (same == length) return true;
  }
  return false;
}

static bool is_method_of_class(const Frame *frame, Str class) {
  const char *module = find_letter(class, '@', str_length(class));
  size_t length = module ? (size_t)(module - class) : str_length(class);
  if (strncmp(frame->function, class, length) != 0 || frame->function[length] != '.') return false;
  return !module || is_file_of(frame->file, module + 1);
}

static bool is_method_of(const Frame *frame, const Module *module) {
  for (size_t i = 0; i < module->class_count; i++) {
    if (is_method_of_class(frame, module->classes[i])) return true;
  }
  return false;
}

/* The innermost method of the module that was running. */
static const Frame *method_frame(const Site *site) {
  const Module *module = site->module;
  if (!module || !module->class_count) return site->library;
  for (const Site *at = site; at; at = at->caller) {
    for (const Trace *trace = at->trace; trace; trace = trace->outer) {
      if (trace->frame->kind == FRAME_LIBRARY && is_method_of(trace->frame, module)) return trace->frame;
    }
  }
  return site->library;
}

const Frame *site_user_frame(const Provenance *provenance, const Site *site) {
  if (site->user || !site->library) return or_else(site->user, provenance->definition);
  if (!site->method) ((Site *)(uintptr_t)site)->method = method_frame(site);
  return site->method;
}
