/* Encoder. */
#include "onnx/file/encode.h"

#include <string.h>

#include "base/bytes.h"

enum {
  FIRST_CHUNK = 32 * 1024,
  LARGEST_CHUNK = 256 * 1024,
  BORROW = 2048 /* byte strings of this size or more are not copied */
};

void encoder_init(Encoder *encoder, Context *context) { *encoder = (Encoder){.context = context}; }

static void flush(Encoder *encoder) {
  if (encoder->start == encoder->end) return;
  Segment segment = {.data = encoder->chunk + encoder->start, .size = encoder->end - encoder->start};
  array_push(encoder->context, &encoder->segments, segment);
  encoder->end = encoder->start;
}

static void next_chunk(Encoder *encoder, size_t size) {
  flush(encoder);
  size_t capacity = encoder->total < FIRST_CHUNK ? FIRST_CHUNK : LARGEST_CHUNK;
  if (capacity < size) capacity = size;
  encoder->chunk = arena_alloc(&encoder->context->arena, capacity);
  encoder->start = encoder->end = capacity;
}

static char *prepend(Encoder *encoder, size_t size) {
  if (size > encoder->start) next_chunk(encoder, size);
  encoder->start -= size;
  encoder->total += size;
  return encoder->chunk + encoder->start;
}

static size_t varint_size(uint64_t value) {
  size_t size = 1;
  while (value >>= 7) size++;
  return size;
}

/* Returns where what follows belongs. */
static char *write_varint(char *at, uint64_t value) {
  for (; value > 0x7F; value >>= 7) *at++ = (char)((value & 0x7F) | 0x80);
  *at++ = (char)value;
  return at;
}

size_t varint_encode(char bytes[LONGEST_VARINT], uint64_t value) {
  return (size_t)(write_varint(bytes, value) - bytes);
}

enum { WIRE_VARINT = 0, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* A field's tag, a number, and room for `more` bytes, which begins where this returns. Most are two bytes. */
static char *put_head(Encoder *encoder, int field, int wire, uint64_t number, size_t more) {
  uint64_t tag = (uint64_t)field << 3 | (uint64_t)wire;
  if ((tag | number) <= 0x7F) {
    char *at = prepend(encoder, 2 + more);
    *at++ = (char)tag;
    *at++ = (char)number;
    return at;
  }
  char *at = prepend(encoder, varint_size(tag) + varint_size(number) + more);
  return write_varint(write_varint(at, tag), number);
}

static void borrow(Encoder *encoder, Segment segment) {
  flush(encoder);
  array_push(encoder->context, &encoder->segments, segment);
  encoder->total += segment.size;
}

void put_verbatim(Encoder *encoder, const void *data, size_t size) {
  if (size >= BORROW) {
    borrow(encoder, (Segment){.data = data, .size = size});
  } else if (size) {
    copy_bytes(prepend(encoder, size), data, size);
  }
}

void put_segment(Encoder *encoder, int field, Segment segment) {
  if (!segment_is_plain(&segment)) borrow(encoder, segment);
  else put_verbatim(encoder, segment.data, segment.size);
  put_head(encoder, field, WIRE_BYTES, segment.size, 0);
}

void put_bytes(Encoder *encoder, int field, const void *data, size_t size) {
  put_segment(encoder, field, (Segment){.data = data, .size = size});
}

/* Text is always copied: it may lie in a buffer that the caller reuses. */
void put_text(Encoder *encoder, int field, const char *text) {
  size_t size = strlen(text);
  copy_bytes(put_head(encoder, field, WIRE_BYTES, size, size), text, size);
}

void put_int(Encoder *encoder, int field, int64_t value) { put_head(encoder, field, WIRE_VARINT, (uint64_t)value, 0); }

void put_float(Encoder *encoder, int field, float value) {
  uint64_t tag = (uint64_t)field << 3 | WIRE_FIXED32;
  char *at = prepend(encoder, varint_size(tag) + sizeof value);
  memcpy(write_varint(at, tag), &value, sizeof value);
}

void put_message(Encoder *encoder, int field, uint64_t mark) {
  put_head(encoder, field, WIRE_BYTES, encoder->total - mark, 0);
}

const char *encoded_since(const Encoder *encoder, uint64_t mark) {
  return encoder->total - mark <= encoder->end - encoder->start ? encoder->chunk + encoder->start : NULL;
}

const Segment *encoder_finish(Encoder *encoder, size_t *count) {
  flush(encoder);
  Segment *items = encoder->segments.items;
  for (size_t i = 0, j = encoder->segments.count; i + 1 < j; i++) {
    Segment other = items[--j];
    items[j] = items[i];
    items[i] = other;
  }
  *count = encoder->segments.count;
  return items;
}
