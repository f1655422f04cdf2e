"""Loops over small work: numbers of steps that are known, random numbers inside loops, keys that are carried along."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from export_check import check_export
from jax import lax

KEY = np.array([7, 11], np.uint32)


def rows(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


def top(model) -> list[str]:
    return [node.op_type for node in model.graph.node]


def inside(model) -> list[str]:
    return [n.op_type for node in model.graph.node for a in node.attribute for n in a.g.node]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "draw",
    [
        lambda key: jax.random.normal(key, (3,)),
        lambda key: jax.random.uniform(key, (2, 3)).sum(0),
        lambda key: jax.random.randint(key, (3,), 0, 9).astype(jnp.float32),
        lambda key: jnp.where(jax.random.bernoulli(key, 0.4, (3,)), 1.0, -1.0),
        lambda key: jax.random.exponential(jax.random.split(key, 3)[1], (3,)),
    ],
    ids=["normal", "uniform", "randint", "bernoulli", "split again"],
)
def test_draws_of_scanned_keys_are_made_at_once(draw, reverse: bool) -> None:
    def fn(key, x):
        keys = jax.random.split(jax.random.wrap_key_data(key), 6)
        return lax.scan(lambda x, key: (jnp.sin(x) + draw(key), x), x, keys, reverse=reverse)

    model = check_export(fn, [KEY, rows(3)])
    assert "BitwiseXor" in top(model) and "BitwiseXor" not in inside(model)


def test_draws_of_keys_by_the_number_of_the_step_are_made_at_once() -> None:
    def fn(key, x):
        key = jax.random.wrap_key_data(key)
        return lax.fori_loop(2, 9, lambda i, x: 0.5 * x + jax.random.normal(jax.random.fold_in(key, i), (3,)), x)

    model = check_export(fn, [KEY, rows(3)])
    assert "BitwiseXor" in top(model) and "BitwiseXor" not in inside(model)


@pytest.mark.parametrize("splits", [2, 3])
def test_a_key_that_is_carried_is_split_alone_and_the_draws_are_made_at_once(splits: int) -> None:
    def fn(key, x):
        def step(carry, _):
            key, x = carry
            key, *now = jax.random.split(key, splits)
            x = x + sum(jax.random.normal(k, (3,)) for k in now)
            return (key, x), x

        (key, x), xs = lax.scan(step, (jax.random.wrap_key_data(key), x), length=5)
        return jax.random.key_data(key), x, xs

    model = check_export(fn, [KEY, rows(3)])
    assert top(model).count("Scan") == 2 and "Log" in top(model) and "Log" not in inside(model)


def test_a_walk_whose_state_is_its_key() -> None:
    def fn(key):
        def step(key, _):
            key, now = jax.random.split(key)
            return key, jax.random.uniform(now, (2,))

        return lax.scan(step, jax.random.wrap_key_data(key), length=4)[1]

    check_export(fn, [KEY])


@pytest.mark.parametrize(("start", "step", "bound"), [(0, 1, 5), (3, 4, 20), (-7, 3, 2), (0, 1, 1)])
@pytest.mark.parametrize("test", [lax.lt, lax.le], ids=["below", "up to"])
def test_while_loops_that_count_are_scans(start: int, step: int, bound: int, test) -> None:
    def fn(x):
        def body(state):
            i, x = state
            return i + step, jnp.cos(x) + i

        return lax.while_loop(lambda state: test(state[0], bound), body, (start, x))[1]

    model = check_export(fn, [rows(3)])
    assert "Loop" not in top(model)


def test_counters_of_scans_are_not_carried() -> None:
    def fn(x, xs):
        def step(carry, a):
            i, x = carry
            return (i + 2, x * jnp.sqrt(i.astype(jnp.float32)) + a), x

        return lax.scan(step, (jnp.int32(1), x), xs, reverse=True)

    model = check_export(fn, [rows(3), rows(4, 3)])
    assert "Sqrt" not in inside(model)


def test_matrices_made_of_slices_are_multiplied_at_once() -> None:
    def fn(x, angles):
        def step(x, angle):
            c, s = jnp.cos(angle), jnp.sin(angle)
            turn = jnp.array([[c, -s], [s, c]])
            return jnp.tanh((turn @ turn.T @ turn) @ x), x.sum()

        return lax.scan(step, x, angles)

    model = check_export(fn, [rows(2), rows(7)])
    assert "Cos" not in inside(model)


def test_large_slices_stay_in_the_loop() -> None:
    def fn(x, xs):
        return lax.scan(lambda x, a: (x + jnp.exp(a), None), x, xs)[0]

    assert "Exp" in inside(check_export(fn, [rows(5000), rows(3, 5000)]))


def test_equations_written_number_by_number_keep_their_axes() -> None:
    def slope(s):
        x, y, z = s
        return jnp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8 / 3 * z])

    model = check_export(lambda s: lax.fori_loop(0, 4, lambda _, s: s + 0.01 * slope(s), s), [rows(3)])
    assert "Unsqueeze" not in inside(model)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 3), (4, 4), (8, 8), (2, 5), (5, 2), (3, 4, 4), (1, 3)])
def test_lu_of_few_rows(shape: tuple[int, ...]) -> None:
    check_export(jax.lax.linalg.lu, [rows(*shape)])


def test_lu_of_few_rows_that_are_singular_or_equal() -> None:
    matrices = np.stack([rows(3, 3) for _ in range(5)])
    matrices[0] = 0
    matrices[1, 1] = matrices[1, 0]
    matrices[2] = 1
    matrices[3, :, 0] = 0
    matrices[4] = [[0, 1, 2], [-3, 4, 5], [3, 4, 6]]
    check_export(jax.lax.linalg.lu, [matrices])


def all_nodes(graph) -> list:
    bodies = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return [*graph.node, *(node for body in bodies for node in all_nodes(body))]


@pytest.mark.parametrize("first", [0, 2, -3])
@pytest.mark.parametrize("limit", [9, 40])
def test_loops_that_count_from_a_computed_number_are_scans(first: int, limit: int) -> None:
    table = jnp.linspace(-1, 1, 49).reshape(7, 7)

    def fn(again, x):
        def body(state):
            i, steps, x = state
            return i + 1, steps + 1, jnp.sin(x) * table[i % 7].sum() + jnp.where(i == 3, 1.0, 0.5) * x

        start = jnp.where(again, first, first + 2)
        return lax.while_loop(lambda s: (s[0] < first + 7) & (s[1] < limit), body, (start, 0, x))

    for again in (True, False):
        model = check_export(fn, [np.array(again), rows(3)])
        assert "Scan" in top(model) and "Loop" not in top(model)


def test_a_loop_that_another_counter_may_end_stays_one() -> None:
    def fn(again, x):
        def body(state):
            return state[0] + 1, state[1] + 1, jnp.sin(state[2]) + state[0]

        start = jnp.where(again, 0, 2)
        return lax.while_loop(lambda s: (s[0] < 7) & (s[1] < 6), body, (start, 0, x))

    for again in (True, False):
        assert "Loop" in top(check_export(fn, [np.array(again), rows(3)]))


@pytest.mark.parametrize("restart", [0.0, 1.0, np.inf, np.nan])
def test_what_a_branch_sets_to_what_it_was_is_not_carried(restart: float) -> None:
    def fn(x):
        def body(state):
            x, rate, count = state
            rate, count = lax.cond(x[0] > 0.3, lambda: (jnp.float32(restart), 0), lambda: (rate, count))
            scale = jnp.where(jnp.isfinite(rate) & (count < 2), 0.7, 0.2)
            return jnp.sin(x) + scale * x + 0.1, rate, count

        return lax.while_loop(lambda s: s[0].max() < 1.1, body, (x, jnp.float32(restart), 0))

    model = check_export(fn, [0.1 * rows(3)])
    assert "If" not in [node.op_type for node in all_nodes(model.graph)]


def test_what_only_branches_set_anew_and_read_is_not_carried() -> None:
    def fn(x):
        def body(state):
            x, last, best = state
            last, best = lax.cond(x[0] > 0.3, lambda: (x @ x, jnp.sin(x)), lambda: (last, best))
            return jnp.sin(x) + 0.7 * best, last, best

        return lax.while_loop(lambda s: s[0].max() < 1.5, body, (x, jnp.float32(0), x))[0]

    model = check_export(fn, [0.4 + 0 * rows(3)])
    assert "MatMul" not in [node.op_type for node in all_nodes(model.graph)]


def test_a_choice_that_is_known_is_the_branch() -> None:
    def fn(x):
        def step(state):
            done, x = state
            return ~done & False, lax.cond(done, lambda x: jnp.cos(x), lambda x: jnp.sin(x), x)

        return step(step((jnp.bool_(False), x)))

    model = check_export(fn, [rows(3)])
    assert top(model).count("Sin") == 2 and "If" not in top(model)


def test_what_must_be_so_for_another_step_is_so_in_every_step() -> None:
    def fn(x):
        def body(state):
            x, done, status = state
            x = jnp.where(done, x, jnp.sin(x) + 0.9 * x)
            status = jnp.where(status == 0, jnp.where(x.max() > 1.6, 3, 0), 7)
            return x, jnp.abs(x).max() > 1.8, status

        return lax.while_loop(lambda s: ~s[1] & (s[2] == 0), body, (x, False, 0))

    model = check_export(fn, [0.2 * rows(3)])
    loop = next(node for node in model.graph.node if node.op_type == "Loop")
    body = [node.op_type for node in loop.attribute[0].g.node]
    assert body.count("Gather") == 1 and not {"Where", "If"} & set(body)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint8, np.bool_])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (16,)])
def test_choices_between_two_constants_are_looked_up(dtype: type, shape: tuple[int, ...]) -> None:
    a, b = (np.nan, -np.inf) if np.issubdtype(dtype, np.floating) else (True, False) if dtype is np.bool_ else (7, 0)
    row = np.array([1, 0, 1], dtype)

    def fn(x):
        def body(i, state):
            x, chosen, rows = state
            chosen = jnp.where(x > 0.5, jnp.array(a, dtype), jnp.array(b, dtype))
            rows = jnp.where(jnp.all(x > 0.7), row, jnp.zeros(3, dtype))
            return jnp.cos(x), chosen, rows

        return lax.fori_loop(0, 5, body, (x, jnp.zeros(shape, dtype), jnp.zeros(3, dtype)))

    check_export(fn, [np.linspace(0, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)])


@pytest.mark.parametrize("values", [[1.0, -2.0, 0.5], [np.inf, 1.0, -0.0], [np.nan, np.inf, 3.0]])
def test_stages_of_a_step_are_written_out(values: list[float]) -> None:
    table = np.array([[0, 0, 0], [0.5, 0, 0], [-1, 2, 0]], np.float32)

    def fn(x, times):
        def step(x, t):
            def stage(i, k):
                return k.at[i].set(jnp.sin(x + 0.1 * table_[i] @ k) * t[i])

            table_ = jnp.asarray(table)
            k = lax.fori_loop(0, 3, stage, jnp.zeros((3, 3), jnp.float32))
            return x + 0.1 * (k[0] + 4 * k[1] + k[2]), None

        return lax.scan(step, x, times)[0]

    model = check_export(fn, [np.array(values, np.float32), rows(5, 3)])
    body = next(node for node in model.graph.node if node.op_type == "Scan").attribute[0].g
    assert not {"Scan", "Loop"} & {node.op_type for node in body.node}


def test_zero_times_a_truth_value_is_zero_and_times_infinity_is_not() -> None:
    def fn(x, mask):
        flat = jnp.zeros((3, 2)) * mask[:, None].astype(jnp.float32)
        return jnp.where(flat == 0, x[:, None], -jnp.inf), jnp.zeros(3) * x

    model = check_export(fn, [np.array([1, np.inf, np.nan], np.float32), np.array([True, False, True])])
    assert "Cast" not in top(model) and "Mul" in top(model)


def everywhere(graph) -> list[str]:
    names = [node.op_type for node in graph.node]
    for node in graph.node:
        for attribute in node.attribute:
            names += everywhere(attribute.g)
    return names


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("draw", [jax.random.uniform, lambda key: jax.random.normal(key, (2,)).sum()])
@pytest.mark.parametrize("with_key", [False, True])
def test_keys_that_an_inner_loop_splits_are_known_before_the_outer_one(batch: int | None, draw, with_key: bool) -> None:
    """Also where the elements of a batch come to their ends one by one."""

    def search(key, x):
        def descend(state):
            _, key, depth, x = state
            key, now = jax.random.split(key)
            x = 0.5 * x + draw(now)
            return (x > -0.2) & (depth + 1 < 4), key, depth + 1, x

        _, key, depth, x = lax.while_loop(lambda state: state[0], descend, (True, key, 0, x))
        return x, depth, jax.random.key_data(key)

    def fn(key, x):
        def step(x, key):
            keys = jax.random.split(key, batch) if batch else key
            x, depth, last = jax.vmap(search)(keys, x) if batch else search(keys, x)
            return x, (x, depth, last) if with_key else (x, depth)

        return lax.scan(step, x, jax.random.split(jax.random.wrap_key_data(key), 6))[1]

    model = check_export(fn, [KEY, rows(batch) if batch else rows(1)[0]])
    assert "Loop" in inside(model) and "BitwiseXor" not in inside(model)
    assert "BitwiseXor" not in [n for node in model.graph.node for a in node.attribute for n in everywhere(a.g)]


def test_an_inner_loop_without_a_bound_splits_its_keys_itself() -> None:
    def search(key, x):
        def descend(state):
            key, x = state
            key, now = jax.random.split(key)
            return key, 0.5 * x + jax.random.uniform(now)

        return lax.while_loop(lambda state: state[1] < 0.9, descend, (key, x))[1]

    def fn(key, x):
        return lax.scan(lambda x, key: (search(key, x) - 1, x), x, jax.random.split(jax.random.wrap_key_data(key), 4))

    model = check_export(fn, [KEY, rows(1)[0]])
    assert "BitwiseXor" in [n for node in model.graph.node for a in node.attribute for n in everywhere(a.g)]


def test_places_that_were_found_in_a_table_of_places_are_in_bounds() -> None:
    """A tree that grows by a node a step, and a walk from its root in every step."""

    def fn(x):
        def grow(tree, number):
            def walk(state):
                node, _ = state
                return tree[node, number % 2], node

            _, parent = lax.while_loop(lambda state: state[0] != -1, walk, (jnp.int32(0), jnp.int32(-1)))
            return tree.at[parent, number % 2].set(number), parent

        return lax.scan(grow, jnp.full((6, 2), -1, jnp.int32) + 0 * x, jnp.arange(1, 6, dtype=jnp.int32))

    model = check_export(fn, [np.zeros((6, 2), np.int32)])
    assert "Loop" in inside(model)
    known = check_export(lambda: fn(jnp.zeros((6, 2), jnp.int32)), [])
    assert "Compress" not in everywhere(known.graph) and "Clip" not in everywhere(known.graph)


def hashes(model) -> int:
    return everywhere(model.graph).count("BitwiseOr") // 20


def test_draws_of_several_keys_are_one_hash() -> None:
    def fn(key):
        a, b, c, d = jax.random.split(jax.random.wrap_key_data(key), 4)
        both = jax.random.normal(a, (2, 3)), jax.random.uniform(b)
        return *both, jax.random.bits(c, (5,), jnp.uint32), jax.random.key_data(jax.random.split(d, (2, 2)))

    assert hashes(check_export(fn, [KEY])) == 2


def test_draws_one_after_the_other_are_one_hash_each() -> None:
    def fn(key):
        key = jax.random.wrap_key_data(key)
        for _ in range(3):
            key = jax.random.fold_in(key, jax.random.bits(key, dtype=jnp.uint32))
        return jax.random.key_data(key)

    assert hashes(check_export(fn, [KEY])) == 6


@pytest.mark.parametrize("mapped", [False, True])
def test_draws_of_a_step_are_one_hash(mapped: bool) -> None:
    def fn(key, x):
        def step(x, key):
            a, b = jax.random.split(key)
            return 0.5 * x + jax.random.normal(a, (3,)) * jax.random.uniform(b), x

        key = jax.random.wrap_key_data(key)
        if mapped:
            keys = jax.random.split(key, (2, 4))
            return jax.vmap(lambda keys, x: lax.scan(step, x, keys))(keys, jnp.stack([x, 2 * x]))
        return lax.scan(step, x, jax.random.split(key, 4))

    assert hashes(check_export(fn, [KEY, rows(3)])) == 3


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("around", [False, True])
def test_the_next_key_is_split_beside_the_draw(batch: int | None, around: bool) -> None:
    """Two hashes: one before the loop, and one a step."""

    def reject(key, x):
        def again(state):
            key, _ = state
            key, now = jax.random.split(key)
            return key, jax.random.normal(now)

        key, found = lax.while_loop(lambda state: state[1] < x, again, (key, jnp.float32(-9)))
        return found, jax.random.key_data(key)

    def fn(key, x):
        run = jax.vmap(reject) if batch else reject
        key = jax.random.split(jax.random.wrap_key_data(key), batch) if batch else jax.random.wrap_key_data(key)
        if not around:
            return run(key, x)
        return lax.scan(lambda x, _: (0.5 * run(key, x)[0], x), x, length=3)

    model = check_export(fn, [KEY, rows(batch) if batch else rows(1)[0]])
    assert hashes(model) == (3 if batch else 2)


@pytest.mark.parametrize(
    "draw", [jax.random.gamma, jax.random.poisson, jax.random.beta], ids=lambda draw: draw.__name__
)
def test_draws_that_are_repeated_until_they_fit(draw) -> None:
    def fn(key, x):
        key = jax.random.wrap_key_data(key)
        return draw(key, 2 + x, 3.0, (3,)) if draw is jax.random.beta else draw(key, 2 + x, (3,))

    check_export(fn, [KEY, rows(1)[0]])


@pytest.mark.parametrize("reverse", [False, True])
def test_keys_that_inner_steps_split_are_known_before_the_outer_ones(reverse: bool) -> None:
    def fn(key, x):
        def outer(carry, _):
            def inner(carry, a):
                key, x = carry
                key, now = jax.random.split(key)
                return (key, 0.9 * x + a * jax.random.normal(now)), x

            key, x = carry
            key, start = jax.random.split(key)
            (last, x), xs = lax.scan(inner, (start, x), jnp.arange(4.0), reverse=reverse)
            return (key, x), (xs, jax.random.key_data(last))

        return lax.scan(outer, (jax.random.wrap_key_data(key), x), length=5)[1]

    model = check_export(fn, [KEY, rows(1)[0]])
    nested = [
        n
        for node in model.graph.node
        for a in node.attribute
        for m in a.g.node
        for b in m.attribute
        for n in everywhere(b.g)
    ]
    assert nested and "BitwiseXor" not in nested


def test_hashes_of_one_key_are_one_hash() -> None:
    def fn(key):
        key = jax.random.wrap_key_data(key)
        return jax.random.bits(key, (3,), jnp.uint32), jax.random.key_data(jax.random.fold_in(key, 7))

    assert hashes(check_export(fn, [KEY])) == 1


@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize("batch", [(), (4,)])
def test_rounds_of_few_rows_take_few_nodes(size: int, batch: tuple[int, ...]) -> None:
    """Rotations are products; a round is the last as soon as nothing is left to turn."""
    matrices = rows(*batch, size, size)
    values = check_export(lambda a: jnp.linalg.eigh(a + jnp.swapaxes(a, -1, -2))[0], [matrices])
    assert "MatMul" in inside(values) and len(inside(values)) < 30
    assert len(inside(check_export(lambda a: jnp.linalg.svd(a, compute_uv=False), [matrices]))) < 50


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("step", ["average", "blend", "grow", "discount", "vector", "before"])
def test_linear_recurrences_are_one_operator(step: str, reverse: bool) -> None:
    steps = {
        "average": lambda x, u: (x + 0.1 * (u - x),) * 2,
        "blend": lambda x, u: (0.9 * x + 0.1 * u,) * 2,
        "grow": lambda x, u: ((1.5 * x - u) / 2 + 0.3 * x + 1,) * 2,
        "discount": lambda x, u: (u + 0.99 * x,) * 2,
        "vector": lambda x, u: (x - 0.3 * (x + u),) * 2,
        "before": lambda x, u: (-0.5 * x + u, jnp.sin(x) + u),
    }
    shape = (3,) if step == "vector" else ()

    def fn(start, inputs):
        return lax.scan(steps[step], start, inputs, reverse=reverse)

    numbers = [rows(*shape) if shape else rows(1)[0], rows(40, *shape)]
    model = check_export(fn, numbers)
    assert "RNN" in top(model) and "Scan" not in top(model)
    check_export(lambda inputs: fn(jnp.zeros(shape), inputs)[1], numbers[1:])
    numbers[1][20] = np.inf
    check_export(fn, numbers)
    check_export(fn, [np.full(shape, np.inf, np.float32), rows(40, *shape)])


@pytest.mark.parametrize(("rate", "steps"), [(0.5, 60), (0.1, 400), (0.05, 400), (0.001, 400)])
@pytest.mark.parametrize("level", [3, 1.7, -0.3])
def test_averages_of_long_times_stay_as_accurate(rate: float, steps: int, level: float) -> None:
    def fn(start, inputs):
        return lax.scan(lambda x, u: (x + rate * (u - x),) * 2, start, inputs)[1]

    inputs = np.full(steps, level, np.float32)
    model = check_export(fn, [np.float32(0), inputs], rtol=1e-5)
    assert ("RNN" in top(model)) == (rate > 0.01)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [i.name for i in session.get_inputs()]
    (got,) = session.run(None, {names[0]: np.array(0, np.float32), names[1]: inputs})
    exact = np.float64(np.float32(level)) * (1 - (1 - np.float64(np.float32(rate))) ** np.arange(1, steps + 1))
    error = np.abs(np.asarray(jax.jit(fn)(np.float32(0), inputs)) / exact - 1).max()
    assert np.abs(got / exact - 1).max() < 3 * error


@pytest.mark.parametrize(
    "step",
    [
        lambda x, u: (x * u + u, x),
        lambda x, u: (0.9 * jnp.abs(x) + u, x),
        lambda x, u: (0.9 * x + u + x[::-1], x),
    ],
    ids=["factors of the steps", "sizes", "other elements"],
)
def test_other_recurrences_stay_loops(step) -> None:
    model = check_export(lambda x, u: lax.scan(step, x, u), [rows(3), rows(12, 3)])
    assert "RNN" not in top(model)


def test_integers_are_rounded_down_in_few_nodes() -> None:
    limit = np.iinfo(np.int32)
    numbers = np.array([0, 1, -1, 2, -2, 7, -7, limit.max, limit.min, limit.min + 1, limit.min + 2], np.int32)
    for divisor, nodes in ((2, 3), (8, 3), (3, 5), (7, 5)):
        model = check_export(lambda x, divisor=divisor: x // divisor, [numbers])
        assert len(top(model)) == nodes
    model = check_export(lambda x: (x // 3, x % 3, x % 3 == 0), [numbers])
    assert len(top(model)) <= 8


def test_indices_that_are_not_below_zero_are_clipped_once() -> None:
    def fn(table, shifts):
        def step(table, shift):
            return table[jnp.maximum(jnp.arange(5) - shift, 0)] + 1, table.sum()

        return lax.scan(step, table, shifts)

    model = check_export(fn, [rows(5), np.array([1, 3, -2, 9], np.int32)])
    assert "Relu" not in everywhere(model.graph)


def test_choices_between_constants_are_looked_up() -> None:
    def fn(x, pushes):
        def step(x, push):
            x = 0.5 * jnp.sin(x) + jnp.where(x > 0.1, 0.25, -0.75) * push
            return x, jnp.where(x > 0, 1, 0)

        return lax.scan(step, x, pushes)

    for start in (rows(1)[0], np.float32(np.nan)):
        assert "Where" not in everywhere(check_export(fn, [start, rows(9)]).graph)
