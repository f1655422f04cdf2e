"""Errors of other libraries keep their type and message, and get a note that says what to do."""

import collections
import functools

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jax2onnx import to_onnx

X = jax.ShapeDtypeStruct((2, 3), jnp.float32)
KEY = jax.random.key(0)


class Compact(nn.Module):
    training: bool = True

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(3)(x)
        x = nn.BatchNorm(use_running_average=not self.training)(x)
        return nn.Dropout(0.5, deterministic=not self.training)(x)


class WithSetup(nn.Module):
    def setup(self):
        self.dense = nn.Dense(3)

    def __call__(self, x):
        return self.dense(x)


class Unlike:
    def __init__(self, width):
        self.width = width

    def __call__(self, x):
        return x * self.width


def bound(**settings):
    module = Compact(**settings)
    return module.bind(Compact(training=False).init(KEY, jnp.ones((2, 3))))


class Statistics(nnx.Module):
    """Changes a variable of an outer trace, as a layer in training mode under jit does."""

    def __init__(self):
        self.count = nnx.BatchStat(jnp.zeros(()))

    def __call__(self, x):
        @jax.jit
        def inner(x):
            self.count.value = self.count.value + 1.0
            return x + self.count.value

        return inner(x)


FAILURES = {
    "an unbound Linen module": (Compact(), "Bind them with to_onnx(module.bind(variables), ...)"),
    "an unbound Linen module with setup": (WithSetup(), "Bind them with to_onnx(module.bind(variables), ...)"),
    "batch statistics that change": (bound(training=True), "Export it in evaluation mode"),
    "a class of Linen's": (Compact, "Compact is a class. Export an instance: to_onnx(Compact(...), ...)."),
    "a class": (Unlike, "Unlike is a class"),
    "variables of another trace": (Statistics(), "Export it in evaluation mode"),
    "dropout without a key": (eqx.nn.Dropout(0.5), "eqx.nn.inference_mode(model)"),
    "if": (lambda x: x if x.sum() > 0 else -x, "use jnp.where or jax.lax.cond"),
    "while": (lambda x: next(x for _ in iter(lambda: bool(x.sum() > 0), True)), "use jnp.where or jax.lax.cond"),
    "and": (lambda x: (x.sum() > 0 and x.max() > 1) * x, "use jnp.where or jax.lax.cond"),
    "range": (lambda x: sum(x for _ in range(x.astype(int)[0, 0])), "Python needs a number here"),
    "a shape": (lambda x: jnp.zeros((x.astype(int)[0, 0],)), "Python needs a number here"),
    "float": (lambda x: x * float(x[0, 0]), "Python needs a number here"),
    "a mask": (lambda x: x[x > 0], "jnp.where(mask, x, 0)"),
    "NumPy": (lambda x: np.sin(np.asarray(x)), "Use jax.numpy"),
    "too many arguments": (
        lambda x, y: x + y,
        "inputs needs one entry for each argument, but has 1 entry; the function takes (x, y)",
    ),
    "a text returned": (lambda x: (x, "text"), "must be arrays"),
}


@pytest.mark.parametrize("fn, hint", FAILURES.values(), ids=FAILURES)
def test_hints(fn, hint):
    with pytest.raises(Exception) as caught:
        to_onnx(fn, [X])
    notes = [note for note in getattr(caught.value, "__notes__", []) if note.startswith("Hint: ")]
    assert len(notes) == 1 and hint in notes[0], f"{type(caught.value).__name__}: {caught.value}"


def test_what_the_hints_say_works():
    to_onnx(bound(training=False), [X])
    module = WithSetup()
    to_onnx(module.bind(module.init(KEY, jnp.ones((2, 3)))), [X])
    to_onnx(eqx.nn.inference_mode(eqx.nn.Dropout(0.5)), [X])
    to_onnx(functools.partial(lambda x, flag: x if flag else -x, flag=True), [X])


def test_the_users_own_errors_get_no_hint():
    def fn(x):
        raise ValueError("the user's own words")

    with pytest.raises(ValueError, match=r"^the user's own words") as caught:
        to_onnx(fn, [X])
    assert not hasattr(caught.value, "__notes__") or not any("Hint" in note for note in caught.value.__notes__)


# Names

Pair = collections.namedtuple("Pair", ["mean", "spread"])


def names(fn, inputs, **settings):
    model = to_onnx(fn, inputs, input_names="auto", output_names="auto", **settings)
    return [value.name for value in model.graph.input], [value.name for value in model.graph.output]


@pytest.mark.parametrize(
    "fn, inputs, expected",
    [
        (lambda image, mask: image * mask, [X, X], (["image", "mask"], ["out_0"])),
        (lambda batch: batch["ids"] + batch["at"], [{"ids": X, "at": X}], (["batch.at", "batch.ids"], ["out_0"])),
        (lambda xs: xs[0] + xs[1], [[X, X]], (["xs.0", "xs.1"], ["out_0"])),
        (lambda *layers: layers[0] + layers[1], [X, X], (["layers_0", "layers_1"], ["out_0"])),
        (lambda x: {"logits": x + 1, "loss": x.sum()}, [X], (["x"], ["logits", "loss"])),
        (lambda x: Pair(x.mean(), x.var()), [X], (["x"], ["mean", "spread"])),
        (lambda x: (x + 1, {"aux": x * 2}), [X], (["x"], ["out_0", "1.aux"])),
        (lambda x: {"x": x * 2}, [X], (["x"], ["x_out"])),
        (Unlike(2.0), [X], (["x"], ["out_0"])),
        (jax.jit(lambda signal: signal * 2), [X], (["signal"], ["out_0"])),
    ],
)
def test_automatic_names(fn, inputs, expected):
    assert names(fn, inputs) == expected


def test_automatic_names_with_keyword_inputs():
    fn = lambda x, *, scale: {"scaled": x * scale}  # noqa: E731
    assert names(fn, [X], input_params={"scale": X}) == (["x", "scale"], ["scaled"])


def test_without_auto_names_stay_as_programs_feed_them():
    model = to_onnx(lambda image: {"logits": image * 2}, [X])
    assert [value.name for value in (*model.graph.input, *model.graph.output)] == ["in_0", "out_0"]
