/* The whole pipeline, from a program to a named model. */
#ifndef J2O_CONVERT_H
#define J2O_CONVERT_H

#include "lower/lower.h"
#include "onnx/file/write.h"
#include "passes/passes.h"

typedef struct ConvertOptions {
  LowerOptions lower;
  PassOptions passes;
  MetadataLevel metadata; /* that the file will have */
  bool keep_ledger;       /* write down what becomes of every equation */
  const char *calls;      /* file that receives the program's text form, or NULL */
  OutputOptions output;   /* of that file */
} ConvertOptions;

Model *convert(Program *program, const ConvertOptions *options, UnsupportedList *problems, UnsupportedList *notices);

#endif
