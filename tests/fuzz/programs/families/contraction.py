"""Statements that multiply and add: products, einsum, convolutions, and the windows of pooling."""

from __future__ import annotations

from scope import NoFit, Scope, draft

# XLA multiplies NaN and infinities with the zeros of padding and of other groups; ONNX Runtime does not.
FINITE = "jnp.clip(jnp.nan_to_num({%d}), -99, 99)"


def _matrix_partner(s: Scope, a: str, size, high: int = 3) -> str:
    return s.pick(
        fits=lambda t: (
            t.dtype == s.types[a].dtype
            and 1 <= len(t.shape) <= high
            and (t.shape[-2] if len(t.shape) > 1 else t.shape[0]) == size
        )
    )


def matmul(s: Scope):
    a = s.pick("fiu", low=1, high=3)
    b = _matrix_partner(s, a, s.shape(a)[-1])
    return draft(s.choice(["{0} @ {1}", "jnp.matmul({0}, {1})", "jnp.dot({0}, {1})"]), a, b)


def gram(s: Scope):
    a = s.pick("fi", low=2, high=3)
    return draft(
        s.choice(
            [
                "{0} @ jnp.swapaxes({0}, -1, -2)",
                "jnp.swapaxes({0}, -1, -2) @ {0}",
                "jnp.einsum('...ij,...kj->...ik', {0}, {0})",
            ]
        ),
        a,
    )


def outer(s: Scope):
    a = s.pick("fiu", low=1, high=1)
    b = s.pick(low=1, high=1, fits=lambda t: t.dtype == s.types[a].dtype)
    return draft(s.choice(["jnp.outer({0}, {1})", "jnp.einsum('i,j->ji', {0}, {1})", "jnp.kron({0}, {1})"]), a, b)


def einsum(s: Scope):
    """Letters for the axes of two values, equal where sizes are, some of them summed."""
    a = s.pick("fi", low=1, high=3)
    b = s.pick(fits=lambda t: t.dtype == s.types[a].dtype and 1 <= len(t.shape) <= 3)
    letters = "abcdefgh"
    left = list(letters[: s.rank(a)])
    right = []
    for n, size in enumerate(s.shape(b)):
        candidates = [x for x, m in zip(left, s.shape(a), strict=True) if m == size and x not in right]
        right.append(s.choice(candidates) if candidates and s.chance(0.7) else letters[4 + n])
    every = sorted(set(left + right))
    out = [x for x in every if s.chance(0.5)]
    s.rng.shuffle(out)
    return draft(f"jnp.einsum('{''.join(left)},{''.join(right)}->{''.join(out)}', {{0}}, {{1}})", a, b)


def einsum_one(s: Scope):
    a = s.pick("fi", low=1, high=3)
    left = list("abc"[: s.rank(a)])
    out = [x for x in left if s.chance(0.5)]
    s.rng.shuffle(out)
    return draft(f"jnp.einsum('{''.join(left)}->{''.join(out)}', {{0}})", a)


def dot_general(s: Scope):
    a = s.pick("fi", low=2, high=3)
    b = s.same(a)
    axis = s.axis(a) % s.rank(a)
    batch = s.choice([x for x in range(s.rank(a)) if x != axis])
    kept = s.choice([((), ()), ((batch,), (batch,))])
    wide = s.choice(["", ", preferred_element_type='float32'"]) if s.dtype(a) in ("float16", "bfloat16", "int8") else ""
    return draft(f"lax.dot_general({{0}}, {{1}}, ((({axis},), ({axis},)), {kept}){wide})", a, b)


def tensordot(s: Scope):
    a = s.pick("f", low=1, high=3)
    axis = s.axis(a) % s.rank(a)
    return draft(f"jnp.tensordot({{0}}, {{1}}, axes=({axis}, {axis}))", a, s.same(a))


def convolve_1d(s: Scope):
    a, b = s.pick("f", low=1, high=1), s.pick("f", low=1, high=1)
    function, mode = s.choice(["convolve", "correlate"]), s.choice(["full", "same", "valid"])
    return draft(f"jnp.{function}({FINITE % 0}, {FINITE % 1}, mode='{mode}')", a, b)


def convolution(s: Scope):
    """A value of rank 3 or 4 with a kernel cut from a range of numbers."""
    a = s.pick("f", low=3, high=4)
    spatial = s.rank(a) - 2
    letters = "HW"[:spatial] if spatial == 2 else "W"
    last = s.chance(0.5)
    channels = s.constant_size(a, -1 if last else 1)
    groups = s.choice([1, 1, channels]) if channels else 1
    features = s.choice([1, 2, 4]) * groups
    window = [s.choice([1, 2, 3]) for _ in range(spatial)]
    kernel_shape = (features, channels // groups, *window)
    if min(kernel_shape) == 0 or channels == 0:
        raise NoFit
    count = 1
    for n in kernel_shape:
        count *= n
    kernel = f"((jnp.arange({count}, dtype='{s.dtype(a)}') % 7 - 3) / 4).reshape({kernel_shape})"
    numbers = (
        "N" + letters + "C" if last else "NC" + letters,
        "OI" + letters,
        "N" + letters + "C" if last else "NC" + letters,
    )
    padding = s.choice(["'SAME'", "'VALID'", str([(s.rng.randint(-1, 2), s.rng.randint(0, 2)) for _ in window])])
    extra = f", lhs_dilation={[s.choice([1, 2]) for _ in window]}" if s.chance(0.2) and padding[0] == "[" else ""
    extra += f", rhs_dilation={[s.choice([1, 2]) for _ in window]}" if s.chance(0.2) else ""
    steps = [s.choice([1, 1, 2]) for _ in window]
    extra += f", dimension_numbers={numbers}, feature_group_count={groups}"
    return draft(f"lax.conv_general_dilated({FINITE % 0}, {kernel}, {steps}, {padding}{extra})", a)


def transposed_convolution(s: Scope):
    a = s.pick("f", low=3, high=3)
    channels = s.constant_size(a, -1)
    if not channels:
        raise NoFit
    kernel = f"((jnp.arange({channels * 4}, dtype='{s.dtype(a)}') % 5 - 2) / 4).reshape(2, {channels}, 2)"
    padding = s.choice(["'SAME'", "'VALID'"])
    numbers = "dimension_numbers=('NWC', 'WIO', 'NWC')"
    return draft(f"lax.conv_transpose({FINITE % 0}, {kernel}, [{s.choice([1, 2])}], {padding}, {numbers})", a)


def window(s: Scope):
    a = s.pick("fi", low=1, high=4)
    # Where a symbolic axis turns out shorter than a window, ONNX Runtime rounds the number of windows up (guide.md).
    known = [isinstance(size, int) for size in s.shape(a)]
    sizes = [s.choice([1, 2, 3] if size_known else [1, 2]) for size_known in known]
    steps = [s.choice([1, 1, 2]) if size_known else 1 for size_known in known]
    padding = s.choice(["'SAME'", "'VALID'", str([(s.rng.randint(0, 1), s.rng.randint(0, 1)) for _ in sizes])])
    dtype = s.dtype(a)
    lowest = "-jnp.inf" if s.kind(a) == "f" else f"jnp.iinfo('{dtype}').min"
    highest = "jnp.inf" if s.kind(a) == "f" else f"jnp.iinfo('{dtype}').max"
    start, function = s.choice([("0", "lax.add"), (lowest, "lax.max"), (highest, "lax.min"), ("1", "lax.mul")])
    dilations = [s.choice([1, 2]) if size_known else 1 for size_known in known]
    dilation = f", window_dilation={dilations}" if s.chance(0.2) else ""
    # ONNX's MaxPool is not defined for NaN and infinities, and its users are not made to pay for them.
    operand = FINITE % 0 if s.kind(a) == "f" and function != "lax.add" else "{0}"
    start = f"jnp.array({start}, '{dtype}')"
    return draft(f"lax.reduce_window({operand}, {start}, {function}, {sizes}, {steps}, {padding}{dilation})", a)


def mean_window(s: Scope):
    a = s.pick("f", low=3, high=4)
    inner = [2] * (s.rank(a) - 2)
    sizes = [1, *inner, 1]
    zero = f"jnp.array(0, '{s.dtype(a)}')"
    return draft(f"lax.reduce_window({{0}}, {zero}, lax.add, {sizes}, {sizes}, 'VALID') / {2 ** len(inner)}", a)


def attention(s: Scope):
    """JAX computes the weights in single precision, also of doubles: the result is no better."""
    a = s.pick("f", low=4, high=4)
    text = "jax.nn.dot_product_attention({0}, {1}, {0})"
    return draft(text + ".astype('float32')" if s.dtype(a) == "float64" else text, a, s.same(a))


FAMILY = (
    matmul,
    matmul,
    gram,
    outer,
    einsum,
    einsum,
    einsum_one,
    dot_general,
    tensordot,
    convolve_1d,
    convolution,
    convolution,
    transposed_convolution,
    window,
    window,
    mean_window,
    attention,
)
