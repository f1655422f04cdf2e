/* Encoder: protobuf wire format, written back to front.
 *
 * Every field is put before what is already there, so the length of a nested message is known by the time its prefix
 * is written: one pass, no sizes computed twice. Large byte strings are not copied: the result is a list of segments,
 * some in our memory and some where the caller's data lies. Fields are therefore put in descending order.
 */
#ifndef J2O_ONNX_FILE_ENCODE_H
#define J2O_ONNX_FILE_ENCODE_H

#include "base/array.h"
#include "types/moved.h"

typedef struct Encoder {
  Context *context;
  char *chunk; /* current chunk; bytes from `start` to `end` are pending */
  size_t start, end;
  uint64_t total;          /* bytes encoded so far */
  ARRAY(Segment) segments; /* last segment of the output first */
} Encoder;

enum { LONGEST_VARINT = 10 };
/* The wire form of a number; returns how many bytes it takes. */
size_t varint_encode(char bytes[LONGEST_VARINT], uint64_t value);

void encoder_init(Encoder *encoder, Context *context);
void put_bytes(Encoder *encoder, int field, const void *data, size_t size);
void put_text(Encoder *encoder, int field, const char *text);
void put_int(Encoder *encoder, int field, int64_t value);
void put_float(Encoder *encoder, int field, float value);
/* A nested message: what was put since `mark` (an earlier encoder->total) becomes the body. */
void put_message(Encoder *encoder, int field, uint64_t mark);
/* What was put since `mark`, where it lies in one piece; else NULL. It stays there. */
const char *encoded_since(const Encoder *encoder, uint64_t mark);
/* A byte string that lies elsewhere. */
void put_segment(Encoder *encoder, int field, Segment segment);
/* Bytes that are encoded already. */
void put_verbatim(Encoder *encoder, const void *data, size_t size);
/* The segments in the order of the output. */
const Segment *encoder_finish(Encoder *encoder, size_t *count);

#endif
