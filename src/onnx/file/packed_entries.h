/* Entries of a model in one: what stands under pkg.jax2onnx.provenance in a compact model.
 *
 *   j2o packed 3 LENGTH DIGESTS
 *   CHARACTERS
 *
 * LENGTH is that of the text that the characters stand for (provenance/pack.h): the rows of the modules, of the removed
 * traces and of the sources, an empty line behind each, and the table of origins (provenance/table.h). Before the
 * characters stand DIGESTS digests, one for each row of the sources, 40 characters each; the row is the path alone.
 *
 * Version 0 has no digests, and the characters are the text, which has for each entry, without the prefix of its key,
 *
 *   NAME LENGTH
 *   VALUE
 *
 * Versions 1 and 2 pack a text of that form; version 1 has the digests in the rows of the sources. Earlier exports
 * wrote the table there and the others as they are.
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
