/* Rows of a page's data. Everything that repeats stands once: texts, types, values, places, frames, traces; the rest
 * are numbers of rows. */
#ifndef J2O_TOOL_PAGE_PAGE_ROWS_H
#define J2O_TOOL_PAGE_PAGE_ROWS_H

#include "tool/page/levels.h"
#include "tool/page/page.h"

/* Rows of one kind, as JSON. */
typedef struct Rows {
  Map known; /* the number of a row, plus one */
  Builder json;
  size_t count;
} Rows;

typedef struct Page {
  Job *job;
  Context *context;
  Report words; /* to spell types and attributes with */
  Rows texts, values, frames, places, file_rows;
  size_t files_with_text;
} Page;

static const size_t NONE = SIZE_MAX;

/* True when the row is new: the caller then adds its JSON. */
bool row_of(Page *page, Rows *rows, uint64_t first, uint64_t second, size_t *row);
size_t text_row(Page *page, Str text); /* NONE for NULL */
size_t spelled_row(Page *page);        /* what was spelled in page->words, which is empty afterwards */
size_t value_row(Page *page, const Value *value);
void add_row(Builder *json, size_t row); /* -1 for NONE */
void add_next(Builder *json, size_t row);

/* The drawing, level by level: page_levels.c. */
Builder page_levels(Page *page, const PageModels *models);

#endif
