/* j2o diff: what the alignment of two models leaves, grouped by source line. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "tool/diff.h"
#include "tool/source.h"
#include "tool/trace_report.h"

/* ---- details ---- */

/* Takes what was added to the report since `start` as one text. */
static Str take_text(Report *report, size_t start) {
  Str text = str_intern_sized(report->context, report->line.text + start, report->line.length - start);
  report->line.length = start;
  return text;
}

#define DETAIL(diff, change, ...)                                              \
  do {                                                                         \
    Report *report = &(diff)->job->report;                                     \
    size_t start = report->line.length;                                        \
    __VA_ARGS__;                                                               \
    array_push(report->context, &(change)->details, take_text(report, start)); \
  } while (0)

static void add_side(Report *report, const Attribute *attribute) {
  if (attribute) report_attribute(report, attribute);
  else report_add(report, "absent");
}

enum { FEW_ATTRIBUTES = 16 };

/* The attributes of a node that has many; empty for one with few, which is looked through. */
static Map attributes_by_name(Context *context, const Node *node) {
  Map known = {0};
  if (node->attributes.count <= FEW_ATTRIBUTES) return known;
  for (size_t i = 0; i < node->attributes.count; i++) {
    void **slot = map_slot_pointer(context, &known, node->attributes.items[i].name);
    if (!*slot) *slot = &node->attributes.items[i];
  }
  return known;
}

static const Attribute *find_attribute(const Map *known, const Node *node, Str name) {
  return known->count ? map_get_pointer(known, name) : node_attribute(node, name);
}

static void compare_attributes(Diff *diff, Change *change) {
  Context *context = &diff->job->context;
  Map of_a = attributes_by_name(context, change->a), of_b = attributes_by_name(context, change->b);
  if (change->a->attributes.count != change->b->attributes.count) {
    DETAIL(diff, change,
           builder_format(&report->line, "%zu -> %zu attributes", change->a->attributes.count,
                          change->b->attributes.count));
  }
  for (size_t i = 0; i < change->a->attributes.count; i++) {
    const Attribute *a = &change->a->attributes.items[i], *b = find_attribute(&of_b, change->b, a->name);
    if (b && diff_same_attribute(diff, a, b)) continue;
    if (b && a->kind == ATTRIBUTE_GRAPH && b->kind == ATTRIBUTE_GRAPH) {
      DETAIL(diff, change, report_name(report, a->name), report_add(report, ": its inputs or outputs differ"));
      continue;
    }
    DETAIL(diff, change, report_name(report, a->name), report_add(report, ": "), add_side(report, a),
           report_add(report, " -> "), add_side(report, b));
  }
  for (size_t i = 0; i < change->b->attributes.count; i++) {
    const Attribute *b = &change->b->attributes.items[i];
    if (find_attribute(&of_a, change->a, b->name)) continue;
    DETAIL(diff, change, report_name(report, b->name), report_add(report, ": absent -> "), add_side(report, b));
  }
}

static void add_value(Report *report, const Value *value) {
  if (!value) {
    report_add(report, "none");
    return;
  }
  report_name(report, value->name);
  report_add(report, " ");
  report_type(report, value->type);
}

static void compare_values(Diff *diff, Change *change) {
  const Node *a = change->a, *b = change->b;
  uint32_t most = a->input_count > b->input_count ? a->input_count : b->input_count;
  for (uint32_t i = 0; i < most; i++) {
    const Value *from = i < a->input_count ? a->inputs[i].value : NULL;
    const Value *to = i < b->input_count ? b->inputs[i].value : NULL;
    if (diff_same_value(diff, from, to)) continue;
    bool contents = from && to && from->tensor && to->tensor && diff_same_type(from->type, to->type);
    if (contents) {
      DETAIL(diff, change, builder_format(&report->line, "input %u: the contents of ", i), add_value(report, from),
             report_add(report, " differ"));
    } else {
      DETAIL(diff, change, builder_format(&report->line, "input %u: ", i), add_value(report, from),
             report_add(report, " -> "), add_value(report, to));
    }
  }
  for (uint32_t i = 0; i < a->output_count && i < b->output_count; i++) {
    if (!a->outputs[i] || !b->outputs[i] || diff_same_type(a->outputs[i]->type, b->outputs[i]->type)) continue;
    DETAIL(diff, change, builder_format(&report->line, "output %u: ", i), report_type(report, a->outputs[i]->type),
           report_add(report, " -> "), report_type(report, b->outputs[i]->type));
  }
  if (!diff_same_graph(diff, a->graph, b->graph)) {
    DETAIL(diff, change, report_add(report, "it is in another graph"));
  }
  if (a->output_count != b->output_count) {
    DETAIL(diff, change, builder_format(&report->line, "%u -> %u outputs", a->output_count, b->output_count));
  }
}

/* ---- collecting ---- */

/* Two exports may come from two copies of the source: what counts of a path is its last part. */
static const char *file_name(Place place) {
  const char *slash = place.file ? strrchr(place.file, '/') : NULL;
  return slash ? slash + 1 : place.file ? place.file : "";
}

static int by_place(const void *a, const void *b) {
  const Change *first = a, *second = b;
  Place one = first->place, two = second->place;
  int order = strcmp(file_name(one), file_name(two));
  if (!order && one.line != two.line) order = one.line < two.line ? -1 : 1;
  if (!order) order = strcmp(one.function ? one.function : "", two.function ? two.function : "");
  if (!order && first->kind != second->kind) order = first->kind < second->kind ? -1 : 1;
  if (!order) order = (first->order > second->order) - (first->order < second->order);
  return order;
}

/* What of a side was asked for. */
static Answer asked(Diff *diff, const Side *side, const Question *question) {
  return index_answer(diff->job, side->index, question);
}

Changes diff_changes(Diff *diff, const Question *question) {
  Context *context = &diff->job->context;
  Changes changes = {0};
  const Item *a = diff->a.index->items.items, *b = diff->b.index->items.items;
  Answer of_a = asked(diff, &diff->a, question), of_b = asked(diff, &diff->b, question);
  if (asks_anything(question) && !answer_holds(&of_a) && !answer_holds(&of_b)) {
    bool is_root = !question->where && !*question->module;
    const char *how = question->where ? "comes from " : is_root ? "is outside all modules" : "is in module ";
    const char *what = question->where ? diff->job->line : question->module;
    fail(context, ERROR_VALUE, "nothing in %s or %s %s%s", diff->a.path, diff->b.path, how, what);
  }
  for (size_t i = 0; i < diff->a.count; i++) {
    if (diff->a.match[i] || !of_a.relations[i]) continue;
    Change change = {.kind = CHANGE_REMOVED, .a = a[i].node, .place = a[i].place, .order = i};
    array_push(context, &changes, change);
  }
  for (size_t i = 0; i < diff->b.count; i++) {
    size_t match = diff->b.match[i];
    Change change = {.kind = CHANGE_ADDED, .b = b[i].node, .place = b[i].place, .order = i};
    if (!of_b.relations[i] && !(match && of_a.relations[match - 1])) continue;
    if (match) {
      change.kind = CHANGE_ALTERED;
      change.a = a[match - 1].node;
      compare_attributes(diff, &change);
      compare_values(diff, &change);
      if (!change.details.count) continue;
    }
    array_push(context, &changes, change);
  }
  sort_items(changes.items, changes.count, sizeof *changes.items, by_place);
  return changes;
}

static void compare_interface(Diff *diff, Change *change, const char *what, const Value *a, const Value *b, bool same) {
  if (a && b && same && a->name == b->name && diff_same_type(a->type, b->type)) return;
  bool rewired = a && b && a->name == b->name && diff_same_type(a->type, b->type);
  if (rewired) {
    DETAIL(diff, change, report_add(report, what), report_add(report, " "), add_value(report, a),
           report_add(report, " is computed differently"));
  } else {
    DETAIL(diff, change, report_add(report, what), report_add(report, " "), add_value(report, a),
           report_add(report, " -> "), add_value(report, b));
  }
}

static bool is_unused(const Value *value) { return value->tensor && !value->uses; }

/* Initializers that no node reads are compared by their names. */
static void compare_unused(Diff *diff, Change *change, const Graph *a, const Graph *b) {
  Context *context = &diff->job->context;
  Map known = {0};
  for (size_t i = 0; i < a->initializers.count; i++) {
    Value *value = a->initializers.items[i];
    if (is_unused(value)) *map_slot_pointer(context, &known, value->name) = value;
  }
  size_t left = known.count;
  for (size_t i = 0; i < b->initializers.count; i++) {
    const Value *to = b->initializers.items[i];
    if (!is_unused(to)) continue;
    const Value *from = map_get_pointer(&known, to->name);
    left -= from != NULL && left > 0;
    if (from && diff_same_tensor(diff, from->tensor, to->tensor)) continue;
    DETAIL(diff, change, report_add(report, "initializer "), add_value(report, to),
           report_add(report, from ? ", which is unused, differs" : ", which is unused, is new"));
  }
  if (left)
    DETAIL(diff, change,
           builder_format(&report->line, "%zu unused initializer%s", left, left == 1 ? " is gone" : "s are gone"));
}

static void compare_functions(Diff *diff, Change *change) {
  Context *context = &diff->job->context;
  const Model *a = diff->a.model, *b = diff->b.model;
  Map known = {0};
  for (size_t i = 0; i < a->functions.count; i++) {
    Function *function = a->functions.items[i];
    *map_slot_pointer(context, &known, map_get_pointer(&diff->a.parts, function->body)) = function;
  }
  size_t left = known.count;
  for (size_t i = 0; i < b->functions.count; i++) {
    const Function *to = b->functions.items[i];
    Str name = map_get_pointer(&diff->b.parts, to->body);
    const Function *from = map_get_pointer(&known, name);
    left -= from != NULL && left > 0;
    bool same =
        from && from->attributes.count == to->attributes.count && diff_same_interface(diff, from->body, to->body);
    for (size_t k = 0; same && k < to->attributes.count; k++)
      same = from->attributes.items[k] == to->attributes.items[k];
    if (same) continue;
    DETAIL(diff, change, report_add(report, "function "), report_name(report, name),
           report_add(report, from ? ": its inputs, outputs or attributes differ" : " is new"));
  }
  if (left)
    DETAIL(diff, change, builder_format(&report->line, "%zu function%s", left, left == 1 ? " is gone" : "s are gone"));
}

static bool same_opsets(const Model *a, const Model *b) {
  if (a->opsets.count != b->opsets.count) return false;
  for (size_t i = 0; i < a->opsets.count; i++) {
    const OpsetImport *one = &a->opsets.items[i], *two = &b->opsets.items[i];
    if (one->domain != two->domain || one->version != two->version) return false;
  }
  return true;
}

/* What is not a node: inputs, outputs, operator sets, functions' interfaces, what nothing reads. */
static Change model_changes(Diff *diff) {
  Change change = {0};
  const Graph *a = diff->a.model->graph, *b = diff->b.model->graph;
  for (size_t i = 0; i < a->inputs.count || i < b->inputs.count; i++) {
    compare_interface(diff, &change, "input", i < a->inputs.count ? a->inputs.items[i] : NULL,
                      i < b->inputs.count ? b->inputs.items[i] : NULL, true);
  }
  for (size_t i = 0; i < a->outputs.count || i < b->outputs.count; i++) {
    const Value *from = i < a->outputs.count ? a->outputs.items[i]->value : NULL;
    const Value *to = i < b->outputs.count ? b->outputs.items[i]->value : NULL;
    compare_interface(diff, &change, "output", from, to, diff_same_value(diff, from, to));
  }
  if (diff->a.model->opset != diff->b.model->opset) {
    DETAIL(diff, &change,
           builder_format(&report->line, "opset %" PRId64 " -> %" PRId64, diff->a.model->opset, diff->b.model->opset));
  } else if (!same_opsets(diff->a.model, diff->b.model)) {
    DETAIL(diff, &change, report_add(report, "the operator sets of other domains differ"));
  }
  compare_unused(diff, &change, a, b);
  compare_functions(diff, &change);
  if (!diff_same_rest(diff)) {
    DETAIL(diff, &change,
           report_add(report,
                      "there are differences that are not shown: in sparse tensors, types other than tensors, defaults "
                      "of function attributes, annotations or training information"));
  }
  return change;
}

/* ---- for people ---- */

static bool same_place(Place a, Place b) {
  return a.line == b.line && a.function == b.function && strcmp(file_name(a), file_name(b)) == 0;
}

static void add_place(Diff *diff, Place place) {
  Report *report = &diff->job->report;
  report_add(report, "\n");
  if (!place.function) {
    report_heading(report, "nodes without provenance");
  } else {
    report_color(report, COLOR_HEAD);
    report_name(report, place.function);
    builder_format(&report->line, ":%u", place.line);
    report_color(report, COLOR_PLAIN);
    if (place.file) {
      report_add(report, "  ");
      report_path(report, place.file);
    }
  }
  report_add(report, "\n");
  size_t start = report->line.length;
  if (place.file) report_source_line(diff->job, place.file, place.line);
  if (report->line.length == start) return;
  Str text = take_text(report, start);
  report_add(report, "    ");
  report_add(report, text);
  report_add(report, "\n");
}

/* The place that heads a group: as the second model has it, where something is left there. */
static Place group_place(const Changes *changes, size_t first) {
  Place place = changes->items[first].place;
  for (size_t i = first; i < changes->count && same_place(changes->items[i].place, place); i++) {
    if (changes->items[i].kind != CHANGE_REMOVED) return changes->items[i].place;
  }
  return place;
}

static void add_node(Report *report, const Node *node) {
  report_operator(report, node);
  report_add(report, " ");
  report_name(report, node->name);
  report_add(report, "(");
  for (uint32_t i = 0; i < node->input_count; i++) {
    if (i) report_add(report, ", ");
    if (node->inputs[i].value) add_value(report, node->inputs[i].value);
    else report_add(report, "-");
  }
  report_add(report, ") -> ");
  for (uint32_t i = 0; i < node->output_count; i++) {
    if (i) report_add(report, ", ");
    if (node->outputs[i]) add_value(report, node->outputs[i]);
    else report_add(report, "-");
  }
}

static void add_change(Report *report, const Change *change) {
  static const char marks[] = {[CHANGE_REMOVED] = '-', [CHANGE_ADDED] = '+', [CHANGE_ALTERED] = '~'};
  static const Color colors[] = {COLOR_REMOVED, COLOR_ADDED, COLOR_CHANGED};
  report_color(report, colors[change->kind]);
  builder_format(&report->line, "  %c ", marks[change->kind]);
  report_color(report, COLOR_PLAIN);
  add_node(report, change->b ? change->b : change->a);
  report_add(report, "\n");
  for (size_t i = 0; i < change->details.count; i++) {
    report_add(report, "      ");
    report_add(report, change->details.items[i]);
    report_add(report, "\n");
  }
  report_flush(report);
}

static void add_counts(Report *report, const Diff *diff, const size_t counts[3]) {
  report_text(report, diff->a.path, strlen(diff->a.path));
  report_add(report, " -> ");
  report_text(report, diff->b.path, strlen(diff->b.path));
  builder_format(&report->line, ": %zu -> %zu nodes, %zu removed, %zu added, %zu changed\n", diff->a.count,
                 diff->b.count, counts[CHANGE_REMOVED], counts[CHANGE_ADDED], counts[CHANGE_ALTERED]);
}

enum { MOST_NOT_COMPARED = 20 };

static void add_not_compared(const Diff *diff) {
  Report *report = &diff->job->report;
  if (diff->skipped) {
    builder_format(&report->line, "not compared: the contents of %zu %s over 4 KiB (--weights compares them)\n",
                   diff->skipped, diff->skipped == 1 ? "tensor" : "tensors");
  }
  for (size_t i = 0; i < diff->not_compared.count && i < MOST_NOT_COMPARED; i++) {
    const NotCompared *item = &diff->not_compared.items[i];
    report_add(report, "not compared: the contents of ");
    if (item->name) report_name(report, item->name);
    else report_add(report, "a tensor");
    report_add(report, " in ");
    report_text(report, item->path, strlen(item->path));
    report_add(report, ": ");
    report_add(report, item->reason);
    report_add(report, "\n");
  }
  if (diff->not_compared.count > MOST_NOT_COMPARED) {
    builder_format(&report->line, "and %zu more\n", diff->not_compared.count - MOST_NOT_COMPARED);
  }
}

/* ---- for programs ---- */

static void json_node(Report *report, const char *key, const Node *node) {
  builder_format(&report->line, ", \"%s\": ", key);
  if (!node) {
    report_add(report, "null");
    return;
  }
  report_add(report, "{\"name\": ");
  json_name(report, node->name);
  json_key(report, "op_type");
  json_name(report, node->op_type);
  report_add(report, "}");
}

/* Every line that the change is about, with how. */
static void json_change_lines(Diff *diff, const Change *change) {
  const Side *side = change->b ? &diff->b : &diff->a;
  json_key(&diff->job->report, "lines");
  json_lines(diff->job, side->index, node_item(side->index, change->b ? change->b : change->a));
}

static void json_details(Report *report, const Change *change) {
  report_add(report, "[");
  for (size_t i = 0; i < change->details.count; i++) {
    if (i) report_add(report, ", ");
    json_name(report, change->details.items[i]);
  }
  report_add(report, "]");
}

/* null is said of "same" where no difference was found and not everything was compared. */
static void json_not_compared(const Diff *diff) {
  Report *report = &diff->job->report;
  json_count(report, "too_large", diff->skipped);
  json_key(report, "not_compared");
  report_add(report, "[");
  for (size_t i = 0; i < diff->not_compared.count; i++) {
    const NotCompared *item = &diff->not_compared.items[i];
    report_add(report, i ? ", {\"file\": " : "{\"file\": ");
    json_text(report, item->path, strlen(item->path));
    json_key(report, "tensor");
    json_name(report, item->name);
    json_key(report, "reason");
    json_text(report, item->reason, strlen(item->reason));
    report_add(report, "}");
  }
  report_add(report, "]");
}

static void json_diff(Diff *diff, const Change *model, const Changes *changes, const size_t counts[3]) {
  static const char *const kinds[] = {"removed", "added", "changed"};
  Report *report = &diff->job->report;
  report_add(report, "{\"a\": ");
  json_text(report, diff->a.path, strlen(diff->a.path));
  json_key(report, "b");
  json_text(report, diff->b.path, strlen(diff->b.path));
  json_key(report, "same");
  bool compared = !diff->not_compared.count && !diff->skipped;
  report_add(report, changes->count || model->details.count ? "false" : compared ? "true" : "null");
  json_not_compared(diff);
  for (int i = 0; i < 3; i++) json_count(report, kinds[i], counts[i]);
  json_key(report, "model");
  json_details(report, model);
  report_add(report, ", \"changes\": [");
  for (size_t i = 0; i < changes->count; i++) {
    const Change *change = &changes->items[i];
    report_add(report, i ? ",\n{\"kind\": " : "\n{\"kind\": ");
    builder_format(&report->line, "\"%s\", \"file\": ", kinds[change->kind]);
    json_name(report, change->place.file);
    json_key(report, "function");
    json_name(report, change->place.function);
    json_count(report, "line", change->place.line);
    json_change_lines(diff, change);
    json_node(report, "a", change->a);
    json_node(report, "b", change->b);
    json_key(report, "details");
    json_details(report, change);
    report_add(report, "}");
    report_flush(report);
  }
  report_add(report, "]}\n");
}

void run_diff(Job *job) {
  Model *first = job_model(job, 0), *second = job_model(job, 1);
  if (job->processed) {
    diff_processed(job, first, second);
    return;
  }
  Diff diff = diff_align(job, first, second);
  index_sources(job, diff.a.index);
  index_sources(job, diff.b.index);
  Question question = job_question(job);
  Changes changes = diff_changes(&diff, &question);
  Change model = asks_anything(&question) ? (Change){0} : model_changes(&diff);
  size_t counts[3] = {0};
  for (size_t i = 0; i < changes.count; i++) counts[changes.items[i].kind]++;
  bool differ = changes.count || model.details.count;
  job->code = differ ? EXIT_DIFFERENT : diff.not_compared.count ? EXIT_TROUBLE : EXIT_OK;
  Report *report = &job->report;
  if (job->json) {
    json_diff(&diff, &model, &changes, counts);
    return;
  }
  if (!differ) {
    bool compared = !diff.not_compared.count && !diff.skipped && !asks_anything(&question);
    const char *words = compared ? "the same" : "no differences found";
    builder_format(&report->line, "%s: %zu nodes\n", words, diff.a.count);
    add_not_compared(&diff);
    return;
  }
  add_counts(report, &diff, counts);
  for (size_t i = 0; i < model.details.count; i++) {
    report_add(report, "  ~ ");
    report_add(report, model.details.items[i]);
    report_add(report, "\n");
  }
  for (size_t i = 0; i < changes.count; i++) {
    if (!i || !same_place(changes.items[i].place, changes.items[i - 1].place))
      add_place(&diff, group_place(&changes, i));
    add_change(report, &changes.items[i]);
  }
  add_not_compared(&diff);
}
