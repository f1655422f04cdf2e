/* A model as matching sees it: nodes and values in two arrays, bodies in line with the node that holds them, and the
 * functions that only one of two models has in place of their calls. */
#ifndef J2O_GRAFT_SIDE_H
#define J2O_GRAFT_SIDE_H

#include "onnx/file/read.h"

/* Nodes and values are numbered from 1; 0 is none. */
typedef uint32_t Index;
enum { NONE = 0 };

typedef struct SideValue {
  Value *value;    /* as it was read; the same one in every place of a body that stands in several */
  Index producer;  /* the node that makes it */
  Index first_use; /* in Side.uses: nodes that read it */
  Index use_count;
  Index same;           /* the first value that is computed in the same way */
  Index twin;           /* the value of the other side that it is */
  bool is_constant;     /* computed of constants alone */
  bool alone;           /* of a constant: no other one has its contents */
  bool is_input;        /* of the whole model */
  bool is_output;       /* of the whole model or of a body */
  const Tensor *tensor; /* of an initializer or a Constant node */
  uint64_t content;     /* of a constant that was looked into, else 0 */
  uint64_t likeness;    /* the same for equal numbers in whatever type or order of axes; 0: too few to tell */
} SideValue;

typedef struct SideBody {
  Str name; /* of the attribute; of a function's body its own */
  const Graph *graph;
  Index *inputs, *outputs;
  uint32_t input_count, output_count;
  struct SideBody *next; /* of the same node */
} SideBody;

typedef enum Found {
  FOUND_NOT,
  FOUND_NAME,
  FOUND_STRUCTURE,
  FOUND_REGION,
} Found;

typedef struct SideNode {
  Node *node;
  Index *inputs, *outputs;
  SideBody *bodies;
  Str family;          /* the operator without what fusing and quantising put around its name */
  uint64_t attributes; /* their hash */
  Index twin;          /* the node of the other side */
  Found found;
  bool in_place;                /* a call whose body stands in its place: nothing reads or makes a value here */
  Index next_alike, next_loose; /* of the first side: further nodes with the same key */
} SideNode;

typedef struct Side {
  Context *context;
  Model *model;
  ARRAY(SideNode) nodes;   /* item 0 is not used */
  ARRAY(SideValue) values; /* likewise */
  Index *uses;
  SideBody main;
  ARRAY(SideBody *) functions; /* bodies that stand for themselves */
  Map value_names, node_names; /* name to Index, or to AMBIGUOUS */
} Side;

#define AMBIGUOUS UINT32_MAX

/* `other`: the model whose functions of the same name need not be put in place. */
Side *side_new(Model *model, const Model *other);

static inline SideNode *side_node(const Side *side, Index index) { return &side->nodes.items[index]; }
static inline SideValue *side_value(const Side *side, Index index) { return &side->values.items[index]; }
/* NONE where there is no such name or several things have it. */
Index side_value_named(const Side *side, Str name);
Index side_node_named(const Side *side, Str name);

/* Does the operator give what it was given, in another type, precision or order in memory? */
bool is_carrier(const SideNode *node);
bool is_constant_node(const SideNode *node);

/* Looks into constants. weights.c */
void side_read_constants(Side *side);

#endif
