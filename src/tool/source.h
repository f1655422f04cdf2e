/* Source files that a model's traces name. A model may name anything, so only what the reader allowed is opened: files
 * in the working folder and in the folders of --source-root or below, without following a link out of them, and the
 * files that the reader named, by --source or as an operand. */
#ifndef J2O_TOOL_SOURCE_H
#define J2O_TOOL_SOURCE_H

#include "base/sha256.h"
#include "onnx/graph/graph.h"

typedef struct Job Job;

typedef struct SourceLine {
  const char *text;
  size_t length;
} SourceLine;

typedef struct SourceFunction {
  Str name; /* qualified, as Python has it: Block.__call__, outer.<locals>.inner */
  uint32_t first, last;
} SourceFunction;

typedef struct Source {
  Str path;                        /* the first name it was opened by */
  ARRAY(SourceLine) lines;         /* from index 0; line numbers begin at 1 */
  ARRAY(SourceFunction) functions; /* in the order of their first lines */
  char digest[SHA256_TEXT];        /* of a file */
  bool is_held;                    /* the model holds the text */
  bool is_compared, is_changed;    /* with what was exported */
} Source;

enum { MAX_SOURCE_FILES = 32 };

typedef struct Sources {
  const char *roots[MAX_SOURCE_FILES]; /* --source-root, as often as it was given */
  const char *given[MAX_SOURCE_FILES]; /* --source, as often as it was given */
  const char *named;                   /* a file named in another way, or NULL */
  size_t root_count, given_count;
  Map known;           /* a Source for every name that was asked for; one without lines cannot be read */
  Map files;           /* the same by device and inode: however a file is spelled, it is one */
  Map stand_ins;       /* a given file, by the model's name of the file that it stands for */
  ARRAY(Str) read;     /* names of files whose text was read */
  ARRAY(Str) left_out; /* names that the model holds and the reader did not allow */
  ARRAY(Str) changed;  /* names of files that are not what was exported */
  Map digests;         /* of the files as they were exported, by the model's names */
  ARRAY(Str) digested; /* these names */
  size_t total;        /* bytes read */
} Sources;

/* What the model says about its sources: digests, and the text of those that it holds itself. */
void sources_of_model(Context *context, Sources *sources, const MetadataList *metadata);
/* NULL when it cannot be read or may not be. */
const Source *sources_open(Context *context, Sources *sources, Str name);
/* Each file that the reader gave stands for the one among these whose path ends most like it. */
void sources_match(Context *context, Sources *sources, const Str *names, size_t count);

/* The text of a file that a sidecar holds, under the name that the model has for it. */
void sources_carry(Context *context, Sources *sources, Str name, const char *text, size_t size);

const Source *source_open(Job *job, const char *name);
const SourceLine *source_line(const Source *source, uint32_t line); /* NULL: there is no such line */
/* Could this function have a frame at this line of the file? */
bool source_defines(const Source *source, Str function, uint32_t line);
/* The line without the spaces around it; nothing when it cannot be read. */
void report_source_line(Job *job, const char *path, uint32_t line);

/* "sources": the files whose text the output holds, "sources_left_out": those that were not allowed,
 * "sources_changed": those that are not what was exported. */
void json_sources(Job *job);
/* Lines that say which files are not what was exported, and how to have what was left out, if anything was. */
void report_left_out(Job *job);
/* Opens every file of which the model says what it was. */
void sources_compare(Job *job);

/* How many names at the ends of two paths are the same. */
size_t path_common_parts(const char *path, const char *given);

#endif
