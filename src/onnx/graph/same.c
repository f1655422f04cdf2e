/* Equality of tensors and attributes. */
#include "onnx/graph/same.h"

#include "base/bytes.h"

bool same_tensor(const Tensor *a, const Tensor *b) {
  if (a == b) return true;
  if (a->dtype != b->dtype || a->rank != b->rank || a->size != b->size || a->name != b->name) return false;
  if (!same_bytes(a->dims, b->dims, a->rank * sizeof *a->dims)) return false;
  if (a->size == 0) return true;
  if (!a->data || !b->data) return false; /* also of moved ones: what is moved alike was one node's before */
  return a->data == b->data || (a->size <= LARGEST_COMPARED && same_bytes(a->data, b->data, a->size));
}

/* Large tensors by samples: weights that differ do so nearly everywhere, and what looks alike is compared anyway. */
static uint64_t data_hash(const char *data, size_t size) {
  enum { SAMPLE = 1024 };
  if (size <= 3 * SAMPLE) return hash_bytes(data, size);
  uint64_t hash = hash_mix(hash_bytes(data, SAMPLE), hash_bytes(data + size - SAMPLE, SAMPLE));
  return hash_mix(hash, hash_bytes(data + size / 2 - SAMPLE / 2, SAMPLE));
}

uint64_t tensor_hash(const Tensor *tensor) {
  uint64_t hash = hash_mix((uint64_t)tensor->dtype, hash_bytes(tensor->dims, tensor->rank * sizeof *tensor->dims));
  hash = hash_mix(hash, (uint64_t)(uintptr_t)tensor->name);
  if (!tensor->data && tensor->moved) return hash_mix(hash, (uint64_t)(uintptr_t)tensor->moved);
  if (!tensor->data) return hash_mix(hash, (uint64_t)(uintptr_t)tensor->fetched);
  if (tensor->size > LARGEST_COMPARED) return hash_mix(hash, (uint64_t)(uintptr_t)tensor->data);
  return hash_mix(hash, data_hash(tensor->data, tensor->size));
}

static uint64_t mix_text(uint64_t hash, Str text) { return hash_mix(hash, text ? str_hash(text) : 0); }

uint64_t attribute_hash(const Attribute *attribute, TensorHash *hash_tensor) {
  uint64_t hash = hash_mix(str_hash(attribute->name), (uint64_t)attribute->kind);
  if (attribute->reference) return mix_text(hash, attribute->reference);
  switch (attribute->kind) {
    case ATTRIBUTE_INT: return hash_mix(hash, (uint64_t)attribute->integer);
    case ATTRIBUTE_FLOAT: return hash_mix(hash, hash_bytes(&attribute->real, sizeof attribute->real));
    case ATTRIBUTE_STRING: return hash_mix(hash, hash_bytes(attribute->string, attribute->count));
    case ATTRIBUTE_TENSOR: return attribute->tensor ? hash_mix(hash, hash_tensor(attribute->tensor)) : hash;
    case ATTRIBUTE_INTS: return hash_mix(hash, hash_bytes(attribute->integers, attribute->count * sizeof(int64_t)));
    case ATTRIBUTE_FLOATS: return hash_mix(hash, hash_bytes(attribute->reals, attribute->count * sizeof(float)));
    case ATTRIBUTE_STRINGS:
      for (size_t i = 0; i < attribute->count; i++) hash = mix_text(hash, attribute->strings[i]);
      return hash;
    default: return hash;
  }
}

uint64_t attributes_hash(const Node *node, TensorHash *hash_tensor) {
  uint64_t sum = 0;
  for (size_t i = 0; i < node->attributes.count; i++) sum += attribute_hash(&node->attributes.items[i], hash_tensor);
  return sum;
}

bool same_attribute(const Attribute *a, const Attribute *b) {
  if (a->kind != b->kind || a->reference != b->reference) return false;
  if (a->reference) return true;
  if (a->kind != ATTRIBUTE_INT && a->kind != ATTRIBUTE_FLOAT && a->kind != ATTRIBUTE_TENSOR && a->count != b->count) {
    return false;
  }
  switch (a->kind) {
    case ATTRIBUTE_INT: return a->integer == b->integer;
    case ATTRIBUTE_FLOAT: return same_bytes(&a->real, &b->real, sizeof a->real);
    case ATTRIBUTE_STRING: return same_bytes(a->string, b->string, a->count);
    case ATTRIBUTE_TENSOR: return same_tensor(a->tensor, b->tensor);
    case ATTRIBUTE_INTS: return same_bytes(a->integers, b->integers, a->count * sizeof *a->integers);
    case ATTRIBUTE_FLOATS: return same_bytes(a->reals, b->reals, a->count * sizeof *a->reals);
    case ATTRIBUTE_STRINGS: return same_bytes(a->strings, b->strings, a->count * sizeof *a->strings);
    default: return false;
  }
}

bool same_attributes(const Node *a, const Node *b) {
  if (a->attributes.count != b->attributes.count) return false;
  for (size_t i = 0; i < a->attributes.count; i++) {
    const Attribute *other = node_attribute(b, a->attributes.items[i].name);
    if (!other || !same_attribute(&a->attributes.items[i], other)) return false;
  }
  return true;
}
