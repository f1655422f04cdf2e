/* Window reductions and pooling. */
#include "lower/lower.h"

const Plugin window_plugins[] = {{0}};
