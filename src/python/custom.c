/* Plugins of the user's, written in Python.
 *
 * The Python function only records what it emits (jax2onnx/_door/plugins.py). With the interpreter lock the record is
 * read into steps; without it they are carried out. So no error of ours unwinds through the interpreter, and the lock
 * is given back on every way out. */
#include "python/custom.h"

#include <string.h>

#include "python/importer.h"

typedef enum StepKind { STEP_NODE, STEP_CONSTANT, STEP_SHAPE } StepKind;

typedef struct Step {
  StepKind kind;
  const Tensor *tensor; /* of a constant */
  const Dim *dims;      /* of a shape */
  size_t dim_count;
  Str op, domain;
  int64_t version;
  const int64_t *inputs; /* numbers of values; -1: left out */
  size_t input_count;
  const Type *types;
  size_t type_count;
  const Attribute *attributes;
  size_t attribute_count;
  const PluginFrame *frames;
  size_t frame_count;
} Step;

typedef struct Record {
  Lowering *l;
  CustomCalls *calls;
  Step *steps;
  size_t step_count;
  const int64_t *results;
  Str refusal; /* the plugin's reason not to lower the equation, or NULL */
} Record;

enum { LARGEST_CONSTANT = 1 << 16 /* bytes of an input's value that the plugin is shown */ };

/* ---- reading ---- */

static PyObject *item(Importer *in, PyObject *tuple, Py_ssize_t index) {
  if (!PyTuple_Check(tuple) || index >= PyTuple_Size(tuple)) {
    fail(in->context, ERROR_INTERNAL, "malformed plugin record");
  }
  return PyTuple_GetItem(tuple, index);
}

static size_t length(Importer *in, PyObject *tuple) {
  if (!PyTuple_Check(tuple)) fail(in->context, ERROR_INTERNAL, "malformed plugin record");
  return (size_t)PyTuple_Size(tuple);
}

static int64_t integer(Importer *in, PyObject *object) {
  int64_t value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred()) import_fail(in);
  return value;
}

static const int64_t *integers(Importer *in, PyObject *tuple, size_t *count) {
  *count = length(in, tuple);
  int64_t *values = arena_new_array(&in->context->arena, *count, int64_t);
  for (size_t i = 0; i < *count; i++) values[i] = integer(in, PyTuple_GetItem(tuple, (Py_ssize_t)i));
  return values;
}

static const Dim *dims(Importer *in, PyObject *tuple, size_t *count) {
  *count = length(in, tuple);
  if (*count > MAX_RANK) fail(in->context, ERROR_VALUE, "a plugin emits a value of more than %d dimensions", MAX_RANK);
  Dim *values = arena_new_array(&in->context->arena, *count, Dim);
  for (size_t i = 0; i < *count; i++) values[i] = import_dim(in, PyTuple_GetItem(tuple, (Py_ssize_t)i));
  return values;
}

static const Type *types(Importer *in, PyObject *tuple, size_t *count) {
  *count = length(in, tuple);
  Type *values = arena_new_array(&in->context->arena, *count, Type);
  for (size_t i = 0; i < *count; i++) {
    PyObject *pair = PyTuple_GetItem(tuple, (Py_ssize_t)i);
    size_t rank;
    values[i].dtype = import_dtype(in, item(in, pair, 0));
    values[i].dims = dims(in, item(in, pair, 1), &rank);
    values[i].rank = (uint32_t)rank;
  }
  return values;
}

/* The text of an attribute means something to whoever runs the node: it is taken as it is, or not at all. */
static Str attribute_text(Importer *in, const Attribute *attribute, PyObject *object) {
  if (PyUnicode_Check(object) && PyUnicode_FindChar(object, 0, 0, PyUnicode_GetLength(object), 1) >= 0) {
    fail(in->context, ERROR_VALUE, "the attribute '%s' emitted by a plugin contains a NUL", attribute->name);
  }
  return import_text(in, object);
}

/* (name, kind, value), where kind is the first letter of ONNX's word for it, a capital for a list. */
static Attribute attribute_of(Importer *in, PyObject *triple) {
  Attribute result = {.name = import_text(in, item(in, triple, 0))};
  Str kind = import_text(in, item(in, triple, 1));
  PyObject *value = item(in, triple, 2);
  Arena *arena = &in->context->arena;
  switch (kind[0]) {
    case 'i':
      result.kind = ATTRIBUTE_INT;
      result.integer = integer(in, value);
      break;
    case 'f':
      result.kind = ATTRIBUTE_FLOAT;
      result.real = (float)PyFloat_AsDouble(value);
      break;
    case 's':
      result.kind = ATTRIBUTE_STRING;
      result.string = attribute_text(in, &result, value);
      break;
    case 't':
      result.kind = ATTRIBUTE_TENSOR;
      result.tensor = import_tensor(in, value);
      break;
    case 'I':
      result.kind = ATTRIBUTE_INTS;
      result.integers = integers(in, value, &result.count);
      break;
    case 'F': {
      result.kind = ATTRIBUTE_FLOATS;
      result.count = length(in, value);
      float *reals = arena_new_array(arena, result.count, float);
      for (size_t i = 0; i < result.count; i++) reals[i] = (float)PyFloat_AsDouble(item(in, value, (Py_ssize_t)i));
      result.reals = reals;
      break;
    }
    default: {
      result.kind = ATTRIBUTE_STRINGS;
      result.count = length(in, value);
      Str *strings = arena_new_array(arena, result.count, Str);
      for (size_t i = 0; i < result.count; i++) {
        strings[i] = attribute_text(in, &result, item(in, value, (Py_ssize_t)i));
      }
      result.strings = strings;
    }
  }
  if (PyErr_Occurred()) import_fail(in);
  return result;
}

static void read_node(Importer *in, PyObject *record, Step *step) {
  Arena *arena = &in->context->arena;
  step->op = import_text(in, item(in, record, 1));
  step->domain = import_text(in, item(in, record, 2));
  step->version = integer(in, item(in, record, 3));
  step->inputs = integers(in, item(in, record, 4), &step->input_count);
  step->types = types(in, item(in, record, 5), &step->type_count);
  PyObject *attributes = item(in, record, 6), *frames = item(in, record, 7);
  step->attribute_count = length(in, attributes);
  Attribute *read = arena_new_array(arena, step->attribute_count, Attribute);
  for (size_t i = 0; i < step->attribute_count; i++) read[i] = attribute_of(in, item(in, attributes, (Py_ssize_t)i));
  step->attributes = read;
  step->frame_count = length(in, frames);
  PluginFrame *places = arena_new_array(arena, step->frame_count, PluginFrame);
  for (size_t i = 0; i < step->frame_count; i++) {
    PyObject *triple = item(in, frames, (Py_ssize_t)i);
    places[i].file = import_text(in, item(in, triple, 0));
    places[i].function = import_text(in, item(in, triple, 1));
    places[i].line = (int)integer(in, item(in, triple, 2));
  }
  step->frames = places;
}

static Step read_step(Importer *in, PyObject *record) {
  Step step = {.kind = STEP_NODE};
  Str kind = import_text(in, item(in, record, 0));
  if (strcmp(kind, "constant") == 0) {
    step.kind = STEP_CONSTANT;
    step.tensor = import_tensor(in, item(in, record, 1));
  } else if (strcmp(kind, "shape") == 0) {
    step.kind = STEP_SHAPE;
    step.dims = dims(in, item(in, record, 1), &step.dim_count);
  } else {
    read_node(in, record, &step);
  }
  return step;
}

/* The bytes of inputs that are known and small; None for the others. */
static PyObject *constants(Importer *in, Lowering *l) {
  PyObject *list = own(in, PyList_New(0));
  for (uint32_t i = 0; i < l->equation->input_count; i++) {
    const Tensor *tensor = input_literal(l, i);
    bool shown = tensor && tensor->data && tensor->size <= LARGEST_CONSTANT && dtype_bits(tensor->dtype) >= 8;
    PyObject *bytes = shown ? PyBytes_FromStringAndSize(tensor->data, (Py_ssize_t)tensor->size) : Py_NewRef(Py_None);
    if (PyList_Append(list, own(in, bytes)) != 0) import_fail(in);
  }
  return list;
}

static PyObject *place(Importer *in, Lowering *l) {
  const Frame *frame = l->site ? site_user_frame(l->provenance, l->site) : NULL;
  if (!frame) return own(in, Py_NewRef(Py_None));
  return own(in, Py_BuildValue("(ssi)", frame->file, frame->function, frame->line));
}

static void call_and_read(void *argument) {
  Record *record = argument;
  Importer *in = record->calls->importer;
  Lowering *l = record->l;
  size_t mark = in->owned.count;
  PyObject *arguments = own(in, Py_BuildValue("(sOLOO)", l->equation->primitive, (PyObject *)l->equation->source,
                                              (long long)l->model->opset, constants(in, l), place(in, l)));
  PyObject *answer = own(in, PyObject_CallObject(record->calls->lower, arguments));
  PyObject *steps = item(in, answer, 0), *refusal = item(in, answer, 2);
  size_t result_count;
  if (refusal != Py_None) record->refusal = import_text(in, refusal);
  record->step_count = length(in, steps);
  record->steps = arena_new_array(&in->context->arena, record->step_count, Step);
  for (size_t i = 0; i < record->step_count; i++) record->steps[i] = read_step(in, item(in, steps, (Py_ssize_t)i));
  record->results = integers(in, item(in, answer, 1), &result_count);
  require(in->context, record->refusal || result_count == l->equation->output_count);
  disown_to(in, mark);
}

/* ---- carrying out ---- */

static void set_attribute(Node *node, const Attribute *attribute) {
  switch (attribute->kind) {
    case ATTRIBUTE_INT: node_set_int(node, attribute->name, attribute->integer); break;
    case ATTRIBUTE_FLOAT: node_set_float(node, attribute->name, attribute->real); break;
    case ATTRIBUTE_STRING: node_set_string(node, attribute->name, attribute->string); break;
    case ATTRIBUTE_TENSOR: node_set_tensor(node, attribute->name, attribute->tensor); break;
    case ATTRIBUTE_INTS: node_set_ints(node, attribute->name, attribute->integers, attribute->count); break;
    case ATTRIBUTE_FLOATS: node_set_floats(node, attribute->name, attribute->reals, attribute->count); break;
    default: node_set_strings(node, attribute->name, attribute->strings, attribute->count); break;
  }
}

typedef ARRAY(Value *) ValueList;

static Value *numbered(Lowering *l, const ValueList *values, int64_t number) {
  require(l->context, number >= 0 && (size_t)number < values->count);
  return values->items[number];
}

static void carry_out(Lowering *l, const Step *step, ValueList *values) {
  if (step->kind == STEP_CONSTANT) {
    array_push(l->context, values, constant(l, step->tensor));
    return;
  }
  if (step->kind == STEP_SHAPE) {
    array_push(l->context, values, shape_value(l, step->dims, step->dim_count));
    return;
  }
  Value **inputs = arena_new_array(&l->context->arena, step->input_count, Value *);
  for (size_t i = 0; i < step->input_count; i++) {
    inputs[i] = step->inputs[i] < 0 ? NULL : numbered(l, values, step->inputs[i]);
  }
  if (step->domain[0]) import_domain(l, step->domain, step->version);
  Node *node = emit_custom(l, step->frames, step->frame_count, step->op, step->domain, step->types, step->type_count,
                           inputs, step->input_count);
  for (size_t i = 0; i < step->attribute_count; i++) set_attribute(node, &step->attributes[i]);
  for (uint32_t i = 0; i < node->output_count; i++) array_push(l->context, values, node->outputs[i]);
}

void lower_in_python(Lowering *l, void *data) {
  CustomCalls *calls = data;
  Record record = {.l = l, .calls = calls};
  PyEval_RestoreThread(*calls->state);
  *calls->state = NULL;
  bool done = context_protect(l->context, call_and_read, &record);
  *calls->state = PyEval_SaveThread();
  if (!done) fail_text(l->context, l->context->error, l->context->message);
  if (record.refusal) unsupported(l, "%s", record.refusal);
  ValueList values = {0};
  for (uint32_t i = 0; i < l->equation->input_count; i++) array_push(l->context, &values, input(l, i));
  for (size_t i = 0; i < record.step_count; i++) carry_out(l, &record.steps[i], &values);
  for (uint32_t i = 0; i < l->equation->output_count; i++) bind(l, i, numbered(l, &values, record.results[i]));
}
