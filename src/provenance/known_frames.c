/* Frames that many models have. */
#include "provenance/known_frames.h"

static const char list[] =
#include "provenance/known_frames.inc"
    ;

static uint32_t count_frames(void) {
  uint32_t count = 0;
  for (const char *at = list; *at; at++) count += *at == '\t';
  return count;
}

/* The digits that end at `*end`, which is moved before them and what separates them. */
static uint32_t number_before(const char **end) {
  uint32_t number = 0, scale = 1;
  for (; (*end)[-1] >= '0' && (*end)[-1] <= '9'; (*end)--, scale *= 10) number += (uint32_t)((*end)[-1] - '0') * scale;
  (*end)--;
  return number;
}

const KnownFrames *known_frames(Context *context) {
  KnownFrames *known = arena_new(&context->arena, KnownFrames);
  uint32_t most = count_frames();
  known->sorted = arena_new_array(&context->arena, most, KnownFrame);
  known->by_number = arena_new_array(&context->arena, most + 1ul, const KnownFrame *);
  KnownText file = {0};
  for (const char *at = list, *stop; *at; at = stop + 1) {
    stop = strchr(at, '\n');
    if (*at != '\t') {
      file = (KnownText){at, (size_t)(stop - at)};
      continue;
    }
    KnownFrame *frame = &known->sorted[known->count++];
    const char *end = stop;
    frame->number = number_before(&end);
    frame->line = number_before(&end);
    frame->file = file;
    frame->name = (KnownText){at + 1, (size_t)(end - at) - 1};
    known->by_number[frame->number] = frame;
  }
  return known;
}

static int compare_text(KnownText known, Str text) {
  size_t length = str_length(text), shared = known.length < length ? known.length : length;
  int order = compare_bytes(known.text, text, shared);
  return order ? order : (known.length > length) - (known.length < length);
}

static int compare_frame(const KnownFrame *frame, Str file, Str name, uint32_t line) {
  int order = compare_text(frame->file, file);
  if (!order && name) order = compare_text(frame->name, name);
  return order || !name ? order : (frame->line > line) - (frame->line < line);
}

/* The first that is not before these; name NULL: the file's first. */
static const KnownFrame *first_from(const KnownFrames *known, Str file, Str name, uint32_t line) {
  uint32_t low = 0, high = known->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (compare_frame(&known->sorted[middle], file, name, line) < 0) low = middle + 1;
    else high = middle;
  }
  return low < known->count ? &known->sorted[low] : NULL;
}

const KnownFrame *known_frame(const KnownFrames *known, Str file, Str name, uint32_t line) {
  const KnownFrame *exact = first_from(known, file, name, line);
  if (exact && !compare_frame(exact, file, name, line)) return exact;
  const KnownFrame *any = first_from(known, file, name, 0);
  return any && !compare_text(any->file, file) && !compare_text(any->name, name) ? any : NULL;
}

const KnownFrame *known_frame_of_file(const KnownFrames *known, Str file) {
  const KnownFrame *any = first_from(known, file, NULL, 0);
  return any && !compare_text(any->file, file) ? any : NULL;
}
