"""The public functions of JAX's library, and arguments to call each with: what test_public_functions.py sweeps over.

Names are found by walking the modules, so a function that a new JAX adds is swept as well. Most arguments follow from
the names of a function's parameters; ARGUMENTS holds what does not, and EXCEPTIONS the functions that cannot be
exported at all, each with the reason.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

MODULES = (
    "jax.numpy",
    "jax.numpy.linalg",
    "jax.numpy.fft",
    "jax.nn",
    "jax.nn.initializers",
    "jax.random",
    "jax.scipy.special",
    "jax.image",
)


class Case(NamedTuple):
    """A function of arrays, and arrays to call it with."""

    call: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]


def public_names() -> list[str]:
    """The full names of all public functions: what can be called and is neither a class nor a module."""
    names = []
    for module in MODULES:
        for name in dir(importlib.import_module(module)):
            function = None if name.startswith("_") else lookup(f"{module}.{name}")
            if callable(function) and not inspect.isclass(function) and not inspect.ismodule(function):
                names.append(f"{module}.{name}")
    return names


def lookup(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute, None)


# The arrays. No two operands are equal, and none is symmetric, so that exchanged operands or axes are noticed.
def _floats(operand: int) -> np.ndarray:
    return np.random.default_rng(operand).uniform(0.1, 0.9, (3, 3)).astype(np.float32)


def _integers(operand: int) -> np.ndarray:
    return np.random.default_rng(operand).integers(1, 9, (3, 3)).astype(np.int32)


def _vector(operand: int) -> np.ndarray:
    return _floats(operand)[0]


def _index(operand: int) -> np.ndarray:
    return np.int32(operand + 1)


def _bytes(operand: int) -> np.ndarray:
    return _integers(operand).astype(np.uint8)


def _images(operand: int) -> np.ndarray:
    return np.random.default_rng(operand).uniform(0.1, 0.9, (2, 4, 6)).astype(np.float32)


KINDS = (_floats, _integers, _vector, _index, _bytes, _images)
KEY = np.array([17, 42], np.uint32)
X, Y, Z = (_floats(operand) for operand in range(3))
A, B, C = (_integers(operand) for operand in range(3))
U, V, W = X[0], Y[1], Z[2]
LONG = np.random.default_rng(5).uniform(-2, 2, 7).astype(np.float32)
IMAGES = _images(0)
TEXT = np.array([3, 1, 3, 0, 0, 2, 1], np.int32)  # with repetitions
POSITIVE = (X @ X.T + np.eye(3, dtype=np.float32)).astype(np.float32)  # a symmetric positive definite matrix

# Parameters that are no arrays, by name.
STATIC: dict[str, Any] = {
    "axes": (1, 0),
    "axis": 0,
    "axis1": 0,
    "axis2": 1,
    "d": 2,
    "deg": 1,
    "destination": 1,
    "dtype": np.float32,
    "indices_or_sections": 2,
    "kth": 1,
    "k": 2,
    "M": 5,
    "n": 3,
    "N": 4,
    "new_shape": (2, 5),
    "num_classes": 6,
    "pad_width": 1,
    "repeats": 2,
    "reps": 2,
    "shape": (3, 3),
    "source": 0,
}


def cases(name: str) -> Iterator[Case]:
    """What to try to call the function with: what ARGUMENTS says, else every kind of array in turn."""
    function = lookup(name)
    if name in ARGUMENTS:
        call, *arrays = ARGUMENTS[name]
        yield Case(lambda *values: call(function, *values), tuple(np.asarray(array) for array in arrays))
        return
    required, optional = _parameters(function)
    for kind in KINDS:
        given = [_argument(parameter, kind, index) for index, parameter in enumerate(required)]
        yield _case(function, given, {})
        if "size" in optional:  # without it the result's size depends on the data
            yield _case(function, given, {"size": 5})


def _parameters(function: Any) -> tuple[list[str], set[str]]:
    """The names of the parameters that must be given, and of those that may be."""
    if isinstance(function, jnp.ufunc):
        return [f"x{index}" for index in range(function.nin)], set()
    parameters = inspect.signature(function).parameters.values()
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [item.name for item in parameters if item.default is item.empty and item.kind not in free]
    if not required and any(item.kind is item.VAR_POSITIONAL for item in parameters):
        required = ["first", "second"]
    return required, {item.name for item in parameters if item.default is not item.empty}


def _argument(parameter: str, kind: Callable[[int], np.ndarray], operand: int) -> Any:
    if parameter in ("key", "keys"):
        return KEY
    return STATIC.get(parameter, kind(operand))


def _case(function: Any, given: list[Any], keywords: dict[str, Any]) -> Case:
    """The arrays among the arguments are the case's; the rest is held by the call."""
    is_array = [isinstance(value, (np.ndarray, np.generic)) for value in given]

    def call(*arrays: Any) -> Any:
        values = iter(arrays)
        filled = [next(values) if array else value for value, array in zip(given, is_array, strict=True)]
        return function(*filled, **keywords)

    return Case(call, tuple(value for value, array in zip(given, is_array, strict=True) if array))


def traceable(case: Case) -> bool:
    """Whether JAX can trace it to a program that gives arrays."""
    try:
        return bool(jax.tree.leaves(jax.eval_shape(case.call, *case.arrays)))
    except Exception:  # every function has its own way to refuse arguments
        return False


def _initializer(function: Any, key: Any) -> Any:
    return function()(key, (3, 4), jnp.float32)


def _named(module: str, names: str, value: Any) -> dict[str, Any]:
    return {f"{module}.{name}": value for name in names.split()}


# What to call with, where the parameters' names do not say it: a function of the function and arrays, then the arrays.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "jax.numpy.acosh": (lambda f, x: f(x + 1), X),
    "jax.numpy.apply_along_axis": (lambda f, x: f(lambda row: row.cumsum(), 1, x), X),
    "jax.numpy.apply_over_axes": (lambda f, x: f(jnp.sum, x, (0, 1)), X),
    "jax.numpy.arange": (lambda f: f(2, 11, 3),),
    "jax.numpy.arccosh": (lambda f, x: f(x + 1), X),
    "jax.numpy.astype": (lambda f, x: f(x * 9, jnp.int32), X),
    "jax.numpy.bincount": (lambda f, x: f(x, length=5), TEXT),
    "jax.numpy.block": (lambda f, x, y: f([[x, y], [y, x]]), X, Y),
    "jax.numpy.broadcast_shapes": (lambda f: f((2, 1), (1, 3)),),
    "jax.numpy.broadcast_to": (lambda f, x: f(x, (2, 3)), U),
    "jax.numpy.choose": (lambda f, x, y, z: f(x % 2, [y, z], mode="clip"), A, X, Y),
    "jax.numpy.clip": (lambda f, x: f(x, 0.3, 0.6), X),
    "jax.numpy.compress": (lambda f, c, x: f(c > 0.5, x, size=3, axis=0), U, X),
    "jax.numpy.concat": (lambda f, x, y: f([x, y], axis=1), X, Y),
    "jax.numpy.concatenate": (lambda f, x, y: f([x, y], axis=1), X, Y),
    "jax.numpy.delete": (lambda f, x: f(x, 1, axis=0), X),
    "jax.numpy.digitize": (lambda f, x, y: f(x, jnp.sort(y)), X, V),
    "jax.numpy.einsum": (lambda f, x, y: f("ij,kj->ik", x, y), X, Y),
    "jax.numpy.extract": (lambda f, c, x: f(c > 0.5, x, size=4), X, Y),
    "jax.numpy.fill_diagonal": (lambda f, x: f(x, 7, inplace=False), X),
    "jax.numpy.fromfunction": (lambda f: f(lambda i, j: 2 * i + j, (2, 3)),),
    "jax.numpy.frompyfunc": (lambda f, x, y: f(lambda a, b: a * b + 1, 2, 1)(x, y), X, Y),
    "jax.numpy.geomspace": (lambda f, x, y: f(x, y, 5), U, V),
    "jax.numpy.indices": (lambda f: f((2, 3)),),
    "jax.numpy.insert": (lambda f, x, y: f(x, 1, y, axis=0), X, U),
    "jax.numpy.interp": (lambda f, x, y: f(x, jnp.linspace(0, 1, 3), y), X, U),
    "jax.numpy.iscomplex": (lambda f, x: f(x), X),
    "jax.numpy.kaiser": (lambda f: f(5, 0.5),),
    "jax.numpy.linspace": (lambda f, x, y: f(x, y, 5), U, V),
    "jax.numpy.logspace": (lambda f, x, y: f(x, y, 5), U, V),
    "jax.numpy.lexsort": (lambda f, x, y: f((x, y)), TEXT, TEXT[::-1].copy()),
    "jax.numpy.mask_indices": (lambda f: f(3, jnp.triu, size=6),),
    "jax.numpy.meshgrid": (lambda f, x, y: f(x, y), U, LONG),
    "jax.numpy.pad": (lambda f, x: f(x, ((1, 2), (0, 1)), mode="reflect"), X),
    "jax.numpy.percentile": (lambda f, x: f(x, 30.0), X),
    "jax.numpy.nanpercentile": (lambda f, x: f(x, 30.0), X),
    "jax.numpy.piecewise": (lambda f, x: f(x, [x < 0.3, x > 0.6], [jnp.sin, jnp.cos, 0.5]), X),
    "jax.numpy.place": (lambda f, x, y: f(x, x > 0.5, y, inplace=False), X, U),
    "jax.numpy.put": (lambda f, x, y: f(x, jnp.array([0, 4, 2]), y, inplace=False), X, U),
    "jax.numpy.put_along_axis": (lambda f, x, y: f(x, jnp.array([[0], [2], [1]]), y, 1, inplace=False), X, Y[:, :1]),
    "jax.numpy.polydiv": (lambda f, x, y: f(x, y), LONG, U),
    "jax.numpy.ravel_multi_index": (lambda f, x, y: f((x % 2, y % 4), (2, 4), mode="clip"), A, B),
    "jax.numpy.repeat": (lambda f, x: f(x, 2, axis=1), X),
    "jax.numpy.roots": (lambda f, p: jnp.sort(jnp.abs(f(p, strip_zeros=False))), LONG),  # in no order of their own
    "jax.numpy.rot90": (lambda f, x: f(x, 3), X),
    "jax.numpy.searchsorted": (lambda f, x, y: f(jnp.sort(x), y), LONG, X),
    "jax.numpy.select": (lambda f, x, y: f([x < 0.3, x < 0.6], [x, y], 2.0), X, Y),
    "jax.numpy.squeeze": (lambda f, x: f(x), X[:, :1]),
    "jax.numpy.take": (lambda f, x, i: f(x, i, axis=1), X, np.array([2, 0, 2], np.int32)),
    "jax.numpy.take_along_axis": (lambda f, x, i: f(x, i, axis=1), X, A % 3),
    "jax.numpy.tile": (lambda f, x: f(x, (2, 1)), X),
    "jax.numpy.unravel_index": (lambda f, i: f(i, (5, 4)), A),
    "jax.numpy.vectorize": (lambda f, x, y: f(jnp.dot, signature="(n),(n)->()")(x, y), X, Y),
    "jax.numpy.where": (lambda f, x, y: f(x < 0.5, x, y), X, Y),
    "jax.numpy.linalg.eigh": (lambda f, x: (f(x)[0], jnp.abs(f(x)[1])), POSITIVE),  # vectors have no sign of their own
    "jax.numpy.linalg.eig": (lambda f, x: jnp.sort(f(x)[0].real), POSITIVE),  # nor have they an order
    "jax.numpy.linalg.eigvals": (lambda f, x: jnp.sort(f(x).real), POSITIVE),
    "jax.numpy.linalg.svd": (lambda f, x: tuple(map(jnp.abs, f(x, full_matrices=False))), IMAGES[0]),
    "jax.numpy.linalg.lstsq": (lambda f, x, y: f(x, y), IMAGES[0], U[[0, 1, 2, 0]]),
    "jax.numpy.linalg.cholesky": (lambda f, x: f(x), POSITIVE),
    "jax.numpy.linalg.matrix_rank": (lambda f, x: f(x), X),
    "jax.numpy.linalg.matrix_power": (lambda f, x: f(x, 3), X),
    "jax.numpy.linalg.multi_dot": (lambda f, x, y, z: f([x, y, z]), X, Y, U),
    "jax.numpy.linalg.tensorinv": (lambda f, x: f(x.reshape(2, 2, 4)), IMAGES[:, :4, :2]),
    "jax.numpy.fft.fftfreq": (lambda f: f(5),),
    "jax.numpy.fft.rfftfreq": (lambda f: f(5),),
    "jax.nn.dot_product_attention": (lambda f, q, k, v: f(q, k, v), *(IMAGES[..., i : i + 2, None] for i in range(3))),
    "jax.nn.scaled_matmul": (lambda f, x, y, s, t: f(x, y, s, t), *(IMAGES[..., i : i + 2] for i in range(4))),
    "jax.nn.glu": (lambda f, x: f(x), IMAGES),
    "jax.nn.one_hot": (lambda f, x: f(x, 6), A),
    "jax.nn.scaled_dot_general": (lambda f, x, y: f(x, y, (((1,), (0,)), ((), ()))), X, Y),
    "jax.nn.initializers.constant": (lambda f, key: f(0.5)(key, (3, 4)), KEY),
    "jax.nn.initializers.delta_orthogonal": (lambda f, key: f()(key, (3, 3, 3)), KEY),
    "jax.nn.initializers.variance_scaling": (lambda f, key: f(1.0, "fan_avg", "truncated_normal")(key, (3, 4)), KEY),
    **_named(
        "jax.nn.initializers",
        "glorot_normal glorot_uniform he_normal he_uniform kaiming_normal kaiming_uniform lecun_normal lecun_uniform"
        " normal orthogonal truncated_normal uniform xavier_normal xavier_uniform",
        (_initializer, KEY),
    ),
    "jax.random.generalized_normal": (lambda f, key: f(key, 1.5, (3,)), KEY),
    "jax.random.key": (lambda f, seed: jax.random.key_data(f(seed)), np.int32(-5)),
    "jax.random.key_data": (lambda f, key: f(jax.random.wrap_key_data(key)), KEY),
    "jax.random.multivariate_normal": (lambda f, key, mean, cov: f(key, mean, cov), KEY, U, POSITIVE),
    "jax.random.wrap_key_data": (lambda f, key: jax.random.bits(f(key), (3,)), KEY),
    "jax.image.resize": (lambda f, x: f(x, (2, 5, 4), "bilinear"), IMAGES),
    "jax.image.scale_and_translate": (
        lambda f, x, s, t: f(x, (4, 5), (0, 1), s, t, "linear"),
        IMAGES[0],
        U[:2],
        V[:2],
    ),
    "jax.scipy.special.bessel_jn": (lambda f, x: f(x, v=3), U),
    "jax.scipy.special.sph_harm_y": (
        lambda f, n, m, t, p: f(n, m, t, p, n_max=4),
        np.array([2, 3], np.int32),
        np.array([1, 0], np.int32),
        U[:2],
        V[:2],
    ),
    "jax.scipy.special.zeta": (lambda f, x, q: f(x + 1, q), X, Y),
}

TEXT_RESULT = "gives text"
NOT_OF_ARRAYS = "is no function of arrays to arrays"
DATA_DEPENDENT = "the size of its result depends on the data"
OUTSIDE = "reads or writes outside of the program"

# Functions that are not exported, and why.
EXCEPTIONS: dict[str, str] = {
    "jax.numpy.array_repr": TEXT_RESULT,
    "jax.numpy.array_str": TEXT_RESULT,
    "jax.numpy.einsum_path": TEXT_RESULT,
    "jax.numpy.from_dlpack": OUTSIDE,
    "jax.numpy.frombuffer": OUTSIDE,
    "jax.numpy.fromfile": OUTSIDE,
    "jax.numpy.fromiter": OUTSIDE,
    "jax.numpy.fromstring": OUTSIDE,
    "jax.numpy.load": OUTSIDE,
    "jax.numpy.save": OUTSIDE,
    "jax.numpy.savez": OUTSIDE,
    "jax.numpy.get_printoptions": NOT_OF_ARRAYS,
    "jax.numpy.printoptions": NOT_OF_ARRAYS,
    "jax.numpy.set_printoptions": NOT_OF_ARRAYS,
    "jax.numpy.promote_types": NOT_OF_ARRAYS,
    "jax.numpy.result_type": NOT_OF_ARRAYS,
    "jax.numpy.trim_zeros": DATA_DEPENDENT,
    "jax.nn.get_scaled_dot_general_config": NOT_OF_ARRAYS,
    "jax.nn.scaled_matmul": "is a cuDNN kernel",
    "jax.random.key_dtype": NOT_OF_ARRAYS,
    "jax.random.key_impl": NOT_OF_ARRAYS,
}
