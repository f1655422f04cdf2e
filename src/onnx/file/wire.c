/* Wire. */
#include "onnx/file/wire.h"

#include <string.h>

enum { GROUP_START = 3, GROUP_END = 4, MAX_GROUP_DEPTH = 64 };

void wire_fail(const Wire *wire, const unsigned char *where, const char *what) {
  fail(wire->context, ERROR_FORMAT, "malformed data: %s at byte %zu", what, (size_t)(where - wire->base));
}

uint64_t wire_varint(Wire *wire) {
  const unsigned char *start = wire->at;
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (wire->at == wire->end) wire_fail(wire, start, "truncated number");
    uint64_t byte = *wire->at++;
    if (shift == 63 && byte > 1) break;
    value |= (byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  wire_fail(wire, start, "number longer than 64 bits");
}

static const unsigned char *take(Wire *wire, uint64_t size) {
  if (size > (uint64_t)(wire->end - wire->at)) {
    wire_fail(wire, wire->at, "a field extends past the end of its message");
  }
  const unsigned char *start = wire->at;
  wire->at += size;
  return start;
}

static uint64_t little_endian(const unsigned char *bytes, unsigned count) {
  uint64_t value = 0;
  for (unsigned i = 0; i < count; i++) value |= (uint64_t)bytes[i] << (8 * i);
  return value;
}

/* False for a mark of a group, a kind that ONNX never had but that an unknown field may be. */
static bool read_payload(Wire *wire, Field *field, const unsigned char *start) {
  switch (field->key & 7) {
    case WIRE_VARINT: field->value = wire_varint(wire); return true;
    case WIRE_FIXED64: field->value = little_endian(take(wire, 8), 8); return true;
    case WIRE_FIXED32: field->value = little_endian(take(wire, 4), 4); return true;
    case WIRE_BYTES: {
      uint64_t size = wire_varint(wire);
      field->data = take(wire, size);
      field->size = (size_t)size;
      return true;
    }
    case GROUP_START:
    case GROUP_END: return false;
    default: wire_fail(wire, start, "unknown wire type");
  }
}

static void skip_group(Wire *wire, const unsigned char *start) {
  for (unsigned depth = 1; depth > 0;) {
    if (wire->at == wire->end) wire_fail(wire, start, "truncated group");
    const unsigned char *inner = wire->at;
    Field field = {.key = wire_varint(wire)};
    if (read_payload(wire, &field, inner)) continue;
    depth = (field.key & 7) == GROUP_START ? depth + 1 : depth - 1;
    if (depth > MAX_GROUP_DEPTH) wire_fail(wire, inner, "groups are nested too deeply");
  }
}

bool wire_next(Wire *wire, Field *field) {
  while (wire->at < wire->end) {
    const unsigned char *start = wire->at;
    *field = (Field){.start = start, .key = wire_varint(wire)};
    uint64_t number = field->key >> 3;
    if (number == 0 || number > 0x1FFFFFFF) wire_fail(wire, start, "invalid field number");
    if (read_payload(wire, field, start)) return true;
    if ((field->key & 7) == GROUP_END) wire_fail(wire, start, "end of a group that was never started");
    skip_group(wire, start);
  }
  return false;
}

Wire wire_inside(const Wire *wire, const Field *field) {
  return (Wire){.context = wire->context, .base = wire->base, .at = field->data, .end = field->data + field->size};
}
