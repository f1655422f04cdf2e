/* Parts of stacked constants. */
#include "types/tensor_part.h"

#include <inttypes.h>

static const StoredAt *stored_part(Context *context, const StoredAt *stored, uint64_t offset, const char *data) {
  StoredAt *part = arena_new(&context->arena, StoredAt);
  *part = (StoredAt){stored->location, stored->offset + offset, data};
  return part;
}

const Tensor *tensor_part(Context *context, const Tensor *stacked, int64_t index) {
  const StoredAt *stored = tensor_stored_at(stacked);
  if (stored && !stored->location) return NULL; /* what is yet to come is found by its name, as a whole */
  if (stacked->rank == 0 || stacked->dims[0] <= 0 || dtype_bits(stacked->dtype) % 8 != 0) return NULL;
  if (!stacked->data && !stored && stacked->size) return NULL;
  size_t size = stacked->size / (size_t)stacked->dims[0];
  Tensor *part = arena_new(&context->arena, Tensor);
  *part = (Tensor){.dtype = stacked->dtype,
                   .rank = stacked->rank - 1,
                   .dims = stacked->dims + 1,
                   .data = stacked->data ? (const char *)stacked->data + (size_t)index * size : NULL,
                   .size = size,
                   .precision = stacked->precision};
  if (stored) part->stored = stored_part(context, stored, (uint64_t)index * size, part->data);
  if (stacked->name) {
    part->name = str_intern(context, arena_format(&context->arena, "%s.%" PRId64, stacked->name, index));
  }
  return part;
}
