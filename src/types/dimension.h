/* Dimensions: a constant, or an expression over symbols ("B", "3*B", "floordiv(T, 2)").
 *
 * An expression is a sum of terms, each a coefficient times a product of factors; a factor is a symbol or an
 * operation on two dimensions. Expressions are interned by their text: equal text is one pointer.
 */
#ifndef J2O_TYPES_DIMENSION_H
#define J2O_TYPES_DIMENSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/context.h"

typedef struct DimExpr DimExpr;

typedef struct Dim {
  int64_t constant;    /* the value when expr is NULL */
  const DimExpr *expr; /* NULL for a constant */
} Dim;

typedef enum DimOp { DIM_SYMBOL, DIM_FLOORDIV, DIM_MOD, DIM_MAX, DIM_MIN } DimOp;

typedef struct DimFactor {
  DimOp op;
  Str symbol;      /* of a DIM_SYMBOL */
  Dim left, right; /* of the others */
  int64_t power;   /* >= 1 */
} DimFactor;

typedef struct DimTerm {
  int64_t coefficient;
  size_t factor_count; /* 0: the term is the coefficient alone */
  const DimFactor *factors;
} DimTerm;

struct DimExpr {
  Str text; /* canonical, also the dimension's name in the model */
  size_t term_count;
  const DimTerm *terms;
};

static inline Dim dim_of(int64_t value) { return (Dim){.constant = value}; }
static inline bool dim_is_constant(Dim dim) { return dim.expr == NULL; }
static inline bool dim_equal(Dim a, Dim b) { return a.expr == b.expr && (a.expr || a.constant == b.constant); }
static inline bool dim_is(Dim dim, int64_t value) { return !dim.expr && dim.constant == value; }

Dim dim_symbol(Context *context, Str name);
/* Interns a sum of terms; merges nothing but drops to a constant where there is no symbol left. */
/* Factors in one order, so that B*T and T*B are one expression: those of every term are so. */
void dim_sort_factors(Context *context, DimFactor *factors, size_t count);
Dim dim_from_terms(Context *context, const DimTerm *terms, size_t count);
Dim dim_binary(Context *context, DimOp op, Dim left, Dim right);
Dim dim_add(Context *context, Dim a, Dim b);
Dim dim_subtract(Context *context, Dim a, Dim b);
Dim dim_multiply(Context *context, Dim a, Dim b);
Str dim_text(Context *context, Dim dim); /* "3*B - 1" */
/* Parses what dim_text prints; false when the text is not a dimension. */
bool dim_parse(Context *context, const char *text, size_t length, Dim *dim);

#endif
