/* What is done to the entries of a model. */
#include "onnx/file/metadata_edit.h"

#include <string.h>

#include "base/bytes.h"
#include "onnx/facts/schema.h"
#include "onnx/file/external.h"
#include "onnx/file/message_edit.h"
#include "onnx/file/packed_entries.h"
#include "provenance/pack.h"
#include "provenance/table.h"

/* What the commands hand to their visitors. */
typedef struct Labelling {
  StripWhat what;
  TableWriter *writer; /* of compact and, where asked for, of relabel */
  Table *table;
  const Model *model; /* of relabel */
  bool is_stray;      /* a number of an origin was found, and no table */
  Map tensors;        /* of compact: name to how often */
  Map expanded; /* entries of the full level, by their number and the field they stand in: many nodes share them */
} Labelling;

enum { NAMED_ONCE = 1, NAMED_OFTEN };

static Labelling *labelling(const MessageEditor *editor) { return editor->data; }

static bool begins_with(const char *key, size_t length, const char *prefix) {
  size_t size = strlen(prefix);
  return length >= size && same_bytes(key, prefix, size);
}

static bool is_whole_key(const char *key, size_t length, const char *expected) {
  return length == strlen(expected) && begins_with(key, length, expected);
}

bool is_reference_key(const char *key, size_t length) {
  return is_whole_key(key, length, METADATA_REFERENCE) || is_whole_key(key, length, METADATA_DECIMAL_REFERENCE);
}

static bool is_ours(const char *key, size_t length) {
  return is_reference_key(key, length) || begins_with(key, length, METADATA_PREFIX);
}

bool is_torch(const char *key, size_t length) { return begins_with(key, length, TORCH_PREFIX); }

bool is_provenance(const char *key, size_t length, bool beside_ours) {
  bool names = is_whole_key(key, length, METADATA_NAMESPACE);
  return is_ours(key, length) || is_torch(key, length) || (beside_ours && names);
}

bool metadata_has_ours(const MetadataList *list) {
  for (size_t i = 0; i < list->count; i++) {
    if (is_ours(list->items[i].key, str_length(list->items[i].key))) return true;
  }
  return false;
}

/* ---- strip ---- */

static bool is_entry_of_ours(const Entry *entry) { return is_ours((const char *)entry->key.data, entry->key.size); }
static bool is_reference(const Entry *entry) {
  return is_reference_key((const char *)entry->key.data, entry->key.size);
}

/* Other exporters write a namespace too: it is ours beside entries of ours. */
bool message_has_ours(Wire message, uint64_t metadata) {
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key != metadata) continue;
    Entry entry = read_entry(&message, &field);
    if (is_entry_of_ours(&entry)) return true;
  }
  return false;
}

typedef struct Signed {
  Field ir_version;
  const unsigned char *end; /* of that field; NULL: there is none */
  int64_t opset;
  bool ours;
} Signed;

static void read_opset(Wire message, int64_t *opset) {
  Field field;
  int64_t version = 0;
  bool standard = true;
  while (wire_next(&message, &field)) {
    if (field.key == AS_BYTES(FIELD_OPSET_DOMAIN)) standard = !field.size;
    if (field.key == AS_VARINT(FIELD_OPSET_VERSION)) version = (int64_t)field.value;
  }
  if (standard) *opset = version;
}

static Signed read_signature(Wire message) {
  Signed found = {.opset = 0};
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key == AS_VARINT(FIELD_MODEL_IR_VERSION)) {
      found.ir_version = field;
      found.end = message.at;
    } else if (field.key == AS_BYTES(FIELD_MODEL_PRODUCER_NAME)) {
      found.ours = field.size == strlen(PRODUCER) && same_bytes(field.data, PRODUCER, field.size);
    } else if (field.key == AS_BYTES(FIELD_MODEL_OPSET_IMPORT)) {
      read_opset(wire_inside(&message, &field), &found.opset);
    }
  }
  return found;
}

/* Of an export of ours: the IR version was raised for what went. */
static void restore_ir_version(MessageEditor *editor, Wire message) {
  Signed model = read_signature(message);
  if (!editor->changes || !model.ours || !model.end || model.ir_version.value != IR_WITH_PROVENANCE) return;
  if (!model.opset || ir_version_of(model.opset) == IR_WITH_PROVENANCE) return;
  Builder text;
  builder_init(&text, editor->context);
  add_varint(&text, AS_VARINT(FIELD_MODEL_IR_VERSION));
  add_varint(&text, (uint64_t)ir_version_of(model.opset));
  add_edit(editor, model.ir_version.start, model.end, &text);
}

static void strip_message(MessageEditor *editor, Message kind, Wire message) {
  Field field;
  Wire whole_message = message;
  enum { UNASKED, NO, YES } ours = UNASKED;
  uint64_t metadata = metadata_field(kind), doc_string = doc_string_field(kind);
  while (wire_next(&message, &field)) {
    bool goes = false;
    if (metadata && field.key == metadata) {
      Entry entry = read_entry(&message, &field);
      bool is_namespace = is_key(&entry, METADATA_NAMESPACE);
      if (is_namespace && ours == UNASKED) ours = message_has_ours(whole_message, metadata) ? YES : NO;
      goes = labelling(editor)->what == STRIP_ALL || is_entry_of_ours(&entry) || (is_namespace && ours == YES);
    } else if (doc_string && field.key == doc_string) {
      goes = labelling(editor)->what == STRIP_ALL;
    }
    if (!goes) continue;
    editor->changes++;
    add_edit(editor, field.start, message.at, NULL);
  }
  if (kind == MESSAGE_MODEL) restore_ir_version(editor, whole_message);
}

/* ---- compact and expand ---- */

/* In the order in which the full level writes them; the first four are always there. */
enum {
  CALLSITE,
  PLUGIN,
  STACKTRACE,
  TRACEBACK,
  MODULE,
  NAMESPACE,
  SPAN,
  MADE_OF,
  FUSED,
  FULL_KEYS,
  NEEDED_KEYS = MODULE
};
static const char *const full_keys[FULL_KEYS] = {
    METADATA_PREFIX "callsite",      METADATA_PREFIX "plugin",  METADATA_PREFIX "stacktrace",
    METADATA_PREFIX "jax_traceback", METADATA_PREFIX "module",  METADATA_NAMESPACE,
    METADATA_PREFIX "span",          METADATA_PREFIX "made_of", METADATA_FUSED_MODULES,
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
  values[FUSED] = texts->fused_modules;
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
    if (is_reference(&entry)) return false;
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

static Str value_text(MessageEditor *editor, const FullEntries *all, size_t which) {
  const Entry *entry = &all->found[which];
  if (!all->has[which]) return NULL;
  return str_intern_sized(editor->context, (const char *)entry->value.data, entry->value.size);
}

static bool has_origin(Message kind) { return kind == MESSAGE_NODE || kind == MESSAGE_TENSOR; }

/* Would be taken for the number of a row, or for a node whose callsite tells its row, if the model had a table. */
static bool looks_compact(Message kind, Wire message) {
  bool has_callsite = false, has_plugin = false;
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key != metadata_field(kind)) continue;
    Entry entry = read_entry(&message, &field);
    if (is_reference(&entry)) return true;
    has_callsite = has_callsite || is_key(&entry, full_keys[CALLSITE]);
    has_plugin = has_plugin || is_key(&entry, full_keys[PLUGIN]);
  }
  return kind == MESSAGE_NODE && has_callsite && !has_plugin;
}

/* The operator of a node, the name of a tensor. */
static Str message_name(MessageEditor *editor, Message kind, Wire message) {
  uint64_t key = kind == MESSAGE_NODE ? AS_BYTES(FIELD_NODE_OP_TYPE) : AS_BYTES(FIELD_TENSOR_NAME);
  Str name = str_intern(editor->context, "");
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key == key) name = str_intern_sized(editor->context, (const char *)field.data, field.size);
  }
  return name;
}

static void count_tensor(MessageEditor *editor, Message kind, Wire message) {
  if (kind != MESSAGE_TENSOR) return;
  Str name = message_name(editor, kind, message);
  void **slot = map_slot_pointer(editor->context, &labelling(editor)->tensors, name);
  *slot = (void *)(uintptr_t)(*slot ? NAMED_OFTEN : NAMED_ONCE);
}

/* So that no tensor is taken for another of its name. */
static void count_tensors(MessageEditor *editor) {
  MessageEditor counter = {.context = editor->context,
                           .bytes = editor->bytes,
                           .size = editor->size,
                           .visit = count_tensor,
                           .data = editor->data};
  messages_walk(&counter);
}

static Bearer message_bearer(MessageEditor *editor, Message kind, Wire message) {
  Str name = message_name(editor, kind, message);
  if (kind == MESSAGE_NODE) return (Bearer){.op_type = name};
  bool is_only = (uintptr_t)map_get_pointer(&labelling(editor)->tensors, name) == NAMED_ONCE;
  return (Bearer){.initializer = is_only ? name : NULL};
}

/* The number of an origin's row. A node keeps its callsite, which other viewers show; where that tells the row, it is
 * all. */
static void add_row(MessageEditor *editor, Builder *out, Message kind, OriginTexts texts, Bearer bearer) {
  TableWriter *writer = labelling(editor)->writer;
  uint32_t row = table_add(writer, texts, bearer);
  int field = entry_field(kind);
  if (kind == MESSAGE_NODE) {
    add_entry(out, field, full_keys[CALLSITE], texts.callsite, str_length(texts.callsite));
  }
  if (table_tells(writer, texts.callsite, bearer, row)) return;
  Builder number;
  builder_init(&number, editor->context);
  pack_number(&number, row);
  add_entry(out, field, METADATA_REFERENCE, number.text, number.length);
}

/* The entries of the full level become the number of a row. */
static void compact_message(MessageEditor *editor, Message kind, Wire message) {
  FullEntries all = {.start = NULL};
  if (has_origin(kind) && looks_compact(kind, message)) labelling(editor)->is_stray = true;
  if (!has_origin(kind) || !collect_entries(message, metadata_field(kind), &all)) return;
  OriginTexts texts = {.callsite = value_text(editor, &all, CALLSITE),
                       .plugin = value_text(editor, &all, PLUGIN),
                       .stacktrace = value_text(editor, &all, STACKTRACE),
                       .traceback = value_text(editor, &all, TRACEBACK),
                       .module = value_text(editor, &all, MODULE),
                       .span = value_text(editor, &all, SPAN),
                       .made_of = value_text(editor, &all, MADE_OF),
                       .fused_modules = value_text(editor, &all, FUSED)};
  Str values[FULL_KEYS];
  full_values(editor->context, &texts, NULL, values);
  if (values[NAMESPACE] != value_text(editor, &all, NAMESPACE)) return;
  Builder text;
  builder_init(&text, editor->context);
  add_row(editor, &text, kind, texts, message_bearer(editor, kind, message));
  add_edit(editor, all.start, all.end, &text);
  editor->changes++;
}

/* 0: not a number as compact_message writes it, or exports did before. */
static uint64_t reference_number(bool is_decimal, const char *text, size_t length) {
  uint64_t number = 0;
  if (!is_decimal) return unpack_number(text, length);
  if (length > 10 || length == 0 || text[0] == '0') return 0;
  for (size_t i = 0; i < length; i++) {
    if (text[i] < '0' || text[i] > '9') return 0;
    number = number * 10 + (uint64_t)(text[i] - '0');
  }
  return number;
}

static const Builder *expanded_entries(MessageEditor *editor, uint64_t number, int field) {
  Context *context = editor->context;
  OriginTexts texts;
  Builder *text = map_get(&labelling(editor)->expanded, number, (uint64_t)field);
  if (text) return text;
  if (!table_get(labelling(editor)->table, number, &texts)) return NULL;
  Str values[FULL_KEYS];
  full_values(context, &texts, NULL, values);
  text = arena_new(&context->arena, Builder);
  builder_init(text, context);
  for (size_t i = 0; i < FULL_KEYS; i++) {
    if (values[i]) add_entry(text, field, full_keys[i], values[i], str_length(values[i]));
  }
  *map_slot(context, &labelling(editor)->expanded, number, (uint64_t)field) = text;
  return text;
}

/* The row of a node that has no number: where it has a callsite and nothing that goes with that elsewhere. */
static uint64_t row_of_node(MessageEditor *editor, Wire message, const Entry *callsite) {
  if (!callsite->end) return 0;
  Str text = str_intern_sized(editor->context, (const char *)callsite->value.data, callsite->value.size);
  return table_row_of_node(labelling(editor)->table, text, message_name(editor, MESSAGE_NODE, message));
}

/* An initializer without a number may be known by its name: what it says comes last. */
static void expand_initializer(MessageEditor *editor, Wire message) {
  uint32_t row = table_row_of_initializer(labelling(editor)->table, message_name(editor, MESSAGE_TENSOR, message));
  if (!row) return;
  append_edit(editor, message, expanded_entries(editor, row, entry_field(MESSAGE_TENSOR)));
  editor->changes++;
}

static void expand_message(MessageEditor *editor, Message kind, Wire message) {
  if (!has_origin(kind)) return;
  Field field;
  Wire whole = message;
  Entry before = {.end = NULL}, callsite = {.end = NULL};
  bool has_reference = false, has_plugin = false;
  while (wire_next(&message, &field)) {
    if (field.key != metadata_field(kind)) continue;
    Entry entry = read_entry(&message, &field);
    if (is_reference(&entry)) {
      bool is_decimal = is_key(&entry, METADATA_DECIMAL_REFERENCE);
      uint64_t number = reference_number(is_decimal, (const char *)entry.value.data, entry.value.size);
      const Builder *text = expanded_entries(editor, number, entry_field(kind));
      if (!text) wire_fail(&message, field.start, "an unknown origin");
      bool doubled = before.end == entry.start && is_key(&before, full_keys[CALLSITE]);
      add_edit(editor, doubled ? before.start : entry.start, entry.end, text);
      editor->changes++;
      has_reference = true;
    }
    if (is_key(&entry, full_keys[CALLSITE])) callsite = entry;
    has_plugin = has_plugin || is_key(&entry, full_keys[PLUGIN]);
    before = entry;
  }
  if (has_reference || has_plugin) return;
  if (kind == MESSAGE_TENSOR) {
    expand_initializer(editor, whole);
    return;
  }
  uint64_t row = row_of_node(editor, whole, &callsite);
  if (!row) return;
  add_edit(editor, callsite.start, callsite.end, expanded_entries(editor, row, entry_field(kind)));
  editor->changes++;
}

typedef struct TablePlace {
  bool found;
  Entry entry;
  MetadataList packed;              /* entries side by side that are packed with the table */
  const unsigned char *start, *end; /* where they stand, and with them what an export packs */
} TablePlace;

static void add_packed(Context *context, TablePlace *place, const Entry *entry) {
  bool is_next = !place->packed.count || place->end == entry->start;
  if (!is_next || !entry->plain || !is_packed_key((const char *)entry->key.data, entry->key.size)) return;
  Metadata packed = {str_intern_sized(context, (const char *)entry->key.data, entry->key.size),
                     str_intern_sized(context, (const char *)entry->value.data, entry->value.size)};
  if (!place->packed.count) place->start = entry->start;
  place->end = entry->end;
  array_push(context, &place->packed, packed);
}

static TablePlace find_table(Wire model) {
  TablePlace place = {.found = false};
  const unsigned char *behind = NULL; /* the fields up to the model's metadata: where an entry is put */
  Field field;
  while (wire_next(&model, &field)) {
    if (!behind && field.key >> 3 > FIELD_MODEL_METADATA_PROPS) behind = field.start;
    if (field.key != AS_BYTES(FIELD_MODEL_METADATA_PROPS)) continue;
    Entry entry = read_entry(&model, &field);
    add_packed(model.context, &place, &entry);
    if (!is_key(&entry, METADATA_TABLE)) continue;
    place.found = true;
    place.entry = entry;
  }
  if (!place.packed.count) place.start = place.end = behind ? behind : model.end;
  return place;
}

/* The table and the entries that are packed with it. */
static void add_table(Context *context, Builder *out, MetadataList *packed, TableWriter *writer) {
  size_t length;
  const char *text = table_text(writer, &length);
  Metadata table = {str_intern(context, METADATA_TABLE), str_intern_sized(context, text, length)};
  array_push(context, packed, table);
  Str value = packed_entries(context, packed);
  add_entry(out, FIELD_MODEL_METADATA_PROPS, METADATA_TABLE, value, str_length(value));
}

Rewritten model_strip(Context *context, const void *bytes, size_t size, StripWhat what) {
  Labelling data = {.what = what};
  MessageEditor editor = {.context = context, .bytes = bytes, .size = size, .visit = strip_message, .data = &data};
  messages_walk(&editor);
  return messages_edit(&editor);
}

Rewritten model_compact(Context *context, const void *bytes, size_t size) {
  Labelling data = {.writer = table_writer_new(context)};
  MessageEditor editor = {.context = context, .bytes = bytes, .size = size, .visit = compact_message, .data = &data};
  TablePlace place = find_table(whole_message(&editor));
  if (!place.found) {
    count_tensors(&editor);
    messages_walk(&editor);
  }
  if (data.is_stray) { /* the model stays as it is: with a table it would say something else */
    editor.edits.count = 0;
    editor.changes = 0;
  } else if (!table_is_empty(data.writer)) {
    Builder entry;
    builder_init(&entry, context);
    add_table(context, &entry, &place.packed, data.writer);
    add_edit(&editor, place.start, place.end, &entry);
  }
  return messages_edit(&editor);
}

/* Takes it out of the list. */
static Table *read_last_table(Context *context, MetadataList *entries, size_t limit) {
  Str table = entries->items[--entries->count].value;
  return table_read(context, table, str_length(table), limit);
}

Rewritten model_expand(Context *context, const void *bytes, size_t size, size_t limit) {
  Labelling data = {.what = STRIP_OURS};
  MessageEditor editor = {.context = context, .bytes = bytes, .size = size, .visit = expand_message, .data = &data};
  TablePlace place = find_table(whole_message(&editor));
  if (!place.found) return messages_edit(&editor);
  MetadataList entries = unpacked_entries(context, (const char *)place.entry.value.data, place.entry.value.size, limit);
  data.table = read_last_table(context, &entries, limit);
  messages_walk(&editor);
  Builder text;
  builder_init(&text, context);
  for (size_t i = 0; i < entries.count; i++) {
    add_entry(&text, FIELD_MODEL_METADATA_PROPS, entries.items[i].key, entries.items[i].value,
              str_length(entries.items[i].value));
  }
  add_edit(&editor, place.entry.start, place.entry.end, &text);
  return messages_edit(&editor);
}

/* ---- relabel ---- */

MetadataList *message_metadata(const Model *model, Message kind, const Wire *message) {
  if (kind == MESSAGE_MODEL) return &((Model *)(uintptr_t)model)->metadata;
  void *thing = map_get_pointer(&model->messages, message->at);
  if (!thing) return NULL;
  if (kind == MESSAGE_NODE) return &((Node *)thing)->metadata;
  if (kind == MESSAGE_TENSOR) return &((Value *)thing)->metadata;
  return kind == MESSAGE_FUNCTION ? &((Function *)thing)->metadata : NULL;
}

static size_t full_key(const char *key) {
  size_t which = 0;
  while (which < FULL_KEYS && strcmp(key, full_keys[which]) != 0) which++;
  return which;
}

/* What the full level writes as the number of a row, as in compact_message; false when the entries are not all there.
 */
static bool add_reference(MessageEditor *editor, Builder *out, Message kind, const MetadataList *list, Wire message) {
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
                       .made_of = found[MADE_OF],
                       .fused_modules = found[FUSED]};
  for (size_t i = 0; i < NEEDED_KEYS; i++) {
    if (!found[i]) return false;
  }
  full_values(editor->context, &texts, NULL, values);
  if (values[NAMESPACE] != found[NAMESPACE]) return false;
  add_row(editor, out, kind, texts, message_bearer(editor, kind, message));
  return true;
}

/* The table and what goes with it; false when there is none. */
static bool add_model_table(MessageEditor *editor, Builder *out, const MetadataList *list) {
  MetadataList packed = {0};
  TableWriter *writer = labelling(editor)->writer;
  if (!writer || table_is_empty(writer)) return false;
  for (size_t i = 0; i < list->count; i++) {
    const Metadata *entry = &list->items[i];
    if (is_packed_key(entry->key, str_length(entry->key))) array_push(editor->context, &packed, *entry);
  }
  add_table(editor->context, out, &packed, writer);
  return true;
}

static void add_provenance(MessageEditor *editor, Builder *out, Message kind, const MetadataList *list, Wire message) {
  bool ours = metadata_has_ours(list);
  bool referred = labelling(editor)->writer && has_origin(kind) && add_reference(editor, out, kind, list, message);
  bool packed = kind == MESSAGE_MODEL && add_model_table(editor, out, list);
  for (size_t i = 0; i < list->count; i++) {
    const Metadata *entry = &list->items[i];
    if (!is_provenance(entry->key, str_length(entry->key), ours)) continue;
    if (referred && full_key(entry->key) < FULL_KEYS) continue;
    if (packed && is_packed_key(entry->key, str_length(entry->key))) continue;
    add_entry(out, entry_field(kind), entry->key, entry->value, str_length(entry->value));
  }
}

static void relabel_message(MessageEditor *editor, Message kind, Wire message) {
  const MetadataList *list = message_metadata(labelling(editor)->model, kind, &message);
  uint64_t metadata = metadata_field(kind);
  if (!list || !metadata) return;
  const unsigned char *start = message.at;
  bool ours = message_has_ours(message, metadata);
  Field field;
  while (wire_next(&message, &field)) {
    if (field.key != metadata) continue;
    Entry entry = read_entry(&message, &field);
    bool goes = is_provenance((const char *)entry.key.data, entry.key.size, ours);
    if (goes) add_edit(editor, field.start, message.at, NULL);
  }
  Builder text;
  builder_init(&text, editor->context);
  message.at = start;
  add_provenance(editor, &text, kind, list, message);
  if (!text.length) return;
  append_edit(editor, message, &text);
  editor->changes += kind == MESSAGE_NODE;
}

Rewritten model_relabel(Context *context, const void *bytes, size_t size, const Model *model, bool compact) {
  Labelling data = {.model = model, .writer = compact ? table_writer_new(context) : NULL};
  MessageEditor editor = {.context = context, .bytes = bytes, .size = size, .visit = relabel_message, .data = &data};
  if (compact) count_tensors(&editor);
  messages_walk(&editor);
  return messages_edit(&editor);
}

/* ---- a model that was read ---- */

typedef struct Unfolding {
  Context *context;
  Table *table;
  Map namespaces; /* of modules: many nodes share one */
  Str keys[FULL_KEYS], reference, decimal_reference;
} Unfolding;

static size_t find_key(const MetadataList *list, Str key) {
  size_t at = 0;
  while (at < list->count && list->items[at].key != key) at++;
  return at;
}

/* The entries of an origin take the place of the `count` entries from `at` on, which are one or two. */
static void unfold_at(Unfolding *unfolding, MetadataList *list, size_t at, size_t count, const OriginTexts *texts) {
  Str values[FULL_KEYS];
  full_values(unfolding->context, texts, &unfolding->namespaces, values);
  list->items[at] = (Metadata){unfolding->keys[CALLSITE], values[CALLSITE]};
  if (count > 1) list->items[at + 1] = (Metadata){unfolding->keys[PLUGIN], values[PLUGIN]};
  for (size_t k = count > 1 ? STACKTRACE : PLUGIN; k < FULL_KEYS; k++) {
    if (values[k]) array_push(unfolding->context, list, ((Metadata){unfolding->keys[k], values[k]}));
  }
}

/* op_type or name: of a node, of an initializer; the other is NULL. */
static void unfold(Unfolding *unfolding, MetadataList *list, Str op_type, Str name) {
  OriginTexts texts;
  size_t callsite = find_key(list, unfolding->keys[CALLSITE]), reference = find_key(list, unfolding->reference);
  bool is_decimal = reference == list->count;
  if (is_decimal) reference = find_key(list, unfolding->decimal_reference);
  if (reference < list->count) {
    Str number = list->items[reference].value;
    if (!table_get(unfolding->table, reference_number(is_decimal, number, str_length(number)), &texts)) return;
    bool behind = reference && list->items[reference - 1].key == unfolding->keys[CALLSITE];
    unfold_at(unfolding, list, behind ? reference - 1 : reference, behind ? 2 : 1, &texts);
  } else if (find_key(list, unfolding->keys[PLUGIN]) < list->count) {
    return;
  } else if (op_type && callsite < list->count) {
    uint32_t row = table_row_of_node(unfolding->table, list->items[callsite].value, op_type);
    if (row && table_get(unfolding->table, row, &texts)) unfold_at(unfolding, list, callsite, 1, &texts);
  } else if (name) {
    uint32_t row = table_row_of_initializer(unfolding->table, name);
    if (!row || !table_get(unfolding->table, row, &texts)) return;
    array_push(unfolding->context, list, (Metadata){0});
    unfold_at(unfolding, list, list->count - 1, 1, &texts);
  }
}

static void unfold_graph(Graph *graph, void *data) {
  Unfolding *unfolding = data;
  for (size_t i = 0; i < graph->initializers.count; i++) {
    Value *value = graph->initializers.items[i];
    unfold(unfolding, &value->metadata, NULL, value->name);
  }
  FOR_EACH_NODE(node, graph) unfold(unfolding, &node->metadata, node->op_type, NULL);
}

/* Entries of the model take the place of the one at `at`. */
static void unpack_at(Context *context, MetadataList *list, size_t at, const MetadataList *entries) {
  MetadataList result = {0};
  for (size_t i = 0; i < at; i++) array_push(context, &result, list->items[i]);
  for (size_t i = 0; i < entries->count; i++) array_push(context, &result, entries->items[i]);
  for (size_t i = at + 1; i < list->count; i++) array_push(context, &result, list->items[i]);
  *list = result;
}

void model_unfold(Model *model, size_t limit) {
  Context *context = model->context;
  size_t at = find_key(&model->metadata, str_intern(context, METADATA_TABLE));
  if (at == model->metadata.count) return;
  Str value = model->metadata.items[at].value;
  MetadataList entries = unpacked_entries(context, value, str_length(value), limit);
  Unfolding unfolding = {.context = context, .table = read_last_table(context, &entries, limit)};
  for (size_t k = 0; k < FULL_KEYS; k++) unfolding.keys[k] = str_intern(context, full_keys[k]);
  unfolding.reference = str_intern(context, METADATA_REFERENCE);
  unfolding.decimal_reference = str_intern(context, METADATA_DECIMAL_REFERENCE);
  model_each_graph(model, unfold_graph, &unfolding);
  unpack_at(context, &model->metadata, at, &entries);
}
