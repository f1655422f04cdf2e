#include "passes/analysis/quantized.h"

#include <math.h>

#include "base/bytes.h"
#include "onnx/evaluate/evaluate.h"
#include "passes/rewrite.h"
#include "types/moved.h"

enum { MOST_STEPS = 6, MOST_BEFORE = 40, MOST_INPUTS = 8 };

bool is_small_integer(DType dtype) {
  return dtype == DTYPE_INT8 || dtype == DTYPE_UINT8 || dtype == DTYPE_INT4 || dtype == DTYPE_UINT4;
}

bool is_small_number(DType dtype) {
  return is_small_integer(dtype) || (dtype_is_float(dtype) && dtype_bits(dtype) == 8);
}

bool is_whole_weight(const Value *value) {
  enum { FEWEST = 64, FEWEST_OF_FOUR_BITS = 1024 }; /* elements */
  const Tensor *tensor = unread_constant_of(value);
  float largest = 0, least = 0, most = 0;
  if (!tensor || tensor->dtype != DTYPE_FLOAT32 || tensor->rank < 2 || tensor_is_far(tensor)) return false;
  tensor = constant_of(value);
  size_t count = tensor ? tensor->size / sizeof largest : 0;
  if (count < FEWEST) return false;
  for (size_t i = 0; i < count; i++) {
    float number;
    copy_bytes(&number, (const char *)tensor->data + i * sizeof number, sizeof number);
    if (!(number >= -128 && number <= 127) || number != floorf(number)) return false;
    least = fminf(least, number);
    most = fmaxf(most, number);
  }
  largest = fmaxf(most, -least);
  return largest > 8 || (least < 0 && most > 0 && count >= FEWEST_OF_FOUR_BITS);
}

static bool is_product(const Node *node) {
  return node_is(node, OP_MatMul) || node_is(node, OP_Gemm) || node_is(node, OP_Einsum) || node_has(node, CONVOLVES);
}

/* Is it a constant, or will it be one when what makes it is folded? Looks at so many values. */
static bool is_known(const Value *value, int *most) {
  const Node *node = value->producer;
  if (unread_constant_of(value)) return true;
  if (!node || (*most)-- <= 0 || !node->input_count || node->input_count > MOST_INPUTS) return false;
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (node_input(node, i) && !is_known(node_input(node, i), most)) return false;
  }
  return true;
}

bool is_known_at_export(const Value *value) {
  int most = MOST_BEFORE;
  return is_known(value, &most);
}

static const Tensor *computed(Context *context, const Value *value, int64_t opset) {
  enum { LARGEST = 64 << 20 }; /* bytes */
  const Tensor *constant = unread_constant_of(value), *inputs[MOST_INPUTS] = {NULL};
  const Node *node = value->producer;
  if (constant) return constant;
  if (node->output_count != 1 || node_has_subgraph(node)) return NULL;
  for (uint32_t i = 0; i < node->input_count; i++) {
    inputs[i] = node_input(node, i) ? computed(context, node_input(node, i), opset) : NULL;
    if (node_input(node, i) && !inputs[i]) return NULL;
  }
  return evaluate_node(&(Evaluation){.context = context,
                                     .node = node,
                                     .inputs = inputs,
                                     .input_count = node->input_count,
                                     .opset = opset,
                                     .largest = LARGEST});
}

const Tensor *known_tensor_of(Context *context, const Value *value, int64_t opset) {
  return is_known_at_export(value) ? computed(context, value, opset) : NULL;
}

/* Is it cast, moved, or scaled and shifted by a constant? */
static bool passes_on(const Node *node, const Value *value) {
  if (node_is(node, OP_Transpose) || node_is(node, OP_Cast) || node_is(node, OP_Narrow)) return true;
  if ((node_has(node, RENAMES) || node_is(node, OP_Sub)) && node_input(node, 0) != value) return false;
  if (node_has(node, RENAMES)) return true;
  if (!node_is(node, OP_Mul) && !node_is(node, OP_Add) && !node_is(node, OP_Sub) && !node_is(node, OP_DequantizeLinear))
    return false;
  for (uint32_t i = 0; i < node->input_count; i++) {
    const Value *other = node_input(node, i);
    if (other && other != value && !is_known_at_export(other)) return false;
  }
  return true;
}

static bool leads_on(const Value *value, int steps) {
  for (const Use *use = value->uses; use; use = use->next) {
    const Node *node = use->node;
    if (node && is_product(node)) continue;
    if (!node || !steps || node->output_count != 1 || !passes_on(node, value)) return false;
    if (!leads_on(node->outputs[0], steps - 1)) return false;
  }
  return value->uses != NULL;
}

bool leads_to_product(const Value *value) { return leads_on(value, MOST_STEPS); }
