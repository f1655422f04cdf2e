/* j2o report: a model and the program it came from as one page for a browser. */
#ifndef J2O_TOOL_PAGE_PAGE_H
#define J2O_TOOL_PAGE_PAGE_H

#include "tool/index.h"
#include "tool/source.h"

/* Microseconds by node name: a double * for each Str. */
typedef struct Profile {
  Map times;
  size_t count;
} Profile;

/* Reads {"node": microseconds, …}, or the events that ONNX Runtime's profiler writes. Fails with ERROR_VALUE or
 * ERROR_IO. */
const Profile *profile_read(Job *job, const char *path);

/* What the page shows, as one JSON document; src/tool/page/page.js says what is in it. */
typedef struct PageData {
  Builder json;
  size_t node_count, placed_count, timed_count;
  size_t file_count; /* files whose source is in the page */
} PageData;

PageData page_data(Job *job, Model *model, const Profile *profile);

#endif
