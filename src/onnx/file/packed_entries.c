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

enum { DIGESTS_APART = PACK_VERSION + 1, LATEST = DIGESTS_APART };

/* ---- digests ---- */

static const char hex[] = "0123456789abcdef";

static const char *line_end(const char *at, const char *end) {
  const char *stop = find_letter(at, '\n', (size_t)(end - at));
  return stop ? stop : end;
}

/* Is this "PATH<TAB>DIGEST"? */
static bool read_digest(const char *line, const char *end, unsigned char digest[DIGEST_BYTES]) {
  const char *at = end - 2 * DIGEST_BYTES;
  if (end - line <= 2 * DIGEST_BYTES || at[-1] != '\t') return false;
  for (size_t i = 0; i < DIGEST_BYTES; i++, at += 2) {
    const char *high = find_letter(hex, at[0], 16), *low = find_letter(hex, at[1], 16);
    if (!high || !low) return false;
    digest[i] = (unsigned char)((high - hex) << 4 | (low - hex));
  }
  return true;
}

/* The rows of the sources without their digests, which are put apart. False: a row has another form. */
static bool part_digests(Context *context, Str sources, Builder *rows, Builder *digests) {
  unsigned char digest[DIGEST_BYTES];
  builder_init(rows, context);
  for (const char *line = sources, *end = line + str_length(sources);; line++) {
    const char *stop = line_end(line, end);
    if (!read_digest(line, stop, digest)) return false;
    pack_digest(digests, digest);
    builder_add_sized(rows, line, (size_t)(stop - line) - 2 * DIGEST_BYTES);
    if (stop == end) return true;
    builder_add(rows, "\n");
    line = stop;
  }
}

/* ---- writing ---- */

static void add_entry_text(Builder *out, const char *key, const char *value, size_t length) {
  builder_add(out, key + strlen(METADATA_PREFIX));
  builder_add(out, " ");
  builder_add_number(out, length);
  builder_add(out, "\n");
  builder_add_sized(out, value, length);
  builder_add(out, "\n");
}

/* All entries as one text; digests go to `digests` where it is not NULL and they can be found again. */
static void entries_text(Context *context, const MetadataList *entries, Builder *text, Builder *digests) {
  for (size_t i = 0; i < entries->count; i++) {
    const Metadata *entry = &entries->items[i];
    Builder rows;
    size_t before = digests ? digests->length : 0;
    bool parted = digests && str_is(entry->key, METADATA_SOURCES) && !before &&
                  part_digests(context, entry->value, &rows, digests);
    if (digests && !parted) digests->length = before;
    if (parted) add_entry_text(text, entry->key, builder_text(&rows), rows.length);
    else add_entry_text(text, entry->key, entry->value, str_length(entry->value));
  }
}

/* A text that a reader would refuse to unpack. */
static Str unpacked_value(Context *context, const MetadataList *entries) {
  Builder text, value;
  builder_init(&text, context);
  builder_init(&value, context);
  entries_text(context, entries, &text, NULL);
  builder_format(&value, HEADING "0 %zu\n", text.length);
  builder_add_sized(&value, text.text, text.length);
  return str_intern_sized(context, builder_text(&value), value.length);
}

Str packed_entries(Context *context, const MetadataList *entries) {
  Builder text, packed, value, digests;
  builder_init(&text, context);
  builder_init(&packed, context);
  builder_init(&value, context);
  builder_init(&digests, context);
  entries_text(context, entries, &text, &digests);
  pack_text(context, &packed, builder_text(&text), text.length);
  if (!pack_is_moderate(text.length, packed.length)) return unpacked_value(context, entries);
  builder_format(&value, HEADING "%d %zu %zu\n", LATEST, text.length, digests.length / DIGEST_DIGITS);
  builder_add_sized(&value, builder_text(&digests), digests.length);
  builder_add_sized(&value, packed.text, packed.length);
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

static void join_digest(const Unpacking *unpacking, Builder *rows, const char *digits) {
  unsigned char digest[DIGEST_BYTES];
  if (!unpack_digest(digits, digest)) fail_packed(unpacking);
  for (size_t i = 0; i < DIGEST_BYTES; i++) {
    const char pair[] = {hex[digest[i] >> 4], hex[digest[i] & 15]};
    builder_add_sized(rows, pair, sizeof pair);
  }
}

/* Each row of the sources gets its digest back. */
static Str join_digests(const Unpacking *unpacking, Str sources, const char *digits, size_t count) {
  Builder rows;
  builder_init(&rows, unpacking->context);
  for (const char *line = sources, *end = line + str_length(sources);; line++) {
    const char *stop = line_end(line, end);
    if (!count--) fail_packed(unpacking);
    builder_add_sized(&rows, line, (size_t)(stop - line));
    join_digest(unpacking, &rows, digits);
    digits += DIGEST_DIGITS;
    if (stop == end) break;
    builder_add(&rows, "\n");
    line = stop;
  }
  if (count) fail_packed(unpacking);
  return str_intern_sized(unpacking->context, builder_text(&rows), rows.length);
}

/* Where the digests stand, which are passed over. */
static const char *take_digests(Unpacking *unpacking, size_t count) {
  const char *digests = unpacking->at;
  if (count > (size_t)(unpacking->end - unpacking->at) / DIGEST_DIGITS) fail_packed(unpacking);
  unpacking->at += count * DIGEST_DIGITS;
  return digests;
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
  if (version > LATEST) {
    fail(context, ERROR_FORMAT, "the provenance table has a format that this version does not support");
  }
  bool apart = version >= DIGESTS_APART;
  size_t unpacked = read_number(&unpacking, apart ? ' ' : '\n'), count = apart ? read_number(&unpacking, '\n') : 0;
  const char *digests = take_digests(&unpacking, count);
  unpack_rest(&unpacking, version, unpacked, limit);
  while (unpacking.at < unpacking.end) {
    Metadata entry = read_packed(&unpacking);
    if (count && str_is(entry.key, METADATA_SOURCES)) {
      entry.value = join_digests(&unpacking, entry.value, digests, count);
      count = 0;
    }
    array_push(context, &entries, entry);
  }
  if (count) fail_packed(&unpacking);
  if (!entries.count || !str_is(entries.items[entries.count - 1].key, METADATA_TABLE)) fail_packed(&unpacking);
  return entries;
}
