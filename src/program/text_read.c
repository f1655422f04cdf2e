/* Reading the text form of a program (text_print.c shows it). White space and line ends separate and mean nothing
 * else; a # outside of quotes starts a comment. Errors name the line and the column. */
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/scanner.h"
#include "program/program.h"
#include "types/numbers.h"

enum { MAX_PARAM_DEPTH = 64 };

typedef struct Parser {
  Scanner *scan;
  Context *context;
  Program *program;
  Map jaxprs;    /* by name */
  Map variables; /* of the jaxpr being read, by name */
  ProgramData *data;
  Map tensors; /* of the data file, by their offset plus one */
  Map modules; /* (path, class) to Module */
} Parser;

typedef ARRAY(Str) Names;
typedef ARRAY(Var *) Vars;
typedef ARRAY(Param) Params;

/* ---- names and types ---- */

/* A name, bare or in quotes; NULL for a dash. */
static Str word(Parser *parser, const char *what) {
  if (scan_accept(parser->scan, '-')) return NULL;
  return scan_sees(parser->scan, '"') ? scan_quoted(parser->scan, what) : scan_word(parser->scan, what);
}

static DType dtype(Parser *parser) {
  scan_space(parser->scan);
  const char *start = parser->scan->at;
  Str name = scan_word(parser->scan, "an element type");
  DType type = dtype_from_name(name);
  if (type == DTYPE_NONE && strcmp(name, "none") != 0) scan_fail(parser->scan, start, "unknown element type");
  return type;
}

/* Up to a comma or a closing bracket that is not inside of parentheses. */
static Dim dimension(Parser *parser) {
  scan_space(parser->scan);
  const char *start = parser->scan->at, *stop = start;
  for (int open = 0; stop < parser->scan->end && *stop != '\n'; stop++) {
    if (open == 0 && (*stop == ',' || *stop == ']' || *stop == ')')) break;
    open += (*stop == '(') - (*stop == ')');
  }
  Dim dim;
  if (!dim_parse(parser->context, start, (size_t)(stop - start), &dim))
    scan_fail(parser->scan, start, "not a dimension");
  parser->scan->at = stop;
  return dim;
}

static Type type(Parser *parser) {
  DType element = dtype(parser);
  Dim dims[MAX_RANK];
  uint32_t rank = 0;
  scan_expect(parser->scan, '[');
  if (!scan_accept(parser->scan, ']')) {
    do {
      if (rank == MAX_RANK) scan_fail(parser->scan, parser->scan->at, "too many dimensions");
      const char *start = parser->scan->at;
      Dim size = dimension(parser);
      if (dim_is_constant(size) && size.constant < 0) scan_fail(parser->scan, start, "a size below zero");
      dims[rank++] = size;
    } while (scan_accept(parser->scan, ','));
    scan_expect(parser->scan, ']');
  }
  return type_make(parser->context, element, dims, rank);
}

/* ---- tensors ---- */

static void store(unsigned char *bytes, uint64_t value, size_t width) {
  for (size_t i = 0; i < width; i++) bytes[i] = (unsigned char)(value >> (8 * i));
}

static void element_real(Parser *parser, bool single, unsigned char *bytes) {
  if (single) memcpy(bytes, &(float){scan_float(parser->scan)}, sizeof(float));
  else memcpy(bytes, &(double){scan_double(parser->scan)}, sizeof(double));
}

static void element(Parser *parser, DType type, unsigned char *bytes) {
  unsigned bits = dtype_bits(type);
  size_t width = bits / 8;
  if (dtype_kind(type) == KIND_COMPLEX) {
    DType part = dtype_part(type);
    scan_expect(parser->scan, '(');
    element(parser, part, bytes);
    scan_expect(parser->scan, ',');
    element(parser, part, bytes + width / 2);
    scan_expect(parser->scan, ')');
    return;
  }
  scan_space(parser->scan);
  bool is_bits = parser->scan->end - parser->scan->at > 2 && parser->scan->at[0] == '0' && parser->scan->at[1] == 'x';
  if (is_bits) store(bytes, scan_bits(parser->scan, bits), width);
  else if (type == DTYPE_BOOL && scan_accept_word(parser->scan, "True")) bytes[0] = 1;
  else if (type == DTYPE_BOOL && scan_accept_word(parser->scan, "False")) bytes[0] = 0;
  else if (dtype_is_integer(type) && width)
    store(bytes, scan_sized_integer(parser->scan, bits, dtype_is_unsigned(type)), width);
  else if (type == DTYPE_FLOAT32 || type == DTYPE_FLOAT64) element_real(parser, type == DTYPE_FLOAT32, bytes);
  else scan_fail_expected(parser->scan, "an element of the tensor's type, or its bits as 0x…");
}

/* Past the elements to the type behind them, which says how to read them. */
static void skip_elements(Parser *parser) {
  const char *start = parser->scan->at;
  const char *closing = *parser->scan->at == '{' ? "}" : *parser->scan->at == '(' ? ")" : ":";
  while (parser->scan->at < parser->scan->end && *parser->scan->at != *closing) parser->scan->at++;
  if (parser->scan->at == parser->scan->end) scan_fail(parser->scan, start, "unterminated tensor");
  if (*closing != ':') parser->scan->at++;
}

static void *tensor_elements(Parser *parser, Type type, const char *start, size_t *size) {
  const char *after = parser->scan->at;
  int64_t count;
  size_t width = dtype_bits(type.dtype) / 8;
  /* Every element takes a character at least, so the text bounds what is allocated. */
  if (!width || !type_count(type, &count) || count < 0 || count > after - start) {
    scan_fail(parser->scan, start, "elements that do not match the tensor's type");
  }
  unsigned char *bytes = arena_alloc_array(&parser->context->arena, (size_t)count, width);
  parser->scan->at = start;
  bool braces = scan_accept(parser->scan, '{');
  if (braces != (type.rank > 0)) {
    scan_fail(parser->scan, start, "braces enclose the elements of a tensor, not of a scalar");
  }
  for (int64_t i = 0; i < count; i++) {
    if (i) scan_expect(parser->scan, ',');
    element(parser, type.dtype, bytes + (size_t)i * width);
  }
  if (braces) scan_expect(parser->scan, '}');
  if (!scan_sees(parser->scan, ':'))
    scan_fail(parser->scan, parser->scan->at, "elements that do not match the tensor's type");
  parser->scan->at = after;
  *size = (size_t)count * width;
  return bytes;
}

static void *tensor_bytes(Parser *parser, size_t *size) {
  scan_expect(parser->scan, '(');
  const char *close = parser->scan->at;
  while (close < parser->scan->end && hex_digit(*close) >= 0) close++;
  *size = (size_t)(close - parser->scan->at) / 2;
  unsigned char *bytes = arena_alloc(&parser->context->arena, *size);
  for (size_t i = 0; i < *size; i++, parser->scan->at += 2) {
    bytes[i] = (unsigned char)(hex_digit(parser->scan->at[0]) * 16 + hex_digit(parser->scan->at[1]));
  }
  scan_expect(parser->scan, ')');
  return bytes;
}

/* Bytes that the type asks for. */
static size_t expected_size(Parser *parser, Type type, const char *start) {
  int64_t count, bytes, width = dtype_bits(type.dtype) / 8;
  if (type.dtype == DTYPE_KEY) width = 8;
  if (type.dtype == DTYPE_KEY_WORDS) width = 4;
  if (type.dtype == DTYPE_FLOAT0 || type.dtype == DTYPE_NONE) width = 1;
  bool counted = type_count(type, &count) && count >= 0 && !__builtin_mul_overflow(count, width ? width : 1, &bytes);
  if (!counted) scan_fail(parser->scan, start, "a tensor of unknown size");
  return width ? (size_t)bytes : dtype_bytes(type.dtype, (size_t)count);
}

/* Small numbers that depend on nothing but their place, so that a graph is made as with the true ones. */
static void *placeholder(Parser *parser, DType dtype, size_t size) {
  unsigned char *bytes = arena_alloc(&parser->context->arena, size);
  DType part = dtype_part(dtype);
  size_t width = dtype_bits(part) / 8;
  for (size_t i = 0; width && i < size / width; i++) {
    double fraction = (double)((uint32_t)(i * 2654435761u) >> 16) / 65536;
    double value = part == DTYPE_BOOL ? (double)(i & 1) : dtype_is_float(part) ? fraction - 0.5 : floor(fraction * 8);
    store(bytes + i * width, number_encode(part, value), width);
  }
  return bytes;
}

/* Behind "data": (offset, size) or (). Tensors at one place are one. */
static const Tensor *tensor_elsewhere(Parser *parser, Tensor *result, const char *start, bool has_place,
                                      uint64_t offset, uint64_t size) {
  ProgramData *data = parser->data;
  if (!data) scan_fail(parser->scan, start, "a tensor whose data is not in the text");
  if (!has_place) {
    result->data = placeholder(parser, result->dtype, result->size);
    data->placeholders++;
    return result;
  }
  if (size != result->size) scan_fail(parser->scan, start, "data that does not match the tensor's type");
  if (offset > data->size || size > data->size - offset) {
    scan_fail(parser->scan, start,
              data->bytes ? "data beyond the end of the data file"
                          : "data in a missing file, which must be next to this one");
  }
  result->data = data->bytes + offset;
  void **slot = map_slot(parser->context, &parser->tensors, offset + 1, 0);
  const Tensor *known = *slot;
  if (!known) *slot = result;
  else if (known->dtype != result->dtype || known->size != result->size || known->rank != result->rank ||
           !same_bytes(known->dims, result->dims, known->rank * sizeof *known->dims)) {
    scan_fail(parser->scan, start, "two different tensors at the same offset");
  }
  return known ? known : result;
}

static const Tensor *tensor(Parser *parser) {
  Scanner *scan = parser->scan;
  Arena *arena = &parser->context->arena;
  Tensor *result = arena_new(arena, Tensor);
  scan_space(scan);
  const char *start = scan->at;
  uint64_t offset = 0, size = 0;
  if (scan->at == scan->end) scan_fail_expected(scan, "a tensor");
  bool elsewhere = scan_accept_word(scan, "data"), has_place = false;
  bool as_bytes = !elsewhere && scan_accept_word(scan, "hex");
  if (elsewhere) {
    scan_expect(scan, '(');
    has_place = !scan_sees(scan, ')');
    if (has_place) {
      offset = scan_sized_integer(scan, 64, true);
      scan_expect(scan, ',');
      size = scan_sized_integer(scan, 64, true);
    }
    scan_expect(scan, ')');
  } else if (as_bytes) {
    result->data = tensor_bytes(parser, &result->size);
  } else {
    skip_elements(parser);
  }
  scan_expect(scan, ':');
  Type shape = type(parser);
  if (!as_bytes && !elsewhere) result->data = tensor_elements(parser, shape, start, &result->size);
  result->dtype = shape.dtype;
  result->rank = shape.rank;
  int64_t *dims = arena_new_array(arena, shape.rank, int64_t);
  for (uint32_t i = 0; i < shape.rank; i++) {
    if (!dim_is_constant(shape.dims[i])) scan_fail(scan, start, "a tensor with a symbolic dimension");
    dims[i] = shape.dims[i].constant;
  }
  result->dims = dims;
  size_t expected = expected_size(parser, shape, start);
  if (as_bytes && result->size != expected) scan_fail(scan, start, "bytes that do not match the tensor's type");
  result->size = expected;
  if (scan_sees(scan, '"')) result->name = scan_quoted(scan, "a name");
  return elsewhere ? tensor_elsewhere(parser, result, start, has_place, offset, size) : result;
}

/* ---- variables ---- */

typedef struct Definition {
  Str name;
  const char *where;
  Var *var; /* NULL: an output that is not kept */
} Definition;

typedef ARRAY(Definition) Definitions;

static Definition definition(Parser *parser) {
  scan_space(parser->scan);
  Definition result = {.where = parser->scan->at};
  if (scan_accept(parser->scan, '_')) return result;
  scan_expect(parser->scan, '%');
  result.name = scan_word(parser->scan, "a variable's name");
  scan_expect(parser->scan, ':');
  result.var = program_var(parser->program, type(parser));
  return result;
}

static void define(Parser *parser, const Definition *defined) {
  if (!defined->var) return;
  void **slot = map_slot_pointer(parser->context, &parser->variables, defined->name);
  if (*slot) scan_fail(parser->scan, defined->where, "a variable that is already defined");
  *slot = defined->var;
}

/* A jaxpr's input or constant: its value may follow. */
static Var *parameter(Parser *parser) {
  Definition defined = definition(parser);
  if (!defined.var) scan_fail(parser->scan, defined.where, "an input without a name");
  define(parser, &defined);
  if (scan_accept(parser->scan, '=')) defined.var->literal = tensor(parser);
  return defined.var;
}

static Var *use(Parser *parser) {
  scan_space(parser->scan);
  const char *start = parser->scan->at;
  if (scan_accept(parser->scan, '%')) {
    Var *var = map_get_pointer(&parser->variables, scan_word(parser->scan, "a variable's name"));
    if (!var) scan_fail(parser->scan, start, "a variable that is not defined");
    return var;
  }
  const Tensor *literal = tensor(parser);
  Type shown = scan_accept_word(parser->scan, "as") ? type(parser) : tensor_type(parser->context, literal);
  Var *var = program_var(parser->program, shown);
  var->literal = literal;
  return var;
}

static Vars parameters(Parser *parser) {
  Vars vars = {0};
  scan_expect(parser->scan, '(');
  if (scan_accept(parser->scan, ')')) return vars;
  do array_push(parser->context, &vars, parameter(parser));
  while (scan_accept(parser->scan, ','));
  scan_expect(parser->scan, ')');
  return vars;
}

static Vars uses(Parser *parser) {
  Vars vars = {0};
  do array_push(parser->context, &vars, use(parser));
  while (scan_accept(parser->scan, ','));
  return vars;
}

/* ---- parameters ---- */

static Param param(Parser *parser, int depth);

static Params items(Parser *parser, char close, bool named, int depth) {
  Params list = {0};
  if (scan_accept(parser->scan, close)) return list;
  do {
    Str name = named ? word(parser, "a parameter's name") : NULL;
    if (named) scan_expect(parser->scan, '=');
    Param item = param(parser, depth + 1);
    item.name = name;
    array_push(parser->context, &list, item);
  } while (scan_accept(parser->scan, ','));
  scan_expect(parser->scan, close);
  return list;
}

static Param list_param(Parser *parser, ParamKind kind, char close, int depth) {
  Params list = items(parser, close, kind == PARAM_RECORD, depth);
  return (Param){.kind = kind, .list = {list.items, list.count}};
}

static Param enum_param(Parser *parser) {
  Param result = {.kind = PARAM_ENUM, .type_name = word(parser, "an enumeration's name")};
  scan_expect(parser->scan, '.');
  result.text2 = word(parser, "a member's name");
  scan_expect(parser->scan, '(');
  result.integer = scan_integer(parser->scan);
  scan_expect(parser->scan, ')');
  return result;
}

static Param jaxpr_param(Parser *parser) {
  scan_space(parser->scan);
  const char *start = parser->scan->at;
  Jaxpr *jaxpr = map_get_pointer(&parser->jaxprs, scan_word(parser->scan, "a jaxpr's name"));
  if (!jaxpr) scan_fail(parser->scan, start, "a jaxpr that is not defined yet");
  return (Param){.kind = PARAM_JAXPR, .jaxpr = jaxpr};
}

static Param number_param(Parser *parser) {
  scan_space(parser->scan);
  const char *start = parser->scan->at, *c = start;
  if (c < parser->scan->end && (*c == '-' || *c == '+')) c++;
  while (c < parser->scan->end && *c >= '0' && *c <= '9') c++;
  bool is_integer = c == parser->scan->end || (!scan_is_word(*c) && *c != '.');
  if (is_integer) return (Param){.kind = PARAM_INT, .integer = scan_integer(parser->scan)};
  return (Param){.kind = PARAM_FLOAT, .real = scan_double(parser->scan)};
}

static Param param(Parser *parser, int depth) {
  if (depth > MAX_PARAM_DEPTH) scan_fail(parser->scan, parser->scan->at, "parameters that are nested too deeply");
  if (scan_sees(parser->scan, '"')) return (Param){.kind = PARAM_STRING, .text = scan_quoted(parser->scan, "a string")};
  if (scan_accept(parser->scan, '[')) return list_param(parser, PARAM_LIST, ']', depth);
  if (scan_accept_word(parser->scan, "None")) return (Param){.kind = PARAM_NONE};
  if (scan_accept_word(parser->scan, "True")) return (Param){.kind = PARAM_BOOL, .integer = 1};
  if (scan_accept_word(parser->scan, "False")) return (Param){.kind = PARAM_BOOL, .integer = 0};
  if (scan_accept_word(parser->scan, "enum")) return enum_param(parser);
  if (scan_accept_word(parser->scan, "jaxpr")) return jaxpr_param(parser);
  if (scan_accept_word(parser->scan, "tensor")) return (Param){.kind = PARAM_TENSOR, .tensor = tensor(parser)};
  if (scan_accept_word(parser->scan, "opaque"))
    return (Param){.kind = PARAM_OPAQUE, .type_name = word(parser, "a type's name")};
  if (scan_accept_word(parser->scan, "record")) {
    Str type_name = word(parser, "a record's name");
    scan_expect(parser->scan, '{');
    Param record = list_param(parser, PARAM_RECORD, '}', depth);
    record.type_name = type_name;
    return record;
  }
  bool is_dim = scan_accept_word(parser->scan, "dim");
  if (!is_dim && !scan_accept_word(parser->scan, "dtype")) return number_param(parser);
  Param result = {.kind = is_dim ? PARAM_DIM : PARAM_DTYPE};
  scan_expect(parser->scan, '(');
  if (is_dim) result.dim = dimension(parser);
  else result.dtype = dtype(parser);
  scan_expect(parser->scan, ')');
  return result;
}

/* ---- traces ---- */

static int position(Parser *parser) {
  scan_space(parser->scan);
  const char *start = parser->scan->at;
  uint64_t number = 0;
  while (parser->scan->at < parser->scan->end && *parser->scan->at >= '0' && *parser->scan->at <= '9') {
    number = number * 10 + (uint64_t)(*parser->scan->at++ - '0');
    if (number > INT32_MAX) scan_fail(parser->scan, start, "invalid line or column");
  }
  if (parser->scan->at == start) scan_fail_expected(parser->scan, "a line or column");
  return (int)number;
}

static Frame *frame(Parser *parser) {
  Str file = scan_quoted(parser->scan, "a file name in quotes");
  scan_expect(parser->scan, ':');
  scan_space(parser->scan);
  const char *start = parser->scan->at;
  int64_t line = scan_integer(parser->scan);
  if (line < INT32_MIN || line > INT32_MAX) scan_fail(parser->scan, start, "invalid line number");
  Str function = scan_quoted(parser->scan, "a function name in quotes");
  FrameKind kind = FRAME_USER;
  if (scan_accept(parser->scan, '[')) {
    if (scan_accept_word(parser->scan, "lib")) kind = FRAME_LIBRARY;
    else if (scan_accept_word(parser->scan, "jax")) kind = FRAME_JAX;
    else scan_fail_expected(parser->scan, "lib or jax");
    scan_expect(parser->scan, ']');
  }
  Frame *plain = frame_intern(parser->program->provenance, file, function, (int)line, kind);
  if (!scan_accept(parser->scan, '(')) return plain;
  Span span = {.line = position(parser)};
  scan_expect(parser->scan, ':');
  span.column = position(parser);
  scan_expect(parser->scan, '-');
  span.end_line = position(parser);
  scan_expect(parser->scan, ':');
  span.end_column = position(parser);
  scan_expect(parser->scan, ')');
  return frame_with_span(parser->program->provenance, plain, span);
}

static void **module_slot(Parser *parser, Str path, Str class_name) {
  return map_slot(parser->context, &parser->modules, (uint64_t)(uintptr_t)path, (uint64_t)(uintptr_t)class_name);
}

/* As a record names them, with all classes. */
static void know_modules(Parser *parser) {
  const Provenance *provenance = parser->program->provenance;
  for (size_t i = 0; i < provenance->module_count; i++) {
    const Module *module = provenance->modules[i];
    *module_slot(parser, module->path, module->class_name) = (void *)(uintptr_t)module;
  }
}

static const Module *module(Parser *parser) {
  Provenance *provenance = parser->program->provenance;
  Str path = scan_accept(parser->scan, '-') ? NULL : scan_quoted(parser->scan, "a path in quotes, or a dash");
  Str class_name = scan_accept_word(parser->scan, "of") ? scan_quoted(parser->scan, "a class in quotes") : NULL;
  Str scopes = scan_accept_word(parser->scan, "scope") ? scan_quoted(parser->scan, "a scope in quotes") : NULL;
  if (path && !class_name) return module_of_scopes(provenance, path, scopes);
  void **slot = module_slot(parser, path, class_name);
  if (!*slot) {
    Module *made = arena_new(&parser->context->arena, Module);
    *made = (Module){.path = path, .class_name = class_name};
    *slot = made;
  }
  return scopes ? module_inside(provenance, *slot, scopes) : *slot;
}

static const Trace *trace(Parser *parser) {
  if (!scan_accept(parser->scan, '@')) return NULL;
  ARRAY(Frame *) frames = {0};
  do array_push(parser->context, &frames, frame(parser));
  while (scan_accept(parser->scan, '<'));
  const Trace *result = NULL;
  Provenance *provenance = parser->program->provenance;
  while (frames.count) result = trace_intern(provenance, frames.items[--frames.count], result);
  return scan_accept_word(parser->scan, "in") ? trace_in_module(provenance, result, module(parser)) : result;
}

/* ---- jaxprs ---- */

static Definitions equation_outputs(Parser *parser) {
  Definitions list = {0};
  if (!scan_sees(parser->scan, '=')) {
    do array_push(parser->context, &list, definition(parser));
    while (scan_accept(parser->scan, ','));
  }
  scan_expect(parser->scan, '=');
  return list;
}

static Equation *equation(Parser *parser) {
  Equation *result = arena_new(&parser->context->arena, Equation);
  Definitions outputs = equation_outputs(parser);
  result->primitive = word(parser, "a primitive's name");
  if (!result->primitive) scan_fail_expected(parser->scan, "a primitive's name");
  scan_expect(parser->scan, '(');
  Vars inputs = {0};
  if (!scan_sees(parser->scan, ')')) inputs = uses(parser);
  scan_expect(parser->scan, ')');
  Params params = {0};
  if (scan_accept(parser->scan, '{')) params = items(parser, '}', true, 0);
  /* Only now, so that an equation cannot use its own outputs. */
  result->outputs = arena_new_array(&parser->context->arena, outputs.count, Var *);
  result->output_count = (uint32_t)outputs.count;
  for (size_t i = 0; i < outputs.count; i++) {
    define(parser, &outputs.items[i]);
    result->outputs[i] = outputs.items[i].var;
  }
  result->inputs = inputs.items;
  result->input_count = (uint32_t)inputs.count;
  result->params = params.items;
  result->param_count = (uint32_t)params.count;
  result->has_effects = scan_accept_word(parser->scan, "effects");
  result->trace = trace(parser);
  return result;
}

static Jaxpr *jaxpr(Parser *parser) {
  Jaxpr *result = arena_new(&parser->context->arena, Jaxpr);
  parser->variables = (Map){0};
  if (scan_sees(parser->scan, '"')) result->name = scan_quoted(parser->scan, "a name");
  Vars inputs = parameters(parser), consts = {0}, outputs = {0};
  if (scan_accept_word(parser->scan, "consts")) consts = parameters(parser);
  scan_expect(parser->scan, '{');
  ARRAY(Equation *) equations = {0};
  while (!scan_accept_word(parser->scan, "return")) {
    bool is_equation = scan_sees(parser->scan, '%') || scan_sees(parser->scan, '=') || scan_sees(parser->scan, '_');
    if (!is_equation) scan_fail_expected(parser->scan, "an equation or return");
    array_push(parser->context, &equations, equation(parser));
  }
  if (!scan_sees(parser->scan, '}')) outputs = uses(parser);
  scan_expect(parser->scan, '}');
  result->inputs = inputs.items;
  result->input_count = (uint32_t)inputs.count;
  result->consts = consts.items;
  result->const_count = (uint32_t)consts.count;
  result->outputs = outputs.items;
  result->output_count = (uint32_t)outputs.count;
  result->equations = equations.items;
  result->equation_count = equations.count;
  jaxpr_link(result);
  return result;
}

static void named_jaxpr(Parser *parser) {
  scan_space(parser->scan);
  const char *start = parser->scan->at;
  Str name = scan_word(parser->scan, "a jaxpr's name");
  if (map_get_pointer(&parser->jaxprs, name)) scan_fail(parser->scan, start, "a jaxpr that is already defined");
  Jaxpr *result = jaxpr(parser);
  *map_slot_pointer(parser->context, &parser->jaxprs, name) = result;
  parser->program->main = result;
}

/* ---- the program ---- */

static Names names(Parser *parser) {
  Names list = {0};
  do {
    Str name = scan_accept(parser->scan, '-') ? NULL : scan_quoted(parser->scan, "a name in quotes, or a dash");
    array_push(parser->context, &list, name);
  } while (scan_accept(parser->scan, ','));
  return list;
}

/* As many as the main jaxpr has; those that the text leaves out are not known. */
static Str *fitted(Parser *parser, const Names *given, uint32_t count, const char *what) {
  if (given->count > count) scan_fail(parser->scan, parser->scan->end, what);
  Str *all = arena_new_array(&parser->context->arena, count, Str);
  for (size_t i = 0; i < given->count; i++) all[i] = given->items[i];
  return all;
}

Program *program_parse_rest(Scanner *scan, Provenance *provenance, ProgramData *data) {
  Context *context = scan->context;
  Program *program = program_new(context, provenance);
  program->is_text = true;
  Parser parser = {.scan = scan, .context = context, .program = program, .data = data};
  know_modules(&parser);
  Names input_names = {0}, output_names = {0};
  ARRAY(Frame *) entries = {0};
  const Trace *root = NULL;
  if (!scan_accept_word(scan, "program")) scan_fail_expected(scan, "'program' and its name");
  program->name = scan_accept(scan, '-') ? NULL : scan_quoted(scan, "the program's name in quotes, or a dash");
  while (!scan_ended(scan)) {
    if (scan_accept_word(scan, "inputs")) {
      input_names = names(&parser);
    } else if (scan_accept_word(scan, "outputs")) {
      output_names = names(&parser);
    } else if (scan_accept_word(scan, "root")) {
      root = trace(&parser);
    } else if (scan_accept_word(scan, "entry")) {
      scan_expect(scan, '@');
      array_push(context, &entries, frame(&parser));
    } else if (scan_accept_word(scan, "jaxpr")) {
      named_jaxpr(&parser);
    } else {
      scan_fail_expected(scan, "inputs, outputs, root, entry or jaxpr");
    }
  }
  if (!program->main) scan_fail_expected(scan, "a jaxpr");
  program->input_names = fitted(&parser, &input_names, program->main->input_count, "more input names than inputs");
  program->output_names = fitted(&parser, &output_names, program->main->output_count, "more output names than outputs");
  program_set_frames(program, root ? root->frame : NULL, entries.items, entries.count);
  return program;
}

Program *program_parse(Context *context, Provenance *provenance, const char *text, size_t length) {
  Scanner scan;
  scanner_init(&scan, context, text, length, ESCAPES_OF_C);
  return program_parse_rest(&scan, provenance, NULL);
}
