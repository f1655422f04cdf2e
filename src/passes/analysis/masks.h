/* Masks: what a boolean value keeps, where it compares the positions of rows and columns. Rows are the last axis but
 * one, columns the last. */
#ifndef J2O_PASSES_ANALYSIS_MASKS_H
#define J2O_PASSES_ANALYSIS_MASKS_H

#include "onnx/graph/graph.h"

/* Kept is what has least <= column - row - beyond <= greatest, and nothing else. */
typedef struct Band {
  int64_t least, greatest; /* INT64_MIN and INT64_MAX where there is no end */
  Dim beyond;              /* 0, or a size known only at run time, as that of a cache */
} Band;

/* The band that the mask keeps or, when inverted, puts out everything but; false when it is none. */
bool read_band(const Value *mask, bool inverted, Band *band);
/* What both keep; false when that is not known. */
bool band_intersect(Band *band, Band other);
bool band_is_causal(Band band, Dim rows, Dim columns);  /* columns up to the row's own, of as many of them */
bool band_keeps_rows(Band band, Dim rows, Dim columns); /* something is left in every row */

/* Are the shapes equal but for leading axes of size 1? Then they broadcast alike. */
bool same_from_end(Type a, Type b);
/* uniform_number, also of what is only spread. */
bool spread_number(const Value *value, double *number);

/* A value that is one of two numbers, as a mask says. */
typedef struct TwoNumbers {
  Value *mask; /* of the shape of the value but for leading axes of size 1 */
  double kept, put_out;
} TwoNumbers;

bool read_two_numbers(const Value *value, TwoNumbers *numbers);
/* The same, where the mask may lack axes of size 1 anywhere: it has the same elements in the same order. */
bool read_renamed_numbers(const Value *value, TwoNumbers *numbers);
/* What such a value is made of, one operator before it. */
Value *numbers_before(const Value *value);

#endif
