/* The table of origins and the rewriting of metadata: nothing is lost, damage is told. */
#include "base/array.h"
#include "onnx/file/metadata_edit.h"
#include "onnx/file/read.h"
#include "provenance/table.h"
#include "test.h"

typedef struct Case {
  const char *callsite, *plugin, *stacktrace, *traceback;
} Case;

/* Usual ones, and whatever else a file may hold. */
static const Case cases[] = {
    {"Block.__call__:72", "SinPlugin.lower:31", "main.py:3 in <module>\nsrc/lower/elementwise.c:31 in SinPlugin.lower",
     "jax/core.py:7 (bind)\n/project/model.py:72 (Block.__call__)\n/project/main.py:3 (<module>)"},
    {"Block.__call__:73", "SinPlugin.lower:31", "main.py:3 in <module>\nsrc/lower/elementwise.c:31 in SinPlugin.lower",
     "jax/core.py:7 (bind)\n/project/model.py:73 (Block.__call__)\n/project/main.py:3 (<module>)"},
    {"Block.__call__:70", "MulPlugin.lower:5", "main.py:3 in <module>\na.c:5 in MulPlugin.lower",
     "/project/model.py:70 (Block.__call__)\n/project/main.py:3 (<module>)\n\n"
     "jax/core.py:9 (bind)\n/project/model.py:71 (Block.__call__)\n\n"},
    {"", "", "", ""},
    {"a", "b", "c", "d"},
    {"f:007", "p:-1", "x:01 in y\n\n", "p:1 (f)\n:1 (f)\np:99999999999 (f)\n()\n (\np:1 (f))"},
    {"\\n\\", "back\\slash:1", "fil\\e.py:1 in a\\b", "fil\\e.py:1 (a\\b)\n\xC3\xA9t\xC3\xA9.py:1 (\xC3\xA9)"},
    {"\xC3\xA8:1", "e:1", "\xC3\xA9/b.py:1 in e", "\xC3\xA8/b.py:1 (\xC3\xA8)"},
    {"f:1", "g:2", "\n\n\n", "\n\n\n\n\n"},
    /* Known frames, on their line and on another; those of a known file; a library between lines of the user's; a
     * second folder of packages; names and paths that look like something else. */
    {"step:8", "SinPlugin.lower:9",
     "/v/site-packages/jax/_src/core.py:3 in own\nsrc/lower/calls.c:20 in JitPlugin.lower",
     "/v/lib/site-packages/jax/_src/source_info_util.py:213 (current)\n"
     "/v/lib/site-packages/jax/_src/interpreters/partial_eval.py:1922 (DynamicJaxprTrace.process_primitive)\n"
     "/v/lib/site-packages/jax/_src/core.py:7 (Primitive.bind)\n/v/lib/site-packages/jax/_src/core.py:713 (mine)\n"
     "/project/model.py:8 (step)\n/v/lib/site-packages/jax/_src/core.py:705 (Primitive.bind)\n/project/main.py:3 "
     "(main)"},
    {"7:8", "9:1", "7.py:1 in 7\n@x.py:2 in @",
     "1.py:8 (7)\na\tb.py:1 (c\td)\n3\n/v/lib/site-packages/@.py:1 ()\n@: ()"},
    {"g:5", "p:1", "s:1 in p", "i.py:1 (a)\nm.py:5 (g)\n\nj.py:1 (b)\nm.py:5 (g)\n\nk.py:1 (c)\nm.py:5 (g)"},
};
enum { CASES = sizeof cases / sizeof *cases };

static OriginTexts texts_of(Context *context, const Case *row) {
  return (OriginTexts){str_intern(context, row->callsite), str_intern(context, row->plugin),
                       str_intern(context, row->stacktrace), str_intern(context, row->traceback)};
}

static void check_cases(void *argument) {
  Context *context = argument;
  TableWriter *writer = table_writer_new(context);
  CHECK(table_is_empty(writer));
  for (uint32_t i = 0; i < CASES; i++) CHECK(table_add(writer, texts_of(context, &cases[i]), (Bearer){0}) == i + 1);
  CHECK(table_add(writer, texts_of(context, &cases[1]), (Bearer){0}) == 2);
  size_t length;
  const char *text = table_text(writer, &length);
  Table *table = table_read(context, text, length, 0);
  OriginTexts found;
  for (uint32_t i = 0; i < CASES; i++) {
    OriginTexts expected = texts_of(context, &cases[i]);
    CHECK(table_get(table, i + 1, &found));
    CHECK_TEXT(found.callsite, expected.callsite);
    CHECK_TEXT(found.plugin, expected.plugin);
    CHECK_TEXT(found.stacktrace, expected.stacktrace);
    CHECK_TEXT(found.traceback, expected.traceback);
  }
  CHECK(!table_get(table, 0, &found) && !table_get(table, CASES + 1, &found));
}

static void origins_come_back_as_they_were(void) {
  Context context;
  context_init(&context);
  CHECK(context_protect(&context, check_cases, &context));
  context_release(&context);
}

/* ---- what is written short ---- */

static OriginTexts layer(Context *context, const char *module, int line, const char *columns) {
  Arena *arena = &context->arena;
  const char *callsite = arena_format(arena, "call:%d", line);
  const char *trace = arena_format(arena, "jax.py:7 (bind)\nm.py:%d (call)", line);
  OriginTexts texts = {str_intern(context, callsite), str_intern(context, "P:1"), str_intern(context, "a.c:1 in P"),
                       str_intern(context, trace)};
  if (module) texts.module = str_intern(context, module);
  if (columns) {
    texts.span = str_intern(context, arena_format(arena, "%d:%s-%d:%s", line, columns, line, columns));
  }
  return texts;
}

static bool same_texts(const OriginTexts *a, const OriginTexts *b) {
  return a->callsite == b->callsite && a->plugin == b->plugin && a->stacktrace == b->stacktrace &&
         a->traceback == b->traceback && a->module == b->module && a->span == b->span &&
         a->fused_modules == b->fused_modules;
}

static void check_short_rows(void *argument) {
  Context *context = argument;
  TableWriter *writer = table_writer_new(context);
  ARRAY(OriginTexts) all = {0};
  for (int line = 1; line <= 40; line++) { /* one line after the other, spans that come and go */
    array_push(context, &all, layer(context, NULL, line, line % 10 == 9 ? NULL : line % 20 > 10 ? "4" : "8"));
  }
  static const char *const modules[] = {"blocks.0", "blocks.1", "blocks.2", NULL};
  for (int module = 0; module < 4; module++) {
    for (int line = 50; line < 60; line += 3) {
      OriginTexts texts = layer(context, modules[module], line, "2");
      if (line == 53) {
        const char *more = arena_format(&context->arena, "%s\n\nm.py:99 (call)", texts.traceback);
        texts.traceback = str_intern(context, more);
        texts.fused_modules = str_intern(context, module == 1 ? "blocks.0.norm\n" : modules[module] ? "head" : "");
      }
      array_push(context, &all, texts);
    }
  }
  Str add = str_intern(context, "Add");
  for (size_t i = 0; i < all.count; i++) {
    CHECK(table_add(writer, all.items[i], (Bearer){.op_type = add}) == i + 1);
  }
  size_t length;
  const char *text = table_text(writer, &length);
  CHECK(strstr(text, "\n+1*16\n") && strstr(text, "\n=4 m"));
  Table *table = table_read(context, text, length, 0);
  for (size_t i = 0; i < all.count; i++) {
    OriginTexts found;
    CHECK(table_get(table, i + 1, &found) && same_texts(&found, &all.items[i]));
    size_t first = i < 44 ? i : 40 + (i - 40) % 4; /* the layers share their lines */
    CHECK(table_tells(writer, all.items[i].callsite, (Bearer){.op_type = add}, (uint32_t)i + 1) == (i == first));
    CHECK(table_row_of_node(table, all.items[i].callsite, add) == first + 1);
  }
  CHECK(table_row_of_node(table, str_intern(context, "nowhere:1"), add) == 0);
}

/* Rows of one line, each for another operator, then for the same ones in another module; then initializers. */
static void check_bearers(void *argument) {
  Context *context = argument;
  static const char *const types[] = {"Add", "MatMul", "Softmax"};
  TableWriter *writer = table_writer_new(context);
  Str callsite = layer(context, NULL, 7, NULL).callsite;
  for (uint32_t i = 0; i < 6; i++) {
    OriginTexts texts = layer(context, i < 3 ? "blocks.0" : "blocks.1", 7, types[i % 3]);
    Bearer bearer = {.op_type = str_intern(context, types[i % 3])};
    CHECK(table_add(writer, texts, bearer) == i + 1);
    CHECK(table_tells(writer, callsite, bearer, i + 1) == (i < 3));
  }
  static const char *const made_of[] = {"w", "w,b", "c,w", "e,d", "f,g"};
  static const char *const names[] = {"w", "w", "c", "e", "f,g"};
  static const bool named[] = {true, false, true, true, false};
  for (uint32_t i = 0; i < 5; i++) {
    OriginTexts texts = layer(context, NULL, 8, NULL);
    texts.made_of = str_intern(context, made_of[i]);
    Bearer bearer = {.initializer = str_intern(context, names[i])};
    CHECK(table_add(writer, texts, bearer) == i + 7);
    CHECK(table_tells(writer, texts.callsite, bearer, i + 7) == named[i]);
  }
  size_t length;
  const char *text = table_text(writer, &length);
  Table *table = table_read(context, text, length, 0);
  for (uint32_t i = 0; i < 3; i++) CHECK(table_row_of_node(table, callsite, str_intern(context, types[i])) == i + 1);
  CHECK(table_row_of_node(table, callsite, str_intern(context, "Gemm")) == 1); /* which a tool made */
  CHECK(table_row_of_initializer(table, str_intern(context, "w")) == 7);
  CHECK(table_row_of_initializer(table, str_intern(context, "c")) == 9);
  CHECK(table_row_of_initializer(table, str_intern(context, "e")) == 10);
  CHECK(table_row_of_initializer(table, str_intern(context, "f")) == 0);
  CHECK(table_row_of_initializer(table, str_intern(context, "d")) == 0);
}

static void rows_are_known_by_what_bears_them(void) {
  Context context;
  context_init(&context);
  CHECK(context_protect(&context, check_bearers, &context));
  context_release(&context);
}

static void short_rows_say_the_same(void) {
  Context context;
  context_init(&context);
  CHECK(context_protect(&context, check_short_rows, &context));
  context_release(&context);
}

/* ---- damaged tables ---- */

typedef struct Damaged {
  Context context;
  const char *text;
  size_t length;
} Damaged;

static void read_damaged(void *argument) {
  Damaged *damaged = argument;
  Table *table = table_read(&damaged->context, damaged->text, damaged->length, 0);
  OriginTexts texts;
  for (uint64_t i = 1; table_get(table, i, &texts);) i++;
  table_row_of_node(table, str_intern(&damaged->context, "f:3"), str_intern(&damaged->context, "Add"));
  table_row_of_initializer(table, str_intern(&damaged->context, "f"));
}

static ErrorKind error_of(const char *text, size_t length) {
  Damaged damaged = {.text = text, .length = length};
  context_init(&damaged.context);
  context_protect(&damaged.context, read_damaged, &damaged);
  ErrorKind kind = damaged.context.error;
  context_release(&damaged.context);
  return kind;
}

/* Of the version before the sections ended with an empty line. */
#define HEADED "j2o origins 5\n"
#define SMALL_UP_TO_OUTER(heading) heading "files 1\n0 m.py\nnames 2\nf\nP\nframes 1\n1 5 2\ninner 1\n1\ncalls 1\n1 0\n"

static const char small_table[] = SMALL_UP_TO_OUTER(HEADED) "outer 3\n1 3 1 0\n+1*2\nways 1\n1 1\n"
                                                                   "origins 5\n1 s2-9 oM\n1\n1 s m2 f1\n=2 m1 f2 f1\n"
                                                                   "1 3 o W1\n";

#define SMALL_UP_TO_LINES \
  TABLE_HEADING "/v/site-packages/\nm.py\n\nf\nP\n\\.\n\n1-2\n3 9\ng\t4 @x.py\nh\t5 1\nother\n\n1-3 5\n\n6 0\n\n"

static const char small_ended_table[] = SMALL_UP_TO_LINES
    "1 3 1 0\n+1*2\n2 1\n\n1 1\n\n1 s2-9 oM\n1\n1 s m2 f1\n=2 m1 f2 f1\n"
    "1 3 o W1 +0-1,2\n\n";

static void check_damage(const char *text, size_t length) {
  CHECK(error_of(text, length) == ERROR_NONE);
  for (size_t part = 0; part < length; part++) CHECK(error_of(text, part) == ERROR_FORMAT);
  char *copy = malloc(length);
  for (size_t at = 0; at < length; at++) {
    for (unsigned byte = 0; byte < 256; byte += 5) {
      memcpy(copy, text, length);
      copy[at] = (char)byte;
      ErrorKind kind = error_of(copy, length);
      CHECK(kind == ERROR_NONE || kind == ERROR_FORMAT);
    }
  }
  free(copy);
}

static void damaged_tables_are_told(void) {
  check_damage(small_table, sizeof small_table - 1);
  check_damage(small_ended_table, sizeof small_ended_table - 1);
  /* A chain that calls itself, rows that do not exist, too many rows. */
  static const char *const wrong[] = {
      HEADED "files 0\nnames 1\nf\nframes 0\ninner 0\ncalls 0\nouter 1\n0 0 1 1\nways 0\norigins 0\n",
      HEADED "files 0\nnames 0\nframes 1\n0 0 1\ninner 0\ncalls 0\nouter 0\nways 0\norigins 0\n",
      HEADED "files 2000000000\n",
      "j2o origins 7\n",
      "j2o origins 0\n",
      /* more rows than a run may stand for, or than there are; none; what the version before did not have */
      SMALL_UP_TO_OUTER(HEADED) "outer 18\n1 3 1 0\n+1*17\nways 1\n1 1\norigins 0\n",
      SMALL_UP_TO_OUTER(HEADED) "outer 3\n1 3 1 0\n+1*3\nways 1\n1 1\norigins 0\n",
      SMALL_UP_TO_OUTER(HEADED) "outer 2\n1 3 1 0\n+1*0\nways 1\n1 1\norigins 0\n",
      SMALL_UP_TO_OUTER("j2o origins 2\n") "outer 3\n1 3 1 0\n+1*2\nways 1\n1 1\norigins 0\n",
      /* a row like one that is not before it */
      SMALL_UP_TO_OUTER(HEADED) "outer 1\n1 3 1 0\nways 1\n1 1\norigins 2\n=1\n1 1\n",
      SMALL_UP_TO_OUTER(HEADED) "outer 1\n1 3 1 0\nways 1\n1 1\norigins 2\n1 1\n=0\n",
      SMALL_UP_TO_OUTER("j2o origins 2\n") "outer 1\n1 3 1 0\nways 1\n1 1\norigins 2\n1 1\n=1\n",
      SMALL_UP_TO_OUTER("j2o origins 3\n") "outer 1\n1 3 1 0\nways 1\n1 1\norigins 1\n1 1 f1\n",
      SMALL_UP_TO_OUTER("j2o origins 4\n") "outer 1\n1 3 1 0\nways 1\n1 1\norigins 1\n1 1 oA\n",
      SMALL_UP_TO_OUTER("j2o origins 4\n") "outer 1\n1 3 1 0\nways 1\n1 1\norigins 1\n1 1 W1\n",
      SMALL_UP_TO_OUTER(HEADED) "outer 1\n1 3 1 0\nways 1\n1 1\norigins 1\n1 1 W3\n",
      /* rows that are not there, or in another order; frames that are not known; more rows than a run may stand for */
      SMALL_UP_TO_LINES "1 3 1 0\n7 1\n\n1 1\n\n\n",
      SMALL_UP_TO_LINES "1 3 1 0\n2 2\n\n1 1\n\n\n",
      SMALL_UP_TO_LINES "1 3 1 0\n+1*17\n\n1 1\n\n\n",
      SMALL_UP_TO_LINES "1 3 1 0\n\n1 1\n\n1 1 +1-0,1\n\n",
      SMALL_UP_TO_LINES "1 3 1 0\n\n1 1\n\n1 1 +0-2,1\n\n",
      TABLE_HEADING "\n\n\n0\n\n\n\n\n\n\n",
      TABLE_HEADING "\n\n\n1-999999\n\n\n\n\n\n\n",
      TABLE_HEADING "\n\n\n9-8\n\n\n\n\n\n\n",
      TABLE_HEADING "\n\n\nf\t1 999999\n\n\n\n\n\n\n",
      TABLE_HEADING "\n\n\n1-2\n\n2-1\n\n\n\n\n\n",
  };
  static const char empty[] = TABLE_HEADING "\n\n\n\n\n\n\n\n\n";
  CHECK(error_of(empty, sizeof empty - 1) == ERROR_NONE);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) CHECK(error_of(wrong[i], strlen(wrong[i])) == ERROR_FORMAT);
}

/* ---- rewriting ---- */

/* A graph with the node y = Sin(x), an unknown field 1000 in the model and in the node, and entries as given. */
typedef struct Bytes {
  char text[4096];
  size_t length;
} Bytes;

static void add_bytes(Bytes *out, const void *data, size_t size) {
  memcpy(out->text + out->length, data, size);
  out->length += size;
}

static void add_field(Bytes *out, unsigned field, const char *data, size_t size) {
  unsigned char head[5];
  size_t at = 0;
  for (unsigned key = field << 3 | 2;; key >>= 7) {
    head[at++] = (unsigned char)((key & 0x7F) | (key > 0x7F ? 0x80 : 0));
    if (key <= 0x7F) break;
  }
  add_bytes(out, head, at);
  at = 0;
  for (size_t left = size;; left >>= 7) {
    head[at++] = (unsigned char)((left & 0x7F) | (left > 0x7F ? 0x80 : 0));
    if (left <= 0x7F) break;
  }
  add_bytes(out, head, at);
  add_bytes(out, data, size);
}

static void add_entry(Bytes *out, unsigned field, const char *key, const char *value) {
  Bytes entry = {.length = 0};
  add_field(&entry, 1, key, strlen(key));
  add_field(&entry, 2, value, strlen(value));
  add_field(out, field, entry.text, entry.length);
}

/* A kind of field that ONNX does not have, around a number. */
static const char group[] = "\xcb\x3e\x08\x01\xcc\x3e";

static Bytes make_model(bool with_origin, bool function_first) {
  Bytes node = {.length = 0}, graph = {.length = 0}, model = {.length = 0}, function = {.length = 0};
  add_field(&node, 1, "x", 1);
  add_field(&node, 2, "y", 1);
  add_field(&node, 4, "Sin", 3);
  add_entry(&node, 9, "mine", "stays");
  add_bytes(&node, group, sizeof group - 1);
  if (with_origin) {
    add_entry(&node, 9, "pkg.jax2onnx.callsite", cases[0].callsite);
    add_entry(&node, 9, "pkg.jax2onnx.plugin", cases[0].plugin);
    add_entry(&node, 9, "pkg.jax2onnx.stacktrace", cases[0].stacktrace);
    add_entry(&node, 9, "pkg.jax2onnx.jax_traceback", cases[0].traceback);
  }
  add_field(&node, 1000, "unknown", 7);
  add_field(&graph, 1, node.text, node.length);
  add_field(&graph, 2, "g", 1);
  add_field(&function, 7, node.text, node.length);
  if (function_first) add_field(&model, 25, function.text, function.length);
  add_bytes(&model, "\x08\x0a", 2);
  add_field(&model, 7, graph.text, graph.length);
  add_bytes(&model, group, sizeof group - 1);
  add_field(&model, 1000, "unknown", 7);
  return model;
}

static Bytes joined(const Rewritten *result) {
  Bytes out = {.length = 0};
  for (size_t i = 0; i < result->count; i++) add_bytes(&out, result->segments[i].data, result->segments[i].size);
  CHECK(out.length == result->size);
  return out;
}

static bool same(const Bytes *a, const Bytes *b) {
  return a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
}

static void check_rewriting(Context *context, bool function_first) {
  uint64_t nodes = function_first ? 2 : 1;
  Bytes plain = make_model(false, function_first), full = make_model(true, function_first);
  Rewritten result = model_strip(context, full.text, full.length, STRIP_OURS);
  Bytes stripped = joined(&result);
  CHECK(same(&stripped, &plain) && result.changes == 4 * nodes);
  result = model_compact(context, full.text, full.length);
  Bytes compact = joined(&result);
  CHECK(result.changes == nodes && memmem(compact.text, compact.length, "j2o packed", 10));
  result = model_expand(context, compact.text, compact.length, 0);
  Bytes expanded = joined(&result);
  CHECK(same(&expanded, &full));
  result = model_compact(context, compact.text, compact.length);
  Bytes again = joined(&result);
  CHECK(same(&again, &compact) && result.changes == 0);
  result = model_strip(context, compact.text, compact.length, STRIP_OURS);
  stripped = joined(&result);
  CHECK(same(&stripped, &plain));
  result = model_strip(context, compact.text, compact.length, STRIP_ALL);
  Bytes bare = joined(&result);
  CHECK(bare.length < plain.length && !memmem(bare.text, bare.length, "mine", 4));
  Model *model = model_read(context, compact.text, compact.length);
  model_unfold(model, 0);
  CHECK(model->graph->first->metadata.count == 5 && model->metadata.count == 0);
}

static void rewrite(void *argument) {
  check_rewriting(argument, false);
  check_rewriting(argument, true);
}

static void metadata_is_rewritten_and_nothing_else(void) {
  Context context;
  context_init(&context);
  CHECK(context_protect(&context, rewrite, &context));
  context_release(&context);
}

const Test table_tests[] = {
    {"origins_come_back_as_they_were", origins_come_back_as_they_were},
    {"short_rows_say_the_same", short_rows_say_the_same},
    {"rows_are_known_by_what_bears_them", rows_are_known_by_what_bears_them},
    {"damaged_tables_are_told", damaged_tables_are_told},
    {"metadata_is_rewritten_and_nothing_else", metadata_is_rewritten_and_nothing_else},
    {0},
};
