/* Entries of a model in one: what stands under pkg.jax2onnx.provenance in a compact model.
 *
 *   j2o packed VERSION LENGTH DIGESTS
 *   CHARACTERS
 *
 * LENGTH is that of the text that the characters stand for (provenance/pack.h). Before them stand DIGESTS digests of
 * source files, 40 characters each, which the rows of the sources are without. Version 1 has none; nor has version 0,
 * whose characters are the text. It has for each entry, without the prefix of its key,
 *
 *   NAME LENGTH
 *   VALUE
 *
 * One of them is the table of origins (provenance/table.h). Earlier exports wrote the table there and the others as
 * they are.
 */
#ifndef J2O_ONNX_FILE_PACKED_ENTRIES_H
#define J2O_ONNX_FILE_PACKED_ENTRIES_H

#include "onnx/graph/graph.h"

/* Which entries of a model of the full level are packed, in this order. */
bool is_packed_key(const char *key, size_t length);

/* The value; the same entries give the same bytes. */
Str packed_entries(Context *context, const MetadataList *entries);

/* The entries that a value stands for, the table of origins last; of an earlier export, it is the only one. `limit` as
 * for table_read. Fails with ERROR_FORMAT. */
MetadataList unpacked_entries(Context *context, const char *value, size_t length, size_t limit);

#endif
