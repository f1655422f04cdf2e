/* Source files. Python is read by its indentation alone, which is enough to know which function a line is in. */
#include "tool/source.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/beneath.h"
#include "base/bytes.h"
#include "onnx/file/metadata_keys.h"
#include "tool/tool.h"
#include "tool/trace_text.h"

enum { MAX_SOURCE = 16 << 20, MAX_TOTAL = 64 << 20, MAX_NESTING = 64 };

/* ---- what may be read ---- */

/* What is left of the path below the folder; NULL when it is elsewhere. */
static const char *below(const char *folder, const char *path) {
  size_t length = strlen(folder);
  while (length && folder[length - 1] == '/') length--;
  bool inside = strncmp(path, folder, length) == 0 && path[length] == '/';
  return inside ? path + length + strspn(path + length, "/") : NULL;
}

/* A path in the folder, by the name that the folder was given or by its real one. */
static OpenFile open_in(const char *folder, const char *alias, const char *path) {
  if (*path != '/') return open_beneath(folder, path);
  const char *rest = *alias == '/' ? below(alias, path) : NULL;
  OpenFile file = rest ? open_beneath(folder, rest) : (OpenFile){.descriptor = -1};
  char *real = file.descriptor < 0 ? realpath(folder, NULL) : NULL;
  if (real && (rest = below(real, path))) file = open_beneath(folder, rest);
  free(real);
  return file;
}

/* The working folder as the shell calls it, links and all, where that is still so; else "". */
static const char *working_folder(void) {
  struct stat logical, physical;
  const char *path = getenv("PWD");
  bool usable = path && *path == '/' && stat(path, &logical) == 0 && stat(".", &physical) == 0;
  return usable && logical.st_dev == physical.st_dev && logical.st_ino == physical.st_ino ? path : "";
}

static bool is_named(const Sources *sources, const char *path) {
  if (sources->named && strcmp(sources->named, path) == 0) return true;
  for (size_t i = 0; i < sources->given_count; i++) {
    if (strcmp(sources->given[i], path) == 0) return true;
  }
  return false;
}

static OpenFile open_allowed(const Sources *sources, const char *path) {
  if (is_named(sources, path)) return open_named(path);
  OpenFile file = open_in(".", working_folder(), path);
  for (size_t i = 0; i < sources->root_count && file.descriptor < 0; i++) {
    const char *root = sources->roots[i];
    bool is_everything = root[strspn(root, "/")] == '\0';
    file = is_everything ? open_named(path) : open_in(root, root, path);
  }
  return file;
}

static bool is_python(Str name) {
  size_t length = str_length(name);
  return length >= 4 && strlen(name) == length && strcmp(name + length - 3, ".py") == 0;
}

/* ---- reading ---- */

static void split(Context *context, Source *source, const char *text, size_t size) {
  for (const char *end = text + size; text < end;) {
    const char *stop = find_letter(text, '\n', (size_t)(end - text));
    SourceLine line = {text, (size_t)((stop ? stop : end) - text)};
    if (line.length && line.text[line.length - 1] == '\r') line.length--;
    array_push(context, &source->lines, line);
    text = stop ? stop + 1 : end;
  }
}

/* ---- functions ---- */

typedef struct Open {
  size_t indent;
  size_t function; /* index of it, or SIZE_MAX for a class */
  Str name;        /* qualified */
} Open;

typedef struct Scanner {
  Context *context;
  Source *source;
  Open open[MAX_NESTING];
  size_t depth;
  char quote;         /* inside a text of three quotes: which quote; else 0 */
  uint32_t decorator; /* line of the first decorator above, 0: none */
} Scanner;

/* Follows texts of three quotes, which may hold lines of any indentation. */
static void follow_quotes(Scanner *scanner, SourceLine line) {
  for (size_t i = 0; i < line.length; i++) {
    char c = line.text[i];
    bool triple = (c == '"' || c == '\'') && line.length - i >= 3 && line.text[i + 1] == c && line.text[i + 2] == c;
    if (scanner->quote) {
      if (c == '\\') i++;
      else if (triple && c == scanner->quote) scanner->quote = 0, i += 2;
    } else if (c == '#') {
      return;
    } else if (triple) {
      scanner->quote = c;
      i += 2;
    } else if (c == '"' || c == '\'') {
      for (i++; i < line.length && line.text[i] != c; i++) i += line.text[i] == '\\';
    }
  }
}

static bool begins(const char *text, size_t length, const char *word) {
  size_t size = strlen(word);
  return length > size && same_bytes(text, word, size);
}

static void close_blocks(Scanner *scanner, size_t indent, uint32_t last) {
  while (scanner->depth && scanner->open[scanner->depth - 1].indent >= indent) {
    const Open *block = &scanner->open[--scanner->depth];
    if (block->function != SIZE_MAX) scanner->source->functions.items[block->function].last = last;
  }
}

static void open_block(Scanner *scanner, size_t indent, const char *name, size_t left, bool is_class, uint32_t line) {
  size_t length = 0;
  while (length < left && !memchr(" (:[\t", name[length], 5)) length++;
  if (!length || scanner->depth == MAX_NESTING) return;
  Builder whole;
  builder_init(&whole, scanner->context);
  if (scanner->depth) {
    const Open *outer = &scanner->open[scanner->depth - 1];
    builder_add(&whole, outer->name);
    builder_add(&whole, outer->function == SIZE_MAX ? "." : ".<locals>.");
  }
  builder_add_sized(&whole, name, length);
  Open block = {.indent = indent, .function = SIZE_MAX};
  block.name = str_intern_sized(scanner->context, whole.text, whole.length);
  if (!is_class) {
    block.function = scanner->source->functions.count;
    SourceFunction function = {.name = block.name, .first = scanner->decorator ? scanner->decorator : line};
    array_push(scanner->context, &scanner->source->functions, function);
  }
  scanner->open[scanner->depth++] = block;
}

static void scan_line(Scanner *scanner, SourceLine line, uint32_t number) {
  bool inside_text = scanner->quote != 0;
  follow_quotes(scanner, line);
  size_t indent = 0;
  while (indent < line.length && (line.text[indent] == ' ' || line.text[indent] == '\t')) indent++;
  if (inside_text || indent == line.length || line.text[indent] == '#' || memchr(")]}", line.text[indent], 3)) return;
  const char *text = line.text + indent;
  size_t length = line.length - indent;
  close_blocks(scanner, indent, number - 1);
  if (*text == '@') {
    if (!scanner->decorator) scanner->decorator = number;
    return;
  }
  if (begins(text, length, "async def ")) text += 6, length -= 6;
  if (begins(text, length, "def ")) open_block(scanner, indent, text + 4, length - 4, false, number);
  else if (begins(text, length, "class ")) open_block(scanner, indent, text + 6, length - 6, true, number);
  scanner->decorator = 0;
}

static void find_functions(Context *context, Source *source) {
  Scanner scanner = {.context = context, .source = source};
  uint32_t count = (uint32_t)source->lines.count;
  for (uint32_t i = 0; i < count; i++) scan_line(&scanner, source->lines.items[i], i + 1);
  close_blocks(&scanner, 0, count);
}

static void read_source(Context *context, Sources *sources, Source *source, const OpenFile *file) {
  if (file->size > MAX_SOURCE || file->size > MAX_TOTAL - sources->total) return;
  char *text = arena_alloc(&context->arena, (size_t)file->size + 1);
  size_t size;
  if (!read_at(file, 0, text, (size_t)file->size, &size) || !size) return;
  sources->total += size;
  split(context, source, text, size);
  find_functions(context, source);
  Sha256 hash;
  sha256_init(&hash);
  sha256_add(&hash, text, size);
  sha256_text(&hash, source->digest);
  array_push(context, &sources->read, source->path);
}

void sources_carry(Context *context, Sources *sources, Str name, const char *text, size_t size) {
  void **slot = map_slot_pointer(context, &sources->known, name);
  if (*slot) return;
  Source *source = arena_new(&context->arena, Source);
  *slot = source;
  source->path = name;
  split(context, source, text, size);
  find_functions(context, source);
  array_push(context, &sources->read, name);
}

/* The source of an open file; the same one for every name that the file has. */
static Source *source_of_file(Context *context, Sources *sources, Str name, const OpenFile *file) {
  void **slot = map_slot(context, &sources->files, file->device, file->inode);
  if (*slot) return *slot;
  Source *source = arena_new(&context->arena, Source);
  source->path = name;
  *slot = source;
  read_source(context, sources, source, file);
  return source;
}

typedef struct Opening {
  Context *context;
  Sources *sources;
  Str name;
  OpenFile file;
  Source *source;
} Opening;

static void read_opened(void *argument) {
  Opening *opening = argument;
  opening->source = source_of_file(opening->context, opening->sources, opening->name, &opening->file);
}

/* Memory that runs out unwinds past an open file. */
static Source *open_new(Context *context, Sources *sources, Str name) {
  Opening opening = {context, sources, name, .source = NULL};
  opening.file = is_python(name) ? open_allowed(sources, name) : (OpenFile){.descriptor = -1};
  if (opening.file.descriptor >= 0) {
    bool done = context_protect(context, read_opened, &opening);
    close_file(&opening.file);
    if (!done) fail_text(context, context->error, context->message);
    return opening.source;
  }
  Source *source = arena_new(&context->arena, Source);
  source->path = name;
  if (is_python(name) && !is_library_file(name, str_length(name))) array_push(context, &sources->left_out, name);
  return source;
}

/* ---- what the model says ---- */

static void read_digests(Context *context, Sources *sources, Str text) {
  for (const char *line = text, *end = text + str_length(text); line < end;) {
    const char *stop = find_letter(line, '\n', (size_t)(end - line));
    if (!stop) stop = end;
    const char *tab = find_letter(line, '\t', (size_t)(stop - line));
    if (tab && stop - tab - 1 == SHA256_TEXT - 1) {
      Str name = str_intern_sized(context, line, (size_t)(tab - line));
      Str digest = str_intern_sized(context, tab + 1, SHA256_TEXT - 1);
      *map_slot_pointer(context, &sources->digests, name) = (void *)(uintptr_t)digest;
      array_push(context, &sources->digested, name);
    }
    line = stop + 1;
  }
}

/* A text that the model holds is what was exported. */
static void hold_source(Context *context, Sources *sources, Str name, Str text) {
  if (str_length(text) > MAX_SOURCE || str_length(text) > MAX_TOTAL - sources->total) return;
  sources->total += str_length(text);
  Source *source = arena_new(&context->arena, Source);
  source->path = name;
  source->is_held = true;
  split(context, source, text, str_length(text));
  find_functions(context, source);
  *map_slot_pointer(context, &sources->known, name) = source;
  array_push(context, &sources->read, name);
}

void sources_of_model(Context *context, Sources *sources, const MetadataList *metadata) {
  for (size_t i = 0; i < metadata->count; i++) {
    const Metadata *entry = &metadata->items[i];
    size_t head = sizeof METADATA_SOURCE - 1;
    if (str_is(entry->key, METADATA_SOURCES)) read_digests(context, sources, entry->value);
    else if (str_begins(entry->key, METADATA_SOURCE)) {
      Str name = str_intern_sized(context, entry->key + head, str_length(entry->key) - head);
      hold_source(context, sources, name, entry->value);
    }
  }
}

static void compare_digest(Context *context, Sources *sources, Source *source, Str name) {
  Str digest = map_get_pointer(&sources->digests, name);
  if (!digest || source->is_held || source->is_compared || !source->lines.count) return;
  source->is_compared = true;
  source->is_changed = !str_is(digest, source->digest);
  if (source->is_changed) array_push(context, &sources->changed, name);
}

const Source *sources_open(Context *context, Sources *sources, Str name) {
  Str asked = name;
  const char *given = map_get_pointer(&sources->stand_ins, name);
  if (given) name = str_intern(context, given);
  Source *source = map_get_pointer(&sources->known, name);
  if (!source) {
    source = open_new(context, sources, name);
    *map_slot_pointer(context, &sources->known, name) = source;
  }
  compare_digest(context, sources, source, asked);
  return source->lines.count ? source : NULL;
}

size_t path_common_parts(const char *path, const char *given) {
  while (given[0] == '.' && given[1] == '/') given += 2;
  const char *a = path + strlen(path), *b = given + strlen(given);
  size_t parts = 0;
  for (;;) {
    while (a > path && b > given && a[-1] == b[-1] && a[-1] != '/') a--, b--;
    bool whole_a = a == path || a[-1] == '/', whole_b = b == given || b[-1] == '/';
    if (!whole_a || !whole_b) return parts;
    parts++;
    if (a == path || b == given) return parts;
    a--, b--;
  }
}

void sources_match(Context *context, Sources *sources, const Str *names, size_t count) {
  for (size_t i = 0; i < sources->given_count; i++) {
    const char *given = sources->given[i];
    if (!sources_open(context, sources, str_intern(context, given))) {
      fail(context, ERROR_IO, "%s: cannot be read, is empty, or is not a .py file", given);
    }
    Str best = NULL;
    size_t most = 0;
    for (size_t k = 0; k < count; k++) {
      size_t parts = path_common_parts(names[k], given);
      if (parts > most) most = parts, best = names[k];
    }
    if (best) *map_slot_pointer(context, &sources->stand_ins, best) = (void *)(uintptr_t)given;
  }
}

/* Names that an option or operand of the user's holds may be opened wherever they are. */
const Source *source_open(Job *job, const char *path) {
  return sources_open(&job->context, &job->sources, str_intern(&job->context, path));
}

const SourceLine *source_line(const Source *source, uint32_t line) {
  return line >= 1 && line <= source->lines.count ? &source->lines.items[line - 1] : NULL;
}

/* A lambda or a comprehension has no line of its own: the function around it stands for it. */
static size_t named_part(Str function) {
  size_t length = str_length(function);
  for (;;) {
    const char *dot = find_last(function, length, '.');
    const char *last = dot ? dot + 1 : function;
    if (*last != '<') return length;
    if (!dot) return 0;
    length = (size_t)(dot - function);
  }
}

bool source_defines(const Source *source, Str function, uint32_t line) {
  if (line < 1 || line > source->lines.count) return false;
  size_t length = named_part(function);
  if (length == 0) return true; /* <module>, or a lambda at its top level */
  for (size_t i = 0; i < source->functions.count; i++) {
    const SourceFunction *defined = &source->functions.items[i];
    bool same = str_length(defined->name) == length && same_bytes(defined->name, function, length);
    if (same && line >= defined->first && line <= defined->last) return true;
  }
  return false;
}

void report_source_line(Job *job, const char *path, uint32_t line) {
  const Source *source = source_open(job, path);
  const SourceLine *found = source ? source_line(source, line) : NULL;
  if (!found) return;
  const char *text = found->text;
  size_t length = found->length;
  while (length && (*text == ' ' || *text == '\t')) text++, length--;
  while (length && text[length - 1] == ' ') length--;
  report_text(&job->report, text, length);
}

static void json_list(Report *report, const char *key, const Str *names, size_t count) {
  json_key(report, key);
  report_add(report, "[");
  for (size_t i = 0; i < count; i++) {
    if (i) report_add(report, ", ");
    json_name(report, names[i]);
  }
  report_add(report, "]");
}

void json_sources(Job *job) {
  const Sources *sources = &job->sources;
  json_list(&job->report, "sources", sources->read.items, sources->read.count);
  json_list(&job->report, "sources_left_out", sources->left_out.items, sources->left_out.count);
  json_list(&job->report, "sources_changed", sources->changed.items, sources->changed.count);
}

void sources_compare(Job *job) {
  Sources *sources = &job->sources;
  for (size_t i = 0; i < sources->digested.count; i++) sources_open(&job->context, sources, sources->digested.items[i]);
}

static void report_changed(Job *job) {
  Report *report = &job->report;
  for (size_t i = 0; i < job->sources.changed.count; i++) {
    report_color(report, COLOR_CHANGED);
    report_path(report, job->sources.changed.items[i]);
    report_add(report, " has changed since the export; its line numbers may no longer match\n");
    report_color(report, COLOR_PLAIN);
  }
}

void report_left_out(Job *job) {
  report_changed(job);
  size_t count = job->sources.left_out.count;
  if (!count) return;
  report_color(&job->report, COLOR_FAINT);
  report_add(&job->report, "source text not found: ");
  report_name(&job->report, job->sources.left_out.items[0]);
  if (count > 1) builder_format(&job->report.line, " and %zu more", count - 1);
  report_add(&job->report, " (not in the working directory; use --source-root FOLDER or --source FILE)\n");
  report_color(&job->report, COLOR_PLAIN);
}
