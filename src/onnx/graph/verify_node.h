/* The parts of the verifier that look at one node: verify_operator.c and verify_shapes.c. */
#ifndef J2O_ONNX_GRAPH_VERIFY_NODE_H
#define J2O_ONNX_GRAPH_VERIFY_NODE_H

#include "onnx/facts/signature.h"
#include "onnx/graph/verify.h"

typedef struct Verification {
  Model *model;
  bool all; /* of VerifyDepth */
  FaultList faults;
  int64_t opset;                    /* of the graph at hand: a function may have its own */
  const Signature *known[OP_COUNT]; /* signatures at that opset, once they were needed */
  struct {
    uint64_t dtypes; /* bits of the element types with which a plain node was found right, */
    uint32_t inputs; /* and the number of its inputs */
  } right[OP_COUNT];
  Map names;     /* name -> the Value that had it last */
  Map functions; /* (name, domain) -> Function */
  size_t uses_seen, uses_listed;
  unsigned depth;
} Verification;

void found(Verification *verification, const Graph *graph, const Node *node, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define FOUND(verification, at, ...) found((verification), (at)->graph, (at), __VA_ARGS__)

/* Arity, attributes, element types. False when the operator is not known: nothing more can be said about the node. */
bool verify_operator(Verification *verification, const Node *node);
/* Shapes, and what bodies must take and give. */
void verify_shapes(Verification *verification, const Node *node);
/* A call against the function that it calls. */
void verify_call(Verification *verification, const Node *node, const Function *function);

const char *type_text(Context *context, Type type); /* "float32[2,B]" */

#endif
