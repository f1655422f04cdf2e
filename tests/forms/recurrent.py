"""Recurrent layers: LSTM, GRU and plain cells, forwards, backwards and both, by libraries and by a scan."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from forms import TYPES, Choices, Form

Array = Any
FEATURES, WIDTH = 6, 5
OPERATORS = {"lstm": "LSTM", "gru": "GRU", "plain": "RNN"}


def make(choices: Choices) -> Form:
    cell = choices.take("cell", *OPERATORS)
    library = choices.take("written", "scan", "scan", "scan", "flax.nnx", "flax.linen", "equinox", "keras")
    directions = choices.take("directions", "forward", "forward", "backward", "turned around", "both", "both apart")
    own = library in ("scan", "equinox")
    batch = choices.take("batch", None, 1, 3, "symbol", "mapped") if own else choices.take("batch", 3)
    if library == "scan" and batch == 3:
        batch = choices.take("batch", 3, 3, "two axes")
    length = choices.take("length", 7, 7, "symbol") if library == "scan" else choices.take("length", 7)
    wanted = choices.take("result", "steps", "last", "state", "steps and state") if own else "steps"
    if not own:
        wanted = choices.take("result", "steps", "last")
    dtype = choices.take("type", "float32", "float32", "float32", "float16", "bfloat16")
    if library != "scan":
        dtype = choices.take("type", "float32")
    if own:
        make_layer = _scanned if library == "scan" else _equinox
        readout = choices.take("read out", "no", "no", "in the step") if library == "scan" else "no"
        start = choices.take("start", "zeros", "zeros", "learned", "given")
        ways = [make_layer(choices, cell, dtype)]
        if directions.startswith("both"):
            choices.fixed = {**choices.made, **choices.fixed}  # the other one is written as the first is
            ways.append(make_layer(choices, cell, dtype))
        matrix = jnp.asarray(choices.normal((WIDTH, 3), dtype, 0.4)) if readout != "no" else None
        plan = _Plan(directions, wanted, batch not in (None, "mapped"), choices.take("time first", False, True), matrix)
        first = jnp.asarray(choices.normal((WIDTH,), dtype, 0.4)) if start == "learned" else None
        plan = dataclasses.replace(plan, first=first, unroll=choices.take("unroll", 1, 1, 3))
        ways_to_loop = ("scan", "scan", "fori_loop", "fori_loop by slices", "while_loop", "Python", "Python over rows")
        loop = choices.take("loop", *ways_to_loop) if library == "scan" and length != "symbol" else "scan"
        packed = ("stacked", "joined") if cell == "lstm" and not loop.startswith("Python") else ()
        carried = choices.take("carried", "tuple", "tuple", "dict", "one more", *packed)
        plan = dataclasses.replace(plan, loop=loop, carried=carried)
        if not loop.startswith("Python"):
            plan = dataclasses.replace(plan, columns=choices.take("columns", False, False, False, True))
        if library == "scan" and batch is not None and loop == "scan" and (directions, length) != _TURNED:
            plan = dataclasses.replace(plan, lengths=choices.take("lengths", *["none"] * 6, *_LENGTHS))
        fn = _directed(ways, plan)
        stacks = ("one", "one", "one", "two", "two in one loop")
        stack = choices.take("layers", *stacks) if library == "scan" and wanted == "steps" else "one"
        layers = 1 if stack == "one" else 2
        if stack == "two":
            fn = _stacked(choices, fn, _directed([make_layer(choices, cell, dtype) for _ in ways], plan), plan, dtype)
        elif stack == "two in one loop":
            fn = _directed([_on_top(choices, make_layer, cell, dtype, one) for one in ways], plan)
            layers = 3 if directions.startswith("both") else 2  # the second layers read different steps
        fn = jax.vmap(fn) if batch == "mapped" else fn
    else:
        fn = _LIBRARIES[library](choices, cell, {"turned around": "backward"}.get(directions, directions), wanted)
        plan, start, layers = _Plan(directions, wanted), "zeros", 1
    sizes = {None: [], "symbol": ["B"], "mapped": [3], "two axes": [2, 3]}.get(batch, [batch])
    named = [*sizes, "T" if length == "symbol" else length]
    if own and plan.time_first and batch != "mapped":
        named = [named[-1], *named[:-1]]
    names = (*named, FEATURES)
    shape = [4 if isinstance(size, str) else size for size in names]
    numbers = choices.normal(shape, dtype)
    specs = [jax.ShapeDtypeStruct(names, TYPES[dtype])] if "symbol" in (batch, length) else None
    args = [numbers]
    if start == "given":
        for _ in range(2 if cell == "lstm" else 1):
            args.append(choices.normal([4 if isinstance(one, str) else one for one in sizes] + [WIDTH], dtype, 0.4))
            specs = specs and [*specs, jax.ShapeDtypeStruct((*sizes, WIDTH), TYPES[dtype])]
    if plan.lengths != "none":
        given = [4 if isinstance(one, str) else one for one in sizes]
        args.append(choices.numbers.integers(0, 8, given).astype("int32"))
        specs = specs and [*specs, jax.ShapeDtypeStruct(tuple(sizes), jnp.int32)]
    form = Form(fn, args, {OPERATORS[cell]: layers}, specs, absent=("Scan", "Loop"), dtype=dtype)
    form.tolerance = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}[dtype]
    return form


Cell = Callable[[Any, Array], Any]  # from a state and an input to the next state


@dataclasses.dataclass
class _Plan:
    directions: str
    wanted: str
    batched: bool = True
    time_first: bool = False
    readout: Array = None
    first: Array = None  # a row that each state starts with
    unroll: int = 1
    loop: str = "scan"
    carried: str = "tuple"
    columns: bool = False  # states are carried as columns, with weights on their left
    lengths: str = "none"  # how the steps after the end of each sequence are told


_TURNED = ("turned around", "symbol")  # which JAX writes with a look-up of each position

# Which steps count, from the numbers of the steps and the lengths of the sequences.
_LENGTHS: dict[str, Callable[[Array, Array], Array]] = {
    "less": lambda t, lengths: t < lengths,
    "not at least": lambda t, lengths: ~(t >= lengths),
    "greater": lambda t, lengths: lengths > t,
    "up to the last": lambda t, lengths: t <= lengths - 1,
    "in the step": lambda t, lengths: t < lengths,
    "zeroed": lambda t, lengths: t < lengths,
}


def _hidden(state: Any) -> Array:
    """What the last layer hands on."""
    while isinstance(state, list):
        state = state[-1]
    return state[0] if isinstance(state, tuple) else state


def _columns() -> tuple[Any, Any]:
    def turn(state: Any) -> Any:
        return jax.tree.map(jnp.transpose, state)

    return turn, turn


def _carried_as(way: str) -> tuple[Any, Any]:
    """States as people carry them from step to step, and back."""
    if way == "dict":
        return lambda s: {"state": s, "unused": 0}, lambda s: s["state"]
    if way in ("stacked", "joined"):  # h and c in one array
        join = jnp.stack if way == "stacked" else lambda s: jnp.concatenate(s, axis=-1)

        def part(s: Array) -> tuple[Array, ...]:
            return (s[0], s[1]) if way == "stacked" else tuple(jnp.split(s, 2, axis=-1))

        return (
            lambda s: [join(one) for one in s] if isinstance(s, list) else join(s),
            lambda s: [part(one) for one in s] if isinstance(s, list) else part(s),
        )
    if way == "one more":  # what was handed on last is carried as well
        return lambda s: (s, _hidden(s)), lambda s: s[0]
    return lambda s: s, lambda s: s


def _over_steps(plan: _Plan, body: Any, start: Any, x: Any, reverse: bool) -> tuple[Any, Array]:
    """What lax.scan does, also by the loops that people write instead of it."""
    if plan.loop == "scan":
        return jax.lax.scan(body, start, x, reverse=reverse, unroll=plan.unroll)
    length = jax.tree.leaves(x)[0].shape[0]
    if plan.loop == "Python":
        state, steps = start, []
        for t in reversed(range(length)) if reverse else range(length):
            state, out = body(state, jax.tree.map(lambda v, t=t: v[t], x))
            steps.append(out)
        return state, jnp.stack(steps[::-1] if reverse else steps)
    if plan.loop == "Python over rows":
        state, steps, leaves = start, [], jax.tree.leaves(x)
        for rows in zip(*(leaf[::-1] if reverse else leaf for leaf in leaves), strict=True):
            state, out = body(state, jax.tree.unflatten(jax.tree.structure(x), rows))
            steps.append(out)
        return state, jnp.stack(steps[::-1] if reverse else steps)
    out = jax.eval_shape(body, start, jax.tree.map(lambda v: v[0], x))[1]

    def step(t: Array, carried: tuple[Any, Array]) -> tuple[Any, Array]:
        state, steps = carried
        t = length - 1 - t if reverse else t
        if plan.loop == "fori_loop by slices":
            now = jax.tree.map(lambda v: jax.lax.dynamic_index_in_dim(v, t, 0, keepdims=False), x)
            state, one = body(state, now)
            return state, jax.lax.dynamic_update_slice_in_dim(steps, one[None], t, 0)
        state, one = body(state, jax.tree.map(lambda v: v[t], x))
        return state, steps.at[t].set(one)

    start = (start, jnp.zeros((length, *out.shape), out.dtype))
    if plan.loop == "while_loop":
        return jax.lax.while_loop(lambda s: s[0] < length, lambda s: (s[0] + 1, step(s[0], s[1])), (0, start))[1]
    return jax.lax.fori_loop(0, length, step, start)


def _directed(cells: list[tuple[Any, Cell]], plan: _Plan) -> Callable[[Array], Array]:
    """Steps are the first axis while they are scanned over, or the second of what is mapped over a batch."""

    def swap(x: Array) -> Array:
        return jnp.moveaxis(x, -2, 0) if plan.batched and not plan.time_first else x

    def swap_back(x: Array) -> Array:
        return jnp.moveaxis(x, 0, -2) if plan.batched and not plan.time_first else x

    def run(x: Array, cell: tuple[Any, Cell], reverse: bool, states: tuple[Array, ...], turned: bool = False) -> Any:
        start, step = cell
        *states, lengths = states if plan.lengths != "none" else (*states, None)
        x = swap(x)
        x = x[::-1] if turned else x
        zeros = start(x)
        if plan.first is not None:
            zeros = jax.tree.map(lambda zero: jnp.broadcast_to(plan.first, zero.shape), zeros)
        if states:
            zeros = jax.tree.unflatten(
                jax.tree.structure(zeros), list(states) * (len(jax.tree.leaves(zeros)) // len(states))
            )
        prepare = getattr(step, "prepare", lambda x: x)
        pack, unpack = _columns() if plan.columns else _carried_as(plan.carried)

        def body(state: Any, now: Array) -> tuple[Any, Array]:
            state = step(unpack(state), now)
            out = _hidden(state)
            return pack(state), out if plan.readout is None else out @ plan.readout

        def body_of_valid(state: Any, now: tuple[Array, Array]) -> tuple[Any, Array]:
            old, (now, valid) = unpack(state), now
            if plan.lengths == "in the step":
                valid = _LENGTHS[plan.lengths](valid, lengths)
            valid = valid[..., None]
            state = jax.tree.map(lambda one, other: jnp.where(valid, one, other), step(old, now), old)
            out = _hidden(state)
            out = jnp.where(valid, out, 0) if plan.lengths == "zeroed" else out
            return pack(state), out if plan.readout is None else out @ plan.readout

        everything = prepare(x)
        if lengths is not None:
            counted = jnp.arange(x.shape[0])[::-1] if turned else jnp.arange(x.shape[0])
            if plan.lengths != "in the step":
                counted = _LENGTHS[plan.lengths](counted.reshape(-1, *[1] * lengths.ndim), lengths)
            body, everything = body_of_valid, (everything, counted)
        state, steps = _over_steps(plan, body, pack(zeros), everything, reverse)
        state = _hidden(unpack(state))
        if plan.wanted == "state":
            return state
        if plan.wanted == "last":
            return steps[0 if reverse else -1]
        steps = swap_back(steps[::-1] if turned else steps)
        return (steps, state) if plan.wanted == "steps and state" else steps

    def both(x: Array, *states: Array) -> Any:
        one, other = run(x, cells[0], False, states), run(x, cells[1], True, states)
        if plan.directions == "both apart":
            return jax.tree.map(lambda a, b: a + 2 * b, one, other)
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=-1), one, other)

    if plan.directions.startswith("both"):
        return both
    turned = plan.directions == "turned around"
    return lambda x, *states: run(x, cells[0], plan.directions == "backward", states, turned)


def _stacked(choices: Choices, one: Any, other: Any, plan: _Plan, dtype: str) -> Callable[..., Array]:
    """A layer on what another gives, made as wide as its input was."""
    width = WIDTH if plan.readout is None else plan.readout.shape[1]
    width *= 2 if plan.directions == "both" else 1
    matrix = jnp.asarray(choices.normal((width, FEATURES), dtype, 0.4))
    return lambda x, *states: other(one(x, *states) @ matrix, *states)


def _on_top(choices: Choices, make_layer: Any, cell: str, dtype: str, below: tuple[Any, Cell]) -> tuple[Any, Cell]:
    """Two layers that take their steps together: the second reads what the first hands on in the same step."""
    choices.fixed = {**choices.made, **choices.fixed, "input products": "in the step"}
    start, step = make_layer(choices, cell, dtype)
    matrix = jnp.asarray(choices.normal((WIDTH, FEATURES), dtype, 0.4))

    def both(state: list[Any], x: Array) -> list[Any]:
        one = below[1](state[0], x)
        return [one, step(state[1], _hidden(one) @ matrix)]

    if hasattr(below[1], "prepare"):
        both.prepare = below[1].prepare
    return lambda x: [below[0](x), start(x)], both


def _sigmoid(written: str) -> Callable[[Array], Array]:
    ways: dict[str, Callable[[Array], Array]] = {
        "jax.nn": jax.nn.sigmoid,
        "by hand": lambda x: 1 / (1 + jnp.exp(-x)),
        "lax": jax.lax.logistic,
        "by tanh": lambda x: 0.5 * jnp.tanh(0.5 * x) + 0.5,
    }
    return ways[written]


# How the next state of a GRU is blended from the update gate, the candidate and the state.
_BLENDS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "weighted": lambda z, n, h: (1 - z) * n + z * h,
    "weighted the other way": lambda z, n, h: (1 - z) * h + z * n,
    "state first": lambda z, n, h: z * h + (1 - z) * n,
    "from the candidate": lambda z, n, h: n + z * (h - n),
    "from the state": lambda z, n, h: h + z * (n - h),
    "multiplied out": lambda z, n, h: n - z * n + z * h,
}


def _scanned(choices: Choices, cell: str, dtype: str) -> tuple[Any, Cell]:
    count = {"lstm": 4, "gru": 3, "plain": 1}[cell]
    ways = ("joined", "apart", "input and state in one", "state and input in one", "an axis of gates", "einsum")
    joined = choices.take("weights", *ways, "on the left", "gates first", "features first")
    hoisted = choices.take("input products", "in the step", "in the step", "before the loop")
    bias = choices.take("bias", "one", "two", "none")
    sigmoid = _sigmoid(choices.take("sigmoid", "jax.nn", "jax.nn", "by hand", "lax", "by tanh"))
    parted = choices.take("parted", "split", "slices")
    normal = lambda *shape: jnp.asarray(choices.normal(shape, dtype, 0.4))  # noqa: E731
    w, u = [normal(FEATURES, WIDTH) for _ in range(count)], [normal(WIDTH, WIDTH) for _ in range(count)]
    b, c = [normal(WIDTH) for _ in range(count)], [normal(WIDTH) for _ in range(count)]
    forget = choices.take("forget", "as it is", "one more", "one minus input") if cell == "lstm" else "as it is"
    reset = choices.take("reset", "before the product", "after the product") if cell == "gru" else ""
    blend = _BLENDS[choices.take("blend", *_BLENDS)] if cell == "gru" else None
    squash = choices.take("squash", "tanh", "relu", "sigmoid") if cell == "plain" else "tanh"
    peepholes = choices.take("peepholes", False, False, False, True) if cell == "lstm" else False
    told = [normal(WIDTH) for _ in range(3)] if peepholes else [0.0] * 3
    order = choices.random.sample(range(count), count)
    if joined.endswith("in one") and (hoisted != "in the step" or cell == "gru"):
        joined = choices.take("weights", "joined")

    def parts_of(value: Array) -> list[Array]:
        """What was joined in some order of gates, in ours."""
        if parted == "split":
            found = jnp.split(value, count, axis=-1)
        else:
            found = [value[..., WIDTH * k : WIDTH * (k + 1)] for k in range(count)]
        return [found[order.index(k)] for k in range(count)]

    def ordered(matrices: list[Array]) -> list[Array]:
        return [matrices[k] for k in order]

    def products(x: Array, matrices: list[Array]) -> list[Array]:
        if joined == "apart":
            return [x @ one for one in matrices]
        if joined == "on the left":
            if x.ndim == 1:
                return [one.T @ x for one in matrices]
            return [jnp.moveaxis(one.T @ jnp.moveaxis(x, -1, -2), -1, -2) for one in matrices]
        if joined == "einsum":
            return [jnp.einsum("...i,oi->...o", x, one.T) for one in matrices]
        if joined == "gates first":  # an axis of gates before all others, of the weights and of the products
            whole = jnp.einsum("...i,gio->g...o", x, jnp.stack(ordered(matrices)))
            return [whole[order.index(k)] for k in range(count)]
        if joined == "features first":  # the gates of one feature lie together
            whole = x @ jnp.stack(ordered(matrices), 2).reshape(x.shape[-1], -1)
            whole = whole.reshape(*whole.shape[:-1], WIDTH, count)
            return [whole[..., order.index(k)] for k in range(count)]
        whole = x @ jnp.concatenate(ordered(matrices), 1)
        if joined == "an axis of gates":
            whole = whole.reshape(*whole.shape[:-1], count, WIDTH)
            return [whole[..., order.index(k), :] for k in range(count)]
        return parts_of(whole)

    def of_input(x: Array) -> Array:
        found = products(x, w)
        found = found if bias == "none" else [part + one for part, one in zip(found, b, strict=True)]
        return found

    def parts(x: Any, h: Array) -> tuple[list[Array], list[Any]]:
        """What each gate gets from the input and from the state."""
        if joined.endswith("in one"):
            pairs = [(x, jnp.concatenate(ordered(w), 1)), (h, jnp.concatenate(ordered(u), 1))]
            (one, its), (other, others) = pairs if joined.startswith("input") else pairs[::-1]
            whole = jnp.concatenate([its, others], 0)
            of_x, of_h = parts_of(jnp.concatenate([one, other], axis=-1) @ whole), [None] * count
            of_x = of_x if bias == "none" else [part + one for part, one in zip(of_x, b, strict=True)]
        else:
            of_x, of_h = x if hoisted == "before the loop" else of_input(x), products(h, u)
        if bias == "two":
            of_h = [one if part is None else part + one for part, one in zip(of_h, c, strict=True)]
        return of_x, of_h

    def total(of_x: Array, of_h: Array | None) -> Array:
        return of_x if of_h is None else of_x + of_h

    def lstm(state: tuple[Array, Array], x: Array) -> tuple[Array, Array]:
        h, memory = state
        i, f, g, o = map(total, *parts(x, h))
        if peepholes:
            i, f = i + told[0] * memory, f + told[1] * memory
        f = sigmoid(f + 1) if forget == "one more" else sigmoid(f)
        i = sigmoid(i) if forget != "one minus input" else 1 - f
        memory = f * memory + i * jnp.tanh(g)
        o = o + told[2] * memory if peepholes else o
        return sigmoid(o) * jnp.tanh(memory), memory

    def gru(h: Array, x: Array) -> Array:
        of_x, of_h = parts(x, h)
        r, z = (sigmoid(of_x[k] + of_h[k]) for k in range(2))
        if reset == "before the product":
            extra = c[2] if bias == "two" else 0
            n = jnp.tanh(of_x[2] + (r * h) @ u[2] + extra)
        else:
            n = jnp.tanh(of_x[2] + r * of_h[2])
        return blend(z, n, h)

    def plain(h: Array, x: Array) -> Array:
        (gate,) = map(total, *parts(x, h))
        return {"tanh": jnp.tanh, "relu": jax.nn.relu, "sigmoid": sigmoid}[squash](gate)

    def start(x: Array) -> Any:
        zeros = jnp.zeros((*x.shape[1:-1], WIDTH), x.dtype)
        return (zeros, zeros) if cell == "lstm" else zeros

    step = {"lstm": lstm, "gru": gru, "plain": plain}[cell]
    if hoisted == "before the loop":
        step.prepare = of_input
    return start, step


def _equinox(choices: Choices, cell: str, dtype: str) -> tuple[Any, Cell]:
    import equinox

    key = jax.random.key(choices.random.randrange(100))
    bias = choices.take("bias", True, False)
    if cell == "plain":
        weights, state_weights = equinox.nn.Linear(FEATURES, WIDTH, key=key), equinox.nn.Linear(WIDTH, WIDTH, key=key)

        def layer(x: Array, h: Array) -> Array:
            return jnp.tanh(weights(x) + state_weights(h))

    else:
        kind = equinox.nn.LSTMCell if cell == "lstm" else equinox.nn.GRUCell
        layer = kind(FEATURES, WIDTH, use_bias=bias, key=key)

    def step(state: Any, x: Array) -> Any:
        return jax.vmap(layer)(x, state) if x.ndim == 2 else layer(x, state)

    def start(x: Array) -> Any:
        zeros = jnp.zeros((*x.shape[1:-1], WIDTH), x.dtype)
        return (zeros, zeros) if cell == "lstm" else zeros

    return start, step


def _kind(choices: Choices, library: Any, cell: str) -> Any:
    names = {"lstm": ("LSTMCell", "OptimizedLSTMCell"), "gru": ("GRUCell",), "plain": ("SimpleCell",)}[cell]
    return getattr(library, choices.take("kind", *names))


def _flax_nnx(choices: Choices, cell: str, directions: str, wanted: str) -> Callable[[Array], Array]:
    from flax import nnx

    kind = _kind(choices, nnx, cell)
    cells = [kind(FEATURES, WIDTH, rngs=nnx.Rngs(seed)) for seed in range(2)]
    layer = nnx.RNN(cells[0], reverse=directions == "backward", keep_order=True)
    if directions.startswith("both"):
        layer = nnx.Bidirectional(nnx.RNN(cells[0]), nnx.RNN(cells[1]))
    graph, state = nnx.split(layer)

    def fn(x: Array) -> Array:  # a carry of its own is made with counted random numbers, which a trace may not change
        zeros = jnp.zeros((x.shape[0], WIDTH))
        carry = (zeros, zeros) if cell == "lstm" else zeros
        carry = (carry, carry) if directions.startswith("both") else carry
        return nnx.merge(graph, state, copy=True)(x, initial_carry=carry)

    return _picked(fn, directions, wanted)


def _flax_linen(choices: Choices, cell: str, directions: str, wanted: str) -> Callable[[Array], Array]:
    from flax import linen

    kind = _kind(choices, linen, cell)
    layer = linen.RNN(kind(WIDTH), reverse=directions == "backward", keep_order=True)
    if directions.startswith("both"):
        layer = linen.Bidirectional(linen.RNN(kind(WIDTH)), linen.RNN(kind(WIDTH)))
    weights = layer.init(jax.random.key(0), jnp.zeros((3, 7, FEATURES)))
    return _picked(lambda x: layer.apply(weights, x), directions, wanted)


def _picked(layer: Callable[[Array], Array], directions: str, wanted: str) -> Callable[[Array], Array]:
    if wanted == "steps" or directions.startswith("both"):
        return layer
    return lambda x: layer(x)[:, 0 if directions == "backward" else -1]


def _keras(choices: Choices, cell: str, directions: str, wanted: str) -> Callable[[Array], Array]:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    kind = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU, "plain": keras.layers.SimpleRNN}[cell]
    options: dict[str, Any] = {"use_bias": choices.take("bias", True, True, False)}
    options["activation"] = choices.take("squash", "tanh", "tanh", "relu")
    if cell != "plain":
        options["recurrent_activation"] = choices.take("gates", "sigmoid", "sigmoid", "hard_sigmoid")
    if cell == "gru":
        options["reset_after"] = choices.take("reset after", True, False)
    options["return_sequences"] = wanted == "steps"
    if directions == "both":
        layer = keras.layers.Bidirectional(kind(WIDTH, **options))
    elif directions == "both apart":
        layer = keras.layers.Bidirectional(
            kind(WIDTH, **options), merge_mode=choices.take("merge", "sum", "ave", "mul")
        )
    else:
        layer = kind(WIDTH, go_backwards=directions == "backward", **options)
    layer.build((None, 7, FEATURES))
    return lambda x: layer(x)


_LIBRARIES = {"flax.nnx": _flax_nnx, "flax.linen": _flax_linen, "keras": _keras}
