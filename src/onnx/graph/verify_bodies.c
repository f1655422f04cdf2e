/* The verifier: what bodies take and give. */
#include "onnx/graph/verify_shapes.h"

static const Graph *body_of(const Node *node, const char *name) {
  const Attribute *attribute = node_attribute(node, name);
  return attribute && attribute->kind == ATTRIBUTE_GRAPH && !attribute->reference ? attribute->graph : NULL;
}

static bool body_takes(Verification *verification, const Node *node, const Graph *body, const char *name, size_t inputs,
                       size_t outputs) {
  bool right = body->inputs.count == inputs && body->outputs.count == outputs;
  if (!right) {
    FOUND(verification, node, "%s takes %zu and returns %zu values, but must take %zu and return %zu", name,
          body->inputs.count, body->outputs.count, inputs, outputs);
  }
  return right;
}

/* A value handed from one side to the other; `dropped` axes at its front are there on the first side alone. */
static void hand_over(Verification *verification, const Node *node, const Value *from, const Value *to,
                      uint32_t dropped, const char *what, size_t index) {
  if (!from || !to || from->type.dtype == DTYPE_NONE || to->type.dtype == DTYPE_NONE) return;
  const Type *a = ranked(from), *b = ranked(to);
  bool fits = from->type.dtype == to->type.dtype;
  if (fits && a && b) {
    fits = a->rank == b->rank + dropped;
    for (uint32_t i = 0; fits && i < b->rank; i++) fits = dropped || !sizes_clash(a->dims[i], b->dims[i]);
  }
  if (fits) return;
  Context *context = verification->model->context;
  FOUND(verification, node, "%s %zu is %s outside but %s in the body", what, index, type_text(context, from->type),
        type_text(context, to->type));
}

void rule_if(Verification *verification, const Node *node) {
  static const char *const names[] = {"then_branch", "else_branch"};
  for (size_t b = 0; b < 2; b++) {
    const Graph *body = body_of(node, names[b]);
    if (!body || !body_takes(verification, node, body, names[b], 0, node->output_count)) continue;
    for (uint32_t i = 0; i < node->output_count; i++) {
      hand_over(verification, node, node->outputs[i], body->outputs.items[i]->value, 0, "output", i);
    }
  }
}

static void expect_scalar(Verification *verification, const Node *node, const Value *value, DType dtype,
                          const char *what) {
  const Type *type = value ? ranked(value) : NULL;
  int64_t count;
  if (!type || (type->dtype == dtype && (!count_elements(type->dims, type->rank, &count) || count == 1))) return;
  FOUND(verification, node, "%s is %s but must be a single %s", what, type_text(verification->model->context, *type),
        dtype_name(dtype));
}

void rule_loop(Verification *verification, const Node *node) {
  const Graph *body = body_of(node, "body");
  size_t carried = node->input_count - 2;
  if (node->output_count < carried) {
    FOUND(verification, node, "carries %zu values but has %u outputs", carried, node->output_count);
    return;
  }
  if (!body || !body_takes(verification, node, body, "body", node->input_count, node->output_count + 1)) return;
  expect_scalar(verification, node, node_input(node, 0), DTYPE_INT64, "the number of steps, input 0,");
  expect_scalar(verification, node, node_input(node, 1), DTYPE_BOOL, "the condition, input 1,");
  expect_scalar(verification, node, body->inputs.items[0], DTYPE_INT64, "the step number in the body");
  expect_scalar(verification, node, body->inputs.items[1], DTYPE_BOOL, "the condition that the body takes");
  expect_scalar(verification, node, body->outputs.items[0]->value, DTYPE_BOOL, "the condition that the body returns");
  for (size_t i = 0; i < carried; i++) {
    hand_over(verification, node, node_input(node, i + 2), body->inputs.items[i + 2], 0, "input", i + 2);
    hand_over(verification, node, node->outputs[i], body->outputs.items[i + 1]->value, 0, "output", i);
  }
  for (size_t i = carried; i < node->output_count; i++) {
    hand_over(verification, node, node->outputs[i], body->outputs.items[i + 1]->value, 1, "output", i);
  }
}

void rule_scan(Verification *verification, const Node *node) {
  const Graph *body = body_of(node, "body");
  int64_t scanned = node_int_or(node, "num_scan_inputs", 0);
  if (is_reference(node, "num_scan_inputs") || !body) return;
  if (scanned < 1 || scanned > node->input_count) {
    FOUND(verification, node, "scans %lld of %u inputs", (long long)scanned, node->input_count);
    return;
  }
  size_t carried = node->input_count - (size_t)scanned;
  if (node->output_count < carried) {
    FOUND(verification, node, "carries %zu values but has %u outputs", carried, node->output_count);
    return;
  }
  if (!body_takes(verification, node, body, "body", node->input_count, node->output_count)) return;
  for (size_t i = 0; i < node->input_count; i++) {
    hand_over(verification, node, node_input(node, i), body->inputs.items[i], i >= carried, "input", i);
  }
  for (size_t i = 0; i < node->output_count; i++) {
    hand_over(verification, node, node->outputs[i], body->outputs.items[i]->value, i >= carried, "output", i);
  }
}
