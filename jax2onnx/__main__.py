"""The command ``jax2onnx``. ``export`` is here; commands that read models on disk are in the C core, and commands that
need JAX or ONNX Runtime are in modules of their own."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
import time
import traceback
from typing import Any

from jax2onnx import _core
from jax2onnx._commands.command import FAILED, OK, USAGE, Parser, command_parser, complain
from jax2onnx._commands.target import Target, UsageError, parse_input, parse_target
from jax2onnx._core import VERSION
from jax2onnx._door.installation import damage
from jax2onnx._door.progress import opsets_told, progress_on, stage
from jax2onnx._door.settings import command_line_level, command_line_passes, command_line_sync

_HELP = """\
jax2onnx converts JAX functions and models to ONNX, and inspects ONNX models.

usage: jax2onnx export pkg.module:fn --input 'f32[2]' -o fn.onnx
       jax2onnx inspect fn.onnx
       jax2onnx COMMAND --help
       jax2onnx help [COMMAND] | completion SHELL | --version

  export    trace a function or model with JAX and write it as ONNX
  explain   find the source lines behind an error message of ONNX Runtime, TensorRT, OpenVINO or onnx.checker
  verify    run a function in JAX and its model in ONNX Runtime, and report the first line where they differ
  profile   measure the time in ONNX Runtime by line, function and operator; write a flame graph or a trace

All commands of j2o, the program that works without Python, are available too:

"""

_EXAMPLES = """\
what to export:
  pkg.module:fn               a function in a module (the current directory is searched too)
  path/to/file.py:fn          a function in a file
  module:model.encode         a method of an object in the module
  module:make_model()         the result of a call without arguments

inputs, one --input per argument in order: [NAME:]TYPE[DIMENSIONS]
  f32[2]                      a float32 array with two elements
  x:i32[B,128]                named x; B is a size that is only known when the model runs
  bool[]                      a boolean scalar
  types: bool, i8 i16 i32 i64, u8 u16 u32 u64, f16 bf16 f32 f64 (64-bit types need --x64)

examples:
  jax2onnx export mypackage.layers:mlp --input 'f32[B,784]' -o mlp.onnx
  jax2onnx export 'model.py:make_model()' --input 'image:f32[1,224,224,3]' --nchw-input image -o model.onnx
  jax2onnx export model.py:fn --input 'f32[2]' --stacktrace=full -o fn.onnx && jax2onnx inspect fn.onnx --full

exit codes: 0 done, 1 the export failed (an existing file is left unchanged), 2 the command line is wrong
"""


_COMMANDS = ("explain", "verify", "profile")
_LEVELS = ("off", "minimal", "full", "compact")


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    command = arguments[0] if arguments else ""
    damaged = damage()
    if damaged:
        return complain(damaged, FAILED)
    if command == "export":
        return _export(arguments[1:])
    if command in _COMMANDS:
        return importlib.import_module(f"jax2onnx._commands.{command}").run(arguments[1:])
    if command in ("--version", "-V"):
        print(f"jax2onnx {VERSION}")
        return OK
    if not command:
        return complain("no command given. Try jax2onnx --help.", USAGE)
    if command == "help" and arguments[1:2] and arguments[1] in ("export", *_COMMANDS):
        return main([arguments[1], "--help"])
    if command in ("--help", "-h") or arguments == ["help"]:
        print(_HELP, end="")
    elif command == "completion":
        arguments = [*arguments[:2], "jax2onnx", *_completed_options()] if len(arguments) == 2 else arguments
    elif meant := _meant(command):
        return complain(f"unknown command {command}; did you mean {meant}? Try jax2onnx --help.", USAGE)
    sys.stdout.flush()
    return _core.tool(["jax2onnx", *arguments])


def _meant(command: str) -> str | None:
    """The Python command that was probably meant; j2o suggests its own."""
    if command.startswith("-") or command == "man" or _core.tool_output(["j2o", "help", command])[0] == OK:
        return None
    return next(iter(difflib.get_close_matches(command, ("export", *_COMMANDS), n=1, cutoff=0.75)), None)


def _completed_options() -> list[str]:
    """The name and the options of each Python command."""
    parsers = {"export": _parser(), **{name: command_parser(name, "", "") for name in _COMMANDS}}
    return [" ".join([name, *sorted(parser._option_string_actions)]) for name, parser in parsers.items()]


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="jax2onnx export",
        description="Traces a JAX function or model and writes it as an ONNX model.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("target", metavar="pkg.module:fn", help="the function or model to export")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write")
    parser.add_argument("-i", "--input", metavar="SPEC", action="append", default=[], help="a positional argument")
    parser.add_argument("--param", metavar="NAME:TYPE[…]", action="append", default=[], help="a keyword argument")
    parser.add_argument("--output-name", metavar="NAME", action="append", help="a name for each output, in order")
    parser.add_argument("--name", help="the name of the graph (default: the name of the function)")
    parser.add_argument(
        "--opset",
        type=_opset_number,
        default="auto",
        metavar="N",
        help="the ONNX operator set (default: auto, the lowest that fits)",
    )
    parser.add_argument(
        "--target", dest="made_for", metavar="NAME", help="the runtime the model is made for; j2o targets has the names"
    )
    parser.add_argument("--x64", action="store_true", help="trace with 64-bit types")
    parser.add_argument(
        "--nchw-input", metavar="NAME|INDEX", action="append", help="make this NHWC input NCHW in the model"
    )
    parser.add_argument(
        "--nchw-output", metavar="NAME|INDEX", action="append", help="make this NHWC output NCHW in the model"
    )
    parser.add_argument("--web", action="store_true", help="keep everything in one file")
    parser.add_argument(
        "--unroll-scans", action="store_true", help="write a scan over stacked weights as its steps, each with its own"
    )
    parser.add_argument(
        "--stacktrace",
        metavar="LEVEL",
        choices=_LEVELS,
        help="record on each node where it came from: minimal (the default if no LEVEL is given), full, compact "
        "(the same as full, but stored once), or off",
    )
    parser.add_argument(
        "--embed-source", action="store_true", help="with full or compact: also store the text of the source files"
    )
    parser.add_argument("--no-sync", action="store_true", help="do not wait for the model to reach the disk")
    parser.add_argument(
        "--paths",
        choices=("absolute", "relative"),
        help="how provenance names files: by absolute path, or relative to the root of their project",
    )
    parser.add_argument(
        "--path-prefix-map",
        metavar="OLD=NEW",
        action="append",
        help="replace OLD at the start of a path with NEW, to keep folders of this machine out of the model",
    )
    parser.add_argument("--record", metavar="FILE", help="also record everything the export was given, for j2o convert")
    parser.add_argument("--record-shapes", action="store_true", help="record only the types of weights")
    parser.add_argument("--dump-passes", metavar="FOLDER", help="write the graph as text before and after each pass")
    parser.add_argument("--disable-pass", metavar="NAME", action="append", default=[], help="skip this pass")
    parser.add_argument("--list-passes", action=_ListPasses, nargs=0, help="list the graph passes and exit")
    parser.add_argument(
        "--report",
        action="store_true",
        help="also write the j2o report page (.html) next to the model; implies --stacktrace full unless given",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="run the function in JAX and the model in ONNX Runtime afterwards, and compare the results",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print only errors, and no progress")
    parser.add_argument("--debug", action="store_true", help="show the Python traceback of errors")
    return parser


class _ListPasses(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        passes = _core.passes()
        width = max(map(len, passes))
        print("\n".join(f"{name:<{width}}  {summary}" for name, summary in passes.items()))
        parser.exit()


def _export(arguments: list[str]) -> int:
    arguments = _with_levels(arguments)
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as end:  # argparse has printed the help or the error
        return OK if end.code in (None, 0) else USAGE
    if options.report and options.stacktrace is None:
        options.stacktrace = "full"
    start = time.monotonic()
    try:
        target = parse_target(options.target)
        call = _call_arguments(options)
        if options.quiet:
            _run(target, call, options)
        else:
            with progress_on(sys.stderr), opsets_told() as opsets:
                _run(target, call, options)
    except UsageError as error:
        return complain(str(error), USAGE)
    except KeyboardInterrupt:
        return complain("interrupted", FAILED)
    except Exception as error:
        if options.debug:
            traceback.print_exc()
            return FAILED
        return complain(_described(error), FAILED)
    if not options.quiet:
        print(
            "\n".join([_core.shown(options.output), *_summary(options, opsets, time.monotonic() - start)]), flush=True
        )
    return _after_export(options)


def _summary(options: argparse.Namespace, opsets: list[str], seconds: float) -> list[str]:
    """The result: the head of j2o inspect with the reason for the opset, then the size and the time."""
    if not os.path.isfile(options.output):  # a device or a pipe cannot be read back
        return []
    _, text, _ = _core.tool_output(["j2o", "inspect", "--color=never", "--", options.output])
    size = os.path.getsize(options.output)
    lines = text.decode().split("\nnodes\n")[0].splitlines()[1:]
    if opsets:
        chosen = opsets[-1].replace(f"({os.getcwd()}{os.sep}", "(")
        lines = [
            line.replace(chosen.split(",")[0], chosen, 1) if line.startswith("  opset ") else line for line in lines
        ]
    return [*(line for line in lines if line), f"\n{size:,} bytes, {seconds:.1f} s"]


def _after_export(options: argparse.Namespace) -> int:
    """Handle --report and --verify."""
    if options.report:
        page = os.path.splitext(options.output)[0] + ".html"
        code, _, errors = _core.tool_output(["j2o", "report", "-o", page, "--", options.output])
        if code:
            return complain(errors.decode().removeprefix("j2o: ").rstrip(), FAILED)
        if not options.quiet:
            print(_core.shown(page), flush=True)
    if not options.verify:
        return OK
    from jax2onnx._commands import verify

    return verify.run([options.target, options.output, *(["--x64"] if options.x64 else [])])


def _with_levels(arguments: list[str]) -> list[str]:
    """Give --stacktrace its level: the next word if it is one, else minimal. argparse would take any next word."""
    words = []
    for index, word in enumerate(arguments):
        follows = arguments[index + 1 : index + 2]
        if index and arguments[index - 1] == "--stacktrace" and word in _LEVELS:
            continue
        level = follows[0] if follows and follows[0] in _LEVELS else "minimal"
        words.append(f"--stacktrace={level}" if word == "--stacktrace" else word)
    return words


def _opset_number(text: str) -> int | str:
    return text if text == "auto" else int(text)


def _call_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """The options as arguments of ``to_onnx``; shapes stay text until JAX is loaded."""
    inputs = [parse_input(text) for text in options.input]
    params = [parse_input(text) for text in options.param]
    for (name, _, _), text in zip(params, options.param, strict=True):
        if name is None:
            raise UsageError(f"--param {text!r} needs the argument's name: NAME:{text}")
    for _, _, dtype in () if options.x64 else (*inputs, *params):
        if dtype == "complex128" or (dtype.endswith("64") and dtype != "complex64"):
            raise UsageError(f"{dtype} needs --x64; without it JAX computes with 32 bits")
    return {
        "inputs": [(shape, dtype) for _, shape, dtype in inputs],
        "input_params": {name: (shape, dtype) for name, shape, dtype in params},
        "input_names": [name for name, _, _ in inputs],
        "output_names": options.output_name or "auto",
        "inputs_as_nchw": _indices_or_names(options.nchw_input),
        "outputs_as_nchw": _indices_or_names(options.nchw_output),
    }


def _indices_or_names(given: list[str] | None) -> list[int | str] | None:
    return given and [int(word) if word.lstrip("-").isdecimal() else word for word in given]


def _run(target: Target, call: dict[str, Any], options: argparse.Namespace) -> None:
    stage(f"importing {target.module}")
    from jax2onnx._door.export import to_onnx
    from jax2onnx._door.inputs import NamedShape, argument_names

    fn = target.load()
    automatic = argument_names(fn, len(call["input_names"]))
    call["input_names"] = [given or name for given, name in zip(call["input_names"], automatic, strict=True)]
    call["inputs"] = [NamedShape(*spec) for spec in call["inputs"]]
    call["input_params"] = {name: NamedShape(*spec) for name, spec in call["input_params"].items()}
    with (
        command_line_level(options.stacktrace),
        command_line_passes(options.disable_pass, options.dump_passes),
        command_line_sync(not options.no_sync),
    ):
        to_onnx(
            fn,
            model_name=options.name or target.name,
            opset=options.opset,
            target=options.made_for,
            enable_double_precision=options.x64,
            record=options.record,
            record_shapes_only=options.record_shapes,
            return_mode="file",
            output_path=options.output,
            export_mode="web" if options.web else "standard",
            paths=options.paths,
            path_prefix_map=options.path_prefix_map and ":".join(options.path_prefix_map),
            embed_source=options.embed_source,
            unroll_scans=options.unroll_scans,
            **call,
        )


def _described(error: Exception) -> str:
    """The error, and the user's line that raised it if it came from the user's code."""
    from jax2onnx._door.errors import UnsupportedError
    from jax2onnx._door.jax_types import is_users_file

    notes = [note for note in getattr(error, "__notes__", []) if note.startswith("Hint: ")]
    message = "\n".join([str(error), *notes])
    if isinstance(error, (UnsupportedError, OSError)):
        return message
    if isinstance(error, SyntaxError):
        return "".join(traceback.format_exception_only(error)).rstrip()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users_file(frame.filename)]
    if not frames:
        return message or type(error).__name__
    frame = frames[-1]
    place = f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}\n    {frame.line}'
    return f"{type(error).__name__}: {message}\n{place}\n--debug shows the whole traceback"


if __name__ == "__main__":
    sys.exit(main())
