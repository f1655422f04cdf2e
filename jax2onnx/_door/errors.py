"""Errors as the user sees them: with the file, the line and its text."""

from __future__ import annotations

import linecache
import re
import sys
import types
import warnings
from collections.abc import Mapping

from jax2onnx import _core
from jax2onnx._door.jax_types import is_users_file


class UnsupportedError(NotImplementedError):
    """The program uses something that cannot be exported.

    ``items`` lists one ``(primitive, reason, file, line, function)`` for each place.
    """

    def __init__(self, message: str, items: list[tuple[str, str, str, int, str]]) -> None:
        super().__init__(message)
        self.items = items


def with_source(error: _core.UnsupportedError) -> UnsupportedError:
    """The core's error, with the text of each line."""
    message, items = error.args
    if not items:
        return UnsupportedError(message, items)
    lines = ["this function cannot be exported to ONNX:"]
    for primitive, reason, file, line, function in items:
        place = f'File "{file}", line {line}, in {function}' if file else "(JAX recorded no line for it)"
        lines.append(f"  {primitive}: {reason}\n    {place}")
        text = linecache.getline(file, line).strip() if file else ""
        if text:
            lines.append(f"      {text}")
    return UnsupportedError("\n".join(lines), items)


def warn_user(message: str) -> None:
    """Issue a warning for the user's line that called us."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and not is_users_file(frame.f_code.co_filename):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, stacklevel=depth + 1)


def name_symbolic_dimension(error: Exception, places: Mapping[str, str]) -> None:
    """Extend JAX's message: which dimension of which input has no constant size, and on which of the user's lines.

    ``places`` says for each dimension name where it occurs in the inputs.
    """
    message = str(error)
    named = [name for name in places if re.search(rf"\b{re.escape(name)}\b", message)]
    lines = [f"  '{name}' ({places[name]}) has no constant size" for name in named or places]
    frame = _users_frame(error.__traceback__)
    if frame:
        file, line, function = frame
        lines.append(f'  File "{file}", line {line}, in {function}')
        text = linecache.getline(file, line).strip()
        lines += [f"    {text}"] if text else []
    hint = "Give that dimension a number in inputs, or rewrite this line so that it does not need the size."
    error.args = ("\n".join([message.strip(), "", "while exporting with symbolic dimensions:", *lines, hint]),)


def _users_frame(traceback: types.TracebackType | None) -> tuple[str, int, str] | None:
    """The user's innermost frame inside the traced function, or None."""
    found = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if is_users_file(code.co_filename):
            found = (code.co_filename, traceback.tb_lineno, code.co_qualname)
        traceback = traceback.tb_next
    return found
