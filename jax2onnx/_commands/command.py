"""What the commands written in Python have in common: options, errors, exit codes, colours."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from jax2onnx._commands.target import UsageError
from jax2onnx._core import shown
from jax2onnx._door.failure import Failure
from jax2onnx._door.origins import ModelError, ModelOrigins, Sources, read_origins

OK, FAILED, USAGE = 0, 1, 2
_COLORS = {"name": "1", "place": "36", "faint": "2", "bad": "31", "good": "32"}


class Output:
    """Where a command prints: text, with colours only on a terminal, or one JSON document. Text from a file goes
    through ``paint`` or ``shown``, so that nothing in it can control a terminal."""

    def __init__(self, options: argparse.Namespace) -> None:
        terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR")
        self._colors = options.color == "always" or (options.color == "auto" and terminal)
        self.as_json: bool = options.json

    def paint(self, kind: str, text: str) -> str:
        return f"\x1b[{_COLORS[kind]}m{shown(text)}\x1b[0m" if self._colors and text else shown(text)

    def document(self, content: Any) -> None:
        print(json.dumps(content, indent=1))


class Parser(argparse.ArgumentParser):
    """Errors repeat words of the command line, which may be file names."""

    def error(self, message: str) -> NoReturn:
        super().error(shown(message, keep_lines=True))


def command_parser(name: str, description: str, epilog: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"jax2onnx {name}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print a JSON document")
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto (the default) colours output on a terminal unless NO_COLOR is set",
    )
    parser.add_argument(
        "--source", metavar="FILE.py", action="append", default=[], help="a source file of the program; can be repeated"
    )
    parser.add_argument(
        "--source-root",
        metavar="FOLDER",
        action="append",
        default=[],
        help="a folder from which source files may be read (default: only the working directory)",
    )
    parser.add_argument("--debug", action="store_true", help="show the Python traceback of errors")
    return parser


def allowed_sources(options: argparse.Namespace) -> Sources:
    return Sources(options.source, options.source_root)


def model_origins(options: argparse.Namespace) -> ModelOrigins:
    """The origins of the model on the command line; reports source files that have changed since the export."""
    sources = allowed_sources(options)
    origins = read_origins(options.model, sources, options.original, options.sidecar)
    for name in sources.changed:
        complain(f"{name} has changed since the export; its line numbers may no longer match", OK)
    return origins


def add_original(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--original",
        metavar="MODEL.onnx",
        help="the model that this one was made from by a tool; provenance is taken from there (see j2o graft)",
    )
    parser.add_argument("--sidecar", metavar="FILE.j2o", help="the file into which j2o split moved the provenance")


def run_command(
    parser: argparse.ArgumentParser, arguments: list[str], work: Callable[[argparse.Namespace, Output], int]
) -> int:
    try:
        options = parser.parse_args(arguments)
    except SystemExit as end:  # argparse has printed the help or the error
        return OK if end.code in (None, 0) else USAGE
    try:
        return work(options, Output(options))
    except UsageError as error:
        return complain(str(error), USAGE)
    except (Failure, ModelError) as error:
        return complain(str(error), FAILED)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  nobody reads the rest of the output
        return OK
    except KeyboardInterrupt:
        return complain("interrupted", FAILED)
    except Exception as error:
        if options.debug:
            traceback.print_exc()
            return FAILED
        return complain(f"{type(error).__name__}: {error}\n--debug shows the whole traceback", FAILED)


def complain(message: str, code: int) -> int:
    print(f"jax2onnx: {shown(message, keep_lines=True)}", file=sys.stderr)
    return code
