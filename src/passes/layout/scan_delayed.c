/* A slice that is carried on to the next step is a slice itself: of the same array, one step later.
 *
 * A step that compares what it is given with what the last step was given (a difference quotient, a change of sign)
 * carries it on. Scanned instead, it is known before the loop, and so is what the steps compute of it (batch_steps.c).
 * It costs three nodes before the Scan and saves a carried value, a copy and those nodes in every step.
 */
#include "passes/layout/batch_steps.h"
#include "passes/loop_body.h"
#include "target/target.h"

enum { FEWEST_STEPS = 8 };

static Value *put(const Batch *batch, Op op, Type type, Value *first, Value *second) {
  Rewriter *rewriter = batch->rewriter;
  Node *scan = batch->scan;
  const Origin *origin = REWRITE_ORIGIN(rewriter, scan);
  return graph_node(scan->graph, origin, op, (Value *[]){first, second}, 2, &type, 1, scan)->outputs[0];
}

static Value *number(const Batch *batch, int64_t value) {
  return rewrite_constant_ints(batch->rewriter, batch->scan, &value, 1, batch->scan->origin);
}

/* All but the last of what the steps are given, in their order. */
static Value *without_last(const Batch *batch, Value *all, Type step) {
  bool backwards = scan_runs_backwards(batch->scan);
  Dim *dims = arena_copy(&batch->rewriter->context->arena, stacked_type(batch, step, step.rank).dims,
                         (step.rank + 1) * sizeof(Dim));
  dims[0] = dim_of(batch->length.constant - 1);
  Type type = {.dtype = step.dtype, .rank = step.rank + 1, .dims = dims};
  Value *inputs[] = {all, number(batch, backwards), number(batch, batch->length.constant - !backwards),
                     number(batch, 0)};
  const Origin *origin = REWRITE_ORIGIN(batch->rewriter, batch->scan);
  return graph_node(batch->scan->graph, origin, OP_Slice, inputs, 4, &type, 1, batch->scan)->outputs[0];
}

/* What each step gets of the step before it, the first what is carried into the loop. */
static Value *delayed(const Batch *batch, Value *all, Value *start, Type step) {
  Type one = stacked_type(batch, step, step.rank);
  Dim *dims = arena_copy(&batch->rewriter->context->arena, one.dims, one.rank * sizeof *dims);
  dims[0] = dim_of(1);
  one.dims = dims;
  Value *first = put(batch, OP_Unsqueeze, one, start, number(batch, 0)), *rest = without_last(batch, all, step);
  bool backwards = scan_runs_backwards(batch->scan);
  Value *joined =
      put(batch, OP_Concat, stacked_type(batch, step, step.rank), backwards ? rest : first, backwards ? first : rest);
  node_set_int(joined->producer, "axis", 0);
  return joined;
}

static void replace_last(const Batch *batch, size_t carried, Value *all) {
  Value *after = batch->scan->outputs[carried];
  if (!after || !after->uses) return;
  int64_t place = scan_runs_backwards(batch->scan) ? 0 : batch->length.constant - 1;
  Value *index = rewrite_constant_number(batch->rewriter, batch->scan, DTYPE_INT64, (double)place, batch->scan->origin);
  Value *last = put(batch, OP_Gather, after->type, all, index);
  node_set_int(last->producer, "axis", 0);
  rewrite_take_name(last, after);
  value_replace(after, last);
}

static void visit(Rewriter *rewriter, Node *node) {
  Batch batch = {.rewriter = rewriter, .scan = node};
  if (!batch_begin(&batch) || batch.length.constant < FEWEST_STEPS) return;
  for (size_t i = batch.carried; i-- && node->output_count > 1;) {
    Value *before = batch.body->inputs.items[i], *next = behind_identities(batch.body->outputs.items[i]->value);
    Value *all = next->graph == batch.body ? map_get_pointer(&batch.stacked, next) : NULL;
    if (!all || !type_equal(before->type, next->type) || type_is_unranked(next->type)) continue;
    Value *slices = delayed(&batch, all, node_input(node, i), before->type);
    value_replace(before, scan_add_input(node, slices, before->type));
    replace_last(&batch, i, all);
    scan_drop_carried(node, i);
    rewriter->changed = true;
  }
}

bool scan_delayed(Model *model) {
  Rewriter rewriter;
  if (!target_is_onnx_runtime(model->target)) return false;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
