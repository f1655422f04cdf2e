"""Export JAX functions and models to ONNX, with the user's line on every node."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jax2onnx._core import VERSION as __version__
from jax2onnx._door.functions import onnx_function
from jax2onnx._door.installation import warn_of_other_package
from jax2onnx._door.settings import config, stacktrace_metadata

if TYPE_CHECKING:
    from jax2onnx._compare.sessions import allclose
    from jax2onnx._compare.web import allclose_onnxruntime_web
    from jax2onnx._door.errors import UnsupportedError
    from jax2onnx._door.explore import explore
    from jax2onnx._door.export import to_onnx
    from jax2onnx._door.keep import ProvenanceWarning, keep_provenance
    from jax2onnx._door.plugins import PluginError, plugin

__all__ = [
    "PluginError",
    "ProvenanceWarning",
    "UnsupportedError",
    "__version__",
    "allclose",
    "allclose_onnxruntime_web",
    "config",
    "explore",
    "keep_provenance",
    "onnx_function",
    "plugin",
    "stacktrace_metadata",
    "to_onnx",
]

# Loaded on first use: commands that only read a model, such as `jax2onnx inspect`, do not need JAX.
_LOADED_LATER = {
    "PluginError": "_door.plugins",
    "ProvenanceWarning": "_door.keep",
    "UnsupportedError": "_door.errors",
    "allclose": "_compare.sessions",
    "allclose_onnxruntime_web": "_compare.web",
    "explore": "_door.explore",
    "keep_provenance": "_door.keep",
    "plugin": "_door.plugins",
    "to_onnx": "_door.export",
}

warn_of_other_package(__path__[0])


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module 'jax2onnx' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"jax2onnx.{_LOADED_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LOADED_LATER})
