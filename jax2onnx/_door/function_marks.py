"""The two primitives that stand before and after a function's equations in a jaxpr.

``onnx_function_begin`` takes the arguments and returns a token; ``onnx_function_end`` takes the token and the results
and returns the results. The token ties the two together, so that neither is dropped without the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

_begin = Primitive("onnx_function_begin")
_end = Primitive("onnx_function_end")
_end.multiple_results = True

_TOKEN = jax.core.ShapedArray((), np.dtype(np.int32))


def begin(arguments: Sequence[Any], **settings: Any) -> Any:
    return _begin.bind(*arguments, **settings)


def end(token: Any, results: Sequence[Any]) -> list[Any]:
    return _end.bind(token, *results)


def _begin_value(*_: Any, **settings: Any) -> Any:
    return jnp.zeros((), np.int32)


def _end_values(_: Any, *results: Any) -> list[Any]:
    return list(results)


_begin.def_impl(_begin_value)
_begin.def_abstract_eval(lambda *_, **settings: _TOKEN)
_end.def_impl(_end_values)
_end.def_abstract_eval(_end_values)
mlir.register_lowering(_begin, mlir.lower_fun(_begin_value, multiple_results=False))
mlir.register_lowering(_end, mlir.lower_fun(_end_values, multiple_results=True))


# Derivatives: the function computes what it did before; the marks pass the tangents of its results through.


def _begin_jvp(primals: Any, tangents: Any, **settings: Any) -> Any:
    token = _begin.bind(*primals, **settings)
    return token, ad.Zero(_TOKEN.to_tangent_aval())


def _end_jvp(primals: Any, tangents: Any) -> Any:
    return _end.bind(*primals), list(tangents[1:])


ad.primitive_jvps[_begin] = _begin_jvp
ad.primitive_jvps[_end] = _end_jvp


# Batches: the same function of the batched values.


def _begin_batched(values: Any, axes: Any, **settings: Any) -> Any:
    return _begin.bind(*values, **settings), None  # the token has no batch axis


def _end_batched(values: Any, axes: Any) -> Any:
    return _end.bind(*values), list(axes[1:])


batching.primitive_batchers[_begin] = _begin_batched
batching.primitive_batchers[_end] = _end_batched
