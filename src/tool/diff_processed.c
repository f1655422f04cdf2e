/* j2o diff --processed: what a tool made of the nodes of each line. The nodes are matched as j2o graft matches them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "graft/match.h"
#include "tool/index.h"
#include "tool/trace_report.h"

typedef enum Fate {
  FATE_KEPT,
  FATE_RETYPED,
  FATE_QUANTISED,
  FATE_FUSED,
  FATE_REWRITTEN,
  FATE_FOLDED,
  FATE_REMOVED,
  FATES
} Fate;

static const char *const fate_names[FATES] = {"kept",      "retyped", "quantised", "fused",
                                              "rewritten", "folded",  "removed"};

/* A node of the original: what became of it, and the nodes that came from it. */
typedef struct Outcome {
  Index node;
  Fate fate;
  Place place;
  ARRAY(Index) heirs; /* of the processed model */
  bool shared;        /* some heir came from other nodes too */
} Outcome;

typedef struct Comparison {
  Job *job;
  const Match *match;
  Outcome *outcomes; /* by node of the original */
  size_t counts[FATES];
} Comparison;

/* ---- what became of a node ---- */

static void add_heir(Comparison *comparison, Index original, Index heir, bool shared) {
  Outcome *outcome = &comparison->outcomes[original];
  array_push(&comparison->job->context, &outcome->heirs, heir);
  outcome->shared = outcome->shared || shared;
}

static void find_heirs(Comparison *comparison) {
  const Match *match = comparison->match;
  for (Index i = 1; i < match->processed->nodes.count; i++) {
    const Descent *descent = &match->descents[i];
    if (!descent->primary) continue;
    add_heir(comparison, descent->primary, i, descent->other_count > 0);
    for (size_t k = 0; k < descent->other_count; k++) add_heir(comparison, descent->others[k], i, true);
  }
}

static bool is_quantised(const Match *match, Index index) {
  const SideNode *node = side_node(match->processed, index);
  const char *op = node->node->op_type;
  if (strncmp(op, "QLinear", 7) == 0 || strstr(op, "Integer") || strstr(op, "NBits")) return true;
  for (uint32_t i = 0; i < node->node->input_count; i++) {
    Index maker = node->inputs[i] ? side_value(match->processed, node->inputs[i])->producer : NONE;
    if (maker && node_is(side_node(match->processed, maker)->node, OP_DequantizeLinear)) return true;
  }
  return false;
}

static bool is_retyped(const SideNode *a, const SideNode *b) {
  if (!a->node->output_count || !b->node->output_count || !a->node->outputs[0] || !b->node->outputs[0]) return false;
  DType before = a->node->outputs[0]->type.dtype, after = b->node->outputs[0]->type.dtype;
  return before != DTYPE_NONE && after != DTYPE_NONE && before != after;
}

static Fate fate_of(const Match *match, const Outcome *outcome) {
  const SideNode *node = side_node(match->original, outcome->node);
  Fate fate = outcome->shared ? FATE_FUSED : FATE_REWRITTEN;
  for (size_t i = 0; i < outcome->heirs.count; i++) {
    const SideNode *heir = side_node(match->processed, outcome->heirs.items[i]);
    if (is_quantised(match, outcome->heirs.items[i])) return FATE_QUANTISED;
    if (heir->twin == outcome->node) fate = is_retyped(node, heir) ? FATE_RETYPED : FATE_KEPT;
  }
  if (outcome->heirs.count) return fate;
  Index output = node->node->output_count ? node->outputs[0] : NONE;
  Index twin = output ? side_value(match->original, output)->twin : NONE;
  return twin && side_value(match->processed, twin)->is_constant ? FATE_FOLDED : FATE_REMOVED;
}

/* ---- by line ---- */

static int by_place(const void *a, const void *b) {
  const Outcome *one = *(const Outcome *const *)a, *two = *(const Outcome *const *)b;
  int order = strcmp(one->place.file ? one->place.file : "", two->place.file ? two->place.file : "");
  if (!order) order = (one->place.line > two->place.line) - (one->place.line < two->place.line);
  if (!order)
    order = strcmp(one->place.function ? one->place.function : "", two->place.function ? two->place.function : "");
  return order ? order : (one->node > two->node) - (one->node < two->node);
}

static void add_node(Report *report, const Node *node) {
  report_operator(report, node);
  report_add(report, " ");
  report_name(report, *node->name || !node->output_count || !node->outputs[0] ? node->name : node->outputs[0]->name);
}

static void add_outcome(const Comparison *comparison, const Outcome *outcome) {
  Report *report = &comparison->job->report;
  builder_format(&report->line, "  %-9s ", fate_names[outcome->fate]);
  add_node(report, side_node(comparison->match->original, outcome->node)->node);
  for (size_t i = 0; i < outcome->heirs.count; i++) {
    report_add(report, i ? ", " : " -> ");
    add_node(report, side_node(comparison->match->processed, outcome->heirs.items[i])->node);
  }
  report_add(report, "\n");
  report_flush(report);
}

static void add_heading(const Comparison *comparison, Place place) {
  Report *report = &comparison->job->report;
  report_add(report, "\n");
  report_color(report, COLOR_HEAD);
  if (place.function) report_place(report, place);
  else report_add(report, "nodes without provenance");
  report_color(report, COLOR_PLAIN);
  if (place.file) {
    report_add(report, "  ");
    report_path(report, place.file);
  }
  report_add(report, "\n");
}

static void print_text(const Comparison *comparison, Outcome *const *order, size_t count) {
  Report *report = &comparison->job->report;
  report_text(report, comparison->job->operands[0], strlen(comparison->job->operands[0]));
  report_add(report, " -> ");
  report_text(report, comparison->job->operands[1], strlen(comparison->job->operands[1]));
  report_add(report, ":");
  for (Fate fate = 0, said = 0; fate < FATES; fate++) {
    if (!comparison->counts[fate]) continue;
    builder_format(&report->line, "%s %zu %s", said++ ? "," : "", comparison->counts[fate], fate_names[fate]);
  }
  report_add(report, "\n");
  const Outcome *before = NULL;
  for (size_t i = 0; i < count; i++) {
    const Outcome *outcome = order[i];
    if (outcome->fate == FATE_KEPT) continue;
    bool same = before && before->place.file == outcome->place.file && before->place.line == outcome->place.line &&
                before->place.function == outcome->place.function;
    if (!same) add_heading(comparison, outcome->place);
    add_outcome(comparison, outcome);
    before = outcome;
  }
}

static void json_node(Report *report, const Node *node) {
  report_add(report, "{\"name\": ");
  json_name(report, node->name);
  json_key(report, "op_type");
  json_name(report, node->op_type);
  report_add(report, "}");
}

static void print_json(const Comparison *comparison, Outcome *const *order, size_t count) {
  Report *report = &comparison->job->report;
  report_add(report, "{\"original\": ");
  json_text(report, comparison->job->operands[0], strlen(comparison->job->operands[0]));
  json_key(report, "processed");
  json_text(report, comparison->job->operands[1], strlen(comparison->job->operands[1]));
  for (Fate fate = 0; fate < FATES; fate++) json_count(report, fate_names[fate], comparison->counts[fate]);
  report_add(report, ", \"nodes\": [");
  for (size_t i = 0; i < count; i++) {
    const Outcome *outcome = order[i];
    builder_format(&report->line, "%s{\"fate\": \"%s\", \"file\": ", i ? ",\n" : "\n", fate_names[outcome->fate]);
    json_name(report, outcome->place.file);
    json_key(report, "function");
    json_name(report, outcome->place.function);
    json_count(report, "line", outcome->place.line);
    json_key(report, "node");
    json_node(report, side_node(comparison->match->original, outcome->node)->node);
    json_key(report, "became");
    report_add(report, "[");
    for (size_t k = 0; k < outcome->heirs.count; k++) {
      if (k) report_add(report, ", ");
      json_node(report, side_node(comparison->match->processed, outcome->heirs.items[k])->node);
    }
    report_add(report, "]}");
    report_flush(report);
  }
  report_add(report, "]}\n");
}

void diff_processed(Job *job, Model *original, Model *processed) {
  const OriginIndex *index = model_index(&job->context, original);
  Comparison comparison = {.job = job, .match = match_models(original, processed)};
  if (!match_is_related(comparison.match)) {
    fail(&job->context, ERROR_VALUE, "%s was not made from %s", job->operands[1], job->operands[0]);
  }
  const Side *side = comparison.match->original;
  size_t count = 0, most = side->nodes.count;
  comparison.outcomes = arena_new_array(&job->context.arena, most, Outcome);
  Outcome **order = arena_new_array(&job->context.arena, most, Outcome *);
  find_heirs(&comparison);
  for (Index i = 1; i < most; i++) {
    Outcome *outcome = &comparison.outcomes[i];
    if (side_node(side, i)->in_place || is_constant_node(side_node(side, i))) continue;
    outcome->node = i;
    outcome->place = node_item(index, side_node(side, i)->node)->place;
    outcome->fate = fate_of(comparison.match, outcome);
    comparison.counts[outcome->fate]++;
    order[count++] = outcome;
  }
  sort_items(order, count, sizeof *order, by_place);
  job->code = comparison.counts[FATE_KEPT] == count ? EXIT_OK : EXIT_DIFFERENT;
  if (job->json) print_json(&comparison, order, count);
  else print_text(&comparison, order, count);
}
