"""Statements over whole axes: reductions, running totals, sorts, choices of the largest, normalisations."""

from __future__ import annotations

from scope import NoFit, Scope, draft

ROUNDING = ["jnp.sum", "jnp.mean", "jnp.prod", "jnp.var", "jnp.std", "jnp.nansum", "jnp.nanmean", "jax.nn.logsumexp"]
EXACT = ["jnp.max", "jnp.min", "jnp.any", "jnp.all", "jnp.ptp", "jnp.count_nonzero", "jnp.nanmax", "jnp.amin"]
CUMULATIVE = ["jnp.cumsum", "jnp.cumprod", "lax.cumlogsumexp"]
NORMAL = ["jax.nn.softmax", "jax.nn.log_softmax", "jax.nn.standardize"]


def _axes(s: Scope, a: str) -> str:
    if s.rank(a) == 0 or s.chance(0.2):
        return ""
    axes = s.axis(a) if s.chance(0.6) else s.some_axes(a)
    return f", axis={axes}" + (", keepdims=True" if s.chance(0.3) else "")


def rounding(s: Scope):
    function = s.choice(ROUNDING)
    kinds = "f" if "log" in function or "var" in function or "std" in function else "fiu"
    a = s.pick(kinds)
    # ONNX Runtime's ReduceLogSumExp loses a NaN that stands beside an infinity.
    operand = "jnp.where(jnp.isnan({0}), 0, {0})" if "logsumexp" in function else "{0}"
    if "mean" in function and s.kind(a) != "f":
        operand = "jnp.clip({0}, 0, 99)"  # of large integers, as floats, little may be left: nothing that can be moved
    return draft(f"{function}({operand}{_axes(s, a)})", a)


def exact(s: Scope):
    function = s.choice(EXACT)
    a = s.pick("f" if "nan" in function else "fiu" if "ptp" in function else "fiub")
    return draft(f"{function}({{0}}{_axes(s, a)})", a, exact=True)


def norm(s: Scope):
    a = s.pick("f", low=1)
    axis = s.axis(a)
    form = s.choice(
        [
            f"jnp.linalg.norm({{0}}, axis={axis})",
            f"jnp.linalg.norm({{0}}, ord=1, axis={axis})",
            f"{{0}} / jnp.linalg.norm({{0}}, axis={axis}, keepdims=True)",
        ]
    )
    return draft(form, a)


def layer_norm(s: Scope):
    a = s.pick("f", low=1)
    axis = s.axis(a)
    statistics = f"jnp.mean({{0}}, axis={axis}, keepdims=True)"
    return draft(f"({{0}} - {statistics}) * lax.rsqrt(jnp.var({{0}}, axis={axis}, keepdims=True) + 1e-5)", a)


def softmax(s: Scope):
    a = s.pick("f", low=1)
    return draft(f"{s.choice(NORMAL)}({{0}}, axis={s.axis(a)})", a)


def cumulative(s: Scope):
    function = s.choice(CUMULATIVE)
    a = s.pick("f" if "log" in function else "fiu", low=1)
    axis = s.axis(a) % s.rank(a)
    return draft(f"{function}({{0}}, axis={axis})", a)


def cumulative_choice(s: Scope):
    a = s.pick("fiu", low=1)
    axis = s.axis(a) % s.rank(a)
    return draft(f"lax.{s.choice(['cummax', 'cummin'])}({{0}}, axis={axis}, reverse={s.chance(0.5)})", a, exact=True)


def reverse_sum(s: Scope):
    a = s.pick("fi", low=1)
    return draft(f"lax.cumsum({{0}}, axis={s.axis(a) % s.rank(a)}, reverse=True)", a)


def sort(s: Scope):
    a = s.pick("fiub", low=1)
    form = s.choice(
        [
            "jnp.sort({0}, axis=%d)",
            "jnp.argsort({0}, axis=%d)",
            "jnp.sort({0}, axis=%d, descending=True)",
            "jnp.argsort({0}, axis=%d, descending=True)",
            "jnp.argsort({0}, axis=%d, stable=True)",
        ]
    )
    return draft(form % s.axis(a), a, exact=True)


def sort_pairs(s: Scope):
    a = s.pick("fiu", low=1)
    b = s.pick(fits=lambda t: t.shape == s.shape(a))
    return draft(
        f"lax.sort(({{0}}, {{1}}), dimension={s.axis(a) % s.rank(a)}, num_keys={s.choice([1, 2])})", a, b, exact=True
    )


def top_k(s: Scope):
    a = s.pick("fiu", low=1)
    size = s.constant_size(a, -1)
    if size == 0:
        raise NoFit
    # XLA's order looks at the sign of NaN, which is not defined.
    operand = "jnp.where(jnp.isnan({0}), 1, {0})" if s.kind(a) == "f" else "{0}"
    return draft(f"lax.top_k({operand}, {s.rng.randint(1, size)})", a, exact=True)


def arg_choice(s: Scope):
    a = s.pick("fiub", low=1)
    axis = s.choice(["", f", axis={s.axis(a)}", f", axis={s.axis(a)}, keepdims=True"])
    return draft(f"{s.choice(['jnp.argmax', 'jnp.argmin', 'jnp.nanargmax'])}({{0}}{axis})", a, exact=True)


def median(s: Scope):
    a = s.pick("f", low=1)
    return draft(f"{s.choice(['jnp.median', 'jnp.nanmedian'])}({{0}}, axis={s.axis(a)})", a)


def quantile(s: Scope):
    a = s.pick("f", low=1, fits=lambda t: str(t.dtype) in ("float32", "float64"))
    return draft(f"jnp.quantile({{0}}, {s.choice([0.0, 0.25, 0.5, 1.0])}, axis={s.axis(a)})", a)


def difference(s: Scope):
    a = s.pick("fiu", low=1)
    return draft(f"jnp.diff({{0}}, axis={s.axis(a)})", a)


def bits(s: Scope):
    a = s.pick("iu", low=1)
    function = s.choice(["jnp.bitwise_or.reduce", "jnp.bitwise_and.reduce", "jnp.bitwise_xor.reduce"])
    return draft(f"{function}({{0}}, axis={s.axis(a)})", a, exact=True)


FAMILY = (
    rounding,
    rounding,
    exact,
    exact,
    norm,
    layer_norm,
    softmax,
    cumulative,
    cumulative_choice,
    reverse_sum,
    sort,
    sort,
    sort_pairs,
    top_k,
    arg_choice,
    median,
    quantile,
    difference,
    bits,
)
