/* Indexing: gather, scatter and dynamic slices. */
#include "lower/lower.h"

const Plugin indexing_plugins[] = {{0}};
