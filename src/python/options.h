/* Options: the keyword arguments of a function, read by the rows of a table into the fields of a struct. All of them
 * must be given. Objects, and the texts in them, are the caller's and live as long as the call. */
#ifndef J2O_PYTHON_OPTIONS_H
#define J2O_PYTHON_OPTIONS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef enum OptionKind {
  OPTION_OBJECT, /* PyObject *: anything */
  OPTION_DICT,   /* PyObject * of that type, as the next two */
  OPTION_LIST,
  OPTION_TUPLE,
  OPTION_TEXT,   /* const char * */
  OPTION_PATH,   /* const char *: bytes as os.fsencode gives them, or NULL for None */
  OPTION_NUMBER, /* int64_t */
  OPTION_FLAG,   /* bool: whatever is true */
} OptionKind;

typedef struct OptionRow {
  const char *name;
  OptionKind kind;
  size_t offset; /* of the field */
} OptionRow;

/* False with an exception set. */
bool read_options(PyObject *keywords, const OptionRow *rows, size_t count, void *into);

#endif
