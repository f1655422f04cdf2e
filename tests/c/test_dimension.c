/* Dimension arithmetic, printing and parsing. */
#include "test.h"
#include "types/dimension.h"

static Dim parse(Context *context, const char *text) {
  Dim dim = dim_of(-999);
  CHECK(dim_parse(context, text, strlen(text), &dim));
  return dim;
}

static void expressions_have_one_spelling(void) {
  static const char *const cases[][2] = {
      {"3", "3"},
      {"B", "B"},
      {"B + B", "2*B"},
      {"B - B", "0"},
      {"2*B - 1 + T", "2*B + T - 1"},
      {"T*B", "B*T"},
      {"B*B", "B^2"},
      {"-B + 1", "-B + 1"},
      {"floordiv(T, 2)", "floordiv(T, 2)"},
      {"floordiv(7, 2)", "3"},
      {"mod(-7, 4)", "1"},
      {"floordiv(-7, 2)", "-4"},
      {"floordiv(B, 1)", "B"},
      {"max(B, min(3, T))", "max(B, min(3, T))"},
      {"2*floordiv(B + 1, 2) + 3", "2*floordiv(B + 1, 2) + 3"},
  };
  Context context;
  context_init(&context);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Dim dim = parse(&context, cases[i][0]);
    const char *text = dim_text(&context, dim);
    CHECK_TEXT(text, cases[i][1]);
    CHECK(dim_equal(parse(&context, text), dim));
  }
  context_release(&context);
}

static void arithmetic_is_interned(void) {
  Context context;
  context_init(&context);
  Dim b = dim_symbol(&context, str_intern(&context, "B"));
  Dim twice = dim_add(&context, b, b);
  CHECK(dim_equal(twice, dim_multiply(&context, dim_of(2), b)));
  CHECK(dim_is(dim_subtract(&context, twice, twice), 0));
  CHECK(dim_equal(dim_subtract(&context, twice, b), b));
  CHECK(dim_is(dim_add(&context, dim_of(2), dim_of(3)), 5));
  context_release(&context);
}

static void texts_that_are_no_dimension_are_refused(void) {
  static const char *const cases[] = {
      "", "+", "B +", "floordiv(B)", "floordiv(B, 0)", "foo(B, 1)", "B^0", "B^99", "99999999999999999999", "B)", "B C"};
  Context context;
  context_init(&context);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Dim dim;
    CHECK(!dim_parse(&context, cases[i], strlen(cases[i]), &dim));
  }
  char deep[4000];
  memset(deep, '(', sizeof deep);
  for (size_t i = 0; i + 4 < sizeof deep; i += 4) memcpy(deep + i, "max(", 4);
  Dim dim;
  CHECK(!dim_parse(&context, deep, sizeof deep, &dim));
  context_release(&context);
}

typedef struct Overflow {
  Context context;
  const char *text;
} Overflow;

static void parse_overflow(void *argument) {
  Overflow *overflow = argument;
  Dim dim;
  dim_parse(&overflow->context, overflow->text, strlen(overflow->text), &dim);
}

static void overflow_is_an_error(void) {
  static const char *const cases[] = {"4000000000000000000*4*B", "9000000000000000000 + 9000000000000000000",
                                      "9000000000000000000*B + 9000000000000000000*B",
                                      "floordiv(-9223372036854775799 - 9, -1)"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Overflow overflow = {.text = cases[i]};
    context_init(&overflow.context);
    CHECK(!context_protect(&overflow.context, parse_overflow, &overflow));
    CHECK(overflow.context.error == ERROR_VALUE);
    context_release(&overflow.context);
  }
}

const Test dimension_tests[] = {
    {"expressions_have_one_spelling", expressions_have_one_spelling},
    {"arithmetic_is_interned", arithmetic_is_interned},
    {"texts_that_are_no_dimension_are_refused", texts_that_are_no_dimension_are_refused},
    {"overflow_is_an_error", overflow_is_an_error},
    {0},
};
