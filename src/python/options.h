/* Options: the keyword arguments of a function, read by the rows of a table into the fields of a struct. All of them
 * must be given. Objects, and the texts in them, are the caller's and live as long as the call. */
#ifndef J2O_PYTHON_OPTIONS_H
#define J2O_PYTHON_OPTIONS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef enum KeywordKind {
  KEYWORD_OBJECT, /* PyObject *: anything */
  KEYWORD_DICT,   /* PyObject * of that type, as the next two */
  KEYWORD_LIST,
  KEYWORD_TUPLE,
  KEYWORD_TEXT,   /* const char * */
  KEYWORD_PATH,   /* const char *: bytes as os.fsencode gives them, or NULL for None */
  KEYWORD_NUMBER, /* int64_t */
  KEYWORD_FLAG,   /* bool: whatever is true */
} KeywordKind;

typedef struct KeywordRow {
  const char *name;
  KeywordKind kind;
  size_t offset; /* of the field */
} KeywordRow;

/* False with an exception set. */
bool read_options(PyObject *keywords, const KeywordRow *rows, size_t count, void *into);

#endif
