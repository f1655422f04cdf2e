/* What the passes around Attention share. */
#ifndef J2O_ATTENTION_H
#define J2O_ATTENTION_H

#include "passes/pattern.h"

/* From batch, position, head, features to batch, head, position, features, and back. */
bool puts_heads_first(const Node *transpose);
void set_heads_first(Node *transpose);

/* Are `count` sizes from `first` on the same? */
bool same_dims(Type a, Type b, uint32_t first, uint32_t count);

/* The operator that makes the value, when it is this one, of the match's graph, and the match alone reads it. It
 * becomes part of the match. */
Node *match_take(Match *match, Value *value, const char *op);

/* A node before the match's root, with its origin. */
#define EMIT_BEFORE(match, op, type, ...)                            \
  match_node_before((match), (op), (type), (Value *[]){__VA_ARGS__}, \
                    sizeof((Value *[]){__VA_ARGS__}) / sizeof(Value *), REWRITE_EMITTER((match)->rewriter))
Node *match_node_before(Match *match, const char *op, Type type, Value *const *inputs, size_t count, Emitter emitter);

/* softmax(Q Kᵀ) V over four axes. attention_scores.c */
bool fuse_attention_scores(Match *match);
/* Fewer heads of keys and values than of queries. attention_groups.c */
bool fuse_repeated_heads(Match *match);

#endif
