/* Encoder. */
#include "onnx/file/encode.h"

#include <string.h>

enum { CHUNK = 256 * 1024, BORROW = 2048 /* byte strings of this size or more are not copied */ };

void encoder_init(Encoder *encoder, Context *context) { *encoder = (Encoder){.context = context}; }

static void flush(Encoder *encoder) {
  if (encoder->start == encoder->end) return;
  Segment segment = {.data = encoder->chunk + encoder->start, .size = encoder->end - encoder->start};
  array_push(encoder->context, &encoder->segments, segment);
  encoder->end = encoder->start;
}

static char *prepend(Encoder *encoder, size_t size) {
  if (size > encoder->start) {
    flush(encoder);
    size_t capacity = size > CHUNK ? size : CHUNK;
    encoder->chunk = arena_alloc(&encoder->context->arena, capacity);
    encoder->start = encoder->end = capacity;
  }
  encoder->start -= size;
  encoder->total += size;
  return encoder->chunk + encoder->start;
}

size_t varint_encode(char bytes[LONGEST_VARINT], uint64_t value) {
  size_t size = 0;
  do {
    bytes[size++] = (char)((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
    value >>= 7;
  } while (value);
  return size;
}

static void put_varint(Encoder *encoder, uint64_t value) {
  char bytes[LONGEST_VARINT];
  size_t size = varint_encode(bytes, value);
  memcpy(prepend(encoder, size), bytes, size);
}

enum { WIRE_VARINT = 0, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static void put_tag(Encoder *encoder, int field, int wire) {
  put_varint(encoder, (uint64_t)field << 3 | (uint64_t)wire);
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
    memcpy(prepend(encoder, size), data, size);
  }
}

void put_segment(Encoder *encoder, int field, Segment segment) {
  if (segment.moved) borrow(encoder, segment);
  else put_verbatim(encoder, segment.data, segment.size);
  put_varint(encoder, segment.size);
  put_tag(encoder, field, WIRE_BYTES);
}

void put_bytes(Encoder *encoder, int field, const void *data, size_t size) {
  put_segment(encoder, field, (Segment){.data = data, .size = size});
}

/* Text is always copied: it may lie in a buffer that the caller reuses. */
void put_text(Encoder *encoder, int field, const char *text) {
  size_t size = strlen(text);
  if (size) memcpy(prepend(encoder, size), text, size);
  put_varint(encoder, size);
  put_tag(encoder, field, WIRE_BYTES);
}

void put_int(Encoder *encoder, int field, int64_t value) {
  put_varint(encoder, (uint64_t)value);
  put_tag(encoder, field, WIRE_VARINT);
}

void put_float(Encoder *encoder, int field, float value) {
  memcpy(prepend(encoder, sizeof value), &value, sizeof value);
  put_tag(encoder, field, WIRE_FIXED32);
}

void put_message(Encoder *encoder, int field, uint64_t mark) {
  put_varint(encoder, encoder->total - mark);
  put_tag(encoder, field, WIRE_BYTES);
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
