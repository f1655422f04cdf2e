/* Printing a model in the ONNX text syntax, as onnx.parser.parse_model and model_text.h read it.
 *
 * The syntax has no place for a node's metadata: they are comment lines above the node. Values without a name are
 * numbered (_0). Large tensors are printed without their elements, or with the place in a data file that has them;
 * attributes of kinds that the syntax cannot say as comments.
 */
#ifndef J2O_ONNX_FILE_PRINT_H
#define J2O_ONNX_FILE_PRINT_H

#include "base/builder.h"
#include "onnx/graph/graph.h"
#include "types/data_plan.h"

typedef struct PrintOptions {
  bool bare;      /* neither the model's head nor comments: the graph and its functions alone */
  bool as_read;   /* comments are the metadata that a file had, not the origins of nodes */
  DataPlan *data; /* receives the tensors that are not printed whole; or NULL */
} PrintOptions;

void model_print(Builder *out, const Model *model);
void model_print_with(Builder *out, const Model *model, const PrintOptions *options);

/* Words of the syntax. */
const char *element_name(DType dtype); /* "float"; NULL where ONNX has no such type */
DType dtype_from_element_name(const char *name);
bool is_type_word(const char *text);                      /* begins a type: a name that is one stands in quotes */
bool is_value_number(const char *name);                   /* _0, _1, …: what stands for a name; a real one is quoted */
AttributeKind attribute_kind_from_name(const char *name); /* ATTRIBUTE_OTHER when there is none */

#endif
