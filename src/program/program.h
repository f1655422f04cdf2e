/* Program: what JAX traced, without Python: jaxprs of equations over typed variables.
 *
 * A jaxpr that JAX shares between two calls is one Jaxpr here too, unless the calls are of different modules; what
 * tells the calls apart is the site that lowering joins to each equation's own trace (see provenance/trace.h).
 */
#ifndef J2O_PROGRAM_PROGRAM_H
#define J2O_PROGRAM_PROGRAM_H

#include "base/array.h"
#include "base/context.h"
#include "provenance/trace.h"
#include "types/data_plan.h"
#include "types/tensor.h"

typedef struct Jaxpr Jaxpr;

/* What the elements stood for before legalisation (legalize/legalize.h). */
typedef enum VarForm { FORM_PLAIN, FORM_PAIRS, FORM_KEY } VarForm;

typedef struct Var {
  uint32_t id; /* unique in the program */
  Type type;
  VarForm form;
  const Tensor *literal;             /* the value when it is known: a literal or a closed-over constant; else NULL */
  const struct Equation *definition; /* the equation that gives it, or NULL */
  const struct Equation *user;       /* the equation that uses it first, or NULL */
  uint32_t use_count;                /* by equations and by the jaxpr's outputs */
} Var;

typedef enum ParamKind {
  PARAM_NONE,
  PARAM_BOOL,
  PARAM_INT,
  PARAM_FLOAT,
  PARAM_STRING,
  PARAM_DTYPE,
  PARAM_LIST,   /* tuple, list or set */
  PARAM_RECORD, /* named tuple, dataclass or dict: fields by name */
  PARAM_ENUM,   /* member name in text, class name in type_name, value in integer when it is one */
  PARAM_DIM,    /* a symbolic dimension */
  PARAM_JAXPR,
  PARAM_TENSOR,
  PARAM_OPAQUE, /* anything else: only the type's name is known */
} ParamKind;

typedef struct Param Param;
struct Param {
  ParamKind kind;
  Str name;      /* key in the equation's parameters or in the record, else NULL */
  Str type_name; /* of records, enums and opaque objects */
  union {
    int64_t integer; /* bool, int, enum */
    double real;
    Str text; /* string; enum member */
    DType dtype;
    Dim dim;
    Jaxpr *jaxpr;
    const Tensor *tensor;
    struct {
      Param *items;
      size_t count;
    } list; /* list and record */
  };
  Str text2; /* enum member name */
};

typedef struct Equation {
  Str primitive;
  uint32_t input_count, output_count, param_count;
  Var **inputs; /* each once per use */
  Var **outputs;
  Param *params;
  bool on_pairs;      /* an input or output is of FORM_PAIRS */
  bool has_effects;   /* does more than its results say: never dropped */
  const Trace *trace; /* its own frames, cut at the enclosing call as JAX cuts them; may be NULL */
  void *source;       /* what it was imported from, for a plugin of the user's; else NULL */
} Equation;

struct Jaxpr {
  Str name; /* of the traced function where known, else NULL */
  uint32_t input_count, const_count, output_count;
  Var **inputs;
  Var **consts; /* each with its literal set when closed; else further inputs, bound before the others */
  Var **outputs;
  Equation **equations;
  size_t equation_count;
  Equation **dropped; /* those that program_drop_unused took out */
  size_t dropped_count;
  const Site *lowered_at; /* the call that it was lowered for last: a mark of the books (lower/books.c) */
};

typedef struct Program {
  Context *context;
  Provenance *provenance;
  Jaxpr *main;
  Str name;          /* model name */
  Str *input_names;  /* one per main input; NULL entries get a default */
  Str *output_names; /* one per main output; NULL entries get a default */
  uint32_t var_count;
  bool is_text;           /* read from a text, which anybody may have written */
  bool has_complex;       /* a variable is complex, or the words of a key */
  bool has_keys;          /* a variable is a key of JAX's own generator */
  uint32_t most_operands; /* inputs and outputs of one equation; legalisation counts */
  const Trace *root;      /* the traced function's definition: for nodes that no equation made */
} Program;

/* Building. */
Program *program_new(Context *context, Provenance *provenance);
Var *program_var(Program *program, Type type);

/* Tells the variables of a finished jaxpr who defines and who uses them. */
void jaxpr_link(Jaxpr *jaxpr);

/* Reading parameters. param_find returns NULL when absent; the others fail with a clear message. */
const Param *param_find(const Equation *equation, const char *name);
const Param *param_field(const Param *record, const char *name); /* NULL when absent */
const Param *param_get(Context *context, const Equation *equation, const char *name);
int64_t param_int(Context *context, const Equation *equation, const char *name);
int64_t param_int_or(const Equation *equation, const char *name, int64_t otherwise);
bool param_bool_or(const Equation *equation, const char *name, bool otherwise);
Jaxpr *param_jaxpr(Context *context, const Equation *equation, const char *name);
/* A list of integers; fails on anything else. *count receives its length. */
const int64_t *param_ints(Context *context, const Equation *equation, const char *name, size_t *count);
const int64_t *param_list_ints(Context *context, const Param *list, size_t *count);
/* A list of integers and symbolic dimensions. */
const Dim *param_dims(Context *context, const Param *list, size_t *count);
/* Is this parameter the string, or the enum member, of that name (letter case ignored)? */
bool param_is(const Param *param, const char *name);

/* What stands between the marks of a function (onnx_function_begin, onnx_function_end) becomes one equation
 * "onnx_function" with a jaxpr of its own (functions.c), in nested jaxprs too. */
void program_outline_functions(Program *program);

/* Calls of one jaxpr for several modules get a copy each, whose equations know theirs (shared_bodies.c). */
void program_place_shared_bodies(Program *program);

/* Drop the equations whose results nobody reads (unused.c), in nested jaxprs too. */
void program_drop_unused(Program *program);

/* The definition of the traced function, and the user's frames that called to_onnx, outermost first. */
void program_set_frames(Program *program, Frame *root, Frame *const *entries, size_t count);

/* Text form (text_print.c, text_read.c). Tensors that are parameters, or large, go to the plan's file; without a plan
 * large ones are shown by their type alone. */
const char *program_print(Program *program);
void program_print_to(Builder *out, Program *program, DataPlan *data, bool shapes_only);
Program *program_parse(Context *context, Provenance *provenance, const char *text, size_t length);

/* Fails on what JAX cannot have traced (soundness.c): for programs that somebody else wrote down. */
void program_require_sound(const Program *program);

/* Where a text's tensors are that it does not hold itself. */
typedef struct ProgramData {
  const unsigned char *bytes; /* of the data file; NULL: there is none */
  size_t size;
  size_t placeholders; /* counts the tensors of which only the type is known: they get numbers that mean nothing */
} ProgramData;
/* From where the scanner stands to the end; data may be NULL: then every tensor must be in the text. */
struct Scanner;
Program *program_parse_rest(struct Scanner *scan, Provenance *provenance, ProgramData *data);

#endif
