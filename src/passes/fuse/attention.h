/* What rules around heads share. */
#ifndef J2O_PASSES_FUSE_ATTENTION_H
#define J2O_PASSES_FUSE_ATTENTION_H

#include "passes/pattern.h"

/* From batch, position, head, features to batch, head, position, features, and back. */
bool puts_heads_first(const Node *transpose);
void set_heads_first(Node *transpose);

/* Attention with other inputs in place of the match, whose root is an Attention: with the root's attributes. */
Node *match_emit_like(Match *match, Value *const *inputs, size_t count);

#endif
