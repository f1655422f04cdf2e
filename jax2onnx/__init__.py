"""JAX to ONNX, with the user's line written on every node."""

from jax2onnx._compare import allclose
from jax2onnx._core import VERSION as __version__
from jax2onnx._errors import UnsupportedError
from jax2onnx._export import to_onnx

__all__ = ["UnsupportedError", "__version__", "allclose", "to_onnx"]
