"""``jax2onnx explain``: from a runtime's message to the user's lines."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from typing import Any

from jax2onnx._commands.command import (
    OK,
    Failure,
    Output,
    add_original,
    allowed_sources,
    command_parser,
    model_origins,
    run_command,
)
from jax2onnx._compare.messages import Found, find_nodes
from jax2onnx._core import shown
from jax2onnx._door.origins import NO_ORIGINS, Frame, ModelError, NodeOrigin, read_origins

MOST_SHOWN = 8

_EPILOG = """\
The message is what ONNX Runtime, onnxruntime-web, TensorRT, OpenVINO or onnx.checker printed; surrounding text does
not matter.

examples:
  jax2onnx explain model.onnx < error.txt
  python serve.py 2>&1 | jax2onnx explain model.onnx
  jax2onnx explain model.onnx --run

exit codes: 0 something was found (with --run, also if nothing is wrong), 1 the message mentions nothing in this model,
or the model cannot be read or has no provenance, 2 the command line is wrong
"""


def try_model(path: str, inputs: str | None) -> str | None:
    """The error of the checker or ONNX Runtime about the model, or None."""
    import onnx

    from jax2onnx._compare.feeds import model_feeds, runtime
    from jax2onnx._compare.sessions import run_session

    onnxruntime = runtime()
    try:
        onnx.checker.check_model(path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return f"onnx.checker: {error}"
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4  # the exception repeats it
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
    model = model_origins(options)
    if options.run:
        message = try_model(options.model, options.inputs)
        if message is None:
            if output.as_json:
                output.document({"file": options.model, "message": None, "found": []})
            else:
                print(f"{shown(options.model)}: onnx.checker and ONNX Runtime report no errors")
            return OK
    else:
        message = _read_message(options)
    if not message.strip():
        raise Failure("the message is empty; pass the output of the runtime on standard input, or use --run")
    found = find_nodes(message, model)
    if not any(item.kind in ("node", "value", "number") for item in found):
        found = _kernels(message, options) or found
    if output.as_json:
        output.document(_document(options.model, message, found))
    if not found:
        raise Failure(
            f"the message mentions no node or value of {options.model}. Is it about this model? Some runtimes name "
            "nodes only with verbose logging."
        )
    if not any(item.node.place for item in found) and not model.has_places:
        named = ", ".join(f"{item.node.name} ({item.node.op})" for item in found[:MOST_SHOWN])
        raise Failure(f"the message is about {named}, but in {options.model} {NO_ORIGINS}")
    if not output.as_json:
        _print(output, message if options.run else None, found)
    return OK


def _kernels(message: str, options: argparse.Namespace) -> list[Found]:
    """The nodes named in the message that ONNX Runtime makes when it loads the model: fused kernels have names of its
    own. They are looked up in the model that it saves, in the same way as in ``j2o graft``."""
    with tempfile.TemporaryDirectory() as folder:
        optimised = optimised_model(options.model, folder)
        if optimised is None:
            return []
        try:
            return find_nodes(message, read_origins(optimised, allowed_sources(options), options.model))
        except ModelError:  # the model itself has no provenance
            return []


def optimised_model(path: str, folder: str) -> str | None:
    """The model after ONNX Runtime's optimisations, if it is installed and can load the model."""
    try:
        import onnxruntime
    except ImportError:
        return None
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.optimized_model_filepath = os.path.join(folder, "optimised.onnx")
    try:
        onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    except Exception:  # its exceptions have no common class; a rejected model has no kernels
        return None
    return settings.optimized_model_filepath


def _document(path: str, message: str, found: list[Found]) -> dict[str, Any]:
    items = [{"text": item.text, "kind": item.kind, **item.node.as_json()} for item in found]
    return {"file": path, "message": message, "found": items}


_KINDS = {
    "node": "{op}",
    "value": "{op}, which produces {text}",
    "input": "{op}, which reads {text}",
    "number": "{op}: {text}",
    "operator": "{op}, one of several with this operator; the message gives no name",
}


def _print(output: Output, message: str | None, found: list[Found]) -> None:
    if message is not None:
        print(f"{shown(message.strip(), keep_lines=True)}\n")
    for index, item in enumerate(found[:MOST_SHOWN]):
        if index:
            print()
        node = item.node
        what = _KINDS[item.kind].format(op=node.op, text=item.text)
        print(f"{output.paint('name', node.name)}: {shown(what)}")
        print_trace(output, node)
    if len(found) > MOST_SHOWN:
        print(f"\nand {len(found) - MOST_SHOWN} more nodes (--json lists all)")


def print_trace(output: Output, node: NodeOrigin, place: Frame | None = None) -> None:
    """Print the user's line with its text, then the user's lines that called it. Pass ``place`` if more is known than
    the model says."""
    place = place or node.place
    if place is None:
        print("  this node has no provenance")
        return
    fused = [frame for frame in node.own_lines if frame != place]
    callers = node.users_trace
    if place in callers:
        callers = callers[callers.index(place) + 1 :]
    others = [("with", frame) for frame in fused]
    for word, frame in [("at", place), *others, *(("called from", frame) for frame in callers if frame not in fused)]:
        print(f"  {word} {output.paint('place', str(frame))}")
        if frame.source:
            print(f"      {shown(frame.source)}")


def run(arguments: list[str]) -> int:
    parser = command_parser("explain", "Finds the source lines behind an error message of a runtime.", _EPILOG)
    parser.add_argument("model", metavar="MODEL.onnx")
    add_original(parser)
    parser.add_argument("message", metavar="MESSAGE.txt", nargs="?", help="the message (default: standard input)")
    parser.add_argument("--run", action="store_true", help="produce the message by checking and running the model")
    parser.add_argument("--inputs", metavar="FILE.npz", help="the inputs for --run (default: random numbers)")
    return run_command(parser, arguments, _work)
