/* Importing parameters generically: Python values by their shape, never by the primitive they belong to. */
#include <string.h>

#include "python/importer.h"

typedef enum ValueKind {
  VALUE_UNKNOWN,
  VALUE_NONE,
  VALUE_BOOL,
  VALUE_INT,
  VALUE_FLOAT,
  VALUE_COMPLEX,
  VALUE_STRING,
  VALUE_LIST,
  VALUE_SET,
  VALUE_DICT,
  VALUE_NAMED_TUPLE,
  VALUE_DATACLASS,
  VALUE_ENUM,
  VALUE_DTYPE,
  VALUE_TYPE,
  VALUE_JAXPR,
  VALUE_DIM,
  VALUE_ARRAY,
  VALUE_TREE,
  VALUE_MESH,
  VALUE_PRIMITIVE,
  VALUE_PRIMITIVE_NAME,
  VALUE_OPAQUE,
} ValueKind;

static bool is_instance(Importer *in, PyObject *object, PyObject *class_or_tuple) {
  int answer = PyObject_IsInstance(object, class_or_tuple);
  if (answer < 0) import_fail(in);
  return answer != 0;
}

static ValueKind classify(Importer *in, PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  if (object == Py_None) return VALUE_NONE;
  if (PyBool_Check(object)) return VALUE_BOOL;
  if (is_instance(in, object, in->enum_class)) return VALUE_ENUM;
  if (PyLong_Check(object) || is_instance(in, object, in->integer_class)) return VALUE_INT;
  if (PyFloat_Check(object)) return VALUE_FLOAT;
  if (PyComplex_Check(object)) return VALUE_COMPLEX;
  if (PyUnicode_Check(object)) return VALUE_STRING;
  if (PyTuple_Check(object)) {
    return PyObject_HasAttr((PyObject *)type, in->names[NAME_fields]) ? VALUE_NAMED_TUPLE : VALUE_LIST;
  }
  if (PyList_Check(object) || type == &PyRange_Type) return VALUE_LIST;
  if (PyAnySet_Check(object)) return VALUE_SET;
  if (PyDict_Check(object)) return VALUE_DICT;
  if (is_instance(in, object, in->jaxpr_class) || is_instance(in, object, in->closed_jaxpr_class)) return VALUE_JAXPR;
  if (is_instance(in, object, in->dtype_class)) return VALUE_DTYPE;
  if (is_instance(in, object, in->dim_class)) return VALUE_DIM;
  if (is_instance(in, object, in->array_class)) return VALUE_ARRAY;
  if (PyType_Check(object)) return VALUE_TYPE;
  if (PyIndex_Check(object)) return VALUE_INT; /* NumPy's scalars are no Python numbers, but act as such */
  if (PyType_GetSlot(type, Py_nb_float)) return VALUE_FLOAT;
  if (PyObject_HasAttr((PyObject *)type, in->names[NAME_dataclass_fields])) return VALUE_DATACLASS;
  if (PyObject_HasAttr((PyObject *)type, in->names[NAME_unpackable])) return VALUE_TREE;
  if (PyObject_HasAttr((PyObject *)type, in->names[NAME_axis_sizes])) return VALUE_MESH;
  if (PyObject_HasAttr((PyObject *)type, in->names[NAME_pp_params])) return VALUE_PRIMITIVE;
  if (PyObject_HasAttr((PyObject *)type, in->names[NAME_multiple_results])) return VALUE_PRIMITIVE_NAME;
  return VALUE_OPAQUE;
}

/* The kind depends on the type alone, so it is found once per type. */
static ValueKind kind_of(Importer *in, PyObject *object) {
  void *known = map_get_pointer(&in->type_kinds, Py_TYPE(object));
  if (known) return (ValueKind)(uintptr_t)known;
  ValueKind kind = classify(in, object);
  *map_slot_pointer(in->context, &in->type_kinds, Py_TYPE(object)) = (void *)(uintptr_t)kind;
  return kind;
}

static Str name_of(Importer *in, PyTypeObject *type) { return import_text(in, own(in, PyType_GetName(type))); }

static Str type_name(Importer *in, PyObject *object) { return name_of(in, Py_TYPE(object)); }

static Dim integer_dim(Importer *in, PyObject *object) {
  PyObject *index = own(in, PyNumber_Index(object));
  int64_t value = PyLong_AsLongLong(index);
  if (value == -1 && PyErr_Occurred()) import_fail(in);
  return dim_of(value);
}

static DimFactor import_factor(Importer *in, PyObject *pair) {
  PyObject *factor = PyTuple_GetItem(pair, 0);
  DimFactor result = {.power = PyLong_AsLongLong(PyTuple_GetItem(pair, 1))};
  PyObject *symbol = attribute(in, factor, NAME_var);
  if (symbol != Py_None) {
    result.op = DIM_SYMBOL;
    result.symbol = import_text(in, symbol);
    return result;
  }
  static const struct {
    const char *name;
    DimOp op;
  } operations[] = {
      {"floordiv", DIM_FLOORDIV},
      {"mod", DIM_MOD},
      {"max", DIM_MAX},
      {"min", DIM_MIN},
  };
  Str name = import_text(in, attribute(in, factor, NAME_operation));
  PyObject *operands = own(in, PySequence_Tuple(attribute(in, factor, NAME_operands)));
  for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
    if (strcmp(operations[i].name, name) != 0 || PyTuple_Size(operands) != 2) continue;
    result.op = operations[i].op;
    result.left = import_dim(in, PyTuple_GetItem(operands, 0));
    result.right = import_dim(in, PyTuple_GetItem(operands, 1));
    return result;
  }
  fail(in->context, ERROR_UNSUPPORTED, "a symbolic dimension uses the operation '%s', which is not supported", name);
}

static Dim symbolic_dim(Importer *in, PyObject *object) {
  PyObject *terms = own(in, PySequence_Tuple(attribute(in, object, NAME_sorted_terms)));
  size_t count = (size_t)PyTuple_Size(terms);
  DimTerm *result = arena_new_array(&in->context->arena, count, DimTerm);
  for (size_t t = 0; t < count; t++) {
    PyObject *pair = PyTuple_GetItem(terms, (Py_ssize_t)t);
    PyObject *factors = own(in, PySequence_Tuple(attribute(in, PyTuple_GetItem(pair, 0), NAME_factors)));
    result[t].coefficient = PyLong_AsLongLong(PyTuple_GetItem(pair, 1));
    result[t].factor_count = (size_t)PyTuple_Size(factors);
    DimFactor *items = arena_new_array(&in->context->arena, result[t].factor_count, DimFactor);
    for (size_t f = 0; f < result[t].factor_count; f++) {
      items[f] = import_factor(in, PyTuple_GetItem(factors, (Py_ssize_t)f));
    }
    dim_sort_factors(in->context, items, result[t].factor_count);
    result[t].factors = items;
  }
  if (PyErr_Occurred()) import_fail(in);
  return dim_from_terms(in->context, result, count);
}

Dim import_dim(Importer *in, PyObject *object) {
  if (PyLong_CheckExact(object)) {
    int64_t value = PyLong_AsLongLong(object);
    if (value == -1 && PyErr_Occurred()) import_fail(in);
    return dim_of(value);
  }
  size_t mark = in->owned.count;
  Dim dim = kind_of(in, object) == VALUE_DIM ? symbolic_dim(in, object) : integer_dim(in, object);
  disown_to(in, mark);
  return dim;
}

static Param import_integer(Importer *in, PyObject *object) {
  int overflow;
  if (!PyLong_Check(object)) object = own(in, PyNumber_Index(object)); /* NumPy's */
  int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (value == -1 && PyErr_Occurred()) import_fail(in);
  if (overflow) return (Param){.kind = PARAM_FLOAT, .real = PyFloat_AsDouble(object)};
  return (Param){.kind = PARAM_INT, .integer = value};
}

/* An array of one element, as NumPy's complex numbers are. */
static Param import_complex(Importer *in, PyObject *object) {
  PyObject *name = own(in, PyUnicode_FromString(dtype_name(DTYPE_COMPLEX128)));
  PyObject *array = own(in, PyObject_CallFunctionObjArgs(in->as_array, object, name, NULL));
  return (Param){.kind = PARAM_TENSOR, .tensor = import_tensor(in, array)};
}

static Param import_list(Importer *in, PyObject *object) {
  PyObject *tuple = own(in, PySequence_Tuple(object));
  Param param = {.kind = PARAM_LIST};
  param.list.count = (size_t)PyTuple_Size(tuple);
  param.list.items = arena_new_array(&in->context->arena, param.list.count, Param);
  for (size_t i = 0; i < param.list.count; i++) {
    param.list.items[i] = import_param(in, PyTuple_GetItem(tuple, (Py_ssize_t)i));
  }
  return param;
}

/* A set has no order of its own: sorted, so that the same program is imported the same way. */
static Param import_set(Importer *in, PyObject *object) {
  PyObject *list = own(in, PySequence_List(object));
  if (PyList_Sort(list) != 0) PyErr_Clear();
  return import_list(in, list);
}

static Param import_record(Importer *in, PyObject *object, PyObject *field_names) {
  PyObject *names = own(in, PySequence_Tuple(field_names));
  Param param = {.kind = PARAM_RECORD, .type_name = type_name(in, object)};
  param.list.count = (size_t)PyTuple_Size(names);
  param.list.items = arena_new_array(&in->context->arena, param.list.count, Param);
  for (size_t i = 0; i < param.list.count; i++) {
    PyObject *name = PyTuple_GetItem(names, (Py_ssize_t)i);
    PyObject *field = PyObject_GetAttr(object, name);
    if (!field) { /* a dataclass field that was never set */
      PyErr_Clear();
      param.list.items[i].kind = PARAM_OPAQUE;
    } else {
      param.list.items[i] = import_param(in, own(in, field));
    }
    param.list.items[i].name = import_text(in, name);
  }
  return param;
}

/* JAX's flat trees (from 0.11 on): a tuple of trees is the list of its parts, any other the list of its leaves. */
static Param import_tree(Importer *in, PyObject *object) {
  PyObject *parts = PyObject_CallMethodObjArgs(object, in->names[NAME_unpack], NULL);
  if (parts) return import_list(in, own(in, parts));
  if (!PyErr_ExceptionMatches(PyExc_Exception)) import_fail(in);
  PyErr_Clear();
  return import_list(in, attribute(in, object, NAME_vals));
}

/* Of a device mesh only its axes matter. */
static Param import_mesh(Importer *in, PyObject *object) {
  Param param = {.kind = PARAM_RECORD, .type_name = type_name(in, object), .list.count = 2};
  param.list.items = arena_new_array(&in->context->arena, 2, Param);
  static const int fields[] = {NAME_axis_names, NAME_axis_sizes};
  for (int i = 0; i < 2; i++) {
    param.list.items[i] = import_param(in, attribute(in, object, fields[i]));
    param.list.items[i].name = import_text(in, in->names[fields[i]]);
  }
  return param;
}

static Param import_enum(Importer *in, PyObject *object) {
  Param param = {.kind = PARAM_ENUM, .type_name = type_name(in, object)};
  PyObject *name = attribute(in, object, NAME_name);
  param.text2 = PyUnicode_Check(name) ? import_text(in, name) : str_intern(in->context, "");
  PyObject *value = attribute(in, object, NAME_value);
  if (PyLong_Check(value)) param.integer = import_integer(in, value).integer;
  return param;
}

static Param import_type(Importer *in, PyObject *object) {
  /* np.float32 and its like stand for their dtype; jnp.float32 has a dtype attribute. */
  Str name = name_of(in, (PyTypeObject *)object);
  DType dtype = dtype_from_name(name);
  if (dtype != DTYPE_NONE) return (Param){.kind = PARAM_DTYPE, .dtype = dtype};
  return (Param){.kind = PARAM_OPAQUE, .type_name = name};
}

static Param import_value(Importer *in, PyObject *object) {
  switch (kind_of(in, object)) {
    case VALUE_NONE: return (Param){.kind = PARAM_NONE};
    case VALUE_BOOL: return (Param){.kind = PARAM_BOOL, .integer = object == Py_True};
    case VALUE_INT: return import_integer(in, object);
    case VALUE_FLOAT: return (Param){.kind = PARAM_FLOAT, .real = PyFloat_AsDouble(object)};
    case VALUE_COMPLEX: return import_complex(in, object);
    case VALUE_STRING: return (Param){.kind = PARAM_STRING, .text = import_text(in, object)};
    case VALUE_LIST: return import_list(in, object);
    case VALUE_SET: return import_set(in, object);
    case VALUE_DICT: {
      Param param = {.kind = PARAM_RECORD, .type_name = type_name(in, object)};
      uint32_t count;
      param.list.items = import_fields(in, object, &count);
      param.list.count = count;
      return param;
    }
    case VALUE_NAMED_TUPLE: return import_record(in, object, attribute(in, (PyObject *)Py_TYPE(object), NAME_fields));
    case VALUE_DATACLASS:
      return import_record(in, object, attribute(in, (PyObject *)Py_TYPE(object), NAME_dataclass_fields));
    case VALUE_ENUM: return import_enum(in, object);
    case VALUE_DTYPE: return (Param){.kind = PARAM_DTYPE, .dtype = import_dtype(in, object)};
    case VALUE_TYPE: return import_type(in, object);
    case VALUE_JAXPR: return (Param){.kind = PARAM_JAXPR, .jaxpr = import_jaxpr(in, object)};
    case VALUE_DIM: return (Param){.kind = PARAM_DIM, .dim = import_dim(in, object)};
    case VALUE_ARRAY: return (Param){.kind = PARAM_TENSOR, .tensor = import_const(in, object)};
    case VALUE_TREE: return import_tree(in, object);
    case VALUE_MESH: return import_mesh(in, object);
    case VALUE_PRIMITIVE: return import_value(in, attribute(in, object, NAME_params));
    case VALUE_PRIMITIVE_NAME:
      return (Param){.kind = PARAM_STRING, .text = import_text(in, attribute(in, object, NAME_name))};
    case VALUE_UNKNOWN:
    case VALUE_OPAQUE: break;
  }
  return (Param){.kind = PARAM_OPAQUE, .type_name = type_name(in, object)};
}

Param import_param(Importer *in, PyObject *object) {
  if (++in->depth > 200) fail(in->context, ERROR_UNSUPPORTED, "a parameter is nested more than 200 deep");
  size_t mark = in->owned.count;
  Param param = import_value(in, object);
  disown_to(in, mark);
  in->depth--;
  return param;
}

/* The items of a dict whose keys are strings; other keys are named by their text. */
Param *import_fields(Importer *in, PyObject *dict, uint32_t *count) {
  Py_ssize_t size = PyDict_Size(dict), position = 0;
  Param *params = arena_new_array(&in->context->arena, (size_t)size, Param);
  PyObject *key, *value;
  uint32_t used = 0;
  while (used < (uint32_t)size && PyDict_Next(dict, &position, &key, &value)) {
    params[used] = import_param(in, value);
    PyObject *text = PyUnicode_Check(key) ? key : own(in, PyObject_Str(key));
    params[used++].name = import_text(in, text);
  }
  *count = used;
  return params;
}
