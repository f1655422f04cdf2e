"""Programs whose lines are marked by what must be found of them.

``#!`` at the end of a line: it computes something, and an item of the model came from it, alone or fused with others.
``#>``: it calls such code, and does nothing that must be found by itself.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap

_MARK = re.compile(r"#([!>])$")
_HEAD = "import functools\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\nfrom jax import lax\n\n"


@dataclasses.dataclass(frozen=True)
class LineProgram:
    name: str
    inputs: tuple[tuple[int, ...], ...]
    source: str

    def marked(self, mark: str) -> list[int]:
        found = [(number, _MARK.search(line)) for number, line in enumerate(self.source.splitlines(), 1)]
        return [number for number, match in found if match and match[1] == mark]


def program(name: str, inputs: str, body: str) -> LineProgram:
    """``inputs``: shapes, as in "2,3 4"; the body defines ``program``."""
    shapes = tuple(tuple(int(size) for size in shape.split(",")) for shape in inputs.split())
    return LineProgram(name, shapes, _HEAD + textwrap.dedent(body).strip() + "\n")


PROGRAMS = [
    program("attention", "2,4,8,16 2,4,8,16 2,4,8,16", """
        def program(q, k, v):
            scores = q @ k.swapaxes(-1, -2) / 4.0 #!
            weights = jax.nn.softmax(scores, axis=-1) #!
            return weights @ v #!
        """),
    program("causal_attention", "2,4,8,16 2,4,8,16 2,4,8,16", """
        def program(q, k, v):
            scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) #!
            scores = scores / 4.0 #!
            mask = jnp.tril(jnp.ones((8, 8), bool)) #!
            scores = jnp.where(mask, scores, -1e9) #!
            weights = jax.nn.softmax(scores, axis=-1) #!
            return jnp.einsum("bhqk,bhkd->bhqd", weights, v) #!
        """),
    program("attention_in_a_block", "2,8,32", """
        W = np.random.default_rng(0).normal(size=(4, 32, 32)).astype(np.float32)


        def split(x):
            return x.reshape(2, 8, 4, 8).transpose(0, 2, 1, 3)


        def attend(x):
            q, k, v = split(x @ W[0]), split(x @ W[1]), split(x @ W[2]) #!
            p = jax.nn.softmax(q @ k.swapaxes(-1, -2) * 0.35, axis=-1) #!
            o = (p @ v).transpose(0, 2, 1, 3).reshape(2, 8, 32) #!
            return o @ W[3] #!


        def program(x):
            return x + attend(x) #!
        """),
    program("layer_norm_by_hand", "4,16", """
        def program(x):
            mean = jnp.mean(x, axis=-1, keepdims=True) #!
            centred = x - mean #!
            variance = jnp.mean(centred ** 2, axis=-1, keepdims=True) #!
            return centred / jnp.sqrt(variance + 1e-5) #!
        """),
    program("layer_norm_with_scale", "4,16 16 16", """
        def normalise(x):
            mean = x.mean(-1, keepdims=True) #!
            variance = ((x - mean) ** 2).mean(-1, keepdims=True) #!
            return (x - mean) * lax.rsqrt(variance + 1e-6) #!


        def program(x, scale, bias):
            y = normalise(x) #>
            y = y * scale #!
            return y + bias #!
        """),
    program("rms_norm_by_hand", "4,16 16", """
        def program(x, scale):
            square = jnp.square(x) #!
            mean = jnp.mean(square, axis=-1, keepdims=True) #!
            inverse = lax.rsqrt(mean + 1e-6) #!
            return x * inverse * scale #!
        """),
    program("batch_norm_by_hand", "8,6", """
        def program(x):
            mean = x.mean(0) #!
            variance = x.var(0) #!
            return (x - mean) / jnp.sqrt(variance + 1e-5) #!
        """),
    program("softmax_by_hand", "4,10", """
        def program(x):
            largest = jnp.max(x, axis=-1, keepdims=True) #!
            shifted = x - largest #!
            powers = jnp.exp(shifted) #!
            total = jnp.sum(powers, axis=-1, keepdims=True) #!
            return powers / total #!
        """),
    program("log_softmax_by_hand", "4,10", """
        def program(x):
            shifted = x - jnp.max(x, axis=-1, keepdims=True) #!
            total = jnp.log(jnp.sum(jnp.exp(shifted), axis=-1, keepdims=True)) #!
            return shifted - total #!
        """),
    program("gelu_by_hand", "4,10", """
        def program(x):
            inner = x / jnp.sqrt(2.0) #!
            cdf = 0.5 * (1.0 + lax.erf(inner)) #!
            return x * cdf #!
        """),
    program("gelu_of_tanh_by_hand", "4,10", """
        def program(x):
            cube = x ** 3 #!
            inner = 0.7978845608 * (x + 0.044715 * cube) #!
            return 0.5 * x * (1.0 + jnp.tanh(inner)) #!
        """),
    program("silu_and_softplus_by_hand", "4,10", """
        def program(x):
            gate = 1.0 / (1.0 + jnp.exp(-x)) #!
            smooth = jnp.log1p(jnp.exp(x)) #!
            return x * gate + smooth #!
        """),
    program("convolution_with_batch_norm", "1,8,8,3", """
        R = np.random.default_rng(0)
        KERNEL = R.normal(size=(3, 3, 3, 4)).astype(np.float32)
        SCALE, SHIFT, MEAN = (R.normal(size=4).astype(np.float32) for _ in range(3))
        VARIANCE = R.uniform(1, 2, 4).astype(np.float32)


        def program(x):
            y = lax.conv_general_dilated(x, KERNEL, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) #!
            y = (y - MEAN) / jnp.sqrt(VARIANCE + 1e-5) #!
            y = y * SCALE + SHIFT #!
            return jax.nn.relu(y) #!
        """),
    program("convolution_with_bias_and_pooling", "1,8,8,3", """
        R = np.random.default_rng(0)
        KERNEL = R.normal(size=(3, 3, 3, 4)).astype(np.float32)
        BIAS = R.normal(size=4).astype(np.float32)


        def program(x):
            y = lax.conv_general_dilated(x, KERNEL, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")) #!
            y = y + BIAS #!
            y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") #!
            return y.mean((1, 2)) #!
        """),
    program("lstm_cell_in_a_scan", "5,2,4", """
        R = np.random.default_rng(0)
        W, U = R.normal(size=(4, 24)).astype(np.float32), R.normal(size=(6, 24)).astype(np.float32)


        def cell(state, x):
            h, c = state
            gates = x @ W + h @ U #!
            i, f, g, o = jnp.split(gates, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g) #!
            h = jax.nn.sigmoid(o) * jnp.tanh(c) #!
            return (h, c), h


        def program(x):
            start = jnp.zeros((2, 6)), jnp.zeros((2, 6))
            _, out = lax.scan(cell, start, x) #!
            return out
        """),
    program("gru_cell_in_a_scan", "5,2,4", """
        R = np.random.default_rng(0)
        W, U = R.normal(size=(4, 18)).astype(np.float32), R.normal(size=(6, 18)).astype(np.float32)


        def cell(h, x):
            xr, xz, xn = jnp.split(x @ W, 3, axis=-1) #!
            hr, hz, hn = jnp.split(h @ U, 3, axis=-1) #!
            r = jax.nn.sigmoid(xr + hr) #!
            z = jax.nn.sigmoid(xz + hz) #!
            n = jnp.tanh(xn + r * hn) #!
            h = (1 - z) * n + z * h #!
            return h, h


        def program(x):
            return lax.scan(cell, jnp.zeros((2, 6)), x)[1] #!
        """),
    program("recurrence_without_gates", "5,2,4", """
        W = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)


        def cell(h, x):
            h = jnp.tanh(x + h @ W) #!
            return h, h * 2.0 #!


        def program(x):
            return lax.scan(cell, jnp.zeros((2, 4)), x) #!
        """),
    program("rotary_embedding", "2,6,8", """
        def program(x):
            frequency = 1.0 / 10000 ** (jnp.arange(0, 8, 2) / 8) #!
            angle = jnp.arange(6)[:, None] * frequency[None] #!
            sin, cos = jnp.sin(angle), jnp.cos(angle) #!
            a, b = x[..., 0::2], x[..., 1::2] #!
            rotated = jnp.stack([a * cos - b * sin, a * sin + b * cos], axis=-1) #!
            return rotated.reshape(x.shape)
        """),
    program("rotary_in_halves", "2,6,8", """
        def rotate(x):
            return jnp.concatenate([-x[..., 4:], x[..., :4]], axis=-1) #!


        def program(x):
            angle = jnp.arange(6)[:, None] / 100 ** (jnp.arange(4) / 4) #!
            angle = jnp.concatenate([angle, angle], axis=-1) #!
            return x * jnp.cos(angle) + rotate(x) * jnp.sin(angle) #!
        """),
    program("padding_mask", "3,7", """
        LENGTHS = np.array([7, 3, 5])


        def program(x):
            mask = jnp.arange(7)[None] < LENGTHS[:, None] #!
            kept = jnp.where(mask, x, 0.0) #!
            return kept.sum(-1) / mask.sum(-1) #!
        """),
    program("a_mask_that_is_computed", "5,5 5", """
        def program(x, limits):
            mask = x > limits #!
            both = mask & (x < 3.0) #!
            return jnp.where(both, x, -x) #!
        """),
    program("constants_that_are_computed", "4,4", """
        def program(x):
            m = jnp.tril(jnp.full((4, 4), 2.0)) #!
            p = jnp.exp(m) * 3 #!
            q = p @ p.T #!
            return x + q #!
        """),
    program("a_table_that_is_computed", "3,6", """
        def table(size, depth):
            position = np.arange(size)[:, None]
            rate = jnp.exp(-jnp.arange(depth) / depth) #!
            return jnp.sin(position * rate) #!


        def program(x):
            return x * table(3, 6) #!
        """),
    program("a_weight_that_is_scaled", "2,4", """
        W = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)


        def program(x):
            w = W / jnp.linalg.norm(W, axis=0) #!
            return x @ w #!
        """),
    program("work_between_transposes", "2,3,4", """
        def program(x):
            y = x.transpose(0, 2, 1)
            y = jnp.sin(y) #!
            y = y.transpose(0, 2, 1)
            return y * 2.0 #!
        """),
    program("helpers_called_twice", "4", """
        def half(x):
            return x * 0.5 #!


        def program(x):
            a = half(x) #>
            b = half(jnp.sin(a)) #!
            return jnp.cos(a) + b #!
        """),
    program("a_jitted_helper_called_twice", "4", """
        @jax.jit
        def wave(x, by):
            return jnp.sin(x) * by #!


        def program(x):
            a = wave(x, 2.0) #>
            b = wave(a, 3.0) #>
            return a - b #!
        """),
    program("two_equal_lines", "4", """
        def program(x):
            a = jnp.sin(x) * 2.0 #!
            b = jnp.sin(x) * 3.0 #!
            return a / b #!
        """),
    program("comprehensions", "3,4", """
        def program(x):
            rows = [jnp.sin(x[i]) * (i + 2) for i in range(3)] #!
            total = sum(row * row for row in rows) #!
            return jnp.stack(rows) + total #!
        """),
    program("lambdas_and_reduce", "4", """
        STEPS = [
            lambda x: jnp.sin(x), #!
            lambda x: x * 3.0, #!
            jnp.tanh,
        ]


        def program(x):
            return functools.reduce(lambda value, step: step(value), STEPS, x) #!
        """),
    program("a_jitted_program", "4,4", """
        @jax.jit
        def program(x):
            y = x @ x #!
            y = jnp.exp(-y) #!
            return y / y.sum() #!
        """),
    program("a_scan_with_outputs", "6,3", """
        def step(carry, row):
            carry = carry * 0.9 + row #!
            return carry, jnp.tanh(carry) #!


        def program(x):
            last, all_of_them = lax.scan(step, jnp.zeros(3), x) #!
            return last, all_of_them
        """),
    program("a_loop_that_counts", "4", """
        def program(x):
            def body(i, value):
                value = jnp.sin(value) + i #!
                return value * 0.5 #!

            return lax.fori_loop(0, 5, body, x) #!
        """),
    program("a_loop_with_a_condition", "4", """
        def program(x):
            def go_on(state):
                return jnp.max(state) > 0.5 #!

            def step(state):
                return state * 0.7 #!

            return lax.while_loop(go_on, step, jnp.abs(x)) #!
        """),
    program("a_condition", "4", """
        def program(x):
            def positive(value):
                return jnp.sqrt(jnp.abs(value)) #!

            def negative(value):
                return value * value * 3.0 #!

            return lax.cond(x.sum() > 0, positive, negative, x) #!
        """),
    program("a_switch", "4", """
        BRANCHES = [
            lambda x: jnp.sin(x), #!
            lambda x: jnp.cos(x) + 1.5, #!
            lambda x: x * x - 2.0, #!
        ]


        def program(x):
            which = jnp.argmax(x) % 3 #!
            return lax.switch(which, BRANCHES, x) #!
        """),
    program("vmap", "5,3 3", """
        def distance(a, b):
            difference = a - b #!
            return jnp.sqrt(jnp.sum(difference * difference)) #!


        def program(x, y):
            return jax.vmap(distance, in_axes=(0, None))(x, y) #>
        """),
    program("grad", "4", """
        def loss(x):
            y = jnp.tanh(x) #!
            return jnp.sum(y ** 3) #!


        def program(x):
            return jax.grad(loss)(x) #>
        """),
    program("value_and_grad_of_a_layer", "3,4", """
        W = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)


        def loss(w, x):
            y = jnp.tanh(x @ w) #!
            return jnp.mean(y * y) #!


        def program(x):
            value, slope = jax.value_and_grad(loss)(W, x) #>
            return value, W - 0.1 * slope #!
        """),
    program("vmap_of_a_scan", "2,6,3", """
        def step(carry, row):
            carry = jnp.maximum(carry, row) #!
            return carry, carry * 2.0 #!


        def run(x):
            return lax.scan(step, jnp.full(3, -1.0), x)[1] #!


        def program(x):
            return jax.vmap(run)(x) #>
        """),
    program("expressions_over_several_lines", "4 4", """
        def program(a, b):
            first = jnp.sin( #!
                a
            )
            second = (
                jnp.cos(a) #!
                * jnp.exp(b) #!
            )
            third = (
                a #!
                * b #!
                + 1.5 #!
            )
            return jnp.where( #!
                a > b, #!
                first,
                second / third, #!
            )
        """),
    program("methods_and_classes", "2,4", """
        class Layer:
            def __init__(self, seed):
                self.w = np.random.default_rng(seed).normal(size=(4, 4)).astype(np.float32)

            def __call__(self, x):
                return self.act(x @ self.w) #!

            def act(self, x):
                return jnp.maximum(x, 0.1 * x) #!


        LAYERS = [Layer(seed) for seed in range(3)]


        def program(x):
            for layer in LAYERS:
                x = layer(x) #>
            return x.sum(-1) #!
        """),
    program("indexing_and_updates", "5,4", """
        def program(x):
            picked = x[jnp.array([0, 2, 4])] #!
            changed = x.at[1].set(picked.sum(0)) #!
            return jnp.sort(changed, axis=-1) #!
        """),
    program("nested_functions_and_partials", "4", """
        def outer(scale):
            def inner(x):
                return jnp.sin(x) * scale #!

            return inner


        def program(x):
            f = functools.partial(jax.jit(outer(3.0)))
            return f(x) + f(x * 2.0) #!
        """),
]  # fmt: skip
