/* Caches: a window along one axis of an array that keeps its size, at one start or at one for each of a batch.
 *
 * From opset 24 on it is TensorScatter, which refuses a start whose window does not fit: JAX moves such a window
 * inside, and so the starts are clipped first. Updates that JAX drops instead stay ScatterND, and so do those in
 * bodies, which passes over loops know. In ONNX Runtime 1.31 it takes as long as ScatterND for one position, and two
 * thirds of its time for 256 of 1,024. As the opset was asked for it is written although that version warns in every
 * run in which it has to copy the cache, unless a runtime was asked for as well. */
#include "lower/data/indexing.h"
#include "onnx/facts/schema.h"

/* Does every position of the first axis, if only one, have a start of its own? */
static bool is_by_batch(const Access *access) {
  bool is_only = access->dropped[0] && dim_is(access->operand.dims[0], 1);
  return access->batch_rank == 1 && (access->batch_of[0] == 0 || is_only) &&
         dim_equal(access->batch[0], access->operand.dims[0]);
}

static bool has_operator(const Lowering *l, DType dtype) {
  const Target *target = l->options->target;
  bool is_wanted = target_is_default(target) || !target_quirk(l, QUIRK_TENSOR_SCATTER_WARNS_OF_COPIES);
  return is_wanted && l->graph == l->scope->graph && schema_runs(OP_TensorScatter, NULL, l->options->opset, dtype);
}

uint32_t written_axis(const Lowering *l, const Access *access) {
  Type type = access->operand;
  if (access->column_count != 1 || access->columns[0].dim == 0 || access->in_bounds) return 0;
  if (!has_operator(l, type.dtype)) return 0;
  bool by_batch = is_by_batch(access);
  if (!by_batch && access->columns[0].value->type.rank != 0) return 0;
  for (uint32_t d = 0; d < type.rank; d++) {
    if (d == access->columns[0].dim || (d == 0 && by_batch)) continue;
    if (access->batch_of[d] >= 0 || !dim_equal(access->size[d], type.dims[d])) return 0;
  }
  return access->columns[0].dim;
}

Value *write_along(Lowering *l, const Access *access, Value *operand, Value *update) {
  const IndexColumn *column = &access->columns[0];
  Value *starts = cast_to(l, nonnegative_starts(l, access, column), DTYPE_INT64);
  if (!is_by_batch(access)) starts = expand_to(l, starts, operand->type.dims, 1);
  Value *written = EMIT(l, OP_TensorScatter, operand->type, operand, update, starts);
  node_set_int(written->producer, "axis", column->dim);
  return written;
}
