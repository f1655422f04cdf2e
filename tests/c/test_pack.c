/* Packing: what is packed comes back, in the same characters for ever; damage is told. */
#include "onnx/file/metadata_keys.h"
#include "onnx/file/packed_entries.h"
#include "provenance/pack.h"
#include "provenance/table.h"
#include "test.h"

static const char table[] =
    "files 1\n0 /home/me/model.py\nnames 2\nBlock.__call__\nSinPlugin.lower\nframes 4\n1 5 2\n"
    "1 1205 1\n1 1206 1\n1 99999999999999999999 1\ninner 1\n1 2 3 4\norigins 2\n1 s2-9\n=1 m2\n";
static const char strange[] = "\0\377\200\n\n7\n 8\n\xC3\xA9\n12345678901234567890\nabc 0\n";

static bool comes_back_in(Context *context, PackVersion version, const char *text, size_t length) {
  Builder packed;
  builder_init(&packed, context);
  pack_text(context, version, &packed, text, length);
  for (size_t i = 0; i < packed.length; i++) CHECK(packed.text[i] >= '!' && packed.text[i] <= '~');
  char *again = arena_alloc(&context->arena, length + 1);
  bool is_whole = unpack_text(context, version, builder_text(&packed), packed.length, again, length);
  return is_whole && memcmp(again, text, length) == 0;
}

static bool comes_back(Context *context, const char *text, size_t length) {
  return comes_back_in(context, PACK_HEADED, text, length) && comes_back_in(context, PACK_ENDED, text, length);
}

static void check_texts(void *argument) {
  Context *context = argument;
  CHECK(comes_back(context, "", 0));
  CHECK(comes_back(context, "x", 1));
  CHECK(comes_back(context, table, sizeof table - 1));
  CHECK(comes_back(context, strange, sizeof strange));
  enum { LONG = 20000 };
  char *same = arena_alloc(&context->arena, LONG), *noise = arena_alloc(&context->arena, LONG);
  uint32_t seed = 1;
  for (size_t i = 0; i < LONG; i++) {
    same[i] = "+1\n"[i % 3];
    seed = seed * 1664525 + 1013904223;
    noise[i] = (char)(seed >> 24);
  }
  CHECK(comes_back(context, same, LONG));
  CHECK(comes_back(context, noise, LONG));
}

static void packed_texts_come_back(void) {
  Context context;
  context_init(&context);
  CHECK(context_protect(&context, check_texts, &context));
  context_release(&context);
}

/* Models are out there with what these versions pack: when this fails, a change needs a version of its own. */
static const char pinned_2[] =
    "#c-(fWRw1gC/O;Q17SaEl+nbm@.byC]AZ9}-z9!.BW&HnRr-Wdsog2Pyu$6hx:\"8tA%7\\&irQ<H[p#<Vy(.NKq";
static const char pinned[] = "!E%<`JxukPyfNQrU,yYqNQsyZ6r^.OUr6N+_d%~@}iuGa\".WC&%e!)_]n)@VN";

static void check_pinned(void *argument) {
  Context *context = argument;
  Builder packed, packed_2;
  builder_init(&packed, context);
  builder_init(&packed_2, context);
  pack_text(context, PACK_HEADED, &packed, table, sizeof table - 1);
  CHECK_TEXT(builder_text(&packed), pinned);
  pack_text(context, PACK_ENDED, &packed_2, table, sizeof table - 1);
  CHECK_TEXT(builder_text(&packed_2), pinned_2);
}

static void the_format_stays(void) {
  Context context;
  context_init(&context);
  CHECK(context_protect(&context, check_pinned, &context));
  context_release(&context);
}

/* ---- entries ---- */

static const char short_table[] = TABLE_HEADING
    "/v/site-packages/\nm.py\n\nf\n\n1-7\nmain\t3 /home/me/export.py\n17 153\n\n1-7\n1-4 6\n\n8 0\n9 1\n\n1 3 1 "
    "0\n+1*2\n\n"
    "1 1\n2 2\n\n1 s2-9\n2 1 s2-12 +1,2\n1 3 s4-6\n\n";

typedef struct Damaged {
  Context context;
  const char *text;
  size_t length;
} Damaged;

static void unpack_damaged(void *argument) {
  Damaged *damaged = argument;
  MetadataList entries = unpacked_entries(&damaged->context, damaged->text, damaged->length, 0);
  Str last = entries.items[entries.count - 1].value;
  if (str_length(last)) table_read(&damaged->context, last, str_length(last), 0);
}

static ErrorKind error_of(const char *text, size_t length) {
  Damaged damaged = {.text = text, .length = length};
  context_init(&damaged.context);
  context_protect(&damaged.context, unpack_damaged, &damaged);
  ErrorKind kind = damaged.context.error;
  context_release(&damaged.context);
  return kind;
}

#define DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define GREATEST "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"

/* Digests, which are put apart, and rows of any other form, which are not. */
static const char *const sources[] = {
    "",
    "m.py\t" DIGEST,
    "m.py\t" DIGEST "\nn o.py\t" GREATEST "\n\t" DIGEST,
    "m.py\t" DIGEST "\n",
    "m.py\t" DIGEST "\nn.py\t",
    "m.py " DIGEST,
    "m.py\t0" DIGEST,
    DIGEST,
};
enum { SOURCES = sizeof sources / sizeof *sources };

typedef struct EntriesCase {
  Context context;
  const char *sources;
} EntriesCase;

static void check_entries(void *argument) {
  EntriesCase *given = argument;
  Context *context = &given->context;
  MetadataList entries = {0};
  static const char *const keys[] = {METADATA_MODULES, METADATA_SOURCES, METADATA_TABLE};
  const char *const values[] = {"\tModel\nhead\tLinear", given->sources, short_table};
  for (size_t i = 0; i < 3; i++) {
    array_push(context, &entries, ((Metadata){str_intern(context, keys[i]), str_intern(context, values[i])}));
  }
  Str value = packed_entries(context, &entries);
  MetadataList found = unpacked_entries(context, value, str_length(value), 0);
  CHECK(found.count == 3);
  for (size_t i = 0; i < found.count; i++) {
    CHECK(found.items[i].key == entries.items[i].key && found.items[i].value == entries.items[i].value);
  }
  size_t length = str_length(value);
  char *copy = arena_copy(&context->arena, value, length + 1);
  for (size_t at = 0; at < length; at += 7) {
    /* Without its last characters it may be another text, which the reader of the table may not refuse. */
    CHECK(at < 11 || at + 12 > length || error_of(copy, at) == ERROR_FORMAT);
    for (const char *other = "~!\n"; *other; other++) {
      copy[at] = *other;
      ErrorKind kind = error_of(copy, length);
      CHECK(kind == ERROR_NONE || kind == ERROR_FORMAT);
      copy[at] = value[at];
    }
  }
}

static void entries_come_back_and_damage_is_told(void) {
  for (size_t i = 0; i < SOURCES; i++) {
    EntriesCase given = {.sources = sources[i]};
    context_init(&given.context);
    CHECK(context_protect(&given.context, check_entries, &given));
    context_release(&given.context);
  }
  static const char *const wrong[] = {
      "j2o packed 2 4\n!!!!",
      "j2o packed 2 4 1\n!!!!",
      "j2o packed 2 4 999999999999\n!!!!",
      "j2o packed 3 4\n!!!!",
      "j2o packed 3 4 1\n!!!!",
      "j2o packed 4 4 0\n!!!!",
      "j2o packed 1 4\n",
      "j2o packed 1 99999999999\n!!",
      "j2o packed 1\n",
      "j2o packed 0 3\nab",
      "j2o packed 0 8\nx 9999\na",
      "j2o packed 0 9\nmodules 0",
      "j2o packed 0 11\nmodules 0\n\n",
      "j2o packed 0 13\nprovenance 0",
      "j2o packed 0 11\nsource:a 0\n\n",
      "j2o packed 1 9999999999999\n!",
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) CHECK(error_of(wrong[i], strlen(wrong[i])) == ERROR_FORMAT);
  static const char stored[] = "j2o packed 0 14\nprovenance 0\n\n";
  CHECK(error_of(stored, sizeof stored - 1) == ERROR_NONE);
}

/* What fits in no digest, and what is no digit. */
static void digests_are_checked(void) {
  unsigned char digest[DIGEST_BYTES];
  char digits[DIGEST_DIGITS];
  memset(digits, '~', sizeof digits);
  CHECK(!unpack_digest(digits, digest));
  memset(digits, '!', sizeof digits);
  CHECK(unpack_digest(digits, digest) && !digest[0] && !digest[DIGEST_BYTES - 1]);
  digits[DIGEST_DIGITS - 1] = ' ';
  CHECK(!unpack_digest(digits, digest));
}

static void numbers_are_written_in_one_way(void) {
  Context context;
  context_init(&context);
  for (uint64_t number = 1; number < 1000000; number = number * 3 + 1) {
    Builder text;
    builder_init(&text, &context);
    pack_number(&text, number);
    CHECK(unpack_number(text.text, text.length) == number);
  }
  static const char *const wrong[] = {"", "!", "!1", " ", "1 ", "123456", "\x7f"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) CHECK(unpack_number(wrong[i], strlen(wrong[i])) == 0);
  CHECK(pack_is_moderate(1 << 18, 0) && !pack_is_moderate((1 << 18) + 64, 0) && pack_is_moderate(1 << 20, 16384));
  context_release(&context);
}

const Test pack_tests[] = {
    {"packed_texts_come_back", packed_texts_come_back},
    {"the_format_stays", the_format_stays},
    {"entries_come_back_and_damage_is_told", entries_come_back_and_damage_is_told},
    {"numbers_are_written_in_one_way", numbers_are_written_in_one_way},
    {"digests_are_checked", digests_are_checked},
    {0},
};
