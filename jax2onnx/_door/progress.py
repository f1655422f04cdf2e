"""Progress of an export: reported to the caller and the log; after a second shown on a terminal or in a notebook."""

from __future__ import annotations

import inspect
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

from jax2onnx import _core

PATIENCE = 1.0  # seconds before anything is shown
_INTERVAL = 0.2
_BAR = 20  # characters of a bar
_ERASE = "\r\x1b[K"

_log = logging.getLogger("jax2onnx")
_shown: ContextVar[Progress | None] = ContextVar("jax2onnx_progress", default=None)
_listener: ContextVar[Callable[[str, int, int], Any] | None] = ContextVar("jax2onnx_listener", default=None)
_opsets: ContextVar[list[str] | None] = ContextVar("jax2onnx_opsets", default=None)


class Terminal:
    """One line of a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, line: str) -> None:
        self._stream.write(f"{_ERASE}{line}")
        self._stream.flush()


class Notebook:
    """One output of a notebook cell, which appears with the first line."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, line: str) -> None:
        from IPython.display import display

        content = {"text/plain": line}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


class Progress:
    """One line: the stage and the seconds since the start. A thread rewrites it; `close` erases it."""

    def __init__(self, place: Terminal | Notebook, patience: float = PATIENCE) -> None:
        self.stage = "starting"
        self._place = place
        self._patience = patience
        self._start = time.monotonic()
        self._writing: tuple[float, int] | None = None  # the start time, and how much was written then
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._show, name="jax2onnx-progress", daemon=True)
        self._thread.start()

    def _show(self) -> None:
        if self._done.wait(self._patience):
            return
        while True:
            elapsed = time.monotonic() - self._start
            self._place.show(f"{_core.shown(self.stage)} … {elapsed:.1f} s")
            if self._done.wait(_INTERVAL):
                self._place.show("")
                return

    def close(self) -> None:
        self._done.set()
        self._thread.join()

    def written(self, done: int, total: int) -> None:
        """Report how much of the tensor file is written."""
        rate = done / max(time.monotonic() - self._since(done), 1e-3)
        left = f", {(total - done) / rate:.0f} s left" if rate else ""
        bar = "█" * (done * _BAR // total) if total else ""
        self.stage = f"writing {bar:░<{_BAR}} {done / 1e9:.1f} of {total / 1e9:.1f} GB, {rate / 1e6:.0f} MB/s{left}"

    def _since(self, done: int) -> float:
        if not self._writing or done < self._writing[1]:
            self._writing = (time.monotonic() - _INTERVAL, done)
        return self._writing[0]


@contextmanager
def progress_on(stream: TextIO) -> Iterator[None]:
    """Inside this block, exports show their progress on ``stream`` if it is a terminal."""
    if not stream.isatty():
        yield
        return
    with _shown_at(Terminal(stream)):
        yield


@contextmanager
def _shown_at(place: Terminal | Notebook) -> Iterator[None]:
    progress = Progress(place)
    token = _shown.set(progress)
    try:
        yield
    finally:
        _shown.reset(token)
        progress.close()


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def _place(progress: bool | None) -> Terminal | Notebook | None:
    """Where progress is shown: unless requested, only in a notebook or at an interactive prompt."""
    if progress is False or _shown.get() is not None:
        return None
    if _in_notebook():
        return Notebook()
    if (progress or hasattr(sys, "ps1")) and sys.stderr is not None and sys.stderr.isatty():
        return Terminal(sys.stderr)
    return None


def _accepts(function: Callable[..., Any], *arguments: Any) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError):
        return False
    return True


@contextmanager
def told(progress: Callable[..., Any] | bool | None) -> Iterator[None]:
    """Inside this block, stages are reported to the ``progress`` argument of ``to_onnx`` if it accepts them."""
    if callable(progress):
        takes_stages = not _accepts(progress, 0, 0) and _accepts(progress, "", 0, 0)
        token = _listener.set(progress if takes_stages else None)
        try:
            yield
        finally:
            _listener.reset(token)
        return
    place = _place(progress)
    if place is None:
        yield
        return
    with _shown_at(place):
        yield


def watched(callback: Callable[..., Any] | bool | None) -> Callable[[int, int], None]:
    """The function to which the core reports the bytes written: 0 of 0 at the start."""
    progress, listener = _shown.get(), _listener.get()
    if not callable(callback) or listener is not None:
        callback = None

    def tell(done: int, total: int) -> None:
        if not total:
            stage("writing")
            return
        if progress is not None:
            progress.written(done, total)
        if listener is not None:
            listener("writing", done, total)
        if callback is not None:
            callback(done, total)

    return tell


def stage(name: str) -> None:
    """Announce the next stage, on the terminal and in the log; costs nothing if nobody watches."""
    _log.debug("%s", name)
    if (progress := _shown.get()) is not None:
        progress.stage = name
    if (listener := _listener.get()) is not None:
        listener(name, 0, 0)


def tell_opset(opset: int, asked_by: str | None) -> None:
    """Called by the core when it has chosen the opset."""
    reason = f", the oldest with {asked_by}" if asked_by else ""
    _log.info("opset %d%s", opset, reason)
    if (listener := _opsets.get()) is not None:
        listener.append(f"{opset}{reason}")


@contextmanager
def opsets_told() -> Iterator[list[str]]:
    """Collect the opsets that are chosen inside the block, each with the reason."""
    told: list[str] = []
    token = _opsets.set(told)
    try:
        yield told
    finally:
        _opsets.reset(token)
