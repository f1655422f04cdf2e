/* Complex numbers as pairs of real ones: the parts of a value, and the way to the real plugins. */
#include "lower/complex/complex.h"

#include <stdlib.h>

#include "base/bytes.h"

enum { SPLIT_BYTES = 4096 /* constants up to here are taken apart at export */ };

struct ComplexProgram {
  Map plugins;                                        /* primitive -> Plugin */
  Map parts;                                          /* (pairs, graph) -> Parts */
  uint32_t first_scratch, next_scratch, last_scratch; /* numbers of variables that rules make */
};

Type pairs_type(Lowering *l, Type parts) {
  if (parts.rank >= MAX_RANK)
    fail(l->context, ERROR_UNSUPPORTED, "a complex array has %d dimensions, which is too many", MAX_RANK);
  return type_append(l->context, parts, 2);
}

Type part_type(Type pairs) { return (Type){.dtype = pairs.dtype, .rank = pairs.rank - 1, .dims = pairs.dims}; }

/* Primitives that do to pairs what they do to numbers: they act along leading axes, or on elements one by one. */
static const char *const unchanged[] = {
    "scan",
    "while",
    "cond",
    "runtime_check",
    "concatenate",
    "split",
    "stack",
    "unstack",
    "broadcast_to",
    "cumsum",
    "reduce_sum",
    "empty",
    "empty2",
    "dimension_size",
    "tie",
    "copy",
    "stage",
    "copy_p",
    "stop_gradient",
    "optimization_barrier",
    "device_put",
    "sharding_constraint",
    "layout_constraint",
    "reshard",
    "name",
    "pbroadcast",
    "pin",
    "unpin",
    "relayout",
    "with_memory_space_constraint",
    "random_wrap",
    "random_unwrap",
    "random_clone",
    "reduced_vary_cast",
    "reduced_vary_cast_p",
    "vary_unreduced_cast",
    "vary_unreduced_cast_p",
};

typedef struct Search {
  const char *primitive;
  const Plugin *found;
} Search;

static void find_row(const Plugin *plugin, void *data) {
  Search *search = data;
  if (strcmp(plugin->primitive, search->primitive) == 0) search->found = plugin;
}

/* The plugin for real numbers, also where the user has one in its place: that knows nothing of pairs. */
static const Plugin *real_plugin(Lowering *l, Str primitive) {
  const Plugin *plugin = map_get_pointer(&l->plugins, primitive);
  if (!plugin || !(plugin->flags & CUSTOM)) return plugin;
  Search search = {.primitive = primitive};
  each_plugin(find_row, &search);
  return search.found;
}

static void register_row(Lowering *l, ComplexProgram *complex, const Plugin *plugin) {
  if (!plugin || plugin->flags & CUSTOM) return; /* the user's plugins know nothing of pairs */
  Str primitive = str_intern(l->context, plugin->primitive);
  *map_slot_pointer(l->context, &complex->plugins, primitive) = (void *)(uintptr_t)plugin;
}

static const Plugin *const families[] = {
    call_plugins,
    collective_plugins,
    function_plugins,
    complex_plugins,
    fft_plugins,
    complex_structure_plugins,
    complex_scatter_plugins,
    complex_arithmetic_plugins,
    complex_function_plugins,
    complex_product_plugins,
    complex_window_plugins,
};

static void register_rows(Lowering *l, ComplexProgram *complex) {
  for (size_t i = 0; i < sizeof unchanged / sizeof *unchanged; i++) {
    register_row(l, complex, real_plugin(l, str_intern(l->context, unchanged[i])));
  }
  for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
    for (const Plugin *plugin = families[f]; plugin->primitive; plugin++) register_row(l, complex, plugin);
  }
}

bool lowers_complex(const char *primitive) {
  for (size_t i = 0; i < sizeof unchanged / sizeof *unchanged; i++) {
    if (strcmp(unchanged[i], primitive) == 0) return true;
  }
  for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
    for (const Plugin *plugin = families[f]; plugin->primitive; plugin++) {
      if (strcmp(plugin->primitive, primitive) == 0) return true;
    }
  }
  Search search = {.primitive = primitive};
  each_plugin(find_row, &search);
  return search.found && search.found->flags & (REFUSED | DROPPED | TAKES_COMPLEX);
}

void complex_begin(Lowering *l) {
  uint32_t count = l->program->var_count;
  if (!l->program->has_complex) {
    l->values = arena_new_array(&l->context->arena, count, Value *);
    return;
  }
  ComplexProgram *complex = arena_new(&l->context->arena, ComplexProgram);
  complex->first_scratch = complex->next_scratch = count;
  complex->last_scratch = count + 2 * l->program->most_operands + 16;
  l->values = arena_new_array(&l->context->arena, complex->last_scratch, Value *);
  register_rows(l, complex);
  l->complex = complex;
}

bool input_is_complex(const Lowering *l, size_t index) { return l->equation->inputs[index]->form == FORM_PAIRS; }
bool output_is_complex(const Lowering *l, size_t index) { return l->equation->outputs[index]->form == FORM_PAIRS; }

const Plugin *complex_plugin_for(Lowering *l, const Equation *equation) {
  if (param_find(equation, "expansion")) return &expansion_plugin;
  const Plugin *plugin = map_get_pointer(&l->complex->plugins, equation->primitive);
  if (plugin) return plugin;
  const Plugin *real = map_get_pointer(&l->plugins, equation->primitive);
  if (real) return real->flags & (REFUSED | DROPPED | TAKES_COMPLEX) ? real : NULL;
  return NULL;
}

/* One part of a constant, every second of its elements. */
static Value *constant_part(Lowering *l, const Tensor *tensor, size_t which) {
  size_t size = dtype_bytes(tensor->dtype, 1), count = tensor->size / (2 * size);
  char *data = arena_alloc_array(&l->context->arena, count, size);
  for (size_t i = 0; i < count; i++) {
    copy_bytes(data + i * size, (const char *)tensor->data + (2 * i + which) * size, size);
  }
  return constant(l, tensor_new(l, tensor->dtype, tensor->dims, tensor->rank - 1, data, count * size));
}

Node *split_pairs(Lowering *l, Value *pairs) {
  static const int64_t sizes[] = {1, 1};
  Dim *dims = arena_copy(&l->context->arena, pairs->type.dims, pairs->type.rank * sizeof *dims);
  dims[pairs->type.rank - 1] = dim_of(1);
  Type type = {.dtype = pairs->type.dtype, .rank = pairs->type.rank, .dims = dims};
  Node *node = EMIT_NODE(l, OP_Split, ((Type[]){type, type}), 2, pairs, constant_ints(l, sizes, 2));
  node_set_int(node, "axis", -1);
  return node;
}

/* By Split, which ONNX Runtime does an order of magnitude faster than Gather. */
static Parts taken_apart(Lowering *l, Value *pairs) {
  Node *halves = split_pairs(l, pairs);
  int64_t axis = (int64_t)pairs->type.rank - 1;
  return (Parts){squeeze_at(l, halves->outputs[0], &axis, 1), squeeze_at(l, halves->outputs[1], &axis, 1)};
}

/* Parts are known where they were made and in the bodies inside. */
static Parts *known_parts(Lowering *l, const Value *value) {
  require(l->context, l->complex);
  Parts *here = map_get(&l->complex->parts, (uint64_t)(uintptr_t)value, (uint64_t)(uintptr_t)l->graph);
  if (here || !value->graph) return here;
  return map_get(&l->complex->parts, (uint64_t)(uintptr_t)value, (uint64_t)(uintptr_t)value->graph);
}

void remember_parts(Lowering *l, Value *value, Parts parts) {
  require(l->context, l->complex);
  Parts *kept = arena_new(&l->context->arena, Parts);
  *kept = parts;
  *map_slot(l->context, &l->complex->parts, (uint64_t)(uintptr_t)value, (uint64_t)(uintptr_t)l->graph) = kept;
}

static bool splits_at_export(const Value *value) {
  return value->tensor && value->tensor->data && !value->tensor->name && value->tensor->size <= SPLIT_BYTES;
}

bool has_known_parts(Lowering *l, Value *value) { return splits_at_export(value) || known_parts(l, value); }

Parts parts_of(Lowering *l, Value *value) {
  const Parts *known = known_parts(l, value);
  if (known) return *known;
  Parts parts;
  if (splits_at_export(value)) {
    parts = (Parts){constant_part(l, value->tensor, 0), constant_part(l, value->tensor, 1)};
  } else {
    parts = taken_apart(l, value);
  }
  remember_parts(l, value, parts);
  return parts;
}

Parts input_parts(Lowering *l, size_t index) {
  Value *value = input(l, index);
  if (input_is_complex(l, index)) return parts_of(l, value);
  return (Parts){value, number_like(l, value, 0)};
}

Value *part_array(Lowering *l, Value *part, Type type) {
  bool same = part->type.rank == type.rank;
  for (uint32_t i = 0; same && i < type.rank; i++) same = dim_equal(part->type.dims[i], type.dims[i]);
  return same ? part : expand_to(l, part, type.dims, type.rank);
}

Parts input_part_arrays(Lowering *l, size_t index) {
  Parts z = input_parts(l, index);
  Type type = part_type(input_type(l, index));
  return (Parts){part_array(l, z.re, type), part_array(l, z.im, type)};
}

Value *join_parts(Lowering *l, Parts parts, Type type) {
  rely_on(l, type.rank);
  Type part = part_type(type);
  int64_t axis = part.rank;
  Value *re = unsqueeze_at(l, part_array(l, parts.re, part), &axis, 1);
  Value *im = unsqueeze_at(l, part_array(l, parts.im, part), &axis, 1);
  Value *pairs = concat_at(l, VALUES(re, im), 2, axis, type);
  remember_parts(l, pairs, parts);
  return pairs;
}

void bind_parts(Lowering *l, size_t index, Parts parts) { bind(l, index, join_parts(l, parts, output_type(l, index))); }

Equation *real_equation(Lowering *l) {
  Equation *equation = arena_copy(&l->context->arena, l->equation, sizeof *equation);
  if (equation->param_count) {
    equation->params = arena_copy(&l->context->arena, equation->params, equation->param_count * sizeof(Param));
  }
  equation->inputs = arena_new_array(&l->context->arena, equation->input_count + 1, Var *);
  copy_bytes(equation->inputs, l->equation->inputs, equation->input_count * sizeof(Var *));
  return equation;
}

Param *edit_param(Lowering *l, Equation *equation, const char *name) {
  param_get(l->context, equation, name); /* fails where there is none */
  for (uint32_t i = 0;; i++) {
    if (equation->params[i].name && strcmp(equation->params[i].name, name) == 0) return &equation->params[i];
  }
}

Param *edit_field(Lowering *l, Param *record, const char *name) {
  rely_on(l, record->kind == PARAM_RECORD);
  record->list.items = arena_copy(&l->context->arena, record->list.items, record->list.count * sizeof(Param));
  for (size_t i = 0; i < record->list.count; i++) {
    if (record->list.items[i].name && strcmp(record->list.items[i].name, name) == 0) return &record->list.items[i];
  }
  fail(l->context, ERROR_UNSUPPORTED, "%s has no '%s'; this version of JAX is not supported", l->equation->primitive,
       name);
}

void append_item(Lowering *l, Param *list, Param item) {
  rely_on(l, list->kind == PARAM_LIST);
  Param *items = arena_new_array(&l->context->arena, list->list.count + 1, Param);
  copy_bytes(items, list->list.items, list->list.count * sizeof *items);
  items[list->list.count++] = item;
  list->list.items = items;
}

void append_int(Lowering *l, Param *list, int64_t item) {
  append_item(l, list, (Param){.kind = PARAM_INT, .integer = item});
}

static Var *scratch_var(Lowering *l, Type type) {
  require(l->context, l->complex->next_scratch < l->complex->last_scratch);
  Var *var = arena_new(&l->context->arena, Var);
  *var = (Var){.id = l->complex->next_scratch++, .type = type};
  return var;
}

Var *real_operand(Lowering *l, Value *value) {
  Var *var = scratch_var(l, value->type);
  l->values[var->id] = value;
  return var;
}

void lower_as_real(Lowering *l, Here here, Equation *equation) {
  const Plugin *plugin = real_plugin(l, equation->primitive);
  rely_on(l, plugin);
  const Equation *outer_equation = l->equation;
  const Plugin *outer_plugin = l->plugin;
  const LowerFrame *outer_calls = l->calls;
  l->calls = lower_frame(l, here);
  l->equation = equation;
  l->plugin = plugin;
  plugin->lower(l);
  l->equation = outer_equation;
  l->plugin = outer_plugin;
  l->calls = outer_calls;
  l->complex->next_scratch = l->complex->first_scratch;
}

Value *apply_real(Lowering *l, Here here, const char *primitive, Type type, Value *const *inputs, size_t count) {
  Equation *equation = real_equation(l);
  equation->primitive = str_intern(l->context, primitive);
  equation->inputs = arena_new_array(&l->context->arena, count, Var *);
  equation->input_count = (uint32_t)count;
  for (size_t i = 0; i < count; i++) equation->inputs[i] = real_operand(l, inputs[i]);
  Var *output = scratch_var(l, type);
  equation->outputs = &output;
  equation->output_count = 1;
  lower_as_real(l, here, equation);
  return l->values[output->id];
}
