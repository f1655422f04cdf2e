/* Rows of a page's data. */
#include "tool/page/page_rows.h"

#include "base/spelling.h"

bool row_of(Page *page, Rows *rows, uint64_t first, uint64_t second, size_t *row) {
  void **slot = map_slot(page->context, &rows->known, first, second);
  bool is_new = !*slot;
  if (is_new) {
    *slot = (void *)(uintptr_t)++rows->count;
    builder_add(&rows->json, rows->count == 1 ? "\n" : ",\n");
  }
  *row = (size_t)(uintptr_t)*slot - 1;
  return is_new;
}

size_t text_row(Page *page, Str text) {
  size_t row;
  if (!text) return NONE;
  if (row_of(page, &page->texts, (uint64_t)(uintptr_t)text, 0, &row)) {
    spell_text(&page->texts.json, SPELL_JSON, text, str_length(text));
  }
  return row;
}

void add_row(Builder *json, size_t row) {
  if (row == NONE) builder_add(json, "-1");
  else builder_format(json, "%zu", row);
}

void add_next(Builder *json, size_t row) {
  builder_add(json, ",");
  add_row(json, row);
}

enum { LONGEST_TEXT = 400 };

size_t spelled_row(Page *page) {
  Builder *line = &page->words.line;
  size_t length = line->length;
  if (length > LONGEST_TEXT) {
    line->length = LONGEST_TEXT;
    while (line->length && ((unsigned char)line->text[line->length] & 0xC0) == 0x80) line->length--;
    builder_add(line, "…");
  }
  Str text = str_intern_sized(page->context, length ? line->text : "", line->length);
  line->length = 0;
  return text_row(page, text);
}

size_t value_row(Page *page, const Value *value) {
  size_t row;
  if (!value) return NONE;
  if (!row_of(page, &page->values, (uint64_t)(uintptr_t)value, 0, &row)) return row;
  report_type(&page->words, value->type);
  size_t type = spelled_row(page);
  builder_format(&page->values.json, "[%zu,%zu,%d]", text_row(page, value->name), type, value->tensor != NULL);
  return row;
}
