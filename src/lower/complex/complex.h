/* Complex numbers.
 *
 * ONNX Runtime computes on real tensors only, so a complex array is a real one with a last axis of 2, (real,
 * imaginary), in the model's inputs and outputs as well as inside: the program comes with that real type
 * (legalize/legalize.h). An equation that has one among its inputs or outputs is lowered by a row of the tables here;
 * those that only move elements edit their parameters and go on as their real namesake does.
 *
 * Formulas work on the two parts of a value. What was joined from two parts is remembered with them, so that a chain of
 * formulas never takes apart what it has just put together; joins that nobody reads are dead code.
 */
#ifndef J2O_LOWER_COMPLEX_COMPLEX_H
#define J2O_LOWER_COMPLEX_COMPLEX_H

#include "lower/elementwise/arithmetic.h"

/* Either part may be a scalar that stands for an array of equal elements. */
typedef struct Parts {
  Value *re, *im;
} Parts;

/* Makes l->values, with room for the operands that rules make where the program has complex numbers. */
void complex_begin(Lowering *l);
bool input_is_complex(const Lowering *l, size_t index);
bool output_is_complex(const Lowering *l, size_t index);
/* The row for an equation that touches complex numbers, or NULL. */
const Plugin *complex_plugin_for(Lowering *l, const Equation *equation);

/* Is there a row for complex numbers? */
bool lowers_complex(const char *primitive);

/* The parts of a complex value; of an input, which may be real. */
Parts parts_of(Lowering *l, Value *value);
Parts input_parts(Lowering *l, size_t index);
Parts input_part_arrays(Lowering *l, size_t index); /* both of the input's shape */
bool has_known_parts(Lowering *l, Value *value);    /* taking them costs no node */
void remember_parts(Lowering *l, Value *value, Parts parts);
Node *split_pairs(Lowering *l, Value *pairs); /* into parts that keep the axis */
/* A value of that type (of the pairs) from its parts. */
Value *join_parts(Lowering *l, Parts parts, Type type);
void bind_parts(Lowering *l, size_t index, Parts parts);
Type part_type(Type pairs);                             /* without the last axis */
Type pairs_type(Lowering *l, Type parts);               /* with it */
Value *part_array(Lowering *l, Value *part, Type type); /* a part that may be a scalar, as an array of that shape */

/* An equation like the current one whose parameters may be edited, and inputs replaced. */
Equation *real_equation(Lowering *l);
Param *edit_param(Lowering *l, Equation *equation, const char *name);
Param *edit_field(Lowering *l, Param *record, const char *name);
void append_item(Lowering *l, Param *list, Param item);
void append_int(Lowering *l, Param *list, int64_t item);
Var *real_operand(Lowering *l, Value *value);
/* Lowers the equation by the plugin of its primitive for real numbers. */
void lower_as_real(Lowering *l, Here here, Equation *equation);

/* A primitive on real values, by its own plugin, the parameters taken from the current equation. */
Value *apply_real(Lowering *l, Here here, const char *primitive, Type type, Value *const *inputs, size_t count);
#define APPLY(l, primitive, type, ...) \
  apply_real((l), HERE, (primitive), (type), VALUES(__VA_ARGS__), COUNT_OF(__VA_ARGS__))

/* Formulas that several families use (complex_arithmetic.c, complex_functions.c). */
Parts multiply_parts(Lowering *l, Here here, Parts a, Parts b);
#define EMIT_PRODUCT(l, ...) multiply_parts((l), HERE, __VA_ARGS__)
Parts divide_parts(Lowering *l, Parts a, Parts b);
/* The greater (OP_Greater) or the lesser (OP_Less): by the real parts, and among equal ones by the imaginary ones. */
Parts extreme_parts(Lowering *l, Here here, Op op, Parts a, Parts b);
Value *magnitude(Lowering *l, Parts z); /* |z|, without overflow on the way */

/* Rows that stand in for a primitive's own where it touches complex numbers. */
extern const Plugin complex_structure_plugins[], complex_arithmetic_plugins[], complex_function_plugins[],
    complex_product_plugins[], complex_scatter_plugins[], complex_window_plugins[];

#endif
