/* Making a table of origins. Rows are written the moment they are first needed, so that their order is that of the
 * nodes and nothing else. */
#include <string.h>

#include "base/array.h"
#include "base/builder.h"
#include "base/bytes.h"
#include "provenance/known_frames.h"
#include "provenance/table.h"

typedef struct Section {
  Builder rows;
  uint32_t count;
} Section;

/* A line of a trace or of a call stack, taken apart. */
typedef struct Line {
  Str file; /* NULL: the line has another form, and name is all of it */
  Str name;
  uint32_t number;
  uint32_t frame; /* its row in frames, 0 while it has none */
} Line;

typedef ARRAY(Line *) Lines;

/* A call stack. */
typedef struct Stack {
  uint32_t calls;
  const Line *last; /* NULL: there are no lines */
} Stack;

struct TableWriter {
  Context *context;
  Section files, names, frames, inner, calls, outer, ways, origins;
  Map lines;     /* (text, form) to Line */
  Map rows;      /* (key, which section and more) to row number */
  Map pairs;     /* two texts to a number for both */
  Map extras;    /* the same for numbers of what has more parts */
  Map lists;     /* (list but its last, last frame) to a number for the list */
  Map places;    /* (what single origins are known by but the module, further traces) to a number */
  Map callsites; /* (callsite, mark) to the first row that has them */
  Map named;     /* an initializer's name to its row */
  Map marks;     /* way to the mark of its last row */
  Map spans;     /* way to the span of its last row, where its lines are the callsite's */
  Map stacks;
  Lines scratch;
  Builder text; /* scratch */
  Map user_files;
  const KnownFrames *known;
  Str root;  /* the folder of installed packages; NULL while none was seen */
  Map shown; /* file to how the table writes it */
  struct {
    uint32_t first, last; /* a row that stands for these known frames; 0: the last row is of another form */
    size_t start;         /* of its text */
  } known_run;
  struct {
    uint32_t file, line, name, parent;
  } last_outer;
  struct {
    uint32_t step, length; /* rows that say "+step"; 0: there is none */
    size_t start;          /* of their text */
  } run;
  uint32_t last_origin_outer, last_origin_module;
};

typedef enum LineForm { TRACE_LINE, STACK_LINE } LineForm; /* "path:line (function)", "path:line in function" */
enum { ROW_FILE, ROW_NAME, ROW_INNER, ROW_CALL, ROW_OUTER, ROW_WAY, ROW_ORIGIN, ROW_PARTS, ROW_ALIKE, ROW_KINDS };

TableWriter *table_writer_new(Context *context) {
  TableWriter *writer = arena_new(&context->arena, TableWriter);
  writer->context = context;
  Section *const sections[] = {&writer->files, &writer->names, &writer->frames, &writer->inner,
                               &writer->calls, &writer->outer, &writer->ways,   &writer->origins};
  for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) builder_init(&sections[i]->rows, context);
  builder_init(&writer->text, context);
  writer->known = known_frames(context);
  return writer;
}

static void **row_slot(TableWriter *writer, int kind, uint64_t first, uint64_t second) {
  return map_slot(writer->context, &writer->rows, first, second * ROW_KINDS + (uint64_t)kind);
}

static uint32_t new_row(Section *section, void **slot) {
  section->count++;
  *slot = (void *)(uintptr_t)section->count;
  return section->count;
}

static void add_number(Builder *row, const char *mark, uint64_t number) {
  builder_add(row, mark);
  builder_add_number(row, number);
}

/* ---- files and names ---- */

static void add_letters(Builder *out, const char *at, const char *end) {
  while (at < end) {
    const char *stop = at;
    while (stop < end && *stop != '\n' && *stop != '\t' && *stop != '\\') stop++;
    builder_add_sized(out, at, (size_t)(stop - at));
    if (stop < end) builder_add(out, *stop == '\n' ? "\\n" : *stop == '\t' ? "\\t" : "\\\\");
    at = stop + 1;
  }
}

/* "\\." stands for nothing: it begins what would be taken for something else. */
static void add_escaped(Builder *out, Str text) {
  size_t length = str_length(text);
  if (!length || (*text >= '0' && *text <= '9') || *text == '@') builder_add(out, "\\.");
  add_letters(out, text, text + length);
}

/* The first path into a folder of installed packages says which one it is. */
static void note_root(TableWriter *writer, Str file) {
  static const char *const folders[] = {"/site-packages/", "/dist-packages/"};
  size_t length = str_length(file);
  for (size_t i = 0; i < sizeof folders / sizeof *folders && !writer->root; i++) {
    const char *found = find_bytes(file, length, folders[i], strlen(folders[i]));
    if (!found) continue;
    writer->root = str_intern_sized(writer->context, file, (size_t)(found - file) + strlen(folders[i]));
  }
}

static bool is_installed(const TableWriter *writer, Str file) {
  size_t length = writer->root ? str_length(writer->root) : 0;
  return length && str_length(file) >= length && same_bytes(file, writer->root, length);
}

/* How a file is written: "@" stands for the folder of installed packages. */
static Str shown_file(TableWriter *writer, Str file) {
  void **slot = map_slot_pointer(writer->context, &writer->shown, file);
  if (*slot) return *slot;
  if (!writer->root) note_root(writer, file);
  Builder *text = &writer->text;
  text->length = 0;
  if (is_installed(writer, file)) {
    builder_add(text, "@");
    add_letters(text, file + str_length(writer->root), file + str_length(file));
  } else {
    add_escaped(text, file);
  }
  Str shown = str_intern_sized(writer->context, builder_text(text), text->length);
  *slot = (void *)(uintptr_t)shown;
  return shown;
}

static uint32_t file_row(TableWriter *writer, Str file) {
  void **slot = row_slot(writer, ROW_FILE, (uint64_t)(uintptr_t)file, 0);
  if (*slot) return (uint32_t)(uintptr_t)*slot;
  Str shown = shown_file(writer, file);
  builder_add_sized(&writer->files.rows, shown, str_length(shown));
  builder_add(&writer->files.rows, "\n");
  return new_row(&writer->files, slot);
}

static uint32_t name_row(TableWriter *writer, Str name) {
  void **slot = row_slot(writer, ROW_NAME, (uint64_t)(uintptr_t)name, 0);
  if (*slot) return (uint32_t)(uintptr_t)*slot;
  add_escaped(&writer->names.rows, name);
  builder_add(&writer->names.rows, "\n");
  return new_row(&writer->names, slot);
}

/* ---- lines ---- */

enum { MAX_DIGITS = 9 };

/* The digits that end at `end` and follow a colon, as a number written in no other way; NULL, or the colon. */
static const char *number_before(const char *start, const char *end, uint32_t *number) {
  const char *digits = end;
  while (digits > start && digits[-1] >= '0' && digits[-1] <= '9') digits--;
  size_t count = (size_t)(end - digits);
  if (!count || count > MAX_DIGITS || (digits[0] == '0' && count > 1)) return NULL;
  if (digits == start || digits[-1] != ':') return NULL;
  *number = 0;
  for (const char *c = digits; c < end; c++) *number = *number * 10 + (uint32_t)(*c - '0');
  return digits - 1;
}

static void parse_line(TableWriter *writer, Line *line, LineForm form, const char *text, size_t length) {
  const char *mark = form == TRACE_LINE ? " (" : " in ";
  size_t mark_size = strlen(mark);
  const char *end = text + length - (form == TRACE_LINE);
  line->name = str_intern_sized(writer->context, text, length);
  if (form == TRACE_LINE && *end != ')') return;
  for (const char *at = end - mark_size; at > text; at--) {
    if (!same_bytes(at, mark, mark_size)) continue;
    const char *colon = number_before(text, at, &line->number);
    if (!colon) return;
    line->file = str_intern_sized(writer->context, text, (size_t)(colon - text));
    line->name = str_intern_sized(writer->context, at + mark_size, (size_t)(end - at) - mark_size);
    return;
  }
}

static Line *line_of_text(TableWriter *writer, LineForm form, Str whole) {
  const char *text = whole;
  size_t length = str_length(whole);
  void **slot = map_slot(writer->context, &writer->lines, (uint64_t)(uintptr_t)whole, form);
  if (!*slot) {
    Line *line = arena_new(&writer->context->arena, Line);
    *slot = line;
    if (length >= 4) parse_line(writer, line, form, text, length);
    else line->name = whole;
  }
  return *slot;
}

static Line *line_of(TableWriter *writer, LineForm form, const char *text, size_t length) {
  return line_of_text(writer, form, str_intern_sized(writer->context, text, length));
}

static void split_lines(TableWriter *writer, LineForm form, const char *text, const char *end, Lines *lines) {
  lines->count = 0;
  if (text == end) return;
  for (;;) {
    const char *stop = find_letter(text, '\n', (size_t)(end - text));
    array_push(writer->context, lines, line_of(writer, form, text, (size_t)((stop ? stop : end) - text)));
    if (!stop) return;
    text = stop + 1;
  }
}

/* Known frames that follow one another are written as one row. */
static void add_known(TableWriter *writer, uint32_t number) {
  Builder *rows = &writer->frames.rows;
  bool goes_on = writer->known_run.first && writer->known_run.last + 1 == number;
  if (goes_on) {
    rows->length = writer->known_run.start;
  } else {
    writer->known_run.first = number;
    writer->known_run.start = rows->length;
  }
  writer->known_run.last = number;
  add_number(rows, "", writer->known_run.first);
  if (goes_on) add_number(rows, "-", number);
  builder_add(rows, "\n");
}

static void add_unknown(TableWriter *writer, const Line *line) {
  Builder *rows = &writer->frames.rows;
  add_escaped(rows, line->name);
  if (line->file) {
    Str file = shown_file(writer, line->file);
    const KnownFrame *known = known_frame_of_file(writer->known, file);
    add_number(rows, "\t", line->number);
    builder_add(rows, " ");
    if (known) builder_add_number(rows, known->number);
    else builder_add_sized(rows, file, str_length(file));
  }
  builder_add(rows, "\n");
}

static void write_frame(TableWriter *writer, const Line *line) {
  Str file = line->file ? shown_file(writer, line->file) : NULL;
  const KnownFrame *known = file ? known_frame(writer->known, file, line->name, line->number) : NULL;
  if (known && known->line == line->number) {
    add_known(writer, known->number);
    return;
  }
  writer->known_run.first = 0;
  if (known) {
    add_number(&writer->frames.rows, "", known->number);
    add_number(&writer->frames.rows, " ", line->number);
    builder_add(&writer->frames.rows, "\n");
  } else {
    add_unknown(writer, line);
  }
}

static uint32_t frame_row(TableWriter *writer, Line *line) {
  if (!line->frame) {
    write_frame(writer, line);
    line->frame = ++writer->frames.count;
  }
  return line->frame;
}

/* ---- traces and stacks ---- */

static uint32_t inner_row(TableWriter *writer, const Lines *lines, size_t count) {
  if (!count) return 0;
  uint64_t list = 0;
  for (size_t i = 0; i < count; i++) {
    void **longer = map_slot(writer->context, &writer->lists, list, frame_row(writer, lines->items[i]));
    if (!*longer) *longer = (void *)(uintptr_t)writer->lists.count;
    list = (uint64_t)(uintptr_t)*longer;
  }
  void **slot = row_slot(writer, ROW_INNER, list, 0);
  if (*slot) return (uint32_t)(uintptr_t)*slot;
  Builder *row = &writer->inner.rows;
  for (size_t i = 0; i < count; i++) {
    uint32_t first = lines->items[i]->frame, last = first;
    add_number(row, i ? " " : "", first);
    while (i + 1 < count && lines->items[i + 1]->frame == last + 1) last = lines->items[++i]->frame;
    if (last > first) add_number(row, "-", last);
  }
  builder_add(row, "\n");
  return new_row(&writer->inner, slot);
}

static uint32_t call_row(TableWriter *writer, Line *line, uint32_t outer) {
  uint32_t frame = frame_row(writer, line);
  void **slot = row_slot(writer, ROW_CALL, frame, outer);
  if (*slot) return (uint32_t)(uintptr_t)*slot;
  add_number(&writer->calls.rows, "", frame);
  add_number(&writer->calls.rows, " ", outer);
  builder_add(&writer->calls.rows, "\n");
  return new_row(&writer->calls, slot);
}

/* The row of a line below or above that of the row before. Steps of the same size are counted in one line. */
static void add_step(TableWriter *writer, uint32_t line) {
  Builder *rows = &writer->outer.rows;
  uint32_t before = writer->last_outer.line, step = line < before ? 0 : line - before;
  bool goes_on = step && step == writer->run.step && writer->run.length && writer->run.length < LONGEST_RUN;
  if (goes_on) {
    rows->length = writer->run.start;
    writer->run.length++;
  } else {
    writer->run.start = rows->length;
    writer->run.step = step;
    writer->run.length = step ? 1 : 0;
  }
  if (line < before) add_number(rows, "-", before - line);
  else add_number(rows, "+", step);
  if (goes_on) add_number(rows, "*", writer->run.length);
  builder_add(rows, "\n");
}

/* A line of the user's, by its parts. */
static void add_own_line(TableWriter *writer, const Line *line, uint32_t parent) {
  uint32_t file = line->file ? file_row(writer, line->file) : 0, name = name_row(writer, line->name);
  uint32_t number = file ? line->number : 0;
  bool similar =
      file && file == writer->last_outer.file && name == writer->last_outer.name && parent == writer->last_outer.parent;
  if (similar) {
    add_step(writer, number);
  } else {
    Builder *row = &writer->outer.rows;
    writer->run.length = 0;
    add_number(row, "", file);
    add_number(row, " ", number);
    add_number(row, " ", name);
    add_number(row, " ", parent);
    builder_add(row, "\n");
  }
  writer->last_outer.file = file;
  writer->last_outer.line = line->number;
  writer->last_outer.name = name;
  writer->last_outer.parent = parent;
}

/* A line of a library between lines of the user's. */
static void add_library_line(TableWriter *writer, Line *line, uint32_t parent) {
  add_number(&writer->outer.rows, "", frame_row(writer, line));
  add_number(&writer->outer.rows, " ", parent);
  builder_add(&writer->outer.rows, "\n");
  writer->run.length = writer->last_outer.file = 0;
}

static uint32_t outer_row(TableWriter *writer, Line *line, uint32_t parent) {
  void **slot = row_slot(writer, ROW_OUTER, (uint64_t)(uintptr_t)line, parent);
  if (*slot) return (uint32_t)(uintptr_t)*slot;
  if (line->file && *shown_file(writer, line->file) == '@') add_library_line(writer, line, parent);
  else add_own_line(writer, line, parent);
  return new_row(&writer->outer, row_slot(writer, ROW_OUTER, (uint64_t)(uintptr_t)line, parent));
}

typedef struct Callsite {
  Str name; /* NULL: not of the form name:number */
  uint32_t number;
} Callsite;

static Callsite parse_callsite(TableWriter *writer, Str text) {
  Callsite callsite = {0};
  const char *colon = number_before(text, text + str_length(text), &callsite.number);
  if (colon) callsite.name = str_intern_sized(writer->context, text, (size_t)(colon - text));
  return callsite;
}

static bool is_at(const Line *line, Callsite callsite) {
  return callsite.name && line->file && line->name == callsite.name && line->number == callsite.number;
}

/* Where the user's part of a trace begins: at the callsite; of a further trace, at the first line in a file that some
 * callsite was in. */
static size_t find_user_line(TableWriter *writer, const Lines *lines, const Callsite *callsite) {
  for (size_t i = 0; callsite && i < lines->count; i++) {
    if (!is_at(lines->items[i], *callsite)) continue;
    *map_slot_pointer(writer->context, &writer->user_files, lines->items[i]->file) = writer;
    return i;
  }
  for (size_t i = 0; i < lines->count; i++) {
    if (lines->items[i]->file && map_get_pointer(&writer->user_files, lines->items[i]->file)) return i;
  }
  return 0;
}

typedef struct Block {
  uint32_t inner, outer;
  uint32_t line; /* of the callsite, when it is at one */
  bool at_callsite;
} Block;

static Block add_lines(TableWriter *writer, const Lines *lines, const Callsite *callsite) {
  size_t split = find_user_line(writer, lines, callsite);
  Block block = {.inner = inner_row(writer, lines, split)};
  block.at_callsite = callsite && split < lines->count && is_at(lines->items[split], *callsite);
  if (block.at_callsite) block.line = callsite->number;
  for (size_t i = lines->count; i-- > split;) block.outer = outer_row(writer, lines->items[i], block.outer);
  return block;
}

static Block add_block(TableWriter *writer, const char *text, const char *end, const Callsite *callsite) {
  split_lines(writer, TRACE_LINE, text, end, &writer->scratch);
  return add_lines(writer, &writer->scratch, callsite);
}

static const Stack *stack_of(TableWriter *writer, Str text) {
  Stack *stack = map_get_pointer(&writer->stacks, text);
  if (stack) return stack;
  stack = arena_new(&writer->context->arena, Stack);
  split_lines(writer, STACK_LINE, text, text + str_length(text), &writer->scratch);
  for (size_t i = 0; i < writer->scratch.count; i++) {
    stack->last = writer->scratch.items[i];
    stack->calls = call_row(writer, writer->scratch.items[i], stack->calls);
  }
  *map_slot_pointer(writer->context, &writer->stacks, text) = stack;
  return stack;
}

static uint32_t way_row(TableWriter *writer, uint32_t inner, uint32_t calls) {
  void **slot = row_slot(writer, ROW_WAY, inner, calls);
  if (*slot) return (uint32_t)(uintptr_t)*slot;
  add_number(&writer->ways.rows, "", inner);
  add_number(&writer->ways.rows, " ", calls);
  builder_add(&writer->ways.rows, "\n");
  return new_row(&writer->ways, slot);
}

/* The factor is the one that tells most of the usual operators apart. */
static char mark_of(const char *name, size_t length) {
  uint32_t sum = 0;
  for (size_t i = 0; i < length; i++) sum = sum * 59 + (unsigned char)name[i];
  return (char)('!' + sum % 94);
}

char operator_mark(Str op_type) { return mark_of(op_type, str_length(op_type)); }

char mark_of_plugin(Str function) {
  static const char ending[] = "Plugin.lower";
  size_t length = function ? str_length(function) : 0, rest = sizeof ending - 1;
  bool is_plugin = length > rest && same_bytes(function + length - rest, ending, rest);
  return is_plugin ? mark_of(function, length - rest) : '\0';
}

static const char *block_end(const char *text, const char *end) {
  const char *stop = find_bytes(text, (size_t)(end - text), "\n\n", 2);
  return stop ? stop : end;
}

typedef struct OriginParts {
  uint32_t way, outer;
  uint32_t callsite, plugin; /* 0: as the trace and the stack say */
  uint32_t line;             /* of the callsite that the trace says */
  uint32_t module, made_of;  /* 0: none */
  Str span, fused_modules;   /* NULL: none */
  char mark;                 /* of the operator; 0: it is of an initializer */
  char usual_mark;           /* of the operator that the plugin is called after; 0: of none */
  bool names_itself;         /* the initializer is called like the first that it was made of */
} OriginParts;

/* An initializer keeps the name of the weight that it was made of, if it is the only one made of it. */
static bool names_itself(const TableWriter *writer, Str made_of, Str name) {
  if (!made_of || !name || map_get_pointer(&writer->named, name)) return false;
  size_t length = str_length(name);
  if (find_letter(name, ',', length)) return false;
  return str_length(made_of) >= length && same_bytes(made_of, name, length) &&
         (!made_of[length] || made_of[length] == ',');
}

static OriginParts origin_parts(TableWriter *writer, OriginTexts texts, Bearer bearer, Block first,
                                const Stack *stack) {
  Callsite plugin = parse_callsite(writer, texts.plugin);
  bool same = stack->last && is_at(stack->last, plugin);
  return (OriginParts){.way = way_row(writer, first.inner, stack->calls),
                       .outer = first.outer,
                       .callsite = first.at_callsite ? 0 : name_row(writer, texts.callsite),
                       .plugin = same ? 0 : name_row(writer, texts.plugin),
                       .line = first.line,
                       .module = texts.module ? name_row(writer, texts.module) : 0,
                       .made_of = texts.made_of ? name_row(writer, texts.made_of) : 0,
                       .span = texts.span,
                       .fused_modules = texts.fused_modules,
                       .mark = bearer.op_type ? operator_mark(bearer.op_type) : '\0',
                       .usual_mark = mark_of_plugin(stack->last ? stack->last->name : NULL),
                       .names_itself = names_itself(writer, texts.made_of, bearer.initializer)};
}

/* Digits written in the one usual way, and what stands after them, which is passed over. */
static bool read_number(const char **at, char after, unsigned *number) {
  const char *digits = *at, *end = digits;
  *number = 0;
  while (*end >= '0' && *end <= '9' && end - digits < MAX_DIGITS) *number = *number * 10 + (unsigned)(*end++ - '0');
  if (end == digits || (*digits == '0' && end - digits > 1) || *end != after) return false;
  *at = end + 1;
  return true;
}

/* Four numbers; lines are counted from 1. */
static bool parse_span(Str text, unsigned span[4]) {
  const char *at = text;
  return read_number(&at, ':', &span[0]) && read_number(&at, '-', &span[1]) && read_number(&at, ':', &span[2]) &&
         read_number(&at, '\0', &span[3]) && at == text + str_length(text) + 1 && span[0] && span[2];
}

/* "column-column" of a span whose lines are the callsite's; NULL for any other. */
static Str columns_of(TableWriter *writer, OriginParts parts) {
  unsigned span[4];
  if (!parse_span(parts.span, span) || span[0] != parts.line || span[2] != parts.line) return NULL;
  Builder *text = &writer->text;
  text->length = 0;
  add_number(text, "", span[1]);
  add_number(text, "-", span[3]);
  return str_intern_sized(writer->context, builder_text(text), text->length);
}

/* The columns of the way's last row are these from now on; NULL: it has none. */
static Str note_span(TableWriter *writer, OriginParts parts) {
  Str columns = parts.span ? columns_of(writer, parts) : NULL;
  if (columns) *map_slot(writer->context, &writer->spans, parts.way, 0) = (void *)(uintptr_t)columns;
  else map_remove(&writer->spans, parts.way, 0);
  return columns;
}

/* A span whose lines are the callsite's is written where it is another than the way's last row had. */
static void write_span(TableWriter *writer, Builder *row, OriginParts parts) {
  unsigned span[4];
  Str before = map_get(&writer->spans, parts.way, 0), columns = note_span(writer, parts);
  if (columns == before && columns) return;
  if (columns) {
    builder_add(row, " s");
    builder_add(row, columns);
  } else if (!parts.span) {
    if (before) builder_add(row, " s");
  } else if (!parse_span(parts.span, span)) {
    add_number(row, " t", name_row(writer, parts.span));
  } else {
    builder_add(row, " s");
    builder_add_sized(row, parts.span, str_length(parts.span));
  }
}

/* That of the way's last row; of its first row, what is usual. */
static char expected_mark(const TableWriter *writer, OriginParts parts) {
  uintptr_t last = (uintptr_t)map_get(&writer->marks, parts.way, 0);
  return last ? (char)(last & 127) : parts.usual_mark;
}

/* The mark of the way's last row is this one from now on. */
static void note_mark(TableWriter *writer, OriginParts parts) {
  enum { HAS_ONE = 128 }; /* none is a mark, too */
  *map_slot(writer->context, &writer->marks, parts.way, 0) = (void *)(uintptr_t)(HAS_ONE | (unsigned char)parts.mark);
}

static void write_mark(TableWriter *writer, Builder *row, OriginParts parts) {
  if (parts.mark != expected_mark(writer, parts)) {
    builder_add(row, " o");
    if (parts.mark) builder_add_sized(row, &parts.mark, 1);
  }
  note_mark(writer, parts);
}

static uint64_t number_of(TableWriter *writer, Map *map, uint64_t first, uint64_t second) {
  void **slot = map_slot(writer->context, map, first, second);
  if (!*slot) *slot = (void *)(uintptr_t)map->count;
  return (uint64_t)(uintptr_t)*slot;
}

static void write_modules(TableWriter *writer, Builder *row, OriginParts parts) {
  if (parts.module != writer->last_origin_module) add_number(row, " m", parts.module);
  writer->last_origin_module = parts.module;
  Str text = parts.fused_modules;
  if (!text) return;
  for (const char *at = text, *end = text + str_length(text);; at++) {
    const char *line = at;
    while (at < end && *at != '\n') at++;
    add_number(row, " f", name_row(writer, str_intern_sized(writer->context, line, (size_t)(at - line))));
    if (at == end) return;
  }
}

static void write_parts(TableWriter *writer, OriginParts parts) {
  Builder *row = &writer->origins.rows;
  add_number(row, "", parts.way);
  if (parts.outer != writer->last_origin_outer + 1) add_number(row, " ", parts.outer);
  if (parts.callsite) add_number(row, " c", parts.callsite);
  if (parts.plugin) add_number(row, " p", parts.plugin);
  write_modules(writer, row, parts);
  write_span(writer, row, parts);
  write_mark(writer, row, parts);
  if (parts.made_of) add_number(row, parts.names_itself ? " W" : " w", parts.made_of);
}

/* The place of what origins that differ only by their module share; further may be NULL. */
static void **alike_slot(TableWriter *writer, OriginParts parts, Str further) {
  uint64_t bearer = (uint64_t)parts.made_of << 32 | (uint64_t)(unsigned char)parts.mark << 1 | parts.names_itself;
  uint64_t more = number_of(writer, &writer->extras, bearer, (uint64_t)(uintptr_t)parts.span);
  uint64_t place = number_of(writer, &writer->extras, (uint64_t)parts.callsite << 32 | parts.plugin, more);
  uint64_t whole = number_of(writer, &writer->places, place, (uint64_t)(uintptr_t)further);
  return row_slot(writer, ROW_ALIKE, (uint64_t)parts.way << 32 | parts.outer, whole);
}

/* The layers of a model have the same origins, each in its own module: all but the first row are short. */
static void write_row(TableWriter *writer, OriginParts parts, Str further) {
  Builder *row = &writer->origins.rows;
  void **alike = alike_slot(writer, parts, further);
  uint32_t before = (uint32_t)(uintptr_t)*alike;
  *alike = (void *)(uintptr_t)++writer->origins.count;
  if (before) {
    add_number(row, "=", writer->origins.count - before);
    write_modules(writer, row, parts);
    note_span(writer, parts);
    note_mark(writer, parts);
  } else {
    write_parts(writer, parts);
    if (further) builder_add_sized(row, further, str_length(further));
  }
  writer->last_origin_outer = parts.outer;
  builder_add(row, "\n");
}

/* One with a single trace is known by its parts. */
static uint32_t add_single(TableWriter *writer, OriginParts parts) {
  uint64_t modules = number_of(writer, &writer->extras, parts.module, (uint64_t)(uintptr_t)parts.fused_modules);
  uint64_t more = number_of(writer, &writer->extras, modules << 32 | parts.made_of, (uint64_t)(uintptr_t)parts.span);
  uint64_t place = number_of(writer, &writer->extras, (uint64_t)parts.callsite << 32 | parts.plugin, more);
  void **slot = row_slot(writer, ROW_PARTS, (uint64_t)parts.way << 32 | parts.outer, place);
  if (*slot) return (uint32_t)(uintptr_t)*slot;
  *slot = (void *)(uintptr_t)(writer->origins.count + 1);
  write_row(writer, parts, NULL);
  return writer->origins.count;
}

/* Further traces; those of inner rows that follow one another, below the same line, are written as one. */
typedef struct Further {
  Builder text;
  size_t start; /* of the last one */
  uint32_t first, last, outer;
} Further;

static void add_further(Further *further, Block block) {
  bool goes_on = further->text.length && block.inner == further->last + 1 && block.outer == further->outer;
  if (goes_on) further->text.length = further->start;
  else further->first = block.inner;
  further->start = further->text.length;
  further->last = block.inner;
  further->outer = block.outer;
  add_number(&further->text, " +", further->first);
  if (goes_on) add_number(&further->text, "-", further->last);
  add_number(&further->text, ",", further->outer);
}

static uint32_t add_merged(TableWriter *writer, OriginParts parts, const char *stop, const char *end) {
  Further further = {0};
  builder_init(&further.text, writer->context);
  while (stop < end) {
    const char *text = stop + 2;
    stop = block_end(text, end);
    add_further(&further, add_block(writer, text, stop, NULL));
  }
  write_row(writer, parts, str_intern_sized(writer->context, builder_text(&further.text), further.text.length));
  return writer->origins.count;
}

/* A number for two texts, so that many need no larger key. */
static uint64_t pair(TableWriter *writer, Str first, Str second) {
  return number_of(writer, &writer->pairs, (uint64_t)(uintptr_t)first, (uint64_t)(uintptr_t)second);
}

static void **origin_slot(TableWriter *writer, OriginTexts texts) {
  uint64_t place = pair(writer, texts.callsite, texts.plugin), trace = pair(writer, texts.stacktrace, texts.traceback);
  uint64_t more = pair(writer, texts.module, texts.span), made_of = pair(writer, texts.made_of, texts.fused_modules);
  return row_slot(writer, ROW_ORIGIN, place << 32 | trace, more << 28 | made_of);
}

/* A row that was written just now. */
static void note_row(TableWriter *writer, Str callsite, Bearer bearer, OriginParts parts) {
  void *row = (void *)(uintptr_t)writer->origins.count;
  void **first = map_slot(writer->context, &writer->callsites, (uint64_t)(uintptr_t)callsite, (uint64_t)parts.mark);
  if (!*first) *first = row;
  if (parts.names_itself) *map_slot_pointer(writer->context, &writer->named, bearer.initializer) = row;
}

bool table_tells(const TableWriter *writer, Str callsite, Bearer bearer, uint32_t row) {
  if (!bearer.op_type) {
    return bearer.initializer && (uintptr_t)map_get_pointer(&writer->named, bearer.initializer) == row;
  }
  uint64_t mark = (uint64_t)operator_mark(bearer.op_type);
  return (uintptr_t)map_get(&writer->callsites, (uint64_t)(uintptr_t)callsite, mark) == row;
}

uint32_t table_add(TableWriter *writer, OriginTexts texts, Bearer bearer) {
  uint32_t number = (uint32_t)(uintptr_t)*origin_slot(writer, texts);
  if (number) return number;
  const char *text = texts.traceback, *end = text + str_length(text), *stop = block_end(text, end);
  Callsite callsite = parse_callsite(writer, texts.callsite);
  Block first = add_block(writer, text, stop, &callsite);
  OriginParts parts = origin_parts(writer, texts, bearer, first, stack_of(writer, texts.stacktrace));
  uint32_t before = writer->origins.count;
  number = stop == end ? add_single(writer, parts) : add_merged(writer, parts, stop, end);
  if (writer->origins.count > before) note_row(writer, texts.callsite, bearer, parts);
  *origin_slot(writer, texts) = (void *)(uintptr_t)number;
  return number;
}

uint32_t table_add_trace(TableWriter *writer, OriginTexts texts, Bearer bearer, const Str *lines, size_t count) {
  writer->scratch.count = 0;
  for (size_t i = 0; i < count; i++) {
    array_push(writer->context, &writer->scratch, line_of_text(writer, TRACE_LINE, lines[i]));
  }
  Callsite callsite = parse_callsite(writer, texts.callsite);
  Block first = add_lines(writer, &writer->scratch, &callsite);
  uint32_t before = writer->origins.count;
  OriginParts parts = origin_parts(writer, texts, bearer, first, stack_of(writer, texts.stacktrace));
  uint32_t number = add_single(writer, parts);
  if (number > before) note_row(writer, texts.callsite, bearer, parts);
  return number;
}

bool table_is_empty(const TableWriter *writer) { return writer->origins.count == 0; }

const char *table_text(TableWriter *writer, size_t *length) {
  const Section *const sections[] = {&writer->files, &writer->names, &writer->frames, &writer->inner,
                                     &writer->calls, &writer->outer, &writer->ways,   &writer->origins};
  Builder out;
  builder_init(&out, writer->context);
  builder_add(&out, TABLE_HEADING);
  if (writer->root) add_letters(&out, writer->root, writer->root + str_length(writer->root));
  builder_add(&out, "\n");
  for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
    builder_add_sized(&out, sections[i]->rows.text, sections[i]->rows.length);
    builder_add(&out, "\n");
  }
  *length = out.length;
  return builder_text(&out);
}
