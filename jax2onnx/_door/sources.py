"""The source files of the user's that a model names: their digests, and where asked for their texts."""

from __future__ import annotations

import hashlib
import linecache


def read_sources(embed: bool, paths: list[str]) -> list[tuple[str, str | None] | None]:
    """For each path the SHA-256 of its bytes, and its text when that is to be kept in the model; None for a source that
    cannot be found. What is in no file (a cell of a notebook, standard input) is what ``linecache`` holds."""
    return [_read(embed, path) for path in paths]


def _read(embed: bool, path: str) -> tuple[str, str | None] | None:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except (OSError, ValueError):
        content = "".join(linecache.getlines(path)).encode("utf-8", "surrogatepass")
        if not content:
            return None
    text = content.decode("utf-8", "replace") if embed else None
    return hashlib.sha256(content).hexdigest(), text
