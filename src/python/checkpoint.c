/* Files of safetensors for Python: what lies where in them. */
#include "onnx/file/safetensors.h"
#include "python/arguments.h"

typedef struct CheckpointRequest {
  Context context;
  Checkpoint checkpoint;
  const char *path;
} CheckpointRequest;

static void open_stage(void *argument) {
  CheckpointRequest *request = argument;
  checkpoint_open(&request->checkpoint, &request->context, request->path);
}

static PyObject *text_of(Str text) {
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)str_length(text), "surrogateescape");
}

static PyObject *shape_of(const Weight *weight) {
  PyObject *shape = PyTuple_New((Py_ssize_t)weight->rank);
  for (uint32_t i = 0; shape && i < weight->rank; i++) {
    PyObject *size = PyLong_FromLongLong(weight->dims[i]);
    if (size) PyTuple_SetItem(shape, (Py_ssize_t)i, size);
    else Py_CLEAR(shape);
  }
  return shape;
}

static PyObject *weight_of(const Weight *weight) {
  return Py_BuildValue("(NzNNnKK)", text_of(weight->name), weight->dtype ? dtype_name(weight->dtype) : NULL,
                       text_of(weight->spelled), shape_of(weight), (Py_ssize_t)weight->file,
                       (unsigned long long)weight->offset, (unsigned long long)weight->size);
}

static PyObject *found(const Checkpoint *checkpoint) {
  PyObject *files = PyList_New(0), *weights = PyList_New(0);
  bool good = files && weights;
  for (size_t i = 0; good && i < checkpoint->files.count; i++) {
    PyObject *name = text_of(checkpoint->files.items[i]);
    good = name && PyList_Append(files, name) == 0;
    Py_XDECREF(name);
  }
  for (size_t i = 0; good && i < checkpoint->weights.count; i++) {
    PyObject *weight = weight_of(&checkpoint->weights.items[i]);
    good = weight && PyList_Append(weights, weight) == 0;
    Py_XDECREF(weight);
  }
  if (good) return Py_BuildValue("(NNN)", text_of(checkpoint->folder), files, weights);
  Py_XDECREF(files);
  Py_XDECREF(weights);
  return NULL;
}

PyObject *core_checkpoint(PyObject *module, PyObject *path) {
  (void)module;
  char *bytes;
  if (PyBytes_AsStringAndSize(path, &bytes, NULL) != 0) return NULL;
  CheckpointRequest request = {.path = bytes};
  context_init(&request.context);
  bool done;
  Py_BEGIN_ALLOW_THREADS;
  done = context_protect(&request.context, open_stage, &request);
  Py_END_ALLOW_THREADS;
  PyObject *result = NULL;
  if (done) {
    result = found(&request.checkpoint);
  } else {
    const char *message = request.context.message;
    PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "surrogateescape");
    PyObject *class = request.context.error == ERROR_IO       ? PyExc_OSError
                      : request.context.error == ERROR_MEMORY ? PyExc_MemoryError
                                                              : PyExc_ValueError;
    if (text) PyErr_SetObject(class, text);
    Py_XDECREF(text);
  }
  context_release(&request.context);
  return result;
}
