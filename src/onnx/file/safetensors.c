/* Safetensors. */
#include "onnx/file/safetensors.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/json.h"

#define ENDING ".safetensors"
#define INDEX_ENDING ".safetensors.index.json"
#define KIND "a safetensors file"

enum {
  LONGEST_HEADER = 100 << 20, /* bytes, as the format says */
  LARGEST_INDEX = 100 << 20,
  MOST_FILES = 10000,
};

typedef struct Reader {
  Cleanup cleanup;
  Checkpoint *checkpoint;
  OpenFile file;
  Str name; /* of the file at hand */
  Json json;
} Reader;

static void close_reader(Cleanup *cleanup) { close_file(&((Reader *)(void *)cleanup)->file); }

static const char *path_of(const Reader *reader) {
  const Checkpoint *checkpoint = reader->checkpoint;
  return arena_format(&checkpoint->context->arena, "%s/%s", checkpoint->folder, reader->name);
}

static _Noreturn void fail_file(const Reader *reader, const char *what) {
  fail(reader->checkpoint->context, ERROR_VALUE, "%s: %s", path_of(reader), what);
}

static _Noreturn void fail_weight(const Reader *reader, const Weight *weight, const char *what) {
  fail(reader->checkpoint->context, ERROR_VALUE, "%s: '%s' %s", path_of(reader), weight->name, what);
}

/* ---- a file ---- */

static DType dtype_of(Str spelled) {
  static const struct {
    const char *spelled;
    DType dtype;
  } rows[] = {
      {"BOOL", DTYPE_BOOL},
      {"I8", DTYPE_INT8},
      {"I16", DTYPE_INT16},
      {"I32", DTYPE_INT32},
      {"I64", DTYPE_INT64},
      {"U8", DTYPE_UINT8},
      {"U16", DTYPE_UINT16},
      {"U32", DTYPE_UINT32},
      {"U64", DTYPE_UINT64},
      {"F16", DTYPE_FLOAT16},
      {"BF16", DTYPE_BFLOAT16},
      {"F32", DTYPE_FLOAT32},
      {"F64", DTYPE_FLOAT64},
      {"C64", DTYPE_COMPLEX64},
      {"F8_E4M3", DTYPE_FLOAT8_E4M3FN},
      {"F8_E5M2", DTYPE_FLOAT8_E5M2},
      {"F8_E4M3FNUZ", DTYPE_FLOAT8_E4M3FNUZ},
      {"F8_E5M2FNUZ", DTYPE_FLOAT8_E5M2FNUZ},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (str_is(spelled, rows[i].spelled)) return rows[i].dtype;
  }
  return DTYPE_NONE;
}

static void read_shape(Reader *reader, Weight *weight) {
  int64_t dims[MAX_RANK];
  json_expect(&reader->json, '[', "'['");
  if (!json_take(&reader->json, ']')) {
    do {
      uint64_t size = json_natural(&reader->json);
      if (weight->rank == MAX_RANK) fail_weight(reader, weight, "has too many dimensions");
      if (size > INT64_MAX) fail_weight(reader, weight, "has a dimension that is too large");
      dims[weight->rank++] = (int64_t)size;
    } while (json_take(&reader->json, ','));
    json_expect(&reader->json, ']', "',' or ']'");
  }
  weight->dims = arena_copy(&reader->checkpoint->context->arena, dims, weight->rank * sizeof *dims);
}

static void read_offsets(Reader *reader, Weight *weight) {
  json_expect(&reader->json, '[', "'['");
  weight->offset = json_natural(&reader->json);
  json_expect(&reader->json, ',', "','");
  uint64_t end = json_natural(&reader->json);
  json_expect(&reader->json, ']', "']'");
  if (end < weight->offset) fail_weight(reader, weight, "ends before it begins");
  weight->size = end - weight->offset;
}

/* {"dtype": "BF16", "shape": [4096, 4096], "data_offsets": [0, 33554432]} */
static Weight read_weight(Reader *reader, Str name) {
  enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL = 7 };
  Weight weight = {.name = name, .file = reader->checkpoint->files.count - 1};
  unsigned seen = 0, now;
  json_expect(&reader->json, '{', "'{'");
  do {
    Str key = json_string(&reader->json);
    json_expect(&reader->json, ':', "':'");
    now = str_is(key, "dtype") ? DTYPE : str_is(key, "shape") ? SHAPE : str_is(key, "data_offsets") ? OFFSETS : 0;
    if (seen & now) fail_weight(reader, &weight, "has a duplicate key");
    seen |= now;
    if (now == DTYPE) weight.spelled = json_string(&reader->json);
    else if (now == SHAPE) read_shape(reader, &weight);
    else if (now == OFFSETS) read_offsets(reader, &weight);
    else json_pass(&reader->json);
  } while (json_take(&reader->json, ','));
  json_expect(&reader->json, '}', "',' or '}'");
  if (seen != ALL) fail_weight(reader, &weight, "has no dtype, shape or data_offsets");
  weight.dtype = dtype_of(weight.spelled);
  return weight;
}

static void check_size(const Reader *reader, const Weight *weight) {
  uint64_t size = dtype_bits(weight->dtype) / 8;
  if (!size) return; /* nobody knows */
  for (uint32_t i = 0; i < weight->rank; i++) {
    if (__builtin_mul_overflow(size, (uint64_t)weight->dims[i], &size)) size = UINT64_MAX;
    if (weight->dims[i] == 0) {
      size = 0;
      break;
    }
  }
  if (size != weight->size) fail_weight(reader, weight, "has data that does not match its shape");
}

static int by_offset(const void *a, const void *b) {
  const Weight *first = *(const Weight *const *)a, *second = *(const Weight *const *)b;
  if (first->offset != second->offset) return first->offset < second->offset ? -1 : 1;
  return first->size != second->size ? (first->size < second->size ? -1 : 1) : strcmp(first->name, second->name);
}

/* The data of the file, from its first byte to its last, are of one tensor each. */
static void check_places(const Reader *reader, size_t first, uint64_t data_size) {
  const Checkpoint *checkpoint = reader->checkpoint;
  size_t count = checkpoint->weights.count - first;
  const Weight **order = arena_new_array(&checkpoint->context->arena, count, const Weight *);
  for (size_t i = 0; i < count; i++) order[i] = &checkpoint->weights.items[first + i];
  sort_items(order, count, sizeof *order, by_offset);
  uint64_t end = 0;
  for (size_t i = 0; i < count; i++) {
    if (order[i]->offset < end) fail_weight(reader, order[i], "overlaps another tensor");
    if (order[i]->offset > end) fail_weight(reader, order[i], "starts after bytes that belong to no tensor");
    end = order[i]->offset + order[i]->size;
    if (order[i]->size > data_size || end > data_size)
      fail_weight(reader, order[i], "extends past the end of the file");
  }
  if (end < data_size) fail_file(reader, "its last bytes belong to no tensor");
}

static void add_weight(Reader *reader, const Weight *weight) {
  Checkpoint *checkpoint = reader->checkpoint;
  void **slot = map_slot_pointer(checkpoint->context, &checkpoint->by_name, weight->name);
  if (*slot) fail_weight(reader, weight, "appears twice");
  array_push(checkpoint->context, &checkpoint->weights, *weight);
  *slot = (void *)(uintptr_t)checkpoint->weights.count;
}

static void read_header(Reader *reader, const char *header, uint64_t length) {
  Checkpoint *checkpoint = reader->checkpoint;
  size_t first = checkpoint->weights.count;
  json_init(&reader->json, checkpoint->context, header, length, path_of(reader), KIND);
  json_expect(&reader->json, '{', "'{'");
  if (!json_take(&reader->json, '}')) {
    do {
      Str name = json_string(&reader->json);
      json_expect(&reader->json, ':', "':'");
      if (str_is(name, "__metadata__")) {
        json_pass(&reader->json);
        continue;
      }
      Weight weight = read_weight(reader, name);
      check_size(reader, &weight);
      add_weight(reader, &weight);
    } while (json_take(&reader->json, ','));
    json_expect(&reader->json, '}', "',' or '}'");
  }
  if (json_next(&reader->json) || reader->json.at < reader->json.end) json_fail(&reader->json, "the end");
  check_places(reader, first, reader->file.size - 8 - length);
  for (size_t i = first; i < checkpoint->weights.count; i++) checkpoint->weights.items[i].offset += 8 + length;
}

static void read_file(Reader *reader) {
  Context *context = reader->checkpoint->context;
  unsigned char bytes[8];
  size_t got;
  uint64_t length = 0;
  if (!read_at(&reader->file, 0, bytes, sizeof bytes, &got)) fail_file(reader, "cannot be read");
  if (got < sizeof bytes) fail_file(reader, "not " KIND ": it is too short");
  for (int i = 0; i < 8; i++) length |= (uint64_t)bytes[i] << (8 * i);
  if (length > LONGEST_HEADER) fail_file(reader, "not " KIND ": its header is longer than 100 MB");
  if (length > reader->file.size - 8) fail_file(reader, "not " KIND ": its header extends past the end of the file");
  char *header = arena_alloc(&context->arena, (size_t)length + 1);
  if (!read_at(&reader->file, 8, header, (size_t)length, &got) || got < length) fail_file(reader, "cannot be read");
  read_header(reader, header, length);
}

static void open_file(Reader *reader, Str name) {
  Checkpoint *checkpoint = reader->checkpoint;
  reader->name = name;
  if (strlen(name) != str_length(name)) fail_file(reader, "its name contains a NUL");
  reader->file = open_beneath(checkpoint->folder, name);
  if (reader->file.descriptor < 0) fail_file(reader, "no such file in the folder");
}

static void add_file(Reader *reader, Str name) {
  Checkpoint *checkpoint = reader->checkpoint;
  open_file(reader, name);
  if (checkpoint->files.count == MOST_FILES) fail_file(reader, "exceeds the limit on the number of files");
  array_push(checkpoint->context, &checkpoint->files, name);
  read_file(reader);
  close_file(&reader->file);
}

/* ---- an index ---- */

typedef struct IndexEntry {
  Str weight, file;
} IndexEntry;
typedef ARRAY(IndexEntry) IndexEntries;

static void read_map(Reader *reader, IndexEntries *entries) {
  json_expect(&reader->json, '{', "'{'");
  if (json_take(&reader->json, '}')) return;
  do {
    Str weight = json_string(&reader->json);
    json_expect(&reader->json, ':', "':'");
    IndexEntry entry = {weight, json_string(&reader->json)};
    array_push(reader->checkpoint->context, entries, entry);
  } while (json_take(&reader->json, ','));
  json_expect(&reader->json, '}', "',' or '}'");
}

/* {"metadata": {…}, "weight_map": {"weight": "model-00001-of-00003.safetensors", …}} */
static void read_index(Reader *reader, IndexEntries *entries) {
  bool found = false;
  json_expect(&reader->json, '{', "'{'");
  if (!json_take(&reader->json, '}')) {
    do {
      Str key = json_string(&reader->json);
      json_expect(&reader->json, ':', "':'");
      if (!str_is(key, "weight_map")) json_pass(&reader->json);
      else if (found) json_fail(&reader->json, "one weight_map");
      else found = true, read_map(reader, entries);
    } while (json_take(&reader->json, ','));
    json_expect(&reader->json, '}', "',' or '}'");
  }
  if (!found) json_fail(&reader->json, "a weight_map");
  if (json_next(&reader->json) || reader->json.at < reader->json.end) json_fail(&reader->json, "the end");
}

/* What the index says of a weight, and what the files hold, are the same. */
static void check_entries(const Reader *reader, const IndexEntries *entries) {
  const Checkpoint *checkpoint = reader->checkpoint;
  for (size_t i = 0; i < entries->count; i++) {
    const IndexEntry *entry = &entries->items[i];
    const Weight *weight = checkpoint_find(checkpoint, entry->weight);
    if (!weight || checkpoint->files.items[weight->file] != entry->file) {
      fail(checkpoint->context, ERROR_VALUE, "%s: '%s' is not in '%s', where the index says it is", path_of(reader),
           entry->weight, entry->file);
    }
  }
}

static void open_index(Reader *reader, Str name) {
  Checkpoint *checkpoint = reader->checkpoint;
  Context *context = checkpoint->context;
  open_file(reader, name);
  if (reader->file.size > LARGEST_INDEX) fail_file(reader, "is too large for an index");
  size_t size = (size_t)reader->file.size, got;
  char *text = arena_alloc(&context->arena, size + 1);
  if (!read_at(&reader->file, 0, text, size, &got) || got < size) fail_file(reader, "cannot be read");
  close_file(&reader->file);
  json_init(&reader->json, context, text, size, path_of(reader), "a safetensors index");
  IndexEntries entries = {0};
  read_index(reader, &entries);
  Map known = {0};
  for (size_t i = 0; i < entries.count; i++) {
    void **slot = map_slot_pointer(context, &known, entries.items[i].file);
    if (*slot) continue;
    *slot = reader;
    add_file(reader, entries.items[i].file);
  }
  reader->name = name;
  check_entries(reader, &entries);
}

/* ---- a folder ---- */

typedef struct OpenFolder {
  Cleanup cleanup;
  DIR *entries;
} OpenFolder;

static void close_folder(Cleanup *cleanup) { closedir(((OpenFolder *)(void *)cleanup)->entries); }

static bool ends_with(const char *text, const char *ending) {
  size_t length = strlen(text), tail = strlen(ending);
  return length > tail && strcmp(text + length - tail, ending) == 0;
}

/* The index, or else the only file. */
static Str find_in_folder(Context *context, const char *path) {
  OpenFolder folder = {.cleanup.run = close_folder, .entries = opendir(path)};
  if (!folder.entries) fail(context, ERROR_IO, "cannot read the folder '%s'", path);
  cleanup_push(context, &folder.cleanup);
  Str found[2] = {NULL, NULL};
  size_t counts[2] = {0, 0};
  for (const struct dirent *entry; (entry = readdir(folder.entries));) {
    bool is_index = ends_with(entry->d_name, INDEX_ENDING);
    if (!is_index && !ends_with(entry->d_name, ENDING)) continue;
    counts[is_index]++;
    found[is_index] = str_intern(context, entry->d_name);
  }
  cleanup_drop(context, &folder.cleanup);
  closedir(folder.entries);
  if (counts[1] == 1) return found[1];
  if (counts[1] > 1)
    fail(context, ERROR_VALUE, "%s: there are %zu safetensors indexes; name one of them", path, counts[1]);
  if (counts[0] == 1) return found[0];
  if (counts[0]) fail(context, ERROR_VALUE, "%s: there are %zu safetensors files but no index", path, counts[0]);
  fail(context, ERROR_VALUE, "%s: there are no safetensors files in this folder", path);
}

static bool is_folder(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* A file that the user named may be a link; what an index names may not lead out of its folder. */
static void open_path(Reader *reader, const char *path) {
  Checkpoint *checkpoint = reader->checkpoint;
  Context *context = checkpoint->context;
  if (is_folder(path)) {
    checkpoint->folder = str_intern(context, path);
    Str name = find_in_folder(context, path);
    if (ends_with(name, ".json")) open_index(reader, name);
    else add_file(reader, name);
    return;
  }
  const char *slash = strrchr(path, '/');
  size_t length = slash ? (size_t)(slash - path) : 0;
  checkpoint->folder = slash == path ? str_intern(context, "/")
                       : length      ? str_intern_sized(context, path, length)
                                     : str_intern(context, ".");
  Str name = str_intern(context, slash ? slash + 1 : path);
  if (ends_with(name, ".json")) {
    open_index(reader, name);
    return;
  }
  reader->name = name;
  checkpoint->named = arena_copy_text(&context->arena, path);
  reader->file = open_named(path);
  if (reader->file.descriptor < 0) fail(context, ERROR_IO, "cannot read '%s'", path);
  array_push(context, &checkpoint->files, name);
  read_file(reader);
  close_file(&reader->file);
}

void checkpoint_open(Checkpoint *checkpoint, Context *context, const char *path) {
  *checkpoint = (Checkpoint){.context = context};
  Reader reader = {.cleanup.run = close_reader, .checkpoint = checkpoint, .file = {.descriptor = -1}};
  cleanup_push(context, &reader.cleanup);
  open_path(&reader, path);
  cleanup_drop(context, &reader.cleanup);
}

OpenFile checkpoint_file(const Checkpoint *checkpoint, size_t index) {
  if (checkpoint->named) return open_named(checkpoint->named);
  return open_beneath(checkpoint->folder, checkpoint->files.items[index]);
}

const Weight *checkpoint_find(const Checkpoint *checkpoint, Str name) {
  size_t number = (size_t)(uintptr_t)map_get_pointer(&checkpoint->by_name, name);
  return number ? &checkpoint->weights.items[number - 1] : NULL;
}
