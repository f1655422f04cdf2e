"""One shared check: every export of the suite is recorded, and its record makes the same bytes again without Python."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax

from jax2onnx import _core

MOST_BYTES = 32 << 20  # of constants; models with more are replayed by a test of their own
_CANNOT = "the export cannot be recorded"
replays = {"checked": 0, "large": 0, "custom": 0}


def replay_every_export() -> None:
    _core.convert = _checked(_core.convert)


class _Export:
    """One that writes to a file; ``alone`` while no other of this process has written to the same one."""

    def __init__(self) -> None:
        self.alone = True


_at_work: dict[bytes, list[_Export]] = {}
_guard = threading.Lock()


@contextlib.contextmanager
def _writing(path: bytes | None) -> Iterator[_Export]:
    this = _Export()
    key = os.path.realpath(path) if path else b""
    with _guard:
        exports = _at_work.setdefault(key, [])
        exports.append(this)
        for export in exports:
            export.alone = len(exports) == 1
    try:
        yield this
    finally:
        with _guard:
            exports.remove(this)
            if not exports:
                del _at_work[key]


def _checked(convert: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(convert)
    def converted(**arguments: Any) -> Any:
        if arguments["record"] is not None or any(type(value) is tuple for _, value in arguments["weights"] or ()):
            return convert(**arguments)
        if _bytes_of_constants(arguments["jaxpr"]) > MOST_BYTES:
            replays["large"] += 1
            return convert(**arguments)
        path = arguments["path"]
        with tempfile.TemporaryDirectory(prefix="replay") as folder, _writing(path) as export:
            record = os.path.join(folder, "record")
            try:
                content = convert(**{**arguments, "record": os.fsencode(record)})
            except ValueError as error:
                if _CANNOT not in str(error):
                    raise
                replays["custom"] += 1
                return convert(**arguments)
            written = _file_content(path) if path else None
            if written is not None and not export.alone:  # it may be another's
                own = os.path.join(folder, "own")
                os.mkdir(own)
                path = os.path.join(os.fsencode(own), os.path.basename(path))
                convert(**{**arguments, "path": path})
                written = _file_content(path)
            check_replay(record, path, content if written is None else written)
        return content

    return converted


def _file_content(path: bytes) -> bytes | None:
    """None for a pipe or a device."""
    return pathlib.Path(os.fsdecode(path)).read_bytes() if os.path.isfile(path) else None


def check_replay(record: str, path: bytes | None, content: bytes | None) -> None:
    """A model that went to a file is made again under the same name, which a second file's name begins with."""
    folder = pathlib.Path(record).parent / "again"
    folder.mkdir()
    again = folder / (os.path.basename(os.fsdecode(path)) if path else "model.onnx")
    code, _, errors = _core.tool_output(["j2o", "convert", record, "-o", os.fspath(again), "--no-sync"])
    assert code == 0, f"the record of this export cannot be converted: {errors.decode()}"
    replays["checked"] += 1
    if content is None:
        return
    made = again.read_bytes()
    same_files = len(list(folder.iterdir())) == 1  # else the names of second files may differ
    assert made == content or not same_files, "the record of this export makes another model"


def _bytes_of_constants(jaxpr: Any) -> int:
    return sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(getattr(jaxpr, "consts", ())))
