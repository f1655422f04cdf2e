/* Codes that are only compared with one number are chosen and carried as what the comparison says.
 *
 * Libraries keep what became of a computation as a number: 0 as long as all is well, and another for every reason to
 * stop. A model that returns none of the reasons only asks whether the number is 0. The number goes from step to step,
 * out of one loop and into the next, and is chosen on the way among constants; where every reader in the end compares
 * it with the same constant, the condition takes that way instead. And and Or take ONNX Runtime a third of the time of
 * Where, and what told the reasons apart is not computed.
 */
#include "passes/loop_body.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

enum { MOST_VALUES = 64 /* that one code is on its way */ };

/* A carried value of a loop, or a result of a conditional. */
typedef struct Place {
  Node *node;
  size_t index; /* of its results */
} Place;

/* All values that are the same code, one passed on to the other. */
typedef struct Code {
  Rewriter *rewriter;
  Value *constant; /* that it is compared with; NULL: not found yet */
  int64_t number;  /* the same */
  ARRAY(Value *) values;
  ARRAY(Place) places;
  ARRAY(Node *) tests;
  Map conditions; /* Value -> the condition in its place; itself until then */
  bool is_none;   /* it is read in another way, or made in another way than by a choice among constants */
} Code;

static void add_value(Code *code, Value *value) {
  Context *context = code->rewriter->context;
  if (!value || !dtype_is_integer(value->type.dtype) || type_is_unranked(value->type) || value->type.rank ||
      code->values.count == MOST_VALUES) {
    code->is_none = true;
    return;
  }
  void **slot = map_slot_pointer(context, &code->conditions, value);
  if (*slot) return;
  *slot = value;
  array_push(context, &code->values, value);
}

/* Whatever takes the place has the code, and gives it to the step and to what comes behind. */
static void add_place(Code *code, Node *node, size_t index) {
  LoopShape shape;
  if (map_get_pointer(&code->conditions, node->outputs[index])) return;
  array_push(code->rewriter->context, &code->places, ((Place){node, index}));
  add_value(code, node->outputs[index]);
  if (loop_shape(node, &shape)) add_value(code, shape.body->inputs.items[shape.first_body_input + index]);
}

static size_t index_of_input(const Graph *graph, const Value *value) {
  size_t index = 0;
  while (index < graph->inputs.count && graph->inputs.items[index] != value) index++;
  return index;
}

/* What the code is made of: constants, and other values that are the code. */
static void add_source(Code *code, Value *value) {
  Node *node = value->producer, *owner = value->graph ? value->graph->owner : NULL;
  LoopShape shape;
  int64_t number;
  const Tensor *constant = constant_of(value);
  if (constant && !constant->name && small_integer(value, &number)) return;
  if (node && (node_is(node, OP_Where) || node_is(node, OP_Identity))) {
    add_value(code, value);
  } else if (node && node_is(node, OP_If)) {
    add_place(code, node, value->output_index);
  } else if (node && loop_shape(node, &shape) && value->output_index < shape.carried) {
    add_place(code, node, value->output_index);
  } else if (!node && owner && loop_shape(owner, &shape)) {
    size_t index = index_of_input(shape.body, value) - shape.first_body_input;
    if (index < shape.carried && owner->outputs[index]) add_place(code, owner, index);
    else code->is_none = true;
  } else {
    code->is_none = true;
  }
}

static void add_sources_of_value(Code *code, const Value *value) {
  const Node *node = value->producer;
  if (!node || (!node_is(node, OP_Where) && !node_is(node, OP_Identity))) return;
  for (uint32_t i = node_is(node, OP_Where); i < node->input_count; i++) add_source(code, node_input(node, i));
}

static void add_sources_of_place(Code *code, Place place) {
  const Node *node = place.node;
  LoopShape shape;
  if (loop_shape(node, &shape)) {
    add_source(code, node_input(node, shape.first_input + place.index));
    add_source(code, shape.body->outputs.items[shape.lead + place.index]->value);
    return;
  }
  for (size_t i = 0; i < node->attributes.count; i++) {
    add_source(code, node->attributes.items[i].graph->outputs.items[place.index]->value);
  }
}

static void follow_output(Code *code, const Graph *graph, const Use *use) {
  Node *owner = graph->owner;
  LoopShape shape = {0};
  size_t index = 0;
  while (index < graph->outputs.count && graph->outputs.items[index] != use) index++;
  bool loops = owner && loop_shape(owner, &shape);
  bool is_passed_on =
      loops ? index >= shape.lead && index - shape.lead < shape.carried : owner && node_is(owner, OP_If);
  if (!is_passed_on || !owner->outputs[index - shape.lead]) code->is_none = true;
  else add_place(code, owner, index - shape.lead);
}

static void follow_test(Code *code, Node *test, const Value *value) {
  Value *other = node_input(test, node_input(test, 0) == value);
  int64_t number;
  bool agrees = small_integer(other, &number) && (!code->constant || number == code->number);
  if (!agrees) {
    code->is_none = true;
    return;
  }
  code->constant = other;
  code->number = number;
  array_push(code->rewriter->context, &code->tests, test);
}

static void follow_loop(Code *code, Node *loop, const Use *use) {
  LoopShape shape;
  size_t input = (size_t)(use - loop->inputs);
  bool is_carried = loop_shape(loop, &shape) && input >= shape.first_input && input - shape.first_input < shape.carried;
  if (!is_carried || !loop->outputs[input - shape.first_input]) code->is_none = true;
  else add_place(code, loop, input - shape.first_input);
}

static void follow(Code *code, const Value *value, const Use *use) {
  Node *node = use->node;
  if (!node) follow_output(code, value->graph, use);
  else if (node_is(node, OP_Equal)) follow_test(code, node, value);
  else if (node_is(node, OP_Identity) || (node_is(node, OP_Where) && use != &node->inputs[0]))
    add_value(code, node->outputs[0]);
  else if (node_has(node, LOOPS)) follow_loop(code, node, use);
  else code->is_none = true;
}

/* Where does it go and come from, beginning with the values and places that are known? */
static bool follow_all(Code *code) {
  for (size_t i = 0, places = 0; i < code->values.count && !code->is_none; i++) {
    const Value *value = code->values.items[i];
    for (const Use *use = value->uses; use && !code->is_none; use = use->next) follow(code, value, use);
    add_sources_of_value(code, value);
    while (places < code->places.count) add_sources_of_place(code, code->places.items[places++]);
  }
  return !code->is_none && code->constant;
}

/* ---- the condition in its place ---- */

static Value *make(Code *code, Node *choice, Op op, Value *one, Value *other) {
  const Origin *origin = REWRITE_ORIGIN(code->rewriter, choice);
  Type type = {.dtype = DTYPE_BOOL};
  Value *inputs[] = {one, other};
  return graph_node(choice->graph, origin, op, inputs, other ? 2 : 1, &type, 1, choice)->outputs[0];
}

static Value *condition_of(Code *code, Node *reader, Value *value);

/* What was chosen is the number if the one is and was chosen, or if the other is and was. */
static Value *condition_of_choice(Code *code, Node *choice) {
  Value *conditions[2], *both[2];
  Value *when[] = {node_input(choice, 0), make(code, choice, OP_Not, node_input(choice, 0), NULL)};
  for (size_t i = 0; i < 2; i++) conditions[i] = condition_of(code, choice, node_input(choice, i + 1));
  for (size_t i = 0; i < 2; i++) {
    Value *other = conditions[1 - i];
    if (is_boolean(conditions[i], true)) return make(code, choice, OP_Or, when[i], other);
    if (is_boolean(conditions[i], false)) return make(code, choice, OP_And, when[1 - i], other);
    both[i] = make(code, choice, OP_And, when[i], conditions[i]);
  }
  return make(code, choice, OP_Or, both[0], both[1]);
}

/* The reader tells of what becomes a constant. */
static Value *condition_of(Code *code, Node *reader, Value *value) {
  Context *context = code->rewriter->context;
  Value *known = map_get_pointer(&code->conditions, value);
  Node *node = value->producer;
  int64_t number;
  if (small_integer(value, &number))
    return rewrite_constant_number(code->rewriter, reader, DTYPE_BOOL, number == code->number, reader->origin);
  if (known != value || !node || !node_is(node, OP_Where)) return known;
  known = condition_of_choice(code, node);
  *map_slot_pointer(context, &code->conditions, value) = known;
  return known;
}

/* An output of a graph needs a node of its own. */
static Value *output_of(Code *code, Node *owner, Graph *graph, Value *value) {
  Value *condition = condition_of(code, owner, value);
  if (condition->graph == graph && condition->producer) return condition;
  const Origin *origin = REWRITE_ORIGIN(code->rewriter, owner);
  return graph_node(graph, origin, OP_Identity, &condition, 1, &condition->type, 1, NULL)->outputs[0];
}

static void fill_place(Code *code, Place place) {
  LoopShape shape;
  Node *node = place.node;
  if (!loop_shape(node, &shape)) {
    for (size_t i = 0; i < node->attributes.count; i++) {
      Graph *branch = node->attributes.items[i].graph;
      Use *use = branch->outputs.items[place.index];
      use_set(use, output_of(code, node, branch, use->value));
    }
    return;
  }
  Use *before = &node->inputs[shape.first_input + place.index];
  Use *next = shape.body->outputs.items[shape.lead + place.index];
  use_set(before, condition_of(code, node, before->value));
  use_set(next, output_of(code, node, shape.body, next->value));
}

/* Those who read the test keep what it came from where no node makes the condition. */
static void replace_test(Code *code, Node *test) {
  Rewriter *rewriter = code->rewriter;
  Value *value = node_input(test, node_input(test, 0) == code->constant || constant_of(node_input(test, 0)));
  Value *condition = condition_of(code, test, value);
  for (const Use *use = test->outputs[0]->uses; use && !condition->producer; use = use->next) {
    if (use->node) rewrite_hand_over(rewriter, use->node, test);
  }
  rewrite_replace(rewriter, test, condition);
}

/* What was chosen by number goes, the last choice first. */
static void drop_choices(Code *code) {
  for (bool again = true; again;) {
    again = false;
    for (size_t i = code->values.count; i--;) {
      Value *value = code->values.items[i];
      Node *choice = value->producer;
      const Value *condition = map_get_pointer(&code->conditions, value);
      if (!choice || !node_is(choice, OP_Where) || choice->is_gone || value->uses) continue;
      rewrite_drop_unused(code->rewriter, choice, condition == value ? NULL : condition->producer);
      again = true;
    }
  }
}

static void carry_condition(Code *code) {
  for (size_t i = 0; i < code->values.count; i++) {
    Value *value = code->values.items[i];
    Node *node = value->producer;
    if (!node || !node_is(node, OP_Where)) value->type = type_with(value->type, DTYPE_BOOL);
  }
  for (size_t i = 0; i < code->places.count; i++) fill_place(code, code->places.items[i]);
  for (size_t i = 0; i < code->values.count; i++) {
    Node *node = code->values.items[i]->producer;
    if (node && node_is(node, OP_Identity)) use_set(&node->inputs[0], condition_of(code, node, node_input(node, 0)));
  }
  for (size_t i = 0; i < code->tests.count; i++) replace_test(code, code->tests.items[i]);
  drop_choices(code);
  code->rewriter->changed = true;
}

static void visit_loop(Rewriter *rewriter, Node *loop) {
  LoopShape shape;
  if (!loop_shape(loop, &shape)) return;
  for (size_t i = 0; i < shape.carried; i++) {
    Code code = {.rewriter = rewriter};
    if (!loop->outputs[i]) continue;
    add_place(&code, loop, i);
    if (follow_all(&code)) carry_condition(&code);
  }
}

static void visit(Rewriter *rewriter, Node *node) {
  Code code = {.rewriter = rewriter};
  if (node_has(node, LOOPS)) visit_loop(rewriter, node);
  if (!node_is(node, OP_Where) || !node->outputs[0]->uses) return;
  add_value(&code, node->outputs[0]);
  if (follow_all(&code)) carry_condition(&code);
}

bool carry_conditions(Model *model) {
  Rewriter rewriter;
  rewrite_begin(&rewriter, model, __func__);
  rewrite_each_node(&rewriter, visit);
  return rewrite_end(&rewriter);
}
