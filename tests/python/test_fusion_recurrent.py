"""Loops whose body is a recurrent cell become LSTM, GRU or RNN; anything else stays a loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import KEYS, check_export, metadata, op_types

RNG = np.random.default_rng(0)
STEPS, BATCH, FEATURES, WIDTH = 5, 2, 3, 4
X = RNG.standard_normal((STEPS, BATCH, FEATURES)).astype(np.float32)
H0, C0 = (RNG.standard_normal((BATCH, WIDTH)).astype(np.float32) for _ in range(2))
sigmoid, tanh = jax.nn.sigmoid, jnp.tanh


def rows(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def scanned(cell, start, x, **options):
    return jax.lax.scan(cell, start, x, **options)


def zeros(x):
    return jnp.zeros((x.shape[1], WIDTH))


# ---- LSTM ----

KERNEL, RECURRENT, BIAS = rows(FEATURES, 4 * WIDTH), rows(WIDTH, 4 * WIDTH), rows(4 * WIDTH)


def lstm_cell(state, x, order=(0, 1, 2, 3), squash=tanh, gate=sigmoid, bias=BIAS):
    hidden, memory = state
    gates = jnp.split(x @ KERNEL + hidden @ RECURRENT + bias, 4, axis=-1)
    i, f, g, o = (gates[k] for k in order)
    memory = gate(f) * memory + sigmoid(i) * tanh(g)
    hidden = sigmoid(o) * squash(memory)
    return (hidden, memory), hidden


def test_lstm_with_both_results_and_given_states():
    model = check_export(lambda x, h, c: scanned(lstm_cell, (h, c), x), [X, H0, C0])
    assert sorted(op_types(model)) == ["LSTM"] + ["Squeeze"] * 3 + ["Unsqueeze"] * 2


def test_zeros_to_begin_with_are_left_out():
    model = check_export(lambda x: scanned(lstm_cell, (zeros(x), zeros(x)), x)[1], [X])
    assert op_types(model) == ["LSTM", "Squeeze"] and len(model.graph.node[0].input) == 4
    model = check_export(
        lambda x: scanned(lstm_cell, (zeros(x), zeros(x)), x)[1],
        [X],
        specs=[("T", "B", FEATURES)],
        more_args=[[X[:2, :1]]],
    )
    assert op_types(model) == ["LSTM", "Squeeze"]


def test_a_batch_of_one():
    model = check_export(lambda x: scanned(lstm_cell, (zeros(x), zeros(x)), x)[1], [X[:, :1]])
    assert op_types(model) == ["LSTM", "Squeeze"]


def test_only_the_last_memory():
    model = check_export(lambda x: scanned(lstm_cell, (zeros(x), zeros(x)), x)[0][1], [X])
    assert op_types(model) == ["LSTM", "Squeeze"] and list(model.graph.node[0].output)[:2] == ["", ""]


@pytest.mark.parametrize("reverse", [False, True])
def test_the_last_step_is_the_state_that_is_left(reverse):
    def fn(at):
        return lambda x: scanned(lstm_cell, (zeros(x), zeros(x)), x, reverse=reverse)[1][at]

    last = op_types(check_export(fn(0 if reverse else -1), [X]))
    assert last == ["LSTM", "Squeeze"]
    assert op_types(check_export(fn(1), [X])) == ["LSTM", "Squeeze", "Gather"]
    assert "Gather" in op_types(check_export(fn(-1 if reverse else 0), [X]))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 0, 1, 2), (2, 3, 1, 0)])
def test_gates_in_any_order_forwards_and_backwards(order):
    def fn(x):
        return scanned(lambda s, v: lstm_cell(s, v, order), (zeros(x), zeros(x)), x, reverse=True)

    model = check_export(fn, [X])
    assert op_types(model).count("LSTM") == 1 and "Scan" not in op_types(model)
    assert [a.s for a in model.graph.node[0].attribute if a.name == "direction"] == [b"reverse"]


def test_a_product_for_each_gate_with_a_bias_of_its_own():
    kernels, recurrents, biases = ([rows(*s) for _ in range(4)] for s in ((3, 4), (4, 4), (4,)))

    def cell(state, x):
        hidden, memory = state
        parts = zip(kernels, recurrents, biases, strict=True)
        i, f, g, o = (x @ k + (hidden @ r + b) for k, r, b in parts)
        memory = sigmoid(f + 1.0) * memory + sigmoid(i) * tanh(g)
        return (sigmoid(o) * tanh(memory), memory), None

    model = check_export(lambda x: scanned(cell, (zeros(x), zeros(x)), x)[0][0], [X])
    assert op_types(model) == ["LSTM", "Squeeze"]


def test_without_a_batch_and_weights_from_the_left():
    def cell(state, x):
        hidden, memory = state
        i, f, g, o = jnp.split(KERNEL.T @ x + RECURRENT.T @ hidden + BIAS, 4)
        memory = sigmoid(f) * memory + sigmoid(i) * tanh(g)
        hidden = sigmoid(o) * tanh(memory)
        return (hidden, memory), hidden

    def fn(x, h):
        return scanned(cell, (h, jnp.zeros(WIDTH)), x)

    found = op_types(check_export(fn, [X[:, 0], H0[0]]))
    assert sorted(found) == ["LSTM"] + ["Squeeze"] * 3 + ["Unsqueeze"] * 2
    mapped = op_types(check_export(jax.vmap(fn, in_axes=(1, 0), out_axes=0), [X, H0]))
    assert mapped.count("LSTM") == 1 and "Scan" not in mapped


def test_batch_first_inputs_multiplied_before_they_are_transposed():
    def fn(x):
        products = jnp.swapaxes(x @ KERNEL + BIAS, 0, 1)

        def cell(state, x):
            hidden, memory = state
            i, f, g, o = jnp.split(x + hidden @ RECURRENT, 4, axis=-1)
            memory = sigmoid(f) * memory + sigmoid(i) * tanh(g)
            hidden = sigmoid(o) * tanh(memory)
            return (hidden, memory), hidden

        start = jnp.zeros((x.shape[0], WIDTH))
        return scanned(cell, (start, start), products)[1]

    assert op_types(check_export(fn, [X.transpose(1, 0, 2)])) == ["Transpose", "LSTM", "Squeeze"]


# ---- GRU ----

GRU_KERNEL, GRU_RECURRENT, GRU_BIAS, CANDIDATE_BIAS = rows(3, 12), rows(4, 12), rows(12), rows(4)


def gru_cell(before, blend, hidden, x):
    xr, xz, xn = jnp.split(x @ GRU_KERNEL + GRU_BIAS, 3, axis=-1)
    if before:
        hr, hz, hn = jnp.split(hidden @ GRU_RECURRENT, 3, axis=-1)
        r, z = sigmoid(xr + hr), sigmoid(xz + hz)
        n = tanh(xn + r * (hn + CANDIDATE_BIAS))
    else:
        hr, hz = jnp.split(hidden @ GRU_RECURRENT[:, : 2 * WIDTH], 2, axis=-1)
        r, z = sigmoid(xr + hr), sigmoid(xz + hz)
        n = tanh(xn + (r * hidden) @ GRU_RECURRENT[:, 2 * WIDTH :])
    hidden = (1.0 - z) * n + z * hidden if blend else n + z * (hidden - n)
    return hidden, hidden


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("blend", [True, False])
def test_gru(before, blend):
    def fn(x, h):
        return scanned(lambda h, x: gru_cell(before, blend, h, x), h, x)

    model = check_export(fn, [X, H0])
    assert sorted(op_types(model)) == ["GRU", "Squeeze", "Squeeze", "Unsqueeze"]
    gru = next(node for node in model.graph.node if node.op_type == "GRU")
    assert [a.i for a in gru.attribute if a.name == "linear_before_reset"] == [1] * before


# ---- RNN ----


@pytest.mark.parametrize("squash", [tanh, jax.nn.relu])
def test_plain_cells(squash):
    kernel, recurrent, bias = rows(3, 4), rows(4, 4) / 4, rows(4)

    def fn(x):
        def cell(hidden, x):
            hidden = squash(x @ kernel + hidden @ recurrent + bias)
            return hidden, hidden

        return scanned(cell, zeros(x), x)

    assert op_types(check_export(fn, [X])) == ["RNN", "Squeeze", "Squeeze"]


# ---- what stays a loop ----


def near_lstm(**changed):
    return lambda x: scanned(lambda s, v: lstm_cell(s, v, **changed), (zeros(x), zeros(x)), x)[1]


def memories(x):
    return scanned(lambda s, v: (lstm_cell(s, v)[0], lstm_cell(s, v)[0][1]), (zeros(x), zeros(x)), x)[1]


def states_before(x):
    return scanned(lambda s, v: (lstm_cell(s, v)[0], s[0]), (zeros(x), zeros(x)), x)[1]


def counted(x):
    def cell(state, x):
        hidden, out = lstm_cell(state[:2], x)
        return (*hidden, state[2] + 1), out

    return scanned(cell, (zeros(x), zeros(x), 0), x)


def squared_state(x):
    def cell(hidden, x):
        hidden = tanh(x @ KERNEL[:, :4] + (hidden * hidden) @ RECURRENT[:, :4])
        return hidden, hidden

    return scanned(cell, zeros(x), x)[1]


def gru_of_input(x):
    def cell(hidden, x):
        z, n = sigmoid(x @ KERNEL[:, :4] + hidden @ RECURRENT[:, :4]), tanh(x @ KERNEL[:, 4:8])
        hidden = (1.0 - z) * n + z * hidden
        return hidden, hidden

    return scanned(cell, zeros(x), x)[1]


@pytest.mark.parametrize(
    "fn",
    [
        near_lstm(squash=sigmoid),
        near_lstm(gate=tanh),
        near_lstm(bias=rows(BATCH, 4 * WIDTH)),
        memories,
        states_before,
        squared_state,
        gru_of_input,
    ],
)
def test_near_misses_stay_loops(fn):
    found = op_types(check_export(fn, [X]))
    assert "Scan" in found and not {"LSTM", "GRU", "RNN"} & set(found)


def test_a_counter_beside_the_state():
    found = op_types(check_export(counted, [X]))
    assert "LSTM" in found and not {"Scan", "Loop"} & set(found)


def test_weights_known_only_at_run_time():
    def fn(x, recurrent):
        def cell(hidden, x):
            hidden = tanh(x @ KERNEL[:, :4] + hidden @ recurrent)
            return hidden, hidden

        return scanned(cell, zeros(x), x)[1]

    assert "Scan" in op_types(check_export(fn, [X, RECURRENT[:, :4]]))


def direction(model):
    node = next(node for node in model.graph.node if node.op_type == "LSTM")
    return [attribute.s for attribute in node.attribute if attribute.name == "direction"]


@pytest.mark.parametrize("reverse", [False, True])
def test_steps_turned_around_before_and_after(reverse):
    def fn(x):
        return scanned(lstm_cell, (zeros(x), zeros(x)), x[::-1], reverse=reverse)[1][::-1]

    model = check_export(fn, [X])
    assert op_types(model) == ["LSTM", "Squeeze"] and direction(model) == [b"forward" if reverse else b"reverse"]


def test_the_last_of_steps_turned_around():
    model = check_export(lambda x: scanned(lstm_cell, (zeros(x), zeros(x)), x[::-1])[0], [X])
    assert sorted(op_types(model)) == ["LSTM", "Squeeze", "Squeeze"] and direction(model) == [b"reverse"]
    model = check_export(lambda x: scanned(lstm_cell, (zeros(x), zeros(x)), x, reverse=True)[1][::-1][-1], [X])
    assert op_types(model) == ["LSTM", "Squeeze"]


def test_steps_turned_around_only_once():
    model = check_export(lambda x: scanned(lstm_cell, (zeros(x), zeros(x)), x[::-1])[1], [X])
    assert sorted(op_types(model)) == ["LSTM", "Slice", "Squeeze"] and direction(model) == []

    def both(x):
        steps = scanned(lstm_cell, (zeros(x), zeros(x)), x[::-1])[1]
        return steps, steps[::-1]

    assert "Slice" in op_types(check_export(both, [X]))


def test_it_names_all_its_lines():
    model = check_export(lambda x: scanned(lstm_cell, (zeros(x), zeros(x)), x)[1], [X])
    said = metadata(model.graph.node[0])
    first = lstm_cell.__code__.co_firstlineno
    assert said[KEYS[1]].startswith("fuse_recurrent:")
    for line in (2, 4, 5):
        assert f":{first + line} (lstm_cell)" in said[KEYS[3]]
    assert f":{scanned.__code__.co_firstlineno + 1} (scanned)" in said[KEYS[3]]


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("along", [0, 1])
def test_a_counted_loop_that_reads_and_writes_rows(backwards, along):
    random = np.random.default_rng(3)
    x = random.standard_normal((5, 2, 3)).astype(np.float32).swapaxes(0, along)
    w, u = (random.standard_normal((size, 4)).astype(np.float32) * 0.4 for size in (3, 4))

    def fn(x):
        def step(t, carried):
            h, rows = carried
            t = 4 - t if backwards else t
            h = jnp.tanh(jnp.take(x, t, axis=along) @ w + h @ u)
            return h, rows.at[t].set(h)

        return jax.lax.fori_loop(0, 5, step, (jnp.zeros((2, 4)), jnp.zeros((5, 2, 4))))

    found = op_types(check_export(fn, [x], rtol=1e-4, atol=1e-5))
    assert found.count("RNN") == 1 and "Scan" not in found and "ScatterND" not in found


# ---- steps that are written out ----


def test_steps_written_out_become_an_operator_with_the_lines_of_all():
    kernel, recurrent = rows(FEATURES, WIDTH), rows(WIDTH, WIDTH)

    def steps(x):
        h = zeros(x)
        h = tanh(x[0] @ kernel + h @ recurrent)
        h = tanh(x[1] @ kernel + h @ recurrent)
        h = tanh(x[2] @ kernel + h @ recurrent)
        return h

    model = check_export(steps, [X])
    (node,) = (node for node in model.graph.node if node.op_type == "RNN")
    first = steps.__code__.co_firstlineno
    assert all(f":{first + step} " in metadata(node)[KEYS[3]] for step in (2, 3, 4))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("read", ["state", "all", "first and last"])
def test_a_first_step_of_a_state_that_the_batch_shares_is_one_of_them(read, reverse):
    kernel, recurrent, bias, start = rows(FEATURES, WIDTH), rows(WIDTH, WIDTH), rows(WIDTH), rows(WIDTH)

    def steps(x):
        h, found = jnp.asarray(start), []
        for row in x[::-1] if reverse else x:
            h = tanh(row @ kernel + (h @ recurrent + bias))
            found.append(h)
        return {"state": h, "all": jnp.stack(found), "first and last": (found[0], h)}[read]

    model = check_export(jax.vmap(steps), [np.swapaxes(X, 0, 1)])
    assert op_types(model).count("RNN") == 1
    assert ("Tanh" in op_types(model)) == (read == "first and last")  # an output of the model stays what it is


def test_a_first_step_with_other_weights_is_none_of_them():
    kernel, recurrent, other = rows(FEATURES, WIDTH), rows(WIDTH, WIDTH), rows(WIDTH, WIDTH)

    def steps(x):
        h = tanh(x[0] @ kernel + jnp.ones(WIDTH) @ jnp.asarray(other))
        for row in x[1:]:
            h = tanh(row @ kernel + h @ recurrent)
        return h

    model = check_export(jax.vmap(steps), [np.swapaxes(X, 0, 1)])
    assert op_types(model).count("Tanh") == 1


def test_steps_without_an_operator_keep_their_lines():
    def steps(x, weights):
        h = x[0]
        h = tanh(h @ weights[0]) + x[0]
        h = tanh(h @ weights[1]) + x[1]
        h = tanh(h @ weights[2]) + x[2]
        return h

    model = check_export(steps, [rows(3, BATCH, WIDTH), rows(3, WIDTH, WIDTH)])
    first = steps.__code__.co_firstlineno
    products = [node for node in model.graph.node if node.op_type == "MatMul"]
    assert [metadata(node)[KEYS[0]].rsplit(":", 1)[1] for node in products] == [str(first + step) for step in (2, 3, 4)]


# ---- sequences of different lengths ----

LENGTHS = [np.array(two, np.int32) for two in ([3, 5], [0, 2], [-4, 9])]


def of_lengths(x, h, c, lengths, reverse, late, after):
    """States are held where steps do not count, of which `after` is handed out."""
    count = jnp.arange(STEPS)[::-1] if late else jnp.arange(STEPS)

    def step(state, now):
        x, t = now
        counts = (t < lengths)[:, None]
        new = lstm_cell(state, x)[0]
        held = jax.tree.map(lambda one, other: jnp.where(counts, one, other), new, state)
        return held, {"held": held[0], "zero": jnp.where(counts, new[0], 0), "one": jnp.where(counts, held[0], 1)}[
            after
        ]

    return scanned(step, (h, c), (x, count), reverse=reverse)


@pytest.mark.parametrize("after", ["held", "zero", "one"])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_lengths(reverse, late, after):
    def fn(x, h, c, lengths):
        return of_lengths(x, h, c, lengths, reverse, late, after)

    more = [[X, H0, C0, lengths] for lengths in LENGTHS[1:]]
    if not late:  # what is after the end of a sequence is not looked at
        more.append([np.where(np.arange(STEPS)[:, None, None] < 3, X, np.nan), H0, C0, np.array([3, 2], np.int32)])
    model = check_export(fn, [X, H0, C0, LENGTHS[0]], more_args=more)
    assert "LSTM" in op_types(model) and "Scan" not in op_types(model)


def test_lengths_of_one_state_alone_stay_a_loop():
    def fn(x, lengths):
        def step(state, now):
            x, t = now
            (hidden, memory), _ = lstm_cell(state, x)
            hidden = jnp.where((t < lengths)[:, None], hidden, state[0])
            return (hidden, memory), hidden

        return scanned(step, (zeros(x), zeros(x)), (x, jnp.arange(STEPS)))

    assert "Scan" in op_types(check_export(fn, [X, LENGTHS[0]]))


# ---- states in one array, layers in one loop ----


@pytest.mark.parametrize("joined", ["stacked", "side by side", "stacked last"])
def test_states_in_one_array(joined):
    def apart(state):
        if joined == "side by side":
            return state[:, :WIDTH], state[:, WIDTH:]
        return (state[0], state[1]) if joined == "stacked" else (state[..., 0], state[..., 1])

    def join(state):
        if joined == "side by side":
            return jnp.concatenate(state, axis=1)
        return jnp.stack(state, axis=0 if joined == "stacked" else -1)

    def fn(x, h, c):
        def step(state, x):
            new, out = lstm_cell(apart(state), x)
            return join(new), out

        return scanned(step, join((h, c)), x)

    model = check_export(fn, [X, H0, C0])
    assert "LSTM" in op_types(model) and "Scan" not in op_types(model)


LAYERS = 3
STACKED = rows(LAYERS, WIDTH, WIDTH), rows(LAYERS, WIDTH, WIDTH), rows(LAYERS, WIDTH)


def layer_step(hidden, x, kernel, recurrent, bias):
    return tanh(x @ kernel + hidden @ recurrent + bias)


@pytest.mark.parametrize("outer", ["layers", "steps"])
def test_layers_that_a_loop_goes_over(outer):
    def over_layers(x):
        def layer(x, weights):
            return scanned(lambda h, x: (layer_step(h, x, *weights),) * 2, zeros(x), x)[::-1]

        return scanned(layer, x, STACKED)

    def over_steps(x):
        def step(hidden, x):
            def layer(x, now):
                return (layer_step(now[0], x, *now[1:]),) * 2

            return scanned(layer, x, (hidden, *STACKED))[::-1]

        return scanned(step, jnp.zeros((LAYERS, *x.shape[1:])), x)

    x = np.repeat(X[..., :1], WIDTH, axis=2)
    model = check_export(over_layers if outer == "layers" else over_steps, [x])
    assert op_types(model).count("RNN") == LAYERS and "Scan" not in op_types(model)
