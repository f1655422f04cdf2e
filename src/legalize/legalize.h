/* Legalize: program to program. What ONNX has no element type for gets one that it has, and a branch that raises an
 * error becomes a check (raised_errors.c).
 *
 * A complex array becomes a real one with a last axis of 2, (real, imaginary); the words of a random key of a generator
 * that JAX traces are moved in the same way. A key of JAX's own generator becomes one uint64, the first word in the low
 * half. Variables keep what they stood for (Var.form), and equations say whether they touch pairs (Equation.on_pairs):
 * lowering asks that, and looks at no type again. Parameters are left to the lowering of each primitive.
 */
#ifndef J2O_LEGALIZE_LEGALIZE_H
#define J2O_LEGALIZE_LEGALIZE_H

#include "program/program.h"

/* In place. A program of real numbers without keys is not looked at. */
void legalize_program(Program *program);

/* In place: choices between values and a callback become equations "runtime_check". */
void legalize_checks(Program *program);

#endif
