/* Filling. */
#include "onnx/file/fill.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/beneath.h"
#include "base/bytes.h"
#include "onnx/facts/schema_fields.h"
#include "onnx/file/data_files.h"
#include "onnx/file/external.h"
#include "onnx/file/message_edit.h"
#include "onnx/file/read.h"
#include "onnx/file/safetensors.h"
#include "onnx/file/write.h"
#include "types/moved.h"

/* A weight of the model, and where it comes from. */
typedef struct Place {
  Str name;
  const Tensor *tensor;
  const StoredTensor *stored;
  const Weight *weight;
  const Tensor *data; /* the same with its bytes */
} Place;

typedef struct Filling {
  Cleanup cleanup;
  Context *context;
  const FillOptions *options;
  const unsigned char *bytes;
  size_t size;
  Model *model;
  ARRAY(Place) places;
  Checkpoint checkpoint;
  MappedFile *files; /* of the checkpoint, as they are needed */
  Builder trouble;   /* everything that does not fit */
} Filling;

static void unmap_files(Cleanup *cleanup) {
  Filling *filling = (Filling *)(void *)cleanup;
  for (size_t i = 0; i < filling->checkpoint.files.count; i++) file_unmap(&filling->files[i]);
}

/* ---- which weight is which ---- */

static bool is_to_come(const StoredTensor *stored) {
  return stored && stored->location && str_is(stored->location, WEIGHTS_TO_COME);
}

static void collect(Graph *graph, void *data) {
  Filling *filling = data;
  for (size_t i = 0; i < graph->initializers.count; i++) {
    const Value *value = graph->initializers.items[i];
    const StoredTensor *stored = tensor_stored(filling->model, value->tensor);
    if (!is_to_come(stored)) continue;
    Place place = {.name = value->name, .tensor = value->tensor, .stored = stored};
    array_push(filling->context, &filling->places, place);
  }
}

typedef struct Step {
  const char *at;
  size_t length;
} Step;
enum { MOST_STEPS = 16 };

/* Whether the path fits the pattern, and which steps stand where it has a star. */
static bool fits(const char *pattern, const char *end, const char *path, Step *steps, size_t count) {
  while (pattern < end && *pattern != '*') {
    if (*pattern++ != *path++) return false;
  }
  if (pattern == end) return !*path;
  if (count == MOST_STEPS) return false;
  for (size_t length = strcspn(path, "."); length; length--) {
    steps[count] = (Step){path, length};
    if (fits(pattern + 1, end, path + length, steps, count + 1)) return true;
  }
  return false;
}

static Str with_steps(Context *context, const char *key, const Step *steps) {
  Builder out;
  builder_init(&out, context);
  for (size_t i = 0; *key; key++) {
    if (*key != '*') builder_add_sized(&out, key, 1);
    else builder_add_sized(&out, steps[i].at, steps[i].length), i++;
  }
  return str_intern_sized(context, builder_text(&out), out.length);
}

static Str key_of(const Filling *filling, Str path) {
  for (size_t i = 0; i < filling->options->rename_count; i++) {
    const char *rule = filling->options->renames[i], *equals = strchr(rule, '=');
    Step steps[MOST_STEPS];
    if (equals && fits(rule, equals, path, steps, 0)) return with_steps(filling->context, equals + 1, steps);
  }
  return path;
}

static size_t stars(const char *text, const char *end) {
  size_t count = 0;
  for (; text < end; text++) count += *text == '*';
  return count;
}

static void check_rules(const Filling *filling) {
  for (size_t i = 0; i < filling->options->rename_count; i++) {
    const char *rule = filling->options->renames[i], *equals = strchr(rule, '=');
    bool good =
        equals && stars(rule, equals) == stars(equals, equals + strlen(equals)) && stars(rule, equals) <= MOST_STEPS;
    if (!good) {
      fail(filling->context, ERROR_VALUE,
           "--rename must be PATH=KEY with the same number of '*' on both sides, at most %d; got '%s'", MOST_STEPS,
           rule);
    }
  }
}

static void add_shape(Builder *out, const int64_t *dims, uint32_t rank) {
  for (uint32_t i = 0; i < rank; i++) builder_format(out, "%s%" PRId64, i ? ", " : "[", dims[i]);
  builder_add(out, rank ? "]" : "[]");
}

static bool same_shape(const Tensor *tensor, const Weight *weight) {
  return tensor->rank == weight->rank && same_bytes(tensor->dims, weight->dims, tensor->rank * sizeof *tensor->dims);
}

static void note_trouble(Filling *filling, const Place *place, Str key) {
  Builder *out = &filling->trouble;
  const Weight *weight = place->weight;
  if (!weight) {
    builder_format(out, "\n  missing: '%s', %s", key, dtype_name(place->tensor->dtype));
    add_shape(out, place->tensor->dims, place->tensor->rank);
  } else if (weight->dtype == DTYPE_NONE) {
    builder_format(out, "\n  unsupported type: '%s' is %s, which ONNX does not have", key, weight->spelled);
  } else {
    builder_format(out, "\n  mismatch: '%s' is %s", key, dtype_name(weight->dtype));
    add_shape(out, weight->dims, weight->rank);
    builder_format(out, ", but the model has %s", dtype_name(place->tensor->dtype));
    add_shape(out, place->tensor->dims, place->tensor->rank);
  }
}

static void match(Filling *filling) {
  Checkpoint *checkpoint = &filling->checkpoint;
  bool *used = arena_new_array(&filling->context->arena, checkpoint->weights.count, bool);
  builder_init(&filling->trouble, filling->context);
  for (size_t i = 0; i < filling->places.count; i++) {
    Place *place = &filling->places.items[i];
    Str key = key_of(filling, place->name);
    const Weight *weight = place->weight = checkpoint_find(checkpoint, key);
    if (weight) used[weight - checkpoint->weights.items] = true;
    bool good = weight && weight->dtype == place->tensor->dtype && same_shape(place->tensor, weight) &&
                weight->size == place->tensor->size;
    if (!good) note_trouble(filling, place, key);
  }
  for (size_t i = 0; !filling->options->allow_surplus && i < checkpoint->weights.count; i++) {
    if (used[i]) continue;
    builder_format(&filling->trouble, "\n  surplus: '%s' is not a weight of the model",
                   checkpoint->weights.items[i].name);
  }
  if (!filling->trouble.length) return;
  fail(filling->context, ERROR_VALUE, "the weights do not match the model:%s", builder_text(&filling->trouble));
}

/* ---- the data ---- */

static const MappedFile *mapped(Filling *filling, size_t index) {
  MappedFile *file = &filling->files[index];
  if (file->data) return file;
  OpenFile open_file = checkpoint_file(&filling->checkpoint, index);
  bool done = open_file.descriptor >= 0 && file_map_descriptor(open_file.descriptor, file);
  close_file(&open_file);
  if (!done) fail(filling->context, ERROR_IO, "cannot read '%s'", filling->checkpoint.files.items[index]);
  return file;
}

static void give_bytes(Filling *filling, Place *place) {
  const Weight *weight = place->weight;
  Tensor *tensor = arena_copy(&filling->context->arena, place->tensor, sizeof *tensor);
  tensor->data = "";
  if (weight->size) {
    const MappedFile *file = mapped(filling, weight->file);
    if (weight->offset > file->size || weight->size > file->size - weight->offset) {
      fail(filling->context, ERROR_IO, "'%s' was truncated", filling->checkpoint.files.items[weight->file]);
    }
    tensor->data = file->data + weight->offset;
  }
  place->data = tensor;
}

/* ---- the model ---- */

/* What stands instead of an entry that told where the data will be. */
static void put_entries(MessageEditor *editor, const Place *place, const char *location, uint64_t offset) {
  Wire message = {editor->context, editor->bytes, place->stored->message,
                  place->stored->message + place->stored->message_size};
  char number[32];
  snprintf(number, sizeof number, "%" PRIu64, offset);
  for (Field field; wire_next(&message, &field);) {
    if (field.key != AS_BYTES(FIELD_TENSOR_EXTERNAL_DATA)) continue;
    Entry entry = read_entry(&message, &field);
    bool is_location = is_key(&entry, "location");
    if (!is_location && !is_key(&entry, "offset")) continue;
    Builder text;
    const char *value = is_location ? location : number;
    builder_init(&text, editor->context);
    add_entry(&text, FIELD_TENSOR_EXTERNAL_DATA, is_location ? "location" : "offset", value, strlen(value));
    add_edit(editor, entry.start, entry.end, &text);
  }
}

static Rewritten rewritten(const Filling *filling, const DataPlan *plan, const char *const *names) {
  MessageEditor editor = {.context = filling->context, .bytes = filling->bytes, .size = filling->size};
  for (size_t i = 0; i < filling->places.count; i++) {
    const Place *place = &filling->places.items[i];
    const PlacedTensor *placed = plan ? data_placed(plan, place->data) : NULL;
    if (placed) put_entries(&editor, place, names[placed->file], placed->offset);
    else put_entries(&editor, place, names[place->weight->file], place->weight->offset);
  }
  return messages_edit(&editor);
}

/* From the folder of the model to a file of the checkpoint, as the model says it. */
static const char *location_of(const Filling *filling, const char *model_folder, size_t index) {
  Context *context = filling->context;
  const char *name = filling->checkpoint.files.items[index];
  const char *path = arena_format(&context->arena, "%s/%s", filling->checkpoint.folder, name);
  char folder[PATH_MAX], file[PATH_MAX];
  bool found = realpath(model_folder, folder) && realpath(path, file);
  size_t length = found ? strlen(folder) : 0;
  if (length == 1) length = 0; /* the root */
  if (found && strncmp(file, folder, length) == 0 && file[length] == '/') {
    return arena_copy_text(&context->arena, file + length + 1);
  }
  fail(context, ERROR_VALUE,
       "'%s' is not in the folder of the model, and ONNX readers do not follow paths out of it; write the model next "
       "to the weights",
       path);
}

static void refer(Filling *filling, const char *path) {
  Context *context = filling->context;
  const char *slash = strrchr(path, '/');
  const char *folder = !slash          ? "."
                       : slash == path ? "/"
                                       : arena_format(&context->arena, "%.*s", (int)(slash - path), path);
  const char **names = arena_new_array(&context->arena, filling->checkpoint.files.count, const char *);
  for (size_t i = 0; i < filling->checkpoint.files.count; i++) names[i] = location_of(filling, folder, i);
  Rewritten result = rewritten(filling, NULL, names);
  segments_write_file(context, result.segments, result.count, path,
                      &(OutputOptions){.skip_sync = filling->options->skip_sync});
}

/* Files that the model has already stay its own. */
static void keep_files(const Filling *filling, Output *output) {
  CompanionList found = {0};
  MappedFile model = {.data = filling->bytes, .size = filling->size};
  find_external_files(filling->context, &model, &found);
  for (size_t i = 0; i < found.count; i++) output_refer(output, found.items[i].name);
}

static void copy(Filling *filling, const char *path) {
  Context *context = filling->context;
  DataPlan plan;
  data_plan_init(&plan, context, NULL);
  plan.alignment = MAPPED_ALIGNMENT;
  plan.largest_file = filling->options->largest_data_file;
  for (size_t i = 0; i < filling->places.count; i++) {
    give_bytes(filling, &filling->places.items[i]);
    data_place(&plan, filling->places.items[i].data);
  }
  OutputOptions options = {.skip_sync = filling->options->skip_sync, .find_companions = find_external_files};
  Output *output = output_open(context, path, &options);
  if (output_is_stream(output)) {
    fail(context, ERROR_VALUE,
         "'%s' is not a regular file, so there is no place for a second file with the weights next to it", path);
  }
  const char **names = data_file_names(context, output_stem(output), data_file_count(&plan));
  keep_files(filling, output);
  DataFiles files;
  data_files_write(&files, output, &plan, NULL);
  Rewritten result;
  do {
    data_files_name(&files, names);
    result = rewritten(filling, &plan, names);
  } while (!segments_commit(output, result.segments, result.count));
}

Filled model_fill(Context *context, const void *bytes, size_t size, const char *path, const FillOptions *options) {
  Filling *filling = arena_new(&context->arena, Filling);
  *filling =
      (Filling){.cleanup.run = unmap_files, .context = context, .options = options, .bytes = bytes, .size = size};
  check_rules(filling);
  filling->model = model_read(context, bytes, size);
  model_each_graph(filling->model, collect, filling);
  if (!filling->places.count) fail(context, ERROR_VALUE, "the model already has all its weights");
  checkpoint_open(&filling->checkpoint, context, options->source);
  match(filling);
  filling->files = arena_new_array(&context->arena, filling->checkpoint.files.count, MappedFile);
  cleanup_push(context, &filling->cleanup);
  if (options->by_reference) refer(filling, path);
  else copy(filling, path);
  cleanup_drop(context, &filling->cleanup);
  unmap_files(&filling->cleanup);
  Filled filled = {.weights = filling->places.count};
  for (size_t i = 0; i < filling->places.count; i++) filled.bytes += filling->places.items[i].tensor->size;
  return filled;
}
