"""What each reader says a line became, in one form: a set of (kind of item, name, relation)."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import re
from typing import Any

import jax
import onnx
from line_programs import LineProgram
from onnx import TensorProto, helper

from jax2onnx import _core, to_onnx
from jax2onnx._door.origins import read_origins

SELF = ("own", "fused")
Answer = set[tuple[str, str, str]]


def _tool(*words: Any, codes: tuple[int, ...] = (0,)) -> Any:
    code, output, errors = _core.tool_output(["j2o", *map(str, words)])
    assert code in codes, errors.decode()
    return output.decode()


class Model:
    """An exported program, asked line by line. Each reader is run once, where it answers for all lines at once."""

    def __init__(self, path: pathlib.Path, file: str) -> None:
        self.path, self.file = path, file
        self.inspected_all = json.loads(_tool("inspect", path, "--json"))
        self._inspected: dict[Any, Answer] = {}

    def inspect(self, line: int, *options: str) -> Answer:
        key = (line, options)
        if key not in self._inspected:
            words = ("inspect", self.path, "--line", f"{self.file}:{line}", "--json", *options)
            self._inspected[key] = _listed(json.loads(_tool(*words, codes=(0, 1))))
        return self._inspected[key]

    def lines(self) -> list[int]:
        """Of the program's own file, whatever became of them."""
        return sorted({row["line"] for row in self.rows_of(self.inspected_all["frames"])})

    def rows_of(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if (row["file"] or "").endswith(f"/{self.file}")]

    def lines_of(self, node: str) -> set[tuple[int, str]]:
        found = (
            (line, relation)
            for line in self.lines()
            for _, name, relation in self.inspect(line, "--inclusive")
            if name == node
        )
        return set(found)

    def disagreements(self) -> list[str]:
        found = []
        for reader in READERS:
            answer = reader(self)
            for line in self.lines():
                expected = self.inspect(line, "--inclusive")
                got = answer(line)
                if got != reader.view(expected):
                    found.append(f"{reader.__name__}, line {line}: {got} where inspect has {reader.view(expected)}")
        return found


def _listed(document: dict[str, Any]) -> Answer:
    answer = {("node", _name(item), item["relation"]) for item in document["nodes"]}
    answer |= {("initializer", item["name"], item["relation"]) for item in document["initializers"]}
    return answer | {("removed", item["reason"], item["relation"]) for item in document["removed"]}


def _name(node: dict[str, Any]) -> str:
    return node["name"] or node["outputs"][0]["name"]


# ---- the readers: each gives a function from a line to what `view` leaves of an answer ----


def _counts(answer: Answer) -> tuple[int, int, int, int]:
    nodes = [relation for kind, _, relation in answer if kind == "node"]
    constants = sum(1 for kind, _, relation in answer if kind == "initializer" and relation in SELF)
    return sum(relation in SELF for relation in nodes), nodes.count("fused"), len(nodes), constants


def blame(model: Model) -> Any:
    rows = json.loads(_tool("blame", model.path, "--json"))["lines"]
    keys = ("nodes", "fused_nodes", "inclusive_nodes", "initializers")
    found = {row["line"]: tuple(row[key] for key in keys) for row in model.rows_of(rows)}
    return lambda line: found.get(line, (0, 0, 0, 0))


blame.view = _counts


def locate(model: Model) -> Any:
    words = ("locate", model.path, "--line", f"{model.file}:1-99999", "--inclusive", "--json")
    found: dict[int, set[tuple[str, str, str]]] = {}
    for item in json.loads(_tool(*words, codes=(0, 1)))["found"]:
        kind, name = ("node", _name(item["node"])) if "node" in item else ("initializer", "")
        if "value" in item:
            name = item["value"]["name"]
        if "removed" in item:
            kind, name = "removed", item["removed"]["reason"]
        for row in model.rows_of(item["lines"]):
            found.setdefault(row["line"], set()).add((kind, name, row["relation"]))
    return lambda line: found.get(line, set())


locate.view = lambda answer: answer


def _nodes(answer: Answer) -> Answer:
    return {item for item in answer if item[0] == "node"}


def diff(model: Model) -> Any:
    """Against a model that has nothing in common with any: every node was added."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("nothing", "still_nothing")]
    graph = helper.make_graph(
        [helper.make_node("Nothing", ["nothing"], ["still_nothing"], domain="of.no.model")], "g", values[:1], values[1:]
    )
    empty = model.path.with_suffix(".empty.onnx")
    onnx.save(helper.make_model(graph), empty)
    found: dict[int, Answer] = {}
    for change in json.loads(_tool("diff", empty, model.path, "--json", codes=(1,)))["changes"]:
        for row in model.rows_of(change["lines"]) if change["kind"] == "added" else ():
            found.setdefault(row["line"], set()).add(("node", change["b"]["name"], row["relation"]))
    return lambda line: found.get(line, set())


diff.view = _nodes


def page(model: Model) -> Any:
    text = _tool("report", model.path, "-o", "-", "--source-root", model.path.parent)
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)[1])
    nodes: dict[int, list[str]] = {}
    for node in data["nodes"]:
        nodes.setdefault(node[4], []).append(data["texts"][node[2]])
    found: dict[int, Answer] = {}
    for file, number, _, own, fused, within, through, constants, _ in data["lines"]:
        if file < 0 or not data["texts"][data["files"][file][0]].endswith(f"/{model.file}"):
            continue
        answer = found.setdefault(number, set())
        for relation, traces in (("own", own), ("fused", fused), ("within", within), ("through", through)):
            answer |= {("node", name, relation) for trace in traces for name in nodes.get(trace, [])}
        answer |= {("initializer", data["texts"][name], "") for name in constants}
    return lambda line: found.get(line, set())


def _page_view(answer: Answer) -> Answer:
    constants = {("initializer", name, "") for kind, name, how in answer if kind == "initializer" and how in SELF}
    return _nodes(answer) | constants


page.view = _page_view


def origins(model: Model) -> Any:
    """What explain, verify and profile work on."""
    found: dict[int, Answer] = {}
    for node in read_origins(model.path).nodes:
        for frame, relation in node.lines:
            if frame.file and frame.file.endswith(f"/{model.file}"):
                found.setdefault(frame.line, set()).add(("node", node.name, relation))
    return lambda line: found.get(line, set())


origins.view = _nodes

READERS = [blame, locate, diff, page, origins]


def exported(program: LineProgram, folder: pathlib.Path, level: str) -> Model:
    file = f"{program.name}.py"
    source = folder / file
    source.write_text(program.source)
    spec = importlib.util.spec_from_file_location(program.name, source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    specs = [jax.ShapeDtypeStruct(shape, "float32") for shape in program.inputs]
    path = folder / f"{program.name}.onnx"
    to_onnx(module.program, specs, stacktrace_metadata=level, return_mode="file", output_path=path)
    return Model(path, file)
