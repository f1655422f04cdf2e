/* Taking provenance out of a model and putting it back. */
#include "onnx/file/sidecar.h"

#include <string.h>

#include "base/bytes.h"
#include "onnx/facts/schema_fields.h"
#include "onnx/file/message_edit.h"

#define HEADING "j2o sidecar 1"

enum {
  FIELD_HEADING = 1,
  FIELD_IDENTITY = 2,
  FIELD_INSERTION = 3,
  FIELD_SOURCE = 4,
  FIELD_INSERTION_MESSAGE = 1,
  FIELD_INSERTION_FIELDS = 2,
  FIELD_INSERTION_BYTES = 3,
  FIELD_SOURCE_NAME = 1,
  FIELD_SOURCE_TEXT = 2,
  WHOLE = 4096, /* bytes of a field that count one by one */
  SAMPLES = 64, /* places of a longer one that do */
  SAMPLE = 16,  /* bytes at each */
  MOST_DEEP = 256,
};

/* ---- identity ---- */

static void hash_number(Sha256 *hash, uint64_t number) {
  char bytes[LONGEST_VARINT];
  sha256_add(hash, bytes, varint_encode(bytes, number));
}

static void hash_bytes_of(Sha256 *hash, const unsigned char *data, size_t size) {
  hash_number(hash, size);
  if (size <= WHOLE) {
    sha256_add(hash, data, size);
    return;
  }
  for (size_t i = 0; i < SAMPLES; i++) sha256_add(hash, data + (size - SAMPLE) / (SAMPLES - 1) * i, SAMPLE);
}

static void hash_message(Sha256 *hash, Message kind, Wire message, unsigned depth) {
  if (depth > MOST_DEEP) wire_fail(&message, message.at, "messages are nested too deeply");
  uint64_t metadata = metadata_field(kind), doc_string = doc_string_field(kind);
  Field field;
  while (wire_next(&message, &field)) {
    if ((metadata && field.key == metadata) || (doc_string && field.key == doc_string)) continue;
    hash_number(hash, field.key);
    Message inner = inner_message(kind, &field);
    if (inner != MESSAGE_OTHER) {
      hash_message(hash, inner, wire_inside(&message, &field), depth + 1);
      hash_number(hash, 0); /* no field has this key: the message ends here */
    } else if ((field.key & 7) == WIRE_BYTES) {
      hash_bytes_of(hash, field.data, field.size);
    } else {
      hash_number(hash, field.value);
    }
  }
}

void model_identity(Context *context, const void *bytes, size_t size, char text[SHA256_TEXT]) {
  Sha256 hash;
  sha256_init(&hash);
  const unsigned char *start = bytes;
  hash_message(&hash, MESSAGE_MODEL, (Wire){context, start, start, start + size}, 0);
  sha256_text(&hash, text);
}

/* ---- splitting ---- */

typedef struct Splitting {
  Sidecar *sidecar;
  uint64_t message; /* how many were visited */
} Splitting;

static void take(MessageEditor *editor, Sidecar *sidecar, Insertion place) {
  Insertion *last = sidecar->insertions.count ? &sidecar->insertions.items[sidecar->insertions.count - 1] : NULL;
  bool joins = last && last->message == place.message && last->fields == place.fields;
  if (joins && last->bytes + last->size == place.bytes) last->size += place.size;
  else array_push(editor->context, &sidecar->insertions, place);
}

static void split_message(MessageEditor *editor, Message kind, Wire message) {
  Splitting *splitting = editor->data;
  uint64_t number = splitting->message++, metadata = metadata_field(kind), fields = 0;
  bool ours = metadata && message_has_ours(message, metadata);
  Wire whole_message = message;
  Field field;
  while (ours && wire_next(&message, &field)) {
    bool goes = false;
    if (field.key == metadata) {
      Entry entry = read_entry(&message, &field);
      goes = is_provenance((const char *)entry.key.data, entry.key.size, true) &&
             !is_torch((const char *)entry.key.data, entry.key.size);
    }
    if (!goes) {
      fields++;
      continue;
    }
    size_t size = (size_t)(message.at - field.start);
    take(editor, splitting->sidecar, (Insertion){number, fields, field.start, size});
    add_edit(editor, field.start, message.at, NULL);
    editor->changes++;
  }
  if (kind != MESSAGE_MODEL) return;
  Builder text;
  builder_init(&text, editor->context);
  const char *identity = splitting->sidecar->identity;
  add_entry(&text, entry_field(kind), METADATA_IDENTITY, identity, strlen(identity));
  append_edit(editor, whole_message, &text);
}

Rewritten model_split(Context *context, const void *bytes, size_t size, Sidecar *sidecar) {
  model_identity(context, bytes, size, sidecar->identity);
  Splitting splitting = {.sidecar = sidecar};
  MessageEditor editor = {.context = context, .bytes = bytes, .size = size, .visit = split_message, .data = &splitting};
  messages_walk(&editor);
  return messages_edit(&editor);
}

/* ---- joining ---- */

typedef struct Joining {
  const Sidecar *sidecar;
  size_t next; /* insertion */
  uint64_t message;
  const Model *model; /* that was read, or NULL: the bytes are rewritten */
} Joining;

static void insert(MessageEditor *editor, Wire message, const Insertion *insertion) {
  Builder text;
  builder_init(&text, editor->context);
  builder_add_sized(&text, (const char *)insertion->bytes, insertion->size);
  uint64_t fields = 0;
  Field field;
  for (Wire wire = message; wire_next(&wire, &field);) {
    if (fields++ != insertion->fields) continue;
    add_edit(editor, field.start, field.start, &text);
    return;
  }
  append_edit(editor, message, &text);
}

/* The identity is the last entry of its kind, as split_message writes it. */
static void remove_identity(MessageEditor *editor, Wire message) {
  Entry found = {.start = NULL};
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key != metadata_field(MESSAGE_MODEL)) continue;
    Entry entry = read_entry(&message, &field);
    if (is_key(&entry, METADATA_IDENTITY)) found = entry;
  }
  if (found.start) add_edit(editor, found.start, found.end, NULL);
}

static void read_entries(MessageEditor *editor, Message kind, MetadataList *list, const Insertion *insertion) {
  Wire wire = {editor->context, insertion->bytes, insertion->bytes, insertion->bytes + insertion->size};
  Field field;
  while (wire_next(&wire, &field)) {
    if (field.key != metadata_field(kind)) continue;
    Entry entry = read_entry(&wire, &field);
    Metadata added = {str_intern_sized(editor->context, (const char *)entry.key.data, entry.key.size),
                      str_intern_sized(editor->context, (const char *)entry.value.data, entry.value.size)};
    array_push(editor->context, list, added);
  }
}

static void join_message(MessageEditor *editor, Message kind, Wire message) {
  Joining *joining = editor->data;
  uint64_t number = joining->message++;
  if (kind == MESSAGE_MODEL && !joining->model) remove_identity(editor, message);
  for (; joining->next < joining->sidecar->insertions.count; joining->next++) {
    const Insertion *insertion = &joining->sidecar->insertions.items[joining->next];
    if (insertion->message != number) return;
    MetadataList *list = joining->model ? message_metadata(joining->model, kind, &message) : NULL;
    if (!joining->model) insert(editor, message, insertion);
    else if (list) read_entries(editor, kind, list, insertion);
    editor->changes++;
  }
}

Rewritten model_join(Context *context, const void *bytes, size_t size, const Sidecar *sidecar) {
  Joining joining = {.sidecar = sidecar};
  MessageEditor editor = {.context = context, .bytes = bytes, .size = size, .visit = join_message, .data = &joining};
  messages_walk(&editor);
  return messages_edit(&editor);
}

void model_take_sidecar(Model *model, const void *bytes, size_t size, const Sidecar *sidecar) {
  Joining joining = {.sidecar = sidecar, .model = model};
  MessageEditor editor = {
      .context = model->context, .bytes = bytes, .size = size, .visit = join_message, .data = &joining};
  messages_walk(&editor);
}

/* ---- the file ---- */

static void add_bytes(Builder *out, int field, const void *data, size_t size) {
  add_varint(out, AS_BYTES(field));
  add_varint(out, size);
  if (size) builder_add_sized(out, data, size);
}

static void add_number(Builder *out, int field, uint64_t number) {
  add_varint(out, AS_VARINT(field));
  add_varint(out, number);
}

void sidecar_write(Builder *out, const Sidecar *sidecar) {
  Builder part;
  builder_init(&part, out->context);
  add_bytes(out, FIELD_HEADING, HEADING, strlen(HEADING));
  add_bytes(out, FIELD_IDENTITY, sidecar->identity, strlen(sidecar->identity));
  uint64_t before = 0;
  for (size_t i = 0; i < sidecar->insertions.count; i++) {
    const Insertion *insertion = &sidecar->insertions.items[i];
    part.length = 0;
    add_number(&part, FIELD_INSERTION_MESSAGE, insertion->message - before);
    add_number(&part, FIELD_INSERTION_FIELDS, insertion->fields);
    add_bytes(&part, FIELD_INSERTION_BYTES, insertion->bytes, insertion->size);
    add_bytes(out, FIELD_INSERTION, part.text, part.length);
    before = insertion->message;
  }
  for (size_t i = 0; i < sidecar->sources.count; i++) {
    const CarriedSource *source = &sidecar->sources.items[i];
    part.length = 0;
    add_bytes(&part, FIELD_SOURCE_NAME, source->name, source->name_size);
    add_bytes(&part, FIELD_SOURCE_TEXT, source->text, source->size);
    add_bytes(out, FIELD_SOURCE, part.text, part.length);
  }
}

static Insertion read_insertion(Wire message, uint64_t before) {
  Insertion insertion = {.message = before};
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key == AS_VARINT(FIELD_INSERTION_MESSAGE)) insertion.message = before + field.value;
    if (field.key == AS_VARINT(FIELD_INSERTION_FIELDS)) insertion.fields = field.value;
    if (field.key == AS_BYTES(FIELD_INSERTION_BYTES)) insertion.bytes = field.data, insertion.size = field.size;
  }
  if (insertion.message < before) wire_fail(&message, message.at, "a position that overflows");
  return insertion;
}

static CarriedSource read_source(Wire message) {
  CarriedSource source = {.name = "", .text = ""};
  Field field;
  while (wire_next(&message, &field)) {
    const char *data = (const char *)field.data;
    if (field.key == AS_BYTES(FIELD_SOURCE_NAME)) source.name = data, source.name_size = field.size;
    if (field.key == AS_BYTES(FIELD_SOURCE_TEXT)) source.text = data, source.size = field.size;
  }
  return source;
}

Sidecar *sidecar_read(Context *context, const void *bytes, size_t size) {
  const unsigned char *start = bytes;
  Sidecar *sidecar = arena_new(&context->arena, Sidecar);
  Wire wire = {context, start, start, start + size};
  Field field;
  uint64_t before = 0;
  bool headed = size > 2 + strlen(HEADING) && start[0] == AS_BYTES(FIELD_HEADING) && start[1] == strlen(HEADING) &&
                same_bytes(start + 2, HEADING, strlen(HEADING));
  if (!headed) fail(context, ERROR_FORMAT, "not a sidecar written by j2o split: unexpected first line");
  while (wire_next(&wire, &field)) {
    if (field.key == AS_BYTES(FIELD_IDENTITY) && field.size == SHA256_TEXT - 1) {
      copy_bytes(sidecar->identity, field.data, field.size);
    } else if (field.key == AS_BYTES(FIELD_INSERTION)) {
      Insertion insertion = read_insertion(wire_inside(&wire, &field), before);
      before = insertion.message;
      array_push(context, &sidecar->insertions, insertion);
    } else if (field.key == AS_BYTES(FIELD_SOURCE)) {
      array_push(context, &sidecar->sources, read_source(wire_inside(&wire, &field)));
    }
  }
  return sidecar;
}
