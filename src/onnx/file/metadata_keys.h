/* The keys under which provenance stands in a model. */
#ifndef J2O_ONNX_FILE_METADATA_KEYS_H
#define J2O_ONNX_FILE_METADATA_KEYS_H

#define METADATA_PREFIX "pkg.jax2onnx."
#define METADATA_TABLE METADATA_PREFIX "provenance" /* of the model: the table of origins (provenance/table.h) */
#define METADATA_REFERENCE "j2o"                    /* of a node: its row in the table, short because many carry it */

/* What Model Explorer groups nodes by: the module's path as folders. */
#define METADATA_NAMESPACE "namespace"

/* What PyTorch's exporter writes. */
#define TORCH_PREFIX "pkg.torch.onnx."
#define TORCH_TRACE TORCH_PREFIX "stack_trace"

#endif
