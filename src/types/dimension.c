/* Dimension expressions. */
#include "types/dimension.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/builder.h"
#include "base/bytes.h"

static const char *op_name(DimOp op) {
  static const char *const names[] = {"", "floordiv", "mod", "max", "min"};
  return names[op];
}

static void print_factor(Builder *out, const DimFactor *factor) {
  Context *context = out->context;
  if (factor->op == DIM_SYMBOL) {
    builder_add_sized(out, factor->symbol, str_length(factor->symbol));
  } else {
    builder_format(out, "%s(%s, %s)", op_name(factor->op), dim_text(context, factor->left),
                   dim_text(context, factor->right));
  }
  if (factor->power != 1) builder_format(out, "^%" PRId64, factor->power);
}

static Str terms_text(Context *context, const DimTerm *terms, size_t count) {
  Builder out;
  builder_init(&out, context);
  for (size_t i = 0; i < count; i++) {
    int64_t coefficient = terms[i].coefficient;
    if (i > 0) builder_add(&out, coefficient < 0 ? " - " : " + ");
    else if (coefficient < 0) builder_add(&out, "-");
    uint64_t magnitude = coefficient < 0 ? 0 - (uint64_t)coefficient : (uint64_t)coefficient;
    if (magnitude != 1 || terms[i].factor_count == 0) {
      builder_format(&out, "%" PRIu64, magnitude);
      if (terms[i].factor_count) builder_add(&out, "*");
    }
    for (size_t f = 0; f < terms[i].factor_count; f++) {
      if (f) builder_add(&out, "*");
      print_factor(&out, &terms[i].factors[f]);
    }
  }
  return str_intern_sized(context, builder_text(&out), out.length);
}

static const char *factor_key(Context *context, const DimFactor *factor) {
  Builder out;
  builder_init(&out, context);
  print_factor(&out, factor);
  return builder_text(&out);
}

static const char *term_key(Context *context, const DimTerm *term) {
  DimTerm unit = *term;
  unit.coefficient = 1;
  return unit.factor_count ? terms_text(context, &unit, 1) : "";
}

static int64_t checked_add(Context *context, int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) fail(context, ERROR_VALUE, "a dimension is beyond 64 bits");
  return sum;
}

static int64_t checked_multiply(Context *context, int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) fail(context, ERROR_VALUE, "a dimension is beyond 64 bits");
  return product;
}

/* Merges terms with equal factors, keeps the order of first appearance, constant term last. */
Dim dim_from_terms(Context *context, const DimTerm *terms, size_t count) {
  DimTerm *merged = arena_new_array(&context->arena, count ? count : 1, DimTerm);
  const char **keys = arena_new_array(&context->arena, count ? count : 1, const char *);
  size_t used = 0;
  int64_t constant = 0;
  for (size_t i = 0; i < count; i++) {
    if (terms[i].factor_count == 0) {
      constant = checked_add(context, constant, terms[i].coefficient);
      continue;
    }
    const char *key = term_key(context, &terms[i]);
    size_t at = 0;
    while (at < used && strcmp(keys[at], key) != 0) at++;
    if (at == used) {
      merged[used] = terms[i];
      keys[used++] = key;
    } else {
      merged[at].coefficient = checked_add(context, merged[at].coefficient, terms[i].coefficient);
    }
  }
  size_t kept = 0;
  for (size_t i = 0; i < used; i++) {
    if (merged[i].coefficient != 0) merged[kept++] = merged[i];
  }
  if (kept == 0) return dim_of(constant);
  if (constant != 0) merged[kept++] = (DimTerm){.coefficient = constant};
  DimExpr *expr = arena_new(&context->arena, DimExpr);
  expr->text = terms_text(context, merged, kept);
  expr->term_count = kept;
  expr->terms = merged;
  void **slot = map_slot_pointer(context, &context->dimensions, expr->text);
  if (!*slot) *slot = expr;
  return (Dim){.expr = *slot};
}

Dim dim_symbol(Context *context, Str name) {
  DimFactor *factor = arena_new(&context->arena, DimFactor);
  *factor = (DimFactor){.op = DIM_SYMBOL, .symbol = name, .power = 1};
  DimTerm term = {.coefficient = 1, .factor_count = 1, .factors = factor};
  return dim_from_terms(context, &term, 1);
}

static int64_t floor_divide(int64_t a, int64_t b) { return a / b - ((a % b != 0) && ((a < 0) != (b < 0))); }

Dim dim_binary(Context *context, DimOp op, Dim left, Dim right) {
  if (dim_is_constant(left) && dim_is_constant(right)) {
    int64_t a = left.constant, b = right.constant;
    switch (op) {
      case DIM_MAX: return dim_of(a > b ? a : b);
      case DIM_MIN: return dim_of(a < b ? a : b);
      case DIM_FLOORDIV:
      case DIM_MOD:
        if (b == 0) fail(context, ERROR_VALUE, "a dimension is divided by zero: %" PRId64, a);
        if (b == -1) return dim_of(op == DIM_FLOORDIV ? checked_multiply(context, a, b) : 0);
        return dim_of(op == DIM_FLOORDIV ? floor_divide(a, b) : a - b * floor_divide(a, b));
      case DIM_SYMBOL: break;
    }
  }
  if (op == DIM_FLOORDIV && dim_is(right, 1)) return left;
  DimFactor *factor = arena_new(&context->arena, DimFactor);
  *factor = (DimFactor){.op = op, .left = left, .right = right, .power = 1};
  DimTerm term = {.coefficient = 1, .factor_count = 1, .factors = factor};
  return dim_from_terms(context, &term, 1);
}

typedef struct TermList {
  const DimTerm *items;
  size_t count;
} TermList;

static TermList terms_of(Context *context, Dim dim) {
  if (dim.expr) return (TermList){dim.expr->terms, dim.expr->term_count};
  DimTerm *term = arena_new(&context->arena, DimTerm);
  term->coefficient = dim.constant;
  return (TermList){term, 1};
}

Dim dim_add(Context *context, Dim a, Dim b) {
  TermList left = terms_of(context, a), right = terms_of(context, b);
  DimTerm *sum = arena_new_array(&context->arena, left.count + right.count, DimTerm);
  copy_bytes(sum, left.items, left.count * sizeof *sum);
  copy_bytes(sum + left.count, right.items, right.count * sizeof *sum);
  return dim_from_terms(context, sum, left.count + right.count);
}

Dim dim_subtract(Context *context, Dim a, Dim b) { return dim_add(context, a, dim_multiply(context, b, dim_of(-1))); }

void dim_sort_factors(Context *context, DimFactor *factors, size_t count) {
  for (size_t i = 1; i < count; i++) {
    DimFactor moving = factors[i];
    size_t at = i;
    const char *key = factor_key(context, &moving);
    for (; at > 0 && strcmp(factor_key(context, &factors[at - 1]), key) > 0; at--) factors[at] = factors[at - 1];
    factors[at] = moving;
  }
}

static DimTerm multiply_terms(Context *context, const DimTerm *a, const DimTerm *b) {
  DimFactor *factors = arena_new_array(&context->arena, a->factor_count + b->factor_count, DimFactor);
  size_t count = 0;
  const DimTerm *parts[] = {a, b};
  for (int p = 0; p < 2; p++) {
    for (size_t i = 0; i < parts[p]->factor_count; i++) {
      DimFactor base = parts[p]->factors[i];
      int64_t power = base.power;
      base.power = 1;
      const char *key = factor_key(context, &base);
      size_t at = 0;
      for (; at < count; at++) {
        DimFactor known = factors[at];
        known.power = 1;
        if (strcmp(factor_key(context, &known), key) == 0) break;
      }
      if (at == count) {
        factors[count] = base;
        factors[count++].power = power;
      } else {
        factors[at].power += power;
      }
    }
  }
  dim_sort_factors(context, factors, count);
  return (DimTerm){checked_multiply(context, a->coefficient, b->coefficient), count, factors};
}

Dim dim_multiply(Context *context, Dim a, Dim b) {
  TermList left = terms_of(context, a), right = terms_of(context, b);
  DimTerm *product = arena_new_array(&context->arena, left.count * right.count, DimTerm);
  size_t count = 0;
  for (size_t i = 0; i < left.count; i++) {
    for (size_t j = 0; j < right.count; j++) {
      product[count++] = multiply_terms(context, &left.items[i], &right.items[j]);
    }
  }
  return dim_from_terms(context, product, count);
}

Str dim_text(Context *context, Dim dim) {
  if (dim.expr) return dim.expr->text;
  char text[24];
  int length = snprintf(text, sizeof text, "%" PRId64, dim.constant);
  return str_intern_sized(context, text, (size_t)length);
}

/* A recursive-descent reader of what dim_text prints. */
typedef struct Parser {
  Context *context;
  const char *at, *end;
  int depth;
  bool ok;
} Parser;

static Dim parse_sum(Parser *parser);

static void skip_space(Parser *parser) {
  while (parser->at < parser->end && *parser->at == ' ') parser->at++;
}

static bool accept(Parser *parser, char c) {
  skip_space(parser);
  if (parser->at >= parser->end || *parser->at != c) return false;
  parser->at++;
  return true;
}

static int64_t parse_number(Parser *parser) {
  int64_t number = 0;
  while (parser->at < parser->end && isdigit((unsigned char)*parser->at)) {
    if (number > (INT64_MAX - 9) / 10) parser->ok = false;
    else number = number * 10 + (*parser->at - '0');
    parser->at++;
  }
  return number;
}

static Dim parse_call(Parser *parser, const char *name, size_t length) {
  for (DimOp op = DIM_FLOORDIV; op <= DIM_MIN; op++) {
    if (strlen(op_name(op)) != length || !same_bytes(op_name(op), name, length)) continue;
    Dim left = parse_sum(parser);
    if (!accept(parser, ',')) parser->ok = false;
    Dim right = parse_sum(parser);
    if (!accept(parser, ')')) parser->ok = false;
    if (parser->ok && (op == DIM_FLOORDIV || op == DIM_MOD) && dim_is(right, 0)) parser->ok = false;
    return parser->ok ? dim_binary(parser->context, op, left, right) : dim_of(0);
  }
  parser->ok = false;
  return dim_of(0);
}

static Dim parse_primary(Parser *parser) {
  skip_space(parser);
  if (parser->at >= parser->end || ++parser->depth > 64) {
    parser->ok = false;
    return dim_of(0);
  }
  Dim dim = dim_of(0);
  if (isdigit((unsigned char)*parser->at)) {
    dim = dim_of(parse_number(parser));
  } else if (isalpha((unsigned char)*parser->at) || *parser->at == '_') {
    const char *name = parser->at;
    while (parser->at < parser->end && (isalnum((unsigned char)*parser->at) || *parser->at == '_')) parser->at++;
    size_t length = (size_t)(parser->at - name);
    if (accept(parser, '(')) dim = parse_call(parser, name, length);
    else dim = dim_symbol(parser->context, str_intern_sized(parser->context, name, length));
  } else {
    parser->ok = false;
  }
  if (parser->ok && accept(parser, '^')) {
    skip_space(parser);
    int64_t power = parse_number(parser);
    if (power < 1 || power > 16) parser->ok = false;
    Dim base = dim;
    for (int64_t i = 1; parser->ok && i < power; i++) dim = dim_multiply(parser->context, dim, base);
  }
  parser->depth--;
  return dim;
}

static Dim parse_product(Parser *parser) {
  Dim dim = parse_primary(parser);
  while (parser->ok && accept(parser, '*')) dim = dim_multiply(parser->context, dim, parse_primary(parser));
  return dim;
}

static Dim parse_sum(Parser *parser) {
  bool negative = accept(parser, '-');
  Dim dim = parse_product(parser);
  if (negative && parser->ok) dim = dim_multiply(parser->context, dim, dim_of(-1));
  for (;;) {
    if (!parser->ok) return dim;
    if (accept(parser, '+')) dim = dim_add(parser->context, dim, parse_product(parser));
    else if (accept(parser, '-')) dim = dim_subtract(parser->context, dim, parse_product(parser));
    else return dim;
  }
}

bool dim_parse(Context *context, const char *text, size_t length, Dim *dim) {
  Parser parser = {.context = context, .at = text, .end = text + length, .ok = true};
  *dim = parse_sum(&parser);
  skip_space(&parser);
  return parser.ok && parser.at == parser.end;
}
