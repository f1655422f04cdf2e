"""What the environment and the arguments say about an export."""

from __future__ import annotations

import os
from collections.abc import Mapping

LEVELS = {"off": 0, "minimal": 1, "full": 2}
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"", "0", "false", "no", "off"}


def metadata_level(argument: bool | str | None, environment: Mapping[str, str] = os.environ) -> int:
    """How much provenance is written: 0 none, 1 minimal, 2 full. An argument wins over the environment."""
    if argument is None:
        return _level_from_environment(environment)
    if argument is False:
        return LEVELS["off"]
    if argument is True:
        return _detail(environment)
    if isinstance(argument, str) and argument in LEVELS:
        return LEVELS[argument]
    expected = ", ".join(repr(level) for level in LEVELS)
    raise ValueError(f"stacktrace_metadata must be None, a bool, or one of {expected}; got {argument!r}")


def _level_from_environment(environment: Mapping[str, str]) -> int:
    flag = environment.get("JAX2ONNX_ENABLE_STACKTRACE_METADATA", "").strip().lower()
    if flag in _FALSE:
        return LEVELS["off"]
    if flag in _TRUE:
        return _detail(environment)
    raise ValueError(f"JAX2ONNX_ENABLE_STACKTRACE_METADATA must be 1 or 0; got {flag!r}")


def _detail(environment: Mapping[str, str]) -> int:
    detail = environment.get("JAX2ONNX_STACKTRACE_DETAIL", "").strip().lower() or "minimal"
    if detail not in ("minimal", "full"):
        raise ValueError(f"JAX2ONNX_STACKTRACE_DETAIL must be 'minimal' or 'full'; got {detail!r}")
    return LEVELS[detail]


def external_threshold(environment: Mapping[str, str] = os.environ) -> int:
    """Tensors of at least this many bytes go to a second file; 0: only when the model would pass 2 GiB."""
    text = environment.get("JAX2ONNX_EXTERNAL_DATA_THRESHOLD", "").strip() or "0"
    if not text.isdigit():
        raise ValueError(f"JAX2ONNX_EXTERNAL_DATA_THRESHOLD must be a number of bytes; got {text!r}")
    return int(text)
