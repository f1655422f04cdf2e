/* Caches: keys and values that are joined to those of earlier positions, and given back, are Attention's to join.
 *
 * Its caches have heads before positions. Where positions come first, a cache would have to be transposed on its way in
 * and out, and joining is as cheap. That stays as it is, and so does a joined array that nothing else reads: ONNX
 * Runtime refuses a cache without both results. */
#include "passes/analysis/masks.h"
#include "passes/fuse/attention_parts.h"

enum { POSITIONS = 2, MOST_BETWEEN = 256, MOST_READERS = 8 };

static bool read_joined(Value *joined, Caches *caches, size_t which) {
  Node *node = joined->producer;
  if (!node || !node_is(node, OP_Concat) || node->input_count != 2 || joined->type.rank != 4) return false;
  int64_t axis = node_int_or(node, "axis", 0);
  if ((axis != POSITIONS && axis != POSITIONS - 4) || value_has_one_use(joined)) return false;
  Value *past = node_input(node, 0), *fresh = node_input(node, 1);
  caches->concat[which] = node, caches->past[which] = past, caches->fresh[which] = fresh;
  return past->type.rank == 4 && fresh->type.rank == 4;
}

/* The node of the graph that reads by this use, itself or in its body; NULL: it is a result. */
static const Node *reader_in(const Graph *graph, const Use *use) {
  const Node *node = use->node;
  while (node && node->graph != graph) node = node->graph->owner;
  return node;
}

/* Does nothing but the match read the joined array before the root, where it will be made? */
static bool is_read_after(const Match *match, const Node *concat) {
  const Node *readers[MOST_READERS];
  size_t count = 0;
  for (const Use *use = concat->outputs[0]->uses; use; use = use->next) {
    const Node *reader = reader_in(concat->graph, use);
    if (!reader || match_has(match, reader)) continue;
    if (count == MOST_READERS) return false;
    readers[count++] = reader;
  }
  const Node *node = concat->next;
  for (size_t i = 0; i < MOST_BETWEEN && node && node != match->root; i++, node = node->next) {
    for (size_t k = 0; k < count; k++) {
      if (readers[k] == node) return false;
    }
  }
  return node == match->root;
}

bool read_caches(const Match *match, const Node *attention, Caches *caches) {
  const Value *query = node_input(attention, 0);
  *caches = (Caches){0};
  if (attention->input_count < 3 || attention->input_count > 4 || query->type.rank != 4) return false;
  if (node_attribute(attention, "q_num_heads") || node_int_or(attention, "is_causal", 0)) return false;
  for (size_t i = 0; i < 2; i++) {
    Value *joined = node_input(attention, 1 + i);
    if (joined->graph != attention->graph || !read_joined(joined, caches, i)) return false;
    if (joined->type.dtype != query->type.dtype || !is_read_after(match, caches->concat[i])) return false;
  }
  Type keys = caches->past[0]->type, values = caches->past[1]->type;
  return caches->concat[0] != caches->concat[1] && dim_equal(keys.dims[POSITIONS], values.dims[POSITIONS]) &&
         dim_equal(caches->fresh[0]->type.dims[POSITIONS], caches->fresh[1]->type.dims[POSITIONS]);
}

/* Does the mask keep, of all positions, those up to the query's own, where the queries are the last ones? */
static bool is_causal_after(const Value *mask, Type query, Dim past, Dim all) {
  Band band;
  if (!mask || mask->type.dtype != DTYPE_BOOL || mask->type.rank < 2) return false;
  uint32_t rank = mask->type.rank;
  Dim rows = query.dims[POSITIONS];
  for (uint32_t i = 0; i + 2 < rank; i++) {
    if (!dim_is(mask->type.dims[i], 1)) return false;
  }
  if (!dim_equal(mask->type.dims[rank - 2], rows) || !dim_equal(mask->type.dims[rank - 1], all)) return false;
  if (!read_band(mask, false, &band)) return false;
  if (dim_is_constant(past) ? !dim_is(band.beyond, 0) || band.greatest != past.constant
                            : !dim_equal(band.beyond, past) || band.greatest != 0)
    return false;
  return band.least == INT64_MIN || (dim_is_constant(rows) && band.least <= 1 - rows.constant);
}

Node *match_emit_cached(Match *match, const Node *attention, const Caches *caches, Value *const operands[3]) {
  Value *mask = node_input(attention, 3);
  Dim past = caches->past[0]->type.dims[POSITIONS];
  Type query = node_input(attention, 0)->type, joined = node_input(attention, 1)->type;
  bool causal = is_causal_after(mask, query, past, joined.dims[POSITIONS]);
  Value *inputs[] = {operands[0], operands[1], operands[2], causal ? NULL : mask, caches->past[0], caches->past[1]};
  Node *node = match_emit(match, OP_Attention, inputs, 6, REWRITE_EMITTER(match->rewriter));
  node_copy_attributes(node, attention);
  if (causal) node_set_int(node, "is_causal", 1);
  for (uint32_t i = 0; i < 2; i++) {
    Value *present = node_output(node, 1 + i, caches->concat[i]->outputs[0]->type);
    rewrite_replace(match->rewriter, caches->concat[i], present);
  }
  return node;
}

bool fuse_caches(Match *match) {
  const Node *attention = match->root;
  Caches caches;
  if (!read_caches(match, attention, &caches) || is_put_in_rows(match, attention)) return false;
  Value *operands[] = {node_input(attention, 0), caches.fresh[0], caches.fresh[1]};
  return match_emit_cached(match, attention, &caches, operands);
}
