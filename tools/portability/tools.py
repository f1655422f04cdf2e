"""What the tools that people run on models make of ours: accepted, and the numbers still JAX's.

usage: python tools/portability/tools.py FOLDER RECORDS [TOOL…]    with the folders that measure.py wrote
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
from onnx import compose, utils, version_converter

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases
from measure import difference

PREFIX = "some/"
Tool = Callable[[str, str], "dict[str, str] | None"]  # reads a file, writes a file; how inputs are called now


def add_prefix(path: str, to: str) -> dict[str, str]:
    model = onnx.load(path)
    onnx.save(compose.add_prefix(model, PREFIX), to)
    return {value.name: PREFIX + value.name for value in model.graph.input}


def extract_model(path: str, to: str) -> None:
    model = onnx.load(path)
    graph = model.graph
    utils.extract_model(path, to, [value.name for value in graph.input], [value.name for value in graph.output])


def symbolic_shape_infer(path: str, to: str) -> None:
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    onnx.save(SymbolicShapeInference.infer_shapes(onnx.load(path), auto_merge=True), to)


def quant_pre_process(path: str, to: str) -> None:
    from onnxruntime.quantization.shape_inference import quant_pre_process as process

    process(path, to)


def quantize_dynamic(path: str, to: str) -> None:
    from onnxruntime.quantization import quantize_dynamic as quantize

    quantize(path, to)


def convert_to_21(path: str, to: str) -> None:
    onnx.save(version_converter.convert_version(onnx.load(path), 21), to)


TOOLS: dict[str, tuple[Tool, float]] = {
    "symbolic_shape_infer": (symbolic_shape_infer, 1),
    "quant_pre_process": (quant_pre_process, 1),
    "quantize_dynamic": (quantize_dynamic, 1000),  # eight bits are coarse
    "add_prefix": (add_prefix, 1),
    "extract_model": (extract_model, 1),
    "version_converter to 21": (convert_to_21, 1),
}


def verdict(tool: Tool, coarse: float, folder: str, records: str, name: str) -> str:
    base = os.path.join(folder, name)
    with open(os.path.join(records, name + ".tolerance"), encoding="utf-8") as file:
        tolerance = float(file.read()) * coarse
    with tempfile.TemporaryDirectory() as place:
        made = os.path.join(place, "made.onnx")
        try:
            renamed = tool(base + ".onnx", made) or {}
        except Exception as error:
            return f"refuses: {type(error).__name__}: {error}"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        try:
            session = onnxruntime.InferenceSession(made, options, providers=["CPUExecutionProvider"])
            feeds = {renamed.get(key, key): value for key, value in cases.inputs_of(folder, name).items()}
            results = session.run(None, feeds)
        except Exception as error:
            return f"does not run: {error}"
    return difference(cases.expected_of(folder, name), [np.asarray(value) for value in results], tolerance)


def main() -> None:
    folder, records, *chosen = sys.argv[1:]
    names = cases.names_in(folder)
    for title, (tool, coarse) in TOOLS.items():
        if chosen and title not in chosen:
            continue
        wrong = {name: text for name in names if (text := verdict(tool, coarse, folder, records, name))}
        print(f"{title}: {len(names) - len(wrong)} of {len(names)} accepted and right", flush=True)
        for name, text in wrong.items():
            print(f"  {name}: {' '.join(text.split())[:200]}", flush=True)


if __name__ == "__main__":
    main()
