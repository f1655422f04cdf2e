/* External data. */
#include "onnx/file/external.h"

#include <string.h>

#include "base/bytes.h"
#include "onnx/facts/schema_fields.h"
#include "onnx/file/wire.h"

enum { DEEPEST_GRAPH = 64, MOST_FILES = 1024 };

static bool is_text(const Field *field, const char *text) {
  return field->size == strlen(text) && same_bytes(field->data, text, field->size);
}

/* A decimal number; one that is none, or too large, is taken for 0. */
static uint64_t number_of(const Field *field) {
  uint64_t number = 0;
  for (size_t i = 0; i < field->size; i++) {
    if (field->data[i] < '0' || field->data[i] > '9' || number > UINT64_MAX / 16) return 0;
    number = number * 10 + (uint64_t)(field->data[i] - '0');
  }
  return number;
}

/* Where a tensor lies: the location is empty when it is in the model. */
typedef struct Place {
  Field location, offset, length;
} Place;

static void read_entry(Wire entry, Place *place) {
  Field key = {0}, value = {0};
  for (Field field; wire_next(&entry, &field);) {
    if (field.key == AS_BYTES(FIELD_ENTRY_KEY)) key = field;
    if (field.key == AS_BYTES(FIELD_ENTRY_VALUE)) value = field;
  }
  if (is_text(&key, "location")) place->location = value;
  if (is_text(&key, "offset")) place->offset = value;
  if (is_text(&key, "length")) place->length = value;
}

/* What the model refers to and somebody else wrote has another ending. */
static bool is_ours(const Field *location) {
  static const char ending[] = "." DATA_ENDING;
  size_t length = sizeof ending - 1;
  return location->size > length && same_bytes(location->data + location->size - length, ending, length);
}

static void note_tensor(Wire tensor, CompanionList *found) {
  Place place = {0};
  for (Field field; wire_next(&tensor, &field);) {
    if (field.key == AS_BYTES(FIELD_TENSOR_EXTERNAL_DATA)) read_entry(wire_inside(&tensor, &field), &place);
  }
  if (!is_ours(&place.location) || find_letter(place.location.data, '\0', place.location.size)) return;
  Str name = str_intern_sized(tensor.context, (const char *)place.location.data, place.location.size);
  uint64_t end = number_of(&place.offset) + number_of(&place.length);
  for (size_t i = 0; i < found->count; i++) {
    if (found->items[i].name != name) continue;
    if (end > found->items[i].size) found->items[i].size = end;
    return;
  }
  if (found->count == MOST_FILES) wire_fail(&tensor, tensor.at, "the model refers to too many files");
  array_push(tensor.context, found, ((Companion){name, end}));
}

static void note_graph(Wire graph, CompanionList *found, int depth);

static void note_node(Wire node, CompanionList *found, int depth) {
  for (Field attribute; wire_next(&node, &attribute);) {
    if (attribute.key != AS_BYTES(FIELD_NODE_ATTRIBUTE)) continue;
    Wire inside = wire_inside(&node, &attribute);
    for (Field field; wire_next(&inside, &field);) {
      if (field.key == AS_BYTES(FIELD_ATTRIBUTE_G)) note_graph(wire_inside(&inside, &field), found, depth + 1);
    }
  }
}

static void note_graph(Wire graph, CompanionList *found, int depth) {
  if (depth > DEEPEST_GRAPH) wire_fail(&graph, graph.at, "graphs are nested too deeply");
  for (Field field; wire_next(&graph, &field);) {
    if (field.key == AS_BYTES(FIELD_GRAPH_INITIALIZER)) note_tensor(wire_inside(&graph, &field), found);
    if (field.key == AS_BYTES(FIELD_GRAPH_NODE)) note_node(wire_inside(&graph, &field), found, depth);
  }
}

void find_external_files(Context *context, const MappedFile *model, CompanionList *found) {
  const unsigned char *bytes = model->data;
  Wire wire = {.context = context, .base = bytes, .at = bytes, .end = bytes + model->size};
  bool ours = false;
  Field graph = {0};
  for (Field field; wire_next(&wire, &field);) {
    if (field.key == AS_BYTES(FIELD_MODEL_PRODUCER_NAME)) ours = is_text(&field, PRODUCER);
    if (field.key == AS_BYTES(FIELD_MODEL_GRAPH)) graph = field;
  }
  if (ours && graph.size) note_graph(wire_inside(&wire, &graph), found, 0);
}

/* Four words at a time, so that no step waits for the one before it. */
uint64_t content_hash(uint64_t seed, const void *bytes, size_t size) {
  enum { LANES = 4 };
  const uint64_t prime = 0x9E3779B97F4A7C15;
  uint64_t lanes[LANES] = {seed, seed ^ 1, seed ^ 2, seed ^ 3}, words[LANES];
  const unsigned char *at = bytes;
  for (size_t left = size; left;) {
    size_t step = left < sizeof words ? left : sizeof words;
    if (step < sizeof words) memset(words, 0, sizeof words);
    copy_bytes(words, at, step);
    for (int i = 0; i < LANES; i++) {
      lanes[i] = (lanes[i] ^ words[i]) * prime;
      lanes[i] ^= lanes[i] >> 29;
    }
    at += step;
    left -= step;
  }
  return hash_mix(hash_mix(lanes[0], lanes[1]), hash_mix(hash_mix(lanes[2], lanes[3]), size));
}
