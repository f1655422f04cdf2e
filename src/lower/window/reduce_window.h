/* Window reductions, and the choice of one element of each window. */
#ifndef J2O_LOWER_WINDOW_REDUCE_WINDOW_H
#define J2O_LOWER_WINDOW_REDUCE_WINDOW_H

#include "lower/window/sliding_window.h"

/* The equation's windows over an operand of this type: one WindowAxis per axis. */
WindowAxis *read_windows(Lowering *l, Type type, Type result);

/* window_choice.c */
void lower_select_and_gather_add(Lowering *l);
void lower_select_and_scatter(Lowering *l);
void lower_select_and_scatter_add(Lowering *l);

#endif
