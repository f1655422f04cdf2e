/* Exports in a folder whose every system call fails once, and before every one of which the process is killed once.
 * Afterwards the folder holds the old model whole or the new one whole, and the next export leaves nothing else.
 * Run with failing_calls preloaded: crash_export FOLDER, which is made anew. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "onnx/file/external.h"
#include "onnx/file/read.h"
#include "onnx/file/write.h"

enum { MODE_OFF, MODE_FAIL, MODE_INTERRUPT, MODE_SHORT, MODE_KILL, MODE_UNSUPPORTED };
static const char *const mode_names[] = {"nothing", "failure", "interruption", "short write", "kill", "lack of it"};

static void (*arm)(int mode, long number);
static long (*disarm)(void);
static const char *(*struck)(void);
static const char *(*name_of)(long number);

static const char *folder, *path;
static long failures, cases;

/* ---- models: everything in one is the same number ---- */

enum { LARGE = 1000, SMALL = 3, NUMBERS = 8, THRESHOLD = 1000, SHARD = 4000, MOST_DATA_FILES = 2 };
static float numbers[NUMBERS][LARGE];

/* Where the weights go: into the model, the large ones beside it, all of them beside it in a file each, or nowhere:
 * they are somebody else's, and the model says where. */
typedef enum Weights { INSIDE, BESIDE, SHARDS, BY_REFERENCE } Weights;

typedef struct Export {
  Context context;
  int number;
  Weights weights;
  WriteOptions options;
} Export;

/* Holds the numbers of every model, one after the other. */
static const char referred[] = "weights.bin";

static Value *weights(Graph *graph, const Export *job, int64_t count, const char *name) {
  Context *context = graph->model->context;
  int number = job->number;
  Tensor *tensor = arena_new(&context->arena, Tensor);
  *tensor = (Tensor){.dtype = DTYPE_FLOAT32, .rank = 1, .dims = arena_copy(&context->arena, &count, sizeof count)};
  tensor->data = numbers[number];
  tensor->size = (size_t)count * sizeof(float);
  tensor->name = str_intern(context, name);
  if (job->weights == BY_REFERENCE) {
    StoredAt *stored = arena_new(&context->arena, StoredAt);
    *stored = (StoredAt){str_intern(context, referred), (uint64_t)number * sizeof *numbers, tensor->data};
    tensor->stored = stored;
  }
  return graph_initializer(graph, tensor);
}

static void export_model(void *argument) {
  Export *job = argument;
  Context *context = &job->context;
  Model *model = model_new(context, NULL, 21);
  model->ir_version = 10;
  model->producer_name = str_intern(context, PRODUCER);
  model->graph = graph_new(model, str_intern(context, arena_format(&context->arena, "%d", job->number)));
  int64_t counts[] = {LARGE, SMALL};
  for (int i = 0; i < 2; i++) {
    Type type = type_constant(context, DTYPE_FLOAT32, &counts[i], 1);
    Value *inputs[] = {graph_input(model->graph, type, str_intern(context, i ? "b" : "a")),
                       weights(model->graph, job, counts[i], i ? "small" : "large")};
    graph_output(model->graph, graph_node(model->graph, NULL, OP_Mul, inputs, 2, &type, 1, NULL)->outputs[0]);
  }
  model_name(model);
  model_write_file(model, &job->options, path);
}

static bool run_export(int number, Weights weights, bool skip_sync) {
  static const size_t thresholds[] = {[BESIDE] = THRESHOLD, [SHARDS] = 1, [BY_REFERENCE] = THRESHOLD};
  Export job = {.number = number, .weights = weights};
  job.options = (WriteOptions){.external_threshold = thresholds[weights], .output.skip_sync = skip_sync};
  if (weights == SHARDS) job.options.largest_data_file = SHARD;
  context_init(&job.context);
  bool done = context_protect(&job.context, export_model, &job);
  context_release(&job.context);
  return done;
}

/* ---- what is in the folder ---- */

typedef struct Found {
  Context context;
  MappedFile file;
  int number;                      /* of the model that is whole; -1: there is none, -2: what is there is broken */
  char data[MOST_DATA_FILES][512]; /* the names of its other files */
  int data_count;
} Found;

static bool holds(const void *values, size_t size, int number) {
  return size > 0 && size <= sizeof numbers[number] && memcmp(values, numbers[number], size) == 0;
}

static bool is_data_of(const Found *found, const char *name) {
  int at = 0;
  while (at < found->data_count && strcmp(found->data[at], name) != 0) at++;
  return at < found->data_count;
}

static bool data_are_whole(Found *found, const StoredTensor *stored, size_t size, int number) {
  char name[1024];
  struct stat status;
  if (!is_data_of(found, stored->location)) {
    if (found->data_count == MOST_DATA_FILES) return false;
    snprintf(found->data[found->data_count++], sizeof *found->data, "%s", stored->location);
  }
  snprintf(name, sizeof name, "%s/%s", folder, stored->location);
  FILE *file = fopen(name, "rb");
  static float values[LARGE];
  /* onnx.load takes no file that has a second name. */
  bool whole = file && fstat(fileno(file), &status) == 0 && status.st_nlink == 1 && stored->length == size &&
               size <= sizeof values && fseek(file, (long)stored->offset, SEEK_SET) == 0 &&
               fread(values, 1, size, file) == size && holds(values, size, number);
  if (file) fclose(file);
  return whole;
}

static void look(void *argument) {
  Found *found = argument;
  found->number = -2;
  file_map(&found->context, path, &found->file);
  Model *model = model_read(&found->context, found->file.data, found->file.size);
  int number = atoi(model->graph->name);
  bool whole = number > 0 && number < NUMBERS && model->graph->initializers.count == 2;
  for (size_t i = 0; whole && i < model->graph->initializers.count; i++) {
    const Tensor *tensor = model->graph->initializers.items[i]->tensor;
    const StoredTensor *stored = tensor_stored(model, tensor);
    if (stored) whole = data_are_whole(found, stored, tensor->size, number);
    else whole = holds(tensor->data, tensor->size, number);
  }
  if (whole) found->number = number;
}

static Found find_model(void) {
  Found found = {.number = -1};
  if (access(path, F_OK) != 0) return found;
  context_init(&found.context);
  context_protect(&found.context, look, &found);
  file_unmap(&found.file);
  context_release(&found.context);
  return found;
}

static const char unrelated[] = "somebody else's";

static bool unrelated_is_there(void) {
  char name[1024], text[64] = "";
  snprintf(name, sizeof name, "%s.data", path);
  FILE *file = fopen(name, "rb");
  if (!file) return false;
  size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  return length == strlen(unrelated) && memcmp(text, unrelated, length) == 0;
}

static void write_referred(void) {
  char name[1024];
  snprintf(name, sizeof name, "%s/%s", folder, referred);
  FILE *file = fopen(name, "wb");
  fwrite(numbers, 1, sizeof numbers, file);
  fclose(file);
}

static bool referred_is_there(void) {
  char name[1024];
  static float values[NUMBERS][LARGE];
  snprintf(name, sizeof name, "%s/%s", folder, referred);
  FILE *file = fopen(name, "rb");
  bool whole = file && fread(values, 1, sizeof values, file) == sizeof values && fgetc(file) == EOF &&
               memcmp(values, numbers, sizeof values) == 0;
  if (file) fclose(file);
  return whole;
}

static bool is_any_of(const char *name, const char *const *names) {
  while (*names && strcmp(*names, name) != 0) names++;
  return *names != NULL;
}

/* Names in the folder that neither the model nor anybody else needs. */
static int count_left_overs(const Found *found, bool print) {
  int count = 0;
  DIR *entries = opendir(folder);
  for (const struct dirent *entry; entries && (entry = readdir(entries));) {
    const char *name = entry->d_name;
    static const char *const expected[] = {".", "..", "m.onnx", "real.onnx", referred, NULL};
    if (is_any_of(name, expected) || is_data_of(found, name)) continue;
    if (!strcmp(name, "m.onnx.data") && unrelated_is_there()) continue;
    if (print) fprintf(stderr, "  left over: %s\n", name);
    count++;
  }
  if (entries) closedir(entries);
  return count;
}

static void empty_folder(void) {
  DIR *entries = opendir(folder);
  for (const struct dirent *entry; entries && (entry = readdir(entries));) {
    char name[1024];
    snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) unlink(name);
  }
  if (entries) closedir(entries);
}

/* ---- the cases ---- */

typedef enum Before {
  NOTHING,
  ONE_FILE,
  TWO_FILES,
  TWO_FILES_AGAIN,
  UNRELATED_DATA,
  PRIVATE,
  LINK,
  SHARDED,
  REFERRING
} Before;
typedef struct Scenario {
  const char *name;
  Before before;
  int number; /* of the new model; the old one is 2 */
  Weights weights;
  bool skip_sync;
} Scenario;

enum { OLDEST = 1, OLD = 2, NEW = 3, NEXT = 4 };

static const Scenario scenarios[] = {
    {"one file where none was", NOTHING, NEW, INSIDE, false},
    {"two files where none were", NOTHING, NEW, BESIDE, false},
    {"one file over one", ONE_FILE, NEW, INSIDE, false},
    {"two files over one", ONE_FILE, NEW, BESIDE, false},
    {"one file over two", TWO_FILES, NEW, INSIDE, false},
    {"two files over two", TWO_FILES, NEW, BESIDE, false},
    {"two files over two with names of their own", TWO_FILES_AGAIN, NEW, BESIDE, false},
    {"one file over two with names of their own", TWO_FILES_AGAIN, NEW, INSIDE, false},
    {"two files with the same weights again", TWO_FILES, OLD, BESIDE, false},
    {"two files beside somebody else's", UNRELATED_DATA, NEW, BESIDE, false},
    {"two files over a private one", PRIVATE, NEW, BESIDE, false},
    {"two files through a link", LINK, NEW, BESIDE, false},
    {"one file over one, not synced", ONE_FILE, NEW, INSIDE, true},
    {"two files over two, not synced", TWO_FILES, NEW, BESIDE, true},
    {"shards where nothing was", NOTHING, NEW, SHARDS, false},
    {"shards over shards", SHARDED, NEW, SHARDS, false},
    {"shards over two files", TWO_FILES, NEW, SHARDS, false},
    {"one file over shards", SHARDED, NEW, INSIDE, false},
    {"shards with the same weights again", SHARDED, OLD, SHARDS, false},
    {"by reference over two files", TWO_FILES, NEW, BY_REFERENCE, false},
    {"two files over a model by reference", REFERRING, NEW, BESIDE, false},
};

static void prepare(Before before) {
  static const Weights weights[REFERRING + 1] = {
      [TWO_FILES] = BESIDE, [TWO_FILES_AGAIN] = BESIDE, [SHARDED] = SHARDS, [REFERRING] = BY_REFERENCE};
  empty_folder();
  write_referred();
  if (before == UNRELATED_DATA) {
    char name[1024];
    snprintf(name, sizeof name, "%s.data", path);
    FILE *file = fopen(name, "wb");
    fputs(unrelated, file);
    fclose(file);
  }
  bool done = before != LINK || symlink("real.onnx", path) == 0;
  if (before == TWO_FILES_AGAIN) done = run_export(OLDEST, BESIDE, true);
  if (before != NOTHING) done = done && run_export(OLD, weights[before], true);
  if (before == PRIVATE) done = done && chmod(path, 0600) == 0;
  if (!done) {
    fprintf(stderr, "the folder cannot be prepared\n");
    exit(2);
  }
}

static void complain(const Scenario *scenario, int mode, long number, const char *what, int found) {
  if (failures++ >= 20) return;
  fprintf(stderr, "%s: %s of call %ld, %s: %s (model %d)\n", scenario->name, mode_names[mode], number,
          number ? name_of(number) : "", what, found);
}

/* How an export ended. */
typedef enum Ending { ENDED_WELL, ENDED_WITH_ERROR, KILLED, BROKEN } Ending;

static Ending export_struck(const Scenario *scenario, int mode, long number) {
  arm(mode, number);
  bool done = run_export(scenario->number, scenario->weights, scenario->skip_sync);
  disarm();
  return done ? ENDED_WELL : ENDED_WITH_ERROR;
}

/* In a process of its own. */
static Ending export_killed(const Scenario *scenario, long number) {
  pid_t child = fork();
  if (child < 0) exit(2);
  if (child == 0) {
    export_struck(scenario, MODE_KILL, number);
    _exit(0);
  }
  int status;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? KILLED : BROKEN;
}

static void check(const Scenario *scenario, int mode, long number, Ending ending) {
  static const char *const removals[] = {"unlinkat", "renameat2", NULL};
  Found found = find_model();
  int old = scenario->before == NOTHING ? -1 : OLD;
  bool is_new = found.number == scenario->number;
  struct stat status;
  if (ending == BROKEN) complain(scenario, mode, number, "the process ended by itself", found.number);
  if (found.number != old && !is_new) {
    complain(scenario, mode, number, "neither the old model nor the new one is whole", found.number);
  }
  if (ending == ENDED_WELL && !is_new) {
    complain(scenario, mode, number, "the export ended well and the model is not the new one", found.number);
  }
  if ((mode == MODE_SHORT || mode == MODE_UNSUPPORTED) && ending != ENDED_WELL) {
    complain(scenario, mode, number, "the export failed without need", found.number);
  }
  if (scenario->before == UNRELATED_DATA && !unrelated_is_there()) {
    complain(scenario, mode, number, "somebody else's file is gone", found.number);
  }
  if (is_new && scenario->weights == SHARDS && found.data_count != MOST_DATA_FILES) {
    complain(scenario, mode, number, "the shards are not two files", found.number);
  }
  if (!referred_is_there()) complain(scenario, mode, number, "what the model may refer to is gone", found.number);
  if (scenario->before == PRIVATE && stat(path, &status) == 0 && (status.st_mode & 0777) != 0600) {
    complain(scenario, mode, number, "the mode has changed", found.number);
  }
  if (scenario->before == LINK && (lstat(path, &status) != 0 || !S_ISLNK(status.st_mode))) {
    complain(scenario, mode, number, "the link is gone", found.number);
  }
  /* What cannot be removed stays; and so does what it would not be safe to remove, when the new model may not be on the
   * disk yet. */
  bool must_be_clean = ending == ENDED_WITH_ERROR && !is_new && !is_any_of(name_of(number), removals);
  if (must_be_clean && count_left_overs(&found, failures < 20)) {
    complain(scenario, mode, number, "a failed export left something", found.number);
  }
}

/* The next export finds everything in order, and leaves it so. */
static void check_next(const Scenario *scenario, int mode, long number) {
  if (!run_export(NEXT, scenario->weights, true)) complain(scenario, mode, number, "the next export failed", -2);
  Found found = find_model();
  if (found.number != NEXT) complain(scenario, mode, number, "the next export's model is not there", found.number);
  if (count_left_overs(&found, failures < 20)) {
    complain(scenario, mode, number, "something is left after the next export", found.number);
  }
}

static int count_descriptors(void) {
  int count = 0;
  for (int i = 0; i < 256; i++) count += fcntl(i, F_GETFD) >= 0;
  return count;
}

static void strike(const Scenario *scenario, int mode, long number) {
  static const char *const closing[] = {"close", "closedir", NULL};
  prepare(scenario->before);
  int before = count_descriptors();
  Ending ending = mode == MODE_KILL ? export_killed(scenario, number) : export_struck(scenario, mode, number);
  cases++;
  check(scenario, mode, number, ending);
  if (count_descriptors() != before && !is_any_of(number ? name_of(number) : "", closing)) {
    complain(scenario, mode, number, "a file was left open", -2);
  }
  check_next(scenario, mode, number);
}

/* What a call may answer besides having done all or nothing. */
static const char *const may_be_interrupted[] = {"openat64", "open64", "writev", "write", "flock", "pread64", NULL};
static const char *const may_be_short[] = {"writev", "write", NULL};

static void run_scenario(const Scenario *scenario) {
  prepare(scenario->before);
  arm(MODE_FAIL, 0);
  run_export(scenario->number, scenario->weights, scenario->skip_sync);
  long calls = disarm();
  for (long number = 1; number <= calls; number++) {
    const char *name = name_of(number);
    bool interrupted = is_any_of(name, may_be_interrupted), shortened = is_any_of(name, may_be_short);
    strike(scenario, MODE_FAIL, number);
    strike(scenario, MODE_KILL, number);
    if (interrupted) strike(scenario, MODE_INTERRUPT, number);
    if (shortened) strike(scenario, MODE_SHORT, number);
  }
  strike(scenario, MODE_UNSUPPORTED, 0);
  printf("%s: %ld calls\n", scenario->name, calls);
}

int main(int argc, char **argv) {
  *(void **)(void *)&arm = dlsym(RTLD_DEFAULT, "failing_calls_arm");
  *(void **)(void *)&disarm = dlsym(RTLD_DEFAULT, "failing_calls_disarm");
  *(void **)(void *)&struck = dlsym(RTLD_DEFAULT, "failing_calls_struck");
  *(void **)(void *)&name_of = dlsym(RTLD_DEFAULT, "failing_calls_name");
  if (argc != 2 || !name_of || !arm || !disarm || !struck) {
    fprintf(stderr, "usage: LD_PRELOAD=failing_calls.so crash_export FOLDER\n");
    return 2;
  }
  folder = argv[1];
  char name[1024];
  snprintf(name, sizeof name, "%s/m.onnx", folder);
  path = name;
  if (mkdir(folder, 0777) != 0) {
    perror(folder);
    return 2;
  }
  for (int i = 0; i < NUMBERS; i++) {
    for (int k = 0; k < LARGE; k++) numbers[i][k] = (float)(i + 1);
  }
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) run_scenario(&scenarios[i]);
  empty_folder();
  rmdir(folder);
  printf("%ld cases, %ld failures\n", cases, failures);
  return failures ? 1 : 0;
}
