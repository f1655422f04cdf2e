/* Walking and rewriting messages. */
#include "onnx/file/message_edit.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "onnx/facts/schema_fields.h"

enum { MAX_MESSAGE_DEPTH = 256 };

/* ---- the messages that hold metadata ---- */

enum {
  FIELD_SPARSE_VALUES = 1,
  FIELD_SPARSE_INDICES = 2,
  FIELD_TRAINING_INITIALIZATION = 1,
  FIELD_TRAINING_ALGORITHM = 2,
};

typedef struct Nesting {
  Message outer;
  int field;
  Message inner;
} Nesting;

static const Nesting nestings[] = {
    {MESSAGE_MODEL, FIELD_MODEL_GRAPH, MESSAGE_GRAPH},
    {MESSAGE_MODEL, FIELD_MODEL_FUNCTIONS, MESSAGE_FUNCTION},
    {MESSAGE_MODEL, FIELD_MODEL_TRAINING_INFO, MESSAGE_TRAINING},
    {MESSAGE_GRAPH, FIELD_GRAPH_NODE, MESSAGE_NODE},
    {MESSAGE_GRAPH, FIELD_GRAPH_INITIALIZER, MESSAGE_TENSOR},
    {MESSAGE_GRAPH, FIELD_GRAPH_SPARSE_INITIALIZER, MESSAGE_SPARSE},
    {MESSAGE_GRAPH, FIELD_GRAPH_INPUT, MESSAGE_VALUE_INFO},
    {MESSAGE_GRAPH, FIELD_GRAPH_OUTPUT, MESSAGE_VALUE_INFO},
    {MESSAGE_GRAPH, FIELD_GRAPH_VALUE_INFO, MESSAGE_VALUE_INFO},
    {MESSAGE_NODE, FIELD_NODE_ATTRIBUTE, MESSAGE_ATTRIBUTE},
    {MESSAGE_ATTRIBUTE, FIELD_ATTRIBUTE_G, MESSAGE_GRAPH},
    {MESSAGE_ATTRIBUTE, FIELD_ATTRIBUTE_GRAPHS, MESSAGE_GRAPH},
    {MESSAGE_ATTRIBUTE, FIELD_ATTRIBUTE_T, MESSAGE_TENSOR},
    {MESSAGE_ATTRIBUTE, FIELD_ATTRIBUTE_TENSORS, MESSAGE_TENSOR},
    {MESSAGE_ATTRIBUTE, FIELD_ATTRIBUTE_SPARSE_TENSOR, MESSAGE_SPARSE},
    {MESSAGE_ATTRIBUTE, FIELD_ATTRIBUTE_SPARSE_TENSORS, MESSAGE_SPARSE},
    {MESSAGE_FUNCTION, FIELD_FUNCTION_NODE, MESSAGE_NODE},
    {MESSAGE_FUNCTION, FIELD_FUNCTION_ATTRIBUTE_PROTO, MESSAGE_ATTRIBUTE},
    {MESSAGE_FUNCTION, FIELD_FUNCTION_VALUE_INFO, MESSAGE_VALUE_INFO},
    {MESSAGE_SPARSE, FIELD_SPARSE_VALUES, MESSAGE_TENSOR},
    {MESSAGE_SPARSE, FIELD_SPARSE_INDICES, MESSAGE_TENSOR},
    {MESSAGE_TRAINING, FIELD_TRAINING_INITIALIZATION, MESSAGE_GRAPH},
    {MESSAGE_TRAINING, FIELD_TRAINING_ALGORITHM, MESSAGE_GRAPH},
};

Message inner_message(Message outer, const Field *field) {
  if ((field->key & 7) != WIRE_BYTES) return MESSAGE_OTHER;
  for (size_t i = 0; i < sizeof nestings / sizeof *nestings; i++) {
    if (nestings[i].outer == outer && AS_BYTES(nestings[i].field) == field->key) return nestings[i].inner;
  }
  return MESSAGE_OTHER;
}

uint64_t metadata_field(Message kind) {
  switch (kind) {
    case MESSAGE_MODEL: return AS_BYTES(FIELD_MODEL_METADATA_PROPS);
    case MESSAGE_GRAPH: return AS_BYTES(FIELD_GRAPH_METADATA_PROPS);
    case MESSAGE_NODE: return AS_BYTES(FIELD_NODE_METADATA_PROPS);
    case MESSAGE_FUNCTION: return AS_BYTES(FIELD_FUNCTION_METADATA_PROPS);
    case MESSAGE_TENSOR: return AS_BYTES(FIELD_TENSOR_METADATA_PROPS);
    case MESSAGE_VALUE_INFO: return AS_BYTES(FIELD_VALUE_INFO_METADATA_PROPS);
    default: return 0;
  }
}

int entry_field(Message kind) { return (int)(metadata_field(kind) >> 3); }

uint64_t doc_string_field(Message kind) {
  switch (kind) {
    case MESSAGE_MODEL: return AS_BYTES(FIELD_MODEL_DOC_STRING);
    case MESSAGE_GRAPH: return AS_BYTES(FIELD_GRAPH_DOC_STRING);
    case MESSAGE_NODE: return AS_BYTES(FIELD_NODE_DOC_STRING);
    case MESSAGE_ATTRIBUTE: return AS_BYTES(FIELD_ATTRIBUTE_DOC_STRING);
    case MESSAGE_FUNCTION: return AS_BYTES(FIELD_FUNCTION_DOC_STRING);
    case MESSAGE_TENSOR: return AS_BYTES(FIELD_TENSOR_DOC_STRING);
    case MESSAGE_VALUE_INFO: return AS_BYTES(FIELD_VALUE_INFO_DOC_STRING);
    default: return 0;
  }
}

static void walk(MessageEditor *editor, Message kind, Wire message, unsigned depth) {
  if (depth > MAX_MESSAGE_DEPTH) wire_fail(&message, message.at, "messages are nested too deeply");
  Field field;
  for (Wire wire = message; wire_next(&wire, &field);) {
    Message inner = inner_message(kind, &field);
    if (inner != MESSAGE_OTHER) walk(editor, inner, wire_inside(&wire, &field), depth + 1);
  }
  editor->visit(editor, kind, message);
}

/* The text stays where it is: it lives in the arena. */
static void push_edit(MessageEditor *editor, Edit edit, const Builder *text) {
  if (text && text->length) {
    edit.text = text->text;
    edit.size = text->length;
  }
  array_push(editor->context, &editor->edits, edit);
}

void add_edit(MessageEditor *editor, const unsigned char *start, const unsigned char *end, const Builder *text) {
  push_edit(editor, (Edit){.start = start, .end = end}, text);
}

void append_edit(MessageEditor *editor, Wire message, const Builder *text) {
  push_edit(editor, (Edit){.start = message.end, .end = message.end, .end_of = message.at}, text);
}

/* ---- entries ---- */

static size_t varint_size(uint64_t value) {
  size_t size = 1;
  for (; value > 0x7F; value >>= 7) size++;
  return size;
}

Entry read_entry(const Wire *wire, const Field *field) {
  Entry entry = {.start = field->start, .end = wire->at};
  Wire inside = wire_inside(wire, field);
  Field part;
  unsigned parts = 0;
  bool ordered = true;
  while (wire_next(&inside, &part)) {
    parts++;
    if (part.key == AS_BYTES(FIELD_ENTRY_KEY)) entry.key = part;
    if (part.key == AS_BYTES(FIELD_ENTRY_VALUE)) entry.value = part;
    if (part.key != AS_BYTES(parts == 1 ? FIELD_ENTRY_KEY : FIELD_ENTRY_VALUE)) ordered = false;
  }
  size_t usual = 2 + varint_size(entry.key.size) + entry.key.size + varint_size(entry.value.size) + entry.value.size;
  size_t outside = varint_size(field->key) + varint_size(field->size) + field->size;
  entry.plain = ordered && parts == 2 && field->size == usual && (size_t)(wire->at - field->start) == outside;
  return entry;
}

bool is_key(const Entry *entry, const char *key) {
  size_t length = strlen(key);
  return entry->key.size == length && same_bytes(entry->key.data, key, length);
}

void add_varint(Builder *out, uint64_t value) {
  char bytes[LONGEST_VARINT];
  size_t size = varint_encode(bytes, value);
  builder_add_sized(out, bytes, size);
}

void add_entry(Builder *out, int field, const char *key, const char *value, size_t value_size) {
  size_t key_size = strlen(key);
  add_varint(out, AS_BYTES(field));
  add_varint(out, 2 + varint_size(key_size) + key_size + varint_size(value_size) + value_size);
  add_varint(out, AS_BYTES(FIELD_ENTRY_KEY));
  add_varint(out, key_size);
  builder_add_sized(out, key, key_size);
  add_varint(out, AS_BYTES(FIELD_ENTRY_VALUE));
  add_varint(out, value_size);
  builder_add_sized(out, value, value_size);
}

/* ---- encoding around the edits ---- */

/* Of texts at the ends of messages that end together, the innermost comes first; what is inserted in front of something
 * that goes comes before it. */
static int by_position(const void *a, const void *b) {
  const Edit *first = a, *second = b;
  int order = (first->start > second->start) - (first->start < second->start);
  if (!order) order = (first->end_of < second->end_of) - (first->end_of > second->end_of);
  return order ? order : (first->end > second->end) - (first->end < second->end);
}

typedef struct FieldRange {
  const unsigned char *start, *end, *data;
  uint64_t number;
} FieldRange;

static const Edit *last_edit(const MessageEditor *editor) {
  return editor->edits.count ? &editor->edits.items[editor->edits.count - 1] : NULL;
}

/* Takes the last edit; returns where what is in front of it ends. */
static const unsigned char *put_edit(MessageEditor *editor, Encoder *encoder, const unsigned char *end) {
  const Edit *edit = last_edit(editor);
  put_verbatim(encoder, edit->end, (size_t)(end - edit->end));
  put_verbatim(encoder, edit->text, edit->size);
  editor->edits.count--;
  return edit->start;
}

/* All edits inside the message, from its end to its beginning. */
static void put_edited(MessageEditor *editor, Encoder *encoder, Wire message) {
  const unsigned char *first = message.at, *end = message.end;
  ARRAY(FieldRange) fields = {0};
  Field field;
  while (wire_next(&message, &field)) {
    FieldRange range = {.start = field.start, .end = message.at, .data = field.data, .number = field.key >> 3};
    array_push(editor->context, &fields, range);
  }
  for (const Edit *edit; (edit = last_edit(editor)) && edit->end_of == first;) end = put_edit(editor, encoder, end);
  for (size_t i = fields.count; i--;) {
    const FieldRange *range = &fields.items[i];
    for (const Edit *edit; (edit = last_edit(editor)) && edit->start >= range->end && !edit->end_of;) {
      end = put_edit(editor, encoder, end);
    }
    const Edit *edit = last_edit(editor);
    if (!edit || edit->start < range->start || (edit->end_of && edit->start == range->start)) continue;
    if (edit->start == range->start) {
      end = put_edit(editor, encoder, end);
      continue;
    }
    put_verbatim(encoder, range->end, (size_t)(end - range->end));
    uint64_t mark = encoder->total;
    put_edited(editor, encoder, (Wire){message.context, message.base, range->data, range->end});
    put_message(encoder, (int)range->number, mark);
    end = range->start;
  }
  for (const Edit *edit; (edit = last_edit(editor)) && edit->start >= first;) end = put_edit(editor, encoder, end);
  put_verbatim(encoder, first, (size_t)(end - first));
}

void messages_walk(MessageEditor *editor) { walk(editor, MESSAGE_MODEL, whole_message(editor), 0); }

Rewritten messages_edit(MessageEditor *editor) {
  Rewritten result = {.changes = editor->changes};
  Encoder encoder;
  encoder_init(&encoder, editor->context);
  if (editor->edits.count) {
    sort_items(editor->edits.items, editor->edits.count, sizeof *editor->edits.items, by_position);
  }
  put_edited(editor, &encoder, whole_message(editor));
  result.segments = encoder_finish(&encoder, &result.count);
  result.size = encoder.total;
  return result;
}
