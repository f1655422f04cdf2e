/* Schema: what the ONNX standard says about operators, and what ONNX Runtime makes of it.
 *
 * The facts are generated (tools/generate_schema.py). The element type of an operator is that of its first input, or of
 * its output when it has none; of the values and not the condition or indices in Where, OneHot, If and Loop; of the
 * result in ConstantOfShape.
 */
#ifndef J2O_ONNX_FACTS_SCHEMA_H
#define J2O_ONNX_FACTS_SCHEMA_H

#include "onnx/facts/operators.h"
#include "onnx/facts/schema_fields.h"
#include "types/dtype.h"

/* Does the operator, as of this opset, take this element type, by the standard and in ONNX Runtime? The variant may be
 * NULL; there are ScatterND and ScatterElements "add", "mul", "min", "max"; Pad "edge", "reflect", "wrap"; Resize
 * "linear", "cubic"; Mod "fmod"; Cast and CastLike "to" (the type cast to). False for anything unknown. */
bool schema_runs(Op op, const char *variant, int64_t opset, DType dtype);

/* since_version of op in force at opset; 0 when the opset lacks it, or has it deprecated. */
int64_t schema_version(Op op, int64_t opset);

/* Asked for no opset, a model is made with the forms of AUTO_OPSET, which ONNX Runtime 1.18 reads, and gets the lowest
 * opset from LEAST_OPSET on that holds them. */
enum { OPSET_AUTO = 0, LEAST_OPSET = 17, AUTO_OPSET = 21 };

/* The IR version of a model of this opset: that of the onnx release that brought it, and no newer than what provenance
 * on nodes needs, since older runtimes refuse newer ones. */
enum { IR_WITH_PROVENANCE = 10 };
int64_t ir_version_of(int64_t opset);

int onnx_dtype(DType dtype);       /* TensorProto.DataType number, 0 when none */
DType dtype_from_onnx(int number); /* DTYPE_NONE when unknown */

#endif
