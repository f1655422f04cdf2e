"""The public functions, importable from where the Python jax2onnx documents them."""

from jax2onnx._compare.sessions import allclose
from jax2onnx._compare.web import allclose_onnxruntime_web
from jax2onnx._door.export import to_onnx
from jax2onnx._door.functions import onnx_function

__all__ = ["allclose", "allclose_onnxruntime_web", "onnx_function", "to_onnx"]
