"""The user's source files that a model names: their digests and, on request, their text."""

from __future__ import annotations

import hashlib
import linecache


def read_sources(embed: bool, paths: list[str]) -> list[tuple[str, str | None] | None]:
    """For each path the SHA-256 of its bytes, and its text if that is to be stored in the model; None for a source that
    cannot be found. Sources that are not files (notebook cells, standard input) are taken from ``linecache``."""
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
