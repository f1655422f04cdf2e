"""Statements that compute each element by itself: arithmetic, functions, comparisons, bits, casts, choices."""

from __future__ import annotations

from scope import NoFit, Scope, draft, words

ROUNDING_UNARY = words(
    """
    jnp.sin jnp.cos jnp.tan jnp.tanh jnp.sinh jnp.cosh jnp.exp jnp.exp2 jnp.expm1 jnp.log jnp.log2 jnp.log10 jnp.log1p
    jnp.sqrt lax.rsqrt jnp.cbrt jnp.arcsin jnp.arccos jnp.arctan jnp.arcsinh jnp.arccosh jnp.arctanh jnp.reciprocal
    jnp.deg2rad jnp.sinc lax.logistic lax.erf lax.erfc lax.erf_inv lax.lgamma jnp.square jnp.i0
    jax.scipy.special.expit jax.scipy.special.entr jax.scipy.special.ndtr jax.nn.relu jax.nn.relu6 jax.nn.sigmoid
    jax.nn.softplus jax.nn.silu jax.nn.gelu jax.nn.elu jax.nn.selu jax.nn.celu jax.nn.leaky_relu jax.nn.hard_tanh
    jax.nn.hard_sigmoid jax.nn.hard_silu jax.nn.mish jax.nn.soft_sign jax.nn.log_sigmoid jax.nn.squareplus
    jax.nn.sparse_plus jax.nn.sparse_sigmoid
    """
)
EXACT_FLOAT_UNARY = words(
    """
    jnp.floor jnp.ceil jnp.round jnp.trunc jnp.rint jnp.isnan jnp.isinf jnp.isfinite jnp.isposinf jnp.isneginf
    lax.is_finite jnp.frexp jnp.modf
    """
)
EXACT_UNARY = words(
    """
    jnp.abs jnp.negative jnp.sign jnp.positive lax.stop_gradient jnp.logical_not lax.optimization_barrier
    """
)
BIT_UNARY = words(
    """
    jnp.invert lax.population_count lax.clz jnp.bitwise_count
    """
)
ROUNDING_BINARY = words(
    """
    jnp.add jnp.subtract jnp.multiply jnp.true_divide
    """
)
FLOAT_BINARY = words(
    """
    jnp.power jnp.arctan2 jnp.hypot jnp.logaddexp jnp.logaddexp2 jax.scipy.special.xlogy
    """
)
EXACT_BINARY = words(
    """
    jnp.maximum jnp.minimum jnp.fmax jnp.fmin jnp.equal jnp.not_equal jnp.less jnp.less_equal jnp.greater
    jnp.greater_equal jnp.logical_and jnp.logical_or jnp.logical_xor jnp.remainder jnp.fmod jnp.floor_divide
    """
)
BIT_BINARY = words(
    """
    jnp.bitwise_and jnp.bitwise_or jnp.bitwise_xor
    """
)
INTEGER_BINARY = words(
    """
    jnp.left_shift jnp.right_shift lax.shift_right_logical lax.shift_right_arithmetic lax.shift_left lax.div lax.rem
    jnp.add jnp.subtract jnp.multiply jnp.gcd
    """
)
SAME_BITS = {
    "8": ("int8", "uint8"),
    "16": ("int16", "uint16", "float16", "bfloat16"),
    "32": ("int32", "uint32", "float32"),
    "64": ("int64", "uint64", "float64"),
}


# Not at its poles: at 0 the derivative is digamma's, and a float16 beside another is one or is not.
OPERANDS = {"lax.lgamma": "jnp.where({0} <= 0, 3 - {0}, {0})"}


def rounding_unary(s: Scope):
    function = s.choice(ROUNDING_UNARY)
    return draft(f"{function}({OPERANDS.get(function, '{0}')})", s.pick("f"))


def finite(s: Scope):
    """Not the largest number in place of an infinity: whether a sum of such overflows is decided by its order."""
    return draft("jnp.nan_to_num({0}, posinf=24, neginf=-24)", s.pick("f"), exact=True)


def digamma(s: Scope):
    """Not at its poles: at 0 JAX 0.10 gives NaN and later ones -inf; beside one all hangs on the last place."""
    return draft("lax.digamma(jnp.where({0} < 0.01, 3 - {0}, {0}))", s.pick("f"))


def exact_float_unary(s: Scope):
    return draft(s.choice(EXACT_FLOAT_UNARY) + "({0})", s.pick("f"), exact=True)


def exact_unary(s: Scope):
    return draft(s.choice(EXACT_UNARY) + "({0})", s.pick(), exact=True)


def bit_unary(s: Scope):
    return draft(s.choice(BIT_UNARY) + "({0})", s.pick("iu"), exact=True)


def rounding_binary(s: Scope):
    a = s.pick("fiu")
    return _binary(s, s.choice(ROUNDING_BINARY), a, exact=False)


def float_binary(s: Scope):
    return _binary(s, s.choice(FLOAT_BINARY), s.pick("f"), exact=False)


def exact_binary(s: Scope):
    return _binary(s, s.choice(EXACT_BINARY), s.pick("fiub"), exact=True)


def bit_binary(s: Scope):
    return _binary(s, s.choice(BIT_BINARY), s.pick("iub"), exact=True)


def integer_binary(s: Scope):
    function = s.choice(INTEGER_BINARY)
    a = s.pick("iu")
    if function.startswith("lax."):
        return draft(function + "({0}, {1})", a, s.same(a), exact=True)
    return _binary(s, function, a, exact=True)


def _binary(s: Scope, function: str, a: str, exact: bool):
    if s.chance(0.25):
        literal = s.literal(s.dtype(a))
        if function == "jnp.true_divide" and float(literal) == 0:  # ONNX Runtime would multiply a later product by inf
            literal = "4"
        order = "({0}, %s)" if s.chance(0.7) else "(%s, {0})"
        return draft(function + order % literal, a, exact=exact)
    b = s.pick("fiub") if s.chance(0.1) else s.partner(a)
    return draft(function + "({0}, {1})", a, b, exact=exact)


def operator(s: Scope):
    """Python's own operators."""
    a = s.pick("fiu")
    symbol = s.choice(["+", "-", "*", "/", "**"] if s.kind(a) == "f" else ["+", "-", "*", "//", "%", "&", "|", "^"])
    if symbol == "**":
        return draft("{0} ** " + s.choice(["2", "3", "-1", "0.5", "1", "0"]), a)
    b = s.partner(a)
    return draft(f"{{0}} {symbol} {{1}}", a, b)


def cast(s: Scope):
    return draft(f"{{0}}.astype('{s.any_dtype()}')", s.pick(), exact=False)


def bitcast(s: Scope):
    a = s.pick("fiu")
    target = s.choice(SAME_BITS["".join(filter(str.isdigit, s.dtype(a).replace("bfloat", "float")))])
    if s.kind(a) != "f" and "float" in target:  # XLA takes subnormal numbers for 0
        raise NoFit
    source = "jnp.where(jnp.isnan({0}), 1, {0})" if s.kind(a) == "f" else "{0}"  # the bits of NaN are not defined
    return draft(f"lax.bitcast_convert_type({source}, '{target}')", a, exact=True)


def where(s: Scope):
    condition = s.pick("b") if s.chance(0.5) else None
    a = s.pick()
    b = s.literal(s.dtype(a)) if s.chance(0.3) else None
    if condition is None:
        test = s.choice(["{0} > {0}", "{0} > 0", "{0} != {0}", "{0} <= 1"])
        return draft(f"jnp.where({test}, {{0}}, {b or '{1}'})", a, *([] if b else [s.partner(a)]), exact=True)
    if b:
        return draft(f"jnp.where({{0}}, {{1}}, {b})", condition, a, exact=True)
    return draft("jnp.where({0}, {1}, {2})", condition, a, s.partner(a), exact=True)


def select(s: Scope):
    a = s.pick()
    which = s.pick("b", fits=lambda type_: type_.shape == s.shape(a))
    return draft("lax.select({0}, {1}, {2})", which, a, s.same(a), exact=True)


def select_many(s: Scope):
    a = s.pick()
    which = s.pick("i", fits=lambda type_: type_.shape in (s.shape(a), ()) and str(type_.dtype) == "int32")
    return draft("lax.select_n(jnp.clip({0}, 0, 2), {1}, {2}, {1})", which, a, s.same(a), exact=True)


def clip(s: Scope):
    a = s.pick("fiu")
    low, high = s.literal(s.dtype(a)), s.literal(s.dtype(a))
    form = s.choice(
        [
            f"jnp.clip({{0}}, {low}, {high})",
            f"jnp.clip({{0}}, None, {high})",
            f"lax.clamp(np.{s.dtype(a)}({low}), {{0}}, np.{s.dtype(a)}({high}))",
        ]
    )
    if "np.bfloat16" in form:
        raise NoFit
    return draft(form, a, exact=True)


def clamp_values(s: Scope):
    a = s.pick("fiu")
    return draft("lax.clamp({1}, {0}, {2})", a, s.same(a), s.same(a), exact=True)


def integer_power(s: Scope):
    return draft(f"lax.integer_pow({{0}}, {s.choice([-2, -1, 0, 1, 2, 3, 5])})", s.pick("f"))


def literal_mix(s: Scope):
    """A few operations on one line: several nodes for one statement."""
    a = s.pick("f")
    b = s.partner(a)
    form = s.choice(
        [
            "{0} * {1} + {1}",
            "jnp.exp(-jnp.abs({0}))",
            "({0} - {1}) / (1.0 + jnp.abs({1}))",
            "{0} / (jnp.abs({0}) + 0.5)",
            "jnp.maximum({0}, 0.0) * {1}",
            "jnp.sqrt(jnp.abs({0}) + 1.0)",
            "{0} * jax.nn.sigmoid({1})",
        ]
    )
    return draft(form, a, b)


def reduce_precision(s: Scope):
    return draft(
        f"lax.reduce_precision({{0}}, {s.choice([(5, 10), (8, 7), (4, 3), (5, 2)])[0]}, {s.choice([2, 3, 7, 10])})",
        s.pick("f"),
    )


FAMILY = (
    rounding_unary,
    rounding_unary,
    finite,
    digamma,
    exact_float_unary,
    exact_unary,
    bit_unary,
    rounding_binary,
    rounding_binary,
    float_binary,
    exact_binary,
    exact_binary,
    bit_binary,
    integer_binary,
    operator,
    cast,
    bitcast,
    where,
    select,
    select_many,
    clip,
    clamp_values,
    integer_power,
    literal_mix,
    reduce_precision,
)
