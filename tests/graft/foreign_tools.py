"""What people do to a model once it is exported. Runs in a virtual environment of its own: `make graft-tools`.

usage: foreign_tools.py MODELS OUT [TOOL ...] writes OUT/TOOL/NAME.onnx for every MODELS/NAME.onnx that the tool takes.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import onnxruntime

TOOLS: dict[str, Callable[[onnx.ModelProto, str], onnx.ModelProto]] = {}
MOST_SECONDS = 120


def tool(fn: Callable[[onnx.ModelProto, str], onnx.ModelProto]) -> Callable[[onnx.ModelProto, str], onnx.ModelProto]:
    """Marks what takes a model and its path, and gives another."""
    TOOLS[fn.__name__] = fn
    return fn


@tool
def onnxsim(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    import onnxsim

    return onnxsim.simplify(model)[0]


@tool
def onnxslim(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    import onnxslim

    return onnxslim.slim(model)


@tool
def onnx_version_up(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    return onnx.version_converter.convert_version(model, 24)


@tool
def onnx_version_down(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    return onnx.version_converter.convert_version(model, 21 if opset(model) > 21 else 16)


@tool
def onnxscript_version_up(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    from onnxscript import version_converter

    version_converter.convert_version(model, 24)
    return model


@tool
def onnxscript_version_down(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    from onnxscript import version_converter

    version_converter.convert_version(model, 21 if opset(model) > 21 else 16, fallback=True)
    return model


@tool
def onnxscript_optimizer(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    from onnxscript import optimizer

    return optimizer.optimize(model)


def optimized(path: str, level: onnxruntime.GraphOptimizationLevel) -> onnx.ModelProto:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = os.path.join(folder, "optimized.onnx")
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


@tool
def ort_basic(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    return optimized(path, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC)


@tool
def ort_extended(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    return optimized(path, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED)


@tool
def ort_all(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    return optimized(path, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)


@tool
def quantize_dynamic(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    from onnxruntime.quantization import quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.onnx")
        quantize_dynamic(path, out)
        return onnx.load(out)


def _quantized_statically(model: onnx.ModelProto, path: str, form: str) -> onnx.ModelProto:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Batches(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [random_inputs(model, seed) for seed in range(4)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self.left.pop() if self.left else None

    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.onnx")
        quantize_static(path, out, Batches(), quant_format=QuantFormat[form])
        return onnx.load(out)


@tool
def quantize_static(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    return _quantized_statically(model, path, "QDQ")


@tool
def quantize_static_operators(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    return _quantized_statically(model, path, "QOperator")


@tool
def quant_pre_process(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.onnx")
        quant_pre_process(path, out)
        return onnx.load(out)


@tool
def float16(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    from onnxconverter_common import float16

    return float16.convert_float_to_float16(model, keep_io_types=True)


@tool
def graphsurgeon(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    import onnx_graphsurgeon

    return onnx_graphsurgeon.export_onnx(onnx_graphsurgeon.import_onnx(model).cleanup().toposort())


@tool
def polygraphy_fold(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    from polygraphy.backend.onnx import FoldConstants

    return FoldConstants(model)()


@tool
def add_prefix(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    return onnx.compose.add_prefix(model, "encoder_")


@tool
def merge_models(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    """The model with another behind it that knows nothing of it."""
    first = model.graph.output[0]
    kind = first.type.tensor_type.elem_type
    if kind != onnx.TensorProto.FLOAT:
        raise ValueError("the first output is no float")
    body = [onnx.helper.make_node("Neg", ["v"], ["w"]), onnx.helper.make_node("Exp", ["w"], ["z"])]
    values = [onnx.ValueInfoProto(name=name, type=first.type) for name in "vz"]
    graph = onnx.helper.make_graph(body, "after", values[:1], values[1:])
    after = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return onnx.compose.merge_models(model, after, io_map=[(first.name, "v")], prefix1="one/", prefix2="two/")


@tool
def inliner(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    import onnx.inliner

    return onnx.inliner.inline_local_functions(model)


@tool
def transformers_optimizer(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    from onnxruntime.transformers import optimizer

    return optimizer.optimize_model(path, model_type="bert", num_heads=4, hidden_size=32, opt_level=0).model


@tool
def anonymous(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    """No tool of a name: every name but those of inputs and outputs is another, and the metadata is gone."""
    return renamed(without_metadata(model), lambda name, count: f"t{count}")


@tool
def shifted_names(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    """Names that lie: those of the model's own values, each given to another one."""
    names = [name for node in model.graph.node for name in node.output if name]
    kept = {value.name for value in model.graph.output}
    inner = [name for name in names if name not in kept]
    other = dict(zip(inner, inner[1:] + inner[:1], strict=True))
    return renamed(without_metadata(model), lambda name, count: other.get(name, f"t{count}"))


@tool
def shuffled(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    """Another order of the nodes that is as good, and constants as nodes."""
    model = without_metadata(model)
    random = np.random.default_rng(0)
    graph = model.graph
    for tensor in graph.initializer:
        graph.node.insert(0, onnx.helper.make_node("Constant", [], [tensor.name], value=tensor))
    del graph.initializer[:]
    made = {value.name for value in graph.input} | {""}
    left = list(graph.node)
    ordered = []
    while left:
        ready = [node for node in left if used_values(node) <= made]
        node = ready[random.integers(len(ready))]
        left.remove(node)
        ordered.append(node)
        made.update(node.output)
    del graph.node[:]
    graph.node.extend(ordered)
    return model


def used_values(node: onnx.NodeProto) -> set[str]:
    used = set(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            inner = {name for child in attribute.g.node for name in used_values(child)}
            inner |= {value.name for value in attribute.g.output}
            made = {name for child in attribute.g.node for name in child.output}
            made |= {value.name for value in (*attribute.g.input, *attribute.g.initializer)}
            used |= inner - made
    return used


def composed(*names: str) -> Callable[[onnx.ModelProto, str], onnx.ModelProto]:
    def run(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                model = TOOLS[name](model, path)
                path = os.path.join(folder, f"{name}.onnx")
                onnx.save(model, path)
                model = onnx.load(path)
        return model

    return run


# One after the other, as people do it; and with every name changed at the end, so that only structure is left.
for _names in (
    ("onnxsim", "quantize_dynamic"),
    ("onnxslim", "float16"),
    ("ort_extended", "quantize_static"),
    ("onnxsim", "anonymous"),
    ("float16", "anonymous"),
    ("ort_basic", "anonymous"),
    ("ort_extended", "anonymous"),
    ("ort_all", "anonymous"),
    ("quantize_dynamic", "anonymous"),
    ("quantize_static", "anonymous"),
    ("onnxscript_version_down", "anonymous"),
    ("ort_extended", "shuffled"),
):
    TOOLS["_then_".join(_names)] = composed(*_names)


def renamed(model: onnx.ModelProto, new_name: Callable[[str, int], str]) -> onnx.ModelProto:
    kept = {value.name for value in (*model.graph.input, *model.graph.output)} | {""}
    known: dict[str, str] = {}

    def change(name: str) -> str:
        if name in kept:
            return name
        if name not in known:
            known[name] = new_name(name, len(known))
        return known[name]

    def change_graph(graph: onnx.GraphProto) -> None:
        for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
            value.name = change(value.name)
        for node in graph.node:
            node.name = ""
            node.input[:] = map(change, node.input)
            node.output[:] = map(change, node.output)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    change_graph(attribute.g)

    change_graph(model.graph)
    return model


def without_metadata(model: onnx.ModelProto) -> onnx.ModelProto:
    def clear(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            del node.metadata_props[:]
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    clear(attribute.g)

    clear(model.graph)
    for function in model.functions:
        for node in function.node:
            del node.metadata_props[:]
    del model.metadata_props[:]
    return model


def opset(model: onnx.ModelProto) -> int:
    return next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))


def random_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Random numbers for every input; symbolic sizes are small and differ by name."""
    random = np.random.default_rng(seed)
    constants = {tensor.name for tensor in model.graph.initializer}
    sizes: dict[str, int] = {}
    feeds = {}
    for value in model.graph.input:
        if value.name in constants:
            continue
        kind = value.type.tensor_type
        shape = []
        for dim in kind.shape.dim:
            name = dim.dim_param
            shape.append(dim.dim_value if dim.HasField("dim_value") else sizes.setdefault(name, 3 + len(sizes)))
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        floating = dtype.kind == "f" or dtype.name == "bfloat16"
        feeds[value.name] = (random.normal(size=shape) if floating else random.integers(0, 8, size=shape)).astype(dtype)
    return feeds


@contextlib.contextmanager
def limited_time() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"longer than {MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main(models: str, out: str, *names: str) -> None:
    for name in names or TOOLS:
        folder = pathlib.Path(out, name)
        folder.mkdir(parents=True, exist_ok=True)
        refused = 0
        for path in sorted(pathlib.Path(models).glob("*.onnx")):
            target, refusal = folder / path.name, folder / f"{path.stem}.refused"
            if target.exists() or refusal.exists():
                continue
            try:
                with limited_time():
                    result = TOOLS[name](onnx.load(path), str(path))
                onnx.save(result, target)
            except BaseException as error:  # tools fail in every way there is
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    raise
                refusal.write_text(f"{type(error).__name__}: {error}\n")
                refused += 1
        print(f"{name}: {len(list(folder.glob('*.onnx')))} models, {refused} refused now", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
