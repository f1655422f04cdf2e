/* Numbers: one element of any type to and from C's own types. */
#ifndef J2O_TYPES_NUMBERS_H
#define J2O_TYPES_NUMBERS_H

#include "types/dtype.h"

/* The element's bits in the low bytes, rounded to nearest even for floats, wrapped for integers. */
uint64_t number_encode(DType dtype, double value);
double number_decode(DType dtype, const void *data);
double number_rounded(DType dtype, double value);         /* to the type and back */
bool is_power_of_two(double value);                       /* or the negative of one */
int64_t number_decode_int(DType dtype, const void *data); /* integers and bool; uint64 as its bits */
uint16_t float16_from_double(double value);
double double_from_float16(uint16_t bits);
uint16_t bfloat16_from_float(float value);

#endif
