/* Record: everything that a conversion was given, as text, with the tensors in a file beside it. Converting a record
 * gives the bytes that the export gave, without Python.
 *
 *   record 1
 *   opset 23
 *   metadata full
 *   ...
 *   program "model"
 *   ...
 *
 * Options that have their default are left out. The program's text is text_print.c's, and a text that begins with
 * "program" is a record without options.
 */
#ifndef J2O_RECORD_H
#define J2O_RECORD_H

#include "convert.h"

typedef struct Record {
  Program *program;
  ConvertOptions options;
  WriteOptions write;
} Record;

/* To path and path + ".data"; with shapes_only, parameters and large constants are recorded by their types alone. Fails
 * for a program that cannot be converted without Python. */
void record_write(const Record *record, const char *path, bool shapes_only);

/* data: the bytes of the file beside it. Fails with ERROR_FORMAT and names the line and the column. */
Record record_read(Context *context, const char *text, size_t length, ProgramData *data);

/* Names that a hand-written program leaves out: in_0, out_0, … */
void record_complete_names(Record *record);

/* Does the text begin as one of these does? */
bool looks_like_record(const void *bytes, size_t size);

#endif
