"""The nodes of a model file and the user's lines they came from. The C core reads them; no tensor is loaded."""

from __future__ import annotations

import json
import linecache
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from jax2onnx import _core

NO_ORIGINS = (
    "no node has provenance. Export the model with JAX2ONNX_ENABLE_STACKTRACE_METADATA=1 in the environment "
    "(or jax2onnx export --stacktrace) to record the line of the program on every node, and with "
    "JAX2ONNX_STACKTRACE_DETAIL=full (or compact) to record the whole trace."
)


HELD = "pkg.jax2onnx.source:"  # prefix of the name of a source file whose text the model holds


class ModelError(Exception):
    """The file cannot be read; the message names it."""


class Sources:
    """The text of the files that a model names. A model may name anything, so only files in the working folder or in a
    folder of ``roots`` are read, and the files that were ``given``; the C core decides (src/tool/source.h)."""

    def __init__(self, given: Iterable[str] = (), roots: Iterable[str] = ()) -> None:
        self._given, self._roots = list(given), list(roots)
        self._names: dict[str, None] = {}
        self._texts: dict[str, list[str]] | None = None
        self._held: dict[str, list[str]] = {}
        self.changed: list[str] = []  # files that have changed since the export

    @property
    def options(self) -> list[str]:
        """The options for the core's commands."""
        given = [word for name in self._given for word in ("--source", name)]
        return given + [word for name in self._roots for word in ("--source-root", name)]

    def hold(self, metadata: Iterable[dict[str, str]]) -> None:
        """Add the texts that the model itself holds."""
        entries = {entry["key"]: entry["value"] or "" for entry in metadata}
        self._held |= {
            key.removeprefix(HELD): text.split("\n") for key, text in entries.items() if key.startswith(HELD)
        }

    def add(self, names: Iterable[str | None]) -> None:
        self._names |= dict.fromkeys(name for name in names if name and "\0" not in name)
        self._texts = None

    def line(self, file: str, line: int) -> str:
        if self._texts is None:
            try:
                self._texts = _core.sources(list(self._names), self._given, self._roots)
            except OSError as error:
                raise ModelError(str(error)) from error
        lines = self._held.get(file) or self._texts.get(file, [])
        return lines[line - 1] if 0 < line <= len(lines) else ""


@dataclass(frozen=True)
class Frame:
    file: str | None  # None: the model does not say, as with minimal provenance
    line: int
    function: str
    sources: Sources | None = field(default=None, compare=False, repr=False)  # None: a program of this process
    is_library: bool = field(default=False, compare=False, repr=False)

    @property
    def source(self) -> str | None:
        if self.file is None:
            return None
        text = self.sources.line(self.file, self.line) if self.sources else linecache.getline(self.file, self.line)
        return text.strip() or None

    def __str__(self) -> str:
        if not self.file:
            return f"{self.function}:{self.line}"
        return f"{self.file.removeprefix(os.getcwd() + os.sep)}:{self.line} in {self.function}"

    def as_json(self) -> dict[str, Any]:
        return {"file": self.file, "line": self.line, "function": self.function, "source": self.source}


@dataclass
class NodeOrigin:
    """A node and where it came from."""

    name: str  # its own, or that of its first output
    op: str
    inputs: list[str]
    outputs: list[str]
    place: Frame | None  # the user's line; None: the model does not say
    traces: list[list[Frame]]  # innermost first, with libraries; several for merged nodes, the primary one first
    lines: list[tuple[Frame, str]]  # every line it belongs to and how (own, fused, within, through), closest first
    module: str | None  # dotted path; None: the model does not say
    parents: tuple[str, ...] = ()  # names of the nodes whose bodies it is in, outermost first
    captures: set[str] = field(default_factory=set)  # values its bodies read from outside

    @property
    def trace(self) -> list[Frame]:
        return self.traces[0] if self.traces else []

    @property
    def users_trace(self) -> list[Frame]:
        """The frames of the user's own files, innermost first; at least the place, if it is known."""
        own = [frame for frame in self.trace if not frame.is_library]
        return own or ([self.place] if self.place else [])

    @property
    def own_lines(self) -> list[Frame]:
        """The lines whose work the node does: its own line, and those that were fused into it."""
        return [frame for frame, relation in self.lines if relation in ("own", "fused")]

    def as_json(self) -> dict[str, Any]:
        return {
            "node": self.name,
            "op_type": self.op,
            "module": self.module,
            "inside": list(self.parents),
            "place": self.place.as_json() if self.place else None,
            "lines": [{**frame.as_json(), "relation": relation} for frame, relation in self.lines],
            "trace": [frame.as_json() for frame in self.users_trace],
        }


@dataclass
class ModelOrigins:
    path: str
    nodes: list[NodeOrigin]  # in order; those of bodies come after the node that holds them
    inputs: list[str]
    outputs: list[str]
    initializers: list[str]
    functions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.by_name = {node.name: node for node in reversed(self.nodes)}
        self.producers = {value: node for node in reversed(self.nodes) for value in node.outputs if value}

    def without_inlining(self, text: str) -> str:
        """The text with the names of the model: ONNX Runtime replaces a call by the function's body, and puts the
        function's name before the names in it. That prefix is replaced by blanks, so that all else keeps its place."""
        if not self.functions or "_inlfunc_" not in text:
            return text
        names = "|".join(re.escape(name) for name in sorted(self.functions, key=len, reverse=True))
        return re.sub(rf"_inlfunc_(?:{names})_(?:token_\d+_)?", lambda match: " " * len(match[0]), text)

    @property
    def has_places(self) -> bool:
        return any(node.place for node in self.nodes)

    def readers(self, value: str) -> list[NodeOrigin]:
        return [node for node in self.nodes if value in node.inputs]


def origins_of(content: bytes) -> ModelOrigins:
    """The origins of a model that is not a file."""
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        file.write(content)
        file.flush()
        return read_origins(file.name)


def read_origins(
    path: str | os.PathLike[str],
    sources: Sources | None = None,
    original: str | os.PathLike[str] | None = None,
    sidecar: str | os.PathLike[str] | None = None,
) -> ModelOrigins:
    """``sources`` says which source files may be read; by default those in the working folder. ``original`` is the
    model from which a tool made this one, and ``sidecar`` a file; either says where the nodes came from."""
    path = os.fspath(path)
    sources = sources or Sources()
    named = {"--original": original, "--sidecar": sidecar}
    grafted = [word for option, file in named.items() if file is not None for word in (option, os.fspath(file))]
    document = _inspected(path, *grafted, *sources.options)
    sources.hold(document["metadata"])
    sources.changed = document["sources_changed"]
    graph = document["graph"]
    index = _Index(document, sources)
    nodes = list(_graph_nodes(graph, (), index))
    initializers = list(_initializers(graph))
    for function in document["functions"]:
        nodes += _graph_nodes(function["body"], (function["name"],), index)
        initializers += _initializers(function["body"])
    names = [[value["name"] for value in graph[key]] for key in ("inputs", "outputs")]
    return ModelOrigins(path, nodes, *names, initializers, [function["name"] for function in document["functions"]])


def named_files(path: str | os.PathLike[str]) -> list[str]:
    """The source files that a model names."""
    names = (frame["file"] for frame in _inspected(os.fspath(path))["frames"])
    return list(dict.fromkeys(name for name in names if name))


def asked_nodes(path: str | os.PathLike[str], *question: str) -> set[str]:
    """The names of the nodes that ``--line`` and ``--module`` select with these values."""
    return {_node_name(node) for node in _inspected(os.fspath(path), *question, nothing_is_fine=True)["nodes"]}


def _inspected(path: str, *options: str, nothing_is_fine: bool = False) -> dict[str, Any]:
    code, output, errors = _core.tool_output(["jax2onnx", "inspect", "--json", *options, "--", path])
    if code != 0 and not (nothing_is_fine and output):
        raise ModelError(errors.decode(errors="replace").strip().removeprefix("j2o: "))
    return json.loads(output.decode(errors="replace"))


class _Index:
    """The rows of frames and origins that the core has found; every node refers to one of the origins."""

    def __init__(self, document: dict[str, Any], sources: Sources) -> None:
        rows = document["frames"]
        self._frames = [Frame(row["file"], row["line"], row["function"], sources, row["library"]) for row in rows]
        self._origins = document["origins"]
        sources.add(row["file"] for row in rows)

    def _of(self, row: int | None) -> Frame | None:
        return None if row is None else self._frames[row]

    def origin(self, row: int | None) -> tuple[Frame | None, list[list[Frame]], list[tuple[Frame, str]]]:
        """The place, the traces, the lines."""
        if row is None:
            return None, [], []
        found = self._origins[row]
        traces = [[self._frames[frame] for frame in trace] for trace in found["traces"]]
        return self._of(found["place"]), traces, [(self._frames[frame], how) for frame, how in found["lines"]]


def _bodies(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [item["value"] for item in node["attributes"] if item["kind"] == "graph" and item.get("value")]


def _initializers(graph: dict[str, Any]) -> Iterator[str]:
    yield from (value["name"] for value in graph["initializers"])
    for node in graph["nodes"]:
        for body in _bodies(node):
            yield from _initializers(body)


def _node_name(node: dict[str, Any]) -> str:
    return node["name"] or next((value["name"] for value in node["outputs"] if value), "")


def _graph_nodes(graph: dict[str, Any], parents: tuple[str, ...], index: _Index) -> Iterator[NodeOrigin]:
    for node in graph["nodes"]:
        outputs = [value["name"] if value else "" for value in node["outputs"]]
        name = _node_name(node)
        inputs = [value or "" for value in node["inputs"]]
        place, traces, lines = index.origin(node["origin"])
        origin = NodeOrigin(name, node["op_type"], inputs, outputs, place, traces, lines, node["module"], parents)
        yield origin
        for body in _bodies(node):
            inner = list(_graph_nodes(body, (*parents, name), index))
            made = {value["name"] for value in body["inputs"]} | {out for child in inner for out in child.outputs}
            read = {value for child in inner for value in (*child.inputs, *child.captures)}
            read |= {value["name"] for value in body["outputs"]}
            origin.captures |= read - made - {""}
            yield from inner
