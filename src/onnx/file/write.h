/* Writing a model: to memory or, atomically, to a file. */
#ifndef J2O_ONNX_FILE_WRITE_H
#define J2O_ONNX_FILE_WRITE_H

#include "base/output.h"
#include "onnx/file/data_files.h"
#include "onnx/file/encode.h"
#include "onnx/file/provenance_write.h"
#include "onnx/graph/graph.h"

typedef struct WriteOptions {
  MetadataLevel metadata;
  /* Tensors of at least this many bytes go to a second file, path + ".data" where no file has that name. 0: only when
   * the model would pass 2 GiB, which is as much as one protobuf message can hold. */
  size_t external_threshold;
  size_t data_alignment;    /* of large tensors in that file; 0: as small ones' */
  size_t largest_data_file; /* bytes: more go to further files; 0: one file */
  WriteProgress *progress;  /* or NULL */
  bool single_file;         /* never a second file: a model past 2 GiB is refused */
  OutputOptions output;     /* but for find_companions, which is the writer's own */
} WriteOptions;

/* The whole model as segments, in order; *size receives their sum. */
const Segment *model_encode(Model *model, const WriteOptions *options, size_t *count, uint64_t *size);
void model_write_file(Model *model, const WriteOptions *options, const char *path);

/* Encoded bytes to the main file of an output, and the commit. False: a companion's name must be chosen again. */
bool segments_commit(Output *output, const Segment *segments, size_t count);

/* Encoded bytes to one file. Fails with ERROR_IO. */
void segments_write_file(Context *context, const Segment *segments, size_t count, const char *path,
                         const OutputOptions *options);

#endif
