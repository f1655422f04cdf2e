/* Lines and columns of code objects, as Python tells them: each code object is walked once, and for its lines no
 * further than the instruction that was asked for. */
#include "base/array.h"
#include "python/importer.h"

enum { BYTES_PER_INSTRUCTION = 2 };

typedef struct LineRange {
  int end, line; /* of the instructions up to `end` that no range before has; -1: no line */
} LineRange;

typedef struct CodeLines {
  ARRAY(LineRange) ranges; /* those read so far */
  PyObject *rest;          /* iterator over the others, NULL after the last; lives as long as the import */
} CodeLines;

typedef ARRAY(Span) Spans;

static int integer_or(PyObject *object, int otherwise) {
  return PyLong_Check(object) ? (int)PyLong_AsLong(object) : otherwise;
}

/* The next tuple of so many items, owned; NULL at the end. */
static PyObject *next_tuple(Importer *in, PyObject *iterator, Py_ssize_t size) {
  PyObject *tuple = PyIter_Next(iterator);
  if (!tuple && PyErr_Occurred()) import_fail(in);
  if (!tuple) return NULL;
  own(in, tuple);
  if (PyTuple_Check(tuple) && PyTuple_Size(tuple) == size) return tuple;
  fail(in->context, ERROR_INTERNAL, "a code object returned positions in an unknown format");
}

static PyObject *positions(Importer *in, PyObject *code, PyObject *method) {
  PyObject *iterable = own(in, PyObject_CallMethodObjArgs(code, method, NULL));
  return own(in, PyObject_GetIter(iterable));
}

static CodeLines *begin_lines(Importer *in, PyObject *code) {
  size_t mark = in->owned.count;
  CodeLines *lines = arena_new(&in->context->arena, CodeLines);
  lines->rest = positions(in, code, in->names[NAME_co_lines]);
  if (PyList_Append(in->kept, lines->rest) != 0) import_fail(in);
  disown_to(in, mark);
  return lines;
}

static bool read_range(Importer *in, CodeLines *lines) {
  size_t mark = in->owned.count;
  PyObject *tuple = next_tuple(in, lines->rest, 3);
  if (tuple) {
    LineRange range = {integer_or(PyTuple_GetItem(tuple, 1), 0), integer_or(PyTuple_GetItem(tuple, 2), -1)};
    array_push(in->context, &lines->ranges, range);
  } else {
    lines->rest = NULL;
  }
  disown_to(in, mark);
  return tuple;
}

static bool covers(const CodeLines *lines, int offset) {
  return lines->ranges.count && lines->ranges.items[lines->ranges.count - 1].end > offset;
}

static Spans *read_spans(Importer *in, PyObject *code) {
  size_t mark = in->owned.count;
  Spans *spans = arena_new(&in->context->arena, Spans);
  PyObject *iterator = positions(in, code, in->names[NAME_co_positions]), *tuple;
  size_t inner = in->owned.count;
  while ((tuple = next_tuple(in, iterator, 4))) {
    Span span = {.line = integer_or(PyTuple_GetItem(tuple, 0), -1),
                 .end_line = integer_or(PyTuple_GetItem(tuple, 1), -1),
                 .column = integer_or(PyTuple_GetItem(tuple, 2), -1),
                 .end_column = integer_or(PyTuple_GetItem(tuple, 3), -1)};
    array_push(in->context, spans, span);
    disown_to(in, inner);
  }
  disown_to(in, mark);
  return spans;
}

int code_line(Importer *in, PyObject *code, int offset) {
  CodeLines *lines = map_get_pointer(&in->code_lines, code);
  if (!lines) *map_slot_pointer(in->context, &in->code_lines, code) = lines = begin_lines(in, code);
  while (!covers(lines, offset) && lines->rest && read_range(in, lines)) {}
  size_t low = 0, high = lines->ranges.count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (lines->ranges.items[middle].end > offset) high = middle;
    else low = middle + 1;
  }
  return low < lines->ranges.count ? lines->ranges.items[low].line : -1;
}

bool code_span(Importer *in, PyObject *code, int offset, Span *span) {
  Spans *spans = map_get_pointer(&in->code_spans, code);
  if (!spans) *map_slot_pointer(in->context, &in->code_spans, code) = spans = read_spans(in, code);
  size_t at = (size_t)(offset / BYTES_PER_INSTRUCTION);
  if (offset < 0 || at >= spans->count) return false;
  *span = spans->items[at];
  return true;
}
