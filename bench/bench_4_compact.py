"""What the compact level costs: the file against the plain graph, the elements of tensors aside, over every model of
bench/models and programs of other kinds; and the export against a minimal one.

Every node keeps its callsite, 27 bytes and the name of the function, which may be longer than the node: the ratio with
the callsites alone is printed as the floor. Where that leaves no tenth of the plain graph for the rest, and below SMALL
bytes, where a digest and a path of each source file are much of it, the target is for what comes on top of that.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from exporting import ROOT  # noqa: F401  (puts the package of this tree in reach)
from quality import OPSET, cases

from jax2onnx import to_onnx

WIDTH, HEADS, LAYERS, LINES = 64, 4, 12, 4000
TARGET, SMALL = 1.6, 5000
MOST_FLOOR = 1.5
LEAST_REST, REST = 500, 0.3  # bytes, and share of the plain graph: on top of the callsites
SLOWER = 1.25  # packing learns from a text of its own first, which takes 1 ms


def weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32) * 0.02


class Norm:
    def __init__(self) -> None:
        self.gain, self.bias = weight(WIDTH), weight(WIDTH)

    def __call__(self, x: jax.Array) -> jax.Array:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred**2).mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-5) * self.gain + self.bias


class Attention:
    def __init__(self) -> None:
        self.query, self.key, self.value, self.out = (weight(WIDTH, WIDTH) for _ in range(4))

    def heads(self, x: jax.Array) -> jax.Array:
        return x.reshape(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

    def __call__(self, x: jax.Array) -> jax.Array:
        query, key, value = (self.heads(x @ matrix) for matrix in (self.query, self.key, self.value))
        scores = jax.nn.softmax(query @ key.swapaxes(-1, -2) / np.sqrt(WIDTH // HEADS))
        return (scores @ value).transpose(0, 2, 1, 3).reshape(x.shape) @ self.out


class Block:
    def __init__(self) -> None:
        self.attention, self.first, self.second = Attention(), Norm(), Norm()
        self.up, self.down = weight(WIDTH, 4 * WIDTH), weight(4 * WIDTH, WIDTH)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.first(x))
        return x + jax.nn.gelu(self.second(x) @ self.up) @ self.down


class Transformer:
    def __init__(self) -> None:
        self.blocks = [Block() for _ in range(LAYERS)]

    def __call__(self, x: jax.Array) -> jax.Array:
        for block in self.blocks:
            x = block(x)
        return x


def straight_program() -> Callable[[jax.Array], jax.Array]:
    """A source line for every equation: the worst case, for no two nodes share a trace."""
    body = "".join("    x = jnp.sin(x)\n    x = x * 2.0\n" for _ in range(LINES // 2))
    space: dict[str, Any] = {"jnp": jnp}
    exec(compile(f"def program(x):\n{body}    return x\n", "program.py", "exec"), space)
    return space["program"]


def loop_program() -> Callable[[jax.Array], jax.Array]:
    """Few lines that many equations came from."""

    def step(x: jax.Array, scale: float) -> jax.Array:
        return jnp.sin(x) * scale + jnp.maximum(x, 0.5)

    def program(x: jax.Array) -> jax.Array:
        for index in range(LINES // 4):
            x = step(x, 1.0 + index % 7)
        return x

    return program


def one_line(x: jax.Array) -> jax.Array:
    return jnp.tanh(x)


def few_lines(x: jax.Array, y: jax.Array) -> jax.Array:
    z = jnp.sin(x) * 2 + y
    w = jnp.exp(-(z**2))
    return w / (w.sum(-1, keepdims=True) + 1e-6)


def three_layers(x: jax.Array) -> jax.Array:
    for matrix in weight(16, 32), weight(32, 32), weight(32, 4):
        x = jax.nn.relu(x @ matrix + 0.1)
    return x


def recurrence(x: jax.Array) -> jax.Array:
    def step(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        carry = jnp.tanh(carry * 0.5 + row)
        return carry, carry

    return jax.lax.scan(step, jnp.zeros(4), x)[1]


def small_programs() -> Iterator[tuple[str, Callable[..., Any], list[Any]]]:
    """What people try first."""
    yield "one line", one_line, [(4,)]
    yield "a few lines", few_lines, [(4, 8), (4, 8)]
    yield "three layers", three_layers, [(2, 16)]
    yield "a recurrence", recurrence, [(5, 4)]
    yield "a block of a transformer", Block(), [(2, 16, WIDTH)]


def random_programs(count: int) -> Iterator[tuple[str, Callable[..., Any], list[Any]]]:
    """Functions of a few dozen lines, each an operation or two on what the lines before computed."""
    forms = (
        "jnp.tanh({a}) + {b}",
        "{a} * jax.nn.sigmoid({b})",
        "jnp.where({a} > 0, {a}, {b} * 0.1)",
        "jax.nn.softmax({a} @ {b}.T) @ {b}",
        "jnp.concatenate([{a}, {b}], axis=0)[:8]",
        "({a} - {a}.mean(-1, keepdims=True)) / ({a}.std(-1, keepdims=True) + 1e-5)",
        "jnp.maximum({a}, {b}).sum(0, keepdims=True) + {b}",
        "jnp.einsum('ij,kj->ik', {a}, {b}) @ {b}",
    )
    for seed in range(count):
        random = np.random.default_rng(seed)
        lines = ["def program(x):", "    v0 = x"]
        for index in range(1, 60):
            a, b = (f"v{max(0, index - 1 - int(step))}" for step in random.integers(0, 3, 2))
            lines.append(f"    v{index} = " + forms[random.integers(len(forms))].format(a=a, b=b))
        space: dict[str, Any] = {"jnp": jnp, "jax": jax}
        exec(compile("\n".join([*lines, "    return v59", ""]), f"program_{seed}.py", "exec"), space)
        yield f"random program {seed}", space["program"], [(8, 8)]


def raw_bytes(graph: Any) -> int:
    """The elements of all tensors, those of nested graphs included."""
    own = sum(len(tensor.raw_data) for tensor in graph.initializer)
    return own + sum(raw_bytes(attribute.g) for node in graph.node for attribute in node.attribute if attribute.g.node)


def graph_bytes(path: pathlib.Path) -> int:
    """The file without the elements of its tensors."""
    return path.stat().st_size - raw_bytes(onnx.load(path).graph)


def callsite_bytes(graph: Any) -> int:
    """What the nodes' callsites take, those of nested graphs included: each is a field of fewer than 128 bytes."""
    entries = [entry for node in graph.node for entry in node.metadata_props if entry.key == "pkg.jax2onnx.callsite"]
    own = sum(2 + entry.ByteSize() for entry in entries)
    inner = [attribute.g for node in graph.node for attribute in node.attribute if attribute.g.node]
    return own + sum(map(callsite_bytes, inner))


def size(name: str, fn: Callable[..., Any], inputs: list[Any], folder: pathlib.Path, **settings: Any) -> bool:
    """Prints the ratio; is it within the target?"""
    for level in ("off", "compact"):
        to_onnx(fn, inputs, stacktrace_metadata=level, return_mode="file", output_path=folder / level, **settings)
    plain, compact = graph_bytes(folder / "off"), graph_bytes(folder / "compact")
    floor = plain + callsite_bytes(onnx.load(folder / "compact").graph)
    most, words = TARGET * plain, f"target <= {TARGET}"
    if plain < SMALL or floor > MOST_FLOOR * plain:
        most = floor + LEAST_REST + REST * plain
        words = f"{compact - floor} bytes on top of it, target <= {LEAST_REST} + {REST} of the plain graph"
    ratios = f"{compact / plain:.2f} of the plain graph's {plain} bytes, floor {floor / plain:.2f}"
    print(f"compact, {name}: {ratios} ({words})", flush=True)
    return compact <= most


def duration(name: str, fn: Callable[..., Any], shape: tuple[Any, ...], folder: pathlib.Path) -> bool:
    """Prints what packing adds to the time of an export; is it within the target?"""
    best = dict.fromkeys(("minimal", "compact"), float("inf"))
    for _ in range(7):
        for level in best:
            start = time.process_time()
            to_onnx(fn, [shape], stacktrace_metadata=level, return_mode="file", output_path=folder / level)
            best[level] = min(best[level], time.process_time() - start)
    ratio, more = best["compact"] / best["minimal"], (best["compact"] - best["minimal"]) * 1e3
    print(f"compact, {name}: {ratio:.2f} of the time of a minimal export, {more:.0f} ms more (target <= {SLOWER})")
    return ratio <= SLOWER


def main() -> int:
    transformer, straight = Transformer(), straight_program()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        within = [
            size(f"a transformer of {LAYERS} layers", transformer, [("B", 16, WIDTH)], path),
            size(f"a program of {LINES} lines", straight, [("B", 128)], path),
            size(f"a loop of {LINES} equations", loop_program(), [(8, 16)], path),
        ]
        within += [size(name, fn, inputs, path) for name, fn, inputs in small_programs()]
        within += [size(name, fn, inputs, path) for name, fn, inputs in random_programs(8)]
        for case in cases():
            fn, inputs = case.build()
            within += [size(f"{case.name}, opset {opset}", fn, inputs, path, opset=opset) for opset in ("auto", OPSET)]
        print(f"compact: {sum(within)} of {len(within)} within their targets")
        within += [
            duration(f"a transformer of {LAYERS} layers", transformer, ("B", 16, WIDTH), path),
            duration(f"a program of {LINES} lines", straight, ("B", 128), path),
        ]
    return 0 if all(within) else 1


if __name__ == "__main__":
    sys.exit(main())
