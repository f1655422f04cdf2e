/* Import: a jaxpr of JAX's, read once and generically into a Program. What a primitive means is not known here. */
#ifndef J2O_PYTHON_IMPORT_H
#define J2O_PYTHON_IMPORT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "program/program.h"

typedef struct Importer Importer;

/* Everything borrowed from Python; the caller keeps these alive. Fails with ERROR_PYTHON when an exception is set. */
typedef struct ImportRequest {
  PyObject *jaxpr;           /* a ClosedJaxpr */
  PyObject *types;           /* the classes to know: dict of name -> class, see jax2onnx/_jax_types.py */
  PyObject *name_parameters; /* called once with the list of closed-over arrays; gives a name or None for each */
  PyObject *name_modules;    /* called once, after that, with the list of parts; gives (path, class) or None for each */
  PyObject *jax_folders;     /* tuple of str: frames under these are JAX's or ours */
  PyObject *library_folders; /* tuple of str: frames under these are a library's */
  PyObject *lowered;         /* the names of the primitives that have a lowering: anything with `in` */
  PyObject *custom;          /* tuple of str: the primitives that plugins of the user's lower */
  PyObject *expand;          /* a function, called with an equation of another primitive; gives a jaxpr or None */
  PyObject *read_sources;    /* None, or called with a list of paths; gives (digest, text or None) or None for each */
  PyObject *weights;         /* None, or a list for the first inputs, which are weights; see bind_weights.c */
  bool spans;                /* whether the columns of expressions are wanted */
} ImportRequest;

/* Owned references that keep the tensors' memory alive; release with importer_release when the model is written. */
Importer *importer_new(Context *context, const ImportRequest *request);
Program *importer_run(Importer *importer, Provenance *provenance);
/* (file, function, line) triples to frames; the first triple is the outermost call. */
Frame *importer_frame(Importer *importer, Provenance *provenance, PyObject *triple);
/* After all frames are known: what the user's files hold. */
void importer_read_sources(Importer *importer, Provenance *provenance);
/* Where the state of the thread is while it has no interpreter lock; NULL in it while it has. */
void importer_watch(Importer *importer, PyThreadState **state);
void importer_release(Importer *importer);

#endif
