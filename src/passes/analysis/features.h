/* Features: what each element along the last axes of a value is.
 *
 * Rotary embeddings take features apart, put them together in other orders, change signs, multiply them with numbers of
 * a table and add them up, in as many ways as there are to move elements. Here each feature is a sum of products of
 * elements of other values, whichever way it came about. Moves along other axes are not followed: all features of a row
 * are of that row. */
#ifndef J2O_PASSES_ANALYSIS_FEATURES_H
#define J2O_PASSES_ANALYSIS_FEATURES_H

#include "passes/rewrite.h"

enum { MOST_FEATURES = 1024, MOST_BASES = 32, MOST_READ = 64 };

/* An element of a value that nothing more is known of. */
typedef struct Element {
  uint16_t base, index;
} Element;

typedef struct Product {
  Element factors[2];
  uint8_t count;
  bool is_negative;
} Product;

typedef struct Feature {
  Product products[2]; /* which are added up */
  uint8_t count;
} Feature;

/* How much of a feature is read: only where its element comes from, and its sign; a product of such; a sum of those. */
typedef enum Reading { READ_ELEMENTS, READ_PRODUCTS, READ_SUMS } Reading;

/* The features of a value: its last `axes` axes, as one. Those before them are the axes of rows. */
typedef struct Features {
  Value *value;
  uint32_t axes;
  Reading reading;
  bool is_base; /* it is not read further */
  size_t count;
  Feature *all;
} Features;

typedef struct FeatureReader {
  Context *context;
  Features read[MOST_READ]; /* a value before those that it is made of */
  size_t read_count;
  size_t bases[MOST_BASES]; /* places in `read` */
  size_t base_count;
} FeatureReader;

/* NULL when there are too many, or too many values are on the way. */
const Features *read_features(FeatureReader *reader, Value *value, uint32_t axes, Reading reading);

#endif
