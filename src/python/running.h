/* _core.Recorder: which part of a model runs when JAX records an equation. jax2onnx/_door/modules.py uses it. */
#ifndef J2O_PYTHON_RUNNING_H
#define J2O_PYTHON_RUNNING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

int add_recorder_type(PyObject *module); /* -1 with an exception set when it fails */

#endif
