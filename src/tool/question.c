/* Asking the index: what --line and --module accept, and what answers them. */
#include <string.h>

#include "base/bytes.h"
#include "tool/index.h"
#include "tool/source.h"

/* ---- what is asked ---- */

static void read_line(Job *job, Question *question) {
  const char *text = job->line, *end = text + strlen(text);
  const char *digits = number_before(text, end, &question->last);
  question->first = question->last;
  if (digits && digits > text && digits[-1] == '-') digits = number_before(text, digits - 1, &question->first);
  if (!digits || digits == text || digits[-1] != ':' || question->first > question->last) {
    fail(&job->context, ERROR_VALUE, "--line takes FILE:LINE, FILE:FIRST-LAST or FUNCTION:LINE, not %s", text);
  }
  size_t length = (size_t)(digits - 1 - text);
  char *where = arena_alloc(&job->context.arena, length + 1);
  copy_bytes(where, text, length);
  where[length] = '\0';
  question->where = job->sources.named = where;
}

Question job_question(Job *job) {
  Question question = {.module = job->module};
  question.reach = job->self ? REACH_SELF : job->inclusive ? REACH_INCLUSIVE : REACH_NEAREST;
  if (job->line) read_line(job, &question);
  return question;
}

bool asks_anything(const Question *question) { return question->where || question->module; }

/* ---- lines ---- */

static bool is_function_of(const IndexLine *line, const char *name) {
  for (size_t i = 0; i < line->functions.count; i++) {
    if (str_is(line->functions.items[i], name)) return true;
  }
  return false;
}

/* Where the model names no files, a file of that name on disk tells which functions it defines. */
static bool is_in_source(Job *job, const IndexLine *line, const char *path) {
  const Source *source = source_open(job, path);
  return source && source_defines(source, line->functions.items[0], line->number);
}

bool line_is_asked(Job *job, const IndexLine *line, const Question *question) {
  if (!question->where) return true;
  if (line->number < question->first || line->number > question->last) return false;
  if (!*question->where || is_function_of(line, question->where)) return true;
  if (line->file) return path_ends_with(line->file, question->where);
  return is_in_source(job, line, question->where);
}

/* ---- modules ---- */

/* The module itself, or one inside it where those count too; of the model, only itself. */
static bool is_in_module(const char *path, size_t size, const char *module, Reach reach) {
  size_t length = strlen(module);
  if (size < length || !same_bytes(path, module, length)) return false;
  return size == length || (length && reach != REACH_SELF && path[length] == '.');
}

/* Own, or that of something that was fused into it. */
static LineRelation module_relation(const Item *item, const char *module, Reach reach) {
  if (item->module && is_in_module(item->module, str_length(item->module), module, reach)) return RELATION_OWN;
  const char *at = item->fused_modules, *end = at ? at + str_length(at) : NULL;
  while (at) {
    const char *stop = find_letter(at, '\n', (size_t)(end - at));
    if (is_in_module(at, (size_t)((stop ? stop : end) - at), module, reach)) return RELATION_FUSED;
    at = stop ? stop + 1 : NULL;
  }
  return RELATION_NONE;
}

/* ---- answers ---- */

/* The strongest relation of every origin to any of the lines. */
static unsigned char *origin_relations(Job *job, const OriginIndex *index, const Question *question) {
  unsigned char *relations = arena_new_array(&job->context.arena, index->origins.count + 1, unsigned char);
  for (size_t i = 0; i < index->lines.count; i++) {
    const IndexLine *line = &index->lines.items[i];
    if (!line_is_asked(job, line, question)) continue;
    for (size_t k = 0; k < line->passages.count; k++) {
      const Passage *passage = &line->passages.items[k];
      if (relations[passage->origin] < passage->relation) relations[passage->origin] = (unsigned char)passage->relation;
    }
  }
  return relations;
}

static LineRelation item_relation(const Item *item, const Question *question, const unsigned char *origins) {
  LineRelation of_module = question->module ? module_relation(item, question->module, question->reach) : RELATION_OWN;
  if (!of_module || !question->where) return of_module;
  return item->origin == NO_ROW ? RELATION_NONE : (LineRelation)origins[item->origin];
}

static LineRelation least_relation(Reach reach, LineRelation closest) {
  if (reach == REACH_INCLUSIVE) return RELATION_THROUGH;
  if (reach == REACH_SELF || closest >= RELATION_FUSED) return RELATION_FUSED;
  return closest == RELATION_WITHIN ? RELATION_WITHIN : RELATION_THROUGH;
}

Answer index_answer(Job *job, const OriginIndex *index, const Question *question) {
  Answer answer = {0};
  unsigned char *relations = arena_new_array(&job->context.arena, index->items.count + 1, unsigned char);
  const unsigned char *origins = question->where ? origin_relations(job, index, question) : NULL;
  LineRelation closest = RELATION_NONE;
  for (size_t i = 0; i < index->items.count; i++) {
    relations[i] = (unsigned char)item_relation(&index->items.items[i], question, origins);
    if (relations[i] > closest) closest = (LineRelation)relations[i];
  }
  LineRelation least = least_relation(question->reach, closest);
  OriginCounts *by_origin = arena_new_array(&job->context.arena, index->origins.count + 1, OriginCounts);
  for (size_t i = 0; i < index->items.count; i++) {
    const Item *item = &index->items.items[i];
    if (relations[i] < least) relations[i] = RELATION_NONE;
    if (!relations[i]) continue;
    answer.counts[item->kind]++;
    if (item->origin != NO_ROW) by_origin[item->origin].items[item->kind]++;
  }
  answer.relations = relations;
  answer.origins = by_origin;
  answer.closest = closest;
  return answer;
}

bool answer_holds(const Answer *answer) {
  for (ItemKind kind = 0; kind < INDEX_KINDS; kind++) {
    if (answer->counts[kind]) return true;
  }
  return false;
}

LineCounts line_counts(const Answer *answer, const IndexLine *line) {
  LineCounts counts = {0};
  for (size_t i = 0; i < line->passages.count; i++) {
    const Passage *passage = &line->passages.items[i];
    const size_t *items = answer->origins[passage->origin].items;
    for (ItemKind kind = 0; kind < INDEX_KINDS; kind++) {
      counts.inclusive[kind] += items[kind];
      if (passage->relation >= RELATION_FUSED) counts.self[kind] += items[kind];
      if (passage->relation == RELATION_FUSED) counts.fused[kind] += items[kind];
    }
  }
  return counts;
}

/* What was asked for may hold anything that can be typed. */
static void add_asked(Report *report, const char *words, const char *asked) {
  report_add(report, words);
  report_text(report, asked, strlen(asked));
}

void report_nothing(Report *report, const Job *job, const Question *question) {
  bool before = job->op || job->name;
  report_add(report, "no node");
  if (job->op) add_asked(report, " is a ", job->op);
  if (job->name) add_asked(report, job->op ? " that is called " : " is called ", job->name);
  if (question->where) add_asked(report, before ? " and comes from " : " comes from ", job->line);
  if (question->module) {
    report_add(report, question->where ? "" : before ? " and is" : " is");
    add_asked(report, *question->module ? " in module " : " outside all modules", question->module);
  }
  report_add(report, "\n");
}

/* ---- files ---- */

bool path_ends_with(const char *path, const char *given) {
  while (given[0] == '.' && given[1] == '/') given += 2;
  size_t length = strlen(path), tail = strlen(given);
  if (!tail || tail > length || strcmp(path + length - tail, given) != 0) return false;
  return tail == length || path[length - tail - 1] == '/' || path[length - tail - 1] == '\\' || given[0] == '/';
}

Str index_file(const OriginIndex *index, const char *given) {
  Str best = NULL;
  size_t most = 0;
  for (size_t i = 0; i < index->lines.count; i++) {
    const IndexLine *line = &index->lines.items[i];
    size_t parts = line->file ? path_common_parts(line->file, given) : 0;
    size_t score = parts ? 2 * parts + !line->is_library : 0;
    if (score <= most) continue;
    most = score;
    best = line->file;
  }
  return best;
}

void index_adopt(Job *job, OriginIndex *index, const char *given) {
  Str file = index_file(index, given);
  if (!file) file = str_intern(&job->context, given);
  for (size_t i = 0; i < index->lines.count; i++) {
    IndexLine *line = &index->lines.items[i];
    if (!line->file && is_in_source(job, line, given)) line->file = file;
  }
  for (size_t i = 0; i < index->items.count; i++) {
    Item *item = &index->items.items[i];
    if (item->origin == NO_ROW || item->place.file || !item->place.function) continue;
    const IndexOrigin *origin = &index->origins.items[item->origin];
    item->place.file = index->lines.items[index->frames.items[origin->frame].line].file;
  }
}

void index_sources(Job *job, OriginIndex *index) {
  Context *context = &job->context;
  Map seen = {0};
  ARRAY(Str) names = {0};
  for (size_t i = 0; i < index->lines.count; i++) {
    const IndexLine *line = &index->lines.items[i];
    if (!line->file || line->is_library || map_get_pointer(&seen, line->file)) continue;
    *map_slot_pointer(context, &seen, line->file) = index;
    array_push(context, &names, line->file);
  }
  sources_match(context, &job->sources, names.items, names.count);
  for (size_t i = 0; i < job->sources.given_count; i++) index_adopt(job, index, job->sources.given[i]);
}
