/* The command line over models on disk. Knows neither JAX nor Python. */
#ifndef J2O_TOOL_TOOL_H
#define J2O_TOOL_TOOL_H

#include <limits.h>
#include <stdio.h>

#include "onnx/file/encode.h"
#include "onnx/file/metadata_keys.h"
#include "onnx/file/read.h"
#include "target/target.h"
#include "tool/report.h"
#include "tool/source.h"

/* EXIT_DIFFERENT is j2o diff's alone, which answers a trouble with a file by EXIT_TROUBLE. */
enum { EXIT_OK = 0, EXIT_FILE = 1, EXIT_DIFFERENT = 1, EXIT_USAGE = 2, EXIT_TROUBLE = 2, EXIT_INTERRUPTED = 130 };

#ifndef J2O_VERSION
#define J2O_VERSION "0.0.0"
#endif

/* Whether the user wants to stop. */
typedef struct Interruption {
  bool (*asked)(void *data);
  void *data;
} Interruption;

/* The whole tool, on given streams. Returns the exit code. Nobody interrupts it where interruption is NULL. */
int j2o_tool_main(int argc, char **argv, FILE *out, FILE *err, const Interruption *interruption);

/* What a run took, for tests of the bounds that SECURITY.md states. */
typedef struct ToolCosts {
  size_t memory;    /* bytes, at most */
  uint64_t written; /* bytes of output */
  ErrorKind error;  /* how it failed */
} ToolCosts;
int tool_run(int argc, char **argv, FILE *out, FILE *err, const Interruption *interruption, ToolCosts *costs);

enum { MAX_OPERANDS = 2, MAX_FILES = 3 };
typedef struct Command Command;

/* Options of the commands in doors.c. */
typedef struct DoorOptions {
  const char *data; /* --data */
  bool time_passes;
  const char *passes[MAX_SOURCE_FILES]; /* --pass, as often as it was given */
  size_t pass_count;
  Str data_location; /* of the file that files[1] is, when it belongs to a text */
  const char *opset, *stacktrace, *normalization, *input_names, *output_names, *nchw_inputs, *nchw_outputs,
      *external_threshold, *dump_passes; /* of convert, as their names say */
  bool web;
  const char *disabled[MAX_SOURCE_FILES]; /* --disable-pass, as often as it was given */
  size_t disabled_count;
} DoorOptions;

/* One command at work. */
struct Job {
  Context context;
  Report report;
  const Command *command;
  DoorOptions door; /* of convert, text and passes */
  const char *operands[MAX_OPERANDS];
  int operand_count;
  const char *path; /* of the file at hand: errors name it */
  MappedFile files[MAX_FILES], original_file, sidecar_file;
  /* Options, as their names say. */
  bool json, summary, all, weights, map, with_sources, processed, self, inclusive, provenance, libraries;
  size_t limit; /* bytes that --limit allows; 0: the usual */
  const char *limit_text;
  const char *op, *line, *module, *name, *output, *top, *color, *profile, *original, *sidecar, *against,
      *model_explorer, *target;
  bool no_sync;
  const char *from; /* of fill, as the names of its options say */
  const char *renames[MAX_SOURCE_FILES];
  size_t rename_count;
  bool by_reference, allow_surplus;
  Sources sources;
  char folder[PATH_MAX]; /* the working folder, or "" */
  int code;              /* of a command that ended well */
};

struct Command {
  const char *name;
  void (*run)(Job *job);
  const char *help;
  unsigned options;
  int least_operands, most_operands;
};

extern const Command tool_commands[]; /* ends with an empty row; help.c */
extern const char tool_help[], completion_help[];

/* The name of the command's option at the index, or NULL behind the last. */
const char *tool_option(const Command *command, size_t index);
/* False: there is no such shell. completion.c */
bool run_completion(int argc, char **argv, FILE *out);
void print_manual(FILE *out);

enum {
  OPTION_JSON = 1,
  OPTION_FULL = 2,
  OPTION_SUMMARY = 4,
  OPTION_FILTER = 8,
  OPTION_OUTPUT = 16,
  OPTION_ALL = 32,
  OPTION_TOP = 64,
  OPTION_COLOR = 128,
  OPTION_WEIGHTS = 256,
  OPTION_PAGE = 512,
  OPTION_SOURCE = 1024,
  OPTION_ORIGINAL = 2048,
  OPTION_MAP = 4096,
  OPTION_ASK = 8192,
  OPTION_PROVENANCE = 16384,
  OPTION_LIMIT = 32768,
  OPTION_SIDECAR = 65536,
  OPTION_CARRY = 131072,
  OPTION_PROCESSED = 262144,
};

/* What a file may be unfolded to unless --limit says more. */
enum { USUAL_LIMIT = 256 << 20 };
static inline size_t job_limit(const Job *job) { return job->limit ? job->limit : USUAL_LIMIT; }
/* Fails and says how large the result would be, and which option allows it. */
_Noreturn void fail_too_large(Job *job, const char *what, uint64_t size);

/* Maps a file named on the command line; errors that follow name it. */
const MappedFile *job_file(Job *job, int operand);
/* Fails when one of them was cut short while it was read. */
void job_check_files(Job *job);
/* Reads it, with a compact model's origins on the nodes, and those of --original. */
Model *job_model(Job *job, int operand);
/* Reads the file at hand; a model that was split with the provenance of its sidecar: of --sidecar, else of one beside
 * it. sidecar_commands.c */
Model *job_read(Job *job, const MappedFile *file);
/* Gives a model the provenance of --original; fails when it was not made of that. graft.c */
void job_graft(Job *job, Model *model);

/* The target that --target names; fails when there is none. check.c */
const Target *job_target(Job *job);

/* Writes a file, as -o names it. False: that is standard output, to which nothing else may be said.
 * metadata_commands.c */
bool job_write(Job *job, const char *path, const Segment *segments, size_t count);
/* Begins the object that says what was written: the files' names. metadata_commands.c */
void json_files(Job *job);

/* The commands. */
void run_inspect(Job *job);
void run_text(Job *job);
void run_check(Job *job);
void run_targets(Job *job);
void run_blame(Job *job);
void run_locate(Job *job);
void run_diff(Job *job);
void run_strip(Job *job);
void run_compact(Job *job);
void run_expand(Job *job);
void run_graft(Job *job);
void run_fill(Job *job);
/* What a tool made of the nodes of each line. diff_processed.c */
void diff_processed(Job *job, Model *original, Model *processed);
void run_split(Job *job);
void run_join(Job *job);
void run_stats(Job *job);
void run_report(Job *job);

/* doors.c */
enum {
  OPTION_PASSES = 1 << 20,
  OPTION_DATA = 1 << 21,
  OPTION_MAY_OUTPUT = 1 << 22, /* -o, which may be left out */
  OPTION_CONVERT = 1 << 23,
  OPTION_FILL = 1 << 24,
  OPTION_TARGET = 1 << 25,
};
const char *door_mistake(const DoorOptions *options); /* what is wrong with them, or NULL */
void run_passes_command(Job *job);
void run_convert(Job *job);

/* What j2o inspect prints. inspect.c, inspect_json.c, summary.c */
typedef struct Item Item;
typedef struct OriginIndex OriginIndex;
void inspect_text(Report *report, const char *path, const OriginIndex *index);
/* job: whose sources are named, or NULL. */
void inspect_json(Report *report, const char *path, const OriginIndex *index, Job *job);
void inspect_item(Report *report, const OriginIndex *index, const Item *item);
void inspect_json_item(Report *report, const OriginIndex *index, const Item *item, const char *relation);
void inspect_selected(Job *job, const OriginIndex *index);
void inspect_summary(Job *job, const OriginIndex *index);

#endif
