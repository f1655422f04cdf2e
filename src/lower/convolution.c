/* Convolutions of any layout, dilation and grouping. */
#include "lower/lower.h"

const Plugin convolution_plugins[] = {{0}};
