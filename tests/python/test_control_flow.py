"""scan, while, cond and what is built from them: numbers against JAX, the shape of the graphs, provenance inside."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from export_check import all_nodes, check_export, metadata, op_types, rows
from jax import lax

from jax2onnx import to_onnx

F32 = np.float32


def accumulate(carry: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    total = carry + x
    return total, total * carry


# --- scan ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unroll", [1, 3])
def test_scan_carries_and_stacks(reverse: bool, unroll: int) -> None:
    def fn(start, xs):
        return lax.scan(accumulate, start, xs, reverse=reverse, unroll=unroll)

    model = check_export(fn, [rows(3), rows(5, 3)])
    assert op_types(model).count("Scan") == 1 and "Loop" not in op_types(model)


def test_scan_of_several_carries_and_arrays_of_different_types() -> None:
    def body(carry, slices):
        count, total, flag = carry
        x, n = slices
        return (count + n, total + x, ~flag), (total * x, n * n, flag, count)

    def fn(start, xs, ns):
        return lax.scan(body, (jnp.int32(3), start, jnp.bool_(True)), (xs, ns))

    check_export(fn, [rows(2), rows(4, 2), rows(4, dtype=np.int32)])


@pytest.mark.parametrize("name", ["float16", "bfloat16", "int8", "int32", "uint8", "uint16", "uint32", "bool"])
def test_scan_of_each_type(name: str) -> None:
    dtype = jnp.dtype(name)

    def body(carry, x):
        result = carry ^ x if name == "bool" else carry + x
        return result, carry

    check_export(lambda start, xs: lax.scan(body, start, xs), [rows(3, dtype=dtype), rows(4, 3, dtype=dtype)])


@pytest.mark.parametrize("name", ["float64", "int64", "uint64"])
def test_scan_of_wide_types(name: str) -> None:
    def fn(start, xs):
        return lax.scan(accumulate, start, xs)

    check_export(fn, [rows(3, dtype=name), rows(4, 3, dtype=name)], x64=True)


def test_scan_without_arrays_goes_over_the_steps() -> None:
    def fn(start):
        return lax.scan(lambda carry, _: (carry * 1.5, carry + 1), start, None, length=4)

    assert "Scan" in op_types(check_export(fn, [rows(3)]))


def test_scan_without_arrays_backwards() -> None:
    def fn(start):
        return lax.scan(lambda carry, _: (carry * 1.5, carry + 1), start, None, length=4, reverse=True)

    check_export(fn, [rows(3)])


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_of_one_step_is_inlined(reverse: bool) -> None:
    model = check_export(lambda c, xs: lax.scan(accumulate, c, xs, reverse=reverse), [rows(3), rows(1, 3)])
    assert not {"Scan", "Loop"} & set(op_types(model))


def test_scan_of_no_steps() -> None:
    def fn(start, xs):
        return lax.scan(accumulate, start, xs), lax.scan(lambda c, _: (c * 2, c), start, None, length=0)

    model = check_export(fn, [rows(3), rows(0, 3)])
    assert not {"Scan", "Loop"} & set(op_types(model))


def test_scan_of_no_steps_keeps_a_symbolic_batch() -> None:
    def fn(start):
        return lax.scan(lambda c, _: (c * 2, c), start, None, length=0)

    check_export(fn, [rows(2, 3)], specs=[("B", 3)], more_args=[[rows(1, 3)], [rows(7, 3)]])


def test_scan_over_empty_slices() -> None:
    check_export(lambda start, xs: lax.scan(accumulate, start, xs), [rows(0), rows(4, 0)])


def test_scan_without_carries() -> None:
    def fn(xs):
        return lax.scan(lambda _, x: (None, x * x), None, xs)[1]

    check_export(fn, [rows(4, 2)])


def test_scan_without_stacked_results() -> None:
    def fn(start, xs):
        return lax.scan(lambda c, x: (c * x, None), start, xs)[0]

    check_export(fn, [rows(2), rows(4, 2)])


def test_scan_that_returns_its_inputs_constants_and_one_value_twice() -> None:
    def fn(start, outer, xs):
        def body(carry, x):
            a, b, c = carry
            return (b, a, c), (x, a, outer, jnp.float32(2), c, a + x, a + x)

        return lax.scan(body, (start, start * 2, outer), xs)

    check_export(fn, [rows(2), rows(3), rows(4, 2)])


def test_scan_captures_outer_values_weights_and_literals() -> None:
    weights = rows(3, 3)

    def fn(start, scale, xs):
        shift = scale * 2

        def body(carry, x):
            return jnp.tanh(carry @ weights + x * shift), carry * 0.5

        return lax.scan(body, start, xs)

    model = check_export(fn, [rows(2, 3), rows(3), rows(5, 2, 3)])
    scan = next(node for node in model.graph.node if node.op_type == "Scan")
    assert len(scan.input) == 2, "constants are captured, not passed in"


def test_scan_in_scan() -> None:
    def fn(start, xs, ys):
        def inner(carry, y):
            return carry * 0.9 + y, carry + start

        def outer(carry, x):
            carry, stacked = lax.scan(inner, carry + x, ys)
            return carry, (stacked, x)

        return lax.scan(outer, start, xs, reverse=True)

    model = check_export(fn, [rows(2), rows(3, 2), rows(4, 2)])
    assert op_types(model).count("Scan") == 2


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_of_symbolic_length_and_batch(reverse: bool) -> None:
    def fn(start, xs):
        return lax.scan(accumulate, start, xs, reverse=reverse)

    more = [[rows(b, 3), rows(t, b, 3)] for b, t in ((1, 1), (2, 7), (7, 2))]
    model = check_export(fn, [rows(2, 3), rows(4, 2, 3)], specs=[("B", 3), ("T", "B", 3)], more_args=more)
    assert "Scan" in op_types(model)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_whose_symbolic_length_may_be_zero(reverse: bool) -> None:
    def fn(start, xs):
        return lax.scan(accumulate, start, xs[1:], reverse=reverse)

    more = [[rows(b, 3), rows(t, b, 3)] for b, t in ((2, 1), (7, 2), (1, 1))]
    model = check_export(fn, [rows(2, 3), rows(4, 2, 3)], specs=[("B", 3), ("T", "B", 3)], more_args=more)
    assert "Loop" in op_types(model)


@pytest.mark.parametrize("opset", [17, 21, 24])
def test_scan_while_and_cond_at_other_opsets(opset: int) -> None:
    def fn(start, xs):
        carry, stacked = lax.scan(accumulate, start, xs, reverse=True)
        carry = lax.while_loop(lambda c: c[0] < 10, lambda c: c + 3, carry)
        return lax.cond(carry[0] > 1, lambda c: c * 2, lambda c: c, carry), stacked

    check_export(fn, [rows(3), rows(4, 3)], opset=opset)


def test_map_and_its_batches() -> None:
    def fn(xs):
        return lax.map(lambda x: jnp.tanh(x) * 2, xs), lax.map(lambda x: x * 3, xs, batch_size=2)

    check_export(fn, [rows(5, 3)])


@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(reverse: bool) -> None:
    check_export(lambda xs: lax.associative_scan(jnp.add, xs, reverse=reverse), [rows(7, 2)])


def test_gradient_of_scan() -> None:
    def loss(weights, start, xs):
        carry, stacked = lax.scan(lambda c, x: (jnp.tanh(c @ weights + x), c * x), start, xs)
        return jnp.sum(carry) + jnp.sum(stacked**2)

    check_export(jax.grad(loss, argnums=(0, 1, 2)), [rows(3, 3), rows(2, 3), rows(4, 2, 3)], rtol=1e-4, atol=1e-5)


def test_gradient_of_a_rematerialised_scan() -> None:
    def loss(start, xs):
        body = jax.checkpoint(lambda c, x: (jnp.sin(c) * x, c))
        return jnp.sum(lax.scan(body, start, xs)[0])

    check_export(jax.grad(loss, argnums=(0, 1)), [rows(3), rows(4, 3)], rtol=1e-4, atol=1e-5)


def test_vmap_of_scan() -> None:
    def fn(start, xs):
        return jax.vmap(lambda s, x: lax.scan(accumulate, s, x), in_axes=(0, 1))(start, xs)

    check_export(fn, [rows(5, 3), rows(4, 5, 3)])


# --- while --------------------------------------------------------------------------------------------------------


def collatz(start: jax.Array) -> tuple[jax.Array, jax.Array]:
    def step(state):
        n, count = state
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return lax.while_loop(lambda state: state[0] > 1, step, (start, jnp.int32(0)))


def test_while_loop() -> None:
    model = check_export(collatz, [np.int32(27)], more_args=[[np.int32(1)], [np.int32(2)], [np.int32(97)]])
    assert op_types(model).count("Loop") == 1


def test_while_that_takes_no_step() -> None:
    check_export(lambda x: lax.while_loop(lambda c: c[0] > 100, lambda c: c * 2, x), [rows(3)])


def test_while_with_constants_of_condition_and_body() -> None:
    def fn(start, limit, factor):
        return lax.while_loop(lambda c: jnp.sum(c[0]) < limit, lambda c: (c[0] + factor, c[1] + 1), (start, 0))

    args = [rows(3), F32(40), np.array([1, 2, 3], F32)]
    check_export(fn, args, more_args=[[rows(3), F32(-40), args[2]]])


def test_while_in_while() -> None:
    def fn(x, n):
        def outer(state):
            i, y = state
            y = lax.while_loop(lambda z: z[0] < 5.0 * i, lambda z: z + 1.5, y)
            return i + 1, y * 0.5

        return lax.while_loop(lambda state: state[0] < n, outer, (1, x))

    check_export(fn, [rows(2), np.int32(4)], more_args=[[rows(2), np.int32(0)]])


def test_while_with_symbolic_batch() -> None:
    def fn(x):
        return lax.while_loop(lambda c: jnp.max(c) < 10, lambda c: c * 1.5 + 1, x)

    check_export(fn, [rows(2, 3)], specs=[("B", 3)], more_args=[[rows(1, 3)], [rows(7, 3)]])


def test_while_that_swaps_and_keeps_carries() -> None:
    def fn(a, b, c):
        return lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, s[2], s[1], s[3]), (0, a, b, c))

    check_export(fn, [rows(2), rows(2) + 1, rows(3)])


@pytest.mark.parametrize("name", ["float16", "bfloat16", "int8", "uint8", "uint32"])
def test_while_of_each_type(name: str) -> None:
    def fn(x):
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + c[1]), (0, x))

    check_export(fn, [rows(3, dtype=jnp.dtype(name))])


def test_vmap_of_while_steps_each_element_as_often_as_it_asks() -> None:
    check_export(jax.vmap(collatz), [np.array([1, 2, 7, 27, 1], np.int32)])


def test_vmap_of_vmap_of_while() -> None:
    def fn(limits, x):
        def one(limit, y):
            return lax.while_loop(lambda c: c[0] < limit, lambda c: (c[0] + 1, c[1] * 2, ~c[2]), (0, y, True))

        return jax.vmap(jax.vmap(one))(limits, x)

    check_export(fn, [rows(2, 3, dtype=np.int32), rows(2, 3, 4)])


@pytest.mark.parametrize("opset", [17, 20])
def test_vmap_of_while_at_other_opsets(opset: int) -> None:
    def fn(x):
        return jax.vmap(lambda y: lax.while_loop(lambda c: c < 9, lambda c: c * 2 + 6, y))(x)

    check_export(fn, [rows(5)], opset=opset)


def test_fori_loop_with_constant_and_traced_bounds() -> None:
    def fn(x, n):
        x = lax.fori_loop(0, 5, lambda i, c: c + i, x)
        return lax.fori_loop(2, n, lambda i, c: c * 2 - i, x)

    check_export(fn, [rows(3), np.int32(6)], more_args=[[rows(3), np.int32(2)], [rows(3), np.int32(-1)]])


def test_fori_loop_up_to_a_symbolic_size() -> None:
    def fn(x):
        return lax.fori_loop(0, x.shape[0], lambda i, c: c * 0.5 + i, x)

    check_export(fn, [rows(2)], specs=[("B",)], more_args=[[rows(1)], [rows(7)]])


# --- cond and switch ----------------------------------------------------------------------------------------------


def test_cond_of_two_branches() -> None:
    def fn(p, x):
        return lax.cond(p, lambda y: (y * 2, y), lambda y: (y, y - 1), x)

    model = check_export(fn, [np.bool_(True), rows(3)], more_args=[[np.bool_(False), rows(3)]])
    assert op_types(model).count("If") == 1 and "Cast" not in op_types(model)


def test_cond_that_returns_outer_values_and_constants() -> None:
    table = rows(3) * 3

    def fn(p, x, y):
        return lax.cond(p > 0, lambda: (x, y, x, table), lambda: (y, y, table, table + 1))

    check_export(fn, [F32(1), rows(3), rows(3) + 1], more_args=[[F32(-1), rows(3), rows(3) + 1]])


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_switch_clamps_its_index(count: int) -> None:
    branches = [lambda y, k=k: y * k + (k - 1) for k in range(count)]

    def fn(i, x):
        return lax.switch(i, branches, x)

    more = [[np.int32(i), rows(3)] for i in (*range(count), -1, -(2**31), count, 2**31 - 1)]
    model = check_export(fn, [np.int32(0), rows(3)], more_args=more)
    assert op_types(model).count("If") == count - 1


def test_switch_with_known_index_is_inlined() -> None:
    model = check_export(lambda x: lax.switch(1, [jnp.sin, jnp.cos, jnp.tanh], x), [rows(3)])
    assert "If" not in op_types(model)


def test_cond_with_symbolic_batch() -> None:
    def fn(p, x):
        return lax.cond(p, lambda y: y * 2, lambda y: y + jnp.sum(y), x)

    more = [[np.bool_(p), rows(b, 3)] for b in (1, 7) for p in (0, 1)]
    check_export(fn, [np.bool_(True), rows(2, 3)], specs=[jax.ShapeDtypeStruct((), bool), ("B", 3)], more_args=more)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "int8", "uint16", "bool"])
def test_cond_of_each_type(name: str) -> None:
    x = rows(3, dtype=jnp.dtype(name))
    check_export(lambda p, x: lax.cond(p, lambda y: y, lambda y: y[::-1], x), [np.bool_(False), x])


def test_vmap_of_cond_selects() -> None:
    def fn(p, x):
        return jax.vmap(lambda q, y: lax.cond(q, lambda z: z * 2, lambda z: z - 1, y))(p, x)

    model = check_export(fn, [np.array([True, False, True]), rows(3, 2)])
    assert "If" not in op_types(model)


def test_scan_in_cond_in_while() -> None:
    def fn(x, xs):
        def even(c):
            return lax.scan(lambda s, a: (s * 0.5 + a, s), c, xs)[0]

        def step(state):
            i, c = state
            return i + 1, lax.cond(i % 2 == 0, even, lambda c: c * 1.25, c)

        return lax.while_loop(lambda state: state[0] < 5, step, (0, x))

    model = check_export(fn, [rows(3), rows(4, 3)])
    assert [op_types(model).count(op) for op in ("Loop", "If", "Scan")] == [0, 1, 2]


def test_cond_in_scan_and_switch_in_switch() -> None:
    def fn(xs):
        def body(carry, x):
            inner = lax.switch(jnp.int32(x), [lambda c: c, lambda c: c + 1, lambda c: c * 2], carry)
            positive = lambda c: lax.cond(x > 1, lambda d: d * 3, lambda d: -d, c)  # noqa: E731
            return lax.cond(x > 0, positive, lambda c: c, inner), inner

        return lax.scan(body, jnp.float32(1), xs)

    check_export(fn, [np.array([-2, 0, 1, 2, 3, 1], F32)])


def test_platform_dependent_takes_the_branch_for_the_cpu_else_the_default() -> None:
    def fn(x):
        named = lax.platform_dependent(x, cpu=lambda y: y + 1, tpu=lambda y: y + 2, default=lambda y: y + 3)
        return named, lax.platform_dependent(x, tpu=lambda y: y + 2, default=lambda y: y + 3)

    model = check_export(fn, [rows(3)])
    assert set(op_types(model)) == {"Add"}


# --- recurrent layers ---------------------------------------------------------------------------------------------


def lstm(weights: np.ndarray, recurrent: np.ndarray, bias: np.ndarray) -> Callable[..., Any]:
    def cell(state, x):
        hidden, memory = state
        gates = x @ weights + hidden @ recurrent + bias
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
        return (hidden, memory), hidden

    def layer(xs):
        zeros = jnp.zeros((xs.shape[1], recurrent.shape[0]), xs.dtype)
        return lax.scan(cell, (zeros, zeros), xs)

    return layer


def gru(weights: np.ndarray, recurrent: np.ndarray) -> Callable[..., Any]:
    size = recurrent.shape[0]

    def cell(hidden, x):
        a, b = x @ weights, hidden @ recurrent
        reset = jax.nn.sigmoid(a[:, :size] + b[:, :size])
        update = jax.nn.sigmoid(a[:, size : 2 * size] + b[:, size : 2 * size])
        fresh = jnp.tanh(a[:, 2 * size :] + reset * b[:, 2 * size :])
        hidden = update * hidden + (1 - update) * fresh
        return hidden, hidden

    def layer(xs):
        zeros = jnp.zeros((xs.shape[1], size), xs.dtype)
        return lax.scan(cell, zeros, xs)[1], lax.scan(cell, zeros, xs, reverse=True)[1]

    return layer


@pytest.mark.parametrize(
    "layer", [lstm(rows(3, 16), rows(4, 16), rows(16)), gru(rows(3, 12), rows(4, 12))], ids=["lstm", "gru"]
)
def test_recurrent_layer_with_symbolic_time_and_batch(layer: Callable[..., Any]) -> None:
    more = [[rows(t, b, 3)] for t, b in ((1, 1), (7, 2), (2, 7))]
    check_export(layer, [rows(5, 2, 3)], specs=[("T", "B", 3)], more_args=more, rtol=1e-4, atol=1e-5)


def test_vectorize() -> None:
    @jnp.vectorize
    def fn(x, n):
        return lax.fori_loop(0, 3, lambda i, c: c * n + i, x)

    check_export(fn, [rows(4, 3), rows(3)])


# --- provenance ---------------------------------------------------------------------------------------------------


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


def traced_nodes(fn: Callable[..., Any], args: list[Any], op: str) -> list[dict[str, str]]:
    model = check_export(fn, args)
    return [metadata(node) for node in all_nodes(model) if node.op_type == op]


def nested_program(x, xs):
    def inner(carry, a):
        return jnp.tanh(carry + a), a  # inner line

    def step(state):
        count, y = state
        y, _ = lax.scan(inner, y, xs)  # scan line
        return count + 1, lax.cond(count > 1, jnp.cos, lambda z: z, y)  # cond line

    return lax.while_loop(lambda state: state[0] < 3, step, (0, x))  # while line


def test_body_nodes_name_the_line_in_the_body_and_the_lines_of_the_loops_around() -> None:
    (found,) = traced_nodes(nested_program, [rows(3), rows(4, 3)], "Tanh")
    line = line_of(nested_program, "# inner line")
    assert found["pkg.jax2onnx.callsite"] == f"nested_program.<locals>.inner:{line}"
    order = [f":{line_of(nested_program, f'# {name} line')} (" for name in ("inner", "scan", "while")]
    places = [found["pkg.jax2onnx.jax_traceback"].find(part) for part in order]
    assert -1 not in places and places == sorted(places), found["pkg.jax2onnx.jax_traceback"]
    stack = found["pkg.jax2onnx.stacktrace"].splitlines()
    assert [part.rsplit(" ", 1)[1] for part in stack[-3:]] == ["lower_step", "emit_scan", "TanhPlugin.lower"]


def test_a_library_function_as_branch_is_blamed_on_the_line_of_the_cond() -> None:
    (found,) = traced_nodes(nested_program, [rows(3), rows(4, 3)], "Cos")
    assert found["pkg.jax2onnx.callsite"] == f"nested_program.<locals>.step:{line_of(nested_program, '# cond line')}"


def test_the_loop_itself_is_at_the_line_that_calls_it() -> None:
    found = traced_nodes(nested_program, [rows(3), rows(4, 3)], "Scan")
    lines = {name: line_of(nested_program, f"# {name} line") for name in ("scan", "while")}
    assert {node["pkg.jax2onnx.callsite"] for node in found} == {
        f"nested_program.<locals>.step:{lines['scan']}",
        f"nested_program:{lines['while']}",
    }


# --- graphs -------------------------------------------------------------------------------------------------------


def test_names_are_unique_in_the_whole_model() -> None:
    model = check_export(nested_program, [rows(3), rows(4, 3)])
    names = [name for node in all_nodes(model) for name in (node.name, *node.output)]
    assert len(names) == len(set(names))


def test_unused_results_of_loops_and_branches_are_not_computed() -> None:
    def fn(start, xs):
        carry, _ = lax.scan(lambda c, x: (c + x, jnp.exp(jnp.sin(x))), start, xs)
        a, _ = lax.cond(carry[0] > 0, lambda c: (c * 2, jnp.exp(c)), lambda c: (c, c), carry)
        b, _ = lax.scan(lambda c, _: (c * 2, jnp.exp(c)), a, None, length=3)
        c, (_, d) = lax.scan(lambda c, x: (c + x, (jnp.exp(c), c * x)), b, xs, reverse=True)
        return c, d, lax.scan(lambda c, x: (c + x, jnp.exp(c)), b, xs, reverse=True)[0]

    model = check_export(fn, [rows(3), rows(4, 3)])
    assert "Exp" not in op_types(model) and "Sin" not in op_types(model)


def test_the_counter_of_a_loop_goes_when_the_body_does_not_look_at_it() -> None:
    model = check_export(lambda x: lax.fori_loop(0, 5, lambda i, c: c * 0.5, x), [rows(20, 20)])
    assert "Add" not in op_types(model)
    loop = next(node for node in model.graph.node if node.op_type == "Scan")
    assert len(loop.input) == 2 and len(loop.output) == 1


def test_what_every_step_repeats_is_computed_before_the_loop() -> None:
    weights = rows(3, 4)

    def fn(start, scale, xs):
        def body(carry, x):
            inner, _ = lax.scan(lambda c, _: (c + jnp.exp(scale), None), carry, x)
            return jnp.tanh(inner + x @ weights), jnp.sin(scale) * carry

        return lax.scan(body, start, xs, reverse=True)

    model = check_export(fn, [rows(2, 4), rows(4), rows(5, 2, 3)])
    top = [node.op_type for node in model.graph.node]
    assert {"Exp", "Sin", "MatMul"} <= set(top) and op_types(model).count("MatMul") == 1
    (product,) = [metadata(node) for node in model.graph.node if node.op_type == "MatMul"]
    assert "body" in product["pkg.jax2onnx.callsite"], "what is hoisted keeps its line"


def test_a_loop_that_takes_no_step_does_not_divide_by_zero() -> None:
    def fn(n, d):
        return lax.while_loop(lambda c: c * d > 1, lambda c: c - lax.div(lax.mul(d, d), d), n)

    check_export(fn, [np.int32(9), np.int32(2)], more_args=[[np.int32(9), np.int32(0)]])


def test_products_of_one_slice_with_several_matrices() -> None:
    first, second = rows(3, 3), rows(3, 3) + 1

    def fn(start, xs):
        return lax.scan(lambda c, x: (c * 0.5 + x @ first, (x @ second) * x), start, xs)

    model = check_export(fn, [rows(3), rows(5, 3)])
    assert [node.op_type for node in model.graph.node].count("MatMul") == 2


def test_a_recurrent_layer_of_any_length_and_batch_is_one_operator() -> None:
    model = to_onnx(lstm(rows(3, 16), rows(4, 16), rows(16)), [("T", "B", 3)])
    assert isinstance(model, onnx.ModelProto)
    onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert op_types(model).count("LSTM") == 1 and not {"Scan", "Loop"} & set(op_types(model))
