/* Elementwise primitives: rows where a row can say it, short functions where it can't. */
#include "lower/lower.h"

static void lower_unary(Lowering *l) {
  bind(l, 0, EMIT_ROW_AROUND(l, l->plugin->op, output_type(l, 0), input(l, 0)));
}

static void lower_binary(Lowering *l) {
  bind(l, 0, EMIT_ROW_AROUND(l, l->plugin->op, output_type(l, 0), input(l, 0), input(l, 1)));
}

const Plugin elementwise_plugins[] = {
    PLUGIN("sin", lower_unary, "Sin"),
    PLUGIN("mul", lower_binary, "Mul"),
    {0},
};
