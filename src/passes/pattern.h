/* Patterns: trees of operators, written as data, that one node can say.
 *
 * A rule is anchored at its last operator. A pass walks the graph once; at each node it tries the rules whose pattern
 * ends in that operator, so the work is the number of nodes times the size of a pattern. What a match replaces must be
 * used by the match alone: a value that something else reads stays, and so does what computes it.
 *
 *   static const Pattern swish = OP(Mul, X, OP(Sigmoid, X));
 *
 * The same slot stands for the same value wherever it is written. Operators that commute match in either order.
 */
#ifndef J2O_PASSES_PATTERN_H
#define J2O_PASSES_PATTERN_H

#include "passes/rewrite.h"

enum {
  PATTERN_INPUTS = 3, /* of one operator */
  MATCH_SLOTS = 20,   /* values that a pattern names */
  MATCH_NODES = 40,   /* operators of a pattern */
};

typedef enum PatternKind {
  PATTERN_ANY,      /* any value */
  PATTERN_CONSTANT, /* any constant */
  PATTERN_NUMBER,   /* a constant all of whose elements are this number, up to the last places of its type */
  PATTERN_UNIFORM,  /* a constant all of whose elements are the same */
  PATTERN_NODE,     /* an operator and its inputs; inputs beyond those written are the rule's to look at */
  PATTERN_EITHER,   /* the first of two that matches */
  PATTERN_RESHAPED, /* the pattern, or it with axes of size 1 put in by Reshape or Unsqueeze; the rule checks which */
} PatternKind;

typedef struct Pattern Pattern;
struct Pattern {
  PatternKind kind;
  int slot; /* one more than the slot that receives the value; 0: none */
  Op op;
  double number;
  const Pattern *inputs[PATTERN_INPUTS];
};

#define ANY(at) (&(const Pattern){.kind = PATTERN_ANY, .slot = (at) + 1})
#define CONSTANT(at) (&(const Pattern){.kind = PATTERN_CONSTANT, .slot = (at) + 1})
#define UNIFORM(at) (&(const Pattern){.kind = PATTERN_UNIFORM, .slot = (at) + 1})
#define NUMBER(value) (&(const Pattern){.kind = PATTERN_NUMBER, .number = (value)})
#define OP(name, ...) (&(const Pattern){.kind = PATTERN_NODE, .op = OP_##name, .inputs = {__VA_ARGS__}})
#define OP_AT(at, name, ...) \
  (&(const Pattern){.kind = PATTERN_NODE, .slot = (at) + 1, .op = OP_##name, .inputs = {__VA_ARGS__}})
#define EITHER(one, other) (&(const Pattern){.kind = PATTERN_EITHER, .inputs = {(one), (other)}})
#define RESHAPED(at, of) (&(const Pattern){.kind = PATTERN_RESHAPED, .slot = (at) + 1, .inputs = {(of)}})

typedef struct Match Match;

typedef struct FusionRule {
  const Pattern *pattern; /* its outermost kind is PATTERN_NODE */
  Op op;                  /* what it becomes: must exist at the opset and run on the element type of slot 0; or NULL */
  bool (*fuse)(Match *match); /* checks what the pattern cannot say and emits; false: it was no match after all */
} FusionRule;

struct Match {
  Rewriter *rewriter;
  const FusionRule *rule;
  Node *root; /* its value is what the whole computes */
  Value *values[MATCH_SLOTS];
  Node *nodes[MATCH_NODES]; /* matched operators, the root first */
  size_t node_count;
};

/* Tries the rules at every node; of several for one operator the first that matches. True when something changed. */
bool fuse_patterns(Model *model, const char *pass, const FusionRule *rules, size_t count);

/* Does the value match, whoever else reads what is in it? The root becomes the node that makes it. */
bool match_value(Match *match, const Pattern *pattern, Value *value);

/* The node that takes the place of the match, with the type of the root. */
#define EMIT_MATCH(match, op, ...)                                                                        \
  match_emit((match), (op), (Value *[]){__VA_ARGS__}, sizeof((Value *[]){__VA_ARGS__}) / sizeof(Value *), \
             REWRITE_EMITTER((match)->rewriter))
Node *match_emit(Match *match, Op op, Value *const *inputs, size_t input_count, Emitter emitter);
/* The same for a value that was computed before the root by several nodes; its node gets the sites. */
void match_replace(Match *match, Value *value);

/* A node before the root, with the root's origin: a step on the way to what takes the place of the match. */
#define EMIT_BEFORE(match, op, type, ...)                            \
  match_node_before((match), (op), (type), (Value *[]){__VA_ARGS__}, \
                    sizeof((Value *[]){__VA_ARGS__}) / sizeof(Value *), REWRITE_EMITTER((match)->rewriter))
Node *match_node_before(Match *match, Op op, Type type, Value *const *inputs, size_t count, Emitter emitter);

/* What rules ask about a match. */
static inline Type match_type(const Match *match) { return match->root->outputs[0]->type; }
static inline DType match_dtype(const Match *match) { return match->values[0]->type.dtype; }
static inline int64_t match_opset(const Match *match) { return match->rewriter->model->opset; }
bool match_keeps_type(const Match *match);                    /* is the type of the root that of slot 0? */
double match_number(const Match *match, int slot);            /* of a slot that a uniform constant is in */
Value *match_constant(Match *match, const Tensor *tensor);    /* the tensor as an input of what is emitted */
Tensor *match_tensor(Match *match, DType dtype, Type shape);  /* zeroed, of constant sizes; NULL when it has none */
Value *match_filled(Match *match, Type shape, double number); /* with the number, in slot 0's type; NULL as above */

/* The operator that makes the value, when it is this one, of the match's graph, and the match alone reads it. It
 * becomes part of the match. */
Node *match_take(Match *match, Value *value, Op op);
/* Nothing but the match reads what goes; casts of x that others read leave the match and stay. */
bool match_closes_over(Match *match, const Value *x);
/* The value in that type, by a Cast or a Narrow before the root where it has another. */
Value *match_in_type(Match *match, Value *value, DType dtype);

/* A cast between a half and float32, which is no matter: what is computed in float32 is no less precise. */
bool is_cast_of_half(const Node *node);
/* A cast among float32 and the halves, which are computed in float32 where the runtime lacks them: what is summed or
 * multiplied is the same up to rounding. */
bool is_cast_of_floats(const Node *node);
/* Are `count` sizes from `first` on the same? */
bool same_dims(Type a, Type b, uint32_t first, uint32_t count);

/* The number that all elements of a constant are; false when they differ, or when it is a parameter by name. */
bool uniform_number(const Value *value, double *number);
bool is_uniform_number(const Value *value, double wanted);
bool is_all_finite(const Tensor *tensor); /* of floats: 0 times each is 0 */
bool match_has(const Match *match, const Node *node);
bool near_number(DType dtype, double number, double wanted); /* equal up to the last places of the type */

/* The axes that a Reduce operator reduces, as flags, from its attribute or its constant input; false: not known. */
bool reduced_axes(const Node *reduce, bool axes[MAX_RANK]);
/* Has the type the sizes of `from` with 1 at the reduced axes, leading ones left out or not? */
bool is_reduced_shape(Type type, Type from, const bool axes[MAX_RANK]);

#endif
