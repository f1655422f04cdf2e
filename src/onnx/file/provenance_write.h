/* Writing where things came from: the entries of nodes, initializers and the model (docs/provenance.md). */
#ifndef J2O_ONNX_FILE_PROVENANCE_WRITE_H
#define J2O_ONNX_FILE_PROVENANCE_WRITE_H

#include "onnx/file/encode.h"
#include "onnx/graph/graph.h"
#include "provenance/table.h"

typedef enum MetadataLevel { METADATA_OFF, METADATA_MINIMAL, METADATA_FULL, METADATA_COMPACT } MetadataLevel;

typedef struct ProvenanceWriter {
  Context *context;
  Provenance *provenance;
  const Model *model;
  MetadataLevel level;
  Builder text;             /* scratch */
  TableWriter *table;       /* of the compact level; else NULL */
  Map emitters, references; /* what its origins are made of, so that equal ones are rendered once */
  Map encoded;              /* of the full level: (site, emitter's texts) -> the entries of such nodes */
  ARRAY(Str) lines;         /* scratch */
} ProvenanceWriter;

/* At the compact level this numbers the origins of the whole model: nodes and values are not to be changed after. */
void provenance_writer_init(ProvenanceWriter *writer, Model *model, MetadataLevel level);

/* Back to front, as all writing is. */
void put_entry(Encoder *encoder, int field, const char *key, const char *value);
void put_node_provenance(ProvenanceWriter *writer, Encoder *encoder, const Node *node);
void put_initializer_provenance(ProvenanceWriter *writer, Encoder *encoder, const Value *value);
void put_model_provenance(ProvenanceWriter *writer, Encoder *encoder);

#endif
