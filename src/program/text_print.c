/* Printing a program as text that text_read.c reads back.
 *
 *   program "model"
 *   inputs "x", -
 *   outputs "y"
 *   root @ "model.py":3 "fn"
 *   entry @ "script.py":20 "main"
 *
 *   jaxpr j0 "body" (%0:f32[2]) consts (%1:f32[] = 2.0:f32[]) {
 *     %2:f32[2] = mul(%0, %1) {accuracy=None} @ "model.py":5 "fn" < "lib.py":10 "g"[lib]
 *     return %2
 *   }
 *
 * A tensor that lies in a data file is data(offset, bytes), one of which only the type is known data(). What follows a
 * frame in parentheses are the columns of an expression, from line:column to line:column; what follows "in" is the part
 * of the model that was running, or the scopes that the user named.
 *
 * The main jaxpr is the last one. Variables are numbered in each jaxpr from 0, in the order of their definitions. A
 * jaxpr stands before those that refer to it. A dash stands for a name that is not known.
 */
#include <inttypes.h>
#include <string.h>

#include "base/builder.h"
#include "base/bytes.h"
#include "base/spelling.h"
#include "program/program.h"
#include "types/scalar.h"

enum {
  MAX_INLINE_BYTES = 256 /* constants up to here are compared by content, larger ones are told apart */,
  MAX_JAXPR_DEPTH = 1000,
  MAX_PARAM_DEPTH = 64
};

typedef struct Printer {
  Builder *out;
  Context *context;
  Provenance *provenance;
  Map jaxprs; /* to their number plus one */
  size_t jaxpr_count;
  Map variables; /* (variable, jaxpr) to its number plus one */
  const Jaxpr *jaxpr;
  size_t variable_count;
  DataPlan *data; /* or NULL */
  bool shapes_only;
} Printer;

/* ---- words and types ---- */

/* A name as it stands where it looks like one, else in quotes. */
static void print_word(Printer *printer, Str word) {
  if (!word) builder_add(printer->out, "-");
  else if (is_identifier(word, str_length(word))) builder_add(printer->out, word);
  else spell_text(printer->out, SPELL_PROGRAM, word, str_length(word));
}

static void print_quoted(Printer *printer, Str text) {
  if (text) spell_text(printer->out, SPELL_PROGRAM, text, str_length(text));
  else builder_add(printer->out, "-");
}

static void print_type(Printer *printer, Type type) {
  builder_format(printer->out, "%s[", dtype_short(type.dtype));
  for (uint32_t i = 0; i < type.rank; i++) {
    builder_format(printer->out, "%s%s", i ? "," : "", dim_text(printer->context, type.dims[i]));
  }
  builder_add(printer->out, "]");
}

/* ---- tensors ---- */

/* The bits, where no decimal says them: numbers that are not a number, and small floats. */
static void print_bits(Builder *out, const unsigned char *bytes, size_t width) {
  builder_add(out, "0x");
  for (size_t i = width; i-- > 0;) builder_format(out, "%02x", bytes[i]);
}

static void print_element(Builder *out, DType dtype, const unsigned char *bytes) {
  Scalar as = scalar_at(bytes, dtype);
  size_t width = dtype_bits(dtype) / 8;
  switch (dtype) {
    case DTYPE_BOOL:
      if (bytes[0] > 1) print_bits(out, bytes, 1);
      else builder_add(out, bytes[0] ? "True" : "False");
      break;
    case DTYPE_INT8: builder_format(out, "%d", as.i8); break;
    case DTYPE_INT16: builder_format(out, "%d", as.i16); break;
    case DTYPE_INT32: builder_format(out, "%" PRId32, as.i32); break;
    case DTYPE_INT64: builder_format(out, "%" PRId64, as.i64); break;
    case DTYPE_UINT8: builder_format(out, "%u", bytes[0]); break;
    case DTYPE_UINT16: builder_format(out, "%u", as.u16); break;
    case DTYPE_UINT32: builder_format(out, "%" PRIu32, as.u32); break;
    case DTYPE_UINT64: builder_format(out, "%" PRIu64, as.u64); break;
    case DTYPE_FLOAT32:
      if (as.f != as.f) print_bits(out, bytes, width);
      else spell_float(out, as.f);
      break;
    case DTYPE_FLOAT64:
      if (as.d != as.d) print_bits(out, bytes, width);
      else spell_double(out, as.d);
      break;
    case DTYPE_COMPLEX64:
    case DTYPE_COMPLEX128: {
      DType part = dtype_part(dtype);
      builder_add(out, "(");
      print_element(out, part, bytes);
      builder_add(out, ", ");
      print_element(out, part, bytes + width / 2);
      builder_add(out, ")");
      break;
    }
    default: print_bits(out, bytes, width); break;
  }
}

/* Data whose bytes are not one element after the other: packed types, keys. */
static void print_bytes(Builder *out, const Tensor *tensor) {
  const unsigned char *bytes = tensor->data;
  builder_add(out, "hex(");
  for (size_t i = 0; i < tensor->size; i++) builder_format(out, "%02x", bytes[i]);
  builder_add(out, ")");
}

static bool is_one_element_each(Context *context, const Tensor *tensor) {
  int64_t count;
  unsigned bits = dtype_bits(tensor->dtype);
  if (bits < 8 || !type_count(tensor_type(context, tensor), &count) || count < 0) return false;
  return (uint64_t)count == tensor->size / (bits / 8) && tensor->size % (bits / 8) == 0;
}

static void print_elements(Printer *printer, const Tensor *tensor) {
  Builder *out = printer->out;
  const unsigned char *bytes = tensor->data;
  size_t width = dtype_bits(tensor->dtype) / 8;
  if (tensor->rank) builder_add(out, "{");
  for (size_t at = 0; at < tensor->size; at += width) {
    if (at) builder_add(out, ", ");
    print_element(out, tensor->dtype, bytes + at);
  }
  if (tensor->rank) builder_add(out, "}");
}

/* A parameter is told apart by where it lies, also from one with the same elements. */
static bool is_elsewhere(const Printer *printer, const Tensor *tensor) {
  return tensor->size > MAX_INLINE_BYTES || (tensor->size && (!tensor->data || (printer->data && tensor->name)));
}

static void print_tensor(Printer *printer, const Tensor *tensor) {
  Builder *out = printer->out;
  bool elsewhere = is_elsewhere(printer, tensor) && dtype_bits(tensor->dtype);
  if (elsewhere && printer->data && !printer->shapes_only && tensor_is_readable(tensor)) {
    builder_format(out, "data(%" PRIu64 ", %zu)", data_place(printer->data, tensor), tensor->size);
  } else if (elsewhere) {
    builder_add(out, "data()");
  } else if (!is_one_element_each(printer->context, tensor)) {
    print_bytes(out, tensor);
  } else {
    print_elements(printer, tensor);
  }
  builder_add(out, ":");
  print_type(printer, tensor_type(printer->context, tensor));
  if (tensor->name) {
    builder_add(out, " ");
    print_quoted(printer, tensor->name);
  }
}

/* ---- variables ---- */

static void **variable_slot(Printer *printer, const Var *var) {
  return map_slot(printer->context, &printer->variables, (uint64_t)(uintptr_t)var, (uint64_t)(uintptr_t)printer->jaxpr);
}

static void print_definition(Printer *printer, const Var *var, bool is_parameter) {
  if (!var) {
    builder_add(printer->out, "_");
    return;
  }
  *variable_slot(printer, var) = (void *)(uintptr_t)(printer->variable_count + 1);
  builder_format(printer->out, "%%%zu:", printer->variable_count++);
  print_type(printer, var->type);
  if (!var->literal || !is_parameter) return;
  builder_add(printer->out, " = ");
  print_tensor(printer, var->literal);
}

static void print_definitions(Printer *printer, Var *const *vars, uint32_t count, bool are_parameters) {
  for (uint32_t i = 0; i < count; i++) {
    if (i) builder_add(printer->out, ", ");
    print_definition(printer, vars[i], are_parameters);
  }
}

static void print_use(Printer *printer, const Var *var) {
  void *number = map_get(&printer->variables, (uint64_t)(uintptr_t)var, (uint64_t)(uintptr_t)printer->jaxpr);
  if (number) {
    builder_format(printer->out, "%%%zu", (size_t)(uintptr_t)number - 1);
  } else if (var->literal) {
    print_tensor(printer, var->literal);
    if (!type_equal(var->type, tensor_type(printer->context, var->literal))) {
      builder_add(printer->out, " as ");
      print_type(printer, var->type);
    }
  } else {
    fail(printer->context, ERROR_INTERNAL, "a jaxpr uses a variable that it does not define");
  }
}

static void print_uses(Printer *printer, Var *const *vars, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (i) builder_add(printer->out, ", ");
    print_use(printer, vars[i]);
  }
}

/* ---- parameters ---- */

static void print_param(Printer *printer, const Param *param, int depth);

static void print_items(Printer *printer, const Param *items, size_t count, bool named, int depth) {
  for (size_t i = 0; i < count; i++) {
    if (i) builder_add(printer->out, ", ");
    if (named) {
      print_word(printer, items[i].name);
      builder_add(printer->out, "=");
    }
    print_param(printer, &items[i], depth + 1);
  }
}

static void print_param(Printer *printer, const Param *param, int depth) {
  Builder *out = printer->out;
  if (depth > MAX_PARAM_DEPTH) fail(printer->context, ERROR_VALUE, "parameters are nested too deeply to print");
  switch (param->kind) {
    case PARAM_NONE: builder_add(out, "None"); break;
    case PARAM_BOOL: builder_add(out, param->integer ? "True" : "False"); break;
    case PARAM_INT: builder_format(out, "%" PRId64, param->integer); break;
    case PARAM_FLOAT: spell_double(out, param->real); break;
    case PARAM_STRING: print_quoted(printer, param->text); break;
    case PARAM_DTYPE: builder_format(out, "dtype(%s)", dtype_short(param->dtype)); break;
    case PARAM_DIM: builder_format(out, "dim(%s)", dim_text(printer->context, param->dim)); break;
    case PARAM_LIST:
      builder_add(out, "[");
      print_items(printer, param->list.items, param->list.count, false, depth);
      builder_add(out, "]");
      break;
    case PARAM_RECORD:
      builder_add(out, "record ");
      print_word(printer, param->type_name);
      builder_add(out, "{");
      print_items(printer, param->list.items, param->list.count, true, depth);
      builder_add(out, "}");
      break;
    case PARAM_ENUM:
      builder_add(out, "enum ");
      print_word(printer, param->type_name);
      builder_add(out, ".");
      print_word(printer, param->text2);
      builder_format(out, "(%" PRId64 ")", param->integer);
      break;
    case PARAM_JAXPR:
      builder_format(out, "jaxpr j%zu", (size_t)(uintptr_t)map_get_pointer(&printer->jaxprs, param->jaxpr) - 1);
      break;
    case PARAM_TENSOR:
      builder_add(out, "tensor ");
      print_tensor(printer, param->tensor);
      break;
    case PARAM_OPAQUE:
      builder_add(out, "opaque ");
      print_word(printer, param->type_name);
      break;
  }
}

/* ---- traces ---- */

static void print_frame(Printer *printer, const Frame *frame) {
  static const char *const kinds[] = {[FRAME_USER] = "", [FRAME_LIBRARY] = "[lib]", [FRAME_JAX] = "[jax]"};
  print_quoted(printer, written_file(printer->provenance, frame->file));
  builder_format(printer->out, ":%d ", frame->line);
  print_quoted(printer, frame->function);
  builder_add(printer->out, kinds[frame->kind]);
  const Span *span = &frame->span;
  if (!span->line) return;
  builder_format(printer->out, "(%d:%d-%d:%d)", span->line, span->column, span->end_line, span->end_column);
}

static void print_module(Printer *printer, const Module *module) {
  const Module *part = module->part ? module->part : module;
  builder_add(printer->out, " in ");
  print_quoted(printer, part->path);
  if (part->class_name) {
    builder_add(printer->out, " of ");
    print_quoted(printer, part->class_name);
  }
  if (!module->scopes) return;
  builder_add(printer->out, " scope ");
  print_quoted(printer, module->scopes);
}

static void print_trace(Printer *printer, const Trace *whole) {
  const char *mark = "@ ";
  for (const Trace *trace = whole; trace; trace = trace->outer, mark = " < ") {
    builder_add(printer->out, mark);
    print_frame(printer, trace->frame);
  }
  if (whole->module) print_module(printer, whole->module);
}

/* ---- jaxprs ---- */

static void print_equation(Printer *printer, const Equation *equation) {
  Builder *out = printer->out;
  builder_add(out, "  ");
  print_definitions(printer, equation->outputs, equation->output_count, false);
  builder_add(out, equation->output_count ? " = " : "= ");
  print_word(printer, equation->primitive);
  builder_add(out, "(");
  print_uses(printer, equation->inputs, equation->input_count);
  builder_add(out, ")");
  if (equation->param_count) {
    builder_add(out, " {");
    print_items(printer, equation->params, equation->param_count, true, 0);
    builder_add(out, "}");
  }
  if (equation->has_effects) builder_add(out, " effects");
  if (equation->trace) {
    builder_add(out, " ");
    print_trace(printer, equation->trace);
  }
  builder_add(out, "\n");
}

static void print_jaxpr(Printer *printer, const Jaxpr *jaxpr, int depth);

static void print_jaxprs_of(Printer *printer, const Param *param, int depth) {
  if (param->kind == PARAM_JAXPR) {
    print_jaxpr(printer, param->jaxpr, depth + 1);
  } else if (param->kind == PARAM_LIST || param->kind == PARAM_RECORD) {
    for (size_t i = 0; i < param->list.count; i++) print_jaxprs_of(printer, &param->list.items[i], depth + 1);
  }
}

static void print_jaxpr(Printer *printer, const Jaxpr *jaxpr, int depth) {
  Builder *out = printer->out;
  if (depth > MAX_JAXPR_DEPTH) fail(printer->context, ERROR_VALUE, "jaxprs are nested too deeply to print");
  if (map_get_pointer(&printer->jaxprs, jaxpr)) return;
  for (size_t e = 0; e < jaxpr->equation_count; e++) {
    const Equation *equation = jaxpr->equations[e];
    for (uint32_t p = 0; p < equation->param_count; p++) print_jaxprs_of(printer, &equation->params[p], depth);
  }
  printer->jaxpr = jaxpr;
  printer->variable_count = 0;
  builder_format(out, "\njaxpr j%zu ", printer->jaxpr_count++);
  *map_slot_pointer(printer->context, &printer->jaxprs, jaxpr) = (void *)(uintptr_t)printer->jaxpr_count;
  if (jaxpr->name) {
    print_quoted(printer, jaxpr->name);
    builder_add(out, " ");
  }
  builder_add(out, "(");
  print_definitions(printer, jaxpr->inputs, jaxpr->input_count, true);
  builder_add(out, ")");
  if (jaxpr->const_count) {
    builder_add(out, " consts (");
    print_definitions(printer, jaxpr->consts, jaxpr->const_count, true);
    builder_add(out, ")");
  }
  builder_add(out, " {\n");
  for (size_t e = 0; e < jaxpr->equation_count; e++) print_equation(printer, jaxpr->equations[e]);
  builder_add(out, jaxpr->output_count ? "  return " : "  return");
  print_uses(printer, jaxpr->outputs, jaxpr->output_count);
  builder_add(out, "\n}\n");
}

/* ---- the program ---- */

static void print_names(Printer *printer, const char *word, const Str *names, uint32_t count) {
  if (!count) return;
  builder_add(printer->out, word);
  for (uint32_t i = 0; i < count; i++) {
    builder_add(printer->out, i ? ", " : " ");
    print_quoted(printer, names ? names[i] : NULL);
  }
  builder_add(printer->out, "\n");
}

void program_print_to(Builder *out, Program *program, DataPlan *data, bool shapes_only) {
  Printer printer = {.out = out,
                     .context = program->context,
                     .provenance = program->provenance,
                     .data = data,
                     .shapes_only = shapes_only};
  const Jaxpr *jaxpr = program->main;
  const Provenance *provenance = program->provenance;
  require(program->context, jaxpr != NULL);
  builder_add(out, "program ");
  print_quoted(&printer, program->name);
  builder_add(out, "\n");
  print_names(&printer, "inputs", program->input_names, jaxpr->input_count);
  print_names(&printer, "outputs", program->output_names, jaxpr->output_count);
  if (program->root) {
    builder_add(out, "root ");
    print_trace(&printer, program->root);
    builder_add(out, "\n");
  }
  for (size_t i = 0; i < provenance->entry_count; i++) {
    builder_add(out, "entry @ ");
    print_frame(&printer, provenance->entry_frames[i]);
    builder_add(out, "\n");
  }
  print_jaxpr(&printer, jaxpr, 0);
}

const char *program_print(Program *program) {
  Builder out;
  builder_init(&out, program->context);
  program_print_to(&out, program, NULL, false);
  return builder_text(&out);
}
