/* Data files. */
#include "onnx/file/data_files.h"

#include <inttypes.h>

#include "base/bytes.h"
#include "onnx/file/external.h"
#include "types/moved.h"

enum { STEP = 8 << 20 /* bytes between two looks at how far it is */ };

static const char *ending_of(Context *context, size_t index, size_t count) {
  if (count == 1) return DATA_ENDING;
  return arena_format(&context->arena, "%05zu-of-%05zu." DATA_ENDING, index + 1, count);
}

const char **data_file_names(Context *context, const char *stem, size_t count) {
  const char **names = arena_new_array(&context->arena, count, const char *);
  for (size_t i = 0; i < count; i++) {
    names[i] = arena_format(&context->arena, "%s.%s", stem, ending_of(context, i, count));
  }
  return names;
}

static const PlacedTensor *placed_at(const DataFiles *files, const DataFile *file, size_t index) {
  return files->plan->tensors.items[file->first + index];
}

static uint64_t file_size(const DataFiles *files, const DataFile *file) {
  const PlacedTensor *last = placed_at(files, file, file->count - 1);
  return last->offset + last->tensor->size;
}

static uint64_t data_bytes(const DataFiles *files, const DataFile *file) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < file->count; i++) bytes += placed_at(files, file, i)->tensor->size;
  return bytes;
}

/* ---- writing ---- */

typedef struct DataWriter {
  OutputFile *file;
  WriteProgress *progress;
} DataWriter;

static void write_bytes(const void *bytes, size_t size, void *data) {
  DataWriter *writer = data;
  for (size_t step; size; size -= step, bytes = (const char *)bytes + step) {
    step = size < STEP ? size : STEP;
    struct iovec part = {(void *)(uintptr_t)bytes, step};
    output_write(writer->file, &part, 1);
    if (writer->progress) writer->progress->written += step;
  }
}

/* Whether somebody else writes it. */
static bool is_placed(const DataWriter *writer, const Segment *segment, uint64_t offset) {
  const Fetched *fetched = segment_is_plain(segment) || segment->moved ? NULL : segment->fetched;
  if (!fetched || !fetched->place || !fetched->place(fetched, output_temporary_name(writer->file), offset))
    return false;
  output_skip(writer->file, segment->size);
  if (writer->progress) writer->progress->written += segment->size;
  return true;
}

static void settle(const DataFiles *files, const DataFile *file) {
  for (size_t i = 0; i < file->count; i++) {
    Segment segment = tensor_segment(placed_at(files, file, i)->tensor);
    const Fetched *fetched = segment.moved ? NULL : segment.fetched;
    if (fetched && fetched->settle) fetched->settle(fetched);
  }
}

/* The next ones that must be fetched; what stands between them is there. */
static void start_following(const DataFiles *files, size_t first) {
  enum { LOOKED_AT = 32 };
  unsigned distance = 1;
  for (size_t i = first; i < files->plan->tensors.count && i - first < LOOKED_AT && distance <= FETCHED_AHEAD; i++) {
    Segment segment = tensor_segment(files->plan->tensors.items[i]->tensor);
    if (segment_start(&segment, distance)) distance++;
  }
}

static void write_zeros(OutputFile *file, uint64_t count) {
  static const char zeros[4096];
  for (uint64_t step; count; count -= step) {
    step = count < sizeof zeros ? count : sizeof zeros;
    struct iovec part = {(void *)(uintptr_t)zeros, (size_t)step};
    output_write(file, &part, 1);
  }
}

static OutputFile *write_file(const DataFiles *files, const DataFile *file) {
  DataWriter writer = {output_companion(files->output), files->progress};
  Pieces pieces = {0};
  uint64_t position = 0;
  for (size_t i = 0; i < file->count; i++) {
    const PlacedTensor *placed = placed_at(files, file, i);
    Segment segment = tensor_segment(placed->tensor);
    write_zeros(writer.file, placed->offset - position);
    start_following(files, file->first + i + 1);
    if (!is_placed(&writer, &segment, placed->offset)) segment_each_piece(&segment, &pieces, write_bytes, &writer);
    position = placed->offset + placed->tensor->size;
  }
  settle(files, file);
  return writer.file;
}

/* ---- what is there already ---- */

typedef struct Comparison {
  const DataFiles *files;
  const DataFile *data_file;
  OutputFile *file;
  uint64_t offset;
  bool same;
} Comparison;

static void compare_piece(const void *bytes, size_t size, void *data) {
  Comparison *comparison = data;
  comparison->same = comparison->same && output_same(comparison->file, comparison->offset, bytes, size);
  comparison->offset += size;
}

/* The first bytes of every tensor tell almost always; only when they agree is everything read. */
static bool is_same_file(OutputFile *file, void *data) {
  enum { FIRST = 256 };
  Comparison *comparison = data;
  Pieces pieces = {0};
  comparison->file = file;
  comparison->same = true;
  for (int all = 0; all < 2; all++) {
    for (size_t i = 0; i < comparison->data_file->count && comparison->same; i++) {
      const PlacedTensor *placed = placed_at(comparison->files, comparison->data_file, i);
      Segment segment = tensor_segment(placed->tensor);
      comparison->offset = placed->offset;
      if (!all && segment_is_plain(&segment) && segment.size > FIRST) segment.size = FIRST;
      if (all || segment_is_plain(&segment)) segment_each_piece(&segment, &pieces, compare_piece, comparison);
    }
  }
  return comparison->same;
}

typedef struct Hashing {
  uint64_t hash;
  unsigned char *block; /* of what comes in pieces: where they are cut must not matter */
  size_t filled;
} Hashing;

enum { BLOCK = 1 << 20 };

static void hash_piece(const void *bytes, size_t size, void *data) {
  Hashing *hashing = data;
  for (const char *at = bytes; size;) {
    size_t step = size < BLOCK - hashing->filled ? size : BLOCK - hashing->filled;
    copy_bytes(hashing->block + hashing->filled, at, step);
    hashing->filled += step;
    at += step;
    size -= step;
    if (hashing->filled < BLOCK) continue;
    hashing->hash = content_hash(hashing->hash, hashing->block, BLOCK);
    hashing->filled = 0;
  }
}

static uint64_t hash_fetched(Context *context, uint64_t hash, const Fetched *fetched) {
  Hashing hashing = {.hash = hash, .block = arena_alloc(&context->arena, BLOCK)};
  fetched->each_piece(fetched, hash_piece, &hashing);
  return content_hash(hashing.hash, hashing.block, hashing.filled);
}

/* As of one that comes in pieces: where the bytes lie must not matter. */
static uint64_t hash_plain(uint64_t hash, const char *bytes, size_t size) {
  for (; size >= BLOCK; bytes += BLOCK, size -= BLOCK) hash = content_hash(hash, bytes, BLOCK);
  return content_hash(hash, bytes, size);
}

/* What a moved one is made of tells as much as what is made of it. */
static uint64_t hash_segment(Context *context, uint64_t hash, const Segment *segment) {
  const Moved *moved = segment->moved;
  const Fetched *fetched = moved ? moved->fetched : segment->fetched;
  if (fetched) hash = hash_fetched(context, hash, fetched);
  else hash = hash_plain(hash, moved ? moved->from : segment->data, segment->size);
  if (moved) hash = content_hash(hash, moved->strides, moved->rank * sizeof *moved->strides);
  if (moved && moved->scale) hash = content_hash(hash, moved->scale, (size_t)moved->dims[0] * sizeof *moved->scale);
  return hash;
}

/* Of all tensors and where they are in the file. */
static const char *token_of(void *data) {
  const Comparison *comparison = data;
  Context *context = comparison->files->context;
  uint64_t hash = 0;
  for (size_t i = 0; i < comparison->data_file->count; i++) {
    const PlacedTensor *placed = placed_at(comparison->files, comparison->data_file, i);
    Segment segment = tensor_segment(placed->tensor);
    interruption_point(context);
    hash = hash_segment(context, hash_mix(hash_mix(hash, placed->offset), segment.size), &segment);
  }
  return arena_format(&context->arena, "%016" PRIx64, hash);
}

/* ---- all of them ---- */

static const char *choose_name(const DataFiles *files, const DataFile *file, size_t index) {
  Comparison comparison = {.files = files, .data_file = file};
  if (!file->file) return NULL;
  return output_choose_name(file->file, ending_of(files->context, index, files->count), token_of, &comparison);
}

static void divide(DataFiles *files) {
  files->count = data_file_count(files->plan);
  files->items = arena_new_array(&files->context->arena, files->count, DataFile);
  for (size_t i = 0; i < files->plan->tensors.count; i++) {
    const PlacedTensor *placed = files->plan->tensors.items[i];
    DataFile *file = &files->items[placed->file];
    if (!file->count++) file->first = i;
    if (files->progress) files->progress->total += placed->tensor->size;
  }
}

/* A name is chosen first, which is when a file that was kept may turn out to have changed. */
void data_files_write(DataFiles *files, Output *output, const DataPlan *plan, WriteProgress *progress) {
  *files = (DataFiles){.context = plan->context, .output = output, .plan = plan, .progress = progress};
  divide(files);
  for (size_t i = 0; i < files->count; i++) {
    DataFile *file = &files->items[i];
    Comparison comparison = {.files = files, .data_file = file};
    file->file = output_keep(output, file_size(files, file), is_same_file, &comparison);
    file->name = choose_name(files, file, i);
    if (!file->name) file->file = write_file(files, file);
    else if (progress) progress->written += data_bytes(files, file);
  }
  interruption_point(files->context); /* where whoever watches learns that all is there */
}

bool data_files_name(DataFiles *files, const char **names) {
  bool differs = false;
  for (size_t i = 0; i < files->count; i++) {
    DataFile *file = &files->items[i];
    if (!file->name) file->name = choose_name(files, file, i);
    differs = differs || !same_text(file->name, names[i]);
    names[i] = file->name;
    file->name = NULL;
  }
  return differs;
}
