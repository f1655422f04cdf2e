/* Where things come from: frames, modules, traces, sites, origins.
 *
 * Frame   one expression on one line of one function, interned. Its plain frame is the line alone.
 * Module  a part of the model, or a scope that the user named.
 * Trace   frames innermost first, a chain of (frame, outer) interned so that shared callers are stored once.
 *         An equation's own trace ends where JAX cuts it: at the call that the equation is nested in. It knows the
 *         module that was running. Its plain trace has the same lines and knows neither columns nor a module.
 * Site    a trace and the site of the call it is inlined at. The frames of a site, read outwards, are the joined
 *         trace. Interned, so that sites compare by address.
 * Origin  what a graph node carries: an ordered set of sites (first: the primary one), the emitter, and the lowering
 *         calls that led to it.
 */
#ifndef J2O_PROVENANCE_TRACE_H
#define J2O_PROVENANCE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/builder.h"
#include "base/context.h"
#include "provenance/paths.h"

typedef enum FrameKind {
  FRAME_USER,    /* neither the standard library nor an installed package */
  FRAME_LIBRARY, /* an installed package or the standard library */
  FRAME_JAX,     /* JAX or this package: never the user's */
} FrameKind;

/* Of an expression: lines from 1, columns from 0 in bytes of UTF-8, the end exclusive. All 0: not known. */
typedef struct Span {
  int line, column, end_line, end_column;
} Span;

typedef struct Frame Frame;
struct Frame {
  Str file, function;
  int line;
  FrameKind kind;
  Span span;
  Frame *plain;       /* the same line without a span; this one when it has none */
  Str traceback_line; /* "path:line (function)", rendered once, on demand */
  Str callsite;       /* "function:line", likewise */
  Str span_text;      /* "line:column-line:column", likewise */
};

typedef struct Module {
  Str path;           /* "blocks.0.attn", "" of the root; NULL: what was running is no part of the model */
  Str class_name;     /* of a part; NULL of scopes */
  const Str *classes; /* of a part and of scopes in it: its class and those above, whose methods are its own; each as
                       * "Class@package.module", or without what follows the class where that is not known */
  size_t class_count;
  const struct Module *part; /* that these scopes are in; NULL of a part, and where none was running */
  Str scopes;                /* those that the user named, in the part or under whatever calls; or NULL */
} Module;

typedef struct Trace Trace;
struct Trace {
  Frame *frame;
  const Trace *outer;
  const Frame *user;    /* innermost user frame from here outwards, or NULL */
  const Frame *library; /* innermost library frame from here outwards, or NULL */
  const Module *module; /* of an equation's trace: what was running, or NULL: what the caller's trace says */
  const Trace *plain;   /* itself when it is plain */
};

typedef struct Site Site;
struct Site {
  const Trace *trace;          /* may be NULL: an equation without a traceback */
  const Site *caller;          /* the call this is inlined at, or NULL */
  const Frame *user, *library; /* as in Trace, over the joined trace */
  const Module *module;        /* likewise; NULL: none is known */
  const Site *plain;           /* found on demand: site_plain */
  bool is_traced, is_booked;   /* of a plain one: what the ledger knows of it (ledger.h) */
  const Frame *method;         /* likewise, by site_user_frame: of the module, where no frame is the user's */
};

/* A call on the lowering stack: which plugin lowered the enclosing call equation, and where. */
typedef struct LowerFrame LowerFrame;
struct LowerFrame {
  const char *file, *function;
  int line;
  const LowerFrame *outer;
  Str text; /* this call and those around it as lines of a stack trace, rendered once, on demand */
};

typedef struct Emitter {
  Str name;         /* "SinPlugin.lower", or the name of a helper or a pass */
  const char *file; /* our C source, relative to the project */
  int line;
  Str label; /* "SinPlugin.lower:31", or NULL: rendered each time */
  Str frame; /* "src/lower/elementwise/elementwise.c:31 in SinPlugin.lower", likewise */
} Emitter;

typedef struct Origin {
  const Site *const *sites; /* at least one; the first is the primary one */
  uint32_t site_count;
  Emitter emitter;
  const LowerFrame *calls; /* innermost first */
} Origin;

typedef struct Ledger Ledger; /* ledger.h */

/* A source file of the user's that a frame names. */
typedef struct SourceFile {
  Str path, digest;
  Str text; /* NULL: not to be kept */
} SourceFile;

typedef struct Provenance {
  Context *context;
  Ledger *ledger; /* NULL: what becomes of equations is not written down */
  Map frames, traces, sites, unions;
  Map scopes;                   /* path -> Module */
  const Module *const *modules; /* parts that were running and those they are in, each path once */
  size_t module_count;
  const SourceFile *sources;
  size_t source_count;
  Frame *const *entry_frames; /* the user's frames that called to_onnx, outermost first */
  size_t entry_count;
  const Frame *definition; /* of the traced function, or NULL */
  Str entry_text;          /* those frames as lines of a stack trace, rendered once, on demand */
  Paths paths;             /* how files are named in what is written */
} Provenance;

Provenance *provenance_new(Context *context);
Frame *frame_intern(Provenance *provenance, Str file, Str function, int line, FrameKind kind);
/* The same line with the columns of an expression on it. */
Frame *frame_with_span(Provenance *provenance, Frame *plain, Span span);
const Trace *trace_intern(Provenance *provenance, Frame *frame, const Trace *outer);
/* The trace of an equation that this module was running for. */
const Trace *trace_in_module(Provenance *provenance, const Trace *trace, const Module *module);
/* Scopes inside one another where no part was running, and those of them that the user named, or NULL. */
const Module *module_of_scopes(Provenance *provenance, Str path, Str users);
/* Scopes that the user named while the part was running. */
Module *module_inside(Provenance *provenance, const Module *part, Str scopes);
/* The same again, when the part's path and classes have become known. */
void module_settle(Provenance *provenance, Module *inside);
const Site *site_intern(Provenance *provenance, const Trace *trace, const Site *caller);
/* The site of the plain traces: equal for sites that render to the same lines. */
const Site *site_plain(Provenance *provenance, const Site *site);

/* The frame that stands for the user's line: the innermost of the user's. Where all is a library's: that of the module
 * that was running, else the innermost; else (a function of JAX's own was exported) the definition of the traced
 * function. NULL when even that is unknown. */
const Frame *site_user_frame(const Provenance *provenance, const Site *site);

/* Origins. origin_merge: all sites of a, then those of b that a lacks; emitter and calls as given. */
const Origin *origin_new(Provenance *provenance, const Site *site, Emitter emitter, const LowerFrame *calls);
/* __FILE__ as the compiler saw it may lead through the build folder; what counts starts at "src/". */
const char *source_path(const char *file);
/* The emitter with its texts rendered, for one that makes many nodes. */
Emitter emitter_rendered(Provenance *provenance, Emitter emitter);
const Origin *origin_merge(Provenance *provenance, const Origin *a, const Origin *b, Emitter emitter);
/* All sites of origin, then those of the others that are not there yet; emitter and calls stay. Linear. */
const Origin *origin_unite(Provenance *provenance, const Origin *origin, const Origin *const *others, size_t count);
/* NULL for NULL. */
const Origin *origin_with_emitter(Provenance *provenance, const Origin *origin, Emitter emitter);

/* A file as what is written names it; errors name files as they are. */
static inline Str written_file(Provenance *provenance, const char *file) {
  return path_written(provenance->context, &provenance->paths, file);
}

/* Rendering (render.c): each replaces what the builder holds. */
void render_callsite(Provenance *provenance, Builder *out, const Origin *origin);   /* "Block.__call__:72" */
void render_plugin(Builder *out, const Origin *origin);                             /* "SinPlugin.lower:31" */
void render_traceback(Provenance *provenance, Builder *out, const Origin *origin);  /* innermost first */
Str frame_traceback_line(Provenance *provenance, Frame *frame);                     /* one line of it */
void render_stacktrace(Provenance *provenance, Builder *out, const Origin *origin); /* outermost first */
/* Of the primary site, "line:column-line:column" and the module's path. NULL when it is not known. */
Str render_span(Provenance *provenance, const Origin *origin);
Str origin_module(const Origin *origin);
/* The paths of the modules of its further sites that are not the primary one's, each once, a line for each; or NULL. */
Str render_fused_modules(Provenance *provenance, const Origin *origin);
/* A module's path as folders: "blocks.0.attn" is "blocks.0/attn". */
Str module_namespace(Context *context, Str path);

#endif
