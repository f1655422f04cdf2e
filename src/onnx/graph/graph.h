/* Graph: an ONNX model in memory. The words are ONNX's: Model, Graph, Function, Node, Value, Attribute, Tensor.
 *
 * A node is made by graph_node alone, which takes its origin. Every use of a value is on the value's use list, so
 * replacing a value costs its uses and nothing else. A node of a subgraph may use values of the graphs around it.
 */
#ifndef J2O_ONNX_GRAPH_GRAPH_H
#define J2O_ONNX_GRAPH_GRAPH_H

#include "base/array.h"
#include "onnx/facts/operators.h"
#include "program/program.h"
#include "provenance/trace.h"

typedef struct Node Node;
typedef struct Graph Graph;
typedef struct Value Value;
typedef struct Use Use;
typedef struct Model Model;
typedef struct Function Function;

typedef struct Metadata {
  Str key;
  Str value;
} Metadata;

typedef ARRAY(Metadata) MetadataList;

struct Use {
  Value *value; /* NULL: an optional input left out */
  Node *node;   /* the user; NULL when it is a graph's output */
  Use *next;    /* on the value's use list */
  Use **link;   /* what points to this use */
};

/* Who has the sites of a node or an initializer that is gone; both NULL: nobody. */
typedef struct Heir {
  Node *node;
  Value *value; /* an initializer */
} Heir;

typedef ARRAY(Heir) Heirs;

/* What walks over large graphs read stands first, in few lines of the cache; likewise in Node. */
struct Value {
  Use *uses;
  Node *producer;        /* NULL: graph input or initializer */
  Type type;             /* dtype DTYPE_NONE: unknown */
  const Tensor *tensor;  /* an initializer's data, else NULL */
  Graph *graph;          /* the graph it is defined in */
  void *scratch;         /* a pass's own, cleared by nobody: use it only after setting it */
  Str name;              /* unique in the model once names are given (names.c); NULL before, unless fixed */
  uint32_t output_index; /* which output of its producer */
  bool name_fixed;       /* a graph input, output or parameter: its name is part of the interface */
  const Origin *origin;  /* of a constant that a pass folded; else NULL */
  const Origin *literal; /* of an initializer that the program holds: the equation that used it first; else NULL */
  Heir heir;             /* of an initializer that nothing uses any more */
  Heirs *users;          /* who has the sites of nodes that used it and are gone; NULL: none while it was shared */
  bool is_merged;        /* an initializer that stands for equal ones, or stood: users are those that it had before */
  MetadataList metadata; /* of an initializer that was read from a file */
};

typedef enum AttributeKind {
  ATTRIBUTE_INT,
  ATTRIBUTE_FLOAT,
  ATTRIBUTE_STRING,
  ATTRIBUTE_TENSOR,
  ATTRIBUTE_GRAPH,
  ATTRIBUTE_INTS,
  ATTRIBUTE_FLOATS,
  ATTRIBUTE_STRINGS,
  ATTRIBUTE_OTHER,
} AttributeKind;

typedef struct Attribute {
  Str name;
  AttributeKind kind;
  size_t count; /* of the list kinds; of a string: its length */
  union {
    int64_t integer;
    float real;
    const char *string;
    const Tensor *tensor;
    Graph *graph;
    const int64_t *integers;
    const float *reals;
    const Str *strings;
  };
  Str reference; /* ref_attr_name inside a function, or NULL */
} Attribute;

struct Node {
  Node *next, *previous;
  Op op;        /* of ONNX's own domain; OP_NONE: any other, which has only a name */
  bool is_gone; /* removed */
  uint32_t input_count, output_count;
  Use *inputs;
  Value **outputs; /* NULL entries: optional outputs left out */
  ARRAY(Attribute) attributes;
  Graph *graph;
  const Origin *origin; /* set for every node that we made */
  void *scratch;        /* a pass's own, as in Value */
  Str op_type, domain;  /* the operator's name; domain "" is ONNX's own */
  Str name;
  Function *callee;      /* the model's function that a node we made calls, else NULL */
  MetadataList metadata; /* of nodes that were read from a file */
  Heir heir;             /* of a node that was removed, or lost its last reader with one */
  const Heirs *others;   /* of one that lost its last reader: those of the readers before; or NULL */
};

struct Graph {
  Model *model;
  Str name;
  Node *owner; /* the node whose attribute holds this subgraph; NULL for a main graph or function body */
  Node *first, *last;
  ARRAY(Value *) inputs;
  ARRAY(Use *) outputs;
  ARRAY(Value *) initializers;
  size_t node_count;
};

struct Function {
  Str name, domain;
  Graph *body; /* its name is the function's without the number that tells definitions apart */
  ARRAY(Str) attributes;
  MetadataList metadata;
  int64_t opset;        /* of ONNX's own domain where a file gives the function one of its own; else 0 */
  ARRAY(Graph *) twins; /* bodies that were the same, made for other calls that share this definition */
};

typedef struct OpsetImport {
  Str domain;
  int64_t version;
} OpsetImport;

/* What went, in order: a node, or an initializer that was computed at export. */
typedef struct Removal {
  Node *node;
  Value *value;
  const char *pass;
} Removal;

struct Model {
  Context *context;
  Provenance *provenance; /* NULL for a model read from a file */
  Graph *graph;
  int64_t ir_version;
  int64_t opset;                     /* of ONNX's own domain */
  const struct Node *opset_asked_by; /* the node that needs it, where it was chosen for the nodes; or NULL */
  Str producer_name, producer_version;
  ARRAY(OpsetImport) opsets;
  ARRAY(Function *) functions;
  MetadataList metadata;
  const struct Target *target; /* what it is made for (target/target.h); NULL: the newest ONNX Runtime */
  bool is_trial;               /* made to see what passes make of a few nodes */
  Map failed_trials;           /* loops that such a model showed to become nothing else */
  bool rounds_products;        /* the runtime may round what quantised weights are multiplied by */
  Str no_domain;               /* "" */
  Str op_types[OP_COUNT];      /* names of operators once they were needed */
  bool made[OP_COUNT];         /* operators of which a node was ever made: without one no pattern matches */
  size_t step_sizes;           /* symbols for numbers of steps that passes made */
  size_t graph_count;          /* ever made: with one, no node has a graph of its own */
  Pool nodes, values, uses;    /* each kind by itself, so that a walk finds the next one where it is expected */
  const char *pass;            /* that is running, or NULL */
  ARRAY(Removal) removals;     /* by passes, for the ledger */
  Map stored;                  /* of a model read from a file: where tensors without plain data have theirs (read.h) */
  Map messages;                /* likewise: nodes, initializers and functions by where their message begins */
};

Model *model_new(Context *context, Provenance *provenance, int64_t opset);
Graph *graph_new(Model *model, Str name);

/* Makes a node before `before`, or at the end when that is NULL. The only way to make one. */
Node *graph_node(Graph *graph, const Origin *origin, Op op, Value *const *inputs, size_t input_count,
                 const Type *outputs, size_t output_count, Node *before);
/* The same for an operator by its name: of another domain, or as a file names it. inputs and outputs may be NULL: none
 * is linked yet, no type is known yet. */
Node *graph_named_node(Graph *graph, const Origin *origin, const char *op_type, const char *domain,
                       Value *const *inputs, size_t input_count, const Type *outputs, size_t output_count,
                       Node *before);
Value *graph_input(Graph *graph, Type type, Str name);
Value *graph_initializer(Graph *graph, const Tensor *tensor);
void graph_output(Graph *graph, Value *value);

void use_set(Use *use, Value *value);               /* moves a use to another value (or NULL) */
void value_replace(Value *old, Value *replacement); /* every use of old becomes a use of replacement */
bool value_is_output(const Value *value);           /* of any graph */
size_t value_use_count(const Value *value);
static inline bool value_has_one_use(const Value *value) { return value->uses && !value->uses->next; }
/* The node that has its only use; NULL where there are several, or it is an output. */
static inline Node *value_only_user(const Value *value) { return value_has_one_use(value) ? value->uses->node : NULL; }
/* Its outputs must be unused. What nothing uses then has the heirs of this node and of those that used it before. */
void node_remove(Node *node);
/* Before an initializer takes over the uses of an equal one, of both: what one of them says is no trace of what used
 * the other. */
void value_keep_users(Value *constant);
/* An initializer that nothing uses any more: the ledger asks for its heir. */
void value_forget(Value *constant);
void node_move(Node *node, Node *before);          /* into before's graph; within its own to the end when NULL */
Value *node_input(const Node *node, size_t index); /* NULL past the end */
/* An optional output, made where it was left out. */
Value *node_output(Node *node, uint32_t index, Type type);
/* Optional outputs that nothing uses: those at the end go, the others are left out. */
void node_leave_out_unused(Node *node);

/* Those of another node, which may be gone, for one that has none. */
void node_copy_attributes(Node *copy, const Node *node);
/* Attributes replace one of the same name. */
void node_set_int(Node *node, const char *name, int64_t value);
void node_set_float(Node *node, const char *name, float value);
void node_set_string(Node *node, const char *name, const char *value);
void node_set_ints(Node *node, const char *name, const int64_t *values, size_t count);
void node_set_floats(Node *node, const char *name, const float *values, size_t count);
void node_set_strings(Node *node, const char *name, const Str *values, size_t count);
void node_set_graph(Node *node, const char *name, Graph *graph);
void node_set_tensor(Node *node, const char *name, const Tensor *tensor);
const Attribute *node_attribute(const Node *node, const char *name); /* NULL when absent */
int64_t node_int_or(const Node *node, const char *name, int64_t otherwise);
int64_t node_int_at(const Node *node, const char *name, size_t index); /* of a list; 0 where it has no such item */

/* Who wanted the rounding of a Narrow (composites.inc); 0: nobody. */
enum { NARROW_ASKED = 1, NARROW_KEPT = 2 };

static inline bool node_is(const Node *node, Op op) { return node->op == op; }
static inline bool node_has(const Node *node, uint32_t traits) { return op_has(node->op, traits); }

/* Does it only put elements in other places, or call their axes otherwise? */
static inline bool node_moves_all(const Node *node) { return node_has(node, RENAMES) || node_is(node, OP_Transpose); }
bool node_swaps_last_axes(const Node *transpose);  /* and leaves the others where they are */
bool node_moves_first_axis(const Node *transpose); /* to the last place or the one before it, the others in order */
bool node_is_used(const Node *node);               /* one of its results is */
bool node_has_subgraph(const Node *node);          /* also of operators that are not ours to know */

#define FOR_EACH_NODE(node, graph) for (Node *node = (graph)->first; node; node = node->next)

/* Calls visit on the graph and every subgraph, inner ones first. */
void graph_each(Graph *graph, void (*visit)(Graph *graph, void *data), void *data);
/* Calls visit on the main graph, every subgraph and every function body, inner ones first. */
void model_each_graph(Model *model, void (*visit)(Graph *graph, void *data), void *data);

/* The node whose body is nested most deeply, the main graph's and functions' own nodes having bodies of depth 1. NULL:
 * no node has a body. depth.c */
const Node *model_deepest_node(const Model *model, int *depth);

/* Gives every node and every value a readable, unique name. names.c */
void model_name(Model *model);
/* The same for those that have none yet; the others keep theirs. */
void model_name_rest(Model *model);
/* What the names of constants that are no parameters begin with. */
#define CONSTANT_PREFIX "const_"

#endif
