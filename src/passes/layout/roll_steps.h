/* Steps that are written out: what the files about them share. */
#ifndef J2O_PASSES_LAYOUT_ROLL_STEPS_H
#define J2O_PASSES_LAYOUT_ROLL_STEPS_H

#include "passes/rewrite.h"

enum {
  LONGEST_STEP = 256, /* nodes */
  MOST_INPUTS = 8,    /* of a node */
  MOST_CARRIED = 4,   /* values that a step hands on */
  MOST_ROWS = 16,     /* arrays that a step reads a row of */
  MOST_RESULTS = 8,   /* values of steps that are read around them */
};

typedef enum Source { FROM_AROUND, FROM_STEP, FROM_STEP_BEFORE } Source;

typedef struct Input {
  Source source;
  Value *value; /* around the steps; of FROM_STEP_BEFORE what the first step reads */
  size_t offset;
  uint32_t output;
} Input;

/* An output of the node at an offset of every step. */
typedef struct Result {
  size_t offset;
  uint32_t output;
  Value *first;  /* of what is carried: before all steps */
  Value *inside; /* the body's value for it */
} Result;

typedef struct Row {
  Value *array;
  int64_t axis, first; /* the row that is lowest */
  Value *slice;        /* of the body */
} Row;

typedef struct Steps {
  Rewriter *rewriter;
  Graph *graph;
  Node **nodes;
  uint64_t *kinds;
  size_t node_count;
  size_t begin, length;         /* the first node, and nodes of a step */
  int64_t count, limit;         /* of steps; where they do not fit: how many might */
  Input (*inputs)[MOST_INPUTS]; /* by offset */
  int *row_of;                  /* by offset: one more than the row that it reads; 0: none */
  Row rows[MOST_ROWS];
  Result carried[MOST_CARRIED], stacked[MOST_RESULTS];
  size_t row_count, carried_count, stacked_count;
  int64_t budget;               /* nodes that may yet be compared: the work stays linear */
  int trials;                   /* that came to nothing */
  bool is_ordered, is_reversed; /* which rows the steps read: the first one first, or last */
} Steps;

static inline Node *node_at(const Steps *steps, int64_t step, size_t offset) {
  return steps->nodes[steps->begin + (size_t)step * steps->length + offset];
}
/* Which step the node is of, and where in it. */
bool is_in_steps(const Steps *steps, const Node *node, int64_t *step, size_t *offset);
bool is_read_around(const Steps *steps, const Value *value); /* by others than the steps */
const Result *find_result(const Result *results, size_t count, size_t offset, uint32_t output); /* NULL: none is */

/* The one row that a node takes out of an array. */
bool read_row(const Node *node, int64_t *axis, int64_t *number);
/* The array that the row is of: before it was turned around, where the row has another number. */
Value *array_of_row(const Node *node, int64_t axis, int64_t *number);

/* A step before the first, of a state without the axis of a batch, is written like the others. first_step.c */
bool write_first_step(Steps *steps);
/* The steps become a Scan. rolled_scan.c */
void roll(Steps *steps);
/* Would these nodes of one graph, in its order, become a recurrent operator? become_recurrent.c */
bool become_recurrent(Node *const *nodes, size_t count);
/* Would the loop around all others that this one stands in? In a trial, that is what is to be seen. */
bool is_worth_a_trial(Node *loop);

#endif
