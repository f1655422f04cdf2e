#include "lower/indexing.h"
const Plugin sort_plugins[] = {{0}};
