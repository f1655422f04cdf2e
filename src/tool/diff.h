/* Two models side by side: which node of one is which of the other. */
#ifndef J2O_TOOL_DIFF_H
#define J2O_TOOL_DIFF_H

#include "tool/index.h"

enum { UNMATCHED = 0 };

typedef struct Side {
  const char *path;
  Model *model;
  OriginIndex *index;
  size_t count;    /* of nodes, the first items of the index */
  uint64_t *deep;  /* what a node computes, from the graph's inputs on */
  uint64_t *local; /* operator, attributes, types */
  size_t *match;   /* index in the other side + 1, or UNMATCHED */
} Side;

typedef struct Diff {
  Job *job;
  Side a, b;
} Diff;

Diff diff_align(Job *job, Model *a, Model *b);

/* Does the value play the same part on both sides? */
bool diff_same_value(const Diff *diff, const Value *a, const Value *b);
bool diff_same_type(Type a, Type b);
bool diff_same_attribute(const Diff *diff, const Attribute *a, const Attribute *b);
bool diff_same_tensor(const Diff *diff, const Tensor *a, const Tensor *b);

#endif
