/* j2o report: a model and the program it came from as one page for a browser. */
#ifndef J2O_TOOL_PAGE_PAGE_H
#define J2O_TOOL_PAGE_PAGE_H

#include "tool/diff.h"
#include "tool/source.h"

/* Microseconds by node name: a double * for each Str. */
typedef struct Profile {
  Map times;
  size_t count;
} Profile;

/* Reads {"node": microseconds, …}, such an object as the "nodes" of a larger one, which is what jax2onnx profile
 * writes, or the events that ONNX Runtime's profiler writes. Fails with ERROR_VALUE or
 * ERROR_IO. */
const Profile *profile_read(Job *job, const char *path);

/* What the page shows, as one JSON document; src/tool/page/page.js says what is in it. */
typedef struct PageData {
  Builder json;
  size_t node_count, placed_count, timed_count;
  size_t file_count; /* files whose source is in the page */
} PageData;

/* What the page is about: a model; or two, the second being what the first is compared with. A node of the second has
 * the number after all of the first's. */
typedef struct PageModels {
  OriginIndex *indexes[2];
  const char *paths[2];
  size_t count;
  size_t first_count; /* nodes of the first model */
  size_t node_count;  /* of both */
  const Diff *diff;   /* of two: from the second to the first */
  const Changes *changes;
} PageModels;

/* What is known of a node, by its number. */
static inline const Item *page_item(const PageModels *models, size_t node) {
  if (node < models->first_count) return &models->indexes[0]->items.items[node];
  return &models->indexes[1]->items.items[node - models->first_count];
}

PageData page_data(Job *job, const PageModels *models, const Profile *profile);

/* Writes --model-explorer's file. model_explorer.c */
void model_explorer_write(Job *job, const PageModels *models, const Profile *profile);

#endif
