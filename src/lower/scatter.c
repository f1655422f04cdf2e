#include "lower/indexing.h"
const Plugin scatter_plugins[] = {{0}};
