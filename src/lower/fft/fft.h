/* Fourier transforms of a length that only the run knows (fft_at_run_time.c). */
#ifndef J2O_LOWER_FFT_FFT_H
#define J2O_LOWER_FFT_FFT_H

#include "lower/complex/complex.h"

/* Pairs to pairs, along an axis of the array (without the axis of the parts). */
Value *transform_at_run_time(Lowering *l, Value *pairs, Dim length, int64_t axis, bool inverse);
/* Real numbers to the first half of their transform, and back; along the last axis. */
Value *transform_of_real_at_run_time(Lowering *l, Value *value, Dim length, Dim half);
Value *real_from_transform_at_run_time(Lowering *l, Value *pairs, Dim length);

/* The axis moved behind the others, or back from there. */
Value *axis_moved(Lowering *l, Value *value, int64_t from, int64_t to);

#endif
