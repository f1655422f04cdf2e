/* Entries of a model in one. */
#include "onnx/file/packed_entries.h"

#include <string.h>

#include "base/bytes.h"
#include "onnx/file/metadata_keys.h"
#include "provenance/pack.h"

#define HEADING "j2o packed "

static const char *const keys[] = {METADATA_MODULES, METADATA_REMOVED, METADATA_SOURCES};
enum { KEYS = sizeof keys / sizeof *keys };

bool is_packed_key(const char *key, size_t length) {
  for (size_t i = 0; i < KEYS; i++) {
    if (length == strlen(keys[i]) && same_bytes(key, keys[i], length)) return true;
  }
  return false;
}

/* The versions of the value. */
enum { STORED = 0, DIGESTS_APART = 2, ENDED = 3, LATEST = ENDED };

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

/* The rows of the sources, of which only the path is kept; the digests are put apart. False: a row has another form. */
static bool part_digests(Str sources, Builder *rows, Builder *digests) {
  unsigned char digest[DIGEST_BYTES];
  for (const char *line = sources, *end = line + str_length(sources);; line++) {
    const char *stop = line_end(line, end);
    bool has_path = stop - line > 2 * DIGEST_BYTES + 1; /* an empty row would end them */
    if (!has_path || !read_digest(line, stop, digest)) return false;
    pack_digest(digests, digest);
    builder_add_sized(rows, line, (size_t)(stop - line) - 2 * DIGEST_BYTES - 1);
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

/* A text that a reader would refuse to unpack, or entries of another form than an export writes. */
static Str stored_value(Context *context, const MetadataList *entries) {
  Builder text, value;
  builder_init(&text, context);
  builder_init(&value, context);
  for (size_t i = 0; i < entries->count; i++) {
    add_entry_text(&text, entries->items[i].key, entries->items[i].value, str_length(entries->items[i].value));
  }
  builder_format(&value, HEADING "%d %zu\n", STORED, text.length);
  builder_add_sized(&value, builder_text(&text), text.length);
  return str_intern_sized(context, builder_text(&value), value.length);
}

/* Rows that an empty one can end: is no row of it empty? */
static bool has_rows(Str value) {
  size_t length = str_length(value);
  return length && value[0] != '\n' && value[length - 1] != '\n' && !find_bytes(value, length, "\n\n", 2);
}

/* Each entry that is packed, in their order, and an empty line; then the table. False: they have another form. */
static bool entries_text(const MetadataList *entries, Builder *text, Builder *digests) {
  size_t next = 0;
  for (size_t i = 0; i < KEYS; i++) {
    const Metadata *entry = next < entries->count ? &entries->items[next] : NULL;
    if (entry && str_is(entry->key, keys[i])) {
      next++;
      if (!has_rows(entry->value)) return false;
      if (!str_is(entry->key, METADATA_SOURCES)) builder_add_sized(text, entry->value, str_length(entry->value));
      else if (!part_digests(entry->value, text, digests)) return false;
      builder_add(text, "\n");
    }
    builder_add(text, "\n");
  }
  if (next + 1 != entries->count || !str_is(entries->items[next].key, METADATA_TABLE)) return false;
  builder_add_sized(text, entries->items[next].value, str_length(entries->items[next].value));
  return true;
}

Str packed_entries(Context *context, const MetadataList *entries) {
  Builder text, packed, value, digests;
  builder_init(&text, context);
  builder_init(&packed, context);
  builder_init(&value, context);
  builder_init(&digests, context);
  if (!entries_text(entries, &text, &digests)) return stored_value(context, entries);
  pack_text(context, PACK_ENDED, &packed, builder_text(&text), text.length);
  if (!pack_is_moderate(text.length, packed.length)) return stored_value(context, entries);
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

/* Each row of the sources gets its digest back, behind `between`. */
static Str join_digests(const Unpacking *unpacking, Str sources, const char *between, const char *digits,
                        size_t count) {
  Builder rows;
  builder_init(&rows, unpacking->context);
  for (const char *line = sources, *end = line + str_length(sources);; line++) {
    const char *stop = line_end(line, end);
    if (!count--) fail_packed(unpacking);
    builder_add_sized(&rows, line, (size_t)(stop - line));
    builder_add(&rows, between);
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
  if (version == STORED) {
    if (length != size) fail_packed(unpacking);
    return;
  }
  if (!pack_is_moderate(length, size) && length > limit) {
    fail(unpacking->context, ERROR_FORMAT, "its packed provenance takes %zu MiB; allow more with --limit=%zuM",
         length >> 20, (length >> 20) + 1);
  }
  char *text = arena_alloc(&unpacking->context->arena, length + 1);
  PackVersion form = version >= ENDED ? PACK_ENDED : PACK_HEADED;
  if (!unpack_text(unpacking->context, form, unpacking->at, size, text, length)) fail_packed(unpacking);
  unpacking->at = text;
  unpacking->end = text + length;
}

/* Versions up to 2: an entry after the other. */
static void read_headed(Unpacking *unpacking, MetadataList *entries, const char *digests, size_t count) {
  while (unpacking->at < unpacking->end) {
    Metadata entry = read_packed(unpacking);
    if (count && str_is(entry.key, METADATA_SOURCES)) {
      entry.value = join_digests(unpacking, entry.value, "", digests, count);
      count = 0;
    }
    array_push(unpacking->context, entries, entry);
  }
  if (count) fail_packed(unpacking);
  if (!entries->count || !str_is(entries->items[entries->count - 1].key, METADATA_TABLE)) fail_packed(unpacking);
}

/* The rows up to an empty one, which is passed over; NULL: there are none. */
static Str read_rows(Unpacking *unpacking) {
  const char *start = unpacking->at;
  while (unpacking->at < unpacking->end && *unpacking->at != '\n') {
    unpacking->at = line_end(unpacking->at, unpacking->end);
    if (unpacking->at < unpacking->end) unpacking->at++;
  }
  if (unpacking->at == unpacking->end) fail_packed(unpacking);
  size_t length = (size_t)(unpacking->at++ - start);
  return length ? str_intern_sized(unpacking->context, start, length - 1) : NULL;
}

static void read_ended(Unpacking *unpacking, MetadataList *entries, const char *digests, size_t count) {
  Context *context = unpacking->context;
  for (size_t i = 0; i < KEYS; i++) {
    Metadata entry = {str_intern(context, keys[i]), read_rows(unpacking)};
    if (!entry.value) continue;
    if (str_is(entry.key, METADATA_SOURCES)) {
      entry.value = join_digests(unpacking, entry.value, "\t", digests, count);
      count = 0;
    }
    array_push(context, entries, entry);
  }
  if (count) fail_packed(unpacking);
  Str table = str_intern_sized(context, unpacking->at, (size_t)(unpacking->end - unpacking->at));
  array_push(context, entries, ((Metadata){str_intern(context, METADATA_TABLE), table}));
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
  if (version >= ENDED) read_ended(&unpacking, &entries, digests, count);
  else read_headed(&unpacking, &entries, digests, count);
  return entries;
}
