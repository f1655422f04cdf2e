/* Numbers. */
#include "types/numbers.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"

static uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

uint16_t bfloat16_from_float(float value) {
  uint32_t bits = float_bits(value);
  if (isnan(value)) return (uint16_t)((bits >> 16) | 0x40);
  return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

/* One rounding, from the double itself: going through float would round twice. */
uint16_t float16_from_double(double value) {
  uint16_t sign = signbit(value) ? 0x8000 : 0;
  double magnitude = fabs(value);
  if (isnan(value)) return sign | 0x7E00;
  if (magnitude >= 65520.0) return sign | 0x7C00;
  int exponent;
  frexp(magnitude, &exponent);
  int scale = exponent - 11 < -24 ? -24 : exponent - 11; /* weight of the last kept bit */
  double units = nearbyint(ldexp(magnitude, -scale));
  if (units == 0) return sign;
  if (units >= 2048) {
    units /= 2;
    scale++;
  }
  if (units < 1024) return (uint16_t)(sign | (uint16_t)units); /* subnormal */
  return (uint16_t)(sign | ((scale + 25) << 10) | ((uint16_t)units & 0x3FF));
}

double double_from_float16(uint16_t bits) {
  int exponent = (bits >> 10) & 0x1F;
  int fraction = bits & 0x3FF;
  double value;
  if (exponent == 31) value = fraction ? NAN : INFINITY;
  else if (exponent == 0) value = ldexp(fraction, -24);
  else value = ldexp(fraction + 1024, exponent - 25);
  return bits & 0x8000 ? -value : value;
}

/* ---- floats of 8 bits ---- */

typedef struct SmallFloat {
  int fraction_bits, bias;
  uint8_t largest;    /* bits of the largest finite number */
  bool infinite;      /* the next bits are those of infinity, else there is none */
  bool unsigned_zero; /* the bits of a negative zero are the only NaN */
} SmallFloat;

static SmallFloat small_float(DType dtype) {
  switch (dtype) {
    case DTYPE_FLOAT8_E4M3FN: return (SmallFloat){3, 7, 0x7E, false, false};
    case DTYPE_FLOAT8_E4M3FNUZ: return (SmallFloat){3, 8, 0x7F, false, true};
    case DTYPE_FLOAT8_E5M2: return (SmallFloat){2, 15, 0x7B, true, false};
    default: return (SmallFloat){2, 16, 0x7F, false, true};
  }
}

static double decode_small_float(DType dtype, uint8_t bits) {
  SmallFloat type = small_float(dtype);
  int size = bits & 0x7F, unit = 1 << type.fraction_bits, exponent = size >> type.fraction_bits;
  double sign = bits & 0x80 ? -1 : 1;
  if (type.unsigned_zero && bits == 0x80) return NAN;
  if (size > type.largest) return type.infinite && size == type.largest + 1 ? sign * INFINITY : NAN;
  int significand = size % unit + (exponent ? unit : 0);
  return sign * ldexp(significand, (exponent ? exponent : 1) - type.bias - type.fraction_bits);
}

/* The bits of neighbours are neighbours, also across a power of two: so a significand that is rounded up to the next
 * one carries into the exponent. */
static uint8_t encode_small_float(DType dtype, double value) {
  SmallFloat type = small_float(dtype);
  uint8_t sign = signbit(value) ? 0x80 : 0, nan = type.unsigned_zero ? 0x80 : 0x7F;
  int exponent, unit = 1 << type.fraction_bits;
  if (isnan(value)) return nan;
  frexp(value, &exponent);
  int place = isinf(value) || exponent - 1 > 2 * type.bias ? 2 * type.bias : exponent - 1;
  place = place < 1 - type.bias ? 1 - type.bias : place;
  double units = nearbyint(fmin(ldexp(fabs(value), type.fraction_bits - place), 4.0 * unit));
  int size = (place + type.bias - 1) * unit + (int)units;
  if (size > type.largest)
    return type.infinite ? sign | (uint8_t)(type.largest + 1) : type.unsigned_zero ? nan : sign | nan;
  return type.unsigned_zero && !size ? 0 : sign | (uint8_t)size;
}

static int64_t wrap_to_int(double value) {
  if (!(value >= -9223372036854775808.0)) return INT64_MIN;
  if (value >= 18446744073709551616.0) return -1;
  if (value >= 9223372036854775808.0) return (int64_t)(uint64_t)value;
  return (int64_t)value;
}

uint64_t number_encode(DType dtype, double value) {
  uint64_t bits = 0;
  switch (dtype_kind(dtype)) {
    case KIND_BOOL: return value != 0;
    case KIND_INT:
    case KIND_UINT: {
      uint64_t wide = (uint64_t)wrap_to_int(value);
      unsigned width = dtype_bits(dtype);
      return width >= 64 ? wide : wide & (((uint64_t)1 << width) - 1);
    }
    case KIND_FLOAT:
      if (dtype == DTYPE_FLOAT64) memcpy(&bits, &value, 8);
      else if (dtype == DTYPE_FLOAT32) bits = float_bits((float)value);
      else if (dtype == DTYPE_BFLOAT16) bits = bfloat16_from_float((float)value);
      else if (dtype == DTYPE_FLOAT16) bits = float16_from_double(value);
      else bits = encode_small_float(dtype, value);
      return bits;
    default: return 0;
  }
}

int64_t number_decode_int(DType dtype, const void *data) {
  uint64_t bits = 0;
  unsigned width = dtype_bits(dtype);
  copy_bytes(&bits, data, width < 8 ? 1 : width / 8);
  if (width < 8) bits &= ((uint64_t)1 << width) - 1;
  if (dtype_kind(dtype) == KIND_INT && width < 64 && (bits >> (width - 1) & 1)) bits |= ~(uint64_t)0 << width;
  return (int64_t)bits;
}

double number_decode(DType dtype, const void *data) {
  switch (dtype) {
    case DTYPE_FLOAT64: {
      double value;
      memcpy(&value, data, sizeof value);
      return value;
    }
    case DTYPE_FLOAT32: {
      float value;
      memcpy(&value, data, sizeof value);
      return (double)value;
    }
    case DTYPE_FLOAT16: {
      uint16_t bits;
      memcpy(&bits, data, sizeof bits);
      return double_from_float16(bits);
    }
    case DTYPE_BFLOAT16: {
      uint16_t half;
      memcpy(&half, data, sizeof half);
      uint32_t bits = (uint32_t)half << 16;
      float value;
      memcpy(&value, &bits, sizeof value);
      return (double)value;
    }
    case DTYPE_FLOAT8_E4M3FN:
    case DTYPE_FLOAT8_E4M3FNUZ:
    case DTYPE_FLOAT8_E5M2:
    case DTYPE_FLOAT8_E5M2FNUZ: return decode_small_float(dtype, *(const uint8_t *)data);
    case DTYPE_UINT64: return (double)(uint64_t)number_decode_int(dtype, data);
    default: return (double)number_decode_int(dtype, data);
  }
}

double number_rounded(DType dtype, double value) {
  uint64_t bits = number_encode(dtype, value);
  return number_decode(dtype, &bits);
}

bool is_power_of_two(double value) {
  int exponent;
  return fabs(frexp(value, &exponent)) == 0.5;
}
