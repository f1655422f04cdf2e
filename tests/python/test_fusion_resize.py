"""Images that are enlarged or reduced become one Resize, where it computes the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import KEYS, check_export, metadata, op_types

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 8, 6, 4)).astype(np.float32)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def resize(shape, method, **options):
    return lambda x: jax.image.resize(x, (x.shape[0], *shape), method, **options)


def attributes(model):
    node = next(node for node in model.graph.node if node.op_type == "Resize")
    return {attribute.name: attribute for attribute in node.attribute}


SIZES = [(16, 12, 4), (16, 18, 4), (13, 11, 4), (16, 6, 4)]


@pytest.mark.parametrize("method", ["bilinear", "cubic"])
@pytest.mark.parametrize("size", SIZES)
def test_interpolation(method, size):
    model = check_export(resize(size, method), [X], **CLOSE)
    assert op_types(model) == ["Resize"]
    assert attributes(model)["mode"].s.decode() == {"bilinear": "linear", "cubic": "cubic"}[method]


@pytest.mark.parametrize("size", [(16, 12, 4), (16, 18, 4), (13, 11, 4), (6, 4, 4)])
def test_nearest(size):
    assert op_types(check_export(resize(size, "nearest"), [X])) == ["Resize"]


def test_reduced():
    assert op_types(check_export(resize((5, 4, 4), "bilinear", antialias=False), [X], **CLOSE)) == ["Resize"]
    assert "MatMul" in op_types(check_export(resize((5, 4, 4), "cubic", antialias=False), [X], **CLOSE))
    model = check_export(resize((5, 4, 4), "cubic"), [X], **CLOSE)
    assert op_types(model) == ["Resize"] and attributes(model)["antialias"].i == 1
    model = check_export(resize((4, 3, 4), "bilinear"), [X], **CLOSE)
    assert op_types(model) == ["Resize"] and attributes(model)["antialias"].i == 1


@pytest.mark.parametrize("method", ["bilinear", "cubic"])
def test_reduced_along_one_axis_and_enlarged_along_the_other(method):
    model = check_export(resize((5, 9, 4), method, antialias=True), [X], **CLOSE)
    assert op_types(model) == ["Resize"] and attributes(model)["antialias"].i == 1


@pytest.mark.parametrize("method", ["bilinear", "cubic", "nearest"])
@pytest.mark.parametrize("opset", [17, 23])
def test_symbolic_batch(method, opset):
    fn = resize((16, 12, 4), method)
    model = check_export(fn, [X], specs=[("B", 8, 6, 4)], more_args=[[X[:1]]], opset=opset, **CLOSE)
    assert "Resize" in op_types(model) and "MatMul" not in op_types(model)


def test_channels_first_and_batch_of_one():
    def fn(x):
        return jax.image.resize(x, (*x.shape[:2], 16, 9), "bilinear")

    assert op_types(check_export(fn, [X.transpose(0, 3, 1, 2)], **CLOSE)) == ["Resize"]
    assert op_types(check_export(resize((16, 12, 4), "bilinear"), [X[:1]], **CLOSE)) == ["Resize"]


def test_other_ranks():
    def fn(x):
        return jax.image.resize(x, tuple(2 * size for size in x.shape[:2]) + x.shape[2:], "linear")

    for shape in ((6, 5), (6, 5, 3)):
        image = RNG.standard_normal(shape).astype(np.float32)
        assert "MatMul" not in op_types(check_export(fn, [image], **CLOSE))

    def volume(x):
        return jax.image.resize(x, (2, 4, 6, 8, 3), "linear")

    assert "Resize" in op_types(
        check_export(volume, [RNG.standard_normal((2, 2, 3, 4, 3)).astype(np.float32)], **CLOSE)
    )


def test_large_weights_are_looked_through():
    image = RNG.standard_normal((1, 64, 48, 2)).astype(np.float32)
    assert op_types(check_export(resize((128, 96, 2), "bilinear"), [image], rtol=1e-4, atol=1e-4)) == ["Resize"]


@pytest.mark.parametrize("symbolic", [False, True])
def test_repeated_rows_and_columns(symbolic):
    def fn(x):
        return jnp.repeat(jnp.repeat(x, 2, axis=1), 3, axis=2)

    options = {"specs": [("B", 8, 6, 4)], "more_args": [[X[:1]]]} if symbolic else {}
    assert op_types(check_export(fn, [X], **options)) == ["Resize"]


def test_between_convolutions():
    kernel = (RNG.standard_normal((3, 3, 4, 4)) / 6).astype(np.float32)

    def conv(x):
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    for method in ("bilinear", "nearest", "cubic"):
        model = check_export(lambda x, method=method: conv(resize((16, 12, 4), method)(conv(x))), [X], **CLOSE)
        assert op_types(model) == ["Transpose", "Conv", "Resize", "Conv", "Transpose"]


def weights(to, size, change=lambda matrix: matrix):
    matrix = np.asarray(jax.image.resize(np.eye(size, dtype=np.float32), (to, size), "linear"))
    return change(matrix.copy())


def by_matrices(rows, columns):
    return lambda x: jnp.einsum("nhwc,Hh,Ww->nHWc", x, rows, columns)


def shifted(matrix):
    return np.roll(matrix, 1, axis=0)


def slightly_off(matrix):
    matrix[3, 1] += 1e-3
    return matrix


def test_given_weights():
    assert op_types(check_export(by_matrices(weights(16, 8), weights(9, 6)), [X], **CLOSE)) == ["Resize"]


NEAR_MISSES = {
    "rolled": by_matrices(weights(16, 8, shifted), weights(12, 6)),
    "another number": by_matrices(weights(16, 8, slightly_off), weights(12, 6)),
    "any matrix": by_matrices(RNG.standard_normal((16, 8)).astype(np.float32), weights(12, 6)),
    "lanczos": resize((16, 12, 4), "lanczos3"),
    "other rows": lambda x: x[:, jnp.array([0, 0, 2, 3]), :][:, :, jnp.array([1, 0, 0, 2, 3])],
    "tiled": lambda x: jnp.tile(x, (1, 2, 3, 1)),
    "one axis repeated": lambda x: jnp.repeat(x, 2, axis=2),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_stay(name):
    model = check_export(NEAR_MISSES[name], [X], **CLOSE)
    assert op_types(model) != ["Resize"]


def test_what_something_else_reads_stays():
    def fn(x):
        rows = jnp.repeat(x, 2, axis=1)
        return jnp.repeat(rows, 2, axis=2), rows

    check_export(fn, [X])


def test_it_names_all_its_lines():
    def fn(x):
        x = jnp.repeat(x, 2, axis=1)
        return jnp.repeat(x, 2, axis=2)

    said = metadata(check_export(fn, [X]).graph.node[0])
    first = fn.__code__.co_firstlineno
    assert said[KEYS[1]].startswith("fuse_resize:")
    for line in (first + 1, first + 2):
        assert f":{line} (" in said[KEYS[3]]


def resized(x, factor, method, antialias=True):
    n, h, w, c = x.shape
    return jax.image.resize(x, (n, factor * h, factor * w, c), method, antialias=antialias)


@pytest.mark.parametrize("method", ["linear", "cubic", "nearest"])
def test_sizes_that_are_not_known(method):
    images = [RNG.standard_normal((2, h, w, 3)).astype(np.float32) for h, w in ((5, 6), (1, 9), (7, 1))]
    more = [[image] for image in images[1:]]
    model = check_export(
        lambda x: resized(x, 2, method), images[:1], specs=[("B", "H", "W", 3)], more_args=more, rtol=1e-4, atol=1e-5
    )
    assert op_types(model) == ["Resize"]


def test_sizes_that_were_not_known():
    images = [RNG.standard_normal((2, h, w, 3)).astype(np.float32) for h, w in ((5, 6), (20, 9), (7, 1))]
    more = [[image] for image in images[1:]]
    for antialias in (False, True):
        model = check_export(
            lambda x: jax.image.resize(x, (x.shape[0], 8, 7, 3), "linear", antialias=antialias),  # noqa: B023
            images[:1],
            specs=[("B", "H", "W", 3)],
            more_args=more,
            rtol=1e-4,
            atol=1e-5,
        )
        assert op_types(model) == ["Shape", "Concat", "Resize"]
