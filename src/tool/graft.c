/* j2o graft, and --original of the commands that read a model: provenance from the model that a processed one was made
 * of. */
#include "graft/labels.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "onnx/file/metadata_edit.h"
#include "tool/index.h"

static bool is_compact(const Model *model) {
  for (size_t i = 0; i < model->metadata.count; i++) {
    if (same_text(model->metadata.items[i].key, METADATA_TABLE)) return true;
  }
  return false;
}

static void require_provenance(Job *job, const char *path, Model *original) {
  if (model_index(&job->context, original)->placed_count) return;
  fail(&job->context, ERROR_VALUE, "%s: %s", path, no_places_help);
}

/* Fails when the one cannot have been made of the other. */
static void require_relation(Job *job, const char *original_path, const Match *match) {
  Relation relation = match_relation(match);
  if (match_is_related(match)) return;
  fail(&job->context, ERROR_VALUE,
       "%s was not made from %s: of its %zu nodes that compute something, only %zu can be found there. Nothing was "
       "grafted.",
       job->path, original_path, relation.nodes, relation.known);
}

void job_graft(Job *job, Model *model) {
  const char *path = job->path;
  job->path = job->original;
  file_map(&job->context, job->original, &job->original_file);
  Model *original = model_read(&job->context, job->original_file.data, job->original_file.size);
  model_unfold(original, job->limit);
  job->path = path;
  require_provenance(job, job->original, original);
  const Match *match = match_models(original, model);
  require_relation(job, job->original, match);
  graft_model(match);
}

static void report_counts(Job *job, const GraftCounts *counts, uint64_t before, uint64_t after) {
  Report *report = &job->report;
  size_t grafted = counts->nodes - counts->by[FOUND_NOT];
  if (job->json) {
    report_add(report, "{\"original\": ");
    json_text(report, job->operands[0], strlen(job->operands[0]));
    json_key(report, "processed");
    json_text(report, job->operands[1], strlen(job->operands[1]));
    json_key(report, "output");
    json_text(report, job->output, strlen(job->output));
    json_count(report, "nodes", counts->nodes);
    json_count(report, "name", counts->by[FOUND_NAME]);
    json_count(report, "structure", counts->by[FOUND_STRUCTURE]);
    json_count(report, "region", counts->by[FOUND_REGION]);
    json_count(report, "kept", counts->kept);
    json_count(report, "unknown", counts->by[FOUND_NOT] - counts->kept);
    json_count(report, "bytes_before", before);
    json_count(report, "bytes_after", after);
    report_add(report, "}\n");
    return;
  }
  report_text(report, job->output, strlen(job->output));
  builder_format(&report->line, ": %zu of %zu nodes grafted (%zu by name, %zu by structure, %zu by region)", grafted,
                 counts->nodes, counts->by[FOUND_NAME], counts->by[FOUND_STRUCTURE], counts->by[FOUND_REGION]);
  if (counts->kept) builder_format(&report->line, ", %zu kept their own provenance", counts->kept);
  report_add(report, ", ");
  report_size(report, before);
  report_add(report, " -> ");
  report_size(report, after);
  report_add(report, "\n");
}

/* ---- which came from which ---- */

static const char *const how[] = {
    [FOUND_NOT] = "unknown", [FOUND_NAME] = "name", [FOUND_STRUCTURE] = "structure", [FOUND_REGION] = "region"};

static Str shown_name(const Node *node) {
  if (*node->name || !node->output_count || !node->outputs[0]) return node->name;
  return node->outputs[0]->name;
}

static void add_node(Report *report, const Node *node) {
  report_operator(report, node);
  report_add(report, " ");
  report_name(report, shown_name(node));
}

static void json_node(Report *report, const Node *node) {
  report_add(report, "{\"node\": ");
  json_name(report, *node->name ? node->name : NULL);
  json_key(report, "name");
  json_name(report, shown_name(node));
  json_key(report, "op_type");
  json_name(report, node->op_type);
}

static void print_descents(Report *report, const Match *match, const Descent *descent, bool json) {
  for (size_t i = 0; descent->primary && i <= descent->other_count; i++) {
    if (i) report_add(report, ", ");
    const Node *node = side_node(match->original, i ? descent->others[i - 1] : descent->primary)->node;
    if (!json) {
      add_node(report, node);
      continue;
    }
    json_node(report, node);
    report_add(report, "}");
  }
}

static void print_map(Job *job, const Match *match) {
  Report *report = &job->report;
  if (job->json) report_add(report, "[");
  for (Index i = 1; i < match->processed->nodes.count; i++) {
    const Descent *descent = &match->descents[i];
    bool unsure = !descent->primary && descent->region; /* of the nodes that stood there, which is not known */
    const char *found = unsure ? "unsure" : how[descent->primary ? descent->found : FOUND_NOT];
    if (unsure) descent = descent->region;
    if (job->json) {
      report_add(report, i > 1 ? ",\n" : "\n");
      json_node(report, side_node(match->processed, i)->node);
      json_key(report, "found");
      builder_format(&report->line, "\"%s\"", found);
      json_key(report, "sources");
      report_add(report, "[");
      print_descents(report, match, descent, true);
      report_add(report, "]}");
    } else {
      add_node(report, side_node(match->processed, i)->node);
      builder_format(&report->line, descent->primary ? "  %s: " : "  %s", found);
      print_descents(report, match, descent, false);
      report_add(report, "\n");
    }
    report_flush(report);
  }
  if (job->json) report_add(report, "]\n");
}

void run_graft(Job *job) {
  const MappedFile *first = job_file(job, 0);
  Model *original = model_read(&job->context, first->data, first->size);
  bool compact = is_compact(original);
  model_unfold(original, job->limit);
  const MappedFile *file = job_file(job, 1);
  Model *processed = model_read_marked(&job->context, file->data, file->size);
  model_unfold(processed, job->limit);
  if (!job->map) require_provenance(job, job->operands[0], original);
  const Match *match = match_models(original, processed);
  if (job->map) {
    print_map(job, match);
    return;
  }
  require_relation(job, job->operands[0], match);
  GraftCounts counts = graft_model(match);
  Rewritten result = model_relabel(&job->context, file->data, file->size, processed, compact);
  if (result.size > INT_MAX && result.size > file->size) {
    fail(&job->context, ERROR_VALUE, "%s: the result would be larger than the 2 GiB that ONNX allows", job->path);
  }
  if (job_write(job, job->output, result.segments, result.count)) report_counts(job, &counts, file->size, result.size);
}
