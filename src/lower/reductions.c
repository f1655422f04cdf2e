/* Reductions, argmax and argmin, cumulative operations. */
#include "lower/lower.h"

const Plugin reduction_plugins[] = {{0}};
