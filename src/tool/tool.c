/* Arguments, files and exit codes. */
#include "tool/tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/spelling.h"
#include "onnx/file/metadata_edit.h"
#include "onnx/file/print.h"
#include "tool/index.h"
#include "tool/suggest.h"

#define TORN "the file was truncated while it was read"

const MappedFile *job_file(Job *job, int operand) {
  job->path = job->operands[operand];
  if (strcmp(job->path, "-") == 0) file_map_standard_input(&job->context, &job->files[operand]);
  else file_map(&job->context, job->path, &job->files[operand]);
  return &job->files[operand];
}

static bool is_torn(const Job *job) {
  for (int i = 0; i < MAX_OPERANDS; i++) {
    if (file_is_torn(&job->files[i])) return true;
  }
  return file_is_torn(&job->original_file);
}

void job_check_files(Job *job) {
  if (is_torn(job)) fail(&job->context, ERROR_FORMAT, TORN);
}

void fail_too_large(Job *job, const char *what, uint64_t size) {
  Report words = {.context = &job->context};
  builder_init(&words.line, &job->context);
  report_size(&words, size);
  builder_format(&words.line, ", more than the limit of ");
  report_size(&words, job_limit(job));
  fail(&job->context, ERROR_VALUE, "%s: %s would take %s; allow it with --limit=%" PRIu64 "M", job->path, what,
       builder_text(&words.line), (size >> 20) + 1);
}

Model *job_model(Job *job, int operand) {
  const MappedFile *file = job_file(job, operand);
  Model *model = job_read(job, file);
  model_unfold(model, job->limit);
  sources_of_model(&job->context, &job->sources, &model->metadata);
  if (job->original) job_graft(job, model);
  return model;
}

void run_inspect(Job *job) {
  const OriginIndex *index = model_index(&job->context, job_model(job, 0));
  if (job->summary) inspect_summary(job, index);
  else if (job->op || job->line || job->module || job->name) inspect_selected(job, index);
  else if (job->json) sources_compare(job), inspect_json(&job->report, job->path, index, job);
  else inspect_text(&job->report, job->path, index);
}

static void run_job(void *argument) {
  Job *job = argument;
  builder_init(&job->report.line, &job->context);
  job->command->run(job);
  job_check_files(job);
  report_finish(&job->report);
}

static int finish_job(Job *job, bool completed, FILE *err, ToolCosts *costs) {
  bool torn = is_torn(job); /* whatever was made of the zeros that were read */
  bool is_file_error = !torn && (job->context.error == ERROR_IO || job->context.error == ERROR_VALUE);
  int code = job->code;
  if (!completed && job->context.error == ERROR_INTERRUPTED) {
    code = EXIT_INTERRUPTED;
  } else if (!completed && !job->report.pipe_closed) {
    /* Messages of these kinds name the file themselves, and perhaps other things: no line end in them is ours. */
    fputs("j2o: ", err);
    if (!is_file_error) {
      print_safely(err, job->path, false);
      fputs(": ", err);
    }
    print_safely(err, torn ? TORN : job->context.message, !is_file_error);
    fputs("\n", err);
    code = job->command->run == run_diff ? EXIT_TROUBLE : EXIT_FILE;
  }
  costs->memory = job->context.arena.total + job->context.strings.capacity * sizeof(StringSlot);
  costs->written = job->report.written;
  costs->error = completed ? ERROR_NONE : job->context.error;
  for (int i = 0; i < MAX_FILES; i++) file_unmap(&job->files[i]);
  file_unmap(&job->original_file);
  file_unmap(&job->sidecar_file);
  context_release(&job->context);
  return code;
}

/* ---- arguments ---- */

typedef struct Option {
  const char *name;
  unsigned of;      /* the commands' OPTION_ that allows it */
  bool takes_value; /* --name=VALUE or --name VALUE */
  size_t place;     /* in Job: a bool, or a text; with `counter` a list of texts */
  size_t counter;   /* in Job: how many the list has, of at most MAX_SOURCE_FILES */
} Option;

static const Option options[] = {
    {"--json", OPTION_JSON, false, offsetof(Job, json)},
    {"--full", OPTION_FULL, false, offsetof(Job, report.full)},
    {"--summary", OPTION_SUMMARY, false, offsetof(Job, summary)},
    {"--all", OPTION_ALL, false, offsetof(Job, all)},
    {"--map", OPTION_MAP, false, offsetof(Job, map)},
    {"--weights", OPTION_WEIGHTS, false, offsetof(Job, weights)},
    {"--op", OPTION_FILTER, true, offsetof(Job, op)},
    {"--line", OPTION_ASK, true, offsetof(Job, line)},
    {"--module", OPTION_ASK, true, offsetof(Job, module)},
    {"--self", OPTION_ASK, false, offsetof(Job, self)},
    {"--inclusive", OPTION_ASK, false, offsetof(Job, inclusive)},
    {"--provenance", OPTION_PROVENANCE, false, offsetof(Job, provenance)},
    {"--name", OPTION_FILTER, true, offsetof(Job, name)},
    {"--output", OPTION_OUTPUT | OPTION_MAY_OUTPUT, true, offsetof(Job, output)},
    {"-o", OPTION_OUTPUT | OPTION_MAY_OUTPUT, true, offsetof(Job, output)},
    {"--no-sync", OPTION_OUTPUT | OPTION_MAY_OUTPUT, false, offsetof(Job, no_sync)},
    {"--limit", OPTION_LIMIT, true, offsetof(Job, limit_text)},
    {"--opset", OPTION_CONVERT, true, offsetof(Job, door.opset)},
    {"--target", OPTION_CONVERT | OPTION_TARGET, true, offsetof(Job, target)},
    {"--stacktrace", OPTION_CONVERT, true, offsetof(Job, door.stacktrace)},
    {"--normalization", OPTION_CONVERT, true, offsetof(Job, door.normalization)},
    {"--name", OPTION_CONVERT, true, offsetof(Job, name)},
    {"--input-names", OPTION_CONVERT, true, offsetof(Job, door.input_names)},
    {"--output-names", OPTION_CONVERT, true, offsetof(Job, door.output_names)},
    {"--nchw-inputs", OPTION_CONVERT, true, offsetof(Job, door.nchw_inputs)},
    {"--nchw-outputs", OPTION_CONVERT, true, offsetof(Job, door.nchw_outputs)},
    {"--external-threshold", OPTION_CONVERT, true, offsetof(Job, door.external_threshold)},
    {"--web", OPTION_CONVERT, false, offsetof(Job, door.web)},
    {"--disable-pass", OPTION_CONVERT, true, offsetof(Job, door.disabled), offsetof(Job, door.disabled_count)},
    {"--dump-passes", OPTION_CONVERT, true, offsetof(Job, door.dump_passes)},
    {"--from", OPTION_FILL, true, offsetof(Job, from)},
    {"--rename", OPTION_FILL, true, offsetof(Job, renames), offsetof(Job, rename_count)},
    {"--by-reference", OPTION_FILL, false, offsetof(Job, by_reference)},
    {"--allow-surplus", OPTION_FILL, false, offsetof(Job, allow_surplus)},
    {"--max-shard-size", OPTION_FILL, true, offsetof(Job, limit_text)},
    {"--data", OPTION_DATA, true, offsetof(Job, door.data)},
    {"--pass", OPTION_PASSES, true, offsetof(Job, door.passes), offsetof(Job, door.pass_count)},
    {"--time-passes", OPTION_PASSES, false, offsetof(Job, door.time_passes)},
    {"--top", OPTION_TOP, true, offsetof(Job, top)},
    {"--source", OPTION_SOURCE, true, offsetof(Job, sources.given), offsetof(Job, sources.given_count)},
    {"--source-root", OPTION_SOURCE, true, offsetof(Job, sources.roots), offsetof(Job, sources.root_count)},
    {"--sidecar", OPTION_SIDECAR, true, offsetof(Job, sidecar)},
    {"--processed", OPTION_PROCESSED, false, offsetof(Job, processed)},
    {"--sources", OPTION_CARRY, false, offsetof(Job, with_sources)},
    {"--original", OPTION_ORIGINAL, true, offsetof(Job, original)},
    {"--libraries", OPTION_PAGE, false, offsetof(Job, libraries)},
    {"--profile", OPTION_PAGE, true, offsetof(Job, profile)},
    {"--against", OPTION_PAGE, true, offsetof(Job, against)},
    {"--model-explorer", OPTION_PAGE, true, offsetof(Job, model_explorer)},
    {"--color", OPTION_COLOR, true, offsetof(Job, color)},
};

static int usage_error(FILE *err, const char *what, const char *detail) {
  fprintf(err, "j2o: %s", what);
  print_safely(err, detail, false);
  fputs("\nTry j2o --help.\n", err);
  return EXIT_USAGE;
}

static const Option *find_option(const Job *job, const char *argument, const char **value) {
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    const Option *option = &options[i];
    size_t length = strlen(option->name);
    bool named = strncmp(argument, option->name, length) == 0;
    if (!(job->command->options & option->of) || !named) continue;
    if (argument[length] == '\0') return option;
    if (!option->takes_value || argument[length] != '=') continue;
    *value = argument + length + 1;
    return option;
  }
  return NULL;
}

const char *tool_option(const Command *command, size_t index) {
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    if ((command->options & options[i].of) && !index--) return options[i].name;
  }
  return NULL;
}

static int unknown_name(FILE *err, const char *kind, const Suggestion *suggestion) {
  fprintf(err, "j2o: unknown %s ", kind);
  print_safely(err, suggestion->given, false);
  if (suggestion->name) fprintf(err, "; did you mean %s?", suggestion->name);
  fputs("\nTry j2o --help.\n", err);
  return EXIT_USAGE;
}

static int unknown_option(FILE *err, const Command *command, const char *given) {
  Suggestion suggestion = {given};
  const char *name;
  for (size_t i = 0; (name = tool_option(command, i)); i++) suggest_one(&suggestion, name);
  suggest_one(&suggestion, "--help");
  return unknown_name(err, "option", &suggestion);
}

static int unknown_command(FILE *err, const char *given) {
  Suggestion suggestion = {given};
  for (const Command *command = tool_commands; command->name; command++) suggest_one(&suggestion, command->name);
  return unknown_name(err, "command", &suggestion);
}

/* Reads the option at argv[*at]. EXIT_OK when it is good. */
static int read_option(Job *job, int argc, char **argv, int *at, FILE *err) {
  const char *value = NULL;
  const Option *option = find_option(job, argv[*at], &value);
  if (!option) return unknown_option(err, job->command, argv[*at]);
  char *place = (char *)job + option->place;
  if (!option->takes_value) {
    *(bool *)(void *)place = true;
    return EXIT_OK;
  }
  if (!value && *at + 1 < argc) value = argv[++*at];
  bool may_be_empty = option->place == offsetof(Job, module); /* the model itself */
  if (!value || (!*value && !may_be_empty)) return usage_error(err, "missing value after ", option->name);
  const char **text = (const char **)(void *)place;
  if (option->counter) {
    size_t *count = (size_t *)(void *)((char *)job + option->counter);
    if (*count == MAX_SOURCE_FILES) return usage_error(err, "too many files or folders, from ", value);
    text += (*count)++;
  }
  *text = value;
  return EXIT_OK;
}

static bool wants_color(const char *setting, FILE *out) {
  if (strcmp(setting, "always") == 0) return true;
  if (strcmp(setting, "never") == 0) return false;
  const char *no_color = getenv("NO_COLOR");
  const char *terminal = getenv("TERM");
  if ((no_color && *no_color) || !terminal || strcmp(terminal, "dumb") == 0) return false;
  return fileno(out) >= 0 && isatty(fileno(out));
}

static bool is_color_setting(const char *text) {
  return strcmp(text, "auto") == 0 || strcmp(text, "always") == 0 || strcmp(text, "never") == 0;
}

static bool is_number(const char *text) { return strlen(text) < 10 && strspn(text, "0123456789") == strlen(text); }

/* A number of bytes: 500000, 64K, 300M, 2G. */
static bool read_size(const char *text, size_t *size) {
  static const char units[] = "KMG";
  char *end;
  if (*text < '0' || *text > '9') return false;
  errno = 0;
  unsigned long long number = strtoull(text, &end, 10);
  const char *unit = *end ? strchr(units, *end) : NULL;
  unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
  bool ended = unit ? !end[1] : !*end;
  if (!ended || errno || !number || number > SIZE_MAX >> shift) return false;
  *size = (size_t)number << shift;
  return true;
}

/* EXIT_OK when the arguments are good. */
static int read_arguments(Job *job, int argc, char **argv, FILE *out, FILE *err) {
  bool ended = false;
  const Command *command = job->command;
  job->color = "auto";
  for (int i = 2; i < argc; i++) {
    const char *argument = argv[i];
    bool is_option = !ended && argument[0] == '-' && argument[1] != '\0';
    if (is_option && strcmp(argument, "--") == 0) {
      ended = true;
    } else if (is_option) {
      int code = read_option(job, argc, argv, &i, err);
      if (code != EXIT_OK) return code;
    } else if (job->operand_count == command->most_operands) {
      return usage_error(err, "unexpected argument ", argument);
    } else {
      job->operands[job->operand_count++] = argument;
    }
  }
  if (!is_color_setting(job->color)) return usage_error(err, "--color must be auto, always or never, not ", job->color);
  if (job->limit_text && !read_size(job->limit_text, &job->limit)) {
    return usage_error(err, "expected a size such as 500M or 2G, not ", job->limit_text);
  }
  if (job->top && !is_number(job->top)) return usage_error(err, "--top is a number, not ", job->top);
  if (job->self && job->inclusive) return usage_error(err, "--self and --inclusive cannot be combined", "");
  const char *wrong = door_mistake(&job->door);
  if (wrong) return usage_error(err, wrong, "");
  if (!job->operand_count && command->least_operands) return usage_error(err, "no model given; name an .onnx file", "");
  if (job->operand_count < command->least_operands) {
    return usage_error(err, "this command needs two models", "");
  }
  if (command->run == run_locate && job->operand_count == 1 && !job->line && !job->module) {
    return usage_error(err, "no node or value given; pass its name, --line or --module", "");
  }
  if (command->run == run_fill && !job->from) return usage_error(err, "no weights given; pass --from SOURCE", "");
  bool writes_elsewhere = job->map || job->model_explorer;
  if ((command->options & OPTION_OUTPUT) && !job->output && !writes_elsewhere) {
    return usage_error(err, "where to? Give -o FILE", "");
  }
  if (job->against) job->operands[1] = job->against;
  job->report.color = wants_color(job->color, out) && !job->json;
  return EXIT_OK;
}

static bool asks_for_help(int argc, char **argv) {
  for (int i = 2; i < argc; i++) {
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
  }
  return false;
}

static int show(FILE *out, const char *text) {
  fputs(text, out);
  return fflush(out) == 0 || errno == EPIPE ? EXIT_OK : EXIT_FILE;
}

static int show_help(const char *name, FILE *out, FILE *err) {
  if (!*name) return show(out, tool_help);
  if (strcmp(name, "completion") == 0) return show(out, completion_help);
  for (const Command *command = tool_commands; command->name; command++) {
    if (strcmp(command->name, name) == 0) return show(out, command->help);
  }
  return unknown_command(err, name);
}

int j2o_tool_main(int argc, char **argv, FILE *out, FILE *err, const Interruption *interruption) {
  ToolCosts costs;
  return tool_run(argc, argv, out, err, interruption, &costs);
}

int tool_run(int argc, char **argv, FILE *out, FILE *err, const Interruption *interruption, ToolCosts *costs) {
  *costs = (ToolCosts){0};
  const char *first = argc > 1 ? argv[1] : "";
  if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0) return show(out, "j2o " J2O_VERSION "\n");
  if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0) return show(out, tool_help);
  if (strcmp(first, "help") == 0) return show_help(argc > 2 ? argv[2] : "", out, err);
  if (strcmp(first, "man") == 0) {
    print_manual(out);
    return show(out, "");
  }
  if (strcmp(first, "completion") == 0) {
    if (asks_for_help(argc, argv)) return show(out, completion_help);
    if (run_completion(argc, argv, out)) return show(out, "");
    return usage_error(err, "no shell given; name bash, zsh or fish", "");
  }
  if (!*first) {
    fputs(tool_help, err);
    return EXIT_USAGE;
  }
  Job job = {.command = tool_commands};
  while (job.command->name && strcmp(first, job.command->name) != 0) job.command++;
  if (!job.command->name) return unknown_command(err, first);
  if (asks_for_help(argc, argv)) return show(out, job.command->help);
  int code = read_arguments(&job, argc, argv, out, err);
  if (code != EXIT_OK) return code;
  context_init(&job.context);
  if (interruption) {
    job.context.interrupted = interruption->asked;
    job.context.interrupted_data = interruption->data;
  }
  job.path = job.operand_count ? job.operands[0] : "";
  job.report.context = &job.context;
  job.report.stream = out;
  if (getcwd(job.folder, sizeof job.folder)) job.report.folder = job.folder;
  bool completed = context_protect(&job.context, run_job, &job);
  return finish_job(&job, completed, err, costs);
}
