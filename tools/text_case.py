"""Prints a case of a text test: what JAX makes of a function, as program text without traces.

usage: text_case.py WHAT-IT-SHOWS FUNCTION INPUT... [--pass NAME]... [--opset NUMBER]

FUNCTION is a Python expression (jax, jnp, lax and np are there), each INPUT a type such as f32[2,B]. The case goes into
a file of tests/lower, and ``make test-text ARGS=--write`` writes what is expected below it: read that. With --pass, the
case is a graph for tests/passes: the graph as it was when that pass changed it first.

    tools/text_case.py "cumsum along an axis" "lambda x: jnp.cumsum(x, axis=1)" "f32[2,3]" >> tests/lower/reduce.txt
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402

from jax2onnx import to_onnx  # noqa: E402
from jax2onnx._commands.target import parse_input  # noqa: E402
from jax2onnx._door.inputs import NamedShape  # noqa: E402

_TRACE = re.compile(r' @ "[^\n]*$', re.MULTILINE)
_HEAD = re.compile(r"\A<.*?\n>\n", re.DOTALL)
_COMMENT = re.compile(r"^ *#.*\n", re.MULTILINE)


def program_text(fn: Callable[..., Any], inputs: list[str], **options: Any) -> str:
    """The program that JAX traces, without where its lines came from."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.txt")
        try:
            to_onnx(fn, _specs(inputs), record_primitive_calls_file=path, **options)
        except Exception:  # what cannot be lowered is a case as well
            if not os.path.exists(path):
                raise
        text = pathlib.Path(path).read_text(encoding="utf-8")
    lines = [line for line in _TRACE.sub("", text).splitlines() if not line.startswith(("root", "entry"))]
    return "\n".join(lines) + "\n"


def graphs_before_passes(fn: Callable[..., Any], inputs: list[str], **options: Any) -> list[tuple[str, str]]:
    """Each pass that changed something, in order, with the graph as it was before."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["JAX2ONNX_DUMP_PASSES"] = folder
        try:
            to_onnx(fn, _specs(inputs), **options)
        finally:
            del os.environ["JAX2ONNX_DUMP_PASSES"]
        dumps = sorted(pathlib.Path(folder).glob("*.onnx.txt"))
        texts = [_COMMENT.sub("", _HEAD.sub("", path.read_text(encoding="utf-8"))) for path in dumps]
    names = [path.name.split("_", 1)[1].removesuffix(".onnx.txt") for path in dumps]
    return list(zip(names[1:], texts, strict=False))


def _specs(inputs: list[str]) -> list[Any]:
    parsed = [parse_input(text) for text in inputs]
    return [NamedShape(shape, dtype) for _, shape, dtype in parsed]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("function")
    parser.add_argument("inputs", nargs="*")
    parser.add_argument("--pass", dest="passes", action="append", default=[])
    parser.add_argument("--opset", type=int, help="of the graph that passes see; default: as to_onnx has it")
    options = parser.parse_args()
    names = {"jax": jax, "jnp": jax.numpy, "lax": jax.lax, "np": __import__("numpy")}
    fn = eval(options.function, names)  # the user's own command line
    if not options.passes:
        print(f"\n=== {options.name}\n{program_text(fn, options.inputs)}---")
        return 0
    more = {"opset": options.opset} if options.opset else {}
    for name, text in graphs_before_passes(fn, options.inputs, **more):
        if name in options.passes:
            print(f"\n=== {options.name}\npass: {name}\n{text.strip()}\n---")
            options.passes.remove(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
