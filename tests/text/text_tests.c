/* Text tests: a program and the graph it is lowered to, or what an earlier stage makes of it; a graph and what passes
 * make of it.
 *
 *   === what the case shows
 *   pass: fuse_softmax
 *   graph (float[2] x) => (float[2] y) { … }
 *   ---
 *   unchanged
 *
 * An input that begins with "program" is lowered, without passes, or only legalised with "stage: legalize"; a graph
 * goes through the named passes, each once, or through all of them when none is named. Below the line stands what is
 * made, "unchanged" for what a stage or the passes leave alone, or "error: " and the message. Settings between the name
 * and the input: stage, pass, without, opset, target, normalization, input_nchw, output_nchw,
 * sequential_bits, drop_checks,
 * unroll_scans.
 *
 * usage: j2o_text_tests [--write] [-k PART OF A NAME] FILE|FOLDER...
 *
 * --write puts what is made in the place of what was expected, and shows the difference.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "legalize/legalize.h"
#include "lower/lower.h"
#include "onnx/file/model_text.h"
#include "onnx/file/print.h"
#include "passes/passes.h"

enum { MAX_NAMES = 16 };

typedef struct Text {
  const char *at;
  size_t length;
} Text;

typedef struct Case {
  Context context;
  const char *file;
  size_t line; /* of its name */
  Text name, input, expected;
  bool legalize_only;
  LowerOptions lower;
  PassOptions passes;
  const char *names[2 * MAX_NAMES]; /* of passes: those to run, those to leave out */
  bool flags[2][MAX_NAMES];         /* input_nchw, output_nchw */
  const char *made;
} Case;

typedef struct Run {
  bool write;
  const char *only;
  int passed, failed;
} Run;

/* ---- lines ---- */

static Text next_line(const char **at, const char *end) {
  const char *stop = memchr(*at, '\n', (size_t)(end - *at));
  Text line = {*at, (size_t)((stop ? stop : end) - *at)};
  *at = stop ? stop + 1 : end;
  return line;
}

static bool begins(Text text, const char *with) {
  size_t length = strlen(with);
  return text.length >= length && memcmp(text.at, with, length) == 0;
}

static bool same(Text text, const char *other) {
  return text.length == strlen(other) && memcmp(text.at, other, text.length) == 0;
}

static Text trimmed(Text text) {
  while (text.length && strchr(" \n", text.at[0])) text.at++, text.length--;
  while (text.length && strchr(" \n", text.at[text.length - 1])) text.length--;
  return text;
}

/* ---- settings ---- */

/* "a, b" into a list that starts at names. */
static size_t split_names(Case *c, Text value, const char **names) {
  size_t count = 0;
  while (value.length) {
    const char *comma = memchr(value.at, ',', value.length);
    size_t length = comma ? (size_t)(comma - value.at) : value.length;
    Text word = trimmed((Text){value.at, length});
    if (count == MAX_NAMES) fail(&c->context, ERROR_VALUE, "too many names");
    names[count++] = str_intern_sized(&c->context, word.at, word.length);
    length += comma != NULL;
    value.at += length;
    value.length -= length;
  }
  return count;
}

static void set_flags(Case *c, Text value, bool *flags) {
  const char *numbers[MAX_NAMES];
  size_t count = split_names(c, value, numbers);
  for (size_t i = 0; i < count; i++) {
    int index = atoi(numbers[i]);
    if (index < 0 || index >= MAX_NAMES) fail(&c->context, ERROR_VALUE, "no such input or output");
    flags[index] = true;
  }
}

static NormalizationMode normalization(Case *c, Text value) {
  if (same(value, "decomposed")) return NORMALIZATION_DECOMPOSED;
  if (same(value, "auto")) return NORMALIZATION_AUTO;
  if (same(value, "native")) return NORMALIZATION_NATIVE;
  fail(&c->context, ERROR_VALUE, "normalization is decomposed, auto or native");
}

/* False when the line is none: there the input begins. */
static bool set(Case *c, Text line) {
  const char *colon = memchr(line.at, ':', line.length);
  if (!colon) return false;
  Text key = {line.at, (size_t)(colon - line.at)};
  Text value = trimmed((Text){colon + 1, line.length - key.length - 1});
  if (same(key, "stage") && same(value, "legalize")) {
    c->legalize_only = true;
  } else if (same(key, "pass")) {
    c->passes.only = c->names;
    c->passes.only_count = split_names(c, value, c->names);
  } else if (same(key, "without")) {
    c->passes.disabled = c->names + MAX_NAMES;
    c->passes.disabled_count = split_names(c, value, c->names + MAX_NAMES);
  } else if (same(key, "opset")) {
    c->lower.opset = atoll(str_intern_sized(&c->context, value.at, value.length));
  } else if (same(key, "target")) {
    c->lower.target = target_named(str_intern_sized(&c->context, value.at, value.length));
    if (!c->lower.target) return false;
  } else if (same(key, "normalization")) {
    c->passes.normalization = normalization(c, value);
  } else if (same(key, "input_nchw")) {
    set_flags(c, value, c->flags[0]);
    c->lower.input_nchw = c->flags[0];
  } else if (same(key, "output_nchw")) {
    set_flags(c, value, c->flags[1]);
    c->lower.output_nchw = c->flags[1];
  } else if (same(key, "unroll_scans")) {
    c->lower.unroll_scans = same(value, "True");
  } else if (same(key, "sequential_bits")) {
    c->lower.sequential_bits = same(value, "True");
  } else if (same(key, "drop_checks")) {
    c->lower.drop_checks = same(value, "True");
  } else {
    return false;
  }
  return true;
}

/* ---- what a case makes ---- */

static const char *printed(Case *c, const Model *model) {
  Builder out;
  builder_init(&out, &c->context);
  model_print_with(&out, model, &(PrintOptions){.bare = true});
  return builder_text(&out);
}

static Model *read_graph(Case *c, Text text) {
  TextSource source = {.text = text.at,
                       .length = text.length,
                       .opset = c->lower.opset,
                       .provenance = provenance_new(&c->context),
                       .file = str_intern(&c->context, "text")};
  return model_read_text(&c->context, &source);
}

/* What is printed must read back as the same. */
static void check_round_trip(Case *c, const char *text) {
  const char *again = printed(c, read_graph(c, (Text){text, strlen(text)}));
  if (strcmp(text, again) != 0) fail(&c->context, ERROR_INTERNAL, "the text reads back as\n%s", again);
}

static void lower_case(Case *c, Program *program) {
  UnsupportedList problems = {0}, notices = {0};
  const char *graph = printed(c, lower_program(program, &c->lower, &problems, &notices));
  check_round_trip(c, graph);
  Builder out;
  builder_init(&out, &c->context);
  builder_add(&out, graph);
  for (size_t i = 0; i < notices.count; i++) {
    builder_format(&out, "# %s\n", notices.items[i].reason);
  }
  c->made = builder_text(&out);
}

static void program_case(Case *c) {
  Provenance *provenance = provenance_new(&c->context);
  Program *program = program_parse(&c->context, provenance, c->input.at, c->input.length);
  const char *text = program_print(program);
  const char *again = program_print(program_parse(&c->context, provenance, text, strlen(text)));
  if (strcmp(text, again) != 0) fail(&c->context, ERROR_INTERNAL, "the program reads back as\n%s", again);
  legalize_checks(program);
  program_outline_functions(program);
  program_drop_unused(program);
  const char *before = program_print(program);
  legalize_program(program);
  if (c->legalize_only) c->made = program_print(program);
  else lower_case(c, program);
  if (strcmp(c->made, before) == 0) c->made = "unchanged\n";
}

static void pass_case(Case *c) {
  Model *model = read_graph(c, c->input);
  model->target = c->lower.target;
  const char *before = printed(c, model);
  run_passes(model, &c->passes);
  c->made = printed(c, model);
  check_round_trip(c, c->made);
  if (strcmp(c->made, before) == 0) c->made = "unchanged\n";
}

static void make(void *argument) {
  Case *c = argument;
  const char *at = c->input.at, *end = at + c->input.length;
  for (const char *start = at; at < end; start = at) {
    Text line = next_line(&at, end);
    if (line.length && line.at[0] != '#' && !set(c, line)) {
      c->input = (Text){start, (size_t)(end - start)};
      break;
    }
  }
  if (begins(c->input, "program")) program_case(c);
  else pass_case(c);
}

/* ---- the difference ---- */

static void print_lines(char mark, const char *at, const char *end) {
  while (at < end) {
    Text line = next_line(&at, end);
    printf("%c %.*s\n", mark, (int)line.length, line.at);
  }
}

/* The lines between what both begin with and what both end with. */
static void print_difference(Text expected, const char *made) {
  Text actual = trimmed((Text){made, strlen(made)});
  const char *left = expected.at, *left_end = left + expected.length;
  const char *right = actual.at, *right_end = right + actual.length;
  while (left < left_end && right < right_end) {
    const char *next_left = left, *next_right = right;
    Text a = next_line(&next_left, left_end), b = next_line(&next_right, right_end);
    if (a.length != b.length || memcmp(a.at, b.at, a.length) != 0) break;
    left = next_left;
    right = next_right;
  }
  while (left_end > left && right_end > right && left_end[-1] == right_end[-1]) left_end--, right_end--;
  while (left_end < expected.at + expected.length && *left_end != '\n') left_end++;
  while (right_end < actual.at + actual.length && *right_end != '\n') right_end++;
  print_lines('-', left, left_end);
  print_lines('+', right, right_end);
}

/* ---- files ---- */

static void say_error(Case *c) {
  const char *kind = c->context.error == ERROR_INTERNAL ? "broken" : "error";
  c->made = arena_format(&c->context.arena, "%s: %s\n", kind, c->context.message);
}

/* Writes what is made to out, when there is one. */
static void run_case(Run *run, Case *c, FILE *out) {
  context_init(&c->context);
  c->lower.opset = DEFAULT_OPSET;
  c->passes.normalization = NORMALIZATION_AUTO;
  c->passes.check = true;
  if (!context_protect(&c->context, make, c)) say_error(c);
  Text made = trimmed((Text){c->made, strlen(c->made)});
  bool right = made.length == c->expected.length && memcmp(made.at, c->expected.at, made.length) == 0;
  *(right ? &run->passed : &run->failed) += 1;
  if (!right) {
    printf("%s %s:%zu: %.*s\n", run->write ? "WRITTEN" : "FAILED", c->file, c->line, (int)c->name.length, c->name.at);
    print_difference(c->expected, c->made);
  }
  if (out) fprintf(out, "%.*s\n", (int)made.length, made.at);
  context_release(&c->context);
}

/* The case that begins at *at, behind its ===; *at moves to the next one. *input_end: behind its ---. */
static Case read_case(const char **at, const char *end, const char **input_end) {
  Case c = {.name = trimmed(next_line(at, end))};
  c.input.at = *at;
  *input_end = NULL;
  const char *start = *at;
  for (; *at < end; start = *at) {
    Text line = next_line(at, end);
    if (begins(line, "===")) {
      *at = start;
      break;
    }
    if (*input_end || !same(line, "---")) continue;
    c.input.length = (size_t)(line.at - c.input.at);
    *input_end = *at;
  }
  if (*at == end) start = end;
  if (!*input_end) c.input.length = (size_t)(start - c.input.at);
  if (*input_end) c.expected = trimmed((Text){*input_end, (size_t)(start - *input_end)});
  return c;
}

static void run_text(Run *run, const char *path, const char *text, const char *end, FILE *out) {
  size_t line = 1;
  const char *counted = text;
  for (const char *at = text; at < end;) {
    const char *start = at;
    Text first = next_line(&at, end);
    if (!begins(first, "===")) {
      if (out) fprintf(out, "%.*s\n", (int)first.length, first.at);
      continue;
    }
    at = start + 3;
    const char *input_end;
    Case c = read_case(&at, end, &input_end);
    for (; counted < start; counted++) line += *counted == '\n';
    c.file = path;
    c.line = line;
    c.name.length = c.name.length > 200 ? 200 : c.name.length;
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)c.name.length, c.name.at);
    bool chosen = !run->only || strstr(name, run->only);
    const char *kept = chosen ? (input_end ? input_end : c.input.at + c.input.length) : at;
    if (out) fprintf(out, "%.*s", (int)(kept - start), start);
    if (out && chosen && !input_end) fprintf(out, "---\n");
    if (chosen) run_case(run, &c, out);
    if (out && chosen && at < end) fprintf(out, "\n");
  }
}

static void run_file(Run *run, const char *path) {
  FILE *file = fopen(path, "r");
  char *text = NULL, *made = NULL;
  size_t capacity = 0, made_size = 0;
  ssize_t length = file ? getdelim(&text, &capacity, '\0', file) : -1;
  if (file) fclose(file);
  if (length < 0) {
    printf("FAILED %s: cannot be read, or is empty\n", path);
    run->failed++;
    free(text);
    return;
  }
  FILE *out = run->write ? open_memstream(&made, &made_size) : NULL;
  run_text(run, path, text, text + length, out);
  if (out) {
    fclose(out);
    bool changed = made_size != (size_t)length || memcmp(made, text, made_size) != 0;
    file = changed ? fopen(path, "w") : NULL;
    if (changed && (!file || fwrite(made, 1, made_size, file) != made_size || fclose(file) != 0)) perror(path);
    free(made);
  }
  free(text);
}

static int is_text_file(const struct dirent *entry) {
  size_t length = strlen(entry->d_name);
  return length > 4 && strcmp(entry->d_name + length - 4, ".txt") == 0;
}

static void run_path(Run *run, const char *path) {
  struct dirent **entries;
  int count = scandir(path, &entries, is_text_file, alphasort);
  if (count < 0) {
    run_file(run, path);
    return;
  }
  for (int i = 0; i < count; i++) {
    char inside[4096];
    snprintf(inside, sizeof inside, "%s/%s", path, entries[i]->d_name);
    run_file(run, inside);
    free(entries[i]);
  }
  free(entries);
}

int main(int argc, char **argv) {
  Run run = {0};
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--write") == 0) run.write = true;
    else if (strcmp(argv[i], "-k") == 0 && i + 1 < argc) run.only = argv[++i];
    else run_path(&run, argv[i]);
  }
  printf("%d text tests passed, %d %s\n", run.passed, run.failed, run.write ? "written" : "failed");
  return run.write ? 0 : run.failed || run.passed == 0;
}
