/* Quotients that are rounded afterwards, computed as XLA computes them.
 *
 * XLA divides by a constant, or by a number that several elements share, by multiplying with its reciprocal. The last
 * place of the quotient differs from that of a division, which is no matter, unless the quotient is rounded to a whole
 * number next: the largest number of a row divided by a 127.5th of itself is a tie, and either way is one step off the
 * other. So here the reciprocal is written out: of the divisor, and of what divides the divisor before.
 */
#include "passes/rewrite.h"

enum { MOST_STEPS = 7, MOST_VISITS = 48 };

/* Is a change of its last place passed on to what the node computes? */
static bool passes_on(const Node *node) {
  static const Op operators[] = {OP_Add, OP_Sub,   OP_Mul,    OP_Div,        OP_Max, OP_Min,
                                 OP_Abs, OP_Where, OP_Expand, OP_Reciprocal, OP_Clip};
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
    if (node_is(node, operators[i])) return true;
  }
  return node_has(node, RENAMES);
}

static bool leads_to_round(const Value *value, int steps, int *visits) {
  for (const Use *use = value->uses; use && (*visits)++ < MOST_VISITS; use = use->next) {
    if (!use->node) continue;
    if (node_is(use->node, OP_Round)) return true;
    if (steps && passes_on(use->node) && leads_to_round(use->node->outputs[0], steps - 1, visits)) return true;
  }
  return false;
}

/* A constant, or fewer numbers than it divides. */
static bool is_shared(const Value *divisor, Type whole) {
  int64_t count;
  if (unread_constant_of(divisor)) return true;
  return !type_equal(divisor->type, whole) && !(type_count(whole, &count) && count == 1);
}

static void spell_quotient(Rewriter *rewriter, Node *node) {
  int visits = 0;
  if (!node_is(node, OP_Div)) return;
  Value *result = node->outputs[0], *divisor = node_input(node, 1);
  DType dtype = result->type.dtype;
  if (dtype != DTYPE_FLOAT32 && dtype != DTYPE_FLOAT64) return;
  if (!is_shared(divisor, result->type) || !leads_to_round(result, MOST_STEPS, &visits)) return;
  const Origin *origin = REWRITE_ORIGIN(rewriter, node);
  Value *inverse = graph_node(node->graph, origin, OP_Reciprocal, &divisor, 1, &divisor->type, 1, node)->outputs[0];
  Value *factors[] = {node_input(node, 0), inverse};
  rewrite_replace(rewriter, node,
                  graph_node(node->graph, origin, OP_Mul, factors, 2, &result->type, 1, node)->outputs[0]);
  rewriter->changed = true;
}

bool spell_rounded_quotients(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, spell_quotient);
  return rewrite_end(&rewriter);
}
