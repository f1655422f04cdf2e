/* Pooling: window reductions as MaxPool and AveragePool. */
#ifndef J2O_LOWER_WINDOW_POOLING_H
#define J2O_LOWER_WINDOW_POOLING_H

#include "lower/window/sliding_window.h"

/* The reduction (ReduceMax, ReduceMin or ReduceSum) of the windows, one WindowAxis per axis of the operand; NULL where
 * ONNX Runtime has no pooling operator for these very windows and this element type. */
Value *pool_windows(Lowering *l, Op op, Value *operand, const WindowAxis *axes);

#endif
