/* Arguments, help and exit codes. */
#include "tool/tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "onnx/print.h"
#include "onnx/read.h"

#ifndef J2O_VERSION
#define J2O_VERSION "0.0.0"
#endif

static const char tool_help[] =
    "j2o looks into ONNX models: what they compute, and which line of the JAX program each node came from.\n"
    "\n"
    "usage: j2o inspect MODEL.onnx [--full] [--json] [--color=auto|always|never]\n"
    "       j2o text MODEL.onnx\n"
    "       j2o --help | --version\n"
    "\n"
    "  inspect   the model's interface, then every node with its values, shapes and origin\n"
    "  text      the model in the ONNX text syntax, as onnx.parser reads it\n"
    "\n"
    "j2o COMMAND --help says more about a command. Models of any producer can be read; weights are never loaded, so a\n"
    "model of many gigabytes takes no longer than its nodes.\n"
    "\n"
    "exit codes: 0 done, 1 the file cannot be read or is no ONNX model, 2 the command line is wrong\n";

static const char inspect_help[] =
    "usage: j2o inspect MODEL.onnx [--full] [--json] [--color=auto|always|never]\n"
    "\n"
    "Prints the model's version, inputs and outputs, then its nodes in order: name, operator, inputs and outputs with\n"
    "their types, and where the node came from:\n"
    "\n"
    "  at Block.__call__:72      the line of the program that was converted\n"
    "  by SinPlugin.lower:31     the part of the converter that made the node\n"
    "\n"
    "The bodies of If, Loop and Scan stand indented below their node, functions at the end.\n"
    "\n"
    "  --full     also the converter's call stack (outermost first) and the JAX traceback (innermost first)\n"
    "  --json     one JSON document with everything, for other programs\n"
    "  --color    auto (the default) colours the output on a terminal, unless NO_COLOR is set\n"
    "\n"
    "A node has an origin when the model was exported with JAX2ONNX_ENABLE_STACKTRACE_METADATA=1 in the environment.\n";

static const char text_help[] =
    "usage: j2o text MODEL.onnx\n"
    "\n"
    "Prints the model in the ONNX text syntax. onnx.parser.parse_model reads it back; only the elements of large\n"
    "tensors are left out. The metadata of nodes, for which the syntax has no place, are comments above the node.\n";

typedef enum Command { COMMAND_INSPECT, COMMAND_TEXT } Command;

typedef struct Job {
  Context context;
  Report report;
  MappedFile file;
  Command command;
  const char *path;
  bool json;
} Job;

void report_flush(Report *report) {
  Builder *line = &report->line;
  size_t length = line->length;
  line->length = 0;
  errno = 0;
  if (!length || fwrite(line->text, 1, length, report->stream) == length) return;
  report->pipe_closed = errno == EPIPE;
  fail(report->context, ERROR_IO, "cannot write: %s", strerror(errno));
}

static void finish_output(Report *report) {
  report_flush(report);
  errno = 0;
  if (fflush(report->stream) == 0) return;
  report->pipe_closed = errno == EPIPE;
  fail(report->context, ERROR_IO, "cannot write: %s", strerror(errno));
}

static void run_job(void *argument) {
  Job *job = argument;
  file_map(&job->context, job->path, &job->file);
  Model *model = model_read(&job->context, job->file.data, job->file.size);
  Report *report = &job->report;
  builder_init(&report->line, &job->context);
  if (job->command == COMMAND_TEXT) model_print(&report->line, model);
  else if (job->json) inspect_json(report, job->path, model);
  else inspect_text(report, job->path, model);
  finish_output(report);
}

static int finish_job(Job *job, bool completed, FILE *err) {
  bool is_file_error = job->context.error == ERROR_IO;
  int code = EXIT_OK;
  if (!completed && !job->report.pipe_closed) {
    /* Messages of ERROR_IO name the file themselves. */
    if (is_file_error) fprintf(err, "j2o: %s\n", job->context.message);
    else fprintf(err, "j2o: %s: %s\n", job->path, job->context.message);
    code = EXIT_FILE;
  }
  file_unmap(&job->file);
  context_release(&job->context);
  return code;
}

static int usage_error(FILE *err, const char *what, const char *detail) {
  fprintf(err, "j2o: %s%s\nTry j2o --help.\n", what, detail);
  return EXIT_USAGE;
}

static int show(FILE *out, const char *text) {
  fputs(text, out);
  return fflush(out) == 0 || errno == EPIPE ? EXIT_OK : EXIT_FILE;
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

/* EXIT_OK when the arguments are good. */
static int read_options(Job *job, int argc, char **argv, FILE *out, FILE *err) {
  const char *color = "auto";
  bool only_paths = job->command == COMMAND_TEXT, ended = false;
  for (int i = 2; i < argc; i++) {
    const char *argument = argv[i];
    bool is_option = !ended && argument[0] == '-' && argument[1] != '\0';
    if (is_option && strcmp(argument, "--") == 0) {
      ended = true;
    } else if (is_option && !only_paths && strcmp(argument, "--full") == 0) {
      job->report.full = true;
    } else if (is_option && !only_paths && strcmp(argument, "--json") == 0) {
      job->json = true;
    } else if (is_option && !only_paths && strncmp(argument, "--color=", 8) == 0) {
      color = argument + 8;
      if (!is_color_setting(color)) return usage_error(err, "--color is auto, always or never, not ", color);
    } else if (is_option) {
      return usage_error(err, "there is no option ", argument);
    } else if (job->path) {
      return usage_error(err, "one model at a time; there is also ", argument);
    } else {
      job->path = argument;
    }
  }
  if (!job->path) return usage_error(err, "which model? Name an .onnx file", "");
  job->report.color = wants_color(color, out);
  return EXIT_OK;
}

static bool asks_for_help(int argc, char **argv) {
  for (int i = 2; i < argc; i++) {
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
  }
  return false;
}

int j2o_tool_main(int argc, char **argv, FILE *out, FILE *err) {
  const char *first = argc > 1 ? argv[1] : "";
  if (strcmp(first, "--version") == 0) return show(out, "j2o " J2O_VERSION "\n");
  if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0) return show(out, tool_help);
  if (!*first) {
    fputs(tool_help, err);
    return EXIT_USAGE;
  }
  Job job = {.command = COMMAND_INSPECT};
  if (strcmp(first, "text") == 0) job.command = COMMAND_TEXT;
  else if (strcmp(first, "inspect") != 0) return usage_error(err, "there is no command ", first);
  if (asks_for_help(argc, argv)) return show(out, job.command == COMMAND_TEXT ? text_help : inspect_help);
  int code = read_options(&job, argc, argv, out, err);
  if (code != EXIT_OK) return code;
  context_init(&job.context);
  job.report.context = &job.context;
  job.report.stream = out;
  bool completed = context_protect(&job.context, run_job, &job);
  return finish_job(&job, completed, err);
}
