"""``to_onnx``: takes the arguments, traces with JAX, runs the C core and returns the result."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import jax
import numpy as np

from jax2onnx import _core
from jax2onnx._door.abstract_trace import WeightSource, explain_missing_weights, trace_abstract
from jax2onnx._door.errors import name_symbolic_dimension, warn_user, with_source
from jax2onnx._door.expansions import expand, lowered_primitives
from jax2onnx._door.hints import hints
from jax2onnx._door.inputs import (
    InputSpecs,
    automatic_input_names,
    automatic_output_names,
    check_name,
    checked_names,
)
from jax2onnx._door.inputs import input_names as names_of_inputs
from jax2onnx._door.jax_types import InconclusiveDimension, core_types, is_users_file, jax_folders, library_folders
from jax2onnx._door.modules import Part, UserScope
from jax2onnx._door.plugins import lower_equation, registered_plugins
from jax2onnx._door.progress import stage, tell_opset, told, watched
from jax2onnx._door.relations import Relations, with_relations
from jax2onnx._door.settings import (
    LEVELS,
    alignment_of_data,
    bytes_of,
    check_passes,
    disabled_passes,
    drop_checks,
    drop_nan_guards,
    dump_passes,
    external_threshold,
    fixed_data_name,
    metadata_level,
    path_prefix_rules,
    record_file,
    relative_paths,
    round_products,
    sync,
    target_name,
)
from jax2onnx._door.sources import read_sources
from jax2onnx._door.together import together
from jax2onnx._door.tracing import function_of, trace
from jax2onnx._door.weights import Rename

if TYPE_CHECKING:
    import onnx
    import onnx_ir

OLDEST_OPSET = 13
_OLDER_OPSETS = range(9, OLDEST_OPSET)  # requested by older programs; the oldest supported opset is used instead
_logger = logging.getLogger("jax2onnx")
_AUTO_OPSET = 0  # the core's number for it
_RETURN_MODES = ("proto", "ir", "file")
NORMALIZATION_MODES = {"auto": 1, "prefer_native": 2, "force_decomposed": 0}  # as the core numbers them
_EVERY_ONNX_KNOWS = 23  # the newest opset of the oldest onnx that this package accepts


class ExportOptions(TypedDict, total=False):
    """The options of ``to_onnx`` that do not change what it returns."""

    enable_double_precision: bool
    record_primitive_calls_file: str | os.PathLike[str] | None
    output_path: str | os.PathLike[str] | None
    inputs_as_nchw: Sequence[int | str] | None
    outputs_as_nchw: Sequence[int | str] | None
    input_names: Sequence[str] | Literal["auto"] | None
    output_names: Sequence[str] | Literal["auto"] | None
    export_mode: Literal["standard", "web"]
    normalization_mode: Literal["auto", "prefer_native", "force_decomposed"]
    runtime_checks: Literal["nan", "drop"] | None
    nan_guards: Literal["keep", "drop"] | None
    quantized_products: Literal["exact", "rounded"] | None
    stacktrace_metadata: bool | str | None
    paths: Literal["absolute", "relative"] | None
    path_prefix_map: str | Mapping[str, str] | None
    record: str | os.PathLike[str] | None
    record_shapes_only: bool
    embed_source: bool
    target: str | None


@overload
def to_onnx(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    input_params: Mapping[str, Any] | None = ...,
    model_name: str = ...,
    opset: int | str = ...,
    *,
    return_mode: Literal["proto"] = ...,
    **options: Unpack[ExportOptions],
) -> onnx.ModelProto: ...
@overload
def to_onnx(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    input_params: Mapping[str, Any] | None = ...,
    model_name: str = ...,
    opset: int | str = ...,
    *,
    return_mode: Literal["ir"],
    **options: Unpack[ExportOptions],
) -> onnx_ir.Model: ...
@overload
def to_onnx(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    input_params: Mapping[str, Any] | None = ...,
    model_name: str = ...,
    opset: int | str = ...,
    *,
    return_mode: Literal["file"],
    **options: Unpack[ExportOptions],
) -> str: ...
@overload
def to_onnx(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    input_params: Mapping[str, Any] | None = ...,
    model_name: str = ...,
    opset: int | str = ...,
    *,
    return_mode: str,
    **options: Unpack[ExportOptions],
) -> Any: ...
def to_onnx(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    input_params: Mapping[str, Any] | None = None,
    model_name: str = "jax_model",
    opset: int | str = "auto",
    *,
    enable_double_precision: bool = False,
    record_primitive_calls_file: str | os.PathLike[str] | None = None,
    return_mode: str = "proto",
    output_path: str | os.PathLike[str] | None = None,
    inputs_as_nchw: Sequence[int | str] | None = None,
    outputs_as_nchw: Sequence[int | str] | None = None,
    input_names: Sequence[str] | Literal["auto"] | None = None,
    output_names: Sequence[str] | Literal["auto"] | None = None,
    export_mode: Literal["standard", "web"] = "standard",
    normalization_mode: Literal["auto", "prefer_native", "force_decomposed"] = "auto",
    runtime_checks: Literal["nan", "drop"] | None = None,
    nan_guards: Literal["keep", "drop"] | None = None,
    quantized_products: Literal["exact", "rounded"] | None = None,
    stacktrace_metadata: bool | str | None = None,
    paths: Literal["absolute", "relative"] | None = None,
    path_prefix_map: str | Mapping[str, str] | None = None,
    record: str | os.PathLike[str] | None = None,
    record_shapes_only: bool = False,
    embed_source: bool = False,
    weights: Any = None,
    rename: Rename = None,
    allow_surplus_weights: bool = False,
    weights_by_reference: bool = False,
    touch_referenced_weights: bool = False,
    max_shard_size: int | str | None = None,
    data_alignment: int | None = None,
    progress: Callable[[int, int], Any] | Callable[[str, int, int], Any] | bool | None = None,
    target: str | None = None,
    unroll_scans: bool = False,
) -> Any:
    """Export a JAX function or model to ONNX.

    Args:
        fn: any callable: a function, a jitted function, or a Flax NNX, bound Linen or Equinox module.
        inputs: one entry per positional argument: a ``jax.ShapeDtypeStruct``, an array (only its shape and type
            matter), or a shape such as ``("B", 128)``, where a name stands for a size known only at run time.
        input_params: keyword arguments of ``fn`` that become graph inputs of the same names. If the function branches
            in Python on a flag, both values are traced and the model contains an ``If``. If the other value cannot be
            traced, the model is made for the given value, with a warning.
        model_name: the name of the graph.
        opset: the ONNX operator set to use. ``"auto"`` chooses the lowest one from 17 to 21 that can express the model
            without loss (ONNX Runtime reads 21 since version 1.18). The logger ``jax2onnx`` reports which one was
            chosen, and why. A number, 13 or newer, is used as it is; 9 to 12 are raised to 13 with a warning.
        enable_double_precision: trace with 64-bit types; shapes without a type are then float64.
        record_primitive_calls_file: a file to write the traced program to, one line per primitive, for debugging.
        return_mode: ``"proto"`` returns an ``onnx.ModelProto`` and ``"ir"`` an ``onnx_ir.Model``; ``"file"`` writes
            ``output_path`` and returns it. Case does not matter.
        output_path: the file to write; its folder is created if it does not exist. Required with
            ``return_mode="file"``. With the other modes the model is both written there and returned.
        inputs_as_nchw, outputs_as_nchw: the 4-D NHWC inputs and outputs, by index or name, that the model takes and
            returns as NCHW.
        input_names, output_names: names for the graph's inputs and outputs, in order. ``"auto"`` takes them from the
            function's arguments, keys and fields. None: ``in_0``, ``in_1``, …, ``out_0``, ….
        export_mode: ``"web"`` keeps everything in one file.
        normalization_mode: when normalisations become ONNX's own operators: with ``"auto"`` where that is no less
            accurate, with ``"prefer_native"`` wherever there is such an operator, with ``"force_decomposed"`` never.
        runtime_checks: how to export a check that raises an error while JAX runs, such as ``equinox.error_if``. With
            ``"nan"`` the values that it guards become NaN where it fails; with ``"drop"`` it is left out, with a
            warning. None uses ``JAX2ONNX_RUNTIME_CHECKS``, or ``"nan"`` if that is not set.
        nan_guards: with ``"drop"`` the nodes that only make a NaN come out as in JAX are left out, for inputs that lead
            to none: the model is smaller and runs in more runtimes. None uses ``JAX2ONNX_NAN_GUARDS``, or ``"keep"``.
        quantized_products: with ``"rounded"`` ONNX Runtime may round what weights of 8 and 4 bits are multiplied by to
            8 bits as well, which is several times as fast and changes results by about half a percent. None uses
            ``JAX2ONNX_QUANTIZED_PRODUCTS``, or ``"exact"``.
        stacktrace_metadata: how much provenance each node carries: ``False``, ``True`` or ``"minimal"``, ``"full"``,
            or ``"compact"`` (the same information as full, with every part stored once). None uses
            ``with stacktrace_metadata(...)``, the command line, ``config``, or the environment
            (``JAX2ONNX_ENABLE_STACKTRACE_METADATA``, ``JAX2ONNX_STACKTRACE_DETAIL``).
        paths: how provenance names files: ``"absolute"``, as Python knows them, or ``"relative"`` to the nearest
            parent folder with a ``pyproject.toml`` or ``.git``. None uses ``JAX2ONNX_PATHS``.
        path_prefix_map: path prefixes and their replacements: ``{"/home/me/project": "project"}`` or
            ``"/home/me/project=project"``. None uses ``JAX2ONNX_PATH_PREFIX_MAP``.
        record: a file that receives everything this export was given, with the weights in a second file beside it
            (``.data``). ``j2o convert`` makes the same model from it, without Python. None uses ``JAX2ONNX_RECORD``.
        record_shapes_only: record only the types of weights and large constants, not their numbers.
        embed_source: store the text of your source files in a model with ``"full"`` or ``"compact"`` provenance, so
            that it can be shown where the files do not exist: for notebook cells, or on another machine.
        weights: the source of the weights for a model that has ``jax.ShapeDtypeStruct`` in their place, as returned by
            ``jax.eval_shape``, ``nnx.eval_shape`` and ``eqx.filter_eval_shape``: the path of a safetensors file, of a
            folder with such files and their index, of an Orbax checkpoint or of an ``.npz`` file; a mapping or tree of
            arrays; or a function from a path to an array. ``"later"`` leaves them to ``j2o fill``.
        rename: the names of the weights in that source: a mapping from their paths in the model, in which ``*`` stands
            for one step, or a function.
        allow_surplus_weights: whether the source may contain weights that the model does not have.
        weights_by_reference: refer to the data in the safetensors files, which must be in the folder of the model or
            below, and copy nothing.
        touch_referenced_weights: whether passes may read such weights. What they transpose, scale or fold is then
            written to a file of the model's own. Otherwise these steps stay in the graph, and no weight is read.
        max_shard_size: the largest size of a tensor file: a number of bytes, or a text such as ``"5GB"``.
        data_alignment: the alignment of large tensors in these files, in bytes. None: 4,096, or 65,536 on Windows,
            which maps files in such steps.
        progress: a function that is called several times a second with the number of tensor bytes written so far and
            in total. A function of three arguments also gets the stage as the first one, and is called at the start of
            each: ``"tracing"``, ``"converting"``, ``"writing"``. An exception that it raises ends the export and
            leaves existing files unchanged. True shows the progress on a terminal or in a notebook if the export takes
            more than a second, and False never does. None shows it in notebooks and at an interactive prompt.
        target: the runtime that the model is made for: ``"onnxruntime"`` (the newest version, the default), a version
            such as ``"onnxruntime-1.18"``, ``"onnxruntime-web"``, ``"openvino"``, ``"tract"``, ``"iree"``,
            ``"portable"`` (all of them at once) and others. None uses ``JAX2ONNX_TARGET``. A warning reports what the
            runtime is known not to run, with the line.
        unroll_scans: write a ``scan`` over stacked weights, which is how large models keep their layers, as its steps.
            Each step refers to its own part of the weights where that is stored: in memory, or in a file that the
            model refers to. Otherwise it becomes one ``Scan`` with stacked weights.

    Raises:
        TypeError, ValueError: an argument is not valid; the message says what was expected.
        UnsupportedError: the function uses primitives that cannot be exported; the error lists all of them with their
            lines.
    """
    entry = _callers(sys._getframe(1))
    return_mode = _return_mode(return_mode)
    _check_choice("export_mode", export_mode, ("standard", "web"))
    _check_choice("normalization_mode", normalization_mode, tuple(NORMALIZATION_MODES))
    if not callable(fn):
        raise TypeError(f"fn must be callable; got {type(fn).__name__}")
    opset = _checked_opset(opset)
    made_for = target_name(target)
    if not isinstance(model_name, str) or not model_name:
        raise TypeError(f"model_name must be a non-empty string; got {model_name!r}")
    check_name("model_name", model_name)
    if not isinstance(enable_double_precision, (bool, np.bool_)):
        raise TypeError(f"enable_double_precision must be a bool; got {enable_double_precision!r}")
    path = _checked_path(return_mode, output_path)
    calls = _path_or_none("record_primitive_calls_file", record_primitive_calls_file)
    record_path = _path_or_none("record", record) or record_file()
    level = metadata_level(stacktrace_metadata)
    rules, relative = path_prefix_rules(path_prefix_map), relative_paths(paths)
    source = WeightSource(weights, rename, allow_surplus_weights, weights_by_reference, touch_referenced_weights, path)
    _check_data_settings(source, record_path, progress)
    drops, unguarded = drop_checks(runtime_checks), drop_nan_guards(nan_guards)
    with told(progress):
        stage("tracing")
        with _precision(enable_double_precision):
            default_dtype = np.float64 if enable_double_precision else np.float32
            assumed = Relations()
            specs = InputSpecs(default_dtype, assumed)
            args, kwargs = specs.positional(inputs), specs.keyword(input_params)
            if specs.narrowed:
                warn_user(
                    f"JAX narrows {', '.join(specs.narrowed)}, and the model takes the narrower "
                    f"{'type' if len(specs.narrowed) == 1 else 'types'}; enable_double_precision=True keeps 64 bits"
                )
            if input_names == "auto":
                input_names = automatic_input_names(fn, args)
            names = names_of_inputs(args, kwargs, input_names)

            def attempt(relations: Relations) -> Any:
                given, named = args, kwargs
                if relations != assumed:
                    related = InputSpecs(default_dtype, relations)
                    given, named = related.positional(inputs), related.keyword(input_params)
                with hints(fn, given):
                    if weights is None:
                        return trace(fn, given, named, input_params)
                    return trace_abstract(fn, given, named)

            try:
                jaxpr, shapes, recording = with_relations(attempt, list(specs.places))
            except TypeError as error:
                explain_missing_weights(error, fn)
                raise
            except InconclusiveDimension as error:
                name_symbolic_dimension(error, specs.places)
                raise
        outputs = jax.tree.leaves(shapes)
        if not outputs:
            raise ValueError("the function returns no arrays; an ONNX model needs at least one output")
        if output_names == "auto":
            output_names = automatic_output_names(shapes, names)
        result_names = _output_names(output_names, len(outputs))
        _check_unique(names, result_names)
        flat_inputs = jax.tree.leaves((args, kwargs))
        plugins = registered_plugins()
        bound = source.bound(jaxpr, recording)
        stage("converting")
        try:
            content = _convert(
                enable_double_precision,
                path,
                jaxpr=jaxpr,
                types={**core_types(), "Part": Part, "UserScope": UserScope},
                name_parameters=recording.name_parameters,
                name_modules=recording.name_modules,
                read_sources=functools.partial(read_sources, bool(embed_source)) if level >= LEVELS["full"] else None,
                jax_folders=jax_folders(),
                library_folders=library_folders(),
                model_name=model_name,
                opset=opset,
                target=made_for,
                input_names=names,
                output_names=result_names,
                input_nchw=_layout_flags("inputs_as_nchw", inputs_as_nchw, names, flat_inputs),
                output_nchw=_layout_flags("outputs_as_nchw", outputs_as_nchw, result_names, outputs),
                metadata=level,
                calls=_encoded(calls),
                record=_encoded(record_path),
                record_shapes_only=bool(record_shapes_only),
                external_threshold=external_threshold(),
                single_file=export_mode == "web",
                skip_sync=not sync(),
                fixed_data_name=fixed_data_name(),
                root=_definition(fn),
                entry_frames=entry,
                disabled_passes=disabled_passes(),
                check_passes=check_passes(),
                dump_passes=_encoded(dump_passes()),
                normalization=NORMALIZATION_MODES[normalization_mode],
                sequential_bits=not jax.config.jax_threefry_partitionable,
                unroll_scans=bool(unroll_scans),
                drop_checks=drops,
                drop_nan_guards=unguarded,
                round_products=round_products(quantized_products),
                lowered=lowered_primitives(),
                expand=expand,
                custom=tuple(plugins),
                lower_custom=functools.partial(lower_equation, plugins),
                path_rules=rules,
                relative_paths=relative,
                weights=bound,
                data_alignment=alignment_of_data(data_alignment),
                largest_data_file=bytes_of(max_shard_size),
                progress=watched(progress),
                on_opset=None if opset else tell_opset,
            )
        except _core.UnsupportedError as error:
            raise with_source(error) from None
    return _result(return_mode, path, content)


def _check_data_settings(source: WeightSource, record: str | None, progress: Any) -> None:
    if record is not None and not source.has_numbers:
        raise ValueError("an export can only be recorded with its weights; this one has none, or refers to them")
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"progress must be callable, a bool or None; got {progress!r}")


def _convert(double: bool, path: str | None, **arguments: Any) -> bytes | None:
    spread = together(arguments["jaxpr"], arguments["weights"], path)
    # Expansions are traced during the conversion.
    with _precision(double), _without_collections(), _folder_made(path), spread as company:
        if company is not None and not company.leads:
            company.serve()
            return None
        return _core.convert(path=_encoded(path), **arguments)


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """The objects made in between are many and have no cycles; looking for cycles would double the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _result(return_mode: str, path: str | None, content: bytes | None) -> Any:
    if return_mode == "file":
        return path
    import onnx  # not needed to write a file, and slow to import

    model = onnx.load(path) if content is None else onnx.ModelProto.FromString(content)
    if return_mode == "proto":
        return model
    try:
        import onnx_ir
    except ImportError as error:
        raise ImportError('return_mode="ir" needs the package onnx-ir') from error
    return onnx_ir.from_proto(model)


def _check_choice(argument: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{argument} must be one of {', '.join(map(repr, choices))}; got {value!r}")


def _return_mode(value: Any) -> str:
    mode = value.lower() if isinstance(value, str) else value
    if mode not in _RETURN_MODES:
        raise ValueError(f"return_mode must be one of {', '.join(map(repr, _RETURN_MODES))}; got {value!r}")
    return mode


def _checked_opset(opset: Any) -> int:
    if isinstance(opset, str) and opset.lower() == "auto":
        return _AUTO_OPSET
    if isinstance(opset, bool) or not isinstance(opset, (int, np.integer)):
        raise TypeError(f"opset must be an integer or 'auto'; got {opset!r}")
    newest = _newest_opset(int(opset))
    if not OLDEST_OPSET <= opset <= newest and opset not in _OLDER_OPSETS:
        raise ValueError(f"opset must be between {OLDEST_OPSET} and {newest}; got {opset}")
    if opset in _OLDER_OPSETS:
        warn_user(f"opset {opset} is too old; using opset {OLDEST_OPSET}")
    return max(int(opset), OLDEST_OPSET)


def _newest_opset(opset: int) -> int:
    """The newest opset that both this package and the installed onnx know."""
    if opset <= _EVERY_ONNX_KNOWS:
        return _core.NEWEST_OPSET
    import onnx  # slow to import, and needed only here

    return min(_core.NEWEST_OPSET, onnx.defs.onnx_opset_version())


def _path_or_none(argument: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{argument} must be a path; got {value!r}")
    path = os.fsdecode(value)
    if not path or "\0" in path:
        raise ValueError(f"{argument} must be the path of a file; got {value!r}")
    return path


def _encoded(path: str | None) -> bytes | None:
    """The path in the operating system's encoding: a name need not be UTF-8."""
    return None if path is None else os.fsencode(path)


def _checked_path(return_mode: str, output_path: Any) -> str | None:
    path = _path_or_none("output_path", output_path)
    if return_mode == "file" and path is None:
        raise ValueError('return_mode="file" needs output_path')
    return path


@contextlib.contextmanager
def _folder_made(path: str | None) -> Iterator[None]:
    """Create the folder of the file; folders created here are removed again if nothing is written."""
    made = []
    folder = os.path.dirname(path or "") if os.path.basename(path or "") else ""
    while folder and not os.path.lexists(folder):
        made.append(folder)
        folder = os.path.dirname(folder)
    for missing in reversed(made):
        os.makedirs(missing, exist_ok=True)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # another export uses it in the meantime
            for folder in made:
                os.rmdir(folder)
        raise


def _output_names(given: Any, count: int) -> list[str]:
    if given is None:
        return [f"out_{index}" for index in range(count)]
    return checked_names(given, "output_names", count, count)


def _check_unique(inputs: list[str], outputs: list[str]) -> None:
    seen: set[str] = set()
    for name in [*inputs, *outputs]:
        if name in seen:
            raise ValueError(f"the name {name!r} is given to two inputs or outputs; each needs its own")
        seen.add(name)


def _layout_flags(argument: str, chosen: Any, names: list[str], values: list[Any]) -> list[bool] | None:
    if chosen is None:
        return None
    if isinstance(chosen, (str, int)) or not isinstance(chosen, Sequence):
        raise TypeError(f"{argument} must be a sequence of indices or names; got {chosen!r}")
    flags = [False] * len(names)
    for choice in chosen:
        if isinstance(choice, str) and choice in names:
            index = names.index(choice)
        elif isinstance(choice, int) and not isinstance(choice, bool) and -len(names) <= choice < len(names):
            index = choice % len(names)
        else:
            raise ValueError(f"{argument}: {choice!r} is neither an index below {len(names)} nor one of {names}")
        if len(values[index].shape) != 4:
            raise ValueError(f"{argument}: {names[index]!r} has {len(values[index].shape)} dimensions; 4 are needed")
        flags[index] = True
    return flags


def _precision(double: bool) -> Any:
    return jax.enable_x64(True) if double else _Nothing()


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def _callers(frame: types.FrameType | None) -> list[tuple[str, str, int]]:
    """The user's frames that led here, outermost first, without those of libraries (such as a test runner)."""
    callers = []
    while frame is not None:
        code = frame.f_code
        if is_users_file(code.co_filename):
            callers.append((code.co_filename, code.co_qualname, frame.f_lineno))
        frame = frame.f_back
    return callers[::-1]


def _definition(fn: Any) -> tuple[str, str, int]:
    """Where the traced function is defined, which is the line of nodes that come from no equation."""
    found = function_of(fn)
    if not isinstance(found, types.FunctionType):
        return ("<unknown>", type(found).__qualname__, 0)
    code = found.__code__
    return (code.co_filename, code.co_qualname, code.co_firstlineno)
