/* Reading the text form of a program (text_print.c shows it). White space and line ends separate and mean nothing
 * else; a # outside of quotes starts a comment. Errors name the line and the column. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/spelling.h"
#include "program/program.h"

enum { MAX_PARAM_DEPTH = 64, MAX_NUMBER_LENGTH = 63 };

typedef struct Parser {
  Context *context;
  Program *program;
  const char *text, *at, *end;
  Map jaxprs;    /* by name */
  Map variables; /* of the jaxpr being read, by name */
} Parser;

typedef ARRAY(Str) Names;
typedef ARRAY(Var *) Vars;
typedef ARRAY(Param) Params;

/* ---- characters and words ---- */

static _Noreturn void fail_at(const Parser *parser, const char *where, const char *what) {
  size_t line = 1, column = 1;
  for (const char *c = parser->text; c < where; c++) {
    column = *c == '\n' ? 1 : column + 1;
    line += *c == '\n';
  }
  fail(parser->context, ERROR_FORMAT, "line %zu, column %zu: %s", line, column, what);
}

static _Noreturn void fail_expected(const Parser *parser, const char *what) {
  fail_at(parser, parser->at, arena_format(&parser->context->arena, "expected %s", what));
}

static void skip_space(Parser *parser) {
  for (; parser->at < parser->end; parser->at++) {
    char c = *parser->at;
    if (c == '#') {
      while (parser->at < parser->end && *parser->at != '\n') parser->at++;
      if (parser->at == parser->end) return;
    } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
      return;
    }
  }
}

static bool next_is(Parser *parser, char c) {
  skip_space(parser);
  return parser->at < parser->end && *parser->at == c;
}

static bool accept(Parser *parser, char c) {
  if (!next_is(parser, c)) return false;
  parser->at++;
  return true;
}

static void expect(Parser *parser, char c) {
  if (!accept(parser, c)) fail_expected(parser, (char[]){'\'', c, '\'', '\0'});
}

static bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static size_t word_length(Parser *parser) {
  skip_space(parser);
  const char *c = parser->at;
  while (c < parser->end && is_word_character(*c)) c++;
  return (size_t)(c - parser->at);
}

static bool accept_word(Parser *parser, const char *word) {
  size_t length = word_length(parser);
  if (length != strlen(word) || memcmp(parser->at, word, length) != 0) return false;
  parser->at += length;
  return true;
}

static Str bare_word(Parser *parser, const char *what) {
  size_t length = word_length(parser);
  if (!length) fail_expected(parser, what);
  Str word = str_intern_sized(parser->context, parser->at, length);
  parser->at += length;
  return word;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

static char escaped(Parser *parser) {
  if (parser->at == parser->end) fail_expected(parser, "the end of a string");
  char c = *parser->at++;
  switch (c) {
    case 'n': return '\n';
    case 't': return '\t';
    case '"':
    case '\\': return c;
    case 'x':
      if (parser->end - parser->at >= 2 && hex_digit(parser->at[0]) >= 0 && hex_digit(parser->at[1]) >= 0) {
        parser->at += 2;
        return (char)(hex_digit(parser->at[-2]) * 16 + hex_digit(parser->at[-1]));
      }
      break;
    default: break;
  }
  fail_at(parser, parser->at - 1, "an escape that does not exist");
}

static Str quoted(Parser *parser, const char *what) {
  if (!accept(parser, '"')) fail_expected(parser, what);
  const char *start = parser->at, *close = start;
  while (close < parser->end && *close != '"') close += *close == '\\' ? 2 : 1;
  if (close >= parser->end) fail_at(parser, start - 1, "a string that does not end");
  char *text = arena_alloc(&parser->context->arena, (size_t)(close - start) + 1);
  size_t length = 0;
  while (parser->at < close) {
    char c = *parser->at++;
    text[length++] = c == '\\' ? escaped(parser) : c;
  }
  parser->at = close + 1;
  return str_intern_sized(parser->context, text, length);
}

/* A name, bare or in quotes; NULL for a dash. */
static Str word(Parser *parser, const char *what) {
  if (accept(parser, '-')) return NULL;
  return next_is(parser, '"') ? quoted(parser, what) : bare_word(parser, what);
}

/* ---- numbers ---- */

/* Copies the characters of a number to where it can be converted. */
static const char *number_token(Parser *parser, char token[MAX_NUMBER_LENGTH + 1]) {
  skip_space(parser);
  const char *start = parser->at;
  size_t length = 0;
  while (parser->at < parser->end && length < MAX_NUMBER_LENGTH) {
    char c = *parser->at;
    if (!is_word_character(c) && c != '.' && c != '-' && c != '+') break;
    token[length++] = c;
    parser->at++;
  }
  token[length] = '\0';
  if (!length) fail_expected(parser, "a number");
  return start;
}

static int64_t integer(Parser *parser) {
  char token[MAX_NUMBER_LENGTH + 1], *stop;
  const char *start = number_token(parser, token);
  errno = 0;
  long long value = strtoll(token, &stop, 10);
  if (*stop || errno) fail_at(parser, start, "not an integer of 64 bits");
  return value;
}

static double real(Parser *parser, bool single) {
  char token[MAX_NUMBER_LENGTH + 1], *stop;
  const char *start = number_token(parser, token);
  double value = single ? (double)strtof(token, &stop) : strtod(token, &stop);
  if (*stop) fail_at(parser, start, "not a number");
  return value;
}

static DType dtype(Parser *parser) {
  skip_space(parser);
  const char *start = parser->at;
  Str name = bare_word(parser, "an element type");
  DType type = dtype_from_name(name);
  if (type == DTYPE_NONE && strcmp(name, "none") != 0) fail_at(parser, start, "an element type that does not exist");
  return type;
}

/* Up to a comma or a closing bracket that is not inside of parentheses. */
static Dim dimension(Parser *parser) {
  skip_space(parser);
  const char *start = parser->at, *stop = start;
  for (int open = 0; stop < parser->end && *stop != '\n'; stop++) {
    if (open == 0 && (*stop == ',' || *stop == ']' || *stop == ')')) break;
    open += (*stop == '(') - (*stop == ')');
  }
  Dim dim;
  if (!dim_parse(parser->context, start, (size_t)(stop - start), &dim)) fail_at(parser, start, "not a dimension");
  parser->at = stop;
  return dim;
}

static Type type(Parser *parser) {
  DType element = dtype(parser);
  Dim dims[MAX_RANK];
  uint32_t rank = 0;
  expect(parser, '[');
  if (!accept(parser, ']')) {
    do {
      if (rank == MAX_RANK) fail_at(parser, parser->at, "too many dimensions");
      dims[rank++] = dimension(parser);
    } while (accept(parser, ','));
    expect(parser, ']');
  }
  return type_make(parser->context, element, dims, rank);
}

/* ---- tensors ---- */

static void store(unsigned char *bytes, uint64_t value, size_t width) {
  for (size_t i = 0; i < width; i++) bytes[i] = (unsigned char)(value >> (8 * i));
}

static void element_bits(Parser *parser, unsigned char *bytes, size_t width) {
  char token[MAX_NUMBER_LENGTH + 1], *stop;
  const char *start = number_token(parser, token);
  errno = 0;
  unsigned long long value = strtoull(token, &stop, 16);
  bool fits = width == 8 || (width < 8 && value >> (8 * width) == 0);
  if (*stop || errno || !fits) fail_at(parser, start, "not the bits of an element");
  store(bytes, value, width);
}

static void element_integer(Parser *parser, DType type, unsigned char *bytes, size_t width) {
  char token[MAX_NUMBER_LENGTH + 1], *stop;
  const char *start = number_token(parser, token);
  errno = 0;
  uint64_t value;
  bool fits;
  unsigned bits = (unsigned)width * 8;
  if (dtype_is_unsigned(type)) {
    value = strtoull(token, &stop, 10);
    fits = token[0] != '-' && (bits == 64 || value >> bits == 0);
  } else {
    int64_t number = strtoll(token, &stop, 10);
    fits = bits == 64 || (number >= -((int64_t)1 << (bits - 1)) && number < (int64_t)1 << (bits - 1));
    value = (uint64_t)number;
  }
  if (*stop || errno || !fits) fail_at(parser, start, "not an integer of this element type");
  store(bytes, value, width);
}

static void element_real(Parser *parser, bool single, unsigned char *bytes) {
  double wide = real(parser, single);
  float narrow = (float)wide;
  if (single) memcpy(bytes, &narrow, sizeof narrow);
  else memcpy(bytes, &wide, sizeof wide);
}

static void element(Parser *parser, DType type, unsigned char *bytes) {
  size_t width = dtype_bits(type) / 8;
  if (dtype_kind(type) == KIND_COMPLEX) {
    DType part = type == DTYPE_COMPLEX64 ? DTYPE_FLOAT32 : DTYPE_FLOAT64;
    expect(parser, '(');
    element(parser, part, bytes);
    expect(parser, ',');
    element(parser, part, bytes + width / 2);
    expect(parser, ')');
    return;
  }
  skip_space(parser);
  bool is_bits = parser->end - parser->at > 2 && parser->at[0] == '0' && parser->at[1] == 'x';
  if (is_bits) element_bits(parser, bytes, width);
  else if (type == DTYPE_BOOL && accept_word(parser, "True")) bytes[0] = 1;
  else if (type == DTYPE_BOOL && accept_word(parser, "False")) bytes[0] = 0;
  else if (dtype_is_integer(type) && width) element_integer(parser, type, bytes, width);
  else if (type == DTYPE_FLOAT32 || type == DTYPE_FLOAT64) element_real(parser, type == DTYPE_FLOAT32, bytes);
  else fail_expected(parser, "an element of the tensor's type, or its bits as 0x…");
}

/* Past the elements to the type behind them, which says how to read them. */
static void skip_elements(Parser *parser) {
  const char *start = parser->at;
  const char *closing = *parser->at == '{' ? "}" : *parser->at == '(' ? ")" : ":";
  while (parser->at < parser->end && *parser->at != *closing) parser->at++;
  if (parser->at == parser->end) fail_at(parser, start, "a tensor that does not end");
  if (*closing != ':') parser->at++;
}

static void *tensor_elements(Parser *parser, Type type, const char *start, size_t *size) {
  const char *after = parser->at;
  int64_t count;
  size_t width = dtype_bits(type.dtype) / 8;
  /* Every element takes a character at least, so the text bounds what is allocated. */
  if (!width || !type_count(type, &count) || count < 0 || count > after - start) {
    fail_at(parser, start, "elements that do not fit the tensor's type");
  }
  unsigned char *bytes = arena_alloc_array(&parser->context->arena, (size_t)count, width);
  parser->at = start;
  bool braces = accept(parser, '{');
  if (braces != (type.rank > 0)) {
    fail_at(parser, start, "braces stand around the elements of a tensor, not of a scalar");
  }
  for (int64_t i = 0; i < count; i++) {
    if (i) expect(parser, ',');
    element(parser, type.dtype, bytes + (size_t)i * width);
  }
  if (braces) expect(parser, '}');
  if (!next_is(parser, ':')) fail_at(parser, parser->at, "elements that do not fit the tensor's type");
  parser->at = after;
  *size = (size_t)count * width;
  return bytes;
}

static void *tensor_bytes(Parser *parser, size_t *size) {
  expect(parser, '(');
  const char *close = parser->at;
  while (close < parser->end && hex_digit(*close) >= 0) close++;
  *size = (size_t)(close - parser->at) / 2;
  unsigned char *bytes = arena_alloc(&parser->context->arena, *size);
  for (size_t i = 0; i < *size; i++, parser->at += 2) {
    bytes[i] = (unsigned char)(hex_digit(parser->at[0]) * 16 + hex_digit(parser->at[1]));
  }
  expect(parser, ')');
  return bytes;
}

static const Tensor *tensor(Parser *parser) {
  Arena *arena = &parser->context->arena;
  Tensor *result = arena_new(arena, Tensor);
  skip_space(parser);
  const char *start = parser->at;
  if (parser->at == parser->end) fail_expected(parser, "a tensor");
  if (accept_word(parser, "data")) fail_at(parser, start, "a large tensor, whose data are not part of the text");
  bool as_bytes = accept_word(parser, "hex");
  if (as_bytes) result->data = tensor_bytes(parser, &result->size);
  else skip_elements(parser);
  expect(parser, ':');
  Type shape = type(parser);
  if (!as_bytes) result->data = tensor_elements(parser, shape, start, &result->size);
  result->dtype = shape.dtype;
  result->rank = shape.rank;
  int64_t *dims = arena_new_array(arena, shape.rank, int64_t);
  for (uint32_t i = 0; i < shape.rank; i++) {
    if (!dim_is_constant(shape.dims[i])) fail_at(parser, start, "a tensor with a symbolic dimension");
    dims[i] = shape.dims[i].constant;
  }
  result->dims = dims;
  if (next_is(parser, '"')) result->name = quoted(parser, "a name");
  return result;
}

/* ---- variables ---- */

typedef struct Definition {
  Str name;
  const char *where;
  Var *var; /* NULL: an output that is not kept */
} Definition;

typedef ARRAY(Definition) Definitions;

static Definition definition(Parser *parser) {
  skip_space(parser);
  Definition result = {.where = parser->at};
  if (accept(parser, '_')) return result;
  expect(parser, '%');
  result.name = bare_word(parser, "a variable's name");
  expect(parser, ':');
  result.var = program_var(parser->program, type(parser));
  return result;
}

static void define(Parser *parser, const Definition *defined) {
  if (!defined->var) return;
  void **slot = map_slot_pointer(parser->context, &parser->variables, defined->name);
  if (*slot) fail_at(parser, defined->where, "a variable that is already defined");
  *slot = defined->var;
}

/* A jaxpr's input or constant: its value may follow. */
static Var *parameter(Parser *parser) {
  Definition defined = definition(parser);
  if (!defined.var) fail_at(parser, defined.where, "an input without a name");
  define(parser, &defined);
  if (accept(parser, '=')) defined.var->literal = tensor(parser);
  return defined.var;
}

static Var *use(Parser *parser) {
  skip_space(parser);
  const char *start = parser->at;
  if (accept(parser, '%')) {
    Var *var = map_get_pointer(&parser->variables, bare_word(parser, "a variable's name"));
    if (!var) fail_at(parser, start, "a variable that is not defined");
    return var;
  }
  const Tensor *literal = tensor(parser);
  Type shown = accept_word(parser, "as") ? type(parser) : tensor_type(parser->context, literal);
  Var *var = program_var(parser->program, shown);
  var->literal = literal;
  return var;
}

static Vars parameters(Parser *parser) {
  Vars vars = {0};
  expect(parser, '(');
  if (accept(parser, ')')) return vars;
  do array_push(parser->context, &vars, parameter(parser));
  while (accept(parser, ','));
  expect(parser, ')');
  return vars;
}

static Vars uses(Parser *parser) {
  Vars vars = {0};
  do array_push(parser->context, &vars, use(parser));
  while (accept(parser, ','));
  return vars;
}

/* ---- parameters ---- */

static Param param(Parser *parser, int depth);

static Params items(Parser *parser, char close, bool named, int depth) {
  Params list = {0};
  if (accept(parser, close)) return list;
  do {
    Str name = named ? word(parser, "a parameter's name") : NULL;
    if (named) expect(parser, '=');
    Param item = param(parser, depth + 1);
    item.name = name;
    array_push(parser->context, &list, item);
  } while (accept(parser, ','));
  expect(parser, close);
  return list;
}

static Param list_param(Parser *parser, ParamKind kind, char close, int depth) {
  Params list = items(parser, close, kind == PARAM_RECORD, depth);
  return (Param){.kind = kind, .list = {list.items, list.count}};
}

static Param enum_param(Parser *parser) {
  Param result = {.kind = PARAM_ENUM, .type_name = word(parser, "an enumeration's name")};
  expect(parser, '.');
  result.text2 = word(parser, "a member's name");
  expect(parser, '(');
  result.integer = integer(parser);
  expect(parser, ')');
  return result;
}

static Param jaxpr_param(Parser *parser) {
  skip_space(parser);
  const char *start = parser->at;
  Jaxpr *jaxpr = map_get_pointer(&parser->jaxprs, bare_word(parser, "a jaxpr's name"));
  if (!jaxpr) fail_at(parser, start, "a jaxpr that is not defined before this");
  return (Param){.kind = PARAM_JAXPR, .jaxpr = jaxpr};
}

static Param number_param(Parser *parser) {
  skip_space(parser);
  const char *start = parser->at, *c = start;
  if (c < parser->end && (*c == '-' || *c == '+')) c++;
  while (c < parser->end && *c >= '0' && *c <= '9') c++;
  bool is_integer = c == parser->end || (!is_word_character(*c) && *c != '.');
  if (is_integer) return (Param){.kind = PARAM_INT, .integer = integer(parser)};
  return (Param){.kind = PARAM_FLOAT, .real = real(parser, false)};
}

static Param param(Parser *parser, int depth) {
  if (depth > MAX_PARAM_DEPTH) fail_at(parser, parser->at, "parameters that are nested too deeply");
  if (next_is(parser, '"')) return (Param){.kind = PARAM_STRING, .text = quoted(parser, "a string")};
  if (accept(parser, '[')) return list_param(parser, PARAM_LIST, ']', depth);
  if (accept_word(parser, "None")) return (Param){.kind = PARAM_NONE};
  if (accept_word(parser, "True")) return (Param){.kind = PARAM_BOOL, .integer = 1};
  if (accept_word(parser, "False")) return (Param){.kind = PARAM_BOOL, .integer = 0};
  if (accept_word(parser, "enum")) return enum_param(parser);
  if (accept_word(parser, "jaxpr")) return jaxpr_param(parser);
  if (accept_word(parser, "tensor")) return (Param){.kind = PARAM_TENSOR, .tensor = tensor(parser)};
  if (accept_word(parser, "opaque")) return (Param){.kind = PARAM_OPAQUE, .type_name = word(parser, "a type's name")};
  if (accept_word(parser, "record")) {
    Str type_name = word(parser, "a record's name");
    expect(parser, '{');
    Param record = list_param(parser, PARAM_RECORD, '}', depth);
    record.type_name = type_name;
    return record;
  }
  bool is_dim = accept_word(parser, "dim");
  if (!is_dim && !accept_word(parser, "dtype")) return number_param(parser);
  Param result = {.kind = is_dim ? PARAM_DIM : PARAM_DTYPE};
  expect(parser, '(');
  if (is_dim) result.dim = dimension(parser);
  else result.dtype = dtype(parser);
  expect(parser, ')');
  return result;
}

/* ---- traces ---- */

static Frame *frame(Parser *parser) {
  Str file = quoted(parser, "a file name in quotes");
  expect(parser, ':');
  skip_space(parser);
  const char *start = parser->at;
  int64_t line = integer(parser);
  if (line < INT32_MIN || line > INT32_MAX) fail_at(parser, start, "an impossible line number");
  Str function = quoted(parser, "a function name in quotes");
  FrameKind kind = FRAME_USER;
  if (accept(parser, '[')) {
    if (accept_word(parser, "lib")) kind = FRAME_LIBRARY;
    else if (accept_word(parser, "jax")) kind = FRAME_JAX;
    else fail_expected(parser, "lib or jax");
    expect(parser, ']');
  }
  return frame_intern(parser->program->provenance, file, function, (int)line, kind);
}

static const Trace *trace(Parser *parser) {
  if (!accept(parser, '@')) return NULL;
  ARRAY(Frame *) frames = {0};
  do array_push(parser->context, &frames, frame(parser));
  while (accept(parser, '<'));
  const Trace *result = NULL;
  while (frames.count) result = trace_intern(parser->program->provenance, frames.items[--frames.count], result);
  return result;
}

/* ---- jaxprs ---- */

static Definitions equation_outputs(Parser *parser) {
  Definitions list = {0};
  if (!next_is(parser, '=')) {
    do array_push(parser->context, &list, definition(parser));
    while (accept(parser, ','));
  }
  expect(parser, '=');
  return list;
}

static Equation *equation(Parser *parser) {
  Equation *result = arena_new(&parser->context->arena, Equation);
  Definitions outputs = equation_outputs(parser);
  result->primitive = word(parser, "a primitive's name");
  if (!result->primitive) fail_expected(parser, "a primitive's name");
  expect(parser, '(');
  Vars inputs = {0};
  if (!next_is(parser, ')')) inputs = uses(parser);
  expect(parser, ')');
  Params params = {0};
  if (accept(parser, '{')) params = items(parser, '}', true, 0);
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
  result->trace = trace(parser);
  return result;
}

static Jaxpr *jaxpr(Parser *parser) {
  Jaxpr *result = arena_new(&parser->context->arena, Jaxpr);
  parser->variables = (Map){0};
  if (next_is(parser, '"')) result->name = quoted(parser, "a name");
  Vars inputs = parameters(parser), consts = {0}, outputs = {0};
  if (accept_word(parser, "consts")) consts = parameters(parser);
  expect(parser, '{');
  ARRAY(Equation *) equations = {0};
  while (!accept_word(parser, "return")) {
    bool is_equation = next_is(parser, '%') || next_is(parser, '=') || next_is(parser, '_');
    if (!is_equation) fail_expected(parser, "an equation or return");
    array_push(parser->context, &equations, equation(parser));
  }
  if (!next_is(parser, '}')) outputs = uses(parser);
  expect(parser, '}');
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
  skip_space(parser);
  const char *start = parser->at;
  Str name = bare_word(parser, "a jaxpr's name");
  if (map_get_pointer(&parser->jaxprs, name)) fail_at(parser, start, "a jaxpr that is already defined");
  Jaxpr *result = jaxpr(parser);
  *map_slot_pointer(parser->context, &parser->jaxprs, name) = result;
  parser->program->main = result;
}

/* ---- the program ---- */

static Names names(Parser *parser) {
  Names list = {0};
  do {
    Str name = accept(parser, '-') ? NULL : quoted(parser, "a name in quotes, or a dash");
    array_push(parser->context, &list, name);
  } while (accept(parser, ','));
  return list;
}

/* As many as the main jaxpr has; those that the text leaves out are not known. */
static Str *fitted(Parser *parser, const Names *given, uint32_t count, const char *what) {
  if (given->count > count) fail_at(parser, parser->end, what);
  Str *all = arena_new_array(&parser->context->arena, count, Str);
  for (size_t i = 0; i < given->count; i++) all[i] = given->items[i];
  return all;
}

Program *program_parse(Context *context, Provenance *provenance, const char *text, size_t length) {
  Program *program = program_new(context, provenance);
  Parser parser = {.context = context, .program = program, .text = text, .at = text, .end = text + length};
  Names input_names = {0}, output_names = {0};
  ARRAY(Frame *) entries = {0};
  if (!accept_word(&parser, "program")) fail_expected(&parser, "'program' and its name");
  program->name = accept(&parser, '-') ? NULL : quoted(&parser, "the program's name in quotes, or a dash");
  for (skip_space(&parser); parser.at < parser.end; skip_space(&parser)) {
    if (accept_word(&parser, "inputs")) {
      input_names = names(&parser);
    } else if (accept_word(&parser, "outputs")) {
      output_names = names(&parser);
    } else if (accept_word(&parser, "root")) {
      program->root = trace(&parser);
    } else if (accept_word(&parser, "entry")) {
      expect(&parser, '@');
      array_push(context, &entries, frame(&parser));
    } else if (accept_word(&parser, "jaxpr")) {
      named_jaxpr(&parser);
    } else {
      fail_expected(&parser, "inputs, outputs, root, entry or jaxpr");
    }
  }
  if (!program->main) fail_expected(&parser, "a jaxpr");
  program->input_names = fitted(&parser, &input_names, program->main->input_count, "more input names than inputs");
  program->output_names = fitted(&parser, &output_names, program->main->output_count, "more output names than outputs");
  program->entry_frames = entries.items;
  program->entry_count = entries.count;
  provenance->entry_frames = entries.items;
  provenance->entry_count = entries.count;
  return program;
}
