"""Sizes that a program takes for granted: two names of one length, a sequence no longer than a table."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from keras import layers

from jax2onnx import to_onnx
from jax2onnx._door.jax_types import InconclusiveDimension
from jax2onnx._door.relations import Relations, with_relations

TABLE = np.arange(512, dtype=np.float32)


def dims(model):
    return [[size.dim_param for size in value.type.tensor_type.shape.dim] for value in model.graph.input]


def run(model, *arrays):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, dict(zip((value.name for value in model.graph.input), arrays, strict=True)))


def exported(fn, inputs, said):
    with pytest.warns(UserWarning, match="the model is for those where") as caught:
        model = to_onnx(fn, inputs)
    (message,) = [str(each.message) for each in caught if "the model is for" in str(each.message)]
    assert message.endswith(f"where {said}"), message
    return model


def test_two_names_of_one_size():
    def fn(x, y):
        return x * y

    model = exported(fn, [("B", "S"), ("B", "T")], "'T' is 'S'")
    assert dims(model) == [["B", "S"], ["B", "S"]]
    x = np.ones((2, 5), np.float32)
    assert np.array_equal(run(model, x, 2 * x)[0], 2 * x)


def test_three_names_of_one_size():
    model = exported(lambda x, y, z: x + y + z, [("S",), ("T",), ("U",)], "'T' is 'S', 'U' is 'S'")
    assert dims(model) == [["S"]] * 3


@pytest.mark.parametrize("primitive", ["matmul", "concatenate", "where"])
def test_wherever_shapes_must_agree(primitive):
    makers = {
        "matmul": (lambda x, y: x.T @ y, [("N", 3), ("M", 4)]),
        "concatenate": (lambda x, y: jnp.concatenate([x, y]), [(2, "N"), (3, "M")]),
        "where": (lambda x, y: jnp.where(x > 0, x, y), [("N",), ("M",)]),
    }
    exported(*makers[primitive], "'M' is 'N'")


def test_a_sequence_no_longer_than_a_table():
    model = exported(lambda x: x + jnp.asarray(TABLE)[: x.shape[1]], [("B", "S")], "S <= 512")
    x = np.zeros((2, 7), np.float32)
    assert np.array_equal(run(model, x)[0], np.broadcast_to(TABLE[:7], (2, 7)))


def test_a_window_that_must_fit():
    model = exported(lambda x: jax.lax.dynamic_slice(x, (0,), (3,)) * 2, [("N",)], "N >= 3")
    assert np.array_equal(run(model, np.arange(5, dtype=np.float32))[0], [0, 2, 4])


def test_a_question_of_a_library(monkeypatch):
    def fn(x):
        if x.shape[0] > 100:
            raise RuntimeError("too long")
        return x * 2

    with pytest.raises(InconclusiveDimension, match=r"'N' \(inputs\[0\], axis 0\) has no constant size"):
        to_onnx(fn, [("N",)])  # the user's own line
    monkeypatch.setattr("jax2onnx._door.relations.is_users_file", lambda path: False)
    exported(fn, [("N",)], "N <= 100")


def test_the_other_answer_where_the_first_cannot_be_traced(monkeypatch):
    def fn(x):
        if x.shape[0] <= 100:
            raise ValueError("too short")
        return x * 2

    monkeypatch.setattr("jax2onnx._door.relations.is_users_file", lambda path: False)
    exported(fn, [("N",)], "N >= 101")


def test_nothing_is_assumed_where_nothing_need_be():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = to_onnx(lambda x, y: (x * 2, y + 1), [("N",), ("M",)])
    assert dims(model) == [["N"], ["M"]]


def test_an_error_that_no_relation_helps_is_the_first_one():
    with pytest.raises(TypeError, match=r"incompatible shapes for broadcasting: \(N, 3\), \(M, 4\)"):
        to_onnx(lambda x, y: x + y, [("N", 3), ("M", 4)])
    with pytest.raises(InconclusiveDimension, match="requires a constant"):
        to_onnx(lambda x: jnp.zeros(int(x.shape[0])) + x, [("N",)])


def test_the_search_ends():
    calls = []

    def attempt(relations):
        calls.append(relations)
        raise InconclusiveDimension(f"Symbolic dimension comparison 'N' >= '{len(calls)}' is inconclusive.")

    with pytest.raises(InconclusiveDimension, match="'1'"):
        with_relations(attempt, ["N"])
    assert len(calls) == 12
    assert calls[0] == Relations()


def test_a_text_model_of_keras(tmp_path):
    """As keras_hub builds them: two inputs of unknown length, and a table of positions."""

    class PositionEmbedding(layers.Layer):
        def build(self, shape):
            self.table = self.add_weight(shape=(16, shape[-1]), name="embeddings")

        def call(self, x):
            length = keras.ops.shape(x)[-2]
            return keras.ops.broadcast_to(self.table[:length], keras.ops.shape(x))

        def compute_output_shape(self, shape):
            return shape

    tokens = keras.Input((None,), dtype="int32", name="token_ids")
    mask = keras.Input((None,), dtype="int32", name="padding_mask")
    x = layers.Embedding(11, 8)(tokens)
    x = layers.LayerNormalization()(x + PositionEmbedding()(x))
    x = layers.MultiHeadAttention(2, 4)(x, x, attention_mask=keras.ops.expand_dims(keras.ops.cast(mask, "bool"), 1))
    model = keras.Model({"token_ids": tokens, "padding_mask": mask}, layers.Dense(3)(x))
    model(model.input)  # Keras exports models that have been called
    path = tmp_path / "model.onnx"
    with pytest.warns(UserWarning, match="the model is for those where"):
        model.export(path, format="onnx", verbose=False)
    session = onnxruntime.InferenceSession(str(path))
    names = [value.name for value in onnx.load(path).graph.input]
    for batch, length in ((1, 5), (3, 16)):
        values = {
            "token_ids": np.arange(batch * length, dtype=np.int32).reshape(batch, length) % 11,
            "padding_mask": np.ones((batch, length), np.int32),
        }
        (got,) = session.run(None, {name: values[name] for name in names})
        np.testing.assert_allclose(got, model.predict_on_batch(values), rtol=1e-4, atol=1e-5)
