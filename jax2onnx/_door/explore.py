"""``explore``: the page of ``j2o report`` in a notebook."""

from __future__ import annotations

import html
import linecache
import os
import pathlib
import tempfile
from collections.abc import Iterable
from typing import Any

from jax2onnx import _core
from jax2onnx._door.keep import model_bytes
from jax2onnx._door.settings import sync

_FRAME = (
    '<iframe sandbox="allow-scripts" style="width: 100%; height: {height}px; border: 1px solid #8888; '
    'border-radius: 4px" title="{title}" srcdoc="{page}"></iframe>'
)


class Exploration:
    """A model and the program it came from. A notebook displays it; ``save`` writes the page; ``html`` is its text."""

    def __init__(self, page: str, name: str, height: int) -> None:
        self.html = page
        self._name = name
        self._height = height

    def save(self, path: str | os.PathLike[str]) -> None:
        _core.write_file(os.fsencode(path), self.html.encode(), not sync())

    def _repr_html_(self) -> str:
        return _FRAME.format(height=self._height, title=html.escape(self._name), page=html.escape(self.html))

    def __repr__(self) -> str:
        return f"<exploration of {self._name}: show it in a notebook, or save it as a page>"


def explore(
    model: Any,
    *,
    sources: Iterable[str | os.PathLike[str]] = (),
    source_roots: Iterable[str | os.PathLike[str]] = (),
    profile: str | os.PathLike[str] | None = None,
    against: str | os.PathLike[str] | None = None,
    height: int = 720,
) -> Exploration:
    """Show a model and the program it came from side by side, in a notebook or as a page.

    Args:
        model: the path of a model, a ``ModelProto``, an ``onnx_ir.Model``, or the bytes of a model.
        sources: source files of the program, if they are not where the model says, or if the model does not name them.
        source_roots: folders in which source files that the model names may be read. By default that is only the
            working folder, because a model can name any file of this machine.
        profile: a JSON file with the times of nodes, as for ``j2o report --profile``.
        against: the path of another model to compare this one with: what changed, by line and by node.
        height: the height of the view in the notebook, in pixels.
    """
    if isinstance(model, (str, os.PathLike)):
        if not os.path.exists(model):
            raise FileNotFoundError(f"model not found: {os.fspath(model)!r}")
        held = _held_sources(os.fspath(model))
        if not held:
            return _explored(os.fspath(model), sources, source_roots, profile, against, height)
        name, content = os.path.basename(model), pathlib.Path(model).read_bytes() + held
    else:
        name, content = "model.onnx", model_bytes(model)
        content += _held_sources_of(content)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / name
        path.write_bytes(content)
        return _explored(str(path), sources, source_roots, profile, against, height)


def _held_sources_of(content: bytes) -> bytes:
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        file.write(content)
        file.flush()
        return _held_sources(file.name)


def _held_sources(path: str) -> bytes:
    """Metadata entries with the source texts that the model names and that are in no file, such as notebook cells.
    Files are left to the core, which reads only what is allowed."""
    cells = {name: entry[2] for name, entry in list(linecache.cache.items()) if len(entry) == 4 and entry[1] is None}
    if not cells:
        return b""
    import onnx

    from jax2onnx._door.origins import HELD, ModelError, named_files

    model = onnx.ModelProto()
    try:
        for name in named_files(path):
            if name in cells and not os.path.exists(name):
                model.metadata_props.add(key=HELD + name, value="".join(cells[name]))
    except ModelError as error:
        raise ValueError(str(error)) from error
    return model.SerializeToString()


def _explored(
    path: str,
    sources: Iterable[str | os.PathLike[str]],
    source_roots: Iterable[str | os.PathLike[str]],
    profile: str | os.PathLike[str] | None,
    against: str | os.PathLike[str] | None,
    height: int,
) -> Exploration:
    options = [word for source in sources for word in ("--source", os.fspath(source))]
    options += [word for root in source_roots for word in ("--source-root", os.fspath(root))]
    if profile is not None:
        options += ["--profile", os.fspath(profile)]
    if against is not None:
        options += ["--against", os.fspath(against)]
    code, page, errors = _core.tool_output(["j2o", "report", "-o", "-", *options, "--", path])
    if code:
        raise ValueError(errors.decode().removeprefix("j2o: ").rstrip())
    return Exploration(page.decode(), os.path.basename(path), height)
