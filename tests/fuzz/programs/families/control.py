"""Statements that hold functions: jit, ONNX functions, scan, cond, while, fori, map, vmap, grad, checkpoint, custom
derivatives."""

from __future__ import annotations

from scope import NoFit, Scope, draft


def _floats_only(s: Scope) -> str:
    return s.pick("f", fits=lambda t: str(t.dtype) in ("float32", "float64"))


def jit(s: Scope):
    a, b = s.pick(), s.pick()
    body, _ = s.body([s.types[a], s.types[b]])
    wrapper = s.choice(["jax.jit({f0})", "jax.checkpoint({f0})", "jax.jit({f0}, inline=True)", "{f0}"])
    return draft(f"{wrapper}({{0}}, {{1}})", a, b, bodies=[body])


def onnx_function(s: Scope):
    """A function of the model, called once or from inside something else."""
    a = s.pick()
    body, _ = s.body([s.types[a]], wanted=s.types[a])
    function = f"onnx_function({{f0}}, unique={s.chance(0.5)})"
    forms = ["{f}({{0}})", "{f}({f}({{0}}))", "jax.jit({f})({{0}})", "lax.fori_loop(0, 2, lambda _, t: {f}(t), {{0}})"]
    return draft(s.choice(forms).format(f=function), a, bodies=[body])


def twice(s: Scope):
    """One jitted function called from two lines' worth of places."""
    a = s.pick()
    body, _ = s.body([s.types[a]], wanted=s.types[a])
    return draft("jax.jit({f0})(jax.jit({f0})({0}))", a, bodies=[body])


def scan(s: Scope):
    a = s.pick()
    xs = s.pick(low=1, fits=lambda t: isinstance(t.shape[0], int) and t.shape[0] <= 5)
    element = s.types[xs].update(shape=s.shape(xs)[1:])
    carry, _ = s.body([s.types[a], element], wanted=s.types[a])
    extra = carry.statements[-1].targets[0]
    carry.result = f"({carry.result}, {extra})"
    option = s.choice(["", ", reverse=True", ", unroll=2"])
    return draft(f"lax.scan({{f0}}, {{0}}, {{1}}{option})", a, xs, bodies=[carry])


def fori(s: Scope):
    a = s.pick()
    body, _ = s.body([_integer(s), s.types[a]], wanted=s.types[a])
    if s.chance(0.3):
        n = s.pick("i", high=0, fits=lambda t: str(t.dtype) == "int32")
        return draft("lax.fori_loop(0, jnp.clip({1}, 0, 3), {f0}, {0})", a, n, bodies=[body])
    return draft(f"lax.fori_loop({s.rng.randint(0, 1)}, {s.rng.randint(0, 4)}, {{f0}}, {{0}})", a, bodies=[body])


def while_loop(s: Scope):
    a = s.pick()
    body, _ = s.body([s.types[a]], wanted=s.types[a])
    text = "lax.while_loop(lambda c: c[0] < %d, lambda c: (c[0] + 1, {f0}(c[1])), (0, {0}))[1]"
    return draft(text % s.rng.randint(0, 4), a, bodies=[body])


def cond(s: Scope):
    a = s.pick()
    yes, wanted = s.body([s.types[a]])
    no, _ = s.body([s.types[a]], wanted=wanted, prefix="q")
    which = s.pick("b", high=0) if s.chance(0.5) else None
    if which is None:
        test = s.pick("fi")
        return draft("lax.cond(jnp.sum({1}) > 0, {f0}, {f1}, {0})", a, test, bodies=[yes, no])
    return draft("lax.cond({1}, {f0}, {f1}, {0})", a, which, bodies=[yes, no])


def switch(s: Scope):
    a = s.pick()
    i = s.pick("i", high=0, fits=lambda t: str(t.dtype) == "int32")
    bodies = [s.body([s.types[a]], wanted=s.types[a], prefix=prefix)[0] for prefix in "pqr"]
    return draft("lax.switch({1}, [{f0}, {f1}, {f2}], {0})", a, i, bodies=bodies)


def vmap(s: Scope):
    a = s.pick(low=1)
    axis = s.axis(a) % s.rank(a)
    shape = s.shape(a)
    body, _ = s.body([s.types[a].update(shape=shape[:axis] + shape[axis + 1 :])])
    out = s.choice(["", ", out_axes=-1"])
    return draft(f"jax.vmap({{f0}}, in_axes={axis}{out})({{0}})", a, bodies=[body])


def vmap_two(s: Scope):
    a = s.pick(low=1)
    b = s.pick(fits=lambda t: len(t.shape) > 0 and t.shape[0] == s.shape(a)[0])
    types = [s.types[name].update(shape=s.shape(name)[1:]) for name in (a, b)]
    body, _ = s.body(types)
    return draft("jax.vmap({f0})({0}, {1})", a, b, bodies=[body])


def lax_map(s: Scope):
    a = s.pick(low=1, fits=lambda t: isinstance(t.shape[0], int) and 0 < t.shape[0] <= 5)
    body, _ = s.body([s.types[a].update(shape=s.shape(a)[1:])])
    return draft("lax.map({f0}, {0})", a, bodies=[body])


def gradient(s: Scope):
    a = _floats_only(s)
    body, type_ = s.body([s.types[a]])
    if type_.dtype != s.types[a].dtype:
        raise NoFit
    form = s.choice(
        [
            "jax.grad(lambda t: jnp.sum({f0}(t)))({0})",
            "jax.jvp({f0}, ({0},), ({0},))[1]",
            "jax.vjp({f0}, {0})[1]({f0}({0}))[0]",
        ]
    )
    return draft(form, a, bodies=[body])


def value_and_gradient(s: Scope):
    a = _floats_only(s)
    body, type_ = s.body([s.types[a]])
    if type_.dtype != s.types[a].dtype:
        raise NoFit
    return draft("jax.value_and_grad(jax.checkpoint(lambda t: jnp.mean({f0}(t))))({0})", a, bodies=[body])


def associative_scan(s: Scope):
    a = s.pick("fi", low=1, fits=lambda t: isinstance(t.shape[0], int) and t.shape[0] > 0)
    return draft(f"lax.associative_scan({s.choice(['jnp.add', 'jnp.maximum', 'jnp.multiply'])}, {{0}})", a)


def _integer(s: Scope):
    import jax

    return jax.ShapeDtypeStruct((), "int64" if s.x64 else "int32")


FAMILY = (
    jit,
    jit,
    onnx_function,
    twice,
    scan,
    scan,
    fori,
    while_loop,
    cond,
    cond,
    switch,
    vmap,
    vmap_two,
    lax_map,
    gradient,
    gradient,
    value_and_gradient,
    associative_scan,
)
