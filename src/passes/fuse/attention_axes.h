/* Axes by what they stand for.
 *
 * Between the operands of two products and their result axes are split, merged and put in other orders. So each axis of
 * the scores begins as one atom, an atom is split where a Reshape splits it, and every axis on the way is a list of
 * atoms. Axes of size 1 are lists of none. */
#ifndef J2O_PASSES_FUSE_ATTENTION_AXES_H
#define J2O_PASSES_FUSE_ATTENTION_AXES_H

#include "passes/pattern.h"

enum { MOST_AXES = 8, MOST_ATOMS = 32, MOST_MERGED = 6 };

typedef struct Axis {
  uint32_t count;
  uint8_t atoms[MOST_MERGED]; /* the first the slowest */
} Axis;

typedef struct Axes {
  uint32_t rank;
  Axis axis[MOST_AXES];
} Axes;

typedef struct Atoms {
  Context *context;
  size_t count;
  Dim sizes[MOST_ATOMS];
  Axis parts[MOST_ATOMS]; /* what it was split into; none while it is whole */
} Atoms;

/* A set of atoms. */
typedef uint32_t AtomSet;

/* Every axis a new atom. */
bool axes_begin(Atoms *atoms, Type type, Axes *axes);
Axis axis_begin(Atoms *atoms, Dim size);
/* Atoms that were split since become their parts; false when there are too many. */
bool axes_refine(const Atoms *atoms, Axes *axes);
bool same_axis(const Axis *a, const Axis *b);
AtomSet axis_set(const Axis *axis);
AtomSet axes_set(const Axes *axes);
void axis_append(Axis *axis, const Axis *more);
/* An axis of these atoms, in the order that they have among the axes. */
Axis axis_of_set(const Axes *axes, AtomSet set);
Type axes_type(const Atoms *atoms, const Axes *axes, DType dtype);

/* Does it move elements, or cast halves to float32 and back, and nothing else? */
bool keeps_numbers(const Node *node);
/* From the axes of the node's input to those of its output; and back, also of an Expand. False when they cannot be
 * followed. */
bool follow_axes(Atoms *atoms, const Node *node, Axes *axes);
bool follow_axes_back(Atoms *atoms, const Node *node, Axes *axes);
/* What the axes of an operand that is broadcast stand for, by those of the result: counted from the last. */
bool broadcast_axes(const Axes *result, Type type, Axes *axes);

/* How a value gets other axes: the types after each step, most of which are nothing to do. */
typedef struct Arrangement {
  Context *context;
  Value *source;
  Type split, permuted, apart, full, last;
  int64_t order[MOST_AXES]; /* from split to permuted */
  int64_t times[MOST_AXES]; /* from apart to full */
  bool is_spread;
} Arrangement;

/* Of axes that are wanted and not there 1 is left; where only part of one is there, the value is spread over the rest.
 * False when no arrangement is known; nothing is made. */
bool plan_arrangement(const Atoms *atoms, Value *source, const Axes *have, const Axes *want, Arrangement *plan);
bool is_transposed(const Arrangement *plan);
size_t arrangement_cost(const Arrangement *plan); /* operators */
Value *arrange(Match *match, const Arrangement *plan);
/* The same numbers with other axes: by Unsqueeze or Squeeze where sizes of 1 are all that differs. Else of the type at
 * most one size is neither known nor one of the value. */
Value *with_shape(Match *match, Value *value, Type type);

#endif
