/* Lowering: a program becomes a graph, one plugin per primitive.
 *
 * A plugin is a row of a family's table (elementwise.c, reductions.c, …): primitive, function, row data. Its function
 * reads the current equation through input/output_type/param_*, makes nodes with EMIT, and binds every output.
 * Every node gets the equation's joined site and the C line that emitted it; nothing else is needed for provenance.
 */
#ifndef J2O_LOWER_LOWER_H
#define J2O_LOWER_LOWER_H

#include "onnx/graph/graph.h"
#include "program/program.h"
#include "target/target.h"

typedef struct Lowering Lowering;
typedef struct Plugin Plugin;
typedef struct ComplexProgram ComplexProgram;

typedef void LowerFunction(Lowering *l);

struct Plugin {
  const char *primitive;
  LowerFunction *lower;
  const char *function; /* the C name of lower: nodes it emits itself are attributed to the plugin */
  const char *file;     /* where this row stands */
  int line;
  Op op; /* the row's own data: an operator, */
  int flags;
  const char *calls;  /* the parameter whose jaxpr is lowered, others may hold anything; NULL: all are */
  const char *reason; /* of what is refused or dropped; else NULL */
};

/* Rows of primitives that no model can hold, and why (refusals.c). */
enum { REFUSED = 1 << 29, DROPPED = 1 << 28 };

/* Rows for real and for complex numbers alike; others have a second row for complex ones (complex.h), or none. */
enum { TAKES_COMPLEX = 1 << 27 };

/* Rows of the user's plugins (custom.c): what their parameters hold is their own affair. */
enum { CUSTOM = 1 << 26 };

/* Rows that stand back where the equation comes with an expansion. */
enum { EXPANDABLE = 1 << 25 };

#define PLUGIN(primitive, function, ...) {primitive, function, #function, __FILE__, __LINE__, __VA_ARGS__}

/* A place in our C source. */
typedef struct Here {
  const char *file, *function;
  int line;
} Here;
#define HERE ((Here){__FILE__, __func__, __LINE__})

/* One primitive that cannot be lowered, and why. */
typedef struct Unsupported {
  Str primitive;
  const char *reason;
  const Site *site;
} Unsupported;

typedef ARRAY(Unsupported) UnsupportedList;

/* Primitives whose plugins are the user's. lower emits nodes with emit_custom and binds every output, as others do. */
typedef struct CustomPlugins {
  const Str *primitives;
  size_t count;
  void (*lower)(Lowering *l, void *data);
  void *data;
} CustomPlugins;

typedef struct LowerOptions {
  int64_t opset;
  const Target *target; /* NULL: the newest ONNX Runtime */
  CustomPlugins custom;
  bool sequential_bits;                 /* JAX makes random bits as with jax_threefry_partitionable=False */
  bool unroll_scans;                    /* those over stacked weights, which become one weight for each step */
  const bool *input_nchw, *output_nchw; /* one per main input/output, or NULL: no input/output is */
  bool drop_checks;                     /* checks at run time are left out; else they give NaN */
  bool drop_nan_guards;                 /* what only makes a NaN come out as JAX has it is left out */
  bool round_products;                  /* the runtime may round what quantised weights are multiplied by */
  bool list_traced;                     /* the ledger gets a list of all equations, for who checks it */
} LowerOptions;

/* What a function takes besides its arguments: a parameter, or a size that none of its arguments tells. */
typedef struct Capture {
  const Tensor *tensor; /* NULL: the size */
  Dim dim;
} Capture;

/* The main graph or a function's body. Nothing in it refers to a value outside. */
typedef struct Scope {
  Graph *graph;
  bool is_function;
  Map tensors;             /* tensor data address -> its value: an initializer, or a function's input */
  Map constants;           /* content hash -> the same, for small constants */
  Map dimensions;          /* DimExpr -> int64[1] value */
  Map symbols;             /* symbol -> SymbolSource */
  Map orders;              /* pivots of lu -> the order of rows that they make */
  Node *last_dimension;    /* dimension arithmetic stands at the head of the graph, up to here */
  ARRAY(Capture) captures; /* of a function: its last inputs, in order */
} Scope;

struct Lowering {
  Context *context;
  Program *program;
  Provenance *provenance;
  Model *model;
  const LowerOptions *options;
  Graph *graph;              /* where nodes go */
  Scope *scope;              /* the main graph or function body that it belongs to */
  Value **values;            /* by Var id: what the variable is bound to in the current scope */
  const Equation *equation;  /* of it, being lowered */
  const Plugin *plugin;      /* lowering it */
  const Site *site;          /* its joined site */
  const Site *caller;        /* the site of the enclosing call, or NULL at the top */
  const LowerFrame *calls;   /* the plugins of the enclosing calls */
  size_t own_nodes;          /* nodes, and constants that stand for a result, that the equation has got so far */
  const Jaxpr *called;       /* the last that was lowered for it, or NULL */
  Map emitters;              /* (function, line, plugin) -> Emitter */
  Map functions;             /* (name, domain) -> how many definitions go by it */
  Map shared;                /* (hash, domain) -> the Function that calls with this body share */
  size_t data_sizes;         /* dimensions made by data_dimension so far */
  Map plugins;               /* primitive -> Plugin */
  UnsupportedList *problems; /* what unsupported() and the scan before lowering found */
  UnsupportedList *notices;  /* what was left out of the model */
  ComplexProgram *complex;   /* NULL where no value of the program is complex (complex.h) */
};

/* Where a plugin meets its equation. */
Value *input(Lowering *l, size_t index);                /* literals become initializers */
const Tensor *input_literal(Lowering *l, size_t index); /* the value when known at export, else NULL */
Type input_type(Lowering *l, size_t index);
Type output_type(Lowering *l, size_t index);
void bind(Lowering *l, size_t index, Value *value); /* output index of the equation is value */

/* What lowering relies on in the equation at hand. JAX keeps to it; a text that somebody wrote may not, and is refused:
 * only for what JAX traced it is a fault of ours. */
#define rely_on(l, condition) ((condition) ? (void)0 : refuse_equation((l), __FILE__, __LINE__, #condition))
_Noreturn void refuse_equation(const Lowering *l, const char *file, int line, const char *condition);

/* Making nodes. EMIT gives the only output; EMIT_NODE the node, for several outputs. */
Value *emit_value(Lowering *l, Here here, Op op, Type type, Value *const *inputs, size_t count);
Node *emit_node(Lowering *l, Here here, Op op, const Type *types, size_t type_count, Value *const *inputs,
                size_t count);
#define VALUES(...) ((Value *[]){__VA_ARGS__})
#define COUNT_OF(...) (sizeof(VALUES(__VA_ARGS__)) / sizeof(Value *))
#define EMIT(l, op, type, ...) emit_value((l), HERE, (op), (type), VALUES(__VA_ARGS__), COUNT_OF(__VA_ARGS__))
#define EMIT_NODE(l, op, types, type_count, ...) \
  emit_node((l), HERE, (op), (types), (type_count), VALUES(__VA_ARGS__), COUNT_OF(__VA_ARGS__))
/* As EMIT, attributed to the line of the plugin's row: for functions that serve many rows. */
#define ROW_HERE(l) ((Here){(l)->plugin->file, (l)->plugin->function, (l)->plugin->line})
#define EMIT_ROW(l, op, type, ...) \
  emit_value((l), ROW_HERE(l), (op), (type), VALUES(__VA_ARGS__), COUNT_OF(__VA_ARGS__))

/* As EMIT, for an operator that ONNX Runtime has no kernel for at this element type: inputs of the first input's
 * element type are cast to the type given by compute_dtype, and the result is cast back to type's. */
Value *emit_around(Lowering *l, Here here, Op op, Type type, Value *const *inputs, size_t count);
#define EMIT_AROUND(l, op, type, ...) emit_around((l), HERE, (op), (type), VALUES(__VA_ARGS__), COUNT_OF(__VA_ARGS__))
#define EMIT_ROW_AROUND(l, op, type, ...) \
  emit_around((l), ROW_HERE(l), (op), (type), VALUES(__VA_ARGS__), COUNT_OF(__VA_ARGS__))
/* The element type to compute op in: dtype itself where it runs, else the narrowest that holds it and runs (for
 * uint64: int64, the same bits); DTYPE_NONE when there is none. */
DType compute_dtype(Lowering *l, Op op, DType dtype);

/* Constants (constants.c): equal ones are one initializer of the scope. In a function, parameters are inputs. */
Value *constant(Lowering *l, const Tensor *tensor);
Value *constant_scalar(Lowering *l, DType dtype, double value);         /* rank 0 */
Value *constant_integer(Lowering *l, DType dtype, int64_t value);       /* rank 0; any type, exact for integers */
Value *constant_ints(Lowering *l, const int64_t *values, size_t count); /* int64[count] */
Value *constant_like(Lowering *l, Type type, double value);             /* rank 0 of type's dtype */
/* A scalar in another element type; NULL when it is none, or a parameter, or the cast is not exact or rounded once. */
Value *constant_cast(Lowering *l, const Tensor *tensor, DType to);
const Tensor *tensor_new(Lowering *l, DType dtype, const int64_t *dims, uint32_t rank, const void *data, size_t size);
const Tensor *tensor_scalar(Lowering *l, DType dtype, double value);
/* The value as a double / int64 when it is a constant scalar (or all elements equal). */
bool literal_double(const Tensor *tensor, double *value);
bool literal_int(const Tensor *tensor, int64_t *value);

/* Is there something to work around? What concerns only NaN is left where no guards are wanted. */
static inline bool target_quirk(const Lowering *l, Quirk quirk) {
  return target_has(l->options->target, quirk) && !(l->options->drop_nan_guards && quirk_concerns_nan(quirk));
}

/* Dimensions (sizes.c): the one way to get a size at run time. */
Value *dimension_value(Lowering *l, Dim dim);                   /* int64[1] */
Value *dimension_scalar(Lowering *l, Dim dim, DType dtype);     /* rank 0 */
Value *shape_value(Lowering *l, const Dim *dims, size_t count); /* int64[count] */
Dim data_dimension(Lowering *l); /* a size that depends on the data: a new symbol, known only to the value it is of */

/* Shapes (shapes.c): nothing is emitted where nothing changes. */
bool is_empty(Type type);                                     /* known at export to have no element */
bool is_positive(Dim dim);                                    /* known at export to be at least one */
Type type_without_axis(Lowering *l, Type type, int64_t axis); /* of one element along the axis */
Value *reshape_to(Lowering *l, Value *value, const Dim *dims, size_t rank);
Value *expand_to(Lowering *l, Value *value, const Dim *dims, size_t rank); /* numpy broadcasting */
Value *transpose_by(Lowering *l, Value *value, const int64_t *permutation);
Value *unsqueeze_at(Lowering *l, Value *value, const int64_t *axes, size_t count); /* axes of the result */
Value *squeeze_at(Lowering *l, Value *value, const int64_t *axes, size_t count);
/* value[starts:limits:steps] along axes; steps may be NULL (all 1). Sizes of the result are given by type. */
Value *slice_at(Lowering *l, Value *value, Type type, const Dim *starts, const Dim *limits, const int64_t *steps,
                const int64_t *axes, size_t count);
Value *concat_at(Lowering *l, Value *const *values, size_t count, int64_t axis, Type type);
Value *cast_to(Lowering *l, Value *value, DType dtype); /* ONNX Cast; nothing when the type is the same */
/* The same for a result that was computed in a wider type than the program's: passes may leave out the rounding. */
Value *narrow_to(Lowering *l, Value *value, DType dtype);
/* A reducing operator over axes, which are dropped; cast around types it has no kernel for (reductions.c). */
Value *reduce_along(Lowering *l, Here here, Op op, Value *value, const int64_t *axes, size_t count);
/* As JAX reduces: NaN stays, integers wrap around, of nothing the neutral element. The nodes are the row's. */
Value *reduce_by(Lowering *l, Op op, Value *value, const int64_t *axes, size_t count);
#define EMIT_REDUCED(l, op, value, axes, count) reduce_along((l), HERE, (op), (value), (axes), (count))
/* ReduceSum or ReduceProd of integers, which wrap around as in JAX. */
Value *reduce_integers(Lowering *l, Op op, Value *value, const int64_t *axes, size_t count);
/* Mul, Max or Min of all elements along an axis of any size, in order; the axis is dropped (cumulative.c). */
Value *fold_by_scan(Lowering *l, Op op, Value *value, int64_t axis);
const Tensor *reduction_identity(Lowering *l, Op op, DType dtype); /* of ReduceSum, -Prod, -Max and -Min */
/* The same for bits: and as ReduceMin, or as ReduceMax, xor as ReduceSum. */
Value *reduce_logical_by(Lowering *l, Op op, Value *value, const int64_t *axes, size_t count);
const Tensor *logical_identity(Lowering *l, Op op, DType dtype);
Value *filled(Lowering *l, Type type, const Tensor *scalar); /* every element is the scalar (shape_primitives.c) */

/* As emit_node, for a function or another operator that is not ONNX's own. */
Node *emit_foreign(Lowering *l, Here here, const char *op_type, const char *domain, const Type *types,
                   size_t type_count, Value *const *inputs, size_t count);

/* The model uses operators of this domain; fails when it uses another version of them. */
void import_domain(Lowering *l, Str domain, int64_t version);

/* The user's plugins (custom.c). Frames are the plugin's own, outermost first, at least one. */
typedef struct PluginFrame {
  Str file, function;
  int line;
} PluginFrame;
void register_custom_plugins(Lowering *l);
Node *emit_custom(Lowering *l, const PluginFrame *frames, size_t frame_count, Str op, Str domain, const Type *types,
                  size_t type_count, Value *const *inputs, size_t count);

/* NULL when there is no lowering for it. */
const Plugin *plugin_for(Lowering *l, const Equation *equation);
const Site *equation_site(Lowering *l, const Equation *equation, const Site *caller);

/* Calls: lowers a jaxpr in place of the current equation's call. Frames of the call are joined to its equations. */
void lower_call(Lowering *l, Here here, const Jaxpr *jaxpr, Value *const *arguments, Value **results);
/* As lower_call, for equations that stand in the caller's own jaxpr, so that their traces are whole. */
void lower_region(Lowering *l, Here here, const Jaxpr *jaxpr, Value *const *arguments, Value **results);
/* A frame for the stack of lowering calls: the current plugin, at that line. */
const LowerFrame *lower_frame(Lowering *l, Here here);
/* Subgraphs for a node's attribute (lower_call between begin and end puts a body there). Nodes of a subgraph use outer
 * values directly; its own inputs are made with graph_input(l->graph, type, NULL). begin gives the outer graph, which
 * end goes back to; end gives the finished subgraph. */
Graph *subgraph_begin(Lowering *l, const char *name);
Graph *subgraph_end(Lowering *l, Graph *outer);
/* The next output. A subgraph must produce each of its outputs itself and only once: others get an Identity. */
void subgraph_output(Lowering *l, Value *value);

/* Which entry of a list of platforms a model is made for; -1: none (cond.c). */
int64_t platform_choice(const Param *platforms);

/* Stops with a message that names the primitive and the user's line. */
_Noreturn void unsupported(Lowering *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Leaves something out of the model, and has the user told. */
void notice(Lowering *l, const char *reason);

/* The whole stage. Fails with every unsupported primitive of the program, listed in *problems. What it left out is in
 * *notices. */
Model *lower_program(Program *program, const LowerOptions *options, UnsupportedList *problems,
                     UnsupportedList *notices);

/* Calls visit with the row of every primitive. */
void each_plugin(void (*visit)(const Plugin *plugin, void *data), void *data);
/* Lowers an equation that has no row, but a jaxpr that says the same: its parameter "expansion" (calls.c). */
extern const Plugin expansion_plugin;

/* Families (each file ends with its table, closed by a row without a primitive). */
extern const Plugin eigh_plugins[], svd_plugins[], hessenberg_plugins[], schur_plugins[], eig_plugins[];
extern const Plugin function_plugins[];
extern const Plugin call_plugins[], collective_plugins[], elementwise_plugins[], shape_plugins[], reduction_plugins[],
    dot_plugins[], scan_plugins[], while_plugins[], cond_plugins[], runtime_check_plugins[], gather_plugins[],
    scatter_plugins[], dynamic_slice_plugins[], sort_plugins[], convolution_plugins[], window_plugins[],
    convert_plugins[], integer_plugins[], special_plugins[], cumulative_plugins[], padding_plugins[], bit_plugins[],
    random_plugins[], refusal_plugins[], reduce_plugins[], gamma_plugins[], cholesky_plugins[], triangular_plugins[],
    householder_plugins[], pivoted_qr_plugins[], lu_plugins[], tridiagonal_plugins[], complex_plugins[], fft_plugins[];

#endif
