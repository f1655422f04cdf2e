/* Elements. */
#include "onnx/file/elements.h"

#include <string.h>

#include "base/bytes.h"
#include "onnx/facts/schema_fields.h"

int typed_field(DType dtype) {
  switch (dtype) {
    case DTYPE_FLOAT32:
    case DTYPE_COMPLEX64: return FIELD_TENSOR_FLOAT_DATA;
    case DTYPE_FLOAT64:
    case DTYPE_COMPLEX128: return FIELD_TENSOR_DOUBLE_DATA;
    case DTYPE_INT64: return FIELD_TENSOR_INT64_DATA;
    case DTYPE_UINT32:
    case DTYPE_UINT64: return FIELD_TENSOR_UINT64_DATA;
    case DTYPE_STRING: return FIELD_TENSOR_STRING_DATA;
    default: return dtype_bits(dtype) ? FIELD_TENSOR_INT32_DATA : 0;
  }
}

/* ---- opening ---- */

static void open_external(Elements *elements, const StoredTensor *stored, size_t size, const char *folder) {
  if (strlen(stored->location) != str_length(stored->location)) {
    elements->trouble = "its file name contains a NUL";
    return;
  }
  if (stored->length && stored->length != size) {
    elements->trouble = "the length of its data does not match its shape";
    return;
  }
  elements->file = open_beneath(folder, stored->location);
  if (elements->file.descriptor < 0) {
    elements->trouble = "its file cannot be read from the model's folder";
  } else if (elements->file.size < size || stored->offset > elements->file.size - size) {
    elements->trouble = "its file is too short";
  }
  elements->offset = stored->offset;
  elements->left = size;
}

/* Data that belong to no element of this type, or stand beside raw ones: readers disagree about what they mean. */
static bool is_ambiguous(Wire message, int field_number) {
  static const int data_fields[] = {FIELD_TENSOR_FLOAT_DATA, FIELD_TENSOR_INT32_DATA,  FIELD_TENSOR_STRING_DATA,
                                    FIELD_TENSOR_INT64_DATA, FIELD_TENSOR_DOUBLE_DATA, FIELD_TENSOR_UINT64_DATA};
  Field field;
  while (wire_next(&message, &field)) {
    uint64_t number = field.key >> 3;
    if (number == FIELD_TENSOR_RAW_DATA) return true;
    for (size_t i = 0; i < sizeof data_fields / sizeof *data_fields; i++) {
      if (number == (uint64_t)data_fields[i] && data_fields[i] != field_number) return true;
    }
  }
  return false;
}

void elements_open(Elements *elements, Context *context, const Model *model, const Tensor *tensor, const char *folder) {
  *elements = (Elements){.file = {.descriptor = -1}};
  if (tensor->data || (!tensor->size && tensor->dtype != DTYPE_STRING && tensor->dtype != DTYPE_NONE)) {
    elements->ready = tensor->data;
    elements->ready_size = tensor->data ? tensor->size : 0;
    return;
  }
  const StoredTensor *stored = tensor_stored(model, tensor);
  if (!stored) {
    elements->trouble = "it has no data";
    return;
  }
  if (stored->location) {
    open_external(elements, stored, tensor->size, folder);
    return;
  }
  int field = typed_field(tensor->dtype);
  size_t bits = dtype_bits(tensor->dtype);
  bool is_pair = tensor->dtype == DTYPE_COMPLEX64 || tensor->dtype == DTYPE_COMPLEX128;
  elements->message = (Wire){context, stored->message, stored->message, stored->message + stored->message_size};
  elements->key = (uint64_t)field;
  elements->width = bits < 8 ? 1 : is_pair ? bits / 16 : bits / 8;
  if (!field) elements->trouble = "its element type is not supported";
  else if (is_ambiguous(elements->message, field)) elements->trouble = "its data is in more than one field";
}

/* ---- reading ---- */

static void make_ready(Elements *elements, uint64_t number) {
  for (size_t i = 0; i < 8; i++) elements->scratch[i] = (unsigned char)(number >> (8 * i));
  elements->ready = elements->scratch;
  elements->ready_size = elements->width;
}

static void take_string(Elements *elements, const Field *field) {
  elements->text = field->data;
  elements->text_size = field->size;
  make_ready(elements, field->size);
  elements->ready_size = sizeof elements->scratch;
}

/* Takes up a field; false when it has nothing of the elements. */
static bool take_field(Elements *elements, const Field *field) {
  if (field->key >> 3 != elements->key) return false;
  bool is_bytes = (field->key & 7) == WIRE_BYTES;
  if (elements->key == FIELD_TENSOR_STRING_DATA) {
    if (is_bytes) take_string(elements, field);
    return is_bytes;
  }
  if (!is_bytes) {
    make_ready(elements, field->value);
    return true;
  }
  bool is_fixed = elements->key == FIELD_TENSOR_FLOAT_DATA || elements->key == FIELD_TENSOR_DOUBLE_DATA;
  if (is_fixed) {
    elements->ready = field->data;
    elements->ready_size = field->size;
  } else {
    elements->packed = wire_inside(&elements->message, field);
  }
  return true;
}

/* False when there is nothing more. */
static bool refill(Elements *elements) {
  Field field;
  if (elements->text) {
    elements->ready = elements->text;
    elements->ready_size = elements->text_size;
    elements->text = NULL;
    return true;
  }
  if (elements->packed.at < elements->packed.end) {
    make_ready(elements, wire_varint(&elements->packed));
    return true;
  }
  while (elements->message.at < elements->message.end && wire_next(&elements->message, &field)) {
    if (take_field(elements, &field)) return true;
  }
  return false;
}

static size_t read_external(Elements *elements, unsigned char *bytes, size_t room) {
  size_t wanted = elements->left < room ? (size_t)elements->left : room, got;
  if (!read_at(&elements->file, elements->offset, bytes, wanted, &got) || got < wanted) {
    elements->trouble = "its file cannot be read to the end";
  }
  elements->offset += got;
  elements->left -= got;
  return got;
}

size_t elements_next(Elements *elements, unsigned char *bytes, size_t room) {
  if (elements->trouble) return 0;
  if (elements->file.descriptor >= 0) return read_external(elements, bytes, room);
  size_t filled = 0;
  while (filled < room) {
    if (!elements->ready_size && !refill(elements)) break;
    size_t size = elements->ready_size < room - filled ? elements->ready_size : room - filled;
    copy_bytes(bytes + filled, elements->ready, size);
    elements->ready += size;
    elements->ready_size -= size;
    filled += size;
  }
  return filled;
}

void elements_close(Elements *elements) { close_file(&elements->file); }
