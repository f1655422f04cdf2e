/* What becomes of each equation, as far as lowering knows: the first entries of the ledger (provenance/ledger.h).
 *
 * One that got nodes, or constants that stand for its result, is looked for by who checks the ledger, in the model that
 * was written. One that called others is told by these. What remains gave back what it was given. */
#include "lower/books.h"

#include "provenance/ledger.h"

static void each_jaxpr(const Param *param, const char *only, JaxprVisit *visit, void *data) {
  if (param->kind == PARAM_JAXPR && (!only || (param->name && strcmp(param->name, only) == 0))) {
    visit(data, param->jaxpr);
  }
  if (param->kind != PARAM_LIST && param->kind != PARAM_RECORD) return;
  for (size_t i = 0; i < param->list.count; i++) each_jaxpr(&param->list.items[i], only, visit, data);
}

void each_carried_jaxpr(const Equation *equation, const Plugin *plugin, JaxprVisit *visit, void *data) {
  if (!plugin || plugin->flags & (DROPPED | CUSTOM)) return;
  const Param *branches = param_find(equation, "branches");
  int64_t choice = platform_choice(param_find(equation, "branches_platforms"));
  if (branches && branches->kind == PARAM_LIST && choice >= 0 && (uint64_t)choice < branches->list.count) {
    each_jaxpr(&branches->list.items[choice], NULL, visit, data);
    return;
  }
  for (uint32_t p = 0; p < equation->param_count; p++) each_jaxpr(&equation->params[p], plugin->calls, visit, data);
}

/* The site that the equations of a carried jaxpr are inlined at. */
static const Site *inlined_at(const Equation *equation, const Site *site) {
  return strcmp(equation->primitive, "onnx_function") == 0 ? site->caller : site;
}

/* A walk over equations that were not lowered. */
typedef struct Unlowered {
  Lowering *l;
  const Site *caller;
  const Site *reader;          /* the equation whose plugin read them instead, or NULL: they are dead */
  const char *pass;            /* by which */
  bool is_lowered;             /* the equation that carries them is, so that some may be */
  ARRAY(const Origin *) found; /* of the reader's nodes from now on */
} Unlowered;

static void book_jaxpr(void *data, const Jaxpr *jaxpr);

/* JAX's own frames tell no more than the line of the call. */
static bool is_all_jax(const Trace *trace) {
  while (trace && trace->frame->kind == FRAME_JAX) trace = trace->outer;
  return !trace;
}

static void book_site(Unlowered *walk, const Site *site) {
  Lowering *l = walk->l;
  if (ledger_is_booked(l->provenance, site)) return;
  ledger_book(l->provenance, site);
  if (!walk->reader) ledger_removed(l->provenance, site, walk->pass, "dead");
  else if (is_all_jax(site->trace)) ledger_part_of(l->provenance, site, walk->reader);
  else array_push(l->context, &walk->found, origin_new(l->provenance, site, (Emitter){0}, NULL));
}

static void book_equation(Unlowered *walk, const Equation *equation) {
  Lowering *l = walk->l;
  const Site *site = equation_site(l, equation, walk->caller);
  book_site(walk, site);
  const Site *outer = walk->caller;
  walk->caller = inlined_at(equation, site);
  each_carried_jaxpr(equation, plugin_for(l, equation), book_jaxpr, walk);
  walk->caller = outer;
}

static void book_jaxpr(void *data, const Jaxpr *jaxpr) {
  Unlowered *walk = data;
  if (walk->is_lowered && jaxpr->lowered_at == walk->caller) return;
  for (size_t i = 0; i < jaxpr->equation_count; i++) book_equation(walk, jaxpr->equations[i]);
  for (size_t i = 0; i < jaxpr->dropped_count; i++) book_equation(walk, jaxpr->dropped[i]);
}

static bool has_equations(const Jaxpr *jaxpr) { return jaxpr && jaxpr->equation_count + jaxpr->dropped_count; }

/* A node that stands for a result of the equation; NULL when there is none. */
static Node *node_of_result(Lowering *l) {
  for (uint32_t i = 0; i < l->equation->output_count; i++) {
    const Value *value = l->values[l->equation->outputs[i]->id];
    if (value->producer && value->producer->origin) return value->producer;
  }
  return NULL;
}

static Heir heir_of(Lowering *l, const Value *input) {
  Heir heir = {.node = node_of_result(l)};
  for (uint32_t i = 0; !heir.node && !heir.value && i < l->equation->output_count; i++) {
    Value *value = l->values[l->equation->outputs[i]->id];
    if (value->tensor && value != input) heir.value = value;
  }
  return heir;
}

/* A constant that the plugin read at export, and no node does, is a part of what the plugin made of it. */
static void bequeath_constants(Lowering *l) {
  for (uint32_t i = 0; i < l->equation->input_count; i++) {
    const Var *var = l->equation->inputs[i];
    Value *value = var->literal ? NULL : l->values[var->id];
    if (!value || !value->tensor || !value->origin || value->uses || value->heir.node || value->heir.value) continue;
    value->heir = heir_of(l, value);
  }
}

void book_lowered(Lowering *l) {
  Provenance *provenance = l->provenance;
  bool stands_for_itself = l->own_nodes || !has_equations(l->called); /* else what it calls tells of it */
  if (stands_for_itself) ledger_book(provenance, l->site);
  if (l->plugin->flags & DROPPED) ledger_removed(provenance, l->site, "lowering", "left out");
  else if (!l->own_nodes && !has_equations(l->called)) ledger_passed(provenance, l->site);
  bequeath_constants(l);
  if (!l->equation->param_count) return;
  Node *node = l->called ? NULL : node_of_result(l);
  Unlowered walk = {.l = l,
                    .caller = inlined_at(l->equation, l->site),
                    .reader = node ? l->site : NULL,
                    .pass = "lowering",
                    .is_lowered = true};
  each_carried_jaxpr(l->equation, l->plugin, book_jaxpr, &walk);
  if (walk.found.count) node->origin = origin_unite(provenance, node->origin, walk.found.items, walk.found.count);
}

void book_dropped(Lowering *l, const Jaxpr *jaxpr) {
  Unlowered walk = {.l = l, .caller = l->caller, .pass = "unused"};
  for (size_t i = 0; i < jaxpr->dropped_count; i++) book_equation(&walk, jaxpr->dropped[i]);
}

/* The list for who checks: made of the program alone, so that what lowering forgets is on it. */
typedef struct Listing {
  Lowering *l;
  const Site *caller;
  size_t count; /* of equations in the jaxprs that an equation carries */
} Listing;

static void list_jaxpr(void *data, const Jaxpr *jaxpr);

static void list_equation(Listing *listing, const Equation *equation) {
  Lowering *l = listing->l;
  const Site *site = equation_site(l, equation, listing->caller);
  Listing inner = {.l = l, .caller = inlined_at(equation, site)};
  each_carried_jaxpr(equation, plugin_for(l, equation), list_jaxpr, &inner);
  if (!inner.count) ledger_traced(l->provenance, site);
}

static void list_jaxpr(void *data, const Jaxpr *jaxpr) {
  Listing *listing = data;
  listing->count += jaxpr->equation_count + jaxpr->dropped_count;
  for (size_t i = 0; i < jaxpr->equation_count; i++) list_equation(listing, jaxpr->equations[i]);
  for (size_t i = 0; i < jaxpr->dropped_count; i++) list_equation(listing, jaxpr->dropped[i]);
}

void list_traced(Lowering *l) { list_jaxpr(&(Listing){.l = l}, l->program->main); }
