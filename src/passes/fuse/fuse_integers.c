/* Integers: a remainder with the sign of the divisor, which JAX makes from one with the sign of the dividend. */
#include "passes/pattern.h"

enum { X, DIVISOR, REMAINDER };

#define SIGNED OP_AT(REMAINDER, Mod, ANY(X), UNIFORM(DIVISOR))
#define IS_NEGATIVE OP(Less, ANY(REMAINDER), NUMBER(0))
#define IS_NOT_ZERO OP(Not, OP(Equal, ANY(REMAINDER), NUMBER(0)))

/* Of a positive divisor: r + d where r < 0, else r. */
static bool fuse_remainder(Match *match) {
  const Value *remainder = match->values[REMAINDER];
  if (!dtype_is_integer(match_dtype(match)) || !node_int_or(remainder->producer, "fmod", 0)) return false;
  if (!match_keeps_type(match) || !(match_number(match, DIVISOR) > 0)) return false;
  return EMIT_MATCH(match, OP_Mod, match->values[X], match->values[DIVISOR]);
}

static const FusionRule rules[] = {
    {OP(Where, OP(And, IS_NEGATIVE, IS_NOT_ZERO), OP(Add, SIGNED, UNIFORM(DIVISOR)), ANY(REMAINDER)), OP_Mod,
     fuse_remainder},
};

bool fuse_integers(Model *model) { return fuse_patterns(model, __func__, rules, sizeof rules / sizeof *rules); }
