/* The verifier: arity, attributes and element types of a node, as the operator's version in force says. */
#include "base/bytes.h"
#include "onnx/facts/schema_fields.h"
#include "onnx/graph/verify_node.h"

/* ---- arity ---- */

static void check_count(Verification *verification, const Node *node, const char *what, size_t count, size_t least,
                        size_t most) {
  if (count >= least && count <= most) return;
  if (least == most) {
    FOUND(verification, node, "has %zu %s%s but needs %zu", count, what, count == 1 ? "" : "s", least);
  } else if (count < least) {
    FOUND(verification, node, "has %zu %s%s but needs at least %zu", count, what, count == 1 ? "" : "s", least);
  } else {
    FOUND(verification, node, "has %zu %ss but accepts at most %zu", count, what, most);
  }
}

/* An output that nothing reads may be left out at the end; one that must be there may not. */
static void check_arity(Verification *verification, const Node *node, const Signature *signature) {
  size_t most_inputs = signature->most_inputs == MANY ? SIZE_MAX : signature->most_inputs;
  size_t most_outputs = signature->most_outputs == MANY ? SIZE_MAX : signature->most_outputs;
  check_count(verification, node, "input", node->input_count, signature->least_inputs, most_inputs);
  check_count(verification, node, "output", node->output_count, signature->least_outputs, most_outputs);
}

/* ---- attributes ---- */

static const char kind_letters[] = {
    [ATTRIBUTE_INT] = 'i',   [ATTRIBUTE_FLOAT] = 'f', [ATTRIBUTE_STRING] = 's', [ATTRIBUTE_TENSOR] = 't',
    [ATTRIBUTE_GRAPH] = 'g', [ATTRIBUTE_INTS] = 'I',  [ATTRIBUTE_FLOATS] = 'F', [ATTRIBUTE_STRINGS] = 'S',
};

static const char *kind_name(char letter) {
  switch (letter) {
    case 'i': return "an integer";
    case 'f': return "a float";
    case 's': return "a string";
    case 't': return "a tensor";
    case 'g': return "a graph";
    case 'I': return "a list of integers";
    case 'F': return "a list of floats";
    case 'S': return "a list of strings";
    default: return "something else";
  }
}

static bool is_named(const Attribute *attribute, const AttributeFact *fact) {
  return str_length(attribute->name) == fact->length && same_bytes(attribute->name, fact->name, fact->length);
}

static const Attribute *given(const Node *node, const AttributeFact *fact) {
  for (size_t i = 0; i < node->attributes.count; i++) {
    if (is_named(&node->attributes.items[i], fact)) return &node->attributes.items[i];
  }
  return NULL;
}

/* A list without elements is a list of any kind: a file that does not say so leaves it open. */
static bool has_kind(const Attribute *attribute, char kind) {
  if (attribute->reference) return true;
  if (attribute->kind == ATTRIBUTE_OTHER) return !strchr("ifstgIFS", kind);
  return kind_letters[attribute->kind] == kind;
}

static void check_given(Verification *verification, const Node *node, const Attribute *attribute,
                        const AttributeFact *fact) {
  int64_t opset = verification->opset;
  if (opset < fact->first || opset > fact->last) {
    FOUND(verification, node, "there is no attribute %s at opset %lld", attribute->name, (long long)opset);
  } else if (!has_kind(attribute, fact->kind)) {
    FOUND(verification, node, "the attribute %s is %s but must be %s", attribute->name,
          kind_name(kind_letters[attribute->kind == ATTRIBUTE_OTHER ? 0 : attribute->kind]), kind_name(fact->kind));
  }
}

/* Attributes are few, and a node of which that is not true has names that are not known. */
static void check_unknown(Verification *verification, const Node *node, const char *facts) {
  for (size_t i = 0; i < node->attributes.count; i++) {
    const Attribute *attribute = &node->attributes.items[i];
    AttributeFact fact;
    bool known = false;
    for (const char *at = facts; !known && attribute_fact_next(&at, &fact);) known = is_named(attribute, &fact);
    if (!known) FOUND(verification, node, "there is no attribute %s", attribute->name);
    else if (given(node, &fact) != attribute) FOUND(verification, node, "duplicate attribute %s", attribute->name);
  }
}

static void check_attributes(Verification *verification, const Node *node) {
  const char *facts = operators[node->op].attributes;
  AttributeFact fact;
  size_t used = 0;
  for (const char *at = facts; attribute_fact_next(&at, &fact);) {
    const Attribute *attribute = given(node, &fact);
    if (attribute) {
      check_given(verification, node, attribute, &fact);
      used++;
    } else if (fact.required && verification->opset >= fact.first && verification->opset <= fact.last) {
      FOUND(verification, node, "the attribute %.*s is missing", (int)fact.length, fact.name);
    }
  }
  if (used != node->attributes.count) check_unknown(verification, node, facts);
}

/* ---- element types ---- */

typedef struct Types {
  Verification *verification;
  const Node *node;
  const Signature *signature;
  struct {
    DType dtype;
    const char *what; /* the first parameter with this letter */
    uint32_t index;
  } bound[SIGNATURE_TYPES];
} Types;

static void check_type(Types *types, char letter, bool alone, const Value *value, const char *what, uint32_t index) {
  size_t which = (size_t)(letter - 'a');
  DType dtype = value->type.dtype;
  if (dtype == DTYPE_NONE) return;
  if (!(types->signature->types[which] >> dtype & 1)) {
    FOUND(types->verification, types->node, "%s %u is %s, which %s does not accept at opset %lld", what, index,
          dtype_name(dtype), types->node->op_type, (long long)types->verification->opset);
  } else if (!alone && types->bound[which].what && types->bound[which].dtype != dtype) {
    FOUND(types->verification, types->node, "%s %u is %s but must be %s like %s %u", what, index, dtype_name(dtype),
          dtype_name(types->bound[which].dtype), types->bound[which].what, types->bound[which].index);
  } else if (!types->bound[which].what) {
    types->bound[which].dtype = dtype;
    types->bound[which].what = what;
    types->bound[which].index = index;
  }
}

/* Steps over the letter of a parameter and its mark; the last one stays when there are any number of it. */
static const char *next_parameter(const char *at) {
  if (at[1] == '*' || at[1] == '+') return at;
  return at + (at[1] == '?' ? 2 : 1);
}

static const char *check_inputs(Types *types, const char *at) {
  const Node *node = types->node;
  for (uint32_t i = 0; i < node->input_count && *at != '>'; i++, at = next_parameter(at)) {
    const Value *value = node->inputs[i].value;
    if (value) check_type(types, *at, at[1] == '+', value, "input", i);
    else if (at[1] != '?') FOUND(types->verification, node, "input %u is missing", i);
  }
  return strchr(at, '>') + 1;
}

static void check_types(Verification *verification, const Node *node, const Signature *signature) {
  Types types = {verification, node, signature, {{0}}};
  const char *at = check_inputs(&types, signature->parameters);
  for (uint32_t i = 0; i < node->output_count && *at; i++, at = next_parameter(at)) {
    if (node->outputs[i]) check_type(&types, *at, at[1] == '+', node->outputs[i], "output", i);
  }
}

/* ---- the node ---- */

/* Whether there are no attributes and all values, of which there is one that is made, have one element type: what is
 * right about such a node is right about the next. */
static bool is_plain(const Node *node) {
  if (node->attributes.count || node->output_count != 1 || !node->outputs[0] || !node->input_count) return false;
  DType dtype = node->outputs[0]->type.dtype;
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (!node->inputs[i].value || node->inputs[i].value->type.dtype != dtype) return false;
  }
  return dtype != DTYPE_NONE;
}

static bool was_right(const Verification *verification, const Node *node) {
  return verification->right[node->op].inputs == node->input_count &&
         verification->right[node->op].dtypes >> node->outputs[0]->type.dtype & 1;
}

static void remember_right(Verification *verification, const Node *node) {
  uint64_t before =
      verification->right[node->op].inputs == node->input_count ? verification->right[node->op].dtypes : 0;
  verification->right[node->op].inputs = node->input_count;
  verification->right[node->op].dtypes = before | (uint64_t)1 << node->outputs[0]->type.dtype;
}

static const Signature *signature(Verification *verification, Op op) {
  const Signature **known = &verification->known[op];
  if (!*known) *known = signature_of(op, verification->opset);
  return *known;
}

/* Formulas over floats, in the type of what they are given; Narrow alone is there to change it. */
static void check_composite_types(Verification *verification, const Node *node) {
  const Value *given = node_input(node, 0), *made = node->output_count ? node->outputs[0] : NULL;
  if (!given || !made || given->type.dtype == DTYPE_NONE || made->type.dtype == DTYPE_NONE) return;
  bool keeps = node->op == OP_Narrow || given->type.dtype == made->type.dtype;
  if (keeps && dtype_is_float(given->type.dtype) && dtype_is_float(made->type.dtype)) return;
  FOUND(verification, node, "makes %s of %s", dtype_name(made->type.dtype), dtype_name(given->type.dtype));
}

static bool verify_composite(Verification *verification, const Node *node) {
  const Operator *row = &operators[node->op];
  size_t before = verification->faults.count;
  check_count(verification, node, "input", node->input_count, row->least_inputs, row->most_inputs);
  check_count(verification, node, "output", node->output_count, row->least_outputs, row->most_outputs);
  check_attributes(verification, node);
  check_composite_types(verification, node);
  return verification->faults.count == before;
}

bool verify_operator(Verification *verification, const Node *node) {
  if (node->op > OP_STANDARD_END) return verify_composite(verification, node);
  if (*node->domain) return false;
  bool plain = is_plain(node);
  if (plain && was_right(verification, node)) return true;
  if (verification->opset < SIGNATURE_OLDEST_OPSET || verification->opset > SCHEMA_NEWEST_OPSET) return false;
  const Signature *row = node->op == OP_NONE ? NULL : signature(verification, node->op);
  if (!row) {
    FOUND(verification, node, "there is no operator %s at opset %lld", node->op_type, (long long)verification->opset);
    return false;
  }
  size_t before = verification->faults.count;
  check_arity(verification, node, row);
  check_attributes(verification, node);
  check_types(verification, node, row);
  if (verification->faults.count != before) return false;
  if (plain) remember_right(verification, node);
  return true;
}

/* ---- calls ---- */

static void check_argument(Verification *verification, const Node *node, const Value *given_value, const Value *taken,
                           const char *what, uint32_t index) {
  if (!given_value || !taken || given_value->type.dtype == DTYPE_NONE || taken->type.dtype == DTYPE_NONE) return;
  if (given_value->type.dtype == taken->type.dtype) return;
  FOUND(verification, node, "%s %u is %s, but in the function it is %s", what, index,
        dtype_name(given_value->type.dtype), dtype_name(taken->type.dtype));
}

static bool has_attribute(const Function *function, const Attribute *attribute) {
  for (size_t i = 0; i < function->attributes.count; i++) {
    if (function->attributes.items[i] == attribute->name) return true;
  }
  return false;
}

void verify_call(Verification *verification, const Node *node, const Function *function) {
  const Graph *body = function->body;
  if (!body) return;
  if (node->op_type != function->name || node->domain != function->domain) {
    FOUND(verification, node, "calls the function %s, which has another name", function->name);
  }
  check_count(verification, node, "input", node->input_count, 0, body->inputs.count);
  check_count(verification, node, "output", node->output_count, 0, body->outputs.count);
  for (uint32_t i = 0; i < node->input_count && i < body->inputs.count; i++) {
    check_argument(verification, node, node->inputs[i].value, body->inputs.items[i], "input", i);
  }
  for (uint32_t i = 0; i < node->output_count && i < body->outputs.count; i++) {
    check_argument(verification, node, node->outputs[i], body->outputs.items[i]->value, "output", i);
  }
  for (size_t i = 0; i < node->attributes.count; i++) {
    if (!has_attribute(function, &node->attributes.items[i])) {
      FOUND(verification, node, "the function %s has no attribute %s", function->name, node->attributes.items[i].name);
    }
  }
}
