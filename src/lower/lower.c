/* The driver of lowering: equations to plugins, nodes with their origins, calls inlined. */
#include "lower/lower.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

#include "lower/books.h"
#include "lower/complex/complex.h"
#include "lower/random/keys.h"
#include "onnx/facts/schema.h"
#include "onnx/graph/definitions.h"
#include "provenance/ledger.h"

static const Plugin *const families[] = {
    call_plugins,        collective_plugins,  function_plugins,   elementwise_plugins, shape_plugins,
    reduction_plugins,   dot_plugins,         scan_plugins,       while_plugins,       cond_plugins,
    convolution_plugins, window_plugins,      convert_plugins,    integer_plugins,     special_plugins,
    cumulative_plugins,  padding_plugins,     gather_plugins,     scatter_plugins,     dynamic_slice_plugins,
    sort_plugins,        bit_plugins,         random_plugins,     refusal_plugins,     reduce_plugins,
    gamma_plugins,       cholesky_plugins,    triangular_plugins, householder_plugins, pivoted_qr_plugins,
    lu_plugins,          tridiagonal_plugins, eigh_plugins,       svd_plugins,         hessenberg_plugins,
    schur_plugins,       eig_plugins,         complex_plugins,    fft_plugins,         runtime_check_plugins,
};

void each_plugin(void (*visit)(const Plugin *plugin, void *data), void *data) {
  for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
    for (const Plugin *plugin = families[f]; plugin->primitive; plugin++) visit(plugin, data);
  }
}

static void register_plugin(const Plugin *plugin, void *data) {
  Lowering *l = data;
  Str primitive = str_intern(l->context, plugin->primitive);
  *map_slot_pointer(l->context, &l->plugins, primitive) = (void *)(uintptr_t)plugin;
}

const Plugin *plugin_for(Lowering *l, const Equation *equation) {
  if (equation->on_pairs) return complex_plugin_for(l, equation);
  const Plugin *plugin = map_get_pointer(&l->plugins, equation->primitive);
  bool lowered = plugin && !(plugin->flags & (REFUSED | EXPANDABLE));
  return lowered || !param_find(equation, "expansion") ? plugin : &expansion_plugin;
}

/* "dot_general" -> "DotGeneralPlugin.lower" */
static Str plugin_name(Context *context, const char *primitive) {
  char name[256];
  size_t length = 0;
  bool upper = true;
  for (const char *c = primitive; *c && length < sizeof name - 16; c++) {
    if (isalnum((unsigned char)*c)) name[length++] = upper ? (char)toupper((unsigned char)*c) : *c;
    upper = !isalnum((unsigned char)*c);
  }
  name[length] = '\0';
  return str_intern(context, arena_format(&context->arena, "%sPlugin.lower", name));
}

static const Emitter *emitter_at(Lowering *l, Here here) {
  uint64_t key = (uint64_t)(uintptr_t)here.function ^ (uint64_t)here.line << 48;
  void **slot = map_slot(l->context, &l->emitters, key, (uint64_t)(uintptr_t)l->plugin);
  if (!*slot) {
    Emitter *emitter = arena_new(&l->context->arena, Emitter);
    bool own = l->plugin && strcmp(here.function, l->plugin->function) == 0;
    *emitter =
        (Emitter){.name = own ? plugin_name(l->context, l->plugin->primitive) : str_intern(l->context, here.function),
                  .file = source_path(here.file),
                  .line = here.line};
    *emitter = emitter_rendered(l->provenance, *emitter);
    *slot = emitter;
  }
  return *slot;
}

static const Origin *origin_at(Lowering *l, Here here) {
  l->own_nodes++;
  return origin_new(l->provenance, l->site, *emitter_at(l, here), l->calls);
}

Node *emit_foreign(Lowering *l, Here here, const char *op_type, const char *domain, const Type *types,
                   size_t type_count, Value *const *inputs, size_t count) {
  return graph_named_node(l->graph, origin_at(l, here), op_type, domain, inputs, count, types, type_count, NULL);
}

Node *emit_node(Lowering *l, Here here, Op op, const Type *types, size_t type_count, Value *const *inputs,
                size_t count) {
  return graph_node(l->graph, origin_at(l, here), op, inputs, count, types, type_count, NULL);
}

Value *emit_value(Lowering *l, Here here, Op op, Type type, Value *const *inputs, size_t count) {
  /* JAX asks whether x is a NaN by x != x: each IsNaN is a guard of ours. */
  if (op == OP_IsNaN && l->options->drop_nan_guards) return filled(l, type, tensor_scalar(l, DTYPE_BOOL, 0));
  return emit_node(l, here, op, &type, 1, inputs, count)->outputs[0];
}

/* A literal of the program says which line holds it; a weight is known by its name. */
static Value *literal_value(Lowering *l, const Tensor *tensor) {
  Value *value = constant(l, tensor);
  if (value->tensor && !tensor->name && !value->literal && l->plugin) {
    value->literal = origin_new(l->provenance, l->site, *emitter_at(l, ROW_HERE(l)), l->calls);
  }
  return value;
}

static Value *value_of(Lowering *l, const Var *var) {
  if (var->literal) return literal_value(l, var->literal);
  Value *value = l->values[var->id];
  rely_on(l, value);
  return value;
}

Value *input(Lowering *l, size_t index) {
  rely_on(l, index < l->equation->input_count);
  return value_of(l, l->equation->inputs[index]);
}

const Tensor *input_literal(Lowering *l, size_t index) {
  rely_on(l, index < l->equation->input_count);
  const Var *var = l->equation->inputs[index];
  if (var->literal) return var->literal;
  Value *value = l->values[var->id];
  return value ? value->tensor : NULL;
}

Type input_type(Lowering *l, size_t index) {
  rely_on(l, index < l->equation->input_count);
  return l->equation->inputs[index]->type;
}

Type output_type(Lowering *l, size_t index) {
  rely_on(l, index < l->equation->output_count);
  return l->equation->outputs[index]->type;
}

void bind(Lowering *l, size_t index, Value *value) {
  rely_on(l, index < l->equation->output_count);
  rely_on(l, value);
  l->values[l->equation->outputs[index]->id] = value;
}

static const char *place(Lowering *l, const Site *site) {
  const Frame *frame = site ? site_user_frame(l->provenance, site) : NULL;
  if (!frame) return "an unknown line (JAX did not record it)";
  return arena_format(&l->context->arena, "%s:%d in %s", frame->file, frame->line, frame->function);
}

void refuse_equation(const Lowering *l, const char *file, int line, const char *condition) {
  if (!l->program->is_text) fail(l->context, ERROR_INTERNAL, "%s:%d: broken invariant: %s", file, line, condition);
  fail(l->context, ERROR_FORMAT, "JAX traces no such %s: what lowers it relies on %s (%s:%d)",
       l->equation ? l->equation->primitive : "program", condition, file, line);
}

void unsupported(Lowering *l, const char *format, ...) {
  char reason[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  Str primitive = l->equation ? l->equation->primitive : str_intern(l->context, "to_onnx");
  Unsupported problem = {primitive, arena_copy_text(&l->context->arena, reason), l->site};
  array_push(l->context, l->problems, problem);
  fail(l->context, ERROR_UNSUPPORTED, "%s at %s: %s", primitive, place(l, l->site), reason);
}

void notice(Lowering *l, const char *reason) {
  Str primitive = l->equation->primitive;
  const char *text = arena_format(&l->context->arena, "%s is left out of the model: %s", primitive, reason);
  array_push(l->context, l->notices, ((Unsupported){primitive, text, l->site}));
}

/* An equation whose result is a constant is one of the lines that the constant stands for. */
static void owe_to_constant(Lowering *l, Value *value) {
  const Origin *origin = origin_new(l->provenance, l->site, *emitter_at(l, ROW_HERE(l)), l->calls);
  if (!value->origin) {
    value->origin = origin;
    return;
  }
  Value *debtor = arena_new(&l->context->arena, Value);
  *debtor = (Value){.origin = origin, .graph = value->graph, .heir = {.value = value}};
  array_push(l->context, &l->model->removals, ((Removal){.value = debtor, .pass = "lowering"}));
}

/* Where JAX recorded no traceback, the traced function itself is what can be named. */
const Site *equation_site(Lowering *l, const Equation *equation, const Site *caller) {
  return site_intern(l->provenance, equation->trace || caller ? equation->trace : l->program->root, caller);
}

static void lower_equation(Lowering *l, const Equation *equation) {
  const Plugin *plugin = plugin_for(l, equation);
  rely_on(l, plugin);
  for (uint32_t i = 0; i < equation->output_count; i++) l->values[equation->outputs[i]->id] = NULL;
  l->equation = equation;
  l->plugin = plugin;
  l->site = equation_site(l, equation, l->caller);
  l->own_nodes = 0;
  l->called = NULL;
  plugin->lower(l);
  for (uint32_t i = 0; i < equation->output_count; i++) {
    Value *value = l->values[equation->outputs[i]->id];
    rely_on(l, value);
    if (!l->provenance->ledger || !value->tensor || value->tensor->name) continue;
    owe_to_constant(l, value);
    l->own_nodes++;
  }
  if (l->provenance->ledger) book_lowered(l);
}

static void lower_jaxpr(Lowering *l, const Jaxpr *jaxpr, Value *const *arguments, Value **results) {
  for (uint32_t i = 0; i < jaxpr->const_count; i++) {
    if (!jaxpr->consts[i]->literal) l->values[jaxpr->consts[i]->id] = *arguments++;
  }
  for (uint32_t i = 0; i < jaxpr->input_count; i++) l->values[jaxpr->inputs[i]->id] = arguments[i];
  for (size_t i = 0; i < jaxpr->equation_count; i++) lower_equation(l, jaxpr->equations[i]);
  if (l->provenance->ledger) book_dropped(l, jaxpr);
  for (uint32_t i = 0; i < jaxpr->output_count; i++) results[i] = value_of(l, jaxpr->outputs[i]);
}

const LowerFrame *lower_frame(Lowering *l, Here here) {
  const Emitter *emitter = emitter_at(l, here);
  LowerFrame *frame = arena_new(&l->context->arena, LowerFrame);
  *frame = (LowerFrame){.file = emitter->file, .function = emitter->name, .line = emitter->line, .outer = l->calls};
  return frame;
}

static void lower_nested(Lowering *l, Here here, const Site *caller, const Jaxpr *jaxpr, Value *const *arguments,
                         Value **results) {
  Lowering saved = *l;
  l->calls = lower_frame(l, here);
  l->caller = caller;
  lower_jaxpr(l, jaxpr, arguments, results);
  l->equation = saved.equation;
  l->plugin = saved.plugin;
  l->site = saved.site;
  l->caller = saved.caller;
  l->calls = saved.calls;
  l->own_nodes = saved.own_nodes;
  l->called = jaxpr;
  ((Jaxpr *)(uintptr_t)jaxpr)->lowered_at = caller;
}

void lower_call(Lowering *l, Here here, const Jaxpr *jaxpr, Value *const *arguments, Value **results) {
  lower_nested(l, here, l->site, jaxpr, arguments, results);
}

void lower_region(Lowering *l, Here here, const Jaxpr *jaxpr, Value *const *arguments, Value **results) {
  lower_nested(l, here, l->caller, jaxpr, arguments, results);
}

Graph *subgraph_begin(Lowering *l, const char *name) {
  Graph *outer = l->graph;
  l->graph = graph_new(l->model, str_intern(l->context, name));
  return outer;
}

Graph *subgraph_end(Lowering *l, Graph *outer) {
  Graph *subgraph = l->graph;
  l->graph = outer;
  return subgraph;
}

void subgraph_output(Lowering *l, Value *value) {
  bool own = value->graph == l->graph && value->producer && !value_is_output(value);
  graph_output(l->graph, own ? value : EMIT(l, OP_Identity, value->type, value));
}

/* Every primitive without a plugin, each with the site of its first use. Shared jaxprs are visited once. */
typedef struct Scan {
  Lowering *l;
  Map visited;
  UnsupportedList *problems;
} Scan;

typedef struct CarriedScan {
  Scan *scan;
  const Site *site;
} CarriedScan;

static void scan_jaxpr(Scan *scan, const Jaxpr *jaxpr, const Site *caller);

static void scan_carried(void *data, const Jaxpr *jaxpr) {
  const CarriedScan *carried = data;
  scan_jaxpr(carried->scan, jaxpr, carried->site);
}

static void scan_jaxpr(Scan *scan, const Jaxpr *jaxpr, const Site *caller) {
  Lowering *l = scan->l;
  void **slot = map_slot_pointer(l->context, &scan->visited, jaxpr);
  if (*slot) return;
  *slot = scan;
  for (size_t i = 0; i < jaxpr->equation_count; i++) {
    const Equation *equation = jaxpr->equations[i];
    const Plugin *plugin = plugin_for(l, equation);
    bool refused = !plugin || plugin->flags & REFUSED || (plugin->flags & DROPPED && equation->output_count);
    if (!refused && !equation->param_count) continue;
    const Site *site = site_intern(l->provenance, equation->trace, caller);
    if (refused) {
      const char *reason = plugin ? plugin->reason : "there is no lowering for this primitive";
      if (!plugin && map_get_pointer(&l->plugins, equation->primitive))
        reason = "it is not supported for complex numbers or for keys of this kind";
      Unsupported problem = {equation->primitive, reason, site};
      array_push(l->context, scan->problems, problem);
      continue;
    }
    each_carried_jaxpr(equation, plugin, scan_carried, &(CarriedScan){scan, site});
  }
}

static void check_supported(Lowering *l) {
  UnsupportedList *problems = l->problems;
  Scan scan = {.l = l, .problems = problems};
  scan_jaxpr(&scan, l->program->main, NULL);
  if (!problems->count) return;
  Builder out;
  builder_init(&out, l->context);
  builder_add(&out, "the program uses primitives that cannot be exported:");
  for (size_t i = 0; i < problems->count; i++) {
    const Unsupported *problem = &problems->items[i];
    builder_format(&out, "\n  %s at %s: %s", problem->primitive, place(l, problem->site), problem->reason);
  }
  fail_text(l->context, ERROR_UNSUPPORTED, builder_text(&out));
}

/* A complex array has its two parts on a fifth axis. */
static const int64_t nchw_to_nhwc[] = {0, 2, 3, 1, 4}, nhwc_to_nchw[] = {0, 3, 1, 2, 4};

static Type permuted(Lowering *l, Type type, const int64_t *permutation) {
  Dim dims[5];
  rely_on(l, type.rank <= 5);
  for (uint32_t i = 0; i < type.rank; i++) dims[i] = type.dims[permutation[i]];
  return type_make(l->context, type.dtype, dims, type.rank);
}

static Value *lower_input(Lowering *l, uint32_t index) {
  const Var *var = l->program->main->inputs[index];
  Str name = l->program->input_names[index];
  bool nchw = l->options->input_nchw && l->options->input_nchw[index];
  if (var->type.dtype == DTYPE_NONE) {
    fail(l->context, ERROR_UNSUPPORTED, "input %u has an element type that ONNX models cannot have", index);
  }
  if (var->form == FORM_KEY) return key_from_words(l, graph_input(l->graph, key_words_type(l, var->type), name));
  if (!nchw) return graph_input(l->graph, var->type, name);
  Value *outside = graph_input(l->graph, permuted(l, var->type, nhwc_to_nchw), name);
  return transpose_by(l, outside, nchw_to_nhwc);
}

/* An output needs a node of its own when its value is an input, a constant, or already an output. */
static void lower_output(Lowering *l, uint32_t index, Value *value) {
  if (l->program->main->outputs[index]->form == FORM_KEY) value = words_from_key(l, value);
  bool nchw = l->options->output_nchw && l->options->output_nchw[index];
  if (nchw) value = transpose_by(l, value, nhwc_to_nchw);
  if (!value->producer || value_is_output(value)) value = EMIT(l, OP_Identity, value->type, value);
  value->name = l->program->output_names[index];
  value->name_fixed = true;
  graph_output(l->graph, value);
}

Model *lower_program(Program *program, const LowerOptions *options, UnsupportedList *problems,
                     UnsupportedList *notices) {
  Context *context = program->context;
  const Jaxpr *jaxpr = program->main;
  Model *model = model_new(context, program->provenance, options->opset);
  model->target = options->target;
  model->rounds_products = options->round_products;
  model->graph = graph_new(model, program->name);
  array_push(context, &model->opsets, ((OpsetImport){str_intern(context, ""), options->opset}));
  Scope scope = {.graph = model->graph};
  Lowering l = {.context = context,
                .program = program,
                .provenance = program->provenance,
                .model = model,
                .options = options,
                .graph = model->graph,
                .scope = &scope,
                .problems = problems,
                .notices = notices};
  each_plugin(register_plugin, &l);
  register_custom_plugins(&l);
  complex_begin(&l);
  check_supported(&l);
  if (options->list_traced && program->provenance->ledger) list_traced(&l);
  const Site *root = site_intern(program->provenance, program->root, NULL);
  l.site = root;
  Value **arguments = arena_new_array(&context->arena, jaxpr->input_count, Value *);
  Value **results = arena_new_array(&context->arena, jaxpr->output_count, Value *);
  for (uint32_t i = 0; i < jaxpr->input_count; i++) arguments[i] = lower_input(&l, i);
  lower_jaxpr(&l, jaxpr, arguments, results);
  l.site = root;
  l.plugin = NULL;
  for (uint32_t i = 0; i < jaxpr->output_count; i++) lower_output(&l, i, results[i]);
  unite_shared_functions(model);
  return model;
}
