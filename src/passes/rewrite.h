/* Rewriting: what every pass needs to replace one value by another without losing where it came from.
 *
 * A rewriter lives for one run of one pass. Sites of what is taken out are handed to the node that stays and united
 * with its own once, in rewrite_end, so that a chain of any length costs no more than its length.
 */
#ifndef J2O_PASSES_REWRITE_H
#define J2O_PASSES_REWRITE_H

#include "passes/passes.h"

typedef struct SiteRope SiteRope;

typedef struct Rewriter {
  Model *model;
  Context *context;
  const char *pass; /* its name, the emitter of what it makes */
  bool changed;
  Map received;            /* Node -> SiteRope: what was handed to it */
  ARRAY(Node *) receivers; /* its keys, in the order of their first reception */
  ARRAY(Value *) made;     /* constants */
} Rewriter;

void rewrite_begin(Rewriter *rewriter, Model *model, const char *pass);
/* True when something changed; else the constants that were made for it go again. */
bool rewrite_end(Rewriter *rewriter);

/* The sites of giver, and all that was handed to it, belong to receiver from now on. Nothing when receiver is NULL. */
void rewrite_hand_over(Rewriter *rewriter, Node *receiver, Node *giver);

/* Can every use of old, also as a graph's output, become one of replacement? */
bool rewrite_can_replace(const Value *old, const Value *replacement);

/* Moves the uses of node's only output to replacement, hands the sites over to its producer and removes the node. An
 * output of a graph that must keep a node of its own gets an Identity. Returns what makes the value now: the
 * Identity, or the producer, or NULL when there is none. */
Node *rewrite_replace(Rewriter *rewriter, Node *node, Value *replacement);

/* The node's only output becomes a constant, all of whose bytes are that one. Nothing where its size is not known, or
 * large. */
void rewrite_replace_by_bytes(Rewriter *rewriter, Node *node, int byte);

/* The name that a graph's output has goes from one value to another. */
void rewrite_take_name(Value *value, Value *from);

/* A copy of source, by a node before `before`, that takes the name of old: an output of a graph keeps a node of its
 * own. */
Value *rewrite_copy_for(Value *old, Value *source, Node *before, const Origin *origin);

/* Removes node when nothing uses it, its sites going to receiver (which may be NULL). */
void rewrite_drop_unused(Rewriter *rewriter, Node *node, Node *receiver);

/* The data of an initializer or of a Constant node; NULL when there are none to be read. */
const Tensor *constant_of(const Value *value);
/* The same for those who do not look at the elements of a large one: its data may yet have to be made (moved.h). */
const Tensor *unread_constant_of(const Value *value);

/* May a weight be stored in another form, because nothing else uses it or because there may be two of so small a one?
 */
bool may_store_otherwise(const Value *weight);

/* Are both small constants of the same content? */
bool are_same_small(const Value *a, const Value *b);

/* The only element of a constant of 64-bit integers. */
bool only_integer(const Value *value, int64_t *number);
/* A Slice along one axis, without gaps, by constants: as they are given. */
bool read_axis_slice(const Node *node, int64_t *axis, int64_t *start, int64_t *end);
/* A scalar constant of 32 or 64 bits that is small enough for sums of a few. */
bool small_integer(const Value *value, int64_t *number);
/* A constant that is this and nothing else? */
bool is_boolean(const Value *value, bool which);

/* Does the node only move some elements of its first input? (node_moves_all: all of them, each once) */
bool moves_fewer(const Node *node);

/* The names of weights in the list, and those that the tensor is or was made of; each once. NULL for none. */
Str names_with(Context *context, Str names, const Tensor *tensor);

/* A constant that graph can use: an initializer of the main graph, or inside a function a Constant node before
 * `before`. The origin is that of what the constant stands for. */
Value *rewrite_constant(Rewriter *rewriter, Node *before, const Tensor *tensor, const Origin *origin);
Value *rewrite_constant_number(Rewriter *rewriter, Node *before, DType dtype, double number, const Origin *origin);
Value *rewrite_constant_ints(Rewriter *rewriter, Node *before, const int64_t *values, size_t count,
                             const Origin *origin);

/* The value in that type, by a node before `before` where it has another: a Cast, or a Narrow where float32 becomes a
 * half, as nobody asks for that rounding. */
Value *rewrite_in_type(Rewriter *rewriter, Node *before, const Origin *origin, Value *value, DType dtype);

/* Calls visit on each node of the functions and of the main graph in order, those of its subgraphs before a node. The
 * node visited may be removed, and any before it. */
void rewrite_each_node(Rewriter *rewriter, void (*visit)(Rewriter *rewriter, Node *node));

/* The emitter of a node that the pass makes. */
#define REWRITE_EMITTER(rewriter) \
  ((Emitter){                     \
      .name = str_intern((rewriter)->context, (rewriter)->pass), .file = source_path(__FILE__), .line = __LINE__})
/* Where a node comes from that the pass makes for another. */
#define REWRITE_ORIGIN(rewriter, node) \
  origin_with_emitter((rewriter)->model->provenance, (node)->origin, REWRITE_EMITTER(rewriter))

#endif
