/* Makes a model of a record, or of a program as text, and says where each node came from.
 *
 *   cc convert_record.c $(pkg-config --cflags --libs j2o) -o convert_record
 *   ./convert_record bug.txt model.onnx
 */
#include <j2o.h>
#include <stdio.h>

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: convert_record RECORD MODEL.onnx\n");
    return 2;
  }
  J2oError error;
  J2oModel *model = j2o_convert_file(argv[1], &error);
  if (!model) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  for (size_t i = 0; i < j2o_node_count(model); i++) {
    const char *line = j2o_node_origin(model, i, "pkg.jax2onnx.callsite");
    printf("%s at %s\n", j2o_node_operator(model, i), line && *line ? line : "?");
  }
  int written = j2o_write(model, argv[2], &error);
  if (!written) fprintf(stderr, "%s\n", error.message);
  j2o_model_free(model);
  return written ? 0 : 1;
}
