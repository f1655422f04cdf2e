"""Errors as the user sees them: with the file, the line and its text."""

from __future__ import annotations

import linecache

from jax2onnx import _core


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
