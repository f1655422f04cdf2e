"""``jax2onnx explain``: from what a runtime printed to the user's lines.

Runtimes speak of nodes and values by name. Every name of the model is looked for in the message, longest first, so
that ``Add_1`` is not found inside ``Add_12``; what a runtime adds to a name (``Add_1/fused``, ``node_of_add_1``) does
no harm. Where no name is found, a node's number or operator may be.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from typing import Any

from jax2onnx._command import OK, Failure, Output, command_parser, run_command
from jax2onnx._origins import NO_ORIGINS, Frame, ModelOrigins, NodeOrigin, read_origins

MOST_SHOWN = 8

_EPILOG = """\
The message is what ONNX Runtime, onnxruntime-web, TensorRT, OpenVINO or onnx.checker printed, with whatever stands
around it.

examples:
  jax2onnx explain model.onnx < error.txt
  python serve.py 2>&1 | jax2onnx explain model.onnx
  jax2onnx explain model.onnx --run

exit codes: 0 something was found (with --run: or nothing is wrong), 1 the message names nothing of this model, the
model cannot be read or does not say where its nodes came from, 2 the command line is wrong
"""

# A name that could be an ordinary word counts only where the message marks it as a name.
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

    text: str  # what stands in the message
    kind: str  # "node", "value", "input", "number", "operator"
    at: int  # where it stands
    node: NodeOrigin


def find_nodes(message: str, model: ModelOrigins) -> list[Found]:
    """The nodes that a message names: those named as nodes first, inner before outer, in the order of the message."""
    message = model.without_inlining(message)
    found = _by_name(message, model) or _by_number(message, model) or _by_operator(message, model)
    # A node with a body is named on the way to the node inside that failed.
    holders = {parent for item in found if item.kind == "node" for parent in item.node.parents}
    rank = {"node": 0, "number": 0, "value": 2, "input": 3, "operator": 4}
    found.sort(key=lambda item: (rank[item.kind] + (item.node.name in holders), item.at))
    if any(item.kind in ("node", "number") for item in found):
        found = [item for item in found if item.kind != "input"]  # its name may stand anywhere, as in the user's code
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
    """TensorRT counts the nodes of the graph, bodies apart."""
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


def try_model(path: str, inputs: str | None) -> str | None:
    """What the checker or ONNX Runtime says against the model; None: nothing."""
    import onnx

    from jax2onnx._compare import run_session
    from jax2onnx._feeds import model_feeds, runtime

    onnxruntime = runtime()
    try:
        onnx.checker.check_model(path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return f"onnx.checker: {error}"
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4  # the exception says it again
    try:
        session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
        feeds = model_feeds(session.get_inputs(), inputs)
        run_session(session, feeds)
    except Failure:
        raise
    except Exception as error:  # ONNX Runtime's exceptions have no common class
        return f"ONNX Runtime: {error}"
    return None


def _read_message(options: argparse.Namespace) -> str:
    if options.message is None and sys.stdin.isatty():
        print("paste the message, then press Ctrl-D", file=sys.stderr)
    try:
        if options.message is None:
            return sys.stdin.buffer.read().decode(errors="replace")
        with open(options.message, errors="replace") as stream:
            return stream.read()
    except OSError as error:
        raise Failure(f"{options.message}: {error.strerror}") from error


def _work(options: argparse.Namespace, output: Output) -> int:
    model = read_origins(options.model)
    if options.run:
        message = try_model(options.model, options.inputs)
        if message is None:
            if output.as_json:
                output.document({"file": options.model, "message": None, "found": []})
            else:
                print(f"{options.model}: onnx.checker and ONNX Runtime find nothing wrong")
            return OK
    else:
        message = _read_message(options)
    if not message.strip():
        raise Failure("the message is empty: give on standard input what the runtime printed, or use --run")
    found = find_nodes(message, model)
    if output.as_json:
        output.document(_document(options.model, message, found))
    if not found:
        raise Failure(
            f"the message names no node and no value of {options.model}. Is it about this model? Some runtimes name "
            "nodes only with verbose logging."
        )
    if not any(item.node.place for item in found) and not model.has_places:
        named = ", ".join(f"{item.node.name} ({item.node.op})" for item in found[:MOST_SHOWN])
        raise Failure(f"the message is about {named}, but in {options.model} {NO_ORIGINS}")
    if not output.as_json:
        _print(output, message if options.run else None, found)
    return OK


def _document(path: str, message: str, found: list[Found]) -> dict[str, Any]:
    items = [{"text": item.text, "kind": item.kind, **item.node.as_json()} for item in found]
    return {"file": path, "message": message, "found": items}


_KINDS = {
    "node": "{op}",
    "value": "{op}, which makes {text}",
    "input": "{op}, which reads {text}",
    "number": "{op}: {text}",
    "operator": "{op}, one of this operator; the message gives no name",
}


def _print(output: Output, message: str | None, found: list[Found]) -> None:
    if message is not None:
        print(f"{message.strip()}\n")
    for index, item in enumerate(found[:MOST_SHOWN]):
        if index:
            print()
        node = item.node
        print(f"{output.paint('name', node.name)}: {_KINDS[item.kind].format(op=node.op, text=item.text)}")
        print_trace(output, node)
    if len(found) > MOST_SHOWN:
        print(f"\nand {len(found) - MOST_SHOWN} more nodes (--json lists all)")


def print_trace(output: Output, node: NodeOrigin, place: Frame | None = None) -> None:
    """The user's line with its text, then the user's lines that called it. ``place``, where more than the model is
    known."""
    place = place or node.place
    if place is None:
        print("  the model does not say where this node came from")
        return
    callers = node.users_trace
    if place in callers:
        callers = callers[callers.index(place) + 1 :]
    for word, frame in [("at", place), *(("called from", frame) for frame in callers)]:
        print(f"  {word} {output.paint('place', str(frame))}")
        if frame.source:
            print(f"      {frame.source}")


def run(arguments: list[str]) -> int:
    parser = command_parser("explain", "Finds in an error message of a runtime the user's lines it is about.", _EPILOG)
    parser.add_argument("model", metavar="MODEL.onnx")
    parser.add_argument("message", metavar="MESSAGE.txt", nargs="?", help="the message; standard input by default")
    parser.add_argument("--run", action="store_true", help="get the message by checking and running the model here")
    parser.add_argument("--inputs", metavar="FILE.npz", help="what --run runs the model on; random numbers by default")
    return run_command(parser, arguments, _work)
