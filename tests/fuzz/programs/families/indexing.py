"""Statements that read or write at places given by values: gather, scatter, dynamic slices."""

from __future__ import annotations

from scope import NoFit, Scope, draft

MODES = ["'clip'", "'fill'", "'wrap'"]
UPDATES = ["set", "add", "multiply", "max", "min", "subtract", "get"]


def take(s: Scope):
    a, i = s.pick(low=1), s.indices()
    mode = s.choice(["", f", mode={s.choice(MODES)}"])
    return draft(f"jnp.take({{0}}, {{1}}, axis={s.axis(a)}{mode})", a, i, exact=True)


def is_clamped(s: Scope):
    """The default mode is a promise; XLA clamps what breaks it, but not what needs 64 bits, as uint32 does there."""
    return lambda type_: not str(type_.dtype).endswith("64") and not (s.x64 and str(type_.dtype) == "uint32")


def index_by_array(s: Scope):
    a, i = s.pick(low=1), s.pick("iu", 0, 2, fits=is_clamped(s))
    forms = ["{0}[{1}]"]
    if s.rank(a) >= 2:
        forms += ["{0}[:, {1}]", "{0}[{1}, {1}]", "{0}[0, {1}]", "{0}[{1}, ::2]", "{0}[..., {1}]", "{0}[{1}, None]"]
    if s.rank(a) >= 3:
        forms += ["{0}[{1}, :, {1}]", "{0}[:, {1}, {1}]"]
    return draft(s.choice(forms), a, i, exact=True)


def index_get(s: Scope):
    a, i = s.pick(low=1), s.indices()
    mode = s.choice(["mode='fill', fill_value=3", "mode='clip'", "mode='fill'", "mode='promise_in_bounds'"])
    if "promise" in mode:
        return draft("{0}.at[jnp.clip({1}, 0, 0)].get(mode='promise_in_bounds')", a, i, exact=True)
    return draft(f"{{0}}.at[{{1}}].get({mode})", a, i, exact=True)


def take_along(s: Scope):
    a = s.pick(low=1)
    axis = s.axis(a)
    size = s.constant_size(a, axis)
    if size == 0:
        raise NoFit
    by = (
        s.pick("i", fits=lambda t: t.shape == s.shape(a) and str(t.dtype) in ("int32", "int64"))
        if s.chance(0.5)
        else None
    )
    if by is None:
        return draft(f"jnp.take_along_axis({{0}}, jnp.argsort({{0}}, axis={axis}), axis={axis})", a, exact=True)
    return draft(f"jnp.take_along_axis({{0}}, {{1}}, axis={axis}, mode={s.choice(MODES[:2])})", a, by, exact=True)


def update(s: Scope):
    a, i = s.pick(low=1), s.indices(high=1)
    how = s.choice(UPDATES[:-1])
    if s.kind(a) == "b":
        how = s.choice(["set", "max", "min"])
    mode = s.choice(["", "", ", mode='clip'", ", mode='drop'"])
    literal = s.literal(s.dtype(a))
    place = s.choice(["{1}", "{1}"] + (["{1}, 0", ":, {1}", "{1}, {1}"] if s.rank(a) >= 2 else []))
    unordered = how == "set" and s.rank(i) > 0  # of equal indices any one may win, unless all write the same
    if unordered or s.chance(0.4):
        return draft(f"{{0}}.at[{place}].{how}({literal}{mode})", a, i, exact=how in ("set", "max", "min"))
    b = s.pick(fits=lambda t: t.dtype == s.types[a].dtype and len(t.shape) <= 1)
    return draft(f"{{0}}.at[{place}].{how}({{2}}{mode})", a, i, b, exact=how in ("set", "max", "min"))


def update_slice(s: Scope):
    a = s.pick(low=1)
    how = s.choice(["set", "add", "max", "multiply"]) if s.kind(a) != "b" else "set"
    start = s.rng.randint(0, 2)
    place = s.choice([f"{start}:", f":{start}", "::2", f"{start}", "-1", "..."])
    return draft(f"{{0}}.at[{place}].{how}({s.literal(s.dtype(a))})", a, exact=how in ("set", "max"))


def dynamic_slice(s: Scope):
    a = s.pick(low=1)
    i = s.pick("iu", high=0)
    sizes = [
        s.rng.randint(0 if s.chance(0.1) else min(1, n), n)
        for n in (s.constant_size(a, axis) for axis in range(s.rank(a)))
    ]
    starts = ", ".join(s.choice(["{1}", "0", "{1}", "1"]) for _ in sizes)
    return draft(f"lax.dynamic_slice({{0}}, ({starts},), {tuple(sizes)})", a, i, exact=True)


def dynamic_index(s: Scope):
    a, i = s.pick(low=1), s.pick("iu", high=0, fits=is_clamped(s))
    axis = s.axis(a)
    form = s.choice(
        [
            f"lax.dynamic_index_in_dim({{0}}, {{1}}, axis={axis})",
            f"lax.dynamic_index_in_dim({{0}}, {{1}}, axis={axis}, keepdims=False)",
            "{0}[{1}]",
        ]
    )
    return draft(form, a, i, exact=True)


def dynamic_update(s: Scope):
    a = s.pick(low=1)
    b = s.pick(
        fits=lambda t: (
            t.dtype == s.types[a].dtype and len(t.shape) == s.rank(a) and all(isinstance(n, int) for n in t.shape)
        )
    )
    i = s.pick("iu", high=0)
    starts = ", ".join(s.choice(["{2}", "0", "{2}", "1"]) for _ in s.shape(a))
    return draft(f"lax.dynamic_update_slice({{0}}, {{1}}, ({starts},))", a, b, i, exact=True)


def one_hot(s: Scope):
    return draft(
        f"jax.nn.one_hot({{0}}, {s.rng.randint(1, 5)}, dtype='{s.any_dtype('f')}')", s.pick("iu", high=2), exact=True
    )


def search(s: Scope):
    a = s.pick("fiu", low=1, high=1)
    b = s.pick(fits=lambda t: t.dtype == s.types[a].dtype)
    return draft(f"jnp.searchsorted(jnp.sort({{0}}), {{1}}, side='{s.choice(['left', 'right'])}')", a, b, exact=True)


def segment_sum(s: Scope):
    a = s.pick("fiu", low=1, high=2)
    i = s.pick("iu", low=1, high=1, fits=lambda t: t.shape[0] == s.shape(a)[0])
    return draft(f"jax.ops.segment_{s.choice(['sum', 'max', 'min'])}({{0}}, {{1}}, {s.rng.randint(1, 4)})", a, i)


def boolean_where(s: Scope):
    a = s.pick("b", low=1, high=2)
    return draft(f"jnp.argwhere({{0}}, size={s.rng.randint(1, 4)}, fill_value={s.choice([-1, 0])})", a, exact=True)


FAMILY = (
    take,
    index_by_array,
    index_by_array,
    index_get,
    take_along,
    update,
    update,
    update_slice,
    dynamic_slice,
    dynamic_index,
    dynamic_update,
    one_hot,
    search,
    segment_sum,
    boolean_where,
)
