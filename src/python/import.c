/* Importing jaxprs: values, types, equations, tracebacks.
 *
 * New references are put on the `owned` stack, which is cut back at the end of every equation and released as a whole
 * when an error unwinds, so no path leaks. Arrays stay owned until the model is written: their memory is not copied. */
#include "python/import.h"

#include <string.h>

#include "base/array.h"
#include "base/bytes.h"
#include "lower/complex/complex.h"
#include "python/importer.h"
#include "types/numbers.h"

_Noreturn void import_fail(Importer *in) { fail_text(in->context, ERROR_PYTHON, "a Python exception is set"); }

PyObject *own(Importer *in, PyObject *object) {
  if (!object) import_fail(in);
  if (in->owned.count == in->owned.capacity) {
    size_t capacity = in->owned.capacity ? in->owned.capacity * 2 : 256;
    PyObject **items = PyMem_Realloc(in->owned.items, capacity * sizeof *items);
    if (!items) {
      Py_DECREF(object);
      fail(in->context, ERROR_MEMORY, "references");
    }
    in->owned.items = items;
    in->owned.capacity = capacity;
  }
  in->owned.items[in->owned.count++] = object;
  return object;
}

void disown_to(Importer *in, size_t mark) {
  while (in->owned.count > mark) Py_DECREF(in->owned.items[--in->owned.count]);
}

/* What the class, or the first of its bases that has it, says about an attribute: borrowed; NULL for nothing. */
static PyObject *find_in_class(Importer *in, PyTypeObject *class, PyObject *name) {
  PyObject *order = own(in, PyObject_GetAttrString((PyObject *)class, "__mro__"));
  for (Py_ssize_t i = 0; PyTuple_Check(order) && i < PyTuple_Size(order); i++) {
    PyObject *own_names = own(in, PyObject_GetAttrString(PyTuple_GetItem(order, i), "__dict__"));
    PyObject *found = PyObject_GetItem(own_names, name);
    if (found) return own(in, found);
    PyErr_Clear();
  }
  return NULL;
}

/* A descriptor that can be set comes before all else that could give the attribute, in a class that has the general way
 * to find one: its slots, and the fields of named tuples. */
static AttributeOfClass attribute_of_class(Importer *in, PyTypeObject *class, int name) {
  size_t mark = in->owned.count;
  AttributeOfClass of_class = {.class = class};
  PyObject *found = find_in_class(in, class, in->names[name]);
  PyTypeObject *kind = found ? Py_TYPE(found) : NULL;
  if (kind && PyType_GetSlot(kind, Py_tp_descr_set) &&
      PyType_GetSlot(class, Py_tp_getattro) == (void *)PyObject_GenericGetAttr) {
    of_class.get = (descrgetfunc)PyType_GetSlot(kind, Py_tp_descr_get);
    if (of_class.get) of_class.descriptor = found; /* the class keeps it */
  }
  disown_to(in, mark);
  return of_class;
}

PyObject *attribute(Importer *in, PyObject *object, int name) {
  PyTypeObject *class = Py_TYPE(object);
  for (size_t i = 0; i < sizeof in->of_class[name] / sizeof *in->of_class[name]; i++) {
    AttributeOfClass *known = &in->of_class[name][i];
    if (!known->class) *known = attribute_of_class(in, class, name);
    if (known->class != class) continue;
    if (!known->descriptor) break;
    return own(in, known->get(known->descriptor, object, (PyObject *)class));
  }
  return own(in, PyObject_GetAttr(object, in->names[name]));
}

/* C's texts, and so names in a model, end at a NUL: it is shown escaped, so that two names stay two. */
static Str without_nul(Importer *in, const char *text, size_t length) {
  Builder out;
  builder_init(&out, in->context);
  for (const char *end = text + length, *nul; text <= end; text = nul + 1) {
    nul = find_letter(text, '\0', (size_t)(end - text));
    if (!nul) nul = end;
    builder_add_sized(&out, text, (size_t)(nul - text));
    if (nul < end) builder_add(&out, "\\x00");
  }
  return str_intern_sized(in->context, builder_text(&out), out.length);
}

Str import_text(Importer *in, PyObject *object) {
  Py_ssize_t length;
  const char *text = PyUnicode_AsUTF8AndSize(object, &length);
  if (text && find_letter(text, '\0', (size_t)length)) return without_nul(in, text, (size_t)length);
  if (text) return str_intern_sized(in->context, text, (size_t)length);
  /* Lone surrogates (file names in odd encodings) have no UTF-8; show them escaped. */
  PyErr_Clear();
  PyObject *bytes = own(in, PyUnicode_AsEncodedString(object, "utf-8", "backslashreplace"));
  return str_intern_sized(in->context, PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes));
}

static void keep_alive(Importer *in, PyObject *object) {
  if (PyList_Append(in->kept, object) != 0) import_fail(in);
}

/* Element types: NumPy's dtype objects are few, so they are looked up by address after the first time. */
DType import_dtype(Importer *in, PyObject *object) {
  void *known = map_get_pointer(&in->dtypes, object);
  if (known) return (DType)((uintptr_t)known - 1);
  keep_alive(in, object);
  PyObject *name_object = PyObject_GetAttr(object, in->names[NAME_name]);
  DType dtype = DTYPE_NONE;
  if (!name_object) {
    PyErr_Clear();
  } else {
    own(in, name_object);
    if (PyUnicode_Check(name_object)) {
      Str name = import_text(in, name_object);
      dtype = strcmp(name, "key<fry>") == 0   ? DTYPE_KEY
              : strncmp(name, "key<", 4) == 0 ? DTYPE_KEY_WORDS
                                              : dtype_from_name(name);
    }
  }
  *map_slot_pointer(in->context, &in->dtypes, object) = (void *)((uintptr_t)dtype + 1);
  return dtype;
}

/* How many words a key has that is not one of threefry's. */
static Dim import_key_size(Importer *in, PyObject *aval) {
  PyObject *impl = attribute(in, attribute(in, aval, NAME_dtype), NAME_impl);
  PyObject *shape = attribute(in, impl, NAME_key_shape);
  if (!PyTuple_Check(shape) || PyTuple_Size(shape) != 1) {
    fail(in->context, ERROR_UNSUPPORTED, "a random key of this kind has more than one axis of words");
  }
  return import_dim(in, PyTuple_GetItem(shape, 0));
}

Type import_abstract(Importer *in, PyObject *aval) {
  size_t mark = in->owned.count;
  PyObject *shape = PyObject_GetAttr(aval, in->names[NAME_shape]);
  if (!shape) { /* a token or another type without elements */
    PyErr_Clear();
    return (Type){.dtype = DTYPE_NONE};
  }
  own(in, shape);
  Type type = {.dtype = import_dtype(in, attribute(in, aval, NAME_dtype))};
  if (!PyTuple_Check(shape) || PyTuple_Size(shape) > MAX_RANK) {
    fail(in->context, ERROR_UNSUPPORTED, "an array has more than %d dimensions", MAX_RANK);
  }
  type.rank = (uint32_t)PyTuple_Size(shape);
  Dim *dims = arena_new_array(&in->context->arena, type.rank + 1, Dim);
  for (uint32_t i = 0; i < type.rank; i++) dims[i] = import_dim(in, PyTuple_GetItem(shape, i));
  if (type.dtype == DTYPE_KEY_WORDS) dims[type.rank++] = import_key_size(in, aval);
  if (type.rank > MAX_RANK)
    fail(in->context, ERROR_UNSUPPORTED, "an array of keys has more than %d dimensions", MAX_RANK);
  type.dims = dims;
  disown_to(in, mark);
  return type;
}

/* JAX has one for many variables; the program that is imported keeps it. */
static Type import_aval(Importer *in, PyObject *aval) {
  const Type *known = map_get_pointer(&in->types, aval);
  if (known) return *known;
  Type *type = arena_new(&in->context->arena, Type);
  *type = import_abstract(in, aval);
  *map_slot_pointer(in->context, &in->types, aval) = type;
  return *type;
}

/* NumPy gives a 4-bit element a byte of its own; ONNX packs two, the first in the low half. */
static void pack_nibbles(Importer *in, Tensor *tensor, size_t count) {
  const unsigned char *from = tensor->data;
  unsigned char *packed = arena_alloc(&in->context->arena, (count + 1) / 2);
  for (size_t i = 0; i < count; i++) packed[i / 2] |= (unsigned char)((from[i] & 0xF) << (i % 2 * 4));
  tensor->data = packed;
  tensor->size = (count + 1) / 2;
}

/* A C-ordered view of any array-like; `kept` until the model is written when its memory is used in place. */
static const Tensor *tensor_from_numpy(Importer *in, PyObject *array, bool copy) {
  Arena *arena = &in->context->arena;
  Tensor *tensor = arena_new(arena, Tensor);
  PyObject *interface = attribute(in, array, NAME_array_interface);
  PyObject *shape = PyDict_GetItem(interface, in->names[NAME_shape]);
  PyObject *data = PyDict_GetItem(interface, in->names[NAME_data]);
  if (!shape || !data || !PyTuple_Check(shape) || !PyTuple_Check(data)) {
    fail(in->context, ERROR_INTERNAL, "an array without __array_interface__");
  }
  tensor->dtype = import_dtype(in, attribute(in, array, NAME_dtype));
  tensor->rank = (uint32_t)PyTuple_Size(shape);
  int64_t *dims = arena_new_array(arena, tensor->rank, int64_t);
  size_t count = 1;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    dims[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    count *= (size_t)dims[i]; /* NumPy has bounded the product */
  }
  tensor->dims = dims;
  tensor->size = dtype_bits(tensor->dtype) >= 8 ? dtype_bytes(tensor->dtype, count) : count;
  tensor->data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
  if (PyErr_Occurred()) import_fail(in);
  if (tensor->size == 0) tensor->data = "";
  else if (dtype_bits(tensor->dtype) == 4) pack_nibbles(in, tensor, count);
  else if (copy) tensor->data = arena_copy(arena, tensor->data, tensor->size);
  else keep_alive(in, array);
  return tensor;
}

const Tensor *import_tensor(Importer *in, PyObject *object) {
  size_t mark = in->owned.count;
  PyObject *array = own(in, PyObject_CallFunctionObjArgs(in->ascontiguous, object, NULL));
  if (PyObject_TypeCheck(array, (PyTypeObject *)in->fetched_class)) {
    const Tensor *fetched = import_fetched(in, array);
    disown_to(in, mark);
    return fetched;
  }
  PyObject *size = attribute(in, array, NAME_nbytes);
  size_t bytes = PyLong_AsSize_t(size);
  const Tensor *tensor = tensor_from_numpy(in, array, bytes <= 64);
  disown_to(in, mark);
  return tensor;
}

/* JAX holds literals as small typed arrays around one of NumPy's, whose bytes are read where they lie. False when the
 * value is something else (also for types that NumPy's buffers do not know, such as bfloat16). */
static bool read_scalar(Importer *in, PyObject *value, Type type, uint64_t *bits) {
  if (type.rank != 0 || dtype_bits(type.dtype) > 64 || dtype_bits(type.dtype) < 8) return false;
  if (!PyObject_CheckBuffer(value)) {
    PyObject *inner = PyObject_GetAttr(value, in->names[NAME_val]);
    if (!inner) {
      PyErr_Clear();
      return false;
    }
    value = own(in, inner);
  }
  Py_buffer view;
  if (!PyObject_CheckBuffer(value) || PyObject_GetBuffer(value, &view, PyBUF_C_CONTIGUOUS) != 0) {
    PyErr_Clear();
    return false;
  }
  bool fits = view.len == (Py_ssize_t)dtype_bytes(type.dtype, 1);
  *bits = 0;
  if (fits) copy_bytes(bits, view.buf, (size_t)view.len);
  PyBuffer_Release(&view);
  return fits;
}

/* Python and NumPy scalars, and JAX's typed int and float (subclasses), without a detour through arrays. */
static const Tensor *import_literal(Importer *in, PyObject *value, Type type) {
  uint64_t bits;
  if (Py_TYPE(value) == (PyTypeObject *)in->typed_array_class && read_scalar(in, value, type, &bits)) {
    /* bits are set */
  } else if (type.rank == 0 && PyFloat_Check(value) && dtype_is_float(type.dtype)) {
    bits = number_encode(type.dtype, PyFloat_AsDouble(value));
  } else if (type.rank == 0 && PyBool_Check(value) && type.dtype == DTYPE_BOOL) {
    bits = value == Py_True;
  } else {
    if (PyLong_Check(value) || PyFloat_Check(value) || PyComplex_Check(value)) {
      PyObject *dtype_name_object = own(in, PyUnicode_FromString(dtype_name(type.dtype)));
      value = own(in, PyObject_CallFunctionObjArgs(in->as_array, value, dtype_name_object, NULL));
    }
    const Tensor *tensor = import_tensor(in, value);
    bool key = type.dtype == DTYPE_KEY ? tensor->dtype == DTYPE_UINT64
                                       : type.dtype == DTYPE_KEY_WORDS && tensor->dtype == DTYPE_UINT32;
    if ((tensor->dtype == type.dtype || key) && tensor->rank == type.rank) return tensor;
    fail(in->context, ERROR_INTERNAL, "a literal of type %s where %s is expected", dtype_name(tensor->dtype),
         dtype_name(type.dtype));
  }
  Tensor *tensor = arena_new(&in->context->arena, Tensor);
  *tensor = (Tensor){.dtype = type.dtype, .size = dtype_bytes(type.dtype, 1)};
  tensor->data = arena_copy(&in->context->arena, &bits, tensor->size);
  return tensor;
}

static Var *import_atom(Importer *in, PyObject *atom, uint64_t scope) {
  bool literal = Py_TYPE(atom) == (PyTypeObject *)in->literal_class;
  void **known = map_slot(in->context, &in->vars, (uint64_t)(uintptr_t)atom, literal ? 0 : scope);
  if (*known) return *known;
  size_t mark = in->owned.count;
  Type type = import_aval(in, attribute(in, atom, NAME_aval));
  Var *var = program_var(in->program, type);
  if (literal) var->literal = import_literal(in, attribute(in, atom, NAME_val), type);
  disown_to(in, mark);
  *known = var;
  return var;
}

static Var **import_atoms(Importer *in, PyObject *sequence, uint64_t scope, uint32_t *count) {
  bool is_list = PyList_Check(sequence);
  if (!is_list) sequence = own(in, PySequence_Tuple(sequence));
  Py_ssize_t size = is_list ? PyList_Size(sequence) : PyTuple_Size(sequence);
  Var **vars = arena_new_array(&in->context->arena, (size_t)size, Var *);
  for (Py_ssize_t i = 0; i < size; i++) {
    vars[i] = import_atom(in, is_list ? PyList_GetItem(sequence, i) : PyTuple_GetItem(sequence, i), scope);
  }
  *count = (uint32_t)size;
  return vars;
}

static FrameKind file_kind(Importer *in, Str file) {
  void *known = map_get_pointer(&in->file_kinds, file);
  if (known) return (FrameKind)((uintptr_t)known - 1);
  FrameKind kind = file[0] == '<' && strncmp(file, "<frozen", 7) == 0 ? FRAME_LIBRARY : FRAME_USER;
  PyObject *lists[] = {in->request.library_folders, in->request.jax_folders};
  for (int l = 0; l < 2; l++) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(lists[l]); i++) {
      Py_ssize_t length;
      const char *folder = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(lists[l], i), &length);
      if (!folder) import_fail(in);
      if (length && strncmp(file, folder, (size_t)length) == 0 && (file[length] == '/' || file[length] == '\\')) {
        kind = l == 0 ? FRAME_LIBRARY : FRAME_JAX;
      }
    }
  }
  *map_slot_pointer(in->context, &in->file_kinds, file) = (void *)((uintptr_t)kind + 1);
  if (kind == FRAME_USER) array_push(in->context, &in->user_files, file);
  return kind;
}

static Frame *import_code_frame(Importer *in, Provenance *provenance, PyObject *code, int offset) {
  Frame *known = map_get(&in->frames, (uint64_t)(uintptr_t)code, (uint64_t)offset);
  if (known) return known;
  Str file = import_text(in, attribute(in, code, NAME_co_filename));
  Str function = import_text(in, attribute(in, code, NAME_co_qualname));
  int line = code_line(in, code, offset);
  Frame *frame = frame_intern(provenance, file, function, line, file_kind(in, file));
  Span span;
  if (in->request.spans && frame->kind != FRAME_JAX && code_span(in, code, offset, &span) && span.line > 0 &&
      span.end_line >= span.line && span.column >= 0 && span.end_column >= 0) {
    frame = frame_with_span(provenance, frame, span);
  }
  *map_slot(in->context, &in->frames, (uint64_t)(uintptr_t)code, (uint64_t)offset) = frame;
  return frame;
}

Frame *importer_frame(Importer *in, Provenance *provenance, PyObject *triple) {
  if (!PyTuple_Check(triple) || PyTuple_Size(triple) != 3) {
    PyErr_SetString(PyExc_TypeError, "a frame must be a tuple (file, function, line)");
    import_fail(in);
  }
  Str file = import_text(in, PyTuple_GetItem(triple, 0));
  Str function = import_text(in, PyTuple_GetItem(triple, 1));
  long line = PyLong_AsLong(PyTuple_GetItem(triple, 2));
  if (line == -1 && PyErr_Occurred()) import_fail(in);
  return frame_intern(provenance, file, function, (int)line, file_kind(in, file));
}

static const Trace *read_traceback(Importer *in, PyObject *traceback) {
  PyObject *pair = own(in, PyObject_CallMethodObjArgs(traceback, in->names[NAME_raw_frames], NULL));
  if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
    fail(in->context, ERROR_INTERNAL, "Traceback.raw_frames() did not return a pair");
  }
  PyObject *codes = PyTuple_GetItem(pair, 0), *offsets = PyTuple_GetItem(pair, 1);
  if (!PyList_Check(codes) || !PyList_Check(offsets) || PyList_Size(codes) != PyList_Size(offsets)) {
    fail(in->context, ERROR_INTERNAL, "Traceback.raw_frames() did not return two lists");
  }
  const Trace *trace = NULL;
  Py_ssize_t count = PyList_Size(codes), used = 0;
  while (used < count && PyList_GetItem(codes, used) != in->expand_code) used++;
  for (Py_ssize_t i = used; i--;) {
    int offset = (int)PyLong_AsLong(PyList_GetItem(offsets, i));
    Frame *frame = import_code_frame(in, in->program->provenance, PyList_GetItem(codes, i), offset);
    trace = trace_intern(in->program->provenance, frame, trace);
  }
  return trace;
}

/* Tracebacks of the same frames are equal, and to find that out takes less than to read them: in a loop, or a layer
 * that is called again, equations have those of the round before. */
static const Trace *import_trace(Importer *in, PyObject *source_info) {
  PyObject *traceback = attribute(in, source_info, NAME_traceback);
  if (traceback == Py_None) return NULL;
  PyObject *known = PyDict_GetItemWithError(in->traces, traceback);
  if (known) return PyLong_AsVoidPtr(known);
  if (PyErr_Occurred()) import_fail(in);
  const Trace *trace = read_traceback(in, traceback);
  PyObject *address = own(in, PyLong_FromVoidPtr((void *)(uintptr_t)trace));
  if (PyDict_SetItem(in->traces, traceback, address) != 0) import_fail(in);
  return trace;
}

static bool is_of(PyObject *object, PyObject *class) { return Py_TYPE(object) == (PyTypeObject *)class; }

/* Of which part's run the user opened this scope: borrowed, None when none was running, NULL for a scope of a library.
 */
static PyObject *part_of_scope(Importer *in, PyObject *scope) {
  return is_of(scope, in->user_scope_class) ? attribute(in, scope, NAME_part) : NULL;
}

/* The scopes of a stack as a path: "encoder.layer_0"; NULL for none. Transformations of JAX's stand between them.
 * With a part, those alone that the user opened in it; with None likewise, where no part was running. */
static Str import_scopes(Importer *in, PyObject *stack, PyObject *only) {
  Builder path;
  builder_init(&path, in->context);
  for (Py_ssize_t i = 0; i < PyTuple_Size(stack); i++) {
    PyObject *scope = PyTuple_GetItem(stack, i);
    if (!is_of(scope, in->scope_class) && !is_of(scope, in->user_scope_class)) continue;
    if (only && part_of_scope(in, scope) != only) continue;
    PyObject *name = attribute(in, scope, NAME_name);
    if (!PyUnicode_Check(name)) continue;
    if (path.length) builder_add(&path, ".");
    builder_add(&path, import_text(in, name));
  }
  for (size_t i = 0; i < path.length; i++) {
    if (path.text[i] == '/') path.text[i] = '.';
  }
  return path.length ? str_intern_sized(in->context, builder_text(&path), path.length) : NULL;
}

/* Its path is known when the parameters' names are (name_modules). */
static const Module *import_part(Importer *in, PyObject *part) {
  void **slot = map_slot_pointer(in->context, &in->modules, part);
  if (!*slot) {
    *slot = arena_new(&in->context->arena, Module);
    if (PyList_Append(in->parts, part) != 0) import_fail(in);
  }
  return *slot;
}

static const Module *import_part_and_scopes(Importer *in, PyObject *stack, PyObject *part) {
  const Module *module = import_part(in, part);
  Str scopes = import_scopes(in, stack, part);
  if (!scopes) return module;
  Module *inside = module_inside(in->program->provenance, module, scopes);
  array_push(in->context, &in->insides, inside);
  return inside;
}

static const Module *import_scopes_alone(Importer *in, PyObject *stack) {
  Str path = import_scopes(in, stack, NULL);
  return path ? module_of_scopes(in->program->provenance, path, import_scopes(in, stack, Py_None)) : NULL;
}

/* What was running when the equation was recorded: the innermost part of the model, and scopes in it; else scopes. */
static const Module *import_module(Importer *in, PyObject *source_info) {
  PyObject *names = attribute(in, source_info, NAME_name_stack);
  if (names == in->last_names) return in->last_module;
  PyObject *stack = attribute(in, names, NAME_stack);
  const Module *module = NULL;
  if (PyTuple_Check(stack) && PyTuple_Size(stack)) {
    Py_ssize_t last = PyTuple_Size(stack);
    while (last-- && !is_of(PyTuple_GetItem(stack, last), in->part_class)) continue;
    module =
        last < 0 ? import_scopes_alone(in, stack) : import_part_and_scopes(in, stack, PyTuple_GetItem(stack, last));
  }
  in->last_names = names; /* the equation keeps it */
  in->last_module = module;
  return module;
}

static Str import_primitive(Importer *in, PyObject *primitive) {
  Str known = map_get_pointer(&in->primitives, primitive);
  if (known) return known;
  PyObject *text = attribute(in, primitive, NAME_name);
  Str name = import_text(in, text);
  int lowered = PySequence_Contains(in->request.lowered, text);
  if (lowered < 0) import_fail(in);
  *map_slot_pointer(in->context, &in->primitives, primitive) = (void *)(uintptr_t)name;
  if (!lowered) *map_slot_pointer(in->context, &in->unlowered, name) = primitive;
  int custom = PySequence_Contains(in->request.custom, text);
  if (custom < 0) import_fail(in);
  if (custom) *map_slot_pointer(in->context, &in->custom, name) = primitive;
  return name;
}

/* What no plugin lowers may be a jaxpr in disguise: one more parameter. */
static void import_expansion(Importer *in, PyObject *object, Equation *equation) {
  PyObject *jaxpr = own(in, PyObject_CallFunctionObjArgs(in->request.expand, object, NULL));
  if (jaxpr == Py_None) return;
  keep_alive(in, jaxpr);
  Param *params = arena_new_array(&in->context->arena, equation->param_count + 1, Param);
  copy_bytes(params, equation->params, equation->param_count * sizeof *params);
  Str name = str_intern(in->context, "expansion");
  params[equation->param_count++] = (Param){.kind = PARAM_JAXPR, .name = name, .jaxpr = import_jaxpr(in, jaxpr)};
  equation->params = params;
}

static bool touches_complex(const Equation *equation) {
  for (uint32_t i = 0; i < equation->input_count; i++) {
    if (dtype_kind(equation->inputs[i]->type.dtype) == KIND_COMPLEX) return true;
  }
  for (uint32_t i = 0; i < equation->output_count; i++) {
    if (dtype_kind(equation->outputs[i]->type.dtype) == KIND_COMPLEX) return true;
  }
  return false;
}

/* Some plugins are for real numbers only. */
static bool needs_expansion(Importer *in, const Equation *equation) {
  if (map_get_pointer(&in->unlowered, equation->primitive)) return true;
  return touches_complex(equation) && !lowers_complex(equation->primitive);
}

static Equation *import_equation(Importer *in, PyObject *object, uint64_t scope) {
  size_t mark = in->owned.count;
  Equation *equation = arena_new(&in->context->arena, Equation);
  equation->primitive = import_primitive(in, attribute(in, object, NAME_primitive));
  equation->inputs = import_atoms(in, attribute(in, object, NAME_invars), scope, &equation->input_count);
  equation->outputs = import_atoms(in, attribute(in, object, NAME_outvars), scope, &equation->output_count);
  PyObject *source_info = attribute(in, object, NAME_source_info);
  const Module *module = import_module(in, source_info);
  equation->trace = trace_in_module(in->program->provenance, import_trace(in, source_info), module);
  PyObject *params = attribute(in, object, NAME_params);
  if (!PyDict_Check(params)) fail(in->context, ERROR_INTERNAL, "an equation's parameters are not a dict");
  equation->params = import_fields(in, params, &equation->param_count);
  equation->has_effects = PyObject_Size(attribute(in, object, NAME_effects)) != 0;
  if (PyErr_Occurred()) import_fail(in);
  if (map_get_pointer(&in->custom, equation->primitive)) {
    keep_alive(in, object);
    equation->source = object;
  } else if (needs_expansion(in, equation)) {
    import_expansion(in, object, equation);
  }
  disown_to(in, mark);
  return equation;
}

static Str import_jaxpr_name(Importer *in, PyObject *jaxpr) {
  PyObject *debug = PyObject_GetAttr(jaxpr, in->names[NAME_debug_info]);
  if (!debug) {
    PyErr_Clear();
    return NULL;
  }
  own(in, debug);
  PyObject *name = PyObject_GetAttr(debug, in->names[NAME_func_name]);
  if (!name) {
    PyErr_Clear();
    return NULL;
  }
  own(in, name);
  return PyUnicode_Check(name) ? import_text(in, name) : NULL;
}

/* Up to JAX 0.10 a closed jaxpr is an object of its own around a jaxpr; later a jaxpr may carry its consts itself. */
Jaxpr *import_jaxpr(Importer *in, PyObject *object) {
  void *known = map_get_pointer(&in->jaxprs, object);
  if (known) return known;
  size_t mark = in->owned.count;
  bool closed = Py_TYPE(object) == (PyTypeObject *)in->closed_jaxpr_class && in->closed_jaxpr_class != in->jaxpr_class;
  PyObject *open = closed ? attribute(in, object, NAME_jaxpr) : object;
  PyObject *consts = PyObject_GetAttr(object, in->names[NAME_consts]);
  if (consts) own(in, consts);
  else PyErr_Clear();
  if (consts == Py_None) consts = NULL;
  uint64_t scope = ++in->scope_count;
  Jaxpr *jaxpr = arena_new(&in->context->arena, Jaxpr);
  jaxpr->name = import_jaxpr_name(in, open);
  jaxpr->consts = import_atoms(in, attribute(in, open, NAME_constvars), scope, &jaxpr->const_count);
  PyObject *values = consts ? own(in, PySequence_Tuple(consts)) : NULL;
  if (values && (uint32_t)PyTuple_Size(values) == jaxpr->const_count) {
    for (uint32_t i = 0; i < jaxpr->const_count; i++) {
      jaxpr->consts[i]->literal = import_const(in, PyTuple_GetItem(values, i));
    }
  }
  jaxpr->inputs = import_atoms(in, attribute(in, open, NAME_invars), scope, &jaxpr->input_count);
  PyObject *equations = own(in, PySequence_Tuple(attribute(in, open, NAME_eqns)));
  jaxpr->equation_count = (size_t)PyTuple_Size(equations);
  jaxpr->equations = arena_new_array(&in->context->arena, jaxpr->equation_count, Equation *);
  map_reserve(in->context, &in->vars, jaxpr->equation_count);
  if (++in->depth > 200) fail(in->context, ERROR_UNSUPPORTED, "jaxprs are nested more than 200 deep");
  for (size_t i = 0; i < jaxpr->equation_count; i++) {
    jaxpr->equations[i] = import_equation(in, PyTuple_GetItem(equations, (Py_ssize_t)i), scope);
  }
  in->depth--;
  jaxpr->outputs = import_atoms(in, attribute(in, open, NAME_outvars), scope, &jaxpr->output_count);
  jaxpr_link(jaxpr);
  disown_to(in, mark);
  *map_slot_pointer(in->context, &in->jaxprs, object) = jaxpr;
  return jaxpr;
}

/* One tensor per array object, however many jaxprs close over it. */
const Tensor *import_const(Importer *in, PyObject *array) {
  void *known = map_get_pointer(&in->tensors, array);
  if (known) return known;
  const Tensor *tensor = import_tensor(in, array);
  keep_alive(in, array);
  *map_slot_pointer(in->context, &in->tensors, array) = (void *)(uintptr_t)tensor;
  if (tensor->size && PyList_Append(in->arrays, array) != 0) import_fail(in);
  return tensor;
}

static PyObject *class_named(Importer *in, const char *name) {
  PyObject *found = PyDict_GetItemString(in->request.types, name);
  if (!found) {
    PyErr_Format(PyExc_KeyError, "types has no %s", name);
    import_fail(in);
  }
  return found;
}

Importer *importer_new(Context *context, const ImportRequest *request) {
  Importer *in = arena_new(&context->arena, Importer);
  in->context = context;
  in->request = *request;
  return in;
}

static void prepare(Importer *in) {
  static const char *const names[] = {
#define NAME(identifier, text) text,
#include "python/attributes.inc"
#undef NAME
  };
  for (int i = 0; i < NAME_COUNT; i++) {
    in->names[i] = PyUnicode_InternFromString(names[i]);
    if (!in->names[i]) import_fail(in);
  }
  in->traces = PyDict_New();
  in->kept = PyList_New(0);
  in->arrays = PyList_New(0);
  in->parts = PyList_New(0);
  if (!in->traces || !in->kept || !in->arrays || !in->parts) import_fail(in);
  in->literal_class = class_named(in, "Literal");
  in->jaxpr_class = class_named(in, "Jaxpr");
  in->closed_jaxpr_class = class_named(in, "ClosedJaxpr");
  in->dim_class = class_named(in, "DimExpr");
  in->enum_class = class_named(in, "Enum");
  in->dtype_class = class_named(in, "dtype");
  in->array_class = class_named(in, "Array");
  in->integer_class = class_named(in, "integer");
  in->typed_array_class = class_named(in, "TypedNdArray");
  in->ascontiguous = class_named(in, "contiguous");
  in->as_array = class_named(in, "asarray");
  in->scope_class = class_named(in, "Scope");
  in->part_class = class_named(in, "Part");
  in->fetched_class = class_named(in, "Fetched");
  in->user_scope_class = class_named(in, "UserScope");
  in->expand_code = PyObject_GetAttr(in->request.expand, in->names[NAME_code]);
  if (!in->expand_code) import_fail(in);
  Py_DECREF(in->expand_code); /* the function keeps it */
}

/* Parameters are named by the path on which the caller finds them: one question for all of them. */
static void name_tensors(Importer *in) {
  Py_ssize_t count = PyList_Size(in->arrays);
  if (!count) return;
  PyObject *names = own(in, PyObject_CallFunctionObjArgs(in->request.name_parameters, in->arrays, NULL));
  if (!PyList_Check(names) || PyList_Size(names) != count) {
    PyErr_SetString(PyExc_TypeError, "name_parameters must return one name per array");
    import_fail(in);
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *name = PyList_GetItem(names, i);
    Tensor *tensor = map_get_pointer(&in->tensors, PyList_GetItem(in->arrays, i));
    if (PyUnicode_Check(name)) tensor->name = import_text(in, name);
  }
  disown_to(in, 0);
}

/* (path, class, (class, its bases…)) into a module; nothing when it is None: no part of this model. */
static void read_module(Importer *in, PyObject *named, Module *module) {
  if (!PyTuple_Check(named) || PyTuple_Size(named) != 3 || !PyTuple_Check(PyTuple_GetItem(named, 2))) return;
  PyObject *classes = PyTuple_GetItem(named, 2);
  module->path = import_text(in, PyTuple_GetItem(named, 0));
  module->class_name = import_text(in, PyTuple_GetItem(named, 1));
  module->class_count = (size_t)PyTuple_Size(classes);
  Str *names = arena_new_array(&in->context->arena, module->class_count, Str);
  for (size_t i = 0; i < module->class_count; i++) {
    names[i] = import_text(in, PyTuple_GetItem(classes, (Py_ssize_t)i));
  }
  module->classes = names;
}

/* Parts of the model by the path on which their parameters are found, and their classes. The answer may go on with
 * parts that were not running, but hold those that were. */
static void name_modules(Importer *in) {
  Py_ssize_t count = PyList_Size(in->parts);
  if (!count) return;
  PyObject *named = own(in, PyObject_CallFunctionObjArgs(in->request.name_modules, in->parts, NULL));
  if (!PyList_Check(named) || PyList_Size(named) < count) {
    PyErr_SetString(PyExc_TypeError, "name_modules must return one item per part");
    import_fail(in);
  }
  ARRAY(const Module *) modules = {0};
  Map paths = {0};
  for (Py_ssize_t i = 0; i < PyList_Size(named); i++) {
    Module *module = i < count ? map_get_pointer(&in->modules, PyList_GetItem(in->parts, i))
                               : arena_new(&in->context->arena, Module);
    read_module(in, PyList_GetItem(named, i), module);
    void **known = module->path ? map_slot_pointer(in->context, &paths, module->path) : NULL;
    if (!known || *known) continue;
    *known = module;
    array_push(in->context, &modules, module);
  }
  for (size_t i = 0; i < in->insides.count; i++) module_settle(in->program->provenance, in->insides.items[i]);
  in->program->provenance->modules = modules.items;
  in->program->provenance->module_count = modules.count;
  disown_to(in, 0);
}

void importer_read_sources(Importer *in, Provenance *provenance) {
  if (in->request.read_sources == Py_None) return;
  PyObject *paths = own(in, PyList_New(0));
  for (size_t i = 0; i < in->user_files.count; i++) {
    PyObject *path = own(in, PyUnicode_FromString(in->user_files.items[i]));
    if (PyList_Append(paths, path) != 0) import_fail(in);
  }
  PyObject *found = own(in, PyObject_CallFunctionObjArgs(in->request.read_sources, paths, NULL));
  ARRAY(SourceFile) sources = {0};
  for (size_t i = 0; i < in->user_files.count && PyList_Check(found); i++) {
    PyObject *pair = (Py_ssize_t)i < PyList_Size(found) ? PyList_GetItem(found, (Py_ssize_t)i) : Py_None;
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) continue; /* it is not there any more */
    PyObject *text = PyTuple_GetItem(pair, 1);
    SourceFile source = {.path = in->user_files.items[i], .digest = import_text(in, PyTuple_GetItem(pair, 0))};
    if (text != Py_None) source.text = import_text(in, text);
    array_push(in->context, &sources, source);
  }
  provenance->sources = sources.items;
  provenance->source_count = sources.count;
  disown_to(in, 0);
}

Program *importer_run(Importer *in, Provenance *provenance) {
  prepare(in);
  in->program = program_new(in->context, provenance);
  in->program->main = import_jaxpr(in, in->request.jaxpr);
  if (in->request.weights != Py_None) bind_weights(in, in->program->main, in->request.weights);
  name_tensors(in);
  name_modules(in);
  program_place_shared_bodies(in->program);
  map_release(in->context, &in->vars);
  return in->program;
}

void importer_watch(Importer *in, PyThreadState **state) { in->state = state; }

void importer_release(Importer *in) {
  release_fetched(in);
  disown_to(in, 0);
  PyMem_Free(in->owned.items);
  in->owned.items = NULL;
  for (int i = 0; i < NAME_COUNT; i++) Py_CLEAR(in->names[i]);
  Py_CLEAR(in->traces);
  Py_CLEAR(in->kept);
  Py_CLEAR(in->arrays);
  Py_CLEAR(in->parts);
}
