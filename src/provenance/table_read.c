/* Reading a table of origins. Rows refer only to rows that exist and, within a section, to earlier ones, so no chain
 * has a cycle; what is unfolded in all is bounded, so a small file cannot ask for much memory. */
#include <string.h>

#include "base/array.h"
#include "base/builder.h"
#include "base/bytes.h"
#include "provenance/known_frames.h"
#include "provenance/table.h"

/* A recursion of depth 1,000 asks for 24 MiB; a program of many lines for 50 times its table. */
enum { UNFOLDED_AT_LEAST = 64 << 20, UNFOLDED_PER_BYTE = 256 };

typedef struct Place {
  Str file, name; /* file NULL: a line of another form */
  uint32_t line;
} Place;

typedef struct Link {
  Place place;
  uint32_t outer;
} Link;

typedef struct List {
  const uint32_t *items;
  uint32_t count;
} List;

typedef struct Way {
  uint32_t inner, calls;
} Way;

typedef struct TableOrigin {
  uint32_t way, outer, callsite, plugin;
  uint32_t module, made_of, span_name; /* rows of names; 0: none */
  uint32_t span[4];                    /* lines 0: that of the callsite */
  bool has_span;
  char mark;         /* of the operator; 0: none */
  bool names_itself; /* it is of the initializer that is called like the first of made_of */
  const Way *more;   /* further traces: calls holds the outer row */
  List fused;        /* rows of names: further modules */
  uint32_t more_count;
  bool rendered;
  OriginTexts texts;
} TableOrigin;

struct Table {
  Context *context;
  const char *at, *end;
  const char *start;
  int version;
  size_t unfolded, limit; /* bytes: so far, and at most */
  Builder text;           /* scratch */
  const KnownFrames *known;
  Str root; /* the folder of installed packages */
  Str *files, *names;
  Place *frames;
  List *inner;
  Link *calls; /* only the frame's place is used */
  Str *stacks; /* of each row of calls, once it was needed */
  Link *outer;
  Way *ways;
  TableOrigin *origins;
  uint32_t *last_of_way; /* by way: its last row so far, while they are read */
  Map callsites;         /* (callsite, mark) to the number of the first origin, or of the only one, or SEVERAL */
  Map named;             /* name of an initializer to the number of its origin */
  bool has_callsites, has_names; /* once one was looked for */
  uint32_t file_count, name_count, frame_count, inner_count, call_count, outer_count, way_count, origin_count;
};

static _Noreturn void fail_table(const Table *table, const char *what) {
  fail(table->context, ERROR_FORMAT, "the provenance table is damaged: %s at byte %zu of the table", what,
       (size_t)(table->at - table->start));
}

static void spend(Table *table, size_t bytes) {
  if (bytes > table->limit - table->unfolded) {
    fail(table->context, ERROR_FORMAT, "its expanded traces take more than %zu MiB; allow more with --limit=%zuM",
         table->limit >> 20, (table->limit >> 19) + 1);
  }
  table->unfolded += bytes;
}

/* ---- tokens ---- */

static bool accept(Table *table, char c) {
  if (table->at == table->end || *table->at != c) return false;
  table->at++;
  return true;
}

static void expect(Table *table, char c) {
  if (!accept(table, c)) fail_table(table, c == '\n' ? "missing end of line" : "unexpected text");
}

static bool is_digit(const Table *table) { return table->at < table->end && *table->at >= '0' && *table->at <= '9'; }

static uint32_t read_number(Table *table) {
  uint64_t number = 0;
  const char *start = table->at;
  while (is_digit(table)) {
    number = number * 10 + (uint64_t)(*table->at++ - '0');
    if (number > INT32_MAX) fail_table(table, "number too large");
  }
  if (table->at == start) fail_table(table, "a number is missing");
  return (uint32_t)number;
}

/* A row's number up to the limit; 0 where none is allowed. */
static uint32_t read_row(Table *table, uint32_t least, uint32_t limit) {
  uint32_t row = read_number(table);
  if (row < least || row > limit) fail_table(table, "reference to a row that does not exist");
  return row;
}

/* Sections of version 6 end with an empty line, and have no heading. */
enum { ENDED_SECTIONS = 6 };

static void end_section(Table *table) {
  if (table->version >= ENDED_SECTIONS) expect(table, '\n');
}

/* How many rows the next line stands for: "KNOWN-KNOWN" of frames, "+N*TIMES" of outer. */
static uint32_t rows_of_line(Table *table, bool is_frame, bool is_outer) {
  if (is_outer && accept(table, '+')) {
    read_number(table);
    return accept(table, '*') ? read_number(table) : 1;
  }
  if (!is_frame || !is_digit(table)) return 1;
  uint32_t first = read_number(table), last = accept(table, '-') ? read_number(table) : first;
  if (last < first || last > table->known->count) fail_table(table, "reference to a row that does not exist");
  return last - first + 1;
}

/* The rows up to the empty line, which are not passed over. */
static uint32_t count_rows(Table *table, const char *section) {
  const char *start = table->at;
  bool are_frames = strcmp(section, "frames") == 0, are_outer = strcmp(section, "outer") == 0;
  uint64_t count = 0;
  while (table->at < table->end && *table->at != '\n') {
    count += rows_of_line(table, are_frames, are_outer);
    const char *stop = find_letter(table->at, '\n', (size_t)(table->end - table->at));
    table->at = stop ? stop + 1 : table->end;
  }
  table->at = start;
  if (count > INT32_MAX) fail_table(table, "number too large");
  spend(table, (size_t)count * sizeof(Place));
  return (uint32_t)count;
}

/* Every row has at least its line end, or a part of one. */
static size_t most_rows(const Table *table) {
  size_t left = (size_t)(table->end - table->at);
  return table->version < 3 || left > SIZE_MAX / LONGEST_RUN ? left : left * LONGEST_RUN;
}

static uint32_t read_heading(Table *table, const char *name) {
  if (table->version >= ENDED_SECTIONS) return count_rows(table, name);
  size_t length = strlen(name);
  if ((size_t)(table->end - table->at) < length || !same_bytes(table->at, name, length)) {
    fail_table(table, "a section is missing");
  }
  table->at += length;
  expect(table, ' ');
  uint32_t count = read_number(table);
  expect(table, '\n');
  if (count > most_rows(table)) fail_table(table, "fewer rows than declared");
  return count;
}

static void read_escape(Table *table, Builder *out) {
  if (accept(table, 'n')) builder_add(out, "\n");
  else if (accept(table, '\\')) builder_add(out, "\\");
  else if (accept(table, 't')) builder_add(out, "\t");
  else if (!accept(table, '.')) fail_table(table, "unknown escape");
}

/* The text up to a letter or the end of the row, unescaped, after what `out` holds. */
static Str read_text_up_to(Table *table, Builder *out, char stop) {
  while (table->at < table->end && *table->at != '\n' && *table->at != stop) {
    const char *start = table->at;
    while (table->at < table->end && *table->at != '\n' && *table->at != '\\' && *table->at != stop) table->at++;
    builder_add_sized(out, start, (size_t)(table->at - start));
    if (accept(table, '\\')) read_escape(table, out);
  }
  spend(table, out->length);
  return str_intern_sized(table->context, builder_text(out), out->length);
}

static Str read_text(Table *table, Builder *out) {
  Str text = read_text_up_to(table, out, '\n');
  expect(table, '\n');
  return text;
}

static Str read_path(Table *table, Builder *out) {
  out->length = 0;
  if (accept(table, '@')) builder_add_sized(out, table->root, str_length(table->root));
  return read_text(table, out);
}

/* ---- sections ---- */

#define SECTION(table, heading, field, counter, type)                                       \
  (table)->counter = read_heading((table), (heading));                                      \
  (table)->field = arena_new_array(&(table)->context->arena, (table)->counter + 1ul, type); \
  for (uint32_t row = 1; row <= (table)->counter; row++)

static void read_texts(Table *table) {
  Builder text;
  builder_init(&text, table->context);
  if (table->version >= ENDED_SECTIONS) table->root = read_text(table, &text);
  Str before = str_intern(table->context, "");
  SECTION(table, "files", files, file_count, Str) {
    if (table->version >= ENDED_SECTIONS) {
      table->files[row] = read_path(table, &text);
      continue;
    }
    uint32_t shared = read_number(table);
    expect(table, ' ');
    if (shared > str_length(before)) fail_table(table, "a path shares more than the one before it has");
    text.length = 0;
    builder_add_sized(&text, before, shared);
    table->files[row] = before = read_text(table, &text);
  }
  end_section(table);
  SECTION(table, "names", names, name_count, Str) {
    text.length = 0;
    table->names[row] = read_text(table, &text);
  }
  end_section(table);
}

static Place read_place(Table *table) {
  Place place = {.file = table->files[read_row(table, 0, table->file_count)]};
  expect(table, ' ');
  place.line = read_number(table);
  expect(table, ' ');
  place.name = table->names[read_row(table, 1, table->name_count)];
  return place;
}

/* A row up to the limit, or from one on to another: "FIRST-LAST". The last one. */
static uint32_t read_rows(Table *table, uint32_t least, uint32_t limit, uint32_t *first) {
  *first = read_row(table, least, limit);
  if (table->version < ENDED_SECTIONS || !accept(table, '-')) return *first;
  uint32_t last = read_row(table, *first, limit);
  spend(table, (last - *first) * sizeof(uint32_t));
  return last;
}

static Str known_file(Table *table, Builder *out, KnownText file) {
  bool installed = file.text[0] == '@';
  out->length = 0;
  if (installed) builder_add_sized(out, table->root, str_length(table->root));
  builder_add_sized(out, file.text + installed, file.length - installed);
  spend(table, out->length);
  return str_intern_sized(table->context, builder_text(out), out->length);
}

static Place known_place(Table *table, Builder *out, uint32_t number) {
  const KnownFrame *known = table->known->by_number[number];
  Str name = str_intern_sized(table->context, known->name.text, known->name.length);
  return (Place){known_file(table, out, known->file), name, known->line};
}

/* KNOWN, KNOWN-KNOWN or KNOWN LINE: how many rows it is. */
static uint32_t read_known_frames(Table *table, Builder *out, Place *places) {
  uint32_t first, last = read_rows(table, 1, table->known->count, &first);
  for (uint32_t i = 0; i <= last - first; i++) places[i] = known_place(table, out, first + i);
  if (accept(table, ' ')) places[last - first].line = read_number(table);
  expect(table, '\n');
  return last - first + 1;
}

/* NAME<TAB>LINE PATH, or NAME alone. */
static Place read_other_frame(Table *table, Builder *out) {
  out->length = 0;
  Place place = {.name = read_text_up_to(table, out, '\t')};
  if (!accept(table, '\t')) {
    expect(table, '\n');
    return place;
  }
  place.line = read_number(table);
  expect(table, ' ');
  if (!is_digit(table)) {
    place.file = read_path(table, out);
    return place;
  }
  place.file = known_file(table, out, table->known->by_number[read_row(table, 1, table->known->count)]->file);
  expect(table, '\n');
  return place;
}

static void read_frames(Table *table) {
  Builder text;
  builder_init(&text, table->context);
  SECTION(table, "frames", frames, frame_count, Place) {
    if (table->version < ENDED_SECTIONS) {
      table->frames[row] = read_place(table);
      expect(table, '\n');
    } else if (is_digit(table)) {
      row += read_known_frames(table, &text, &table->frames[row]) - 1;
    } else {
      table->frames[row] = read_other_frame(table, &text);
    }
  }
  end_section(table);
}

static void read_chains(Table *table) {
  SECTION(table, "inner", inner, inner_count, List) {
    ARRAY(uint32_t) list = {0};
    do {
      uint32_t frame, last = read_rows(table, 1, table->frame_count, &frame);
      for (; frame <= last; frame++) array_push(table->context, &list, frame);
    } while (accept(table, ' '));
    expect(table, '\n');
    table->inner[row] = (List){list.items, (uint32_t)list.count};
  }
  end_section(table);
  SECTION(table, "calls", calls, call_count, Link) {
    table->calls[row].place = table->frames[read_row(table, 1, table->frame_count)];
    expect(table, ' ');
    table->calls[row].outer = read_row(table, 0, row - 1);
    expect(table, '\n');
  }
  end_section(table);
}

/* A line like that of the row before, so many lines below or above it. */
static Link stepped(const Table *table, Link link, uint32_t step, bool up) {
  if (up && step > link.place.line) fail_table(table, "line number without a base");
  link.place.line = up ? link.place.line - step : link.place.line + step;
  if (link.place.line > INT32_MAX) fail_table(table, "number too large");
  return link;
}

/* "FILE LINE NAME OUTER", or, of a library, "FRAME OUTER". */
static Link read_link(Table *table, uint32_t row) {
  const char *start = table->at;
  if (table->version >= ENDED_SECTIONS) {
    uint32_t frame = read_number(table);
    expect(table, ' ');
    uint32_t outer = read_number(table);
    if (table->at < table->end && *table->at == '\n') {
      if (!frame || frame > table->frame_count || outer >= row) {
        fail_table(table, "reference to a row that does not exist");
      }
      return (Link){table->frames[frame], outer};
    }
    table->at = start;
  }
  Link link = {.place = read_place(table)};
  expect(table, ' ');
  link.outer = read_row(table, 0, row - 1);
  return link;
}

static void read_outer(Table *table) {
  SECTION(table, "outer", outer, outer_count, Link) {
    Link *link = &table->outer[row];
    bool down = accept(table, '+'), up = !down && accept(table, '-');
    if (down || up) {
      if (row == 1) fail_table(table, "line number without a base");
      uint32_t step = read_number(table), times = 1;
      if (down && table->version > 2 && accept(table, '*')) times = read_number(table);
      if (!times || times > LONGEST_RUN || times - 1 > table->outer_count - row) fail_table(table, "too many rows");
      *link = stepped(table, link[-1], step, up);
      for (; times > 1; times--, row++, link++) link[1] = stepped(table, *link, step, up);
    } else {
      *link = read_link(table, row);
    }
    expect(table, '\n');
  }
  end_section(table);
}

/* COLUMN-COLUMN, or LINE:COLUMN-LINE:COLUMN. */
static void read_span(Table *table, uint32_t span[4]) {
  uint32_t first = read_number(table);
  bool with_lines = accept(table, ':');
  if (with_lines) span[0] = first;
  span[1] = with_lines ? read_number(table) : first;
  expect(table, '-');
  span[2] = with_lines ? read_number(table) : 0;
  if (with_lines) expect(table, ':');
  span[3] = read_number(table);
}

/* What came with the fifth version of the table. False: the next letter means something else. */
static bool read_bearer(Table *table, TableOrigin *origin) {
  if (accept(table, 'W')) {
    origin->made_of = read_row(table, 1, table->name_count);
    origin->names_itself = true;
    return true;
  }
  if (!accept(table, 'o')) return false;
  bool has_mark = table->at < table->end && *table->at > ' ' && *table->at <= '~';
  origin->mark = has_mark ? *table->at++ : '\0';
  return true;
}

/* What came with the second version of the table. False: the next letter means something else. */
static bool read_addition(Table *table, TableOrigin *origin) {
  if (accept(table, 'm')) {
    origin->module = read_row(table, 0, table->name_count);
  } else if (accept(table, 's')) {
    memset(origin->span, 0, sizeof origin->span);
    origin->has_span = table->version < 3 || is_digit(table);
    if (origin->has_span) read_span(table, origin->span);
  } else if (accept(table, 't')) {
    origin->has_span = false;
    origin->span_name = read_row(table, 1, table->name_count);
  } else if (accept(table, 'w')) {
    origin->made_of = read_row(table, 1, table->name_count);
  } else {
    return table->version > 4 && read_bearer(table, origin);
  }
  return true;
}

/* Where a row of the same way had columns alone, this one has the same, unless it says otherwise; likewise the mark. */
static void repeat_of_way(const Table *table, TableOrigin *origin) {
  uint32_t last = table->last_of_way[origin->way];
  const TableOrigin *before = &table->origins[last];
  if (table->version > 4) origin->mark = before->mark;
  if (table->version > 5 && !last)
    origin->mark = mark_of_plugin(table->calls[table->ways[origin->way].calls].place.name);
  if (!before->has_span || before->span[0]) return;
  origin->has_span = true;
  memcpy(origin->span, before->span, sizeof origin->span);
}

typedef ARRAY(uint32_t) Rows;

/* False: the next letter means something else. */
static bool read_fused(Table *table, Rows *fused) {
  if (table->version < 4 || !accept(table, 'f')) return false;
  array_push(table->context, fused, read_row(table, 1, table->name_count));
  return true;
}

/* All but the modules is that of an earlier row. */
static void repeat_origin(Table *table, uint32_t row, uint32_t module) {
  Rows fused = {0};
  TableOrigin *origin = &table->origins[row];
  *origin = table->origins[row - read_row(table, 1, row - 1)];
  origin->module = module;
  while (accept(table, ' ')) {
    if (read_fused(table, &fused)) continue;
    expect(table, 'm');
    origin->module = read_row(table, 0, table->name_count);
  }
  expect(table, '\n');
  origin->fused = (List){fused.items, (uint32_t)fused.count};
}

static void read_origin(Table *table, uint32_t row, uint32_t outer, uint32_t module) {
  ARRAY(Way) more = {0};
  Rows fused = {0};
  TableOrigin *origin = &table->origins[row];
  if (table->version > 2 && accept(table, '=')) {
    repeat_origin(table, row, module);
    return;
  }
  origin->way = read_row(table, 1, table->way_count);
  origin->outer = outer;
  origin->module = module;
  if (table->version > 2) repeat_of_way(table, origin);
  while (accept(table, ' ')) {
    if (accept(table, 'c')) {
      origin->callsite = read_row(table, 1, table->name_count);
    } else if (accept(table, 'p')) {
      origin->plugin = read_row(table, 1, table->name_count);
    } else if (accept(table, '+')) {
      uint32_t inner, last = read_rows(table, 0, table->inner_count, &inner);
      expect(table, ',');
      uint32_t calls = read_row(table, 0, table->outer_count);
      for (; inner <= last; inner++) array_push(table->context, &more, ((Way){inner, calls}));
    } else if (!(table->version > 1 && read_addition(table, origin)) && !read_fused(table, &fused)) {
      origin->outer = read_row(table, 0, table->outer_count);
    }
  }
  expect(table, '\n');
  if (origin->outer > table->outer_count) fail_table(table, "reference to a row that does not exist");
  origin->more = more.items;
  origin->more_count = (uint32_t)more.count;
  origin->fused = (List){fused.items, (uint32_t)fused.count};
}

static void read_origins(Table *table) {
  SECTION(table, "ways", ways, way_count, Way) {
    table->ways[row].inner = read_row(table, 0, table->inner_count);
    expect(table, ' ');
    table->ways[row].calls = read_row(table, 0, table->call_count);
    expect(table, '\n');
  }
  end_section(table);
  uint32_t outer = 0, module = 0;
  table->last_of_way = arena_new_array(&table->context->arena, table->way_count + 1ul, uint32_t);
  SECTION(table, "origins", origins, origin_count, TableOrigin) {
    read_origin(table, row, outer + 1, module);
    outer = table->origins[row].outer;
    module = table->origins[row].module;
    table->last_of_way[table->origins[row].way] = row;
  }
  end_section(table);
}

Table *table_read(Context *context, const char *text, size_t length, size_t limit) {
  if (!length) text = ""; /* an entry without a value */
  Table *table = arena_new(&context->arena, Table);
  *table = (Table){.context = context, .at = text, .start = text, .end = text + length, .limit = limit};
  if (!limit && __builtin_mul_overflow(length, (size_t)UNFOLDED_PER_BYTE, &table->limit)) table->limit = SIZE_MAX;
  if (!limit && table->limit < UNFOLDED_AT_LEAST) table->limit = UNFOLDED_AT_LEAST;
  builder_init(&table->text, context);
  size_t heading = strlen(TABLE_HEADING), number = heading - 2;
  bool known = length >= heading && same_bytes(text, TABLE_HEADING, number) && text[number + 1] == '\n';
  if (known && text[number] > '0' && text[number] <= '0' + TABLE_VERSION) table->version = text[number] - '0';
  if (!table->version) {
    fail(context, ERROR_FORMAT, "the provenance table has a format that this version does not support");
  }
  table->at += heading;
  if (table->version >= ENDED_SECTIONS) table->known = known_frames(context);
  read_texts(table);
  read_frames(table);
  read_chains(table);
  read_outer(table);
  read_origins(table);
  if (table->at != table->end) fail_table(table, "something follows");
  table->stacks = arena_new_array(&context->arena, table->call_count + 1ul, Str);
  return table;
}

/* ---- unfolding ---- */

typedef enum LineForm { TRACE_LINE, STACK_LINE } LineForm;

static void add_line(Table *table, Builder *out, Place place, LineForm form, bool first) {
  size_t before = out->length;
  if (!first) builder_add_sized(out, "\n", 1);
  if (place.file) {
    builder_add_sized(out, place.file, str_length(place.file));
    builder_add_sized(out, ":", 1);
    builder_add_number(out, place.line);
    builder_add(out, form == TRACE_LINE ? " (" : " in ");
  }
  builder_add_sized(out, place.name, str_length(place.name));
  if (place.file && form == TRACE_LINE) builder_add_sized(out, ")", 1);
  spend(table, out->length - before);
}

static void add_trace(Table *table, Builder *out, uint32_t inner, uint32_t outer) {
  bool first = true;
  List list = table->inner[inner];
  for (uint32_t i = 0; i < list.count; i++, first = false) {
    add_line(table, out, table->frames[list.items[i]], TRACE_LINE, first);
  }
  for (; outer; outer = table->outer[outer].outer, first = false) {
    add_line(table, out, table->outer[outer].place, TRACE_LINE, first);
  }
}

/* Many origins share a stack: each is written out once. */
static Str stack_text(Table *table, Builder *out, uint32_t calls) {
  Str *known = &table->stacks[calls];
  if (*known) return *known;
  ARRAY(uint32_t) rows = {0};
  for (uint32_t row = calls; row; row = table->calls[row].outer) {
    spend(table, sizeof row);
    array_push(table->context, &rows, row);
  }
  out->length = 0;
  for (size_t i = rows.count; i--;) {
    add_line(table, out, table->calls[rows.items[i]].place, STACK_LINE, i + 1 == rows.count);
  }
  *known = str_intern_sized(table->context, builder_text(out), out->length);
  return *known;
}

/* "name:line", or the text that was given instead. */
static Str place_text(Table *table, Builder *out, uint32_t name, const Link *link) {
  if (name) return table->names[name];
  out->length = 0;
  Str function = link->place.name;
  if (function) builder_add_sized(out, function, str_length(function));
  builder_add_sized(out, ":", 1);
  builder_add_number(out, link->place.line);
  spend(table, out->length);
  return str_intern_sized(table->context, builder_text(out), out->length);
}

static Str span_text(Table *table, Builder *out, const TableOrigin *origin) {
  if (origin->span_name) return table->names[origin->span_name];
  if (!origin->has_span) return NULL;
  uint32_t line = table->outer[origin->outer].place.line;
  const uint32_t *span = origin->span;
  const uint32_t numbers[] = {span[0] ? span[0] : line, span[1], span[2] ? span[2] : line, span[3]};
  out->length = 0;
  for (int i = 0; i < 4; i++) {
    if (i) builder_add_sized(out, i == 2 ? "-" : ":", 1);
    builder_add_number(out, numbers[i]);
  }
  return str_intern_sized(table->context, builder_text(out), out->length);
}

static Str fused_text(Table *table, Builder *out, List fused) {
  if (!fused.count) return NULL;
  out->length = 0;
  for (uint32_t i = 0; i < fused.count; i++) {
    Str name = table->names[fused.items[i]];
    if (i) builder_add_sized(out, "\n", 1);
    builder_add_sized(out, name, str_length(name));
  }
  spend(table, out->length);
  return str_intern_sized(table->context, builder_text(out), out->length);
}

static void render(Table *table, TableOrigin *origin) {
  Context *context = table->context;
  Builder *out = &table->text;
  Way way = table->ways[origin->way];
  out->length = 0;
  add_trace(table, out, way.inner, origin->outer);
  for (uint32_t i = 0; i < origin->more_count; i++) {
    builder_add(out, "\n\n");
    add_trace(table, out, origin->more[i].inner, origin->more[i].calls);
  }
  origin->texts.traceback = str_intern_sized(context, builder_text(out), out->length);
  origin->texts.stacktrace = stack_text(table, out, way.calls);
  origin->texts.callsite = place_text(table, out, origin->callsite, &table->outer[origin->outer]);
  origin->texts.plugin = place_text(table, out, origin->plugin, &table->calls[way.calls]);
  if (origin->module) origin->texts.module = table->names[origin->module];
  if (origin->made_of) origin->texts.made_of = table->names[origin->made_of];
  origin->texts.span = span_text(table, out, origin);
  origin->texts.fused_modules = fused_text(table, out, origin->fused);
  origin->rendered = true;
}

bool table_get(Table *table, uint64_t number, OriginTexts *texts) {
  if (number < 1 || number > table->origin_count) return false;
  TableOrigin *origin = &table->origins[number];
  if (!origin->rendered) render(table, origin);
  *texts = origin->texts;
  return true;
}

/* ---- by callsite ---- */

static void *const SEVERAL = (void *)UINTPTR_MAX;

static void find_callsites(Table *table) {
  table->has_callsites = true;
  for (uint32_t row = 1; row <= table->origin_count; row++) {
    const TableOrigin *origin = &table->origins[row];
    Str callsite = place_text(table, &table->text, origin->callsite, &table->outer[origin->outer]);
    void **slot = map_slot_pointer(table->context, &table->callsites, callsite);
    if (!*slot) *slot = (void *)(uintptr_t)row;
    else if (table->version < 4) *slot = SEVERAL;
    if (!origin->mark) continue;
    slot = map_slot(table->context, &table->callsites, (uint64_t)(uintptr_t)callsite, (uint64_t)origin->mark);
    if (!*slot) *slot = (void *)(uintptr_t)row;
  }
}

uint32_t table_row_of_node(Table *table, Str callsite, Str op_type) {
  if (table->version < 3) return 0;
  if (!table->has_callsites) find_callsites(table);
  uint64_t mark = (uint64_t)operator_mark(op_type);
  void *found = map_get(&table->callsites, (uint64_t)(uintptr_t)callsite, mark);
  if (!found) found = map_get_pointer(&table->callsites, callsite);
  return found == SEVERAL ? 0 : (uint32_t)(uintptr_t)found;
}

/* ---- by name ---- */

static void find_names(Table *table) {
  table->has_names = true;
  for (uint32_t row = 1; row <= table->origin_count; row++) {
    const TableOrigin *origin = &table->origins[row];
    if (!origin->names_itself) continue;
    Str made_of = table->names[origin->made_of];
    const char *comma = find_letter(made_of, ',', str_length(made_of));
    Str name = comma ? str_intern_sized(table->context, made_of, (size_t)(comma - made_of)) : made_of;
    *map_slot_pointer(table->context, &table->named, name) = (void *)(uintptr_t)row;
  }
}

uint32_t table_row_of_initializer(Table *table, Str name) {
  if (!table->has_names) find_names(table);
  return (uint32_t)(uintptr_t)map_get_pointer(&table->named, name);
}
