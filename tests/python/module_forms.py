"""The ways in which modules are held and called, each as a function that gives something to export."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from module_truth import know

INPUT = np.ones((2, 4), np.float32)


# Flax NNX


class Block(nnx.Module):
    def __init__(self, seed: int) -> None:
        rngs = nnx.Rngs(seed)
        self.up, self.down = nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 4, rngs=rngs)

    def __call__(self, x):
        return jnp.tanh(self.down(jax.nn.relu(self.up(x))))

    def encode(self, x):
        return self.up(x) * 2


class Derived(Block):
    def __call__(self, x):
        return super().__call__(x) + self.encode(x)


class Keyed(Block):
    """Made of a key, so that many can be made at once."""

    def __init__(self, key: jax.Array) -> None:
        rngs = nnx.Rngs(params=key)
        self.up, self.down = nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 4, rngs=rngs)


class Described(nnx.Module):
    """Methods that are not called by their name."""

    def __init__(self) -> None:
        self.inner = nnx.Linear(4, 4, rngs=nnx.Rngs(0))

    @property
    def gram(self):
        return self.inner.kernel[...].T @ self.inner.kernel[...]

    @staticmethod
    def bent(x):
        return jnp.sin(x)

    @classmethod
    def bent_again(cls, x):
        return jnp.cos(x)

    def __matmul__(self, x):
        return self.inner(x) * 3

    def __call__(self, x):
        return self.bent_again(self.bent((self @ x) @ self.gram))


class Net(nnx.Module):
    def __init__(self, run: Callable[..., Any], **parts: Any) -> None:
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def __call__(self, x):
        return self.run(self, x)


def stacked(seed: int) -> Keyed:
    return nnx.vmap(Keyed)(jax.random.split(jax.random.key(seed), 3))


@nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
def scanned(block, x):
    return block(x)


@nnx.jit
def jitted(block, x):
    return block(x)


@jax.custom_jvp
def twice(x):
    return jnp.sin(x) * 2


twice.defjvp(lambda primals, tangents: (twice(*primals), tangents[0]))


def in_turn(call: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda net, x: functools.reduce(lambda y, block: call(block, y), net.blocks, x)


def blocks(call: Callable[[Any, Any], Any]) -> Net:
    return Net(in_turn(call), blocks=nnx.List([Block(0), Block(1)]))


def two(run: Callable[..., Any]) -> Net:
    return Net(run, first=Block(0), second=Block(1))


def shared():
    block = Block(0)
    return Net(lambda net, x: net.one(net.other(x)), one=block, other=block)


def in_closures():
    one, other = Block(0), Block(1)
    return lambda x: one(x) + other.encode(x)


def in_a_list_in_a_closure():
    both = [Block(0), Block(1)]
    return lambda x: both[0](both[1](x))


def put_together_inside():
    graph, state = nnx.split(two(lambda net, x: net.first(net.second(x))))
    return lambda x: nnx.merge(graph, state)(x)


def summed_gradient(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return jax.grad(lambda x: fn(x).sum())


NNX = {
    "a list": lambda: blocks(lambda block, x: block(x)),
    "a dictionary": lambda: Net(
        lambda net, x: net.parts["a"](x) + net.parts["b"](x), parts=nnx.Dict(a=Block(0), b=Block(1))
    ),
    "a tuple": lambda: Net(
        lambda net, x: net.parts[0](x) + net.parts[1].encode(x), parts=nnx.data((Block(0), Block(1)))
    ),
    "a shared module": shared,
    "a subclass": lambda: Net(lambda net, x: net.first(net.second(x)), first=Derived(0), second=Block(1)),
    "methods called otherwise": Described,
    "another method": lambda: Block(0).encode,
    "lambdas among modules": lambda: nnx.Sequential(Block(0), lambda x: jnp.sin(x), Block(1), jax.nn.gelu),
    "closures": in_closures,
    "a list in a closure": in_a_list_in_a_closure,
    "a partial": lambda: functools.partial(lambda model, x: model(x) * 2, Block(0)),
    "put together inside": put_together_inside,
    "vmap": lambda: two(lambda net, x: jax.vmap(net.first)(x) + jax.vmap(lambda row: net.second(row))(x)),
    "jit": lambda: two(lambda net, x: jax.jit(lambda y: net.first(y))(x) + jax.jit(net.second.encode)(x)),
    "checkpoint": lambda: blocks(lambda block, x: jax.checkpoint(block.encode)(x)),
    "cond": lambda: two(lambda net, x: jax.lax.cond(x.sum() > 0, lambda y: net.first(y), net.second, x)),
    "switch": lambda: two(
        lambda net, x: jax.lax.switch(x.sum().astype(int), [net.first, net.second, net.first.encode], x)
    ),
    "fori_loop": lambda: two(lambda net, x: jax.lax.fori_loop(0, 3, lambda _, y: net.second(net.first(y)), x)),
    "grad": lambda: two(lambda net, x: summed_gradient(net.first)(x) + jax.jvp(net.second, (x,), (x,))[1]),
    "grad of scan": lambda: two(
        lambda net, x: summed_gradient(
            lambda y: jax.lax.scan(lambda carry, _: (net.first(carry), None), y, None, length=3)[0]
        )(x)
    ),
    "custom_jvp": lambda: two(lambda net, x: twice(net.first(x)) + twice(net.second(x))),
    "nnx.jit": lambda: blocks(lambda block, x: nnx.jit(lambda inner, y: inner(y))(block, x)),
    "nnx.jit of a function": lambda: blocks(jitted),
    "nnx.remat": lambda: blocks(lambda block, x: nnx.remat(lambda inner, y: inner(y))(block, x)),
    "nnx.scan": lambda: Net(lambda net, x: scanned(net.stack, x), stack=stacked(0), other=Block(1)),
    "two of nnx.scan": lambda: Net(lambda net, x: scanned(net.b, scanned(net.a, x)), a=stacked(0), b=stacked(1)),
    "nnx.vmap": lambda: Net(
        lambda net, x: nnx.vmap(lambda block, y: block(y), in_axes=(0, None))(net.stack, x) + net.other(x),
        stack=stacked(0),
        other=Keyed(jax.random.key(1)),
    ),
}


# Equinox


class EqxBlock(eqx.Module):
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, seed: int) -> None:
        self.up = eqx.nn.Linear(4, 4, key=jax.random.key(seed))
        self.down = eqx.nn.Linear(4, 4, key=jax.random.key(seed + 1))

    def __call__(self, x):
        return jnp.tanh(self.down(jax.nn.relu(self.up(x))))

    def encode(self, x):
        return self.up(x) * 2


class EqxNet(eqx.Module):
    run: Callable[..., Any] = eqx.field(static=True)
    parts: Any

    def __call__(self, x):
        return self.run(self.parts, x)


filter_jitted = eqx.filter_jit(lambda block, x: block(x))


def scanned_over(block: EqxBlock, x: jax.Array) -> jax.Array:
    arrays, rest = eqx.partition(block, eqx.is_array)
    return jax.lax.scan(lambda carry, layer: (eqx.combine(layer, rest)(carry), None), x, arrays)[0]


def eqx_two(call: Callable[[Any, Any], Any]) -> EqxNet:
    def run(parts, x):
        return jax.vmap(lambda row: call(parts[1], call(parts[0], row)))(x)

    return EqxNet(run, [EqxBlock(0), EqxBlock(2)])


def eqx_stack(first: int) -> EqxBlock:
    return eqx.filter_vmap(EqxBlock)(jnp.arange(3) + first)


def ensemble():
    def run(parts, x):
        every = eqx.filter_vmap(lambda block, row: block(row), in_axes=(eqx.if_array(0), None))
        return every(parts[0], x[0]) + parts[1](x[0])

    return EqxNet(run, [eqx_stack(0), EqxBlock(9)])


def with_another_weight():
    def run(parts, x):
        other = eqx.tree_at(lambda block: block.up.weight, parts[0], parts[0].up.weight * 2)
        return jax.vmap(other)(x) + jax.vmap(parts[1])(x)

    return EqxNet(run, [EqxBlock(0), EqxBlock(9)])


def combined_inside():
    net = eqx_two(lambda block, row: block(row))
    know(net, {}, [])
    arrays, rest = eqx.partition(net, eqx.is_array)
    return lambda x: eqx.combine(arrays, rest)(x)


def in_inference_mode():
    net = eqx_two(lambda block, row: block(row))
    return lambda x: eqx.nn.inference_mode(net)(x)


EQUINOX = {
    "a list": lambda: eqx_two(lambda block, row: block(row)),
    "a dictionary": lambda: EqxNet(
        lambda parts, x: jax.vmap(parts["a"])(jax.vmap(parts["b"])(x)), {"a": EqxBlock(0), "b": EqxBlock(2)}
    ),
    "a tuple": lambda: EqxNet(
        lambda parts, x: jax.vmap(parts[1].encode)(jax.vmap(parts[0])(x)), (EqxBlock(0), EqxBlock(2))
    ),
    "a shared module": lambda: EqxNet(lambda parts, x: jax.vmap(parts[1])(jax.vmap(parts[0])(x)), [EqxBlock(0)] * 2),
    "filter_vmap": lambda: EqxNet(
        lambda parts, x: eqx.filter_vmap(parts[1])(eqx.filter_vmap(parts[0].encode)(x)), [EqxBlock(0), EqxBlock(2)]
    ),
    "filter_jit": lambda: eqx_two(lambda block, row: eqx.filter_jit(block)(row)),
    "filter_jit of a method": lambda: eqx_two(lambda block, row: eqx.filter_jit(block.encode)(row)),
    "filter_jit of a function": lambda: eqx_two(lambda block, row: filter_jitted(block, row)),
    "filter_checkpoint": lambda: eqx_two(lambda block, row: eqx.filter_checkpoint(block)(row)),
    "checkpoint": lambda: eqx_two(lambda block, row: jax.checkpoint(lambda y: block(y))(row)),
    "cond": lambda: eqx_two(
        lambda block, row: jax.lax.cond(row.sum() > 0, lambda y: block(y), lambda y: block.encode(y), row)
    ),
    "two scans": lambda: EqxNet(
        lambda parts, x: jax.vmap(lambda row: scanned_over(parts[1], scanned_over(parts[0], row)))(x),
        [eqx_stack(0), eqx_stack(5)],
    ),
    "an ensemble": ensemble,
    "tree_at": with_another_weight,
    "combine inside": combined_inside,
    "inference_mode": in_inference_mode,
}


# Classes of no library


class Plain:
    def __init__(self, scale: float) -> None:
        self.matrix = np.full((4, 4), scale, np.float32)

    def __call__(self, x):
        return jnp.tanh(x @ self.matrix)

    def twice(self, x):
        return self(x) * 2


class Slotted:
    __slots__ = ("matrix",)

    def __init__(self) -> None:
        self.matrix = np.ones((4, 4), np.float32)

    def __call__(self, x):
        return x @ self.matrix


@dataclasses.dataclass
class Data:
    first: Plain
    second: Slotted

    def __call__(self, x):
        return self.second(self.first(x))


class Holder:
    def __init__(self) -> None:
        self.listed, self.named, self.paired = [Plain(1), Plain(2)], {"a": Plain(3)}, (Plain(4),)

    def __call__(self, x):
        x = jax.jit(self.listed[1])(jax.vmap(self.listed[0])(x))
        return self.paired[0].twice(self.named["a"](x))


def jitted_whole():
    holder = Holder()
    return jax.jit(lambda x: holder(x))


PLAIN = {
    "lists, dictionaries and tuples": Holder,
    "a jitted function": jitted_whole,
    "dataclasses and slots": lambda: Data(Plain(1), Slotted()),
}

FORMS = {
    f"{library}, {name}": make
    for library, forms in (("Flax NNX", NNX), ("Equinox", EQUINOX), ("no library", PLAIN))
    for name, make in forms.items()
}
