/* Weights of models that have none yet, and arrays whose bytes are asked for when they are written.
 *
 * What is asked for comes as objects of jax2onnx/_door/fetching.py: `whole()` is an array of all of it, `pieces()`
 * gives arrays that follow each other, `start(distance)` says that it will be wanted soon; `place(file, offset)` may
 * have other processes write it, which `settle()` waits for. */
#include <string.h>

#include "python/importer.h"
#include "types/fetched.h"

struct FetchedArray {
  Fetched fetched;
  Importer *importer;
  FetchedArray *next;
  size_t size;
  PyObject *object;           /* what is asked */
  PyObject *pieces, *current; /* while they are written */
  PyObject *held;
  int holders;
};

/* The core works without the interpreter lock, and the import with it. */
static bool enter(Importer *in) {
  if (!in->state || !*in->state) return false;
  PyEval_RestoreThread(*in->state);
  *in->state = NULL;
  return true;
}

static void leave(Importer *in, bool entered) {
  if (entered) *in->state = PyEval_SaveThread();
}

/* The bytes of an array in C's order; NULL with an exception set. */
static const void *bytes_of(Importer *in, PyObject *array, size_t *size) {
  const void *bytes = NULL;
  PyObject *interface = PyObject_GetAttr(array, in->names[NAME_array_interface]);
  PyObject *count = interface ? PyObject_GetAttr(array, in->names[NAME_nbytes]) : NULL;
  PyObject *data = count ? PyDict_GetItem(interface, in->names[NAME_data]) : NULL;
  if (data && PyTuple_Check(data)) {
    *size = PyLong_AsSize_t(count);
    bytes = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
    if (!PyErr_Occurred() && !bytes) bytes = "";
  } else if (!PyErr_Occurred()) {
    PyErr_SetString(PyExc_TypeError, "a piece of a weight is not a NumPy array");
  }
  Py_XDECREF(count);
  Py_XDECREF(interface);
  return PyErr_Occurred() ? NULL : bytes;
}

static void check_size(const FetchedArray *array, size_t size, bool complete) {
  if (complete ? size == array->size : size <= array->size) return;
  fail(array->importer->context, ERROR_VALUE, "expected %zu bytes of a weight but got %zu", array->size, size);
}

static const void *hold(const Fetched *fetched) {
  FetchedArray *array = fetched->owner;
  Importer *in = array->importer;
  size_t size = 0;
  bool entered = enter(in);
  if (!array->held) array->held = PyObject_CallMethodObjArgs(array->object, in->names[NAME_whole], NULL);
  const void *bytes = array->held ? bytes_of(in, array->held, &size) : NULL;
  leave(in, entered);
  if (!bytes) import_fail(in);
  check_size(array, size, true);
  array->holders++;
  return bytes;
}

static void let_go(const Fetched *fetched) {
  FetchedArray *array = fetched->owner;
  if (--array->holders > 0) return;
  bool entered = enter(array->importer);
  Py_CLEAR(array->held);
  leave(array->importer, entered);
}

/* NULL: there is none. */
static const void *next_piece(FetchedArray *array, size_t *size) {
  Importer *in = array->importer;
  const void *bytes = NULL;
  bool entered = enter(in);
  if (!array->pieces) array->pieces = PyObject_CallMethodObjArgs(array->object, in->names[NAME_pieces], NULL);
  Py_CLEAR(array->current);
  if (array->pieces) array->current = PyIter_Next(array->pieces);
  if (array->current) bytes = bytes_of(in, array->current, size);
  bool failed = PyErr_Occurred() != NULL;
  if (!array->current) Py_CLEAR(array->pieces);
  leave(in, entered);
  if (failed) import_fail(in);
  return bytes;
}

static void each_piece(const Fetched *fetched, PieceFunction *visit, void *data) {
  FetchedArray *array = fetched->owner;
  size_t total = 0, size = 0;
  for (const void *bytes; (bytes = next_piece(array, &size));) {
    total += size;
    check_size(array, total, false);
    visit(bytes, size, data);
  }
  check_size(array, total, true);
}

static void start(const Fetched *fetched, unsigned distance) {
  FetchedArray *array = fetched->owner;
  bool entered = enter(array->importer);
  PyObject *method = PyObject_GetAttr(array->object, array->importer->names[NAME_start]);
  PyObject *nothing = method ? PyObject_CallFunction(method, "I", distance) : NULL;
  bool failed = !nothing;
  Py_XDECREF(nothing);
  Py_XDECREF(method);
  leave(array->importer, entered);
  if (failed) import_fail(array->importer);
}

static void settle(const Fetched *fetched) {
  FetchedArray *array = fetched->owner;
  bool entered = enter(array->importer);
  PyObject *nothing = PyObject_CallMethodObjArgs(array->object, array->importer->names[NAME_settle], NULL);
  bool failed = !nothing;
  Py_XDECREF(nothing);
  leave(array->importer, entered);
  if (failed) import_fail(array->importer);
}

static bool place(const Fetched *fetched, const char *file, uint64_t offset) {
  FetchedArray *array = fetched->owner;
  bool entered = enter(array->importer);
  PyObject *method = PyObject_GetAttr(array->object, array->importer->names[NAME_place]);
  PyObject *answer = method ? PyObject_CallFunction(method, "yK", file, (unsigned long long)offset) : NULL;
  int placed = answer ? PyObject_IsTrue(answer) : -1;
  Py_XDECREF(answer);
  Py_XDECREF(method);
  leave(array->importer, entered);
  if (placed < 0) import_fail(array->importer);
  return placed > 0;
}

static Tensor *tensor_of(Importer *in, Type type) {
  Tensor *tensor = arena_new(&in->context->arena, Tensor);
  int64_t *dims = arena_new_array(&in->context->arena, type.rank, int64_t);
  size_t count = 1;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (!dim_is_constant(type.dims[i]) || type.dims[i].constant < 0 ||
        __builtin_mul_overflow(count, (size_t)type.dims[i].constant, &count)) {
      fail(in->context, ERROR_VALUE, "the size of a weight overflows");
    }
    dims[i] = type.dims[i].constant;
  }
  if (count > SIZE_MAX / 16) fail(in->context, ERROR_VALUE, "the size of a weight overflows");
  *tensor = (Tensor){.dtype = type.dtype, .rank = type.rank, .dims = dims, .size = dtype_bytes(type.dtype, count)};
  return tensor;
}

const Tensor *import_fetched(Importer *in, PyObject *object) {
  Tensor *tensor = tensor_of(in, import_abstract(in, object));
  FetchedArray *array = arena_new(&in->context->arena, FetchedArray);
  array->importer = in;
  array->object = Py_NewRef(object);
  array->size = tensor->size;
  array->fetched = (Fetched){.owner = array,
                             .hold = hold,
                             .let_go = let_go,
                             .each_piece = each_piece,
                             .start = start,
                             .place = place,
                             .settle = settle};
  array->next = in->fetched;
  in->fetched = array;
  tensor->fetched = &array->fetched;
  return tensor;
}

void release_fetched(Importer *in) {
  for (FetchedArray *array = in->fetched; array; array = array->next) {
    Py_CLEAR(array->pieces);
    Py_CLEAR(array->current);
    Py_CLEAR(array->held);
    Py_CLEAR(array->object);
  }
  in->fetched = NULL;
}

/* (file, offset, array or None): in a file that the model refers to, where it may also be read. The file is None when
 * it is yet to come. */
static const Tensor *import_stored(Importer *in, PyObject *place, Type type) {
  const char *file;
  unsigned long long offset;
  PyObject *array;
  if (!PyArg_ParseTuple(place, "zKO", &file, &offset, &array)) import_fail(in);
  Tensor *tensor = array == Py_None ? tensor_of(in, type) : (Tensor *)(uintptr_t)import_tensor(in, array);
  StoredAt *stored = arena_new(&in->context->arena, StoredAt);
  *stored = (StoredAt){file ? str_intern(in->context, file) : NULL, offset, tensor->data};
  tensor->stored = stored;
  return tensor;
}

/* (name, where it is): None where nobody reads it, a place in a file, or the array itself. */
static void bind_weight(Importer *in, Var *var, PyObject *weight) {
  PyObject *name, *value;
  if (!PyArg_ParseTuple(weight, "OO", &name, &value)) import_fail(in);
  if (value == Py_None) return;
  const Tensor *tensor = PyTuple_Check(value) ? import_stored(in, value, var->type) : import_tensor(in, value);
  if (PyUnicode_Check(name)) ((Tensor *)(uintptr_t)tensor)->name = import_text(in, name);
  if (tensor->dtype != var->type.dtype || tensor->rank != var->type.rank) {
    fail(in->context, ERROR_INTERNAL, "weight '%s' does not have the type it was traced with", tensor->name);
  }
  var->literal = tensor;
}

void bind_weights(Importer *in, Jaxpr *jaxpr, PyObject *weights) {
  uint32_t count = (uint32_t)PyList_Size(weights);
  require(in->context, count <= jaxpr->input_count);
  Var **consts = arena_new_array(&in->context->arena, jaxpr->const_count + count, Var *);
  uint32_t used = 0;
  for (uint32_t i = 0; i < count; i++) {
    bind_weight(in, jaxpr->inputs[i], PyList_GetItem(weights, (Py_ssize_t)i));
    if (jaxpr->inputs[i]->literal) consts[used++] = jaxpr->inputs[i];
  }
  for (uint32_t i = 0; i < jaxpr->const_count; i++) consts[used++] = jaxpr->consts[i];
  jaxpr->consts = consts;
  jaxpr->const_count = used;
  jaxpr->inputs += count;
  jaxpr->input_count -= count;
}
