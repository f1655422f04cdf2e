/* Two models side by side: which node of one is which of the other. */
#ifndef J2O_TOOL_DIFF_H
#define J2O_TOOL_DIFF_H

#include "tool/index.h"

enum { UNMATCHED = 0, COMPARED_BYTES = 4096 /* of tensors, without --weights */ };

typedef struct Side {
  const char *path;
  Model *model;
  OriginIndex *index;
  size_t count;       /* of nodes, the first items of the index */
  uint64_t *deep;     /* what a node computes, from the graph's inputs on */
  uint64_t *local;    /* operator, attributes, types */
  size_t *match;      /* index in the other side + 1, or UNMATCHED */
  const char *folder; /* of the model's file: external data are there */
  Map positions;      /* of an input in its graph, from 1 */
  Map parts;          /* of a graph, what it is of its owner: the attribute's name, or the function's */
} Side;

/* A tensor whose contents could not be read. */
typedef struct NotCompared {
  const char *path; /* of the model */
  Str name;         /* or NULL */
  const char *reason;
} NotCompared;

typedef struct Diff {
  Job *job;
  Side a, b;
  Map contents, by_hash, told; /* diff_contents.c */
  unsigned char *pieces[2];
  ARRAY(NotCompared) not_compared;
  size_t skipped; /* tensors too large to be compared without --weights */
} Diff;

Diff diff_align(Job *job, Model *a, Model *b);

typedef enum ChangeKind { CHANGE_REMOVED, CHANGE_ADDED, CHANGE_ALTERED } ChangeKind;

typedef struct Change {
  ChangeKind kind;
  const Node *a, *b; /* NULL where there is none */
  Place place;
  size_t order;
  ARRAY(Str) details;
} Change;

typedef ARRAY(Change) Changes;

/* What the alignment leaves of what was asked for, by line. diff_report.c */
Changes diff_changes(Diff *diff, const Question *question);

/* Does the value play the same part on both sides? */
bool diff_same_value(Diff *diff, const Value *a, const Value *b);
/* Is it the main graph, the same function's or the same body of the same node? */
bool diff_same_graph(const Diff *diff, const Graph *a, const Graph *b);
/* Inputs and outputs; nodes and what they use are compared one by one. */
bool diff_same_interface(Diff *diff, const Graph *a, const Graph *b);
bool diff_same_type(Type a, Type b);
bool diff_same_attribute(Diff *diff, const Attribute *a, const Attribute *b);
bool diff_same_tensor(Diff *diff, const Tensor *a, const Tensor *b);
/* Of two tensors of one type and shape. Where they cannot be read nothing is claimed: true, and it is noted. */
bool diff_same_contents(Diff *diff, const Tensor *a, const Tensor *b);
bool diff_same_rest(const Diff *diff); /* diff_rest.c */

#endif
