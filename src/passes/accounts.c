/* Settling accounts: who stands for what the passes took out. Once, at the end, so that a chain of any length costs no
 * more than its length. */
#include "passes/passes.h"
#include "provenance/ledger.h"

typedef ARRAY(const Origin *) OriginList;

typedef struct Accounts {
  Model *model;
  Context *context;
  Provenance *provenance;
  Map inherited;     /* Node or Value -> OriginList */
  ARRAY(Heir) heirs; /* its keys, in order */
  Map present;       /* plain sites of what is left */
} Accounts;

static bool is_alive(Heir heir) { return heir.node ? !heir.node->is_gone : heir.value && heir.value->uses; }

static Heir next_heir(Heir heir) { return heir.node ? heir.node->heir : heir.value->heir; }

static bool is_nobody(Heir heir) { return !heir.node && !heir.value; }

/* The last in the chain; nobody, where it comes back to itself: what was handed over to another and taken back, and was
 * then dead. Removals are looked at from the latest to the first, so most chains are a step long. */
static Heir living_heir(Heir heir) {
  Heir mark = heir;
  size_t steps = 0, limit = 8;
  while (!is_nobody(heir) && !is_alive(heir)) {
    heir = next_heir(heir);
    if (heir.node == mark.node && heir.value == mark.value) return (Heir){0};
    if (++steps < limit) continue;
    mark = heir;
    limit *= 2;
  }
  return heir;
}

static void find_heirs(Accounts *accounts) {
  for (size_t i = accounts->model->removals.count; i--;) {
    const Removal *removal = &accounts->model->removals.items[i];
    Heir *heir = removal->node ? &removal->node->heir : &removal->value->heir;
    *heir = living_heir(*heir);
  }
}

static void inherit(Accounts *accounts, Heir heir, const Origin *origin) {
  const void *key = heir.node ? (const void *)heir.node : heir.value;
  void **slot = map_slot_pointer(accounts->context, &accounts->inherited, key);
  if (!*slot) {
    *slot = arena_new(&accounts->context->arena, OriginList);
    array_push(accounts->context, &accounts->heirs, heir);
  }
  OriginList *list = *slot;
  array_push(accounts->context, list, origin);
}

static void each_body_node(const Node *node, void (*visit)(void *, const Node *), void *data) {
  visit(data, node);
  for (size_t i = 0; i < node->attributes.count; i++) {
    if (node->attributes.items[i].kind != ATTRIBUTE_GRAPH) continue;
    FOR_EACH_NODE(inner, node->attributes.items[i].graph) each_body_node(inner, visit, data);
  }
}

typedef struct Estate {
  Accounts *accounts;
  Heir heir;
} Estate;

static void inherit_node(void *data, const Node *node) {
  const Estate *estate = data;
  if (node->origin) inherit(estate->accounts, estate->heir, node->origin);
}

static void hand_to(Accounts *accounts, const Removal *removal, Heir heir) {
  if (is_nobody(heir)) return;
  Estate estate = {accounts, heir};
  if (removal->node) each_body_node(removal->node, inherit_node, &estate);
  else inherit(accounts, heir, removal->value->origin);
}

/* What several nodes used that were fused into others belongs to each of these. Of a constant that stood for equal ones
 * the last user is one of another: it counts only where none of its own is left. */
static void share_among(Accounts *accounts, const Removal *removal) {
  Heir heir = removal->node ? removal->node->heir : removal->value->heir;
  const Heirs *others = removal->node ? removal->node->others : removal->value->users;
  bool is_merged = removal->value && removal->value->is_merged, has_own = false;
  if (is_merged && heir.value) others = NULL; /* the one that it was merged with is still there */
  for (size_t i = 0; others && i < others->count; i++) {
    Heir other = living_heir(others->items[i]);
    bool is_last = other.node == heir.node && other.value == heir.value;
    if (is_merged || !is_last) hand_to(accounts, removal, other);
    has_own = has_own || !is_nobody(other);
  }
  if (!is_merged || !has_own) hand_to(accounts, removal, heir);
}

static void share_out(Accounts *accounts) {
  for (size_t i = 0; i < accounts->model->removals.count; i++)
    share_among(accounts, &accounts->model->removals.items[i]);
  for (size_t i = 0; i < accounts->heirs.count; i++) {
    Heir heir = accounts->heirs.items[i];
    const Origin **origin = heir.node ? &heir.node->origin : &heir.value->origin;
    const OriginList *list = map_get_pointer(&accounts->inherited, heir.node ? (void *)heir.node : heir.value);
    *origin = *origin ? origin_unite(accounts->provenance, *origin, list->items, list->count) : list->items[0];
  }
}

static void mark_present(Accounts *accounts, const Origin *origin) {
  for (uint32_t i = 0; origin && i < origin->site_count; i++) {
    const Site *plain = site_plain(accounts->provenance, origin->sites[i]);
    *map_slot_pointer(accounts->context, &accounts->present, plain) = accounts;
  }
}

static void mark_graph(Graph *graph, void *data) {
  FOR_EACH_NODE(node, graph) mark_present(data, node->origin);
  for (size_t i = 0; i < graph->initializers.count; i++) mark_present(data, graph->initializers.items[i]->origin);
}

/* Why what was taken out has no heir. NULL: the pass should have named one. */
static const char *reason_of(const char *pass) {
  if (strcmp(pass, "lowering") == 0) return "dead";
  const Pass *row = find_pass(pass);
  return row ? row->removes : NULL;
}

typedef struct Loss {
  Accounts *accounts;
  const char *pass;
} Loss;

static void write_off(Accounts *accounts, const Origin *origin, const char *pass) {
  const char *reason = reason_of(pass);
  if (!reason) return;
  for (uint32_t i = 0; origin && i < origin->site_count; i++) {
    const Site *plain = site_plain(accounts->provenance, origin->sites[i]);
    if (map_get_pointer(&accounts->present, plain)) continue;
    ledger_removed(accounts->provenance, plain, pass, reason);
  }
}

static void write_off_node(void *data, const Node *node) {
  const Loss *loss = data;
  write_off(loss->accounts, node->origin, loss->pass);
}

/* What has no heir, and then what never became a node. */
static void write_off_all(Accounts *accounts) {
  for (size_t i = 0; i < accounts->model->removals.count; i++) {
    const Removal *removal = &accounts->model->removals.items[i];
    Loss loss = {accounts, removal->pass ? removal->pass : "lowering"};
    if (removal->node) each_body_node(removal->node, write_off_node, &loss);
    else write_off(accounts, removal->value->origin, loss.pass);
  }
  const Ledger *ledger = accounts->provenance->ledger;
  for (size_t i = 0; i < ledger->passed.count; i++) {
    const Site *site = ledger->passed.items[i];
    if (map_get_pointer(&accounts->present, site)) continue;
    if (map_get_pointer(&ledger->removed_sites, site)) continue;
    ledger_removed(accounts->provenance, site, "lowering", "no-op");
  }
}

void settle_accounts(Model *model) {
  if (!model->provenance || !model->provenance->ledger) return;
  Accounts accounts = {.model = model, .context = model->context, .provenance = model->provenance};
  find_heirs(&accounts);
  share_out(&accounts);
  model_each_graph(model, mark_graph, &accounts);
  write_off_all(&accounts);
}
