/* Contractions. */
#include "lower/lower.h"

const Plugin dot_plugins[] = {{0}};
