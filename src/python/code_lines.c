/* Lines and columns of code objects, as Python tells them: each code object is asked once, since an answer is a walk
 * over all of its instructions. */
#include "base/array.h"
#include "python/importer.h"

enum { BYTES_PER_INSTRUCTION = 2 };

typedef struct LineRange {
  int end, line; /* of the instructions up to `end` that no range before has; -1: no line */
} LineRange;

typedef ARRAY(LineRange) LineRanges;
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

static LineRanges *read_lines(Importer *in, PyObject *code) {
  size_t mark = in->owned.count;
  LineRanges *ranges = arena_new(&in->context->arena, LineRanges);
  PyObject *iterator = positions(in, code, in->names[NAME_co_lines]), *tuple;
  size_t inner = in->owned.count;
  while ((tuple = next_tuple(in, iterator, 3))) {
    LineRange range = {integer_or(PyTuple_GetItem(tuple, 1), 0), integer_or(PyTuple_GetItem(tuple, 2), -1)};
    array_push(in->context, ranges, range);
    disown_to(in, inner);
  }
  disown_to(in, mark);
  return ranges;
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
  LineRanges *ranges = map_get_pointer(&in->code_lines, code);
  if (!ranges) *map_slot_pointer(in->context, &in->code_lines, code) = ranges = read_lines(in, code);
  size_t low = 0, high = ranges->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (ranges->items[middle].end > offset) high = middle;
    else low = middle + 1;
  }
  return low < ranges->count ? ranges->items[low].line : -1;
}

bool code_span(Importer *in, PyObject *code, int offset, Span *span) {
  Spans *spans = map_get_pointer(&in->code_spans, code);
  if (!spans) *map_slot_pointer(in->context, &in->code_spans, code) = spans = read_spans(in, code);
  size_t at = (size_t)(offset / BYTES_PER_INSTRUCTION);
  if (offset < 0 || at >= spans->count) return false;
  *span = spans->items[at];
  return true;
}
