/* Data plan. */
#include "types/data_plan.h"

#include "types/moved.h"

void data_plan_init(DataPlan *plan, Context *context, Str location) {
  *plan = (DataPlan){.context = context, .location = location};
}

uint64_t data_place(DataPlan *plan, const Tensor *tensor) {
  void **slot = map_slot_pointer(plan->context, &plan->places, tensor);
  if (*slot) return ((PlacedTensor *)*slot)->offset;
  PlacedTensor *placed = arena_new(&plan->context->arena, PlacedTensor);
  placed->tensor = tensor;
  if (plan->tensors.count) {
    const PlacedTensor *last = plan->tensors.items[plan->tensors.count - 1];
    uint64_t end = last->offset + last->tensor->size;
    placed->offset = (end + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT;
  }
  *slot = placed;
  array_push(plan->context, &plan->tensors, placed);
  return placed->offset;
}

const Segment *data_segments(const DataPlan *plan, size_t *count) {
  static const char zeros[DATA_ALIGNMENT];
  Segment *segments = arena_new_array(&plan->context->arena, 2 * plan->tensors.count, Segment);
  uint64_t position = 0;
  for (size_t i = 0; i < plan->tensors.count; i++) {
    const PlacedTensor *placed = plan->tensors.items[i];
    segments[2 * i] = (Segment){.data = zeros, .size = (size_t)(placed->offset - position)};
    segments[2 * i + 1] = tensor_segment(placed->tensor);
    position = placed->offset + placed->tensor->size;
  }
  *count = 2 * plan->tensors.count;
  return segments;
}
