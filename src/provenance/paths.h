/* How files are named in a model: as Python knows them or, where asked for, without what belongs to one machine. */
#ifndef J2O_PROVENANCE_PATHS_H
#define J2O_PROVENANCE_PATHS_H

#include <stdbool.h>

#include "base/context.h"

typedef struct PathRule {
  const char *from, *to; /* what a path begins with, whole parts of it, and what is written instead */
} PathRule;

typedef struct Paths {
  const PathRule *rules; /* of several that fit, the longest counts */
  size_t rule_count;
  bool relative; /* a file of a project is named from the project's root, one of a library from Python's folder */
  Map written;   /* by file */
  Map roots;     /* by folder: the length of the project's root + 1 */
} Paths;

/* A project's root is the nearest folder above a file that holds a pyproject.toml or .git. What is no absolute path
 * stays as it is, and so does a file for which nothing else is known. */
Str path_written(Context *context, Paths *paths, const char *file);

#endif
