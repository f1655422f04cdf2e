/* Importer: the state of one import, shared by import.c (structure) and parameters.c (parameters). */
#ifndef J2O_PYTHON_IMPORTER_H
#define J2O_PYTHON_IMPORTER_H

#include "python/import.h"

enum {
#define NAME(identifier, text) NAME_##identifier,
#include "python/attributes.inc"
#undef NAME
  NAME_COUNT
};

typedef struct FetchedArray FetchedArray; /* bind_weights.c */

/* How the objects of a class give an attribute. */
typedef struct AttributeOfClass {
  PyTypeObject *class;
  PyObject *descriptor; /* NULL: in the general way */
  descrgetfunc get;
} AttributeOfClass;

struct Importer {
  Context *context;
  ImportRequest request;
  Program *program;
  struct {
    PyObject **items;
    size_t count, capacity;
  } owned;                                  /* references of the import in progress, a stack */
  PyObject *kept;                           /* list: what must live until the model is written */
  PyObject *arrays;                         /* list: the closed-over arrays, in order of first sight */
  PyObject *parts;                          /* list: the parts of the model that were running, likewise */
  PyObject *names[NAME_COUNT];              /* interned attribute names */
  AttributeOfClass of_class[NAME_COUNT][2]; /* of the first classes that were asked: Var and Literal */
  PyObject *literal_class, *jaxpr_class, *closed_jaxpr_class, *dim_class, *enum_class, *dtype_class, *array_class,
      *typed_array_class, *integer_class;
  PyObject *ascontiguous, *as_array, *scope_class, *user_scope_class, *part_class, *fetched_class;
  FetchedArray *fetched; /* the last one */
  PyThreadState **state; /* of the conversion: NULL in it while the interpreter lock is held */
  PyObject *expand_code; /* of request.expand: what it traces starts behind its frame */
  PyObject *traces;      /* dict: traceback -> address of its Trace */
  Map vars;              /* (Var object, scope) -> Var */
  Map types;             /* aval -> Type */
  Map code_lines, code_spans;
  Map jaxprs, dtypes, frames, file_kinds, primitives, unlowered, custom, tensors, type_kinds;
  ARRAY(Str) user_files;   /* that frames name, in order of first sight */
  Map modules;             /* part -> Module */
  ARRAY(Module *) insides; /* scopes in parts whose paths are not known yet */
  PyObject *last_names;    /* the name stack of the last equation, and what it says */
  const Module *last_module;
  uint64_t scope_count; /* each imported jaxpr is a scope of variables */
  int depth;
};

_Noreturn void import_fail(Importer *in);
PyObject *own(Importer *in, PyObject *object); /* takes over a new reference; fails on NULL */
void disown_to(Importer *in, size_t mark);
PyObject *attribute(Importer *in, PyObject *object, int name); /* owned */
Str import_text(Importer *in, PyObject *object);
DType import_dtype(Importer *in, PyObject *object);
const Tensor *import_tensor(Importer *in, PyObject *object);
const Tensor *import_const(Importer *in, PyObject *array);
Jaxpr *import_jaxpr(Importer *in, PyObject *object);

/* code_lines.c: where in its file the instruction at an offset of a code object stands */
int code_line(Importer *in, PyObject *code, int offset); /* -1: nowhere */
bool code_span(Importer *in, PyObject *code, int offset, Span *span);

Type import_abstract(Importer *in, PyObject *aval); /* of anything that has a shape and a dtype */

/* bind_weights.c */
const Tensor *import_fetched(Importer *in, PyObject *object);
void release_fetched(Importer *in);
/* The first inputs are weights, one (name, where it is) for each: they become constants. */
void bind_weights(Importer *in, Jaxpr *jaxpr, PyObject *weights);

/* parameters.c */
Dim import_dim(Importer *in, PyObject *object);
Param *import_fields(Importer *in, PyObject *dict, uint32_t *count);
Param import_param(Importer *in, PyObject *object);

#endif
