/* Reading features (features.h). */
#include "passes/analysis/features.h"

#include "passes/pattern.h"
#include "types/numbers.h"

/* ---- the last axes ---- */

static size_t count_features(Type type, uint32_t axes) {
  int64_t count = 1;
  if (type.dtype == DTYPE_NONE || type.rank < axes || type.rank > MAX_RANK) return 0;
  for (uint32_t i = type.rank - axes; i < type.rank; i++) {
    if (!dim_is_constant(type.dims[i]) || type.dims[i].constant < 1) return 0;
    if (type.dims[i].constant > MOST_FEATURES || (count *= type.dims[i].constant) > MOST_FEATURES) return 0;
  }
  return (size_t)count;
}

/* The place of each of the last axes of the feature with that number. */
static void places_of(Type type, uint32_t axes, size_t number, int64_t places[MAX_RANK]) {
  for (uint32_t i = axes; i-- > 0;) {
    int64_t size = type.dims[type.rank - axes + i].constant;
    places[i] = (int64_t)number % size;
    number /= (size_t)size;
  }
}

static size_t number_of(Type type, uint32_t axes, const int64_t places[MAX_RANK]) {
  size_t number = 0;
  for (uint32_t i = 0; i < axes; i++)
    number = number * (size_t)type.dims[type.rank - axes + i].constant + (size_t)places[i];
  return number;
}

/* The feature of an operand that is broadcast, counted from the last axis. */
static size_t broadcast_number(Type from, uint32_t axes, const int64_t places[MAX_RANK], uint32_t place_count) {
  int64_t own[MAX_RANK];
  for (uint32_t i = 0; i < axes; i++)
    own[i] = dim_is(from.dims[from.rank - axes + i], 1) ? 0 : places[place_count - axes + i];
  return number_of(from, axes, own);
}

/* Of an axis of a value, its place among the last ones; false when it is one of rows. */
static bool find_axis(int64_t axis, Type type, uint32_t axes, uint32_t *place) {
  if (axis < 0) axis += type.rank;
  if (axis < 0 || axis >= (int64_t)type.rank || axis < (int64_t)(type.rank - axes)) return false;
  *place = (uint32_t)axis - (type.rank - axes);
  return true;
}

/* ---- what is read ---- */

static Features *begin(FeatureReader *reader, Value *value, uint32_t axes, Reading reading, size_t count) {
  if (reader->read_count == MOST_READ) return NULL;
  Features *made = &reader->read[reader->read_count++];
  *made = (Features){value, axes, reading, .count = count};
  made->all = arena_new_array(&reader->context->arena, count, Feature);
  return made;
}

static bool end_as_base(FeatureReader *reader, Features *made) {
  if (reader->base_count == MOST_BASES) return false;
  made->is_base = true;
  for (size_t i = 0; i < made->count; i++) {
    Element element = {(uint16_t)reader->base_count, (uint16_t)i};
    made->all[i] = (Feature){.products = {{.factors = {element}, .count = 1}}, .count = 1};
  }
  reader->bases[reader->base_count++] = (size_t)(made - reader->read);
  return true;
}

static void negate(Feature *feature) {
  for (uint8_t i = 0; i < feature->count; i++) feature->products[i].is_negative = !feature->products[i].is_negative;
}

/* ---- arithmetic ---- */

static bool is_element(const Feature *feature) { return feature->count == 1 && feature->products[0].count == 1; }

/* A constant of ones, negative or not. */
static const Tensor *signs_of(const Value *value, uint32_t axes) {
  const Tensor *signs = constant_of(value);
  if (!signs || !dtype_is_float(signs->dtype) || value->type.rank > axes || signs->size == 0) return NULL;
  size_t width = dtype_bytes(signs->dtype, 1);
  if (signs->size / width > MOST_FEATURES) return NULL;
  for (size_t at = 0; at + width <= signs->size; at += width) {
    double number = number_decode(signs->dtype, (const char *)signs->data + at);
    if (number != 1 && number != -1) return NULL;
  }
  return signs;
}

static bool sign_at(const Tensor *signs, Type type, const int64_t places[MAX_RANK], uint32_t axes) {
  size_t width = dtype_bytes(signs->dtype, 1), number = broadcast_number(type, type.rank, places, axes);
  return number_decode(signs->dtype, (const char *)signs->data + number * width) < 0;
}

static uint32_t own_axes(Type type, uint32_t axes) { return type.rank < axes ? type.rank : axes; }

static bool change_signs(FeatureReader *reader, Features *made) {
  const Node *node = made->value->producer;
  Type type = made->value->type;
  int64_t places[MAX_RANK];
  for (size_t side = 0; side < 2; side++) {
    const Value *other = node_input(node, 1 - side);
    Value *source = node_input(node, side);
    const Tensor *signs = signs_of(other, made->axes);
    if (!signs || !type_same_shape(source->type, type)) continue;
    const Features *from = read_features(reader, source, made->axes, made->reading);
    if (!from) return false;
    for (size_t i = 0; i < made->count; i++) {
      places_of(type, made->axes, i, places);
      made->all[i] = from->all[i];
      if (sign_at(signs, other->type, places, made->axes)) negate(&made->all[i]);
    }
    return true;
  }
  return false;
}

/* The features of both operands, each with as many of the last axes as it has. */
static bool read_operands(FeatureReader *reader, const Features *made, Reading reading, const Features *operands[2]) {
  for (size_t side = 0; side < 2; side++) {
    Value *value = node_input(made->value->producer, side);
    operands[side] = read_features(reader, value, own_axes(value->type, made->axes), reading);
    if (!operands[side]) return false;
  }
  return true;
}

/* That of an operand which goes into a feature of the result. */
static const Feature *broadcast_feature(const Features *operand, const Features *made, size_t number) {
  int64_t places[MAX_RANK];
  places_of(made->value->type, made->axes, number, places);
  return &operand->all[broadcast_number(operand->value->type, operand->axes, places, made->axes)];
}

static bool multiply(FeatureReader *reader, Features *made) {
  const Features *factors[2];
  if (!read_operands(reader, made, READ_ELEMENTS, factors)) return false;
  for (size_t i = 0; i < made->count; i++) {
    Product *product = &made->all[i].products[0];
    made->all[i].count = 1;
    *product = (Product){.count = 2};
    for (size_t side = 0; side < 2; side++) {
      const Feature *one = broadcast_feature(factors[side], made, i);
      if (!is_element(one)) return false;
      product->factors[side] = one->products[0].factors[0];
      product->is_negative ^= one->products[0].is_negative;
    }
  }
  return true;
}

static bool add(FeatureReader *reader, Features *made) {
  const Features *terms[2];
  if (!read_operands(reader, made, READ_PRODUCTS, terms)) return false;
  for (size_t i = 0; i < made->count; i++) {
    for (size_t side = 0; side < 2; side++) {
      const Feature *one = broadcast_feature(terms[side], made, i);
      if (one->count != 1) return false;
      made->all[i].products[side] = one->products[0];
      made->all[i].products[side].is_negative ^= side == 1 && node_is(made->value->producer, OP_Sub);
    }
    made->all[i].count = 2;
  }
  return true;
}

/* Over one of the last axes, of two elements. */
static bool add_up(FeatureReader *reader, Features *made) {
  const Node *node = made->value->producer;
  Value *source = node_input(node, 0);
  bool reduced[MAX_RANK], is_kept = node_int_or(node, "keepdims", 1) != 0;
  Type from = source->type;
  uint32_t axes = made->axes + !is_kept, at = MAX_RANK;
  int64_t places[MAX_RANK], own[MAX_RANK];
  if (from.dtype == DTYPE_NONE || from.rank < axes || !reduced_axes(node, reduced)) return false;
  for (uint32_t i = 0; i < from.rank; i++) {
    if (!reduced[i]) continue;
    if (at != MAX_RANK || i < from.rank - axes || !dim_is(from.dims[i], 2)) return false;
    at = i - (from.rank - axes);
  }
  const Features *terms = at == MAX_RANK ? NULL : read_features(reader, source, axes, READ_PRODUCTS);
  if (!terms) return false;
  for (size_t i = 0; i < made->count; i++) {
    places_of(made->value->type, made->axes, i, places);
    for (uint32_t k = 0; k < axes; k++) own[k] = k < at || is_kept ? places[k] : k == at ? 0 : places[k - 1];
    for (int64_t part = 0; part < 2; part++) {
      own[at] = part;
      const Feature *one = &terms->all[number_of(from, axes, own)];
      if (one->count != 1) return false;
      made->all[i].products[part] = one->products[0];
    }
    made->all[i].count = 2;
  }
  return true;
}

/* ---- moves ---- */

/* The same features, where rows have the same axes. */
static bool rename_axes(FeatureReader *reader, Features *made) {
  Value *source = node_input(made->value->producer, 0);
  Type to = made->value->type, from = source->type;
  uint32_t rows = to.rank - made->axes;
  if (from.dtype == DTYPE_NONE || from.rank < rows || !same_dims(from, to, 0, rows)) return false;
  if (count_features(from, from.rank - rows) != made->count) return false;
  const Features *read = read_features(reader, source, from.rank - rows, made->reading);
  for (size_t i = 0; read && i < made->count; i++) made->all[i] = read->all[i];
  return read;
}

static bool keep(FeatureReader *reader, Features *made) {
  const Features *read = read_features(reader, node_input(made->value->producer, 0), made->axes, made->reading);
  for (size_t i = 0; read && i < made->count; i++) made->all[i] = read->all[i];
  return read && read->count == made->count;
}

static bool flip_signs(FeatureReader *reader, Features *made) {
  if (!keep(reader, made)) return false;
  for (size_t i = 0; i < made->count; i++) negate(&made->all[i]);
  return true;
}

static bool exchange_axes(FeatureReader *reader, Features *made) {
  const Attribute *order = node_attribute(made->value->producer, "perm");
  Value *source = node_input(made->value->producer, 0);
  Type to = made->value->type;
  uint32_t rows = to.rank - made->axes;
  int64_t places[MAX_RANK], own[MAX_RANK];
  if (!order || order->count != to.rank || source->type.rank != to.rank) return false;
  for (uint32_t i = 0; i < to.rank; i++) {
    if (i < rows ? order->integers[i] != (int64_t)i : order->integers[i] < rows || order->integers[i] >= to.rank)
      return false;
  }
  const Features *read = read_features(reader, source, made->axes, made->reading);
  for (size_t i = 0; read && i < made->count; i++) {
    places_of(to, made->axes, i, places);
    for (uint32_t k = 0; k < made->axes; k++) own[order->integers[rows + k] - rows] = places[k];
    made->all[i] = read->all[number_of(source->type, made->axes, own)];
  }
  return read;
}

static bool spread(FeatureReader *reader, Features *made) {
  Value *source = node_input(made->value->producer, 0);
  int64_t places[MAX_RANK];
  const Features *read = read_features(reader, source, own_axes(source->type, made->axes), made->reading);
  for (size_t i = 0; read && i < made->count; i++) {
    places_of(made->value->type, made->axes, i, places);
    made->all[i] = read->all[broadcast_number(source->type, read->axes, places, made->axes)];
  }
  return read;
}

static bool tile(FeatureReader *reader, Features *made) {
  const Node *node = made->value->producer;
  Value *source = node_input(node, 0);
  Type from = source->type, to = made->value->type;
  uint32_t rows = to.rank - made->axes;
  int64_t places[MAX_RANK];
  if (from.rank != to.rank || !same_dims(from, to, 0, rows) || !count_features(from, made->axes)) return false;
  const Features *read = read_features(reader, source, made->axes, made->reading);
  for (size_t i = 0; read && i < made->count; i++) {
    places_of(to, made->axes, i, places);
    for (uint32_t k = 0; k < made->axes; k++) places[k] %= from.dims[rows + k].constant;
    made->all[i] = read->all[number_of(from, made->axes, places)];
  }
  return read;
}

/* Features of a value whose axis at that place is longer, or other: first + step * place. */
static bool pick(FeatureReader *reader, Features *made, uint32_t at, int64_t first, int64_t step) {
  Value *source = node_input(made->value->producer, 0);
  Type from = source->type, to = made->value->type;
  int64_t places[MAX_RANK];
  if (from.rank != to.rank) return false;
  const Features *read = read_features(reader, source, made->axes, made->reading);
  for (size_t i = 0; read && i < made->count; i++) {
    places_of(to, made->axes, i, places);
    places[at] = first + step * places[at];
    if (places[at] < 0 || places[at] >= from.dims[from.rank - made->axes + at].constant) return false;
    made->all[i] = read->all[number_of(from, made->axes, places)];
  }
  return read;
}

static bool slice(FeatureReader *reader, Features *made) {
  const Node *node = made->value->producer;
  int64_t axis, first, step = 1;
  uint32_t at;
  Type from = node_input(node, 0)->type;
  if (!node_input(node, 1) || !node_input(node, 3)) return false;
  if (!only_integer(node_input(node, 1), &first) || !only_integer(node_input(node, 3), &axis)) return false;
  if (node_input(node, 4) && !only_integer(node_input(node, 4), &step)) return false;
  if (from.rank != made->value->type.rank || !find_axis(axis, from, made->axes, &at)) return false;
  Dim size = from.dims[from.rank - made->axes + at];
  if (!dim_is_constant(size) || step == 0 || step > MOST_FEATURES || step < -MOST_FEATURES) return false;
  if (first < 0 && first >= -size.constant) first += size.constant;
  if (step < 0 && first >= size.constant) first = size.constant - 1;
  return first >= 0 && first < size.constant && pick(reader, made, at, first, step);
}

static bool split(FeatureReader *reader, Features *made) {
  const Node *node = made->value->producer;
  int64_t first = 0;
  uint32_t at;
  Type to = made->value->type;
  if (!find_axis(node_int_or(node, "axis", 0), to, made->axes, &at)) return false;
  for (uint32_t i = 0; i < made->value->output_index; i++) {
    const Value *before = node->outputs[i];
    if (!before || before->type.rank != to.rank) return false;
    Dim size = before->type.dims[to.rank - made->axes + at];
    if (!dim_is_constant(size) || size.constant > INT32_MAX) return false;
    first += size.constant;
  }
  return pick(reader, made, at, first, 1);
}

static bool gather(FeatureReader *reader, Features *made) {
  const Node *node = made->value->producer;
  Value *source = node_input(node, 0);
  const Value *index = node_input(node, 1);
  const Tensor *indices = index ? constant_of(index) : NULL;
  Type from = source->type;
  int64_t places[MAX_RANK], own[MAX_RANK];
  uint32_t at;
  if (!indices || !dtype_is_integer(indices->dtype) || index->type.rank > 1) return false;
  bool is_dropped = index->type.rank == 0;
  uint32_t axes = made->axes + is_dropped;
  if (from.rank < axes || !find_axis(node_int_or(node, "axis", 0), from, axes, &at)) return false;
  const Features *read = read_features(reader, source, axes, made->reading);
  for (size_t i = 0; read && i < made->count; i++) {
    places_of(made->value->type, made->axes, i, places);
    for (uint32_t k = 0; k < axes; k++) own[k] = k < at || !is_dropped ? places[k] : k == at ? 0 : places[k - 1];
    int64_t size = from.dims[from.rank - axes + at].constant;
    size_t width = dtype_bytes(indices->dtype, 1), offset = is_dropped ? 0 : (size_t)own[at] * width;
    if (offset + width > indices->size) return false;
    own[at] = number_decode_int(indices->dtype, (const char *)indices->data + offset);
    if (own[at] < 0) own[at] += size;
    if (own[at] < 0 || own[at] >= size) return false;
    made->all[i] = read->all[number_of(from, axes, own)];
  }
  return read;
}

static bool join(FeatureReader *reader, Features *made) {
  const Node *node = made->value->producer;
  Type to = made->value->type;
  int64_t places[MAX_RANK], first = 0;
  uint32_t at;
  if (!find_axis(node_int_or(node, "axis", 0), to, made->axes, &at)) return false;
  for (uint32_t part = 0; part < node->input_count; part++) {
    Value *source = node_input(node, part);
    if (!source || source->type.rank != to.rank) return false;
    const Features *read = read_features(reader, source, made->axes, made->reading);
    if (!read) return false;
    for (size_t i = 0; i < read->count; i++) {
      places_of(source->type, made->axes, i, places);
      places[at] += first;
      size_t number = number_of(to, made->axes, places);
      if (number >= made->count) return false;
      made->all[number] = read->all[i];
    }
    first += source->type.dims[to.rank - made->axes + at].constant;
  }
  return dim_is(to.dims[to.rank - made->axes + at], first);
}

/* ---- one value ---- */

/* A single number that is rounded to a half must have been one before: else it is the rounded one that is read on. */
static bool keep_rounded(FeatureReader *reader, Features *made) {
  if (!keep(reader, made)) return false;
  DType dtype = made->value->type.dtype;
  if (made->reading != READ_ELEMENTS || !dtype_is_half(dtype)) return true;
  for (size_t i = 0; i < made->count; i++) {
    const Features *base = &reader->read[reader->bases[made->all[i].products[0].factors[0].base]];
    if (base->value->type.dtype != dtype) return false;
  }
  return true;
}

static bool read_operator(FeatureReader *reader, Features *made) {
  const Node *node = made->value->producer;
  if (!node || !node_input(node, 0) || node_input(node, 0)->type.dtype == DTYPE_NONE) return false;
  if (is_cast_of_half(node)) return keep_rounded(reader, made);
  if (node_has(node, RENAMES)) return rename_axes(reader, made);
  switch (node->op) {
    case OP_Neg: return flip_signs(reader, made);
    case OP_Mul: return change_signs(reader, made) || (made->reading != READ_ELEMENTS && multiply(reader, made));
    case OP_Add:
    case OP_Sub: return made->reading == READ_SUMS && add(reader, made);
    case OP_ReduceSum: return made->reading == READ_SUMS && add_up(reader, made);
    case OP_Transpose: return exchange_axes(reader, made);
    case OP_Expand: return spread(reader, made);
    case OP_Tile: return tile(reader, made);
    case OP_Slice: return slice(reader, made);
    case OP_Split: return split(reader, made);
    case OP_Gather: return gather(reader, made);
    case OP_Concat: return join(reader, made);
    default: return false;
  }
}

const Features *read_features(FeatureReader *reader, Value *value, uint32_t axes, Reading reading) {
  for (size_t i = 0; i < reader->read_count; i++) {
    const Features *known = &reader->read[i];
    if (known->value == value && known->axes == axes && known->reading == reading) return known;
  }
  size_t count = count_features(value->type, axes);
  Features *made = count ? begin(reader, value, axes, reading, count) : NULL;
  if (!made) return NULL;
  return read_operator(reader, made) || end_as_base(reader, made) ? made : NULL;
}
