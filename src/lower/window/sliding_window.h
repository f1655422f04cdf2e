/* Sliding windows: the geometry that convolutions and window reductions share, one WindowAxis per axis they slide on.
 *
 * Along an axis the operand is first spread (base_dilation - 1 fill elements between neighbours), then padded or cut at
 * both edges; window number i starts at i * stride and takes every dilation-th element.
 */
#ifndef J2O_LOWER_WINDOW_SLIDING_WINDOW_H
#define J2O_LOWER_WINDOW_SLIDING_WINDOW_H

#include "lower/lower.h"

typedef struct WindowAxis {
  Dim size;      /* of the operand along the axis */
  Dim window;    /* elements in a window */
  Dim count;     /* windows: the size of the result */
  Dim low, high; /* padding; negative: elements cut off */
  int64_t stride, dilation, base_dilation;
} WindowAxis;

typedef enum AutoPad { AUTO_PAD_NONE, AUTO_PAD_SAME_UPPER, AUTO_PAD_SAME_LOWER } AutoPad;

/* Integer lists of the equation's parameters into one field of count axes each. */
void read_window_padding(Lowering *l, WindowAxis *axes, size_t count);
const int64_t *read_window_ints(Lowering *l, const char *name, size_t count);

bool window_axis_is_trivial(const WindowAxis *axis); /* the axis comes out as it goes in */
bool padding_is_constant(const WindowAxis *axis);
bool padding_is_zero(const WindowAxis *axis);
/* Is the padding of all axes what ONNX computes itself under this auto_pad, for every size of a symbolic axis? */
AutoPad same_padding(const Lowering *l, const WindowAxis *axes, size_t count);
void set_auto_pad(Node *node, AutoPad kind);

/* The value with each axis padded by low and high (negative: cut); one of each per axis. */
Value *pad_edges(Lowering *l, Value *value, const Dim *low, const Dim *high, Value *fill);
/* Spreads and pads the axes from first on. Afterwards size is the new one, padding 0 and base_dilation 1. */
Value *apply_padding(Lowering *l, Value *value, int64_t first, WindowAxis *axes, size_t count, Value *fill);
/* Replaces one axis, already padded, by two: [window, count]. */
Value *view_windows(Lowering *l, Value *value, int64_t axis, const WindowAxis *window);
/* Element number offset of every window along an axis that is already padded. */
Value *window_element(Lowering *l, Value *value, int64_t axis, const WindowAxis *window, int64_t offset);
/* 0, step, 2 * step, …: int64[count]. */
Value *arithmetic_sequence(Lowering *l, Dim count, int64_t step);

#endif
