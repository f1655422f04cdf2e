"""Statements that move elements: reshapes, transposes, broadcasts, joins, splits, pads, fixed slices."""

from __future__ import annotations

import math

from scope import NoFit, Scope, draft, same_shape


def _constant_elements(s: Scope, name: str) -> int:
    if not all(isinstance(size, int) for size in s.shape(name)):
        raise NoFit
    return math.prod(s.shape(name))


def _factors(s: Scope, count: int) -> list[int]:
    """Random sizes whose product is count."""
    sizes: list[int] = []
    while count > 1 and len(sizes) < 3:
        divisors = [d for d in range(2, count + 1) if count % d == 0]
        size = s.choice(divisors)
        sizes.append(size)
        count //= size
    if count != 1 or (not sizes and s.chance(0.5)):
        sizes.append(count)
    if s.chance(0.3):
        sizes.insert(s.rng.randint(0, len(sizes)), 1)
    return sizes


def reshape(s: Scope):
    a = s.pick()
    if s.chance(0.3):
        return draft(s.choice(["jnp.ravel({0})", "{0}.reshape(-1)", "{0}.flatten()"]), a, exact=True)
    if s.rank(a) and not isinstance(s.shape(a)[0], int):
        rest = _factors(s, math.prod(size for size in s.shape(a)[1:]))
        return draft(f"jnp.reshape({{0}}, ({{0}}.shape[0], {', '.join(map(str, rest))}))", a, exact=True)
    sizes = _factors(s, _constant_elements(s, a))
    if sizes and s.chance(0.3) and 0 not in sizes:
        sizes[s.rng.randrange(len(sizes))] = -1
    return draft(f"jnp.reshape({{0}}, {tuple(sizes)})", a, exact=True)


def transpose(s: Scope):
    a = s.pick(low=1)
    order = list(range(s.rank(a)))
    s.rng.shuffle(order)
    form = s.choice(
        [
            f"jnp.transpose({{0}}, {tuple(order)})",
            "{0}.T",
            f"jnp.moveaxis({{0}}, {order[0]}, {order[-1]})",
            f"jnp.swapaxes({{0}}, {order[0]}, {order[-1]})",
        ]
    )
    return draft(form, a, exact=True)


def expand(s: Scope):
    a = s.pick(high=3)
    axis = s.rng.randint(0, s.rank(a))
    return draft(f"jnp.expand_dims({{0}}, {axis})", a, exact=True)


def squeeze(s: Scope):
    a = s.pick(low=1, fits=lambda type_: any(isinstance(n, int) and n == 1 for n in type_.shape))
    return draft("jnp.squeeze({0})", a, exact=True)


def broadcast(s: Scope):
    a = s.pick(high=3)
    sizes = [s.size_text(a, axis) for axis in range(s.rank(a))]
    sizes = [str(s.choice([2, 3])) if size == "1" and s.chance(0.7) else size for size in sizes]
    if s.chance(0.6):
        sizes.insert(0, str(s.choice([1, 2, 3])))
    return draft(f"jnp.broadcast_to({{0}}, ({''.join(size + ', ' for size in sizes)}))", a, exact=True)


def join(s: Scope):
    a = s.pick(low=1)
    axis = s.axis(a) % s.rank(a)
    rest = s.shape(a)[:axis] + s.shape(a)[axis + 1 :]
    b = s.pick(
        fits=lambda t: (
            t.dtype == s.types[a].dtype
            and len(t.shape) == s.rank(a)
            and same_shape(t.shape[:axis] + t.shape[axis + 1 :], rest)
        )
    )
    return draft(f"jnp.concatenate([{{0}}, {{1}}{s.choice(['', ', {0}'])}], axis={axis})", a, b, exact=True)


def stack(s: Scope):
    a = s.pick(high=3)
    return draft(f"jnp.stack([{{0}}, {{1}}], axis={s.rng.randint(0, s.rank(a))})", a, s.same(a), exact=True)


def split(s: Scope):
    a = s.pick(low=1)
    axis = s.axis(a)
    size = s.constant_size(a, axis)
    parts = [n for n in (2, 3) if size % n == 0]
    if parts and s.chance(0.5):
        return draft(f"jnp.split({{0}}, {s.choice(parts)}, axis={axis})", a, exact=True)
    return draft(f"jnp.split({{0}}, [{s.rng.randint(0, size)}], axis={axis})", a, exact=True)


def flip(s: Scope):
    a = s.pick(low=1)
    return draft(f"jnp.flip({{0}}, axis={s.choice([s.axis(a), s.some_axes(a)])})", a, exact=True)


def roll(s: Scope):
    a = s.pick(low=1)
    return draft(f"jnp.roll({{0}}, {s.rng.randint(-4, 4)}, axis={s.axis(a)})", a, exact=True)


def tile(s: Scope):
    a = s.pick(high=3)
    return draft(
        s.choice(
            [f"jnp.tile({{0}}, {s.choice([1, 2, 3])})", f"jnp.repeat({{0}}, {s.choice([1, 2, 3])}, axis={s.axis(a)})"]
        ),
        a,
        exact=True,
    )


def pad(s: Scope):
    a = s.pick(low=1)
    low, high = s.choice([0, 1, 2]), s.choice([0, 1])
    modes = ["mode='constant'", "mode='edge'", "mode='reflect'", "mode='symmetric'", "mode='wrap'"]
    widths = [(low, high) if s.chance(0.5) else (0, 0) for _ in range(s.rank(a))]
    return draft(f"jnp.pad({{0}}, {widths}, {s.choice(modes)})", a, exact=True)


def general_pad(s: Scope):
    a = s.pick(low=1)
    widths = [(s.rng.randint(-1, 2), s.rng.randint(-1, 2), s.choice([0, 0, 1, 2])) for _ in range(s.rank(a))]
    dtype = s.dtype(a)
    return draft(f"lax.pad({{0}}, jnp.array({s.literal(dtype)}, '{dtype}'), {widths})", a, exact=True)


def fixed_slice(s: Scope):
    a = s.pick(low=1)
    parts = []
    for size in s.shape(a):
        if not isinstance(size, int):
            parts.append(s.choice([":", ":", "::-1", "1:"]))
            continue
        start, stop = s.rng.randint(-size - 1, size), s.rng.randint(-size - 1, size + 1)
        kinds = [":", ":", f"{start}:", f":{stop}", f"{start}:{stop}", "::2", "::-1", "None, :"]
        if size:
            kinds += [str(s.rng.randint(-size, size - 1))] * 2
        parts.append(s.choice(kinds))
    if s.chance(0.2):
        parts = [*parts[:1], "..."]
    return draft(f"{{0}}[{', '.join(parts)}]", a, exact=True)


def lax_slice(s: Scope):
    a = s.pick(low=1)
    sizes = [s.constant_size(a, axis) for axis in range(s.rank(a))]
    starts = [s.rng.randint(0, size) for size in sizes]
    limits = [s.rng.randint(start, size) for start, size in zip(starts, sizes, strict=True)]
    steps = [s.choice([1, 1, 2, 3]) for _ in sizes]
    return draft(f"lax.slice({{0}}, {starts}, {limits}, {steps})", a, exact=True)


def diagonal(s: Scope):
    a = s.pick(low=2)
    form = s.choice(
        [
            "jnp.diagonal({0})",
            f"jnp.triu({{0}}, k={s.rng.randint(-2, 2)})",
            f"jnp.tril({{0}}, k={s.rng.randint(-2, 2)})",
            "jnp.rot90({0})",
        ]
    )
    return draft(form, a, exact=True)


def fresh(s: Scope):
    """Values that come from the program itself, some by way of an input's size."""
    dtype = s.any_dtype("fi")
    a = s.pick()
    form = s.choice(
        [
            f"jnp.arange({s.rng.randint(1, 6)}, dtype='{dtype}')",
            f"jnp.full_like({{0}}, {s.literal(s.dtype(a))})",
            "jnp.zeros_like({0})",
            f"jnp.eye({s.rng.randint(1, 3)}, {s.rng.randint(1, 4)}, dtype='{dtype}')",
            f"jnp.array([[1, 2], [3, {s.rng.randint(0, 9)}]], dtype='{dtype}')",
            f"lax.broadcasted_iota('{dtype}', (2, 3), {s.choice([0, 1])})",
            f"jnp.linspace(0, 1, {s.rng.randint(1, 5)}, dtype='float32')",
            "jnp.ones_like({0})",
            f"jnp.tri({s.rng.randint(1, 4)}, dtype='{dtype}')",
        ]
    )
    return draft(form, a, exact=True)


def ramp(s: Scope):
    """A range as long as an axis of a value: a size used as a value."""
    a = s.pick(low=1)
    axis = s.axis(a)
    return draft(f"jnp.arange({{0}}.shape[{axis}], dtype='{s.any_dtype('fi')}')", a, exact=True)


FAMILY = (
    reshape,
    reshape,
    transpose,
    transpose,
    expand,
    squeeze,
    broadcast,
    join,
    stack,
    split,
    flip,
    roll,
    tile,
    pad,
    general_pad,
    fixed_slice,
    fixed_slice,
    lax_slice,
    diagonal,
    fresh,
    ramp,
)
