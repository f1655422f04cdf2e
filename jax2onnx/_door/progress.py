"""What an export is busy with, shown on a terminal when it takes longer than a second."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

from jax2onnx import _core

PATIENCE = 1.0  # seconds before anything is shown
_INTERVAL = 0.2
_ERASE = "\r\x1b[K"

_log = logging.getLogger("jax2onnx")
_shown: ContextVar[Progress | None] = ContextVar("jax2onnx_progress", default=None)
_opsets: ContextVar[list[str] | None] = ContextVar("jax2onnx_opsets", default=None)


class Progress:
    """One line on a terminal: the stage and the seconds since the start. A thread rewrites it, `close` erases it."""

    def __init__(self, stream: TextIO, patience: float = PATIENCE) -> None:
        self.stage = "starting"
        self._stream = stream
        self._patience = patience
        self._start = time.monotonic()
        self._writing: tuple[float, int] | None = None  # since when, and how much was there
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._show, name="jax2onnx-progress", daemon=True)
        self._thread.start()

    def _show(self) -> None:
        if self._done.wait(self._patience):
            return
        while True:
            elapsed = time.monotonic() - self._start
            self._stream.write(f"{_ERASE}{_core.shown(self.stage)} … {elapsed:.1f} s")
            self._stream.flush()
            if self._done.wait(_INTERVAL):
                self._stream.write(_ERASE)
                self._stream.flush()
                return

    def close(self) -> None:
        self._done.set()
        self._thread.join()

    def written(self, done: int, total: int) -> None:
        """How far the file of tensors is."""
        rate = done / max(time.monotonic() - self._since(done), 1e-3)
        left = f", {(total - done) / rate:.0f} s left" if rate else ""
        self.stage = f"writing {done / 1e9:.1f} of {total / 1e9:.1f} GB, {rate / 1e6:.0f} MB/s{left}"

    def _since(self, done: int) -> float:
        if not self._writing or done < self._writing[1]:
            self._writing = (time.monotonic() - _INTERVAL, done)
        return self._writing[0]


@contextmanager
def progress_on(stream: TextIO) -> Iterator[None]:
    """Inside this block exports say on ``stream``, when it is a terminal, what they are doing."""
    if not stream.isatty():
        yield
        return
    progress = Progress(stream)
    token = _shown.set(progress)
    try:
        yield
    finally:
        _shown.reset(token)
        progress.close()


def watched(callback: Callable[[int, int], Any] | None) -> Callable[[int, int], Any] | None:
    """Who is to be told how far the writing is: the caller, the terminal, both, or nobody."""
    progress = _shown.get()
    if progress is None:
        return callback

    def tell(done: int, total: int) -> None:
        progress.written(done, total)
        if callback is not None:
            callback(done, total)

    return tell


def stage(name: str) -> None:
    """Names what happens from here on, on the terminal and in the log; costs nothing when nobody watches."""
    _log.debug("%s", name)
    progress = _shown.get()
    if progress is not None:
        progress.stage = name


def tell_opset(opset: int, asked_by: str | None) -> None:
    """Called by the core where it chose the opset."""
    reason = f", the oldest with {asked_by}" if asked_by else ""
    _log.info("opset %d%s", opset, reason)
    if (listener := _opsets.get()) is not None:
        listener.append(f"{opset}{reason}")


@contextmanager
def opsets_told() -> Iterator[list[str]]:
    """Collects the opsets that are chosen inside the block, each with what asked for it."""
    told: list[str] = []
    token = _opsets.set(told)
    try:
        yield told
    finally:
        _opsets.reset(token)
