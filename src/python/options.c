/* Options: keyword arguments into the fields of a struct. */
#include "python/options.h"

#include <string.h>

static bool has_row(PyObject *key, const KeywordRow *rows, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (PyUnicode_CompareWithASCIIString(key, rows[i].name) == 0) return true;
  }
  return false;
}

static bool refuse_others(PyObject *keywords, const KeywordRow *rows, size_t count) {
  Py_ssize_t at = 0;
  PyObject *key;
  while (PyDict_Next(keywords, &at, &key, NULL)) {
    if (has_row(key, rows, count)) continue;
    PyErr_Format(PyExc_TypeError, "unknown option %R", key);
    return false;
  }
  return true;
}

static bool read_object(PyObject *value, const KeywordRow *row, bool fits, const char *wanted, PyObject **field) {
  if (!fits) PyErr_Format(PyExc_TypeError, "the option '%s' must be a %s, not %R", row->name, wanted, Py_TYPE(value));
  *field = value;
  return fits;
}

static bool read_text(PyObject *value, const char **field) {
  Py_ssize_t length;
  *field = PyUnicode_AsUTF8AndSize(value, &length);
  if (*field && strlen(*field) == (size_t)length) return true;
  if (*field) PyErr_SetString(PyExc_ValueError, "embedded null character");
  return false;
}

static bool read_path(PyObject *value, const char **field) {
  char *bytes = NULL;
  if (value != Py_None && PyBytes_AsStringAndSize(value, &bytes, NULL) != 0) return false;
  *field = bytes;
  return true;
}

static bool read_number(PyObject *value, int64_t *field) {
  *field = PyLong_AsLongLong(value);
  return *field != -1 || !PyErr_Occurred();
}

static bool read_flag(PyObject *value, bool *field) {
  int truth = PyObject_IsTrue(value);
  *field = truth > 0;
  return truth >= 0;
}

static bool read_option(PyObject *value, const KeywordRow *row, void *field) {
  switch (row->kind) {
    case KEYWORD_OBJECT: return read_object(value, row, true, NULL, field);
    case KEYWORD_DICT: return read_object(value, row, PyDict_Check(value), "dict", field);
    case KEYWORD_LIST: return read_object(value, row, PyList_Check(value), "list", field);
    case KEYWORD_TUPLE: return read_object(value, row, PyTuple_Check(value), "tuple", field);
    case KEYWORD_TEXT: return read_text(value, field);
    case KEYWORD_PATH: return read_path(value, field);
    case KEYWORD_NUMBER: return read_number(value, field);
    case KEYWORD_FLAG: return read_flag(value, field);
  }
  return false;
}

bool read_options(PyObject *keywords, const KeywordRow *rows, size_t count, void *into) {
  for (size_t i = 0; i < count; i++) {
    PyObject *value = keywords ? PyDict_GetItemString(keywords, rows[i].name) : NULL;
    if (!value) {
      PyErr_Format(PyExc_TypeError, "the option '%s' is missing", rows[i].name);
      return false;
    }
    if (!read_option(value, &rows[i], (char *)into + rows[i].offset)) return false;
  }
  return PyDict_Size(keywords) == (Py_ssize_t)count || refuse_others(keywords, rows, count);
}
