/* Source files. Python is read by its indentation alone, which is enough to know which function a line is in. */
#include "tool/source.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_SOURCE = 16 << 20, MAX_NESTING = 64 };

/* ---- reading ---- */

/* The whole file, or NULL. */
static const char *read_file(Context *context, const char *path, size_t *size) {
  size_t length = strlen(path);
  if (length < 4 || strcmp(path + length - 3, ".py") != 0) return NULL;
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return NULL;
  struct stat status;
  bool usable = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= MAX_SOURCE;
  char *text = NULL;
  *size = 0;
  if (usable) {
    Arena *arena = &context->arena;
    size_t room = (size_t)status.st_size;
    text = arena_alloc(arena, room + 1);
    for (ssize_t got; *size < room && (got = read(descriptor, text + *size, room - *size)) > 0;) *size += (size_t)got;
  }
  close(descriptor);
  return text;
}

static void split(Context *context, Source *source, const char *text, size_t size) {
  for (const char *end = text + size; text < end;) {
    const char *stop = memchr(text, '\n', (size_t)(end - text));
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
  return length > size && memcmp(text, word, size) == 0;
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

const Source *source_open(Job *job, const char *path) {
  Context *context = &job->context;
  Str name = str_intern(context, path);
  void **slot = map_slot_pointer(context, &job->sources, name);
  if (!*slot) {
    Source *source = arena_new(&context->arena, Source);
    *slot = source; /* one without lines: cannot be read */
    size_t size;
    const char *text = read_file(context, path, &size);
    if (text) {
      split(context, source, text, size);
      find_functions(context, source);
    }
  }
  const Source *source = map_get_pointer(&job->sources, name);
  return source->lines.count ? source : NULL;
}

const SourceLine *source_line(const Source *source, uint32_t line) {
  return line >= 1 && line <= source->lines.count ? &source->lines.items[line - 1] : NULL;
}

/* A lambda or a comprehension has no line of its own: the function around it stands for it. */
static size_t named_part(Str function) {
  size_t length = str_length(function);
  for (;;) {
    const char *dot = memrchr(function, '.', length);
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
    bool same = str_length(defined->name) == length && memcmp(defined->name, function, length) == 0;
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
