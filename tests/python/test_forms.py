"""The forms themselves (tests/forms): what is wrong or missed is seen."""

import pathlib
import sys

import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "forms"))
import forms
from forms import Choices, Form, check

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def test_a_form_that_becomes_the_operator():
    outcome = check(Form(lambda x: jnp.maximum(x, 0), [X], {"Relu": 1}))
    assert outcome.fused and outcome.right and outcome.detail == ""


def test_what_is_missed_is_seen():
    assert not check(Form(lambda x: jnp.maximum(x, 1), [X], {"Relu": 1})).fused
    assert not check(Form(lambda x: jnp.sin(jnp.maximum(x, 0)), [X], {"Relu": 1}, absent=("Sin",))).fused
    assert not check(Form(lambda x: jnp.sin(jnp.maximum(x, 0)), [X], {"Relu": 1}, most=1)).fused


def test_wrong_numbers_are_seen(monkeypatch):
    real = forms.to_onnx
    monkeypatch.setattr(forms, "to_onnx", lambda fn, *args, **options: real(lambda x: fn(x) + 1, *args, **options))
    outcome = check(Form(jnp.abs, [X], {"Abs": 1}))
    assert outcome.fused and not outcome.right and "differ" in outcome.detail


def test_choices_are_the_seeds_and_may_be_fixed():
    taken = [Choices(seed).take("one", *range(100)) for seed in (1, 1, 2)]
    assert taken[0] == taken[1] != taken[2]
    assert Choices(1, {"one": 7}).take("one", *range(100)) == 7
