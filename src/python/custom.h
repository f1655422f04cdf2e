/* Plugins of the user's, written in Python. */
#ifndef J2O_PYTHON_CUSTOM_H
#define J2O_PYTHON_CUSTOM_H

#include "lower/lower.h"
#include "python/import.h"

/* What the callback of the lowering needs. */
typedef struct CustomCalls {
  Importer *importer;
  PyObject *lower;       /* called with (primitive, equation, opset, constants, place); see jax2onnx/_plugins.py */
  PyThreadState **state; /* of the conversion, which runs without the interpreter lock */
} CustomCalls;

/* LowerOptions.custom.lower; data is a CustomCalls. */
void lower_in_python(Lowering *l, void *data);

#endif
