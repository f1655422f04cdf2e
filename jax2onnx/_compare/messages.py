"""Which nodes of a model a runtime's message names.

Runtimes refer to nodes and values by name. The message is searched for every name of the model, longest first, so that
``Add_1`` is not found inside ``Add_12``; additions of the runtime to a name (``Add_1/fused``, ``node_of_add_1``) do no
harm. If no name is found, the message may contain a node's number or operator.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from jax2onnx._door.origins import ModelOrigins, NodeOrigin

# A name that could be an ordinary word counts only if the message marks it as a name.
_ORDINARY = re.compile(r"[A-Za-z]{1,}|\d+|.{1,2}")
_MARKED = r"(?:['\"`(\[{{]|\b(?:[Nn]ame|node|input|output|value|tensor):? ?){}(?:['\"`)\]}}.,;:]|\s|$)"
_NODE_NUMBER = re.compile(r"(?:[Nn]ode number|[Nn]ode index|node #)\s*:?\s*(\d+)(?: \[(\w+))?")
_OPERATOR = re.compile(
    r"(?:[Oo]p_?[Tt]ype:? ?|Op \(|operator |for |node of type |Non-zero status code returned while "
    r"running |opset\d*::)['\"`]?([A-Z]\w+)"
)


@dataclass
class Found:
    """A node that the message is about."""

    text: str  # the text in the message
    kind: str  # "node", "value", "input", "number", "operator"
    at: int  # its position in the message
    node: NodeOrigin


def find_nodes(message: str, model: ModelOrigins) -> list[Found]:
    """The nodes that a message names: first those named as nodes, inner before outer, in the order of the message."""
    message = model.without_inlining(message)
    found = _by_name(message, model) or _by_number(message, model) or _by_operator(message, model)
    # A message about a node in a body also names the node that holds the body.
    holders = {parent for item in found if item.kind == "node" for parent in item.node.parents}
    rank = {"node": 0, "number": 0, "value": 2, "input": 3, "operator": 4}
    found.sort(key=lambda item: (rank[item.kind] + (item.node.name in holders), item.at))
    if any(item.kind in ("node", "number") for item in found):
        found = [item for item in found if item.kind != "input"]  # its name may occur anywhere, as in user code
    chosen: dict[int, Found] = {}
    for item in found:
        chosen.setdefault(id(item.node), item)
    return list(chosen.values())


def _occurrences(message: str, name: str) -> list[int]:
    word = re.escape(name)
    if _ORDINARY.fullmatch(name):
        pattern = _MARKED.format(f"(?P<name>{word})")
        return [match.start("name") for match in re.finditer(pattern, message)]
    return [match.start() for match in re.finditer(rf"(?:(?<![\w.])|(?<=node_of_)){word}(?!\w)", message)]


def _by_name(message: str, model: ModelOrigins) -> list[Found]:
    nodes = {node.name: node for node in reversed(model.nodes) if node.name}
    values = {name: "value" for name in model.producers}
    values |= {name: "input" for name in (*model.inputs, *model.initializers)}
    names = sorted((name for name in {*nodes, *values} if name in message), key=lambda name: (-len(name), name))
    taken: list[tuple[int, int]] = []
    found = []
    for name in names:
        for start in _occurrences(message, name):
            end = start + len(name)
            if any(begin < end and start < stop for begin, stop in taken):
                continue
            taken.append((start, end))
            found += _meant(name, start, nodes, values, model)
    return found


def _meant(
    name: str, at: int, nodes: dict[str, NodeOrigin], values: dict[str, str], model: ModelOrigins
) -> list[Found]:
    if name in nodes:
        kind = "value" if name in model.producers and nodes[name].outputs[0] == name else "node"
        return [Found(name, kind, at, nodes[name])]
    if values[name] == "value":
        return [Found(name, "value", at, model.producers[name])]
    return [Found(name, "input", at, node) for node in model.readers(name)]


def _by_number(message: str, model: ModelOrigins) -> list[Found]:
    """TensorRT numbers the nodes of the graph, not counting those of bodies."""
    top = [node for node in model.nodes if not node.parents]
    found = []
    for match in _NODE_NUMBER.finditer(message):
        number, operator = int(match[1]), match[2]
        if number < len(top) and (operator is None or top[number].op == operator):
            found.append(Found(match[0], "number", match.start(), top[number]))
    return found


def _by_operator(message: str, model: ModelOrigins) -> list[Found]:
    found = []
    for match in _OPERATOR.finditer(message):
        same = [node for node in model.nodes if node.op == match[1]]
        found += [Found(match[1], "operator", match.start(1), node) for node in same]
    return found
