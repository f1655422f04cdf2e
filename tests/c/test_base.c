/* Arena, strings, map, builder, spelling, errors. */
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/builder.h"
#include "base/sha256.h"
#include "base/spelling.h"
#include "test.h"

static void arena_memory_is_zeroed_and_aligned(void) {
  Context context;
  context_init(&context);
  for (size_t size = 0; size < 200000; size = size * 3 + 1) {
    unsigned char *bytes = arena_alloc(&context.arena, size);
    CHECK((uintptr_t)bytes % 16 == 0);
    for (size_t i = 0; i < size; i++) CHECK(bytes[i] == 0);
    memset(bytes, 0xFF, size);
  }
  CHECK_TEXT(arena_format(&context.arena, "%d %s", 7, "x"), "7 x");
  context_release(&context);
}

static void ask_too_much(void *argument) { arena_alloc_array(argument, SIZE_MAX / 2, 3); }
static void ask_once(void *argument) { arena_alloc(argument, 8); }

static void arena_failures_unwind(void) {
  Context context;
  context_init(&context);
  CHECK(!context_protect(&context, ask_too_much, &context.arena));
  CHECK(context.error == ERROR_MEMORY);
  context.arena.fail_after = 2;
  CHECK(context_protect(&context, ask_once, &context.arena));
  CHECK(!context_protect(&context, ask_once, &context.arena));
  CHECK(context_protect(&context, ask_once, &context.arena));
  context_release(&context);
}

typedef struct Nesting {
  Context *context;
  bool inner_failed;
} Nesting;

static void fail_inside(void *argument) { fail(argument, ERROR_VALUE, "inner %d", 1); }

static void fail_outside(void *argument) {
  Nesting *nesting = argument;
  nesting->inner_failed = !context_protect(nesting->context, fail_inside, nesting->context);
  fail(nesting->context, ERROR_FORMAT, "outer");
}

static void protected_calls_nest(void) {
  Context context;
  context_init(&context);
  Nesting nesting = {.context = &context};
  CHECK(!context_protect(&context, fail_outside, &nesting));
  CHECK(nesting.inner_failed);
  CHECK(context.error == ERROR_FORMAT);
  CHECK_TEXT(context.message, "outer");
  context_release(&context);
}

static void equal_strings_are_one_pointer(void) {
  Context context;
  context_init(&context);
  ARRAY(Str) known = {0};
  char name[32];
  for (int i = 0; i < 5000; i++) {
    snprintf(name, sizeof name, "name_%d", i);
    array_push(&context, &known, str_intern(&context, name));
  }
  for (int i = 0; i < 5000; i++) {
    snprintf(name, sizeof name, "name_%d", i);
    CHECK(str_intern(&context, name) == known.items[i]);
    CHECK(str_length(known.items[i]) == strlen(name));
  }
  CHECK(str_intern_sized(&context, "a\0b", 3) != str_intern(&context, "a"));
  CHECK(str_length(str_intern(&context, "")) == 0);
  CHECK(str_intern_sized(&context, NULL, 0) == str_intern(&context, ""));
  context_release(&context);
}

static void map_finds_what_was_stored(void) {
  Context context;
  context_init(&context);
  Map map = {0};
  CHECK(map_get(&map, 1, 2) == NULL);
  static char values[4000];
  for (uint64_t i = 0; i < 4000; i++) *map_slot(&context, &map, i * 64, i % 7) = &values[i];
  for (uint64_t i = 0; i < 4000; i++) {
    CHECK(map_get(&map, i * 64, i % 7) == &values[i]);
    CHECK(map_get(&map, i * 64, i % 7 + 8) == NULL);
  }
  CHECK(map.count == 4000);
  context_release(&context);
}

/* Every key shares its run of entries with others; a gap in it must not end their search. */
static void what_is_taken_out_hides_nothing(void) {
  Context context;
  context_init(&context);
  Map map = {0};
  static char values[1000];
  for (uint64_t i = 0; i < 1000; i++) *map_slot(&context, &map, i, 0) = &values[i];
  for (uint64_t i = 0; i < 1000; i += 3) map_remove(&map, i, 0);
  map_remove(&map, 0, 0);
  map_remove(&map, 5000, 0);
  CHECK(map.count == 1000 - 334);
  for (uint64_t i = 0; i < 1000; i++) CHECK(map_get(&map, i, 0) == (i % 3 ? &values[i] : NULL));
  for (uint64_t i = 0; i < 1000; i += 3) *map_slot(&context, &map, i, 0) = &values[i];
  CHECK(map.count == 1000);
  for (uint64_t i = 0; i < 1000; i++) CHECK(map_get(&map, i, 0) == &values[i]);
  Map none = {0};
  map_remove(&none, 1, 2);
  context_release(&context);
}

static void tables_serve_the_next_map_of_their_size(void) {
  Context context;
  context_init(&context);
  static char values[4000];
  Map map = {0}, next = {0}, small = {0};
  map_reserve(&context, &map, 4000);
  const MapEntry *table = map.entries;
  for (uint64_t i = 0; i < 4000; i++) *map_slot(&context, &map, i, 1) = &values[i];
  CHECK(map.entries == table);
  map_release(&context, &map);
  CHECK(map.count == 0 && map_get(&map, 1, 1) == NULL);
  *map_slot(&context, &small, 1, 1) = values;
  map_reserve(&context, &next, 4000);
  CHECK(next.entries == table && small.entries != table);
  for (uint64_t i = 0; i < 4000; i++) CHECK(map_get(&next, i, 1) == NULL);
  map_reserve(&context, &map, 4000);
  CHECK(map.entries != table);
  for (uint64_t i = 0; i < 4000; i++) *map_slot(&context, &next, i, 2) = &values[i];
  table = next.entries;
  *map_slot(&context, &next, 9999, 2) = values;
  for (uint64_t i = 0; next.entries == table; i++) *map_slot(&context, &next, i, 3) = values;
  for (uint64_t i = 0; i < 4000; i++) CHECK(map_get(&next, i, 2) == &values[i]); /* the one outgrown is nobody's */
  context_release(&context);
}

static void each_mark_is_set_once(void) {
  Context context;
  context_init(&context);
  Str one = str_intern(&context, "one"), two = str_intern(&context, "two");
  uint32_t first = next_mark(&context);
  CHECK(str_mark(one, first) && !str_mark(one, first) && str_mark(two, first));
  uint32_t second = next_mark(&context);
  CHECK(str_mark(one, second) && !str_mark(one, second));
  strings_reserve(&context, 300000); /* past a large page */
  CHECK(str_intern(&context, "one") == one && str_intern(&context, "three") != two);
  context_release(&context);
}

static void a_pool_gives_neighbours(void) {
  Context context;
  context_init(&context);
  Pool pool = {0};
  char *before = pool_alloc(&context.arena, &pool, 24);
  arena_alloc(&context.arena, 100);
  char *after = pool_alloc_array(&context.arena, &pool, 3, 11);
  CHECK(after == before + 24);
  for (int i = 0; i < 10000; i++) {
    char *next = pool_alloc(&context.arena, &pool, 72);
    for (int k = 0; k < 72; k++) CHECK(!next[k]);
    fill_bytes(next, 1, 72);
  }
  CHECK(*(char *)pool_alloc(&context.arena, &pool, 1 << 20) == 0);
  context_release(&context);
}

static void builder_writes_numbers(void) {
  Context context;
  context_init(&context);
  Builder out;
  builder_init(&out, &context);
  builder_add_number(&out, 0);
  builder_add(&out, " ");
  builder_add_number(&out, 1204);
  builder_add(&out, " ");
  builder_add_number(&out, UINT64_MAX);
  CHECK_TEXT(builder_text(&out), "0 1204 18446744073709551615");
  context_release(&context);
}

/* What does not fit leaves what is kept as it was. */
static void builder_keeps_what_is_below_its_limit(void) {
  Context context;
  context_init(&context);
  Builder out;
  builder_init(&out, &context);
  out.limit = 300;
  builder_add(&out, "kept");
  builder_format(&out, "%400d", 1);
  CHECK_TEXT(builder_text(&out), "kept");
  CHECK(!builder_is_whole(&out) && out.length == 404);
  context_release(&context);
}

static void builder_grows(void) {
  Context context;
  context_init(&context);
  Builder out;
  builder_init(&out, &context);
  CHECK_TEXT(builder_text(&out), "");
  for (int i = 0; i < 2000; i++) builder_format(&out, "%d,", i % 10);
  CHECK(out.length == 4000);
  CHECK(strlen(builder_text(&out)) == 4000);
  context_release(&context);
}

typedef struct SpellingCase {
  Spelling spelling;
  const char *text;
  const char *expected;
} SpellingCase;

static void texts_are_spelled_safely(void) {
  static const SpellingCase cases[] = {
      {SPELL_JSON, "a\"b\\\n\x01", "\"a\\\"b\\\\\\n\\u0001\""},
      {SPELL_JSON, "\xC3\xA9\xFF", "\"\xC3\xA9\xEF\xBF\xBD\""},
      {SPELL_JSON, "\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
      {SPELL_PROGRAM, "\t\x1b\xFF\"", "\"\\t\\x1b\\xff\\\"\""},
      {SPELL_ONNX, "a\n\"", "\"a\n\\\"\""},
      {SPELL_ONNX, "a\x1b[31m\xE2\x80\xAE", "\"a\\\\x1b[31m\\\\u202e\""},
      {SPELL_JSON, "\xE2\x80\xAE\xC2\x85\x7F", "\"\\u202e\\u0085\\u007f\""},
      {SPELL_TERMINAL, "\x1b[31m\xC2\x9B\x7F\r\n\t", "\\x1b[31m\\u009b\\x7f\\x0d\\x0a\\x09"},
      {SPELL_TERMINAL, "\xFF\xC2\xE9\"\\ \xC3\xA9", "\\xff\\xc2\\xe9\"\\ \xC3\xA9"},
  };
  Context context;
  context_init(&context);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Builder out;
    builder_init(&out, &context);
    spell_text(&out, cases[i].spelling, cases[i].text, strlen(cases[i].text));
    CHECK_TEXT(builder_text(&out), cases[i].expected);
  }
  context_release(&context);
}

static bool turns_or_breaks(uint32_t code) {
  static const uint32_t ranges[][2] = {{0, 0x1F},        {0x7F, 0x9F},     {0x61C, 0x61C},
                                       {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x2069}};
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
    if (code >= ranges[i][0] && code <= ranges[i][1]) return true;
  }
  return false;
}

static size_t encode(uint32_t code, char *bytes) {
  size_t count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const unsigned char heads[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (size_t i = count; i-- > 1; code >>= 6) bytes[i] = (char)(0x80 | (code & 0x3F));
  bytes[0] = (char)(heads[count] | code);
  return count;
}

/* Of every character there is: what a terminal obeys is spelled in letters, everything else is itself. */
static void a_terminal_is_shown_letters_only(void) {
  for (uint32_t code = 0; code < 0x110000; code++) {
    if (code >= 0xD800 && code < 0xE000) continue;
    char bytes[5] = "", spelled[SPELLED_STEP];
    size_t count = encode(code, bytes);
    CHECK(spell_step(bytes, count, spelled) == count);
    bool itself = strlen(spelled) == count && memcmp(spelled, bytes, count) == 0;
    CHECK(turns_or_breaks(code) ? spelled[0] == '\\' && strspn(spelled, "\\xu0123456789abcdef") == strlen(spelled)
                                : itself);
  }
}

static void numbers_read_back_as_themselves(void) {
  static const double values[] = {0.0, -0.0, 1, 2.5, 0.1, 1e30, 5e-324, 1.7976931348623157e308, 1.0 / 3, 123456789};
  Context context;
  context_init(&context);
  Builder out;
  builder_init(&out, &context);
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    out.length = 0;
    spell_double(&out, values[i]);
    CHECK(strtod(out.text, NULL) == values[i]);
    CHECK(strpbrk(out.text, ".e") != NULL);
    float narrow = (float)values[i];
    out.length = 0;
    spell_float(&out, narrow);
    CHECK(strtof(out.text, NULL) == narrow);
  }
  out.length = 0;
  spell_double(&out, -INFINITY);
  CHECK_TEXT(out.text, "-inf");
  context_release(&context);
}

/* The examples of FIPS 180-4, and one that ends beside the length's place. */
static void digests_are_sha256(void) {
  static const char *const cases[][2] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Sha256 hash;
    char text[SHA256_TEXT];
    sha256_init(&hash);
    for (const char *c = cases[i][0]; *c; c++) sha256_add(&hash, c, 1);
    sha256_text(&hash, text);
    CHECK_TEXT(text, cases[i][1]);
  }
}

static void parts_of_texts_are_found(void) {
  const char *text = "one.two.two";
  CHECK(find_bytes(text, 11, "two", 3) == text + 4);
  CHECK(find_bytes(text, 6, "two", 3) == NULL);
  CHECK(find_bytes(text, 11, "", 0) == text);
  CHECK(find_bytes("a\0b", 3, "\0b", 2) != NULL);
  CHECK(find_last(text, 11, '.') == text + 7);
  CHECK(find_last(text, 7, '.') == text + 3);
  CHECK(find_last(text, 3, '.') == NULL);
  CHECK(find_in_any_case("Block_0/MatMul", "matmul") != NULL);
  CHECK(find_in_any_case("Mat", "matmul") == NULL);
}

const Test base_tests[] = {
    {"arena_memory_is_zeroed_and_aligned", arena_memory_is_zeroed_and_aligned},
    {"arena_failures_unwind", arena_failures_unwind},
    {"protected_calls_nest", protected_calls_nest},
    {"equal_strings_are_one_pointer", equal_strings_are_one_pointer},
    {"map_finds_what_was_stored", map_finds_what_was_stored},
    {"what_is_taken_out_hides_nothing", what_is_taken_out_hides_nothing},
    {"tables_serve_the_next_map_of_their_size", tables_serve_the_next_map_of_their_size},
    {"each_mark_is_set_once", each_mark_is_set_once},
    {"a_pool_gives_neighbours", a_pool_gives_neighbours},
    {"builder_writes_numbers", builder_writes_numbers},
    {"builder_keeps_what_is_below_its_limit", builder_keeps_what_is_below_its_limit},
    {"builder_grows", builder_grows},
    {"texts_are_spelled_safely", texts_are_spelled_safely},
    {"a_terminal_is_shown_letters_only", a_terminal_is_shown_letters_only},
    {"numbers_read_back_as_themselves", numbers_read_back_as_themselves},
    {"digests_are_sha256", digests_are_sha256},
    {"parts_of_texts_are_found", parts_of_texts_are_found},
    {0},
};
