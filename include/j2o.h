/* jax2onnx, the core library: models from records and texts, without Python. Everything public has the prefix j2o_.
 *
 *   J2oError error;
 *   J2oModel *model = j2o_convert_file("bug.txt", &error);
 *   if (!model) { fprintf(stderr, "%s\n", error.message); return 1; }
 *   j2o_write(model, "model.onnx", &error);
 *   j2o_model_free(model);
 *
 * A model is an object of its own: two threads may use two models at once, one model only one thread at a time. Texts
 * that a function gives belong to the model and live as long as it does. There are no globals.
 */
#ifndef J2O_H
#define J2O_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define J2O_PUBLIC __attribute__((visibility("default")))
#else
#define J2O_PUBLIC
#endif

typedef enum J2oStatus {
  J2O_OK,
  J2O_MEMORY,      /* there is not enough */
  J2O_INTERNAL,    /* a fault of this library */
  J2O_VALUE,       /* an argument or an option that cannot be */
  J2O_UNSUPPORTED, /* a program that no model can hold */
  J2O_FORMAT,      /* a file or a text is malformed; the message names the place */
  J2O_IO,          /* a file cannot be read or written */
} J2oStatus;

/* Every function that can fail takes one, or NULL, and gives NULL or 0 when it failed. */
typedef struct J2oError {
  J2oStatus status;
  char message[1024];
} J2oError;

typedef struct J2oModel J2oModel;

/* The version of the library, "major.minor.patch". */
J2O_PUBLIC const char *j2o_version(void);

/* A model from a record of an export, a program or a graph as text; a record's tensors are in the file beside it. */
J2O_PUBLIC J2oModel *j2o_convert_file(const char *path, J2oError *error);
/* The same from a text in memory, which holds all of its tensors. */
J2O_PUBLIC J2oModel *j2o_convert_text(const char *text, size_t length, J2oError *error);
/* A model file of any producer. Tensors in other files are not read. */
J2O_PUBLIC J2oModel *j2o_read_file(const char *path, J2oError *error);
J2O_PUBLIC void j2o_model_free(J2oModel *model); /* NULL: nothing */

/* The nodes of the main graph, in order. */
J2O_PUBLIC size_t j2o_node_count(const J2oModel *model);
J2O_PUBLIC const char *j2o_node_name(const J2oModel *model, size_t node);     /* NULL: it has none, or is none */
J2O_PUBLIC const char *j2o_node_operator(const J2oModel *model, size_t node); /* NULL past the last */
/* Where a node came from: the value of one of its metadata keys, "pkg.jax2onnx.callsite" and its kin. NULL: not said.
 */
J2O_PUBLIC const char *j2o_node_origin(J2oModel *model, size_t node, const char *key);

/* Runs one pass by its name, once, or with NULL all of them until nothing changes. 1 when it succeeded. */
J2O_PUBLIC int j2o_run_pass(J2oModel *model, const char *pass, J2oError *error);

/* The model in the ONNX text syntax. */
J2O_PUBLIC const char *j2o_print(J2oModel *model, J2oError *error);

/* Writes a model file, which takes its name when it is whole. 1 when it succeeded. */
J2O_PUBLIC int j2o_write(J2oModel *model, const char *path, J2oError *error);

#ifdef __cplusplus
}
#endif

#endif
