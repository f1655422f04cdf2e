"""A small sample of models, what tools made of them, and what is true: for the tests of every day.

usage: sample.py MODELS PROCESSED OUT.zip
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

MODELS = ("perceptron", "branched", "integers", "reductions")
TOOLS = (
    "onnxsim",
    "onnxslim",
    "onnx_version_up",
    "onnx_version_down",
    "onnxscript_version_down",
    "ort_basic",
    "ort_extended",
    "ort_all",
    "quantize_dynamic",
    "quantize_static",
    "float16",
    "graphsurgeon",
    "add_prefix",
    "anonymous",
    "shifted_names",
    "ort_extended_then_anonymous",
)
DAY = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever it is made


def main(models: str, processed: str, out: str) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as sample, tempfile.TemporaryDirectory() as folder:

        def add(name: str, content: bytes) -> None:
            sample.writestr(zipfile.ZipInfo(name, DAY), content, zipfile.ZIP_DEFLATED, 9)

        for model in MODELS:
            compact = pathlib.Path(folder, f"{model}.onnx")
            words = [sys.executable, "-m", "jax2onnx", "compact", f"{models}/{model}.onnx", "-o", str(compact)]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
            add(f"{model}.onnx", compact.read_bytes())
            for tool in TOOLS:
                path = pathlib.Path(processed, tool, f"{model}.onnx")
                if not path.exists():
                    continue
                plain = pathlib.Path(folder, "plain.onnx")
                words = [sys.executable, "-m", "jax2onnx", "strip", str(path), "-o", str(plain)]
                subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
                add(f"{tool}/{model}.onnx", plain.read_bytes())
                truth = json.loads(path.with_suffix(".truth.json").read_text())
                lines = [expected and expected["callsite"] for expected in truth]
                add(f"{tool}/{model}.truth.json", json.dumps(lines).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
