/* Shape and data movement. */
#include "lower/lower.h"

const Plugin shape_plugins[] = {{0}};
