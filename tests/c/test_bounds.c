/* What reading costs at most: files that hold as much as can be of one thing in as few bytes as possible, through every
 * command. Memory and time are held to a multiple of the file's size and of what was written. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/builder.h"
#include "test.h"
#include "tool/tool.h"

enum {
  FILE_SIZE = 24 << 10,
  MEMORY_PER_BYTE = 640, /* SECURITY.md states both */
  MEMORY_OF_A_PAGE = 2048,
  MEMORY_PER_WRITTEN = 8,
  MEMORY_AT_LEAST = 8 << 20,    /* memory is taken in steps of 2 MiB; packing takes as much */
  NANOSECONDS_PER_BYTE = 20000, /* under sanitizers, on a busy machine */
  NANOSECONDS_PER_WRITTEN = 1000,
  NANOSECONDS_AT_LEAST = 200000000,
};

/* ---- making files ---- */

static void put_size(Builder *out, size_t number) {
  for (; number > 0x7F; number >>= 7) builder_add_sized(out, &(char){(char)(number | 0x80)}, 1);
  builder_add_sized(out, &(char){(char)number}, 1);
}

static void put_part(Builder *out, int field, const char *bytes, size_t size) {
  put_size(out, (size_t)field << 3 | 2);
  put_size(out, size);
  builder_add_sized(out, bytes, size);
}

static void put_words(Builder *out, int field, const char *text) { put_part(out, field, text, strlen(text)); }

static void put_inside(Builder *out, int field, Builder *message) {
  put_part(out, field, builder_text(message), message->length);
  message->length = 0;
}

typedef struct Dense {
  const char *name;
  int path[4];      /* fields of the messages around, from the model inwards; 0 ends it */
  const char *head; /* bytes in front, in the innermost message */
  const char *unit; /* bytes that are repeated; # is a number that counts them */
  size_t unit_size; /* 0: its length */
} Dense;

#define BYTES(text) text, sizeof text - 1

static const Dense dense[] = {
    {"nodes", {7}, "", BYTES("\x0a\x00")},
    {"nodes with an operator", {7}, "", BYTES("\x0a\x03\x22\x01S")},
    {"nodes with an attribute", {7}, "", BYTES("\x0a\x02\x2a\x00")},
    {"nodes with an integer", {7}, "", BYTES("\x0a\x04\x2a\x02\x40\x01")},
    {"nodes with an input", {7}, "", BYTES("\x0a\x03\x0a\x01x")},
    {"nodes with an output", {7}, "", BYTES("\x0a\x03\x12\x01x")},
    {"nodes with metadata", {7}, "", BYTES("\x0a\x02\x4a\x00")},
    {"nodes with outputs of their own", {7}, "", BYTES("\x0a\x08\x12\x06######")},
    {"nodes with names of their own", {7}, "", BYTES("\x0a\x08\x1a\x06######")},
    {"nodes of operators of their own", {7}, "", BYTES("\x0a\x08\x22\x06######")},
    {"nodes with a body", {7}, "", BYTES("\x0a\x07\x2a\x05\x32\x00\xa0\x01\x05")},
    {"nodes with a tensor", {7}, "", BYTES("\x0a\x07\x2a\x05\x2a\x00\xa0\x01\x04")},
    {"nodes with a callsite",
     {7},
     "",
     BYTES("\x0a\x24\x4a\x22\x0a\x15pkg.jax2onnx.callsite\x12\x09"
           "f:1######")},
    {"attributes", {7, 1}, "", BYTES("\x2a\x00")},
    {"attributes with names", {7, 1}, "", BYTES("\x2a\x08\x0a\x06######")},
    {"attributes that are lists", {7, 1}, "", BYTES("\x2a\x03\x42\x01\x01")},
    {"integers", {7, 1, 5}, "", BYTES("\x40\x01")},
    {"packed integers", {7, 1, 5}, "", BYTES("\x42\x04\x01\x01\x01\x01")},
    {"strings", {7, 1, 5}, "", BYTES("\x4a\x00")},
    {"inputs of a node", {7, 1}, "", BYTES("\x0a\x00")},
    {"named inputs of a node", {7, 1}, "", BYTES("\x0a\x06######")},
    {"outputs of a node", {7, 1}, "", BYTES("\x12\x00")},
    {"named outputs of a node", {7, 1}, "", BYTES("\x12\x06######")},
    {"metadata of a node", {7, 1}, "", BYTES("\x4a\x00")},
    {"namespaces of a node", {7, 1}, "", BYTES("\x4a\x0b\x0a\x09namespace")},
    {"references of a node",
     {7, 1},
     "",
     BYTES("\x4a\x08\x0a\x03j2o\x12\x01"
           "1")},
    {"inputs", {7}, "", BYTES("\x5a\x00")},
    {"named inputs", {7}, "", BYTES("\x5a\x08\x0a\x06######")},
    {"outputs", {7}, "", BYTES("\x62\x00")},
    {"named outputs", {7}, "", BYTES("\x62\x08\x0a\x06######")},
    {"types", {7}, "", BYTES("\x6a\x02\x12\x00")},
    {"initializers", {7}, "", BYTES("\x2a\x00")},
    {"initializers with a shape", {7}, "", BYTES("\x2a\x02\x08\x01")},
    {"initializers with names", {7}, "", BYTES("\x2a\x08\x42\x06######")},
    {"initializers with metadata", {7}, "", BYTES("\x2a\x03\x82\x01\x00")},
    {"external initializers", {7}, "", BYTES("\x2a\x04\x70\x01\x08\x01")},
    {"dimensions of a tensor", {7, 5}, "", BYTES("\x08\x01")},
    {"numbers of a tensor", {7, 5}, "\x10\x07", BYTES("\x38\x01")},
    {"strings of a tensor", {7, 5}, "\x10\x08", BYTES("\x32\x00")},
    {"external entries", {7, 5}, "", BYTES("\x6a\x00")},
    {"sparse initializers", {7}, "", BYTES("\x7a\x00")},
    {"functions", {0}, "\x3a\x00", BYTES("\xca\x01\x00")},
    {"functions with a node", {0}, "\x3a\x00", BYTES("\xca\x01\x02\x3a\x00")},
    {"nodes of a function", {25}, "", BYTES("\x3a\x00")},
    {"attributes of a function", {25}, "", BYTES("\x32\x00")},
    {"defaults of a function", {25}, "", BYTES("\x5a\x00")},
    {"operator sets", {0}, "\x3a\x00", BYTES("\x42\x00")},
    {"metadata", {0}, "\x3a\x00", BYTES("\x72\x00")},
    {"groups", {7}, "", BYTES("\x0b\x0c")},
    {"unknown fields", {7}, "", BYTES("\xa0\x06\x01")},
};

static void put_unit(Builder *out, const Dense *kind, size_t number) {
  for (size_t i = 0; i < kind->unit_size; i++) {
    char c = kind->unit[i];
    if (c == '#') {
      c = (char)('a' + number % 26);
      number /= 26;
    }
    builder_add_sized(out, &c, 1);
  }
}

static void make_dense(Builder *file, const Dense *kind) {
  Context *context = file->context;
  Builder messages[5];
  int depth = 0;
  while (kind->path[depth]) depth++;
  for (int i = 0; i <= depth; i++) builder_init(&messages[i], context);
  Builder *inner = &messages[depth];
  builder_add(inner, kind->head);
  for (size_t i = 0; inner->length < FILE_SIZE; i++) put_unit(inner, kind, i);
  for (int i = depth; i > 0; i--) put_inside(&messages[i - 1], kind->path[i - 1], &messages[i]);
  builder_add_sized(file, "\x08\x0a", 2);
  builder_add_sized(file, messages[0].text, messages[0].length);
  if (depth && kind->path[0] == 25) builder_add_sized(file, "\x3a\x00", 2);
}

/* A value of an outer graph, used in the innermost of many. */
static void make_nested(Builder *file) {
  Context *context = file->context;
  Builder graph, node, attribute;
  builder_init(&graph, context);
  builder_init(&node, context);
  builder_init(&attribute, context);
  while (graph.length < FILE_SIZE) put_part(&graph, 1, BYTES("\x0a\x01x"));
  for (int depth = 0; depth < 60; depth++) {
    put_inside(&attribute, 6, &graph);
    builder_add_sized(&attribute, "\xa0\x01\x05", 3);
    put_inside(&node, 5, &attribute);
    put_inside(&graph, 1, &node);
  }
  put_part(&graph, 11, BYTES("\x0a\x01x"));
  builder_add_sized(file, "\x08\x0a", 2);
  put_inside(file, 7, &graph);
}

/* ---- compact models ---- */

typedef struct TableKind {
  const char *name;
  void (*make)(Builder *table, size_t rows);
  bool one_origin; /* of all nodes; else each has its own */
} TableKind;

static void put_rows(Builder *table, const char *heading, size_t count, const char *first, const char *others) {
  builder_format(table, "%s %zu\n", heading, count);
  for (size_t i = 0; i < count; i++) builder_format(table, "%s\n", i && others ? others : first);
}

/* One call inside the other: the last origin has a trace as long as there are rows. */
static void make_chain(Builder *table, size_t rows) {
  builder_add(table, "j2o origins 1\nfiles 1\n0 model.py\nnames 1\nf\nframes 0\ninner 0\ncalls 0\n");
  builder_format(table, "outer %zu\n1 1 1 0\n", rows);
  for (size_t i = 1; i < rows; i++) builder_format(table, "1 1 1 %zu\n", i);
  builder_add(table, "ways 1\n0 0\n");
  put_rows(table, "origins", rows, "1", NULL);
}

/* Paths that share all of the first, which is long. */
static void make_prefixes(Builder *table, size_t rows) {
  builder_format(table, "j2o origins 1\nfiles %zu\n0 ", rows);
  for (size_t i = 0; i < rows * 4; i++) builder_add(table, "a");
  builder_add(table, "\n");
  for (size_t i = 1; i < rows; i++) builder_format(table, "%zu %c\n", rows * 4 - 1, (char)('a' + i % 26));
  builder_add(table, "names 1\nf\nframes 0\ninner 0\ncalls 0\nouter 0\nways 1\n0 0\norigins 1\n1 0\n");
}

/* A function with a long name on many lines. */
static void make_long_names(Builder *table, size_t rows) {
  builder_add(table, "j2o origins 1\nfiles 1\n0 m.py\nnames 1\n");
  for (size_t i = 0; i < rows * 4; i++) builder_add(table, "f");
  builder_add(table, "\nframes 0\ninner 0\ncalls 0\n");
  put_rows(table, "outer", rows, "1 1 1 0", "+1");
  builder_add(table, "ways 1\n0 0\n");
  put_rows(table, "origins", rows, "1", NULL);
}

static const TableKind tables[] = {
    {"a chain, one origin", make_chain, true},
    {"a chain, an origin each", make_chain, false},
    {"prefixes", make_prefixes, true},
    {"long names, one origin", make_long_names, true},
    {"long names, an origin each", make_long_names, false},
};

static void make_compact(Builder *file, const TableKind *kind, size_t rows) {
  Context *context = file->context;
  Builder graph, node, entry, table;
  Builder *const all[] = {&graph, &node, &entry, &table};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) builder_init(all[i], context);
  kind->make(&table, rows);
  for (size_t i = 0; i < rows; i++) {
    put_words(&entry, 1, "j2o");
    put_words(&entry, 2, arena_format(&context->arena, "%zu", kind->one_origin ? (size_t)1 : i + 1));
    put_inside(&node, 9, &entry);
    put_inside(&graph, 1, &node);
  }
  builder_add_sized(file, "\x08\x0a", 2);
  put_inside(file, 7, &graph);
  put_words(&entry, 1, "pkg.jax2onnx.provenance");
  put_part(&entry, 2, table.text, table.length);
  put_inside(file, 14, &entry);
}

/* ---- measuring ---- */

typedef struct Files {
  char model[512], result[528];
} Files;

static Files write_files(const Builder *file) {
  Files files;
  const char *folder = getenv("TMPDIR");
  snprintf(files.model, sizeof files.model, "%s/j2o_bounds_XXXXXX", folder && *folder ? folder : P_tmpdir);
  int descriptor = mkstemp(files.model);
  CHECK(descriptor >= 0 && write(descriptor, file->text, file->length) == (ssize_t)file->length);
  close(descriptor);
  snprintf(files.result, sizeof files.result, "%s.out", files.model);
  return files;
}

static uint64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static const char *const commands[][8] = {
    {"inspect", "@m", "--full"},
    {"inspect", "@m", "--json"},
    {"inspect", "@m", "--summary"},
    {"inspect", "@m", "--op", "S"},
    {"blame", "@m"},
    {"locate", "@m", "x"},
    {"diff", "@m", "@m"},
    {"diff", "@m", "@m", "--weights"},
    {"stats", "@m"},
    {"text", "@m"},
    {"strip", "@m", "-o", "@r"},
    {"strip", "@m", "-o", "@r", "--all"},
    {"compact", "@m", "-o", "@r"},
    {"expand", "@m", "-o", "@r"},
    {"report", "@m", "-o", "@r"},
    {"check", "@m"},
    {"check", "@m", "--json"},
    {"check", "@m", "--target", "portable"},
    {"fill", "@m", "--from", "@m", "-o", "@r"},
    {"join", "@m", "--sidecar", "@m", "-o", "@r"},
    {"stats", "@m", "--provenance"},
    {"graft", "@m", "@m", "-o", "@r"},
    {"graft", "@m", "@m", "--map"},
    {"inspect", "@m", "--original", "@m"},
    {"split", "@m", "-o", "@r", "--sidecar", "/dev/null"},
    {"locate", "@m", "--line", "f:3"},
    {"blame", "@m", "--module", "a", "--inclusive"},
};

static void run_bounded(const char *name, const char *const *words, Files *files, size_t size, size_t allowed) {
  char *arguments[10] = {"j2o"};
  int count = 1;
  size_t inputs = 0;
  for (; words[count - 1]; count++) {
    const char *word = words[count - 1];
    inputs += strcmp(word, "@m") == 0;
    arguments[count] = strcmp(word, "@m") == 0   ? files->model
                       : strcmp(word, "@r") == 0 ? files->result
                                                 : (char *)(uintptr_t)word;
  }
  FILE *out = fopen("/dev/null", "w"), *err = fopen("/dev/null", "w");
  ToolCosts costs;
  uint64_t start = nanoseconds();
  int code = tool_run(count, arguments, out, err, NULL, &costs);
  uint64_t took = nanoseconds() - start;
  fclose(out);
  fclose(err);
  unlink(files->result);
  uint64_t written = costs.written;
  size_t per_byte = strcmp(words[0], "report") == 0 ? MEMORY_OF_A_PAGE : MEMORY_PER_BYTE;
  bool bounded = costs.memory <= inputs * size * per_byte + written * MEMORY_PER_WRITTEN + MEMORY_AT_LEAST + allowed;
  bool quick = took <= inputs * size * NANOSECONDS_PER_BYTE + written * NANOSECONDS_PER_WRITTEN + NANOSECONDS_AT_LEAST +
                           allowed * 100;
  CHECK(bounded);
  CHECK(quick);
  CHECK(code >= EXIT_OK && code <= EXIT_TROUBLE);
  if (bounded && quick && !getenv("SHOW_COSTS")) return;
  fprintf(stderr, "%s, j2o %s %s: %.0f bytes of memory a byte, %zu written, %.1f ms\n", name, words[0],
          words[2] ? words[2] : "", (double)costs.memory / (double)(inputs * size), (size_t)written,
          (double)took / 1e6);
}

static void run_all(const char *name, const Builder *file, size_t allowed) {
  Files files = write_files(file);
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    run_bounded(name, commands[i], &files, file->length, allowed);
  }
  unlink(files.model);
}

static void memory_and_time_are_bounded(void) {
  Context context;
  for (size_t i = 0; i <= sizeof dense / sizeof *dense; i++) {
    bool is_last = i == sizeof dense / sizeof *dense;
    context_init(&context);
    Builder file;
    builder_init(&file, &context);
    if (is_last) make_nested(&file);
    else make_dense(&file, &dense[i]);
    run_all(is_last ? "nested graphs" : dense[i].name, &file, 0);
    context_release(&context);
  }
}

/* What the traces of a compact model may take, written out, is stated apart. */
static void compact_models_are_bounded(void) {
  enum { ROWS = 2000, UNFOLDED = 64 << 20 };
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    Context context;
    context_init(&context);
    Builder file;
    builder_init(&file, &context);
    make_compact(&file, &tables[i], ROWS);
    run_all(tables[i].name, &file, (size_t)4 * UNFOLDED);
    context_release(&context);
  }
}

const Test bounds_tests[] = {
    {"memory_and_time_are_bounded", memory_and_time_are_bounded},
    {"compact_models_are_bounded", compact_models_are_bounded},
    {0},
};
