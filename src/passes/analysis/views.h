/* Views: some elements of a value in a Scan's body or around it, told by what they vary along.
 *
 * People write a recurrent step with its states as rows or as columns, with gates side by side, one below the other or
 * along an axis of their own, parted before or after a function is applied. A view says of each axis of a value whether
 * the elements vary along it with the features, the steps or the batch, or which single position is taken. Followed
 * back through all that only moves elements, views of the same elements are the same.
 */
#ifndef J2O_PASSES_ANALYSIS_VIEWS_H
#define J2O_PASSES_ANALYSIS_VIEWS_H

#include "passes/rewrite.h"

enum {
  MOST_VIEWED = 6,  /* axes */
  MOST_BATCHES = 3, /* axes of the batch */
};

/* An axis that was merged from several varies along all of them: their digits, the outermost first. */
typedef enum Along {
  ALONG_NOTHING,
  ALONG_FEATURES, /* never merged with others */
  ALONG_STEPS,
  ALONG_BATCH, /* the first of them */
  ALONG_ALL = ALONG_BATCH + MOST_BATCHES,
  ALONG_BITS = 3, /* of a digit */
} Along;

/* Axes of size 1 vary along nothing. */
typedef struct ViewAxis {
  uint32_t along;
  int64_t start;  /* of the features or steps, or the position taken */
  int64_t stride; /* from one feature to the next */
} ViewAxis;

typedef struct View {
  Value *value;
  ViewAxis axes[MOST_VIEWED]; /* as many as the value has */
  int64_t length;             /* how many features; one of them is a position like others */
} View;

/* The Scan that is looked at. */
typedef struct ViewFrame {
  Context *context;
  const Node *scan;
  const Graph *body;
  uint32_t states;      /* inputs before the slices */
  uint32_t batches;     /* axes of the batch, those of size 1 not counted */
  Dim sizes[ALONG_ALL]; /* of steps and of the batch */
} ViewFrame;

/* Can a view be of it? */
bool is_viewable(const Value *value);
/* All of a value, whose axis `features` holds them and whose others are the batch. */
bool view_all(const ViewFrame *frame, Value *value, uint32_t features, View *view);
/* The same with the axes of the batch in another order, one of view_orders. */
bool view_ordered(const ViewFrame *frame, Value *value, uint32_t features, uint32_t order, View *view);
uint32_t view_orders(const ViewFrame *frame); /* how many there are; the first is as they are */
bool view_same(const View *a, const View *b);
/* Does the view see the whole value, each axis along one thing? It may have more steps. */
bool view_is_whole(const View *view);

/* One step back: through what only moves elements, from a slice to all slices. False: there is none. */
bool view_back(const ViewFrame *frame, View *view);
/* As far back as it goes. */
View view_settled(const ViewFrame *frame, View view);
/* What an elementwise operator reads of its operand for what is seen of its result. */
bool view_operand(const View *view, const Node *node, size_t index, View *operand);
/* Which axis varies along this alone; the rank when none does. */
uint32_t view_axis(const View *view, uint32_t along);

#endif
