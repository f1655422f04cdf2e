/* What constants hold, looked at from outside: a few bytes of each, so that weights are not read. */
#include <math.h>
#include <string.h>

#include "graft/side.h"
#include "types/numbers.h"

enum {
  LOOKED_AT = 4096, /* bytes of a tensor that are read whole */
  SAMPLES = 64,     /* places of a larger one */
  SAMPLE = 16,      /* bytes at each of them */
};

static uint64_t data_hash(const Tensor *tensor) {
  if (tensor->size <= LOOKED_AT) return hash_bytes(tensor->data, tensor->size);
  uint64_t hash = tensor->size;
  for (size_t i = 0; i < SAMPLES; i++) {
    size_t at = (tensor->size - SAMPLE) / (SAMPLES - 1) * i;
    hash = hash_mix(hash, hash_bytes((const char *)tensor->data + at, SAMPLE));
  }
  return hash;
}

static uint64_t content_of(const Tensor *tensor) {
  if (!tensor->data || !tensor->size) return 0;
  uint64_t hash = hash_mix((uint64_t)tensor->dtype, tensor->rank);
  for (uint32_t i = 0; i < tensor->rank; i++) hash = hash_mix(hash, (uint64_t)tensor->dims[i]);
  return hash_mix(hash, data_hash(tensor)) | 1;
}

/* A number as half precision has it, less its last bits: equal for what a tool rounds. */
static uint64_t rounded(DType dtype, const void *data) {
  double value = number_decode(dtype, data);
  if (!isfinite(value)) return value > 0 ? 1 : value < 0 ? 2 : 3;
  return (uint64_t)(float16_from_double(value) + 4) >> 3;
}

/* The first and the last element stay where they are however the axes are turned. */
static uint64_t likeness_of(const Tensor *tensor) {
  DKind kind = dtype_kind(tensor->dtype);
  bool number = kind == KIND_FLOAT || kind == KIND_INT || kind == KIND_UINT;
  size_t width = dtype_bits(tensor->dtype) / 8;
  if (!number || !width || !tensor->data || tensor->size < width) return 0;
  uint64_t hash = kind == KIND_FLOAT ? 1 : 2, dims = 0;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    if (tensor->dims[i] != 1) dims += hash_mix(3, (uint64_t)tensor->dims[i]);
  }
  hash = hash_mix(hash, dims);
  const char *data = tensor->data;
  hash = hash_mix(hash, rounded(tensor->dtype, data));
  return hash_mix(hash, rounded(tensor->dtype, data + (tensor->size / width - 1) * width)) | 1;
}

/* Of a Constant node whose attribute is not a tensor but numbers. */
static void read_constant_node(SideValue *value, const SideNode *node) {
  Context *context = node->node->graph->model->context;
  if (node->node->attributes.count != 1) return;
  Tensor *tensor = arena_new(&context->arena, Tensor);
  const Attribute *attribute = &node->node->attributes.items[0];
  int64_t *dims = arena_new(&context->arena, int64_t);
  *dims = (int64_t)attribute->count;
  tensor->dims = dims;
  switch (attribute->kind) {
    case ATTRIBUTE_INT:
      tensor->dtype = DTYPE_INT64, tensor->data = &attribute->integer, tensor->size = sizeof(int64_t);
      break;
    case ATTRIBUTE_FLOAT:
      tensor->dtype = DTYPE_FLOAT32, tensor->data = &attribute->real, tensor->size = sizeof(float);
      break;
    case ATTRIBUTE_INTS:
      tensor->dtype = DTYPE_INT64, tensor->rank = 1, tensor->data = attribute->integers;
      tensor->size = attribute->count * sizeof(int64_t);
      break;
    case ATTRIBUTE_FLOATS:
      tensor->dtype = DTYPE_FLOAT32, tensor->rank = 1, tensor->data = attribute->reals;
      tensor->size = attribute->count * sizeof(float);
      break;
    default: return;
  }
  value->tensor = tensor;
}

void side_read_constants(Side *side) {
  for (Index i = 1; i < side->values.count; i++) {
    SideValue *value = side_value(side, i);
    const SideNode *producer = value->producer ? side_node(side, value->producer) : NULL;
    if (producer && is_constant_node(producer) && !value->tensor) read_constant_node(value, producer);
    if (!value->tensor) continue;
    value->content = content_of(value->tensor);
    value->likeness = likeness_of(value->tensor);
  }
}
