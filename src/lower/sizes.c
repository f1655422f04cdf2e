/* Dimensions at run time: each expression is computed once, at the head of the main graph or of the function's body,
 * from the shapes of its inputs. A function is given the sizes that its inputs do not tell. */
#include "lower/lower.h"
#include "onnx/facts/schema.h"

typedef struct SymbolSource {
  Value *input;
  int64_t axis;
  int64_t scale, offset; /* the input's dimension is scale * symbol + offset */
} SymbolSource;

static const Dim one_element[] = {{.constant = 1}};
static const Type size_type = {.dtype = DTYPE_INT64, .rank = 1, .dims = one_element};

/* Is the dimension scale * symbol + offset? */
static bool linear_symbol(Dim dim, Str *symbol, int64_t *scale, int64_t *offset) {
  if (!dim.expr || dim.expr->term_count > 2) return false;
  const DimTerm *first = &dim.expr->terms[0];
  if (first->factor_count != 1 || first->factors[0].op != DIM_SYMBOL || first->factors[0].power != 1) return false;
  *symbol = first->factors[0].symbol;
  *scale = first->coefficient;
  *offset = 0;
  if (dim.expr->term_count == 2) {
    if (dim.expr->terms[1].factor_count) return false;
    *offset = dim.expr->terms[1].coefficient;
  }
  return true;
}

static void find_symbols(Lowering *l) {
  const Graph *graph = l->scope->graph;
  for (int plain = 1; plain >= 0; plain--) { /* an input that is the symbol itself before one that must be solved */
    for (size_t i = 0; i < graph->inputs.count; i++) {
      Value *value = graph->inputs.items[i];
      for (uint32_t axis = 0; axis < value->type.rank; axis++) {
        Str symbol;
        int64_t scale, offset;
        if (!linear_symbol(value->type.dims[axis], &symbol, &scale, &offset)) continue;
        if (plain && (scale != 1 || offset != 0)) continue;
        void **slot = map_slot_pointer(l->context, &l->scope->symbols, symbol);
        if (*slot) continue;
        SymbolSource *source = arena_new(&l->context->arena, SymbolSource);
        *source = (SymbolSource){value, axis, scale, offset};
        *slot = source;
      }
    }
  }
}

static Value *compute(Lowering *l, Dim dim);

static Value *binary(Lowering *l, Op op, Value *a, Value *b) { return EMIT(l, op, size_type, a, b); }

static Value *number(Lowering *l, int64_t value) { return constant_ints(l, &value, 1); }

static Value *captured_size(Lowering *l, Str symbol) {
  Value *value = graph_input(l->scope->graph, size_type, NULL);
  value->name = str_intern(l->context, arena_format(&l->context->arena, "size_%s", symbol));
  array_push(l->context, &l->scope->captures, ((Capture){.dim = dim_symbol(l->context, symbol)}));
  return value;
}

static Value *size_along_axis(Lowering *l, Value *input, int64_t axis) {
  enum { SHAPE_OF_SOME_AXES = 15 };
  if (schema_version(OP_Shape, l->options->opset) < SHAPE_OF_SOME_AXES) {
    const Dim rank = dim_of(input->type.rank);
    Value *shape = EMIT(l, OP_Shape, type_make(l->context, DTYPE_INT64, &rank, 1), input);
    return EMIT(l, OP_Slice, size_type, shape, number(l, axis), number(l, axis + 1));
  }
  Value *value = EMIT(l, OP_Shape, size_type, input);
  node_set_int(value->producer, "start", axis);
  node_set_int(value->producer, "end", axis + 1);
  return value;
}

static Value *symbol_value(Lowering *l, Str symbol) {
  const SymbolSource *source = map_get_pointer(&l->scope->symbols, symbol);
  if (!source && l->scope->is_function) return captured_size(l, symbol);
  if (!source) unsupported(l, "dimension '%s' cannot be determined from the shapes of the inputs", symbol);
  Value *value = size_along_axis(l, source->input, source->axis);
  if (source->offset) value = binary(l, OP_Sub, value, number(l, source->offset));
  if (source->scale != 1) value = binary(l, OP_Div, value, number(l, source->scale));
  return value;
}

/* ONNX integer Div truncates; floor division of a negative number needs a correction only a - Mod(a, b) gives. */
static Value *floor_divide(Lowering *l, Value *a, Value *b) {
  Value *remainder = binary(l, OP_Mod, a, b);
  return binary(l, OP_Div, binary(l, OP_Sub, a, remainder), b);
}

static Value *factor_value(Lowering *l, const DimFactor *factor) {
  if (factor->op == DIM_SYMBOL) return compute(l, dim_symbol(l->context, factor->symbol));
  Value *left = compute(l, factor->left), *right = compute(l, factor->right);
  switch (factor->op) {
    case DIM_FLOORDIV: return floor_divide(l, left, right);
    case DIM_MOD: return binary(l, OP_Mod, left, right);
    case DIM_MAX: return binary(l, OP_Max, left, right);
    default: return binary(l, OP_Min, left, right);
  }
}

static Value *term_value(Lowering *l, const DimTerm *term) {
  Value *product = NULL;
  for (size_t i = 0; i < term->factor_count; i++) {
    Value *factor = factor_value(l, &term->factors[i]);
    for (int64_t p = 0; p < term->factors[i].power; p++)
      product = product ? binary(l, OP_Mul, product, factor) : factor;
  }
  if (!product) return number(l, term->coefficient);
  return term->coefficient == 1 ? product : binary(l, OP_Mul, product, number(l, term->coefficient));
}

static Value *compute_expression(Lowering *l, const DimExpr *expr) {
  const DimTerm *first = &expr->terms[0];
  bool symbol = expr->term_count == 1 && first->coefficient == 1 && first->factor_count == 1 &&
                first->factors[0].op == DIM_SYMBOL && first->factors[0].power == 1;
  if (symbol) return symbol_value(l, first->factors[0].symbol);
  Value *sum = NULL;
  for (size_t i = 0; i < expr->term_count; i++) {
    Value *term = term_value(l, &expr->terms[i]);
    sum = sum ? binary(l, OP_Add, sum, term) : term;
  }
  return sum;
}

static Value *compute(Lowering *l, Dim dim) {
  if (dim_is_constant(dim)) return number(l, dim.constant);
  void **slot = map_slot_pointer(l->context, &l->scope->dimensions, dim.expr);
  if (*slot) return *slot;
  Value *value = compute_expression(l, dim.expr);
  *map_slot_pointer(l->context, &l->scope->dimensions, dim.expr) = value;
  return value;
}

Value *dimension_value(Lowering *l, Dim dim) {
  if (dim_is_constant(dim)) return number(l, dim.constant);
  Value *known = map_get_pointer(&l->scope->dimensions, dim.expr);
  if (known) return known;
  if (!l->scope->symbols.count) find_symbols(l);
  /* Nodes are appended to the graph and then moved to its head, behind earlier dimension arithmetic. */
  Graph *main = l->scope->graph, *current = l->graph;
  Node *last = main->last;
  l->graph = main;
  Value *value = compute(l, dim);
  l->graph = current;
  Node *before = l->scope->last_dimension ? l->scope->last_dimension->next : main->first;
  for (Node *node = last ? last->next : main->first; node;) {
    Node *next = node->next;
    if (node != before) node_move(node, before);
    else before = next;
    l->scope->last_dimension = node;
    node = next;
  }
  return value;
}

Value *dimension_scalar(Lowering *l, Dim dim, DType dtype) {
  if (dim_is_constant(dim)) return constant_integer(l, dtype, dim.constant);
  Value *value = cast_to(l, dimension_value(l, dim), dtype);
  return squeeze_at(l, value, (int64_t[]){0}, 1);
}

Value *shape_value(Lowering *l, const Dim *dims, size_t count) {
  bool constant = true;
  for (size_t i = 0; i < count; i++) constant = constant && dim_is_constant(dims[i]);
  int64_t *numbers = arena_new_array(&l->context->arena, count, int64_t);
  if (constant) {
    for (size_t i = 0; i < count; i++) numbers[i] = dims[i].constant;
    return constant_ints(l, numbers, count);
  }
  /* Neighbouring constants share one piece of the concatenation. */
  Value **pieces = arena_new_array(&l->context->arena, count, Value *);
  size_t piece_count = 0;
  for (size_t i = 0; i < count;) {
    size_t run = 0;
    while (i + run < count && dim_is_constant(dims[i + run])) {
      numbers[run] = dims[i + run].constant;
      run++;
    }
    if (run) {
      pieces[piece_count++] = constant_ints(l, numbers, run);
      i += run;
    } else {
      pieces[piece_count++] = dimension_value(l, dims[i++]);
    }
  }
  Dim length = dim_of((int64_t)count);
  return concat_at(l, pieces, piece_count, 0, type_make(l->context, DTYPE_INT64, &length, 1));
}

Dim data_dimension(Lowering *l) {
  const char *name = arena_format(&l->context->arena, "data_size_%zu", l->data_sizes++);
  return dim_symbol(l->context, str_intern(l->context, name));
}
