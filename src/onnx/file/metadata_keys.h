/* The keys under which provenance stands in a model. */
#ifndef J2O_ONNX_FILE_METADATA_KEYS_H
#define J2O_ONNX_FILE_METADATA_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#define METADATA_PREFIX "pkg.jax2onnx."
/* Of the model: the table of origins (provenance/table.h) and other entries, packed (onnx/file/packed_entries.h). */
#define METADATA_TABLE METADATA_PREFIX "provenance"
/* Of a node: its row in the table, in digits of PACK_BASE, short because many carry it. Earlier exports wrote decimal
 * digits under a longer key. */
#define METADATA_REFERENCE "#"
#define METADATA_DECIMAL_REFERENCE "j2o"

/* Of the model: a line "path<TAB>class" for each of its modules; the model itself has the empty path. */
#define METADATA_MODULES METADATA_PREFIX "modules"

/* Of a node: the modules of what was fused into it, other than its own, a line for each. */
#define METADATA_FUSED_MODULES METADATA_PREFIX "fused_modules"

#define METADATA_TRACE \
  METADATA_PREFIX "jax_traceback"                  /* of a node: traces, innermost frame first, an empty line between */
#define METADATA_GRAFTED METADATA_PREFIX "grafted" /* of a grafted node: found by name, structure or region */

/* Of the model: the equations that became nothing (provenance/ledger.h). */
#define METADATA_REMOVED METADATA_PREFIX "removed"

/* Of the model: "path<TAB>SHA-256" for each source file of the user's; and, when it was asked for, its text. */
#define METADATA_SOURCES METADATA_PREFIX "sources"
#define METADATA_SOURCE METADATA_PREFIX "source:" /* then the path */

/* What Model Explorer groups nodes by: the module's path as folders. */
#define METADATA_NAMESPACE "namespace"

/* What PyTorch's exporter writes. */
#define TORCH_PREFIX "pkg.torch.onnx."
#define TORCH_TRACE TORCH_PREFIX "stack_trace"

/* Does an entry of this key say where something came from? Others write a namespace too: it does beside entries of
 * ours. metadata_edit.c */
bool is_provenance(const char *key, size_t length, bool beside_ours);
/* Does it hold the row of a node or an initializer in the table? metadata_edit.c */
bool is_reference_key(const char *key, size_t length);
bool is_torch(const char *key, size_t length); /* PyTorch's exporter's */

#endif
