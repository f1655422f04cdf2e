/* Fuzzing: whatever the bytes of a file are, every command that reads it ends, with an exit code of its own and without
 * touching memory it does not own. The first byte chooses the command, the second where the rest is cut into a model
 * and a second file (the other model of diff, the source of blame, the source or profile of report). With -DSTANDALONE
 * it replays the files named as arguments. tools/fuzz.sh builds and runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "onnx/file/metadata_edit.h"
#include "tool/tool.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

typedef struct Folder {
  char model[256], other[256], source[256], result[256]; /* the first two are files in memory */
  int model_descriptor, other_descriptor;
  FILE *sink;
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
  folder->sink = fopen("/dev/null", "w");
  if (!folder->sink) abort();
}

static void fill(int descriptor, const uint8_t *data, size_t size) {
  if (ftruncate(descriptor, (off_t)size) != 0 || pwrite(descriptor, data, size, 0) != (ssize_t)size) abort();
}

static void write_file(const char *path, const uint8_t *data, size_t size) {
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) abort();
}

static void run_command(const Folder *folder, const char *const *words) {
  char *arguments[MAX_WORDS + 2] = {"j2o"};
  int count = 1;
  for (; count <= MAX_WORDS && words[count - 1]; count++) {
    const char *word = words[count - 1];
    if (word[0] == '@') {
      const char *const files[] = {
          ['m'] = folder->model, ['o'] = folder->other, ['s'] = folder->source, ['r'] = folder->result};
      word = files[(unsigned char)word[1]];
    }
    arguments[count] = (char *)(uintptr_t)word;
  }
  char *message = NULL;
  size_t length = 0;
  FILE *errors = open_memstream(&message, &length);
  int code = j2o_tool_main(count, arguments, folder->sink, errors);
  fclose(errors);
  bool broken = code < EXIT_OK || code > EXIT_TROUBLE || strstr(message, "broken invariant");
  if (broken || strstr(message, "Try j2o")) {
    fprintf(stderr, "j2o %s: exit code %d, %s\n", words[0], code, message);
    abort();
  }
  free(message);
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
  if (again.size != compact.size || memcmp(joined(context, &again), first, (size_t)again.size) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static Folder folder;
  if (!folder.sink) make_folder(&folder);
  if (size < 3) return 0;
  const char *const *words = commands[data[0] % COMMAND_COUNT];
  size_t left = size - 2, cut = left - left * data[1] / 255;
  fill(folder.model_descriptor, data + 2, cut);
  fill(folder.other_descriptor, data + 2 + cut, left - cut);
  bool has_source = words[2] && (strcmp(words[2], "@s") == 0 || strcmp(words[2], "--source") == 0);
  if (has_source) write_file(folder.source, data + 2 + cut, left - cut);
  run_command(&folder, words);
  if (strcmp(words[0], "compact") != 0) return 0;
  RoundTrip trip = {.data = data + 2, .size = cut};
  context_init(&trip.context);
  context_protect(&trip.context, round_trip, &trip);
  context_release(&trip.context);
  return 0;
}

#include "replay.h"
