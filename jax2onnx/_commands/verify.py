"""``jax2onnx verify``: runs a function in JAX and its model in ONNX Runtime, and finds the first line that differs."""

from __future__ import annotations

import argparse
import inspect
import sys
from typing import Any

from jax2onnx._commands.command import (
    FAILED,
    OK,
    Failure,
    Output,
    add_original,
    command_parser,
    model_origins,
    run_command,
)
from jax2onnx._commands.explain import print_trace
from jax2onnx._commands.target import parse_target
from jax2onnx._compare.feeds import model_feeds, runtime
from jax2onnx._core import shown
from jax2onnx._door.origins import NO_ORIGINS
from jax2onnx._door.progress import progress_on, stage

_EPILOG = """\
The function is given as for jax2onnx export. JAX runs it equation by equation and ONNX Runtime runs the model node by
node, on the same inputs. The function is also exported again: if a node of the file gives a different result than in
the fresh export, either the file or the function has changed.

examples:
  jax2onnx verify model.py:fn fn.onnx
  jax2onnx verify mypackage.layers:mlp mlp.onnx --inputs batch.npz --rtol 1e-3

exit codes: 0 they agree, 1 they differ or the model cannot be read, 2 the command line is wrong
"""


def run(arguments: list[str]) -> int:
    parser = command_parser("verify", "Finds the first line where a model and its JAX function differ.", _EPILOG)
    parser.add_argument("target", metavar="pkg.module:fn", help="the function or model that was exported")
    parser.add_argument("model", metavar="MODEL.onnx")
    add_original(parser)
    parser.add_argument(
        "--inputs", metavar="FILE.npz", help="arrays with the names of the model's inputs, or in their order"
    )
    parser.add_argument("--rtol", type=float, default=1e-4, help="relative tolerance (default: 1e-4)")
    parser.add_argument("--atol", type=float, default=1e-5, help="absolute tolerance (default: 1e-5)")
    parser.add_argument(
        "--x64", action="store_true", help="run JAX with 64-bit types, if the model was exported that way"
    )
    parser.add_argument(
        "--memory", metavar="MiB", type=int, help="limit the memory for the values of the graph (slower)"
    )
    parser.add_argument("--jax-only", action="store_true", help="compare only with JAX, without a fresh export")
    return run_command(parser, arguments, _work)


def _work(options: argparse.Namespace, output: Output) -> int:
    target = parse_target(options.target)
    origins = model_origins(options)
    with progress_on(sys.stderr):
        stage(f"importing {target.module}")
        import onnx

        from jax2onnx._compare.difference import Tolerance
        from jax2onnx._compare.verifier import Verifier, report_lines

        fn = target.load()
        model = onnx.load(options.model)
        values = _inputs(model)
        feeds = model_feeds(values, options.inputs, keep_complex=True)
        keywords = _keyword_only(fn) & feeds.keys()
        wide = any(array.dtype.name in ("float64", "int64", "uint64", "complex128") for array in feeds.values())
        verdict = Verifier(
            fn,
            [array for name, array in feeds.items() if name not in keywords],
            {name: array for name, array in feeds.items() if name in keywords},
            rtol=options.rtol,
            atol=options.atol,
            x64=options.x64 or wide,
            export=not options.jax_only,
            memory=None if options.memory is None else options.memory << 20,
        ).check(model, origins)
    if output.as_json:
        output.document({"file": options.model, **verdict.as_json()})
        return OK if verdict.agrees else FAILED
    print(f"{shown(options.model)}: {output.paint('good' if verdict.agrees else 'bad', verdict.message)}")
    if verdict.node is not None:
        print_trace(output, verdict.node, verdict.place)
    for line in report_lines(verdict, Tolerance(options.rtol, options.atol)):
        print(f"  {shown(line)}")
    if verdict.node is not None and verdict.place is None:
        raise Failure(f"{options.model}: {NO_ORIGINS}")
    return OK if verdict.agrees else FAILED


class _Input:
    """An input in the form of ONNX Runtime's sessions, for a model that may not load in a session."""

    def __init__(self, value: Any) -> None:
        import onnx

        kind = value.type.tensor_type
        self.name = value.name
        self.shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in kind.shape.dim]
        self.type = f"tensor({onnx.TensorProto.DataType.Name(kind.elem_type).lower()})"


def _inputs(model: Any) -> list[_Input]:
    runtime()
    constants = {tensor.name for tensor in model.graph.initializer}
    return [_Input(value) for value in model.graph.input if value.name not in constants]


def _keyword_only(fn: Any) -> set[str]:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return set()
    return {item.name for item in parameters if item.kind is inspect.Parameter.KEYWORD_ONLY}
