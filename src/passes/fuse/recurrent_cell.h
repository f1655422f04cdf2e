/* Recurrent cells: what one step of an LSTM, a GRU or a plain cell with constant weights computes, however written. */
#ifndef J2O_PASSES_FUSE_RECURRENT_CELL_H
#define J2O_PASSES_FUSE_RECURRENT_CELL_H

#include "passes/analysis/affine.h"

enum { MOST_GATES = 4, MOST_ACTIVATIONS = 3 };

/* A function that an operator applies to its gates or to its candidate. */
typedef struct Activation {
  Op op;
  float alpha, beta; /* HardSigmoid alone */
} Activation;

typedef struct Cell {
  Rewriter *rewriter;
  Node *scan;
  Graph *body;
  ViewFrame frame;
  uint32_t state_count; /* of the Scan; the cell has one or two of them */
  Op op;
  uint32_t hidden_index, memory_index;
  View hidden, memory; /* the states as a step gets them */
  View next_hidden, next_memory;
  View handed_on; /* next_hidden, or the choice between it and the state */
  View held;      /* where the states stay as they are: a condition by step and batch; or no value */
  bool holds_if;  /* what the condition is there */
  bool from_late; /* the steps that count are the last of each sequence, not the first */
  uint32_t gate_count;
  Affine gates[MOST_GATES]; /* in ONNX's order */
  Affine candidate_state;   /* GRU: what the reset gate multiplies; else empty */
  View reset_state;         /* GRU: the state times the reset gate, where the product comes after; else no value */
  Activation activations[MOST_ACTIVATIONS]; /* in ONNX's order */
  int64_t width;                            /* of the state */
  View inputs;                              /* of all steps, or what each makes of its slice */
  bool reverse;
  DType dtype;    /* of the operator */
  Value *valid;   /* with lengths, once they are emitted: which steps count, [steps, directions, batch, 1] */
  Value *outputs; /* what the operator gives for all steps, which is 0 after the length */
  Value *states;  /* the states that all steps hand on */
  bool *of_rest;  /* by output of the Scan: it takes more than the cell */
  bool has_rest;  /* one of them is */
} Cell;

/* Looks for a cell among the states of the Scan; false: there is none. */
bool find_cell(Cell *cell);

/* Is this, with some axis for the features, the state that a step hands on? Then the view says which. */
bool is_next_hidden(const Cell *cell, Value *value, View *view);
/* Is it the state that the step has made, though it may keep the one before? */
bool is_new_hidden(const Cell *cell, Value *value, View *view);

/* Sequences of different lengths: states that stay as they are from some step on. recurrent_lengths.c */
/* Does the next state keep what the state was where a condition says so? Then `made` is what it is elsewhere. */
bool read_held(const Cell *cell, const View *state, View next, View *made, View *condition, bool *holds_if);
/* Is the condition, as the step sees it, the one that the state is held by, and if which? */
bool is_held_by(const Cell *cell, View condition, bool *holds_if);
/* Are the steps that count the first ones of each sequence, or the last? */
bool cell_has_lengths(Cell *cell);
/* The input of the operator. */
Value *cell_lengths(Cell *cell);
/* Steps of all sequences, the last first. */
Value *cell_turned(Cell *cell, Value *steps);
/* The operator has lengths: what it gives for all steps and in the end is made what the loop hands on. */
void cell_hold_states(Cell *cell, Node *recurrent, Value *lengths, Value *ends[2]);

/* A node before the Scan, with its origin. */
Node *cell_node(Cell *cell, Emitter emitter, Op op, Value *const *inputs, size_t count, Type type);
/* Where the operator is not of the program's type, there is a cast at each border. */
Value *cell_in_type(Cell *cell, Value *value, DType dtype);

/* The axes of the operator are steps or directions, batch and features. recurrent_axes.c */
Dim cell_batch(const Cell *cell); /* all elements of the batch, which may have several axes */
/* Can these be told apart again? At most one of them is known only at run time. */
bool cell_can_part_batch(const Cell *cell);
/* The value that is seen so for the operator, its first axis the steps or, along nothing, the directions. */
Value *cell_for_operator(Cell *cell, Value *value, const View *view, uint32_t lead);
/* The same with an axis for each axis of the batch and in its own type; what it does not vary along is 1. */
Value *cell_arranged(Cell *cell, Value *value, const View *view, uint32_t lead);
Value *cell_with_one_batch(Cell *cell, Value *value);
/* A result of the operator, of all steps or the last state, with its axes as the view has them; steps first. */
Value *cell_from_operator(Cell *cell, Value *result, const View *view, bool has_steps);

/* Can the value of the step be computed for all steps at once, from their slices and the states they hand on, if these
 * are known? recurrent_lift.c */
bool cell_can_lift(const Cell *cell, Value *value, bool has_states);
/* It is, before the Scan; from the operator's states if there is one already. */
Value *cell_lift(Cell *cell, Value *value);

/* Is what the rest of the steps reads of the cell the state that each hands on, and nothing else? recurrent_rest.c */
bool can_leave_rest(Cell *cell);
/* The rest gets the states of all steps, which `recurrent` has computed, as slices. */
void leave_rest(Cell *cell, Node *recurrent);

#endif
