/* Data plan. */
#include "types/data_plan.h"

#include "types/moved.h"

void data_plan_init(DataPlan *plan, Context *context, Str location) {
  *plan = (DataPlan){.context = context, .location = location};
}

static void place_after(const DataPlan *plan, const PlacedTensor *last, PlacedTensor *placed) {
  size_t size = placed->tensor->size;
  uint64_t asked = plan->alignment < LARGEST_ALIGNMENT ? plan->alignment : LARGEST_ALIGNMENT;
  uint64_t alignment = asked && size >= LARGE_TENSOR ? asked : DATA_ALIGNMENT;
  uint64_t end = last->offset + last->tensor->size;
  placed->file = last->file;
  placed->offset = (end + alignment - 1) / alignment * alignment;
  if (!plan->largest_file || placed->offset + size <= plan->largest_file) return;
  placed->file++;
  placed->offset = 0;
}

uint64_t data_place(DataPlan *plan, const Tensor *tensor) {
  void **slot = map_slot_pointer(plan->context, &plan->places, tensor);
  if (*slot) return ((PlacedTensor *)*slot)->offset;
  PlacedTensor *placed = arena_new(&plan->context->arena, PlacedTensor);
  placed->tensor = tensor;
  if (plan->tensors.count) place_after(plan, plan->tensors.items[plan->tensors.count - 1], placed);
  *slot = placed;
  array_push(plan->context, &plan->tensors, placed);
  return placed->offset;
}

const PlacedTensor *data_placed(const DataPlan *plan, const Tensor *tensor) {
  return map_get_pointer(&plan->places, tensor);
}

size_t data_file_count(const DataPlan *plan) {
  return plan->tensors.count ? plan->tensors.items[plan->tensors.count - 1]->file + 1 : 0;
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
