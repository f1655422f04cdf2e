/* Rewriting in two steps: a walk over the messages collects edits, ranges of bytes and what replaces them; then the
 * model is encoded back to front around them. Only messages that hold an edit get a new length. */
#include "onnx/file/metadata_edit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/builder.h"
#include "onnx/facts/schema_fields.h"
#include "onnx/file/wire.h"
#include "provenance/table.h"

enum { MAX_MESSAGE_DEPTH = 256 };

typedef struct Edit {
  const unsigned char *start, *end; /* what goes */
  const char *text;                 /* what comes instead */
  size_t size;
  const unsigned char *end_of; /* where the message begins at whose end the text stands; NULL: it is elsewhere */
} Edit;

typedef enum Message {
  MESSAGE_OTHER,
  MESSAGE_MODEL,
  MESSAGE_GRAPH,
  MESSAGE_NODE,
  MESSAGE_ATTRIBUTE,
  MESSAGE_FUNCTION,
  MESSAGE_TENSOR,
  MESSAGE_VALUE_INFO,
  MESSAGE_SPARSE,
  MESSAGE_TRAINING,
} Message;

typedef struct Rewriter Rewriter;
struct Rewriter {
  Context *context;
  const unsigned char *bytes;
  size_t size;
  void (*visit)(Rewriter *rewriter, Message kind, Wire message); /* after the messages inside */
  ARRAY(Edit) edits;
  uint64_t changes;
  StripWhat what;
  TableWriter *writer; /* of compact and, where asked for, of relabel */
  Table *table;
  const Model *model; /* of relabel */
  bool is_stray;      /* a number of an origin was found, and no table */
  Map expanded; /* entries of the full level, by their number and the field they stand in: many nodes share them */
};

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

static Message inner_message(Message outer, const Field *field) {
  if ((field->key & 7) != WIRE_BYTES) return MESSAGE_OTHER;
  for (size_t i = 0; i < sizeof nestings / sizeof *nestings; i++) {
    if (nestings[i].outer == outer && AS_BYTES(nestings[i].field) == field->key) return nestings[i].inner;
  }
  return MESSAGE_OTHER;
}

static uint64_t metadata_field(Message kind) {
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

static int entry_field(Message kind) { return (int)(metadata_field(kind) >> 3); }

static uint64_t doc_string_field(Message kind) {
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

static void walk(Rewriter *rewriter, Message kind, Wire message, unsigned depth) {
  if (depth > MAX_MESSAGE_DEPTH) wire_fail(&message, message.at, "messages are nested too deeply");
  Field field;
  for (Wire wire = message; wire_next(&wire, &field);) {
    Message inner = inner_message(kind, &field);
    if (inner != MESSAGE_OTHER) walk(rewriter, inner, wire_inside(&wire, &field), depth + 1);
  }
  rewriter->visit(rewriter, kind, message);
}

/* The text stays where it is: it lives in the arena. */
static void push_edit(Rewriter *rewriter, Edit edit, const Builder *text) {
  if (text && text->length) {
    edit.text = text->text;
    edit.size = text->length;
  }
  array_push(rewriter->context, &rewriter->edits, edit);
}

static void add_edit(Rewriter *rewriter, const unsigned char *start, const unsigned char *end, const Builder *text) {
  push_edit(rewriter, (Edit){.start = start, .end = end}, text);
}

/* ---- entries ---- */

typedef struct Entry {
  const unsigned char *start, *end; /* of the field */
  Field key, value;
  bool plain; /* exactly a key and a value, lengths written in the one usual way */
} Entry;

static size_t varint_size(uint64_t value) {
  size_t size = 1;
  for (; value > 0x7F; value >>= 7) size++;
  return size;
}

static Entry read_entry(const Wire *wire, const Field *field) {
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

static bool is_key(const Entry *entry, const char *key) {
  size_t length = strlen(key);
  return entry->key.size == length && memcmp(entry->key.data, key, length) == 0;
}

static void add_varint(Builder *out, uint64_t value) {
  char bytes[LONGEST_VARINT];
  size_t size = varint_encode(bytes, value);
  builder_add_sized(out, bytes, size);
}

static void add_entry(Builder *out, int field, const char *key, const char *value, size_t value_size) {
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

static bool begins_with(const char *key, size_t length, const char *prefix) {
  size_t size = strlen(prefix);
  return length >= size && memcmp(key, prefix, size) == 0;
}

static bool is_ours(const char *key, size_t length) {
  bool reference = length == strlen(METADATA_REFERENCE) && begins_with(key, length, METADATA_REFERENCE);
  return reference || begins_with(key, length, METADATA_PREFIX);
}

bool is_provenance(const char *key, size_t length, bool beside_ours) {
  bool names = length == strlen(METADATA_NAMESPACE) && begins_with(key, length, METADATA_NAMESPACE);
  return is_ours(key, length) || begins_with(key, length, TORCH_PREFIX) || (beside_ours && names);
}

bool metadata_has_ours(const MetadataList *list) {
  for (size_t i = 0; i < list->count; i++) {
    if (is_ours(list->items[i].key, str_length(list->items[i].key))) return true;
  }
  return false;
}

/* ---- strip ---- */

static bool is_entry_of_ours(const Entry *entry) { return is_ours((const char *)entry->key.data, entry->key.size); }

/* Other exporters write a namespace too: it is ours beside entries of ours. */
static bool has_ours(Wire message, uint64_t metadata) {
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key != metadata) continue;
    Entry entry = read_entry(&message, &field);
    if (is_entry_of_ours(&entry)) return true;
  }
  return false;
}

static void strip_message(Rewriter *rewriter, Message kind, Wire message) {
  Field field;
  Wire whole_message = message;
  enum { UNASKED, NO, YES } ours = UNASKED;
  uint64_t metadata = metadata_field(kind), doc_string = doc_string_field(kind);
  while (wire_next(&message, &field)) {
    bool goes = false;
    if (metadata && field.key == metadata) {
      Entry entry = read_entry(&message, &field);
      bool is_namespace = is_key(&entry, METADATA_NAMESPACE);
      if (is_namespace && ours == UNASKED) ours = has_ours(whole_message, metadata) ? YES : NO;
      goes = rewriter->what == STRIP_ALL || is_entry_of_ours(&entry) || (is_namespace && ours == YES);
    } else if (doc_string && field.key == doc_string) {
      goes = rewriter->what == STRIP_ALL;
    }
    if (!goes) continue;
    rewriter->changes++;
    add_edit(rewriter, field.start, message.at, NULL);
  }
}

/* ---- compact and expand ---- */

/* In the order in which the full level writes them; the first four are always there. */
enum { CALLSITE, PLUGIN, STACKTRACE, TRACEBACK, MODULE, NAMESPACE, SPAN, MADE_OF, FULL_KEYS, NEEDED_KEYS = MODULE };
static const char *const full_keys[FULL_KEYS] = {
    METADATA_PREFIX "callsite", METADATA_PREFIX "plugin", METADATA_PREFIX "stacktrace", METADATA_PREFIX "jax_traceback",
    METADATA_PREFIX "module",   METADATA_NAMESPACE,       METADATA_PREFIX "span",       METADATA_PREFIX "made_of",
};

/* known: namespaces of modules that were asked for before, or NULL. */
static Str namespace_of(Context *context, Str module, Map *known) {
  Str found = known ? map_get_pointer(known, module) : NULL;
  if (found) return found;
  found = module_namespace(context, module);
  if (known) *map_slot_pointer(context, known, module) = (void *)(uintptr_t)found;
  return found;
}

static void full_values(Context *context, const OriginTexts *texts, Map *namespaces, Str values[FULL_KEYS]) {
  values[CALLSITE] = texts->callsite;
  values[PLUGIN] = texts->plugin;
  values[STACKTRACE] = texts->stacktrace;
  values[TRACEBACK] = texts->traceback;
  values[MODULE] = texts->module;
  values[NAMESPACE] = texts->module ? namespace_of(context, texts->module, namespaces) : NULL;
  values[SPAN] = texts->span;
  values[MADE_OF] = texts->made_of;
}

/* The entries that the full level writes, side by side and in order; false when they are not as it writes them. */
typedef struct FullEntries {
  Entry found[FULL_KEYS];
  bool has[FULL_KEYS];
  const unsigned char *start, *end;
} FullEntries;

static bool collect_entries(Wire message, uint64_t metadata, FullEntries *all) {
  size_t next = 0;
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key != metadata) continue;
    Entry entry = read_entry(&message, &field);
    if (is_key(&entry, METADATA_REFERENCE)) return false;
    size_t which = 0;
    while (which < FULL_KEYS && !is_key(&entry, full_keys[which])) which++;
    if (which == FULL_KEYS) continue;
    if (which < next || (which > next && next < NEEDED_KEYS) || !entry.plain) return false;
    if (all->end && all->end != entry.start) return false;
    if (!all->start) all->start = entry.start;
    all->end = entry.end;
    all->found[which] = entry;
    all->has[which] = true;
    next = which + 1;
  }
  return next >= NEEDED_KEYS;
}

static Str value_text(Rewriter *rewriter, const FullEntries *all, size_t which) {
  const Entry *entry = &all->found[which];
  if (!all->has[which]) return NULL;
  return str_intern_sized(rewriter->context, (const char *)entry->value.data, entry->value.size);
}

static bool has_origin(Message kind) { return kind == MESSAGE_NODE || kind == MESSAGE_TENSOR; }

static bool has_reference(Wire message, uint64_t metadata) {
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key != metadata) continue;
    Entry entry = read_entry(&message, &field);
    if (is_key(&entry, METADATA_REFERENCE)) return true;
  }
  return false;
}

/* They become the number of a row; a node keeps its callsite, which other viewers show. */
static void compact_message(Rewriter *rewriter, Message kind, Wire message) {
  FullEntries all = {.start = NULL};
  if (has_origin(kind) && has_reference(message, metadata_field(kind))) rewriter->is_stray = true;
  if (!has_origin(kind) || !collect_entries(message, metadata_field(kind), &all)) return;
  OriginTexts texts = {.callsite = value_text(rewriter, &all, CALLSITE),
                       .plugin = value_text(rewriter, &all, PLUGIN),
                       .stacktrace = value_text(rewriter, &all, STACKTRACE),
                       .traceback = value_text(rewriter, &all, TRACEBACK),
                       .module = value_text(rewriter, &all, MODULE),
                       .span = value_text(rewriter, &all, SPAN),
                       .made_of = value_text(rewriter, &all, MADE_OF)};
  Str values[FULL_KEYS];
  full_values(rewriter->context, &texts, NULL, values);
  if (values[NAMESPACE] != value_text(rewriter, &all, NAMESPACE)) return;
  char number[16];
  int length = snprintf(number, sizeof number, "%u", table_add(rewriter->writer, texts));
  Builder text;
  builder_init(&text, rewriter->context);
  int field = entry_field(kind);
  if (kind == MESSAGE_NODE) add_entry(&text, field, full_keys[CALLSITE], texts.callsite, str_length(texts.callsite));
  add_entry(&text, field, METADATA_REFERENCE, number, (size_t)length);
  add_edit(rewriter, all.start, all.end, &text);
  rewriter->changes++;
}

/* 0: not a number as compact_message writes it. */
static uint64_t reference_number(const char *text, size_t length) {
  uint64_t number = 0;
  if (length > 10 || length == 0 || text[0] == '0') return 0;
  for (size_t i = 0; i < length; i++) {
    if (text[i] < '0' || text[i] > '9') return 0;
    number = number * 10 + (uint64_t)(text[i] - '0');
  }
  return number;
}

static const Builder *expanded_entries(Rewriter *rewriter, uint64_t number, int field) {
  Context *context = rewriter->context;
  OriginTexts texts;
  Builder *text = map_get(&rewriter->expanded, number, (uint64_t)field);
  if (text) return text;
  if (!table_get(rewriter->table, number, &texts)) return NULL;
  Str values[FULL_KEYS];
  full_values(context, &texts, NULL, values);
  text = arena_new(&context->arena, Builder);
  builder_init(text, context);
  for (size_t i = 0; i < FULL_KEYS; i++) {
    if (values[i]) add_entry(text, field, full_keys[i], values[i], str_length(values[i]));
  }
  *map_slot(context, &rewriter->expanded, number, (uint64_t)field) = text;
  return text;
}

static void expand_message(Rewriter *rewriter, Message kind, Wire message) {
  if (!has_origin(kind)) return;
  Field field;
  Entry before = {.end = NULL};
  while (wire_next(&message, &field)) {
    if (field.key != metadata_field(kind)) continue;
    Entry entry = read_entry(&message, &field);
    if (is_key(&entry, METADATA_REFERENCE)) {
      uint64_t number = reference_number((const char *)entry.value.data, entry.value.size);
      const Builder *text = expanded_entries(rewriter, number, (int)(field.key >> 3));
      if (!text) wire_fail(&message, field.start, "an unknown origin");
      bool doubled = before.end == entry.start && is_key(&before, full_keys[CALLSITE]);
      add_edit(rewriter, doubled ? before.start : entry.start, entry.end, text);
      rewriter->changes++;
    }
    before = entry;
  }
}

typedef struct TablePlace {
  bool found;
  Entry entry;
  const unsigned char *insert; /* where an export puts the table: behind the fields up to the model's metadata */
} TablePlace;

static TablePlace find_table(Wire model) {
  TablePlace place = {.insert = NULL};
  Field field;
  while (wire_next(&model, &field)) {
    if (!place.insert && field.key >> 3 > FIELD_MODEL_METADATA_PROPS) place.insert = field.start;
    if (field.key != AS_BYTES(FIELD_MODEL_METADATA_PROPS)) continue;
    Entry entry = read_entry(&model, &field);
    if (!is_key(&entry, METADATA_TABLE)) continue;
    place.found = true;
    place.entry = entry;
  }
  if (!place.insert) place.insert = model.end;
  return place;
}

/* ---- encoding around the edits ---- */

/* Of texts at the ends of messages that end together, the innermost comes first. */
static int by_position(const void *a, const void *b) {
  const Edit *first = a, *second = b;
  int order = (first->start > second->start) - (first->start < second->start);
  return order ? order : (first->end_of < second->end_of) - (first->end_of > second->end_of);
}

typedef struct FieldRange {
  const unsigned char *start, *end, *data;
  uint64_t number;
} FieldRange;

static const Edit *last_edit(const Rewriter *rewriter) {
  return rewriter->edits.count ? &rewriter->edits.items[rewriter->edits.count - 1] : NULL;
}

/* Takes the last edit; returns where what is in front of it ends. */
static const unsigned char *put_edit(Rewriter *rewriter, Encoder *encoder, const unsigned char *end) {
  const Edit *edit = last_edit(rewriter);
  put_verbatim(encoder, edit->end, (size_t)(end - edit->end));
  put_verbatim(encoder, edit->text, edit->size);
  rewriter->edits.count--;
  return edit->start;
}

/* All edits inside the message, from its end to its beginning. */
static void put_edited(Rewriter *rewriter, Encoder *encoder, Wire message) {
  const unsigned char *first = message.at, *end = message.end;
  ARRAY(FieldRange) fields = {0};
  Field field;
  while (wire_next(&message, &field)) {
    FieldRange range = {.start = field.start, .end = message.at, .data = field.data, .number = field.key >> 3};
    array_push(rewriter->context, &fields, range);
  }
  for (const Edit *edit; (edit = last_edit(rewriter)) && edit->end_of == first;) end = put_edit(rewriter, encoder, end);
  for (size_t i = fields.count; i--;) {
    const FieldRange *range = &fields.items[i];
    for (const Edit *edit; (edit = last_edit(rewriter)) && edit->start >= range->end && !edit->end_of;) {
      end = put_edit(rewriter, encoder, end);
    }
    const Edit *edit = last_edit(rewriter);
    if (!edit || edit->start < range->start || (edit->end_of && edit->start == range->start)) continue;
    if (edit->start == range->start) {
      end = put_edit(rewriter, encoder, end);
      continue;
    }
    put_verbatim(encoder, range->end, (size_t)(end - range->end));
    uint64_t mark = encoder->total;
    put_edited(rewriter, encoder, (Wire){message.context, message.base, range->data, range->end});
    put_message(encoder, (int)range->number, mark);
    end = range->start;
  }
  for (const Edit *edit; (edit = last_edit(rewriter)) && edit->start >= first;) end = put_edit(rewriter, encoder, end);
  put_verbatim(encoder, first, (size_t)(end - first));
}

static Rewritten finish(Rewriter *rewriter, Wire model) {
  Rewritten result = {.changes = rewriter->changes};
  Encoder encoder;
  encoder_init(&encoder, rewriter->context);
  if (rewriter->edits.count) {
    qsort(rewriter->edits.items, rewriter->edits.count, sizeof *rewriter->edits.items, by_position);
  }
  put_edited(rewriter, &encoder, model);
  result.segments = encoder_finish(&encoder, &result.count);
  result.size = encoder.total;
  return result;
}

static Wire whole(const Rewriter *rewriter) {
  return (Wire){rewriter->context, rewriter->bytes, rewriter->bytes, rewriter->bytes + rewriter->size};
}

Rewritten model_strip(Context *context, const void *bytes, size_t size, StripWhat what) {
  Rewriter rewriter = {.context = context, .bytes = bytes, .size = size, .visit = strip_message, .what = what};
  walk(&rewriter, MESSAGE_MODEL, whole(&rewriter), 0);
  return finish(&rewriter, whole(&rewriter));
}

Rewritten model_compact(Context *context, const void *bytes, size_t size) {
  Rewriter rewriter = {.context = context, .bytes = bytes, .size = size, .visit = compact_message};
  rewriter.writer = table_writer_new(context);
  TablePlace place = find_table(whole(&rewriter));
  if (!place.found) walk(&rewriter, MESSAGE_MODEL, whole(&rewriter), 0);
  if (rewriter.is_stray) { /* a number without a table would be taken for a row of ours: the model stays as it is */
    rewriter.edits.count = 0;
    rewriter.changes = 0;
  } else if (!table_is_empty(rewriter.writer)) {
    size_t length;
    const char *table = table_text(rewriter.writer, &length);
    Builder entry;
    builder_init(&entry, context);
    add_entry(&entry, FIELD_MODEL_METADATA_PROPS, METADATA_TABLE, table, length);
    add_edit(&rewriter, place.insert, place.insert, &entry);
  }
  return finish(&rewriter, whole(&rewriter));
}

Rewritten model_expand(Context *context, const void *bytes, size_t size, size_t limit) {
  Rewriter rewriter = {.context = context, .bytes = bytes, .size = size, .visit = expand_message};
  TablePlace place = find_table(whole(&rewriter));
  if (place.found) {
    rewriter.table = table_read(context, (const char *)place.entry.value.data, place.entry.value.size, limit);
    walk(&rewriter, MESSAGE_MODEL, whole(&rewriter), 0);
    add_edit(&rewriter, place.entry.start, place.entry.end, NULL);
  }
  return finish(&rewriter, whole(&rewriter));
}

/* ---- relabel ---- */

/* What the model in memory says of the thing that this message is; NULL: nothing is known of it. */
static const MetadataList *list_of(const Rewriter *rewriter, Message kind, const Wire *message) {
  if (kind == MESSAGE_MODEL) return &rewriter->model->metadata;
  const void *thing = map_get_pointer(&rewriter->model->messages, message->at);
  if (!thing) return NULL;
  if (kind == MESSAGE_NODE) return &((const Node *)thing)->metadata;
  if (kind == MESSAGE_TENSOR) return &((const Value *)thing)->metadata;
  return kind == MESSAGE_FUNCTION ? &((const Function *)thing)->metadata : NULL;
}

static size_t full_key(const char *key) {
  size_t which = 0;
  while (which < FULL_KEYS && strcmp(key, full_keys[which]) != 0) which++;
  return which;
}

/* What the full level writes as the number of a row, as in compact_message; false when the entries are not all there.
 */
static bool add_reference(Rewriter *rewriter, Builder *out, Message kind, const MetadataList *list) {
  Str found[FULL_KEYS] = {0}, values[FULL_KEYS];
  for (size_t i = 0; i < list->count; i++) {
    size_t which = full_key(list->items[i].key);
    if (which < FULL_KEYS && !found[which]) found[which] = list->items[i].value;
  }
  OriginTexts texts = {.callsite = found[CALLSITE],
                       .plugin = found[PLUGIN],
                       .stacktrace = found[STACKTRACE],
                       .traceback = found[TRACEBACK],
                       .module = found[MODULE],
                       .span = found[SPAN],
                       .made_of = found[MADE_OF]};
  for (size_t i = 0; i < NEEDED_KEYS; i++) {
    if (!found[i]) return false;
  }
  full_values(rewriter->context, &texts, NULL, values);
  if (values[NAMESPACE] != found[NAMESPACE]) return false;
  char number[16];
  int length = snprintf(number, sizeof number, "%u", table_add(rewriter->writer, texts)), field = entry_field(kind);
  if (kind == MESSAGE_NODE) add_entry(out, field, full_keys[CALLSITE], texts.callsite, str_length(texts.callsite));
  add_entry(out, field, METADATA_REFERENCE, number, (size_t)length);
  return true;
}

static void add_provenance(Rewriter *rewriter, Builder *out, Message kind, const MetadataList *list) {
  bool ours = metadata_has_ours(list);
  bool referred = rewriter->writer && has_origin(kind) && add_reference(rewriter, out, kind, list);
  for (size_t i = 0; i < list->count; i++) {
    const Metadata *entry = &list->items[i];
    if (!is_provenance(entry->key, str_length(entry->key), ours)) continue;
    if (referred && full_key(entry->key) < FULL_KEYS) continue;
    add_entry(out, entry_field(kind), entry->key, entry->value, str_length(entry->value));
  }
}

static void relabel_message(Rewriter *rewriter, Message kind, Wire message) {
  const MetadataList *list = list_of(rewriter, kind, &message);
  uint64_t metadata = metadata_field(kind);
  if (!list || !metadata) return;
  const unsigned char *start = message.at;
  bool ours = has_ours(message, metadata);
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key != metadata) continue;
    Entry entry = read_entry(&message, &field);
    bool goes = is_provenance((const char *)entry.key.data, entry.key.size, ours);
    if (goes) add_edit(rewriter, field.start, message.at, NULL);
  }
  Builder text;
  builder_init(&text, rewriter->context);
  add_provenance(rewriter, &text, kind, list);
  if (kind == MESSAGE_MODEL && rewriter->writer && !table_is_empty(rewriter->writer)) {
    size_t length;
    const char *table = table_text(rewriter->writer, &length);
    add_entry(&text, FIELD_MODEL_METADATA_PROPS, METADATA_TABLE, table, length);
  }
  if (!text.length) return;
  push_edit(rewriter, (Edit){.start = message.end, .end = message.end, .end_of = start}, &text);
  rewriter->changes += kind == MESSAGE_NODE;
}

Rewritten model_relabel(Context *context, const void *bytes, size_t size, const Model *model, bool compact) {
  Rewriter rewriter = {.context = context, .bytes = bytes, .size = size, .visit = relabel_message, .model = model};
  if (compact) rewriter.writer = table_writer_new(context);
  walk(&rewriter, MESSAGE_MODEL, whole(&rewriter), 0);
  return finish(&rewriter, whole(&rewriter));
}

/* ---- a model that was read ---- */

typedef struct Unfolding {
  Context *context;
  Table *table;
  Map namespaces; /* of modules: many nodes share one */
  Str keys[FULL_KEYS];
} Unfolding;

static void unfold(Unfolding *unfolding, MetadataList *list) {
  for (size_t i = 0; i < list->count; i++) {
    OriginTexts texts;
    Str reference = list->items[i].value;
    if (!str_is(list->items[i].key, METADATA_REFERENCE)) continue;
    if (!table_get(unfolding->table, reference_number(reference, str_length(reference)), &texts)) continue;
    Str values[FULL_KEYS];
    full_values(unfolding->context, &texts, &unfolding->namespaces, values);
    if (i && list->items[i - 1].key == unfolding->keys[CALLSITE]) i--;
    list->items[i] = (Metadata){unfolding->keys[CALLSITE], values[CALLSITE]};
    size_t at = i + 1; /* the next entry that may be written over: the reference behind a callsite */
    bool is_free = at < list->count && str_is(list->items[at].key, METADATA_REFERENCE);
    if (is_free) list->items[at] = (Metadata){unfolding->keys[PLUGIN], values[PLUGIN]};
    for (size_t k = is_free ? STACKTRACE : PLUGIN; k < FULL_KEYS; k++) {
      if (values[k]) array_push(unfolding->context, list, ((Metadata){unfolding->keys[k], values[k]}));
    }
    return;
  }
}

static void unfold_graph(Graph *graph, void *data) {
  Unfolding *unfolding = data;
  for (size_t i = 0; i < graph->initializers.count; i++) unfold(unfolding, &graph->initializers.items[i]->metadata);
  FOR_EACH_NODE(node, graph) unfold(unfolding, &node->metadata);
}

void model_unfold(Model *model, size_t limit) {
  for (size_t i = 0; i < model->metadata.count; i++) {
    Str value = model->metadata.items[i].value;
    if (!str_is(model->metadata.items[i].key, METADATA_TABLE)) continue;
    Unfolding unfolding = {.context = model->context,
                           .table = table_read(model->context, value, str_length(value), limit)};
    for (size_t k = 0; k < FULL_KEYS; k++) unfolding.keys[k] = str_intern(model->context, full_keys[k]);
    model_each_graph(model, unfold_graph, &unfolding);
    memmove(&model->metadata.items[i], &model->metadata.items[i + 1],
            (model->metadata.count - i - 1) * sizeof *model->metadata.items);
    model->metadata.count--;
    return;
  }
}
