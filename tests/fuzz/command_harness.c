/* Fuzzing: whatever the bytes of a file are, every command that reads it ends, with an exit code of its own, without
 * touching memory it does not own, without writing what a terminal obeys, and within the memory and time that
 * SECURITY.md states for so many bytes. campaign.c makes the files; tools/fuzz.sh builds and runs both. */
#include "command_harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "onnx/file/metadata_edit.h"
#include "tool/tool.h"

enum { MAX_WORDS = 8 };

/* A word that begins with @ is a file: @m the model, @o the other one, @s the source, @r the result. */
static const char *const commands[][MAX_WORDS] = {
    {"inspect", "@m", "--full", "--color=always"},
    {"inspect", "@m", "--json"},
    {"inspect", "@m", "--summary"},
    {"inspect", "@m", "--summary", "--json"},
    {"inspect", "@m", "--line", "model.py:3-9"},
    {"inspect", "@m", "--op", "[A-S]*", "--json"},
    {"inspect", "@m", "--name", "*a*"},
    {"blame", "@m", "--color=always"},
    {"blame", "@m", "@s"},
    {"blame", "@m", "@s", "--json"},
    {"locate", "@m", "y", "--full"},
    {"locate", "@m", "n", "--json"},
    {"locate", "@m", "x"},
    {"diff", "@m", "@o"},
    {"diff", "@m", "@o", "--json", "--weights"},
    {"stats", "@m"},
    {"stats", "@m", "--json", "--top=2"},
    {"text", "@m"},
    {"strip", "@m", "-o", "@r"},
    {"strip", "@m", "-o", "@r", "--all"},
    {"compact", "@m", "-o", "@r", "--json"},
    {"expand", "@m", "-o", "@r"},
    {"report", "@m", "--source", "@s", "-o", "@r"},
    {"report", "@m", "-o", "@r", "--profile", "@o"},
    {"report", "@m", "-o", "-", "--json"},
    {"graft", "@m", "@o", "-o", "@r"},
    {"graft", "@m", "@o", "--map", "--json"},
    {"inspect", "@o", "--original", "@m", "--full"},
    {"inspect", "@m", "--line", "model.py:3-9", "--inclusive", "--json"},
    {"inspect", "@m", "--module", "a", "--self"},
    {"locate", "@m", "--line", "f:3", "--full"},
    {"locate", "@m", "--module", "a", "--json"},
    {"blame", "@m", "--module", "a", "--inclusive"},
    {"diff", "@m", "@o", "--line", "model.py:3"},
    {"stats", "@m", "--provenance"},
    {"stats", "@m", "--provenance", "--json"},
    {"inspect", "@m", "--sidecar", "@o", "--full"},
    {"join", "@m", "--sidecar", "@o", "-o", "@r"},
    {"split", "@m", "--sidecar", "@r", "-o", "/dev/null"},
    {"check", "@m"},
    {"check", "@m", "--json"},
    {"passes", "@m"},
    {"passes", "@m", "-o", "@r", "--no-sync"},
    {"fill", "@m", "--from", "@o", "-o", "@r", "--no-sync"},
    {"fill", "@m", "--from", "@o", "-o", "@r", "--no-sync", "--allow-surplus"},
};
const size_t command_count = sizeof commands / sizeof *commands;

/* Those that take a text. */
static const char *const text_commands[][MAX_WORDS] = {
    {"convert", "@m", "-o", "@r", "--no-sync"},
    {"convert", "@m", "-o", "@r", "--no-sync", "--stacktrace=full"},
    {"passes", "@m"},
    {"passes", "@m", "-o", "@r", "--no-sync"},
};
const size_t text_command_count = sizeof text_commands / sizeof *text_commands;

static const char *const weights[MAX_WORDS] = {"diff", "@m", "@o", "--weights"};

typedef struct Folder {
  char model[256], other[256], source[256], result[256]; /* the first two are files in memory */
  int model_descriptor, other_descriptor;
} Folder;

static int memory_file(char *path, size_t size, const char *name) {
  int descriptor = memfd_create(name, 0);
  if (descriptor < 0) abort();
  snprintf(path, size, "/proc/self/fd/%d", descriptor);
  return descriptor;
}

static void make_folder(Folder *folder) {
  const char *where = getenv("TMPDIR");
  char path[128];
  snprintf(path, sizeof path, "%s/j2o_fuzz_XXXXXX", where && *where ? where : P_tmpdir);
  if (!mkdtemp(path)) abort();
  snprintf(folder->source, sizeof folder->source, "%s/model.py", path);
  snprintf(folder->result, sizeof folder->result, "%s/result.onnx", path);
  folder->model_descriptor = memory_file(folder->model, sizeof folder->model, "model");
  folder->other_descriptor = memory_file(folder->other, sizeof folder->other, "other");
}

static void fill(int descriptor, const uint8_t *data, size_t size) {
  if (ftruncate(descriptor, (off_t)size) != 0 || pwrite(descriptor, data, size, 0) != (ssize_t)size) abort();
}

static void write_file(const char *path, const uint8_t *data, size_t size) {
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) abort();
}

/* ---- what may not be ---- */

static _Noreturn void found(const char *const *words, const char *what, const char *detail) {
  fprintf(stderr, "FOUND: j2o");
  for (int i = 0; i < MAX_WORDS && words[i]; i++) fprintf(stderr, " %s", words[i]);
  fprintf(stderr, ": %s: %s\n", what, detail);
  abort();
}

/* The code point at text and its length; 0 for broken UTF-8. Written apart from the code under test. */
static size_t decode(const unsigned char *text, size_t left, uint32_t *code) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  size_t length = text[0] < 0x80 ? 1 : text[0] >> 5 == 6 ? 2 : text[0] >> 4 == 14 ? 3 : text[0] >> 3 == 30 ? 4 : 0;
  if (!length || length > left) return 0;
  *code = length == 1 ? text[0] : text[0] & (0x7Fu >> length);
  for (size_t i = 1; i < length; i++) {
    if (text[i] >> 6 != 2) return 0;
    *code = *code << 6 | (text[i] & 0x3F);
  }
  bool wrong = *code < least[length] || *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000);
  return wrong ? 0 : length;
}

static bool is_obeyed(uint32_t code) {
  bool control = (code < 0x20 && code != '\n' && code != '\t') || (code >= 0x7F && code < 0xA0);
  return control || code == 0x61C || (code >= 0x200E && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

/* Our own colours are ESC [ digits m, and only where they were asked for. */
static size_t own_color(const char *text, size_t left) {
  size_t digits = left > 2 && text[0] == '\x1b' && text[1] == '[' ? strspn(text + 2, "0123456789") : 0;
  return digits && text[2 + digits] == 'm' ? digits + 3 : 0;
}

static void check_text(const char *const *words, const char *text, size_t size, bool colored) {
  char place[64];
  for (size_t at = 0; at < size;) {
    size_t color = colored ? own_color(text + at, size - at) : 0;
    uint32_t code = 0;
    size_t length = color ? color : decode((const unsigned char *)text + at, size - at, &code);
    snprintf(place, sizeof place, "U+%04X at byte %zu of the output", (unsigned)code, at);
    if (!length) found(words, "broken UTF-8", place);
    if (!color && is_obeyed(code)) found(words, "a character that a terminal obeys", place);
    at += length;
  }
}

enum {
  MEMORY_PER_BYTE = 640, /* SECURITY.md */
  MEMORY_OF_A_PAGE = 2048,
  MEMORY_OF_A_MODEL = 1024, /* convert, passes */
  MEMORY_PER_WRITTEN = 8,
  MEMORY_AT_LEAST = 8 << 20, /* memory is taken in steps of 2 MiB; packing takes as much */
  MEMORY_TO_BUILD = (1 << 30) + (32 << 20) /* with what was begun before */,
  MEMORY_OF_TRACES = 256 << 20,
  NANOSECONDS_PER_BYTE = 50000, /* under sanitizers, on a busy machine */
  NANOSECONDS_PER_WRITTEN = 2000,
};

#define NANOSECONDS_OF_TRACES 20000000000u /* and of unpacking them */

static uint64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

typedef struct Limits {
  size_t bytes;   /* of all files that were read */
  bool has_table; /* a compact model: its traces have a bound of their own */
} Limits;

static void check_costs(const char *const *words, Limits limits, const ToolCosts *costs, uint64_t took) {
  char detail[160];
  bool is_page = strcmp(words[0], "report") == 0;
  bool builds = strcmp(words[0], "convert") == 0 || strcmp(words[0], "passes") == 0;
  uint64_t memory = limits.bytes * (is_page  ? MEMORY_OF_A_PAGE
                                    : builds ? MEMORY_OF_A_MODEL
                                             : MEMORY_PER_BYTE) +
                    costs->written * MEMORY_PER_WRITTEN + (builds ? MEMORY_TO_BUILD : MEMORY_AT_LEAST) +
                    (limits.has_table ? MEMORY_OF_TRACES : 0);
  uint64_t time = limits.bytes * NANOSECONDS_PER_BYTE + costs->written * NANOSECONDS_PER_WRITTEN + 1000000000u +
                  (limits.has_table ? NANOSECONDS_OF_TRACES : 0) + (builds ? 60000000000u : 0);
  snprintf(detail, sizeof detail, "%zu bytes and %.3f s for %zu bytes of input and %zu of output", costs->memory,
           (double)took / 1e9, limits.bytes, (size_t)costs->written);
  if (costs->memory > memory) found(words, "too much memory", detail);
  if (took > time) found(words, "too much time", detail);
}

/* Runs the command; its output is *text, to be freed. */
static int run_command(const Folder *folder, const char *const *words, Limits limits, char **text, size_t *size) {
  char *arguments[MAX_WORDS + 2] = {"j2o"};
  int count = 1;
  bool colored = false;
  for (; count <= MAX_WORDS && words[count - 1]; count++) {
    const char *word = words[count - 1];
    colored = colored || strcmp(word, "--color=always") == 0;
    if (word[0] == '@') {
      const char *const files[] = {
          ['m'] = folder->model, ['o'] = folder->other, ['s'] = folder->source, ['r'] = folder->result};
      word = files[(unsigned char)word[1]];
    }
    arguments[count] = (char *)(uintptr_t)word;
  }
  char *message = NULL;
  size_t length = 0;
  FILE *out = open_memstream(text, size), *errors = open_memstream(&message, &length);
  if (!out || !errors) abort();
  ToolCosts costs;
  uint64_t start = nanoseconds();
  int code = tool_run(count, arguments, out, errors, NULL, &costs);
  uint64_t took = nanoseconds() - start;
  fclose(out);
  fclose(errors);
  bool broken = code < EXIT_OK || code > EXIT_TROUBLE;
  if (broken || strstr(message, "Try j2o")) found(words, "a broken promise", message);
  /* Shapes that a graph as text claims and no rule compares come to light when passes rewrite what is between them. */
  bool may_claim = strcmp(words[0], "passes") == 0 && strstr(message, "left an invalid graph");
  if (costs.error == ERROR_INTERNAL && !may_claim) found(words, "an error of our own, not a refusal", message);
  check_text(words, *text, *size, colored);
  check_text(words, message, length, false);
  check_costs(words, limits, &costs, took);
  free(message);
  return code;
}

/* ---- there and back again ---- */

typedef struct RoundTrip {
  Context context;
  const uint8_t *data;
  size_t size;
} RoundTrip;

static const char *joined(Context *context, const Rewritten *result) {
  char *bytes = arena_alloc(&context->arena, (size_t)result->size), *to = bytes;
  for (size_t i = 0; i < result->count; i++) {
    memcpy(to, result->segments[i].data, result->segments[i].size);
    to += result->segments[i].size;
  }
  return bytes;
}

static void round_trip(void *argument) {
  RoundTrip *trip = argument;
  Context *context = &trip->context;
  Rewritten compact = model_compact(context, trip->data, trip->size);
  if (!compact.changes) return;
  const char *first = joined(context, &compact);
  Rewritten expanded = model_expand(context, first, (size_t)compact.size, 0);
  const char *full = joined(context, &expanded);
  Rewritten again = model_compact(context, full, (size_t)expanded.size);
  bool same = again.size == compact.size && memcmp(joined(context, &again), first, (size_t)again.size) == 0;
  static const char *const words[MAX_WORDS] = {"compact", "expand", "compact"};
  if (!same) found(words, "there and back again", "is somewhere else");
}

static void check_round_trip(const uint8_t *data, size_t size) {
  RoundTrip trip = {.data = data, .size = size};
  context_init(&trip.context);
  context_protect(&trip.context, round_trip, &trip);
  context_release(&trip.context);
}

static Folder *the_folder(void) {
  static Folder folder;
  if (!folder.model[0]) make_folder(&folder);
  return &folder;
}

static bool holds(const uint8_t *data, size_t size, const char *text) {
  return size && memmem(data, size, text, strlen(text)) != NULL;
}

static bool has_table(const uint8_t *model, size_t size) {
  return holds(model, size, "j2o origins") || holds(model, size, "j2o packed");
}

void check_command(size_t command, const uint8_t *model, size_t size, const uint8_t *other, size_t other_size) {
  Folder *folder = the_folder();
  const char *const *words = commands[command % command_count];
  fill(folder->model_descriptor, model, size);
  fill(folder->other_descriptor, other, other_size);
  write_file(folder->source, other, other_size);
  Limits limits = {size + other_size, has_table(model, size) || has_table(other, other_size)};
  char *text = NULL;
  size_t length = 0;
  int code = run_command(folder, words, limits, &text, &length);
  free(text);
  if (strcmp(words[0], "compact") == 0 && code == EXIT_OK) check_round_trip(model, size);
}

void check_text_command(size_t command, const uint8_t *text, size_t size) {
  Folder *folder = the_folder();
  fill(folder->model_descriptor, text, size);
  char *output = NULL;
  size_t length = 0;
  run_command(folder, text_commands[command % text_command_count], (Limits){size, false}, &output, &length);
  free(output);
}

void check_difference(const uint8_t *model, size_t size, const uint8_t *other, size_t other_size) {
  Folder *folder = the_folder();
  fill(folder->model_descriptor, model, size);
  fill(folder->other_descriptor, other, other_size);
  char *text = NULL;
  size_t length = 0;
  int code = run_command(folder, weights, (Limits){size + other_size, true}, &text, &length);
  if (code == EXIT_OK || strstr(text, "the same")) found(weights, "other models are the same", text);
  free(text);
}
