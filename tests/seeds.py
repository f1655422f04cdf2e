"""Where a campaign of generated programs begins."""

from __future__ import annotations

import datetime
import hashlib
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]


def seed_of_date() -> int:
    return int(datetime.datetime.now(datetime.UTC).strftime("%y%m%d%H%M%S")) * 1000


def seed_of_tree(generator: pathlib.Path) -> int:
    """The same for the same sources of the package and of the generator."""
    folders = [ROOT / "src", ROOT / "include", ROOT / "jax2onnx", generator]
    paths = sorted(
        path for folder in folders for path in folder.rglob("*") if path.suffix in (".c", ".h", ".inc", ".py")
    )
    digest = hashlib.sha256()
    for path in paths:
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return int.from_bytes(digest.digest()[:5], "big") * 1000
