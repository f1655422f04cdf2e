/* Times of nodes, from JSON. A reader of the whole language would be more than is needed: values that are not asked
 * for are passed over, but they must be well formed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/page/page.h"

enum { MAX_DEPTH = 64, LONGEST_NUMBER = 63 };

typedef struct Reader {
  Job *job;
  Profile *profile;
  const char *path;
  const char *start, *at, *end;
  Builder text; /* of the string read last */
} Reader;

static _Noreturn void fail_here(Reader *reader, const char *wanted) {
  fail(&reader->job->context, ERROR_VALUE, "%s: not a profile: %s expected at byte %zu", reader->path, wanted,
       (size_t)(reader->at - reader->start));
}

static char next_letter(Reader *reader) {
  while (reader->at < reader->end && memchr(" \t\r\n", *reader->at, 4)) reader->at++;
  return reader->at < reader->end ? *reader->at : '\0';
}

static bool take(Reader *reader, char letter) {
  if (next_letter(reader) != letter) return false;
  reader->at++;
  return true;
}

static void expect(Reader *reader, char letter, const char *wanted) {
  if (!take(reader, letter)) fail_here(reader, wanted);
}

static unsigned read_hex(Reader *reader) {
  unsigned number = 0;
  for (int i = 0; i < 4; i++, reader->at++) {
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *digit = reader->at < reader->end && *reader->at ? strchr(digits, *reader->at) : NULL;
    if (!digit) fail_here(reader, "a hexadecimal digit");
    unsigned value = (unsigned)(digit - digits);
    number = number * 16 + (value < 16 ? value : value - 6);
  }
  return number;
}

static void add_code_point(Builder *text, unsigned code) {
  char bytes[4];
  size_t count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const unsigned char heads[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (size_t i = count; i-- > 1; code >>= 6) bytes[i] = (char)(0x80 | (code & 0x3F));
  bytes[0] = (char)(heads[count] | code);
  builder_add_sized(text, bytes, count);
}

static void read_escape(Reader *reader) {
  static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
  char letter = reader->at < reader->end ? *reader->at : '\0';
  const char *known = letter ? strchr(letters, letter) : NULL;
  if (!known && letter != 'u') fail_here(reader, "an escape");
  reader->at++;
  if (known) {
    builder_add_sized(&reader->text, &meant[known - letters], 1);
    return;
  }
  unsigned code = read_hex(reader);
  bool is_high = code >= 0xD800 && code < 0xDC00;
  if (is_high && reader->end - reader->at >= 2 && reader->at[0] == '\\' && reader->at[1] == 'u') {
    reader->at += 2;
    code = 0x10000 + ((code - 0xD800) << 10) + ((read_hex(reader) - 0xDC00) & 0x3FF);
  }
  add_code_point(&reader->text, code);
}

static Str read_string(Reader *reader) {
  expect(reader, '"', "a string");
  reader->text.length = 0;
  while (reader->at < reader->end && *reader->at != '"') {
    if (*reader->at++ == '\\') read_escape(reader);
    else builder_add_sized(&reader->text, reader->at - 1, 1);
  }
  if (reader->at == reader->end) fail_here(reader, "the end of a string");
  reader->at++;
  return str_intern_sized(&reader->job->context, builder_text(&reader->text), reader->text.length);
}

static bool is_number_letter(char c) { return (c >= '0' && c <= '9') || memchr("+-.eE", c, 5) != NULL; }

static double read_number(Reader *reader) {
  next_letter(reader);
  char text[LONGEST_NUMBER + 1] = "";
  size_t length = 0;
  while (reader->at + length < reader->end && is_number_letter(reader->at[length]) && length < LONGEST_NUMBER) {
    text[length] = reader->at[length];
    length++;
  }
  char *stop;
  double number = strtod(text, &stop);
  if (!length || *stop || !isfinite(number)) fail_here(reader, "a number");
  reader->at += length;
  return number;
}

static void pass_value(Reader *reader, int depth) {
  char letter = next_letter(reader);
  if (depth == MAX_DEPTH) fail_here(reader, "less nesting");
  if (letter == '"') {
    read_string(reader);
  } else if (letter == '{' || letter == '[') {
    char close = letter == '{' ? '}' : ']';
    reader->at++;
    if (take(reader, close)) return;
    do {
      if (letter == '{') {
        read_string(reader);
        expect(reader, ':', "':'");
      }
      pass_value(reader, depth + 1);
    } while (take(reader, ','));
    expect(reader, close, "',' or the end of the list");
  } else {
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
      size_t length = strlen(words[i]);
      if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, words[i], length) != 0) continue;
      reader->at += length;
      return;
    }
    read_number(reader);
  }
}

static void add_time(Reader *reader, Str name, double microseconds) {
  Context *context = &reader->job->context;
  void **slot = map_slot_pointer(context, &reader->profile->times, name);
  if (!*slot) {
    *slot = arena_new(&context->arena, double);
    reader->profile->count++;
  }
  *(double *)*slot += microseconds;
}

/* {"node": microseconds, …} */
static void read_names(Reader *reader) {
  if (take(reader, '}')) return;
  do {
    Str name = read_string(reader);
    expect(reader, ':', "':'");
    add_time(reader, name, read_number(reader));
  } while (take(reader, ','));
  expect(reader, '}', "',' or '}'");
}

/* What jax2onnx profile --json writes has the names at its key "nodes", and more beside it. */
static bool take_document(Reader *reader) {
  bool found = false;
  if (take(reader, '}')) return false;
  do {
    Str key = read_string(reader);
    expect(reader, ':', "':'");
    bool is_nodes = strcmp(key, "nodes") == 0 && next_letter(reader) == '{';
    if (is_nodes) {
      reader->at++;
      read_names(reader);
      found = true;
    } else {
      pass_value(reader, 0);
    }
  } while (take(reader, ','));
  expect(reader, '}', "',' or '}'");
  return found;
}

static void read_object(Reader *reader) {
  const char *start = reader->at;
  if (take_document(reader)) return;
  reader->at = start;
  read_names(reader);
}

/* An event {"name": "Sin_0_kernel_time", "dur": 12, …}; other events are not about a node's time. */
static void read_event(Reader *reader) {
  static const char ending[] = "_kernel_time";
  Str name = NULL;
  double duration = 0;
  expect(reader, '{', "'{'");
  if (take(reader, '}')) return;
  do {
    Str key = read_string(reader);
    expect(reader, ':', "':'");
    if (str_is(key, "name")) name = read_string(reader);
    else if (str_is(key, "dur")) duration = read_number(reader);
    else pass_value(reader, 0);
  } while (take(reader, ','));
  expect(reader, '}', "',' or '}'");
  size_t length = name ? str_length(name) : 0, tail = sizeof ending - 1;
  if (length <= tail || memcmp(name + length - tail, ending, tail) != 0) return;
  add_time(reader, str_intern_sized(&reader->job->context, name, length - tail), duration);
}

static void read_events(Reader *reader) {
  if (take(reader, ']')) return;
  do read_event(reader);
  while (take(reader, ','));
  expect(reader, ']', "',' or ']'");
}

const Profile *profile_read(Job *job, const char *path) {
  Context *context = &job->context;
  MappedFile *file = &job->files[MAX_FILES - 1];
  file_map(context, path, file);
  const char *bytes = (const char *)file->data;
  Reader reader = {.job = job, .path = path, .start = bytes, .at = bytes, .end = bytes ? bytes + file->size : bytes};
  reader.profile = arena_new(&context->arena, Profile);
  builder_init(&reader.text, context);
  if (take(&reader, '{')) read_object(&reader);
  else if (take(&reader, '[')) read_events(&reader);
  else fail_here(&reader, "an object of node names and times, or a list of events,");
  if (next_letter(&reader) || reader.at < reader.end) fail_here(&reader, "the end");
  return reader.profile;
}
