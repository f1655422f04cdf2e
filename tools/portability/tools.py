"""What the tools that people run on models make of ours: accepted, and the numbers still JAX's.

usage: python tools/portability/tools.py [--at FOLDER] [TOOL…]

The models are those of measure.py, from the same folder (build/portability). onnxconverter-common is installed there;
the other tools come with onnx and ONNX Runtime.
"""

from __future__ import annotations

import argparse
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
from onnx import compose, utils, version_converter

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases
import measure

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


def quantize_static(path: str, to: str) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat
    from onnxruntime.quantization import quantize_static as quantize

    class Samples(CalibrationDataReader):
        def __init__(self) -> None:
            folder, name = os.path.split(path)
            self.rest = iter([cases.inputs_of(folder, name.removesuffix(".onnx"))])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.rest, None)

    with tempfile.TemporaryDirectory() as place:
        prepared = os.path.join(place, "prepared.onnx")
        quant_pre_process(path, prepared)
        quantize(prepared, to, Samples(), quant_format=QuantFormat.QDQ)


def float16(path: str, to: str) -> None:
    from onnxconverter_common import float16 as converter

    onnx.save(converter.convert_float_to_float16(onnx.load(path), keep_io_types=True), to)


def convert_to(version: int) -> Tool:
    def convert(path: str, to: str) -> None:
        onnx.save(version_converter.convert_version(onnx.load(path), version), to)

    return convert


TOOLS: dict[str, tuple[Tool, float]] = {
    "symbolic_shape_infer": (symbolic_shape_infer, 1),
    "quant_pre_process": (quant_pre_process, 1),
    "quantize_dynamic": (quantize_dynamic, 1000),  # eight bits are coarse
    "quantize_static": (quantize_static, 3000),
    "float16": (float16, 300),
    "add_prefix": (add_prefix, 1),
    "extract_model": (extract_model, 1),
    "version_converter to 21": (convert_to(21), 1),
    "version_converter to 24": (convert_to(24), 1),
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
    return measure.difference(cases.expected_of(folder, name), [np.asarray(value) for value in results], tolerance)


def install(at: pathlib.Path) -> None:
    """What neither onnx nor ONNX Runtime brings along."""
    folder = at / "environments" / "tools"
    words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), "onnxconverter-common"]
    if not folder.is_dir():
        subprocess.run(words, check=False, capture_output=True)
    sys.path.append(str(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", type=pathlib.Path, default=measure.ROOT / "build" / "portability")
    parser.add_argument("tools", nargs="*", choices=[[], *TOOLS], metavar="TOOL")
    options = parser.parse_args()
    logging.disable()
    install(options.at)
    records, folder = options.at / "records", options.at / "models" / "tools"
    measure.export(records, measure.record_models(records), measure.DEFAULT, folder)
    names = cases.names_in(str(folder))
    sample = measure.stored_sample()
    sample.setdefault("tools", {})
    for title in options.tools or TOOLS:
        tool, coarse = TOOLS[title]
        found = ((name, verdict(tool, coarse, str(folder), str(records), name)) for name in names)
        wrong = {name: text for name, text in found if text}
        print(f"{title}: {len(names) - len(wrong)} of {len(names)} accepted and right", flush=True)
        for name, text in wrong.items():
            print(f"  {name}: {' '.join(text.split())[:200]}", flush=True)
        sample["tools"][title] = sorted(wrong)
        measure.write_down(sample)


if __name__ == "__main__":
    main()
