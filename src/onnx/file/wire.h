/* Wire: walks the fields of a protobuf message in memory. Every length is checked before it is used. */
#ifndef J2O_ONNX_FILE_WIRE_H
#define J2O_ONNX_FILE_WIRE_H

#include "base/context.h"

typedef struct Wire {
  Context *context;
  const unsigned char *base; /* of the whole file: errors name the byte */
  const unsigned char *at, *end;
} Wire;

typedef enum WireKind { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 } WireKind;

typedef struct Field {
  const unsigned char *start; /* of the field itself: groups of fields in front of it were passed over */
  uint64_t key;               /* field number and kind, as FIELD_KEY makes it */
  uint64_t value;             /* of the number kinds */
  const unsigned char *data;  /* of WIRE_BYTES */
  size_t size;
} Field;

/* For switch statements: a field of another kind than expected is an unknown field. */
#define FIELD_KEY(number, kind) ((uint64_t)(number) << 3 | (kind))
#define AS_VARINT(number) FIELD_KEY(number, WIRE_VARINT)
#define AS_BYTES(number) FIELD_KEY(number, WIRE_BYTES)
#define AS_FIXED32(number) FIELD_KEY(number, WIRE_FIXED32)

/* The next field; false at the end of the message. Fails with ERROR_FORMAT on malformed bytes. */
bool wire_next(Wire *wire, Field *field);
uint64_t wire_varint(Wire *wire);

/* The message that a field of WIRE_BYTES holds. */
Wire wire_inside(const Wire *wire, const Field *field);
_Noreturn void wire_fail(const Wire *wire, const unsigned char *where, const char *what);

#endif
