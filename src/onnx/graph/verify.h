/* Verify: does a model hold together, and does it say what the standard allows?
 *
 * Structure: values are used only where they are defined, after what makes them, and use lists agree with the uses;
 * names are unique where they are given; graphs are nested no deeper than readers of protobuf accept; functions use
 * nothing around them; every domain is imported. Each node: arity, attributes and element types of the operator as of
 * the opset, and shapes that agree where its rule is simple. What is unknown (a type, a size, an operator of another
 * domain) is never a fault. Linear in the size of the model.
 */
#ifndef J2O_ONNX_GRAPH_VERIFY_H
#define J2O_ONNX_GRAPH_VERIFY_H

#include "onnx/graph/graph.h"

/* Graphs inside graphs, the main one counted: protobuf's readers stop at 100 messages, a graph in a node's attribute is
 * three, and the size of an axis lies five below its graph. */
enum { MOST_NESTED_GRAPHS = 32 };

typedef struct Fault {
  const Graph *graph;
  const Node *node; /* NULL: of the graph as a whole */
  const char *text;
} Fault;

typedef ARRAY(Fault) FaultList;

enum { MOST_FAULTS = 1000 /* those after it are not looked for */ };

/* Before a model is written only what costs nothing that can be measured is looked at: scopes, order, depth, domains,
 * arity, attributes, element types. */
typedef enum VerifyDepth { VERIFY_QUICKLY, VERIFY_ALL } VerifyDepth;

/* All faults in the order of the nodes, inner graphs after the node that holds them. Uses the scratch of values. */
FaultList model_verify(Model *model, VerifyDepth depth);

/* "Add 'Add_3': inputs 0 and 1 …", with the user's line where there is one. */
const char *fault_text(const Model *model, const Fault *fault);

/* Fails with ERROR_FORMAT and the first fault of a model that somebody else made: passes take a sound one for granted.
 */
void require_sound(Model *model);

/* Fails with ERROR_INTERNAL and the first fault, naming the pass that left it, or NULL. */
void require_verified(Model *model, VerifyDepth depth, const char *pass);

#endif
