"""``keep_provenance``: keeps the lines on a model that a tool without knowledge of provenance processes."""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from jax2onnx import _core


class ProvenanceWarning(UserWarning):
    """A model lost the provenance of its original in a step, and it could not be restored; the message says why."""


def keep_provenance(original: Any) -> Any:
    """Keep the lines of the program on a model that a tool makes from another.

    It can wrap a tool, which then returns the same result as before, with provenance::

        model = keep_provenance(onnxslim.slim)(model)
        keep_provenance(quantize_dynamic)("model.onnx", "small.onnx")

    or it can enclose some steps, and is called with their result::

        with keep_provenance("model.onnx") as step:
            model, _ = onnxsim.simplify(onnx.load("model.onnx"))
            model = step(model)

    A path that is passed to ``step`` is grafted in place, and so is ``"model.onnx"`` itself if it was changed inside
    the block. If nothing can be grafted, because the result does not come from the original or the original has no
    provenance, a ``ProvenanceWarning`` is issued and the result stays as the tool made it.

    Args:
        original: a tool, or the model before the step: a path, a ``ModelProto``, an ``onnx_ir.Model``, or bytes.
    """
    return _wrapped(original) if callable(original) and not _is_model(original) else Step(original)


class Step:
    """The model before some steps. Call it with their result."""

    def __init__(self, original: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="jax2onnx_")
        self._original = pathlib.Path(self._folder.name, "original.onnx")
        self._path = pathlib.Path(original) if isinstance(original, (str, os.PathLike)) else None
        if self._path is not None:
            shutil.copyfile(self._path, self._original)  # a tool may overwrite it
            self._state = _state(self._path)
        else:
            self._original.write_bytes(model_bytes(original))

    def __call__(self, processed: Any) -> Any:
        """Return the processed model with provenance, in the form that was given; a path is grafted in place."""
        if isinstance(processed, (str, os.PathLike)):
            self._graft(pathlib.Path(processed), pathlib.Path(processed))
            return processed
        given = pathlib.Path(self._folder.name, "processed.onnx")
        given.write_bytes(model_bytes(processed))
        return _as(processed, given.read_bytes()) if self._graft(given, given) else processed

    def __enter__(self) -> Step:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._path is not None and _state(self._path) not in (None, self._state):
            self(self._path)
        self._folder.cleanup()

    def _graft(self, processed: pathlib.Path, target: pathlib.Path) -> bool:
        words = ["j2o", "graft", "-o", str(target), "--", str(self._original), str(processed)]
        code, _, errors = _core.tool_output(words)
        if code:
            reason = errors.decode(errors="replace").strip().removeprefix("j2o: ")
            warnings.warn(f"provenance was not kept: {reason}", ProvenanceWarning, stacklevel=3)
        return code == 0


def _wrapped(tool: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(tool)
    def run(*args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        original = _original(given, tool)
        paths = [
            pathlib.Path(value) for value in given if isinstance(value, (str, os.PathLike)) and _could_be_path(value)
        ]
        with Step(original) as step:
            step._path = None  # the paths below are handled one by one
            before = {path: _state(path) for path in paths}
            result = tool(*args, **kwargs)
            for path in dict.fromkeys(paths):
                if path.suffix == ".onnx" and _state(path) not in (None, before[path]):
                    step(path)
            if result is None and _is_model(original):
                _change(original, step(original))  # a tool that works in place
            return _grafted(result, step)

    return run


def _grafted(result: Any, step: Step) -> Any:
    if _is_model(result):
        return step(result)
    if isinstance(result, tuple) and not hasattr(result, "_fields"):
        return tuple(step(item) if _is_model(item) else item for item in result)
    return result


def _original(given: Iterable[Any], tool: Callable[..., Any]) -> Any:
    for value in given:
        if _is_model(value):
            return value
        if isinstance(value, (str, os.PathLike)) and _could_be_path(value) and os.path.isfile(value):
            return value
    name = getattr(tool, "__name__", "the tool")
    raise TypeError(f"{name} was called without a model: expected a ModelProto, an onnx_ir.Model or the path of a file")


def _could_be_path(value: str | os.PathLike[str]) -> bool:
    text = os.fspath(value)
    return isinstance(text, str) and text.endswith(".onnx")


def _state(path: pathlib.Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _is_model(value: Any) -> bool:
    kind = type(value)
    return kind.__name__ == "ModelProto" or (kind.__name__ == "Model" and kind.__module__.startswith("onnx_ir"))


def model_bytes(model: Any) -> bytes:
    """A model in any form as the bytes of its file."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    if type(model).__module__.startswith("onnx_ir"):
        import onnx_ir

        model = onnx_ir.to_proto(model)
    if hasattr(model, "SerializeToString"):
        return model.SerializeToString()
    raise TypeError(f"expected a model or the path of one, not {type(model).__name__}")


def _as(example: Any, content: bytes) -> Any:
    """The content in the form of the example."""
    if isinstance(example, (bytes, bytearray, memoryview)):
        return content
    import onnx

    proto = onnx.ModelProto.FromString(content)
    if not type(example).__module__.startswith("onnx_ir"):
        return proto
    import onnx_ir

    return onnx_ir.from_proto(proto)


def _change(model: Any, new: Any) -> None:
    """Give the model the metadata of the new one."""
    if hasattr(model, "CopyFrom"):
        model.CopyFrom(new)
        return
    pairs = zip(model.graph.all_nodes(), new.graph.all_nodes(), strict=True)
    for node, other in pairs:
        node.metadata_props.clear()
        node.metadata_props.update(other.metadata_props)
