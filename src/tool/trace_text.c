/* Traces as text. */
#include "tool/trace_text.h"

#include <string.h>

#include "base/bytes.h"
#include "onnx/file/metadata_keys.h"

Str metadata_get(const MetadataList *list, const char *key) {
  for (size_t i = 0; i < list->count; i++) {
    if (str_is(list->items[i].key, key)) return list->items[i].value;
  }
  return NULL;
}

TraceCursor trace_in(Str text) { return (TraceCursor){.at = text, .end = text ? text + str_length(text) : NULL}; }

TraceCursor trace_of(const MetadataList *list) {
  Str text = metadata_get(list, METADATA_PREFIX "jax_traceback");
  if (text) return trace_in(text);
  TraceCursor cursor = trace_in(metadata_get(list, TORCH_TRACE));
  cursor.is_torch = true;
  return cursor;
}

const char *number_before(const char *start, const char *end, uint32_t *number) {
  const char *digits = end;
  while (digits > start && digits[-1] >= '0' && digits[-1] <= '9') digits--;
  if (digits == end || end - digits > 9) return NULL;
  *number = 0;
  for (const char *c = digits; c < end; c++) *number = *number * 10 + (uint32_t)(*c - '0');
  return digits;
}

bool parse_callsite(const char *text, size_t length, size_t *function_length, uint32_t *line) {
  const char *digits = number_before(text, text + length, line);
  if (!digits || digits == text || digits[-1] != ':') return false;
  *function_length = (size_t)(digits - 1 - text);
  return true;
}

/* path:line (function) */
static bool parse_jax_frame(const char *line, const char *end, TraceFrame *frame) {
  if (end == line || end[-1] != ')') return false;
  const char *open = end - 1;
  while (open > line && !(open[0] == '(' && open[-1] == ' ')) open--;
  if (open == line) return false;
  const char *digits = number_before(line, open - 1, &frame->line);
  if (!digits || digits == line || digits[-1] != ':') return false;
  frame->file = line;
  frame->file_length = (size_t)(digits - 1 - line);
  frame->function = open + 1;
  frame->function_length = (size_t)(end - 1 - frame->function);
  return true;
}

/* File "path", line 12, in function */
static bool parse_python_frame(const char *line, const char *end, TraceFrame *frame) {
  while (line < end && *line == ' ') line++;
  static const char head[] = "File \"", middle[] = "\", line ", in[] = ", in ";
  size_t left = (size_t)(end - line);
  if (left < sizeof head || memcmp(line, head, sizeof head - 1) != 0) return false;
  frame->file = line + sizeof head - 1;
  const char *after = find_bytes(frame->file, (size_t)(end - frame->file), middle, sizeof middle - 1);
  if (!after) return false;
  frame->file_length = (size_t)(after - frame->file);
  const char *digits = after + sizeof middle - 1, *stop = digits;
  while (stop < end && *stop >= '0' && *stop <= '9') stop++;
  if (!number_before(digits, stop, &frame->line)) return false;
  bool named = (size_t)(end - stop) >= sizeof in - 1 && memcmp(stop, in, sizeof in - 1) == 0;
  frame->function = named ? stop + sizeof in - 1 : end;
  frame->function_length = (size_t)(end - frame->function);
  return true;
}

bool trace_next(TraceCursor *cursor, TraceFrame *frame) {
  bool blank = !cursor->started;
  while (cursor->at && cursor->at < cursor->end) {
    const char *line = cursor->at;
    const char *stop = find_letter(line, '\n', (size_t)(cursor->end - line));
    const char *end = stop ? stop : cursor->end;
    cursor->at = stop ? stop + 1 : cursor->end;
    *frame = (TraceFrame){.begins_block = blank};
    bool found = cursor->is_torch ? parse_python_frame(line, end, frame) : parse_jax_frame(line, end, frame);
    if (found) {
      cursor->started = true;
      return true;
    }
    if (end == line) blank = true;
  }
  return false;
}

static bool has_any(const char *path, size_t length, const char *const *parts, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (find_bytes(path, length, parts[i], strlen(parts[i]))) return true;
  }
  return false;
}

/* The last: this package's own wrappers, when it is not installed but run from its source tree. */
bool is_library_file(const char *path, size_t length) {
  static const char *const parts[] = {"site-packages/", "dist-packages/", "/lib/python3", "<frozen", "jax2onnx/_door/"};
  return has_any(path, length, parts, sizeof parts / sizeof *parts);
}

bool is_jax_file(const char *path, size_t length) {
  static const char *const parts[] = {"-packages/jax/", "-packages/jaxlib/", "-packages/jax2onnx/"};
  return has_any(path, length, parts, sizeof parts / sizeof *parts);
}
