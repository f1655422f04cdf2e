/* Lists of Python strings as C has them. */
#ifndef J2O_PYTHON_ARGUMENTS_H
#define J2O_PYTHON_ARGUMENTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct Arguments {
  PyObject *owner; /* bytes; paths that are not UTF-8 are as they are on the disk */
  char **words;
  int count;
} Arguments;

/* False with an exception set. */
bool read_arguments(PyObject *list, Arguments *arguments);
void release_arguments(Arguments *arguments);

/* sources(names, given, roots) -> {name: its lines}, of those that may be read (tool/source.h). sources.c */
PyObject *core_sources(PyObject *module, PyObject *arguments);

/* checkpoint(path) -> (folder, files, [(name, dtype or None, as spelled, shape, file, offset, size)]) of safetensors.
 * checkpoint.c */
PyObject *core_checkpoint(PyObject *module, PyObject *path);

#endif
