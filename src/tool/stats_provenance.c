/* j2o stats --provenance: how much of a model says where it came from, whoever wrote it. */
#include <string.h>

#include "tool/stats.h"

typedef struct Share {
  size_t count, with_line, with_file, with_module;
} Share;

typedef struct Coverage {
  Share of[INDEX_KINDS];
  size_t lines, files;         /* distinct ones that items came from */
  size_t vanished_lines;       /* from which came only what was removed */
  size_t traced;               /* nodes with a trace */
  uint64_t traces;             /* of these nodes together */
  uint64_t frames, own_frames; /* of their primary traces together; outside libraries */
  size_t deepest;              /* frames outside libraries of one */
} Coverage;

/* Of every row of origins. */
typedef struct Depth {
  size_t frames, own_frames;
} Depth;

static Depth depth_of(const OriginIndex *index, const IndexOrigin *origin) {
  Depth depth = {0};
  if (!origin->chains.count) return depth;
  const Chain *chain = &origin->chains.items[0];
  depth.frames = chain->count;
  for (size_t i = 0; i < chain->count; i++) {
    depth.own_frames += !index->lines.items[index->frames.items[chain->frames[i]].line].is_library;
  }
  return depth;
}

static void count_item(Coverage *coverage, const OriginIndex *index, const Item *item, const Depth *depths) {
  Share *share = &coverage->of[item->kind];
  share->count++;
  share->with_line += item->place.function && item->place.line;
  share->with_file += item->place.file != NULL;
  share->with_module += item->module && *item->module;
  if (item->kind != INDEX_NODE || item->origin == NO_ROW) return;
  const IndexOrigin *origin = &index->origins.items[item->origin];
  if (!origin->chains.count) return;
  coverage->traced++;
  coverage->traces += origin->chains.count;
  coverage->frames += depths[item->origin].frames;
  coverage->own_frames += depths[item->origin].own_frames;
  if (depths[item->origin].own_frames > coverage->deepest) coverage->deepest = depths[item->origin].own_frames;
}

static void count_lines(Coverage *coverage, Job *job, const OriginIndex *index) {
  Question everything = {0};
  Answer answer = index_answer(job, index, &everything);
  Map files = {0};
  for (size_t i = 0; i < index->lines.count; i++) {
    const IndexLine *line = &index->lines.items[i];
    LineCounts counts = line_counts(&answer, line);
    bool became = counts.self[INDEX_NODE] || counts.self[INDEX_INITIALIZER];
    coverage->lines += became;
    coverage->vanished_lines += !became && counts.self[INDEX_REMOVED];
    if (!became || !line->file || map_get_pointer(&files, line->file)) continue;
    *map_slot_pointer(&job->context, &files, line->file) = coverage;
    coverage->files++;
  }
}

static Coverage cover(Job *job, const OriginIndex *index) {
  Coverage coverage = {0};
  Depth *depths = arena_new_array(&job->context.arena, index->origins.count + 1, Depth);
  for (size_t i = 0; i < index->origins.count; i++) depths[i] = depth_of(index, &index->origins.items[i]);
  for (size_t i = 0; i < index->items.count; i++) count_item(&coverage, index, &index->items.items[i], depths);
  count_lines(&coverage, job, index);
  return coverage;
}

static double ratio(uint64_t part, uint64_t whole) { return whole ? (double)part / (double)whole : 0; }

/* ---- for people ---- */

static void add_share(Report *report, const char *words, const Coverage *coverage, size_t offset) {
  builder_format(&report->line, "  %-14s", words);
  for (ItemKind kind = INDEX_NODE; kind <= INDEX_INITIALIZER; kind++) {
    const Share *share = &coverage->of[kind];
    size_t part = *(const size_t *)(const void *)((const char *)share + offset);
    builder_format(&report->line, "%10zu  %5.1f %%", part, 100 * ratio(part, share->count));
  }
  report_add(report, "\n");
}

static void add_coverage(Report *report, const char *path, const Coverage *coverage, uint64_t bytes) {
  const size_t nodes = coverage->of[INDEX_NODE].count;
  report_color(report, COLOR_HEAD);
  report_text(report, path, strlen(path));
  report_color(report, COLOR_PLAIN);
  report_add(report, "\n                       nodes      initializers\n");
  builder_format(&report->line, "  %-14s%10zu%19zu\n", "all", nodes, coverage->of[INDEX_INITIALIZER].count);
  add_share(report, "with a line", coverage, offsetof(Share, with_line));
  add_share(report, "with a file", coverage, offsetof(Share, with_file));
  add_share(report, "with a module", coverage, offsetof(Share, with_module));
  builder_format(&report->line, "\n  distinct lines   %zu in %zu %s\n", coverage->lines, coverage->files,
                 coverage->files == 1 ? "file" : "files");
  size_t removed = coverage->of[INDEX_REMOVED].count;
  builder_format(&report->line, "  vanished lines   %zu; %zu %s removed\n", coverage->vanished_lines, removed,
                 removed == 1 ? "operation was" : "operations were");
  builder_format(
      &report->line, "  depth            %.1f of the program's own frames per node, at most %zu; %.1f in total\n",
      ratio(coverage->own_frames, coverage->traced), coverage->deepest, ratio(coverage->frames, coverage->traced));
  builder_format(&report->line, "  traces           %.2f per node\n  bytes            ",
                 ratio(coverage->traces, coverage->traced));
  report_size(report, bytes);
  builder_format(&report->line, ", %.1f per node\n", ratio(bytes, nodes));
}

/* ---- for programs ---- */

static void json_share(Report *report, const char *key, const Share *share) {
  builder_format(&report->line, ", \"%s\": {\"count\": %zu", key, share->count);
  const struct {
    const char *name;
    size_t part;
  } parts[] = {{"line", share->with_line}, {"file", share->with_file}, {"module", share->with_module}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    builder_format(&report->line, ", \"with_%s\": %zu, \"%s_share\": %.6f", parts[i].name, parts[i].part, parts[i].name,
                   ratio(parts[i].part, share->count));
  }
  report_add(report, "}");
}

static void json_coverage(Job *job, const OriginIndex *index, const Coverage *coverage, uint64_t bytes) {
  Report *report = &job->report;
  report_add(report, "{\"file\": ");
  json_text(report, job->path, strlen(job->path));
  json_key(report, "producer");
  json_name(report, index->model->producer_name);
  json_share(report, "nodes", &coverage->of[INDEX_NODE]);
  json_share(report, "initializers", &coverage->of[INDEX_INITIALIZER]);
  json_count(report, "distinct_lines", coverage->lines);
  json_count(report, "distinct_files", coverage->files);
  json_count(report, "vanished_lines", coverage->vanished_lines);
  json_count(report, "removed_operations", coverage->of[INDEX_REMOVED].count);
  builder_format(&report->line, ", \"depth\": {\"mean\": %.3f, \"most\": %zu, \"mean_with_libraries\": %.3f}",
                 ratio(coverage->own_frames, coverage->traced), coverage->deepest,
                 ratio(coverage->frames, coverage->traced));
  builder_format(&report->line, ", \"traces_per_node\": %.3f", ratio(coverage->traces, coverage->traced));
  json_count(report, "bytes", bytes);
  builder_format(&report->line, ", \"bytes_per_node\": %.3f}\n", ratio(bytes, coverage->of[INDEX_NODE].count));
}

void stats_provenance(Job *job, Model *model, uint64_t bytes) {
  const OriginIndex *index = model_index(&job->context, model);
  Coverage coverage = cover(job, index);
  if (job->json) json_coverage(job, index, &coverage, bytes);
  else add_coverage(&job->report, job->path, &coverage, bytes);
}
