/* The command line: exit codes, help, files that are not there, closed outputs. */
#include <stdlib.h>
#include <unistd.h>

#include "test.h"
#include "tool/tool.h"

typedef struct Run {
  int code;
  char out[8192], err[2048];
} Run;

static void slurp(FILE *file, char *text, size_t size) {
  rewind(file);
  text[fread(text, 1, size - 1, file)] = '\0';
  fclose(file);
}

static Run run(int argc, char **argv) {
  Run result = {.code = -1};
  FILE *out = tmpfile(), *err = tmpfile();
  result.code = j2o_tool_main(argc, argv, out, err, NULL);
  slurp(out, result.out, sizeof result.out);
  slurp(err, result.err, sizeof result.err);
  return result;
}

#define ARGUMENTS(...) ((char *[]){"j2o", __VA_ARGS__, NULL})
#define RUN(...) run((int)(sizeof ARGUMENTS(__VA_ARGS__) / sizeof(char *)) - 1, ARGUMENTS(__VA_ARGS__))

/* ir_version 10, a graph "g" with the node y = Sin(x). */
static const char model[] = "\x08\x0a\x3a\x12\x0a\x0d\x0a\x01x\x12\x01y\"\x03Sin:\x00\x12\x01g";

/* Writes the bytes to a file whose name goes into path. */
static void make_file(char *path, size_t path_size, const char *bytes, size_t size) {
  const char *folder = getenv("TMPDIR");
  snprintf(path, path_size, "%s/j2o_test_XXXXXX", folder && *folder ? folder : P_tmpdir);
  int descriptor = mkstemp(path);
  CHECK(descriptor >= 0 && write(descriptor, bytes, size) == (ssize_t)size);
  close(descriptor);
}

static void help_and_version_succeed(void) {
  CHECK(RUN("--help").code == EXIT_OK && strstr(RUN("--help").out, "inspect"));
  CHECK(RUN("inspect", "--help").code == EXIT_OK && strstr(RUN("inspect", "--help").out, "--json"));
  CHECK(RUN("text", "-h").code == EXIT_OK);
  CHECK(RUN("--version").code == EXIT_OK && strncmp(RUN("--version").out, "j2o ", 4) == 0);
}

static void wrong_command_lines_are_told(void) {
  CHECK(RUN("").code == EXIT_USAGE);
  CHECK(RUN("destroy").code == EXIT_USAGE && strstr(RUN("destroy").err, "unknown command destroy\n"));
  CHECK(strstr(RUN("insepct").err, "did you mean inspect?"));
  CHECK(strstr(RUN("inspect", "--summry").err, "did you mean --summary?"));
  CHECK(RUN("inspect").code == EXIT_USAGE);
  CHECK(RUN("inspect", "a", "b").code == EXIT_USAGE);
  CHECK(RUN("inspect", "a", "--fast").code == EXIT_USAGE);
  CHECK(RUN("inspect", "a", "--color=blue").code == EXIT_USAGE);
  CHECK(RUN("text", "a", "--json").code == EXIT_USAGE);
  CHECK(RUN("strip", "a").code == EXIT_USAGE && strstr(RUN("strip", "a").err, "-o FILE"));
  CHECK(RUN("locate", "a").code == EXIT_USAGE);
  CHECK(RUN("diff", "a").code == EXIT_USAGE);
  CHECK(RUN("stats", "a", "--top=many").code == EXIT_USAGE);
  CHECK(RUN("inspect", "a", "--op").code == EXIT_USAGE);
}

static void bad_files_are_told(void) {
  CHECK(RUN("inspect", "does_not_exist.onnx").code == EXIT_FILE);
  CHECK(strstr(RUN("inspect", "does_not_exist.onnx").err, "does_not_exist.onnx: No such file"));
  CHECK(RUN("inspect", ".").code == EXIT_FILE);
  char path[512];
  make_file(path, sizeof path, "", 0);
  Run empty = RUN("text", path);
  CHECK(empty.code == EXIT_FILE && strstr(empty.err, "not an ONNX model"));
  unlink(path);
  make_file(path, sizeof path, model, sizeof model - 5);
  CHECK(RUN("inspect", path).code == EXIT_FILE);
  unlink(path);
}

static void a_model_is_shown(void) {
  char path[512];
  make_file(path, sizeof path, model, sizeof model - 1);
  Run shown = RUN("inspect", path, "--color=never");
  CHECK(shown.code == EXIT_OK && strstr(shown.out, "Sin(x) -> y ?"));
  CHECK(strstr(shown.out, "JAX2ONNX_ENABLE_STACKTRACE_METADATA=1") && !strstr(shown.out, "\x1b"));
  CHECK(strstr(RUN("inspect", path, "--color=always").out, "\x1b[36mSin\x1b[0m"));
  CHECK(strstr(RUN("inspect", "--json", path).out, "\"op_type\": \"Sin\""));
  CHECK(strstr(RUN("text", "--", path).out, "y = Sin (x)"));
  unlink(path);
}

static void every_command_has_help(void) {
  for (const Command *command = tool_commands; command->name; command++) {
    Run help = run(3, (char *[]){"j2o", (char *)(uintptr_t)command->name, "--help", NULL});
    CHECK(help.code == EXIT_OK && strncmp(help.out, "usage: j2o ", 11) == 0);
    CHECK(strstr(RUN("--help").out, command->name));
  }
}

static void every_command_tells_bad_files(void) {
  char path[512], out[600];
  make_file(path, sizeof path, model, sizeof model - 5);
  snprintf(out, sizeof out, "%s.out", path);
  static const char *const readers[] = {"inspect", "blame", "stats", "text"};
  for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
    Run result = run(3, (char *[]){"j2o", (char *)(uintptr_t)readers[i], path, NULL});
    CHECK(result.code == EXIT_FILE && strstr(result.err, "at byte"));
  }
  CHECK(RUN("locate", path, "y").code == EXIT_FILE);
  CHECK(RUN("diff", path, path).code == EXIT_TROUBLE);
  CHECK(RUN("strip", path, "-o", out).code == EXIT_FILE && access(out, F_OK) != 0);
  CHECK(RUN("compact", path, "-o", out).code == EXIT_FILE && access(out, F_OK) != 0);
  CHECK(RUN("expand", path, "-o", out).code == EXIT_FILE && access(out, F_OK) != 0);
  unlink(path);
}

static void a_node_is_found(void) {
  char path[512];
  make_file(path, sizeof path, model, sizeof model - 1);
  Run found = RUN("locate", path, "y");
  CHECK(found.code == EXIT_OK && strstr(found.out, "Sin") && strstr(found.out, "read by nothing"));
  CHECK(RUN("locate", path, "z").code == EXIT_FILE);
  CHECK(RUN("diff", path, path).code == EXIT_OK);
  CHECK(RUN("blame", path).code == EXIT_FILE && strstr(RUN("blame", path).err, "STACKTRACE_METADATA=1"));
  CHECK(RUN("inspect", path, "--op", "Cos").code == EXIT_FILE && RUN("inspect", path, "--op", "S*").code == EXIT_OK);
  CHECK(strstr(RUN("stats", path, "--json").out, "\"bytes\": 22"));
  unlink(path);
}

static void a_full_disk_is_told(void) {
  FILE *full = fopen("/dev/full", "w"), *err = tmpfile();
  char path[512];
  make_file(path, sizeof path, model, sizeof model - 1);
  if (full) {
    CHECK(j2o_tool_main(3, (char *[]){"j2o", "inspect", path, NULL}, full, err, NULL) == EXIT_FILE);
    fclose(full);
  }
  fclose(err);
  unlink(path);
}

const Test tool_tests[] = {
    {"help_and_version_succeed", help_and_version_succeed},
    {"wrong_command_lines_are_told", wrong_command_lines_are_told},
    {"bad_files_are_told", bad_files_are_told},
    {"a_model_is_shown", a_model_is_shown},
    {"every_command_has_help", every_command_has_help},
    {"every_command_tells_bad_files", every_command_tells_bad_files},
    {"a_node_is_found", a_node_is_found},
    {"a_full_disk_is_told", a_full_disk_is_told},
    {0},
};
