/* Control flow: scan, while and cond as Scan, Loop and If. */
#include "lower/lower.h"

const Plugin control_plugins[] = {{0}};
