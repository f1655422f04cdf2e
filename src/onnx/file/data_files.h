/* Data files: the tensors of a model that lie beside it, in one file or several. */
#ifndef J2O_ONNX_FILE_DATA_FILES_H
#define J2O_ONNX_FILE_DATA_FILES_H

#include "base/output.h"
#include "types/data_plan.h"

/* Bytes of tensors; for whoever wants to show how far it is. */
typedef struct WriteProgress {
  uint64_t written, total;
} WriteProgress;

typedef struct DataFile {
  OutputFile *file;
  size_t first, count; /* of the plan's tensors */
  const char *name;    /* as the model says it */
} DataFile;

typedef struct DataFiles {
  Context *context;
  Output *output;
  const DataPlan *plan;
  WriteProgress *progress; /* or NULL */
  DataFile *items;
  size_t count;
} DataFiles;

/* The names that the files have when nothing stands in the way. */
const char **data_file_names(Context *context, const char *stem, size_t count);

/* Each file is the one that is there, or written anew. */
void data_files_write(DataFiles *files, Output *output, const DataPlan *plan, WriteProgress *progress);

/* Chooses the names, again where a commit found one taken. True: one differs from those given, which become it. */
bool data_files_name(DataFiles *files, const char **names);

#endif
