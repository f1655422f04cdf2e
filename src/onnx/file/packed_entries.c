/* Entries of a model in one. */
#include "onnx/file/packed_entries.h"

#include <string.h>

#include "base/bytes.h"
#include "onnx/file/metadata_keys.h"
#include "provenance/pack.h"

#define HEADING "j2o packed "

bool is_packed_key(const char *key, size_t length) {
  static const char *const keys[] = {METADATA_MODULES, METADATA_REMOVED, METADATA_SOURCES};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (length == strlen(keys[i]) && same_bytes(key, keys[i], length)) return true;
  }
  return false;
}

/* ---- writing ---- */

static void add_entry_text(Builder *out, const Metadata *entry) {
  builder_add(out, entry->key + strlen(METADATA_PREFIX));
  builder_add(out, " ");
  builder_add_number(out, str_length(entry->value));
  builder_add(out, "\n");
  builder_add_sized(out, entry->value, str_length(entry->value));
  builder_add(out, "\n");
}

Str packed_entries(Context *context, const MetadataList *entries) {
  Builder text, packed, value;
  builder_init(&text, context);
  builder_init(&packed, context);
  builder_init(&value, context);
  for (size_t i = 0; i < entries->count; i++) add_entry_text(&text, &entries->items[i]);
  pack_text(context, &packed, builder_text(&text), text.length);
  bool pays = pack_is_moderate(text.length, packed.length);
  builder_format(&value, HEADING "%d %zu\n", pays ? PACK_VERSION : 0, text.length);
  if (pays) builder_add_sized(&value, packed.text, packed.length);
  else builder_add_sized(&value, text.text, text.length);
  return str_intern_sized(context, builder_text(&value), value.length);
}

/* ---- reading ---- */

typedef struct Unpacking {
  Context *context;
  const char *at, *end;
} Unpacking;

static _Noreturn void fail_packed(const Unpacking *unpacking) {
  fail(unpacking->context, ERROR_FORMAT, "the packed provenance is damaged");
}

/* Digits and what stands after them, which is passed over. */
static size_t read_number(Unpacking *unpacking, char after) {
  enum { MOST_DIGITS = 12 };
  size_t number = 0, digits = 0;
  for (; unpacking->at < unpacking->end && *unpacking->at >= '0' && *unpacking->at <= '9'; unpacking->at++, digits++) {
    if (digits == MOST_DIGITS) fail_packed(unpacking);
    number = number * 10 + (size_t)(*unpacking->at - '0');
  }
  if (!digits || unpacking->at == unpacking->end || *unpacking->at++ != after) fail_packed(unpacking);
  return number;
}

static Metadata read_packed(Unpacking *unpacking) {
  const char *name = unpacking->at, *space = find_letter(name, ' ', (size_t)(unpacking->end - name));
  if (!space) fail_packed(unpacking);
  unpacking->at = space + 1;
  size_t length = read_number(unpacking, '\n');
  if (length >= (size_t)(unpacking->end - unpacking->at) || unpacking->at[length] != '\n') fail_packed(unpacking);
  Builder key;
  builder_init(&key, unpacking->context);
  builder_add(&key, METADATA_PREFIX);
  builder_add_sized(&key, name, (size_t)(space - name));
  if (!is_packed_key(key.text, key.length) && strcmp(key.text, METADATA_TABLE) != 0) fail_packed(unpacking);
  Metadata entry = {str_intern_sized(unpacking->context, key.text, key.length),
                    str_intern_sized(unpacking->context, unpacking->at, length)};
  unpacking->at += length + 1;
  return entry;
}

/* What the characters from `at` on stand for. */
static void unpack_rest(Unpacking *unpacking, size_t version, size_t length, size_t limit) {
  size_t size = (size_t)(unpacking->end - unpacking->at);
  if (version == 0) {
    if (length != size) fail_packed(unpacking);
    return;
  }
  if (!pack_is_moderate(length, size) && length > limit) {
    fail(unpacking->context, ERROR_FORMAT, "its packed provenance takes %zu MiB; allow more with --limit=%zuM",
         length >> 20, (length >> 20) + 1);
  }
  char *text = arena_alloc(&unpacking->context->arena, length + 1);
  if (!unpack_text(unpacking->context, unpacking->at, size, text, length)) fail_packed(unpacking);
  unpacking->at = text;
  unpacking->end = text + length;
}

MetadataList unpacked_entries(Context *context, const char *value, size_t length, size_t limit) {
  MetadataList entries = {0};
  size_t heading = strlen(HEADING);
  Unpacking unpacking = {context, value + heading, value + length};
  if (length < heading || !same_bytes(value, HEADING, heading)) {
    Metadata table = {str_intern(context, METADATA_TABLE), str_intern_sized(context, value, length)};
    array_push(context, &entries, table);
    return entries;
  }
  size_t version = read_number(&unpacking, ' ');
  if (version > PACK_VERSION) {
    fail(context, ERROR_FORMAT, "the provenance table has a format that this version does not support");
  }
  size_t unpacked = read_number(&unpacking, '\n');
  unpack_rest(&unpacking, version, unpacked, limit);
  while (unpacking.at < unpacking.end) array_push(context, &entries, read_packed(&unpacking));
  if (!entries.count || !str_is(entries.items[entries.count - 1].key, METADATA_TABLE)) fail_packed(&unpacking);
  return entries;
}
