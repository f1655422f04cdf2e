/* The provenance checker. */
#include "passes/check_provenance.h"

#include "passes/rewrite.h"

struct ProvenanceSnapshot {
  Model *model;
  Map nodes;     /* Node -> NodeBefore */
  Map readings;  /* Use -> the Value it read */
  Map constants; /* initializers that were there */
};

typedef struct NodeBefore {
  const Origin *origin;
  uint32_t input_count;
} NodeBefore;

static void remember_use(ProvenanceSnapshot *snapshot, const Use *use) {
  if (use->value) *map_slot_pointer(snapshot->model->context, &snapshot->readings, use) = use->value;
}

static void remember(Graph *graph, void *data) {
  ProvenanceSnapshot *snapshot = data;
  Context *context = snapshot->model->context;
  FOR_EACH_NODE(node, graph) {
    NodeBefore *before = arena_new(&context->arena, NodeBefore);
    *before = (NodeBefore){node->origin, node->input_count};
    *map_slot_pointer(context, &snapshot->nodes, node) = before;
    for (uint32_t i = 0; i < node->input_count; i++) remember_use(snapshot, &node->inputs[i]);
  }
  for (size_t i = 0; i < graph->outputs.count; i++) remember_use(snapshot, graph->outputs.items[i]);
  for (size_t i = 0; i < graph->initializers.count; i++) {
    *map_slot_pointer(context, &snapshot->constants, graph->initializers.items[i]) = snapshot;
  }
}

ProvenanceSnapshot *provenance_snapshot(Model *model) {
  ProvenanceSnapshot *snapshot = arena_new(&model->context->arena, ProvenanceSnapshot);
  snapshot->model = model;
  model_each_graph(model, remember, snapshot);
  return snapshot;
}

typedef struct Check {
  const ProvenanceSnapshot *before;
  Model *model;
  const char *pass;
} Check;

static bool has_site(const Origin *origin, const Site *site) {
  for (uint32_t i = 0; origin && i < origin->site_count; i++) {
    if (origin->sites[i] == site) return true;
  }
  return false;
}

static _Noreturn void lost(const Check *check, const Node *node, const Site *site) {
  Builder text;
  builder_init(&text, check->model->context);
  const Origin alone = {.sites = &site, .site_count = 1};
  render_traceback(check->model->provenance, &text, &alone);
  fail(check->model->context, ERROR_INTERNAL, "the pass %s lost a trace of %s:\n%s", check->pass, node->op_type,
       builder_text(&text));
}

/* Sites of an origin are few, or the same origin is on both sides: looking them up one by one is fast enough for a
 * checker, up to here. */
enum { MOST_COMPARED = 256 };

static void check_kept(const Check *check, const Node *node, const Origin *old, const Origin *now,
                       const Origin *other) {
  if (old == now || old == other) return;
  for (uint32_t i = 0; i < old->site_count && i < MOST_COMPARED; i++) {
    if (!has_site(now, old->sites[i]) && !has_site(other, old->sites[i])) lost(check, node, old->sites[i]);
  }
}

static const NodeBefore *node_before(const Check *check, const Node *node) {
  return map_get_pointer(&check->before->nodes, node);
}

/* A weight is known by its name; what a pass makes of one says of which, and where. */
static void check_made(const Check *check, const Value *value) {
  const Tensor *tensor = value->tensor;
  if (!tensor || value->producer || map_get_pointer(&check->before->constants, value)) return;
  if (tensor->name && !(tensor->made_of && value->origin)) {
    fail(check->model->context, ERROR_INTERNAL, "the pass %s made %s and does not say what of", check->pass,
         tensor->name);
  }
}

static void check_made_of(const Check *check, const Value *old, const Value *now) {
  bool is_new = now->tensor && !now->producer && !map_get_pointer(&check->before->constants, now);
  Str names = old->tensor && !old->producer && is_new ? names_with(check->model->context, NULL, old->tensor) : NULL;
  if (names && names_with(check->model->context, now->tensor->made_of, old->tensor) != now->tensor->made_of) {
    fail(check->model->context, ERROR_INTERNAL, "the pass %s does not say of a constant that it was made of %s",
         check->pass, names);
  }
}

static void check_use(const Check *check, const Use *use) {
  const Value *old = map_get_pointer(&check->before->readings, use), *now = use->value;
  if (!old || !now || old == now) return;
  check_made_of(check, old, now);
  if (!old->producer) return;
  const NodeBefore *before = node_before(check, old->producer);
  if (!before || !before->origin) return;
  bool was_there = !now->producer && (!now->tensor || map_get_pointer(&check->before->constants, now));
  if (was_there) return;
  check_kept(check, old->producer, before->origin, now->producer ? now->producer->origin : now->origin,
             use->node ? use->node->origin : NULL);
}

static void check_graph(Graph *graph, void *data) {
  const Check *check = data;
  FOR_EACH_NODE(node, graph) {
    if (!node->origin || !node->origin->site_count) {
      fail(check->model->context, ERROR_INTERNAL, "the pass %s left a node %s without an origin", check->pass,
           node->op_type);
    }
    const NodeBefore *before = node_before(check, node);
    if (before && before->origin) check_kept(check, node, before->origin, node->origin, NULL);
    if (before && before->input_count != node->input_count) continue; /* inputs that were dropped moved the others */
    for (uint32_t i = 0; i < node->input_count; i++) check_use(check, &node->inputs[i]);
  }
  for (size_t i = 0; i < graph->outputs.count; i++) check_use(check, graph->outputs.items[i]);
  for (size_t i = 0; i < graph->initializers.count; i++) check_made(check, graph->initializers.items[i]);
}

void provenance_check(Model *model, const ProvenanceSnapshot *before, const char *pass) {
  Check check = {before, model, pass};
  model_each_graph(model, check_graph, &check);
}
