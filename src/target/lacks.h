/* What a runtime was seen not to run: operators, or operators on an element type. */
#ifndef J2O_TARGET_LACKS_H
#define J2O_TARGET_LACKS_H

#include "onnx/graph/verify.h"
#include "target/target.h"

typedef struct Lack {
  Op op;       /* OP_NONE: any */
  DType dtype; /* of the first input, or of the output where there is none; DTYPE_NONE: of any */
  Runtime runtimes;
  int last;                       /* version of ONNX Runtime that has it; 0: still there, or another runtime */
  bool (*when)(const Node *node); /* of some such nodes alone; or NULL */
  const char *what;
} Lack;

/* NULL behind the last. */
const Lack *lack_at(size_t index);

/* What a target does not run of a model, in the order of the nodes; a target of NULL is the newest ONNX Runtime. The
 * version is that of the file's format. */
FaultList target_lacks(Model *model, const Target *target, int64_t ir_version);

#endif
