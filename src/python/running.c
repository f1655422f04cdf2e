/* Which part of a model is running: the innermost Python frame of the traced function whose first argument is one.
 *
 * Asked once for every equation that JAX records, so frames are told apart by the address of their code, what a frame's
 * first argument is gets looked up once for the frame, and Python is asked only about objects that were not met yet. */
#include "python/running.h"

#include <stdbool.h>
#include <stdint.h>

enum { FRAMES_KEPT = 4, FIRST_CAPACITY = 256 };

typedef enum CodeKind { CODE_UNKNOWN, CODE_METHOD, CODE_OTHER } CodeKind;

typedef struct KnownObject {
  PyObject *object; /* a code object or a type; owned, so that no other takes its address */
  CodeKind kind;
} KnownObject;

typedef struct Recorder {
  PyObject_HEAD PyObject *parts; /* dict: address of an object -> its part, or None */
  PyObject *is_method;           /* called with a code object: whether its first argument may be a part of a model */
  PyObject *is_part;             /* called with a type: whether its objects may be */
  PyObject *find;                /* called with an object that parts lacks; puts it there */
  PyObject *f_back;              /* the attribute's name */
  KnownObject *known;            /* open addressing */
  size_t capacity, count;
  struct {
    PyObject *frame, *part;
  } recent[FRAMES_KEPT]; /* owned; most equations are recorded in the frame of the one before */
  unsigned next_recent;
} Recorder;

static size_t slot_of(const Recorder *recorder, const PyObject *object) {
  size_t mask = recorder->capacity - 1, at = ((uintptr_t)object >> 4) * 0x9E3779B97F4A7C15u >> 20 & mask;
  while (recorder->known[at].object && recorder->known[at].object != object) at = (at + 1) & mask;
  return at;
}

static bool grow(Recorder *recorder) {
  KnownObject *old = recorder->known;
  size_t old_capacity = recorder->capacity;
  recorder->capacity = old_capacity ? old_capacity * 2 : FIRST_CAPACITY;
  recorder->known = PyMem_Calloc(recorder->capacity, sizeof *recorder->known);
  if (!recorder->known) {
    recorder->known = old;
    recorder->capacity = old_capacity;
    PyErr_NoMemory();
    return false;
  }
  for (size_t i = 0; i < old_capacity; i++) {
    if (old[i].object) recorder->known[slot_of(recorder, old[i].object)] = old[i];
  }
  PyMem_Free(old);
  return true;
}

/* What `ask` says about the object, asked once. CODE_UNKNOWN: an exception is set. */
static CodeKind kind_of(Recorder *recorder, PyObject *object, PyObject *ask) {
  if (recorder->capacity) {
    const KnownObject *known = &recorder->known[slot_of(recorder, object)];
    if (known->object) return known->kind;
  }
  PyObject *answer = PyObject_CallFunctionObjArgs(ask, object, NULL);
  if (!answer) return CODE_UNKNOWN;
  CodeKind kind = answer == Py_True ? CODE_METHOD : CODE_OTHER;
  Py_DECREF(answer);
  if (recorder->count * 2 >= recorder->capacity && !grow(recorder)) return CODE_UNKNOWN;
  recorder->known[slot_of(recorder, object)] = (KnownObject){Py_NewRef(object), kind};
  recorder->count++;
  return kind;
}

/* A new reference, or NULL; an exception is set only when something is wrong. */
static PyObject *first_argument(PyObject *frame, PyObject *code) {
  PyObject *names = PyObject_GetAttrString(code, "co_varnames");
  if (!names) return NULL;
  PyObject *locals = PyObject_GetAttrString(frame, "f_locals"), *value = NULL;
  if (locals) value = PyObject_GetItem(locals, PyTuple_GetItem(names, 0));
  Py_XDECREF(locals);
  Py_DECREF(names);
  if (!value && PyErr_ExceptionMatches(PyExc_KeyError)) PyErr_Clear(); /* the method deleted it */
  return value;
}

/* Borrowed from parts, which keeps it. Py_None: it is no part; NULL: an exception. */
static PyObject *part_of(Recorder *recorder, PyObject *object) {
  CodeKind kind = kind_of(recorder, (PyObject *)Py_TYPE(object), recorder->is_part);
  if (kind != CODE_METHOD) return kind == CODE_UNKNOWN ? NULL : Py_None;
  PyObject *address = PyLong_FromVoidPtr(object);
  if (!address) return NULL;
  PyObject *part = PyDict_GetItemWithError(recorder->parts, address);
  if (!part && !PyErr_Occurred()) {
    PyObject *found = PyObject_CallFunctionObjArgs(recorder->find, object, NULL);
    Py_XDECREF(found);
    if (found) part = PyDict_GetItemWithError(recorder->parts, address);
    if (found && !part && !PyErr_Occurred()) part = Py_None;
  }
  Py_DECREF(address);
  return part;
}

static PyObject *part_of_frame(Recorder *recorder, PyObject *frame, PyObject *code) {
  for (unsigned i = 0; i < FRAMES_KEPT; i++) {
    if (recorder->recent[i].frame == frame) return recorder->recent[i].part;
  }
  PyObject *object = first_argument(frame, code);
  if (!object) return PyErr_Occurred() ? NULL : Py_None;
  PyObject *part = part_of(recorder, object);
  Py_DECREF(object);
  if (!part) return NULL;
  unsigned at = recorder->next_recent++ % FRAMES_KEPT;
  Py_CLEAR(recorder->recent[at].frame);
  Py_CLEAR(recorder->recent[at].part);
  recorder->recent[at].frame = Py_NewRef(frame);
  recorder->recent[at].part = Py_NewRef(part);
  return part;
}

/* running(boundary) -> the innermost part inside the frame that is given, or None. */
static PyObject *recorder_running(PyObject *self, PyObject *boundary) {
  Recorder *recorder = (Recorder *)self;
  PyObject *frame = Py_XNewRef((PyObject *)PyEval_GetFrame()), *part = Py_None;
  while (frame && frame != Py_None && frame != boundary) {
    PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
    CodeKind kind = kind_of(recorder, code, recorder->is_method);
    part = kind == CODE_METHOD ? part_of_frame(recorder, frame, code) : kind == CODE_OTHER ? Py_None : NULL;
    Py_DECREF(code);
    if (part != Py_None) break;
    PyObject *outer = PyObject_GetAttr(frame, recorder->f_back);
    Py_DECREF(frame);
    frame = outer;
  }
  if (!frame) part = NULL;
  Py_XDECREF(frame);
  return Py_XNewRef(part);
}

static int recorder_traverse(PyObject *self, visitproc visit, void *arg) {
  Recorder *recorder = (Recorder *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(recorder->parts);
  Py_VISIT(recorder->is_method);
  Py_VISIT(recorder->is_part);
  Py_VISIT(recorder->find);
  for (unsigned i = 0; i < FRAMES_KEPT; i++) {
    Py_VISIT(recorder->recent[i].frame);
    Py_VISIT(recorder->recent[i].part);
  }
  return 0;
}

static int recorder_clear(PyObject *self) {
  Recorder *recorder = (Recorder *)self;
  Py_CLEAR(recorder->parts);
  Py_CLEAR(recorder->is_method);
  Py_CLEAR(recorder->is_part);
  Py_CLEAR(recorder->find);
  Py_CLEAR(recorder->f_back);
  for (unsigned i = 0; i < FRAMES_KEPT; i++) {
    Py_CLEAR(recorder->recent[i].frame);
    Py_CLEAR(recorder->recent[i].part);
  }
  for (size_t i = 0; i < recorder->capacity; i++) Py_XDECREF(recorder->known[i].object);
  PyMem_Free(recorder->known);
  recorder->known = NULL;
  recorder->capacity = recorder->count = 0;
  return 0;
}

/* forget(): drops the frames that were kept, and with them what they hold. */
static PyObject *recorder_forget(PyObject *self, PyObject *nothing) {
  (void)nothing;
  recorder_clear(self);
  Py_RETURN_NONE;
}

static void recorder_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  recorder_clear(self);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyObject *recorder_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"parts", "is_method", "is_part", "find", NULL};
  PyObject *parts, *is_method, *is_part, *find;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!OOO", names, &PyDict_Type, &parts, &is_method, &is_part,
                                   &find)) {
    return NULL;
  }
  PyObject *f_back = PyUnicode_InternFromString("f_back");
  Recorder *recorder = f_back ? (Recorder *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0) : NULL;
  if (!recorder) {
    Py_XDECREF(f_back);
    return NULL;
  }
  recorder->f_back = f_back;
  recorder->parts = Py_NewRef(parts);
  recorder->is_method = Py_NewRef(is_method);
  recorder->is_part = Py_NewRef(is_part);
  recorder->find = Py_NewRef(find);
  return (PyObject *)recorder;
}

static PyMethodDef recorder_methods[] = {
    {"running", recorder_running, METH_O, "The innermost part of the model that runs inside the given frame, or None."},
    {"forget", recorder_forget, METH_NOARGS, "Drops everything that is kept."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot recorder_slots[] = {
    {Py_tp_doc, "Tells which part of a model is running, from the frames of the traced function."},
    {Py_tp_new, (void *)recorder_new},
    {Py_tp_dealloc, (void *)recorder_dealloc},
    {Py_tp_traverse, (void *)recorder_traverse},
    {Py_tp_clear, (void *)recorder_clear},
    {Py_tp_methods, recorder_methods},
    {0, NULL},
};

static PyType_Spec recorder_spec = {
    .name = "jax2onnx._core.Recorder",
    .basicsize = sizeof(Recorder),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = recorder_slots,
};

int add_recorder_type(PyObject *module) {
  PyObject *type = PyType_FromModuleAndSpec(module, &recorder_spec, NULL);
  int failed = type ? PyModule_AddObjectRef(module, "Recorder", type) : -1;
  Py_XDECREF(type);
  return failed;
}
