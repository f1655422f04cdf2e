"""``allclose_onnxruntime_web``: compares a model in onnxruntime-web, run by Node.js, with ONNX Runtime."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jax2onnx._compare.sessions import compare_outputs, open_session, run_session

# Reads a request (the model, and the name, type, shape and file of each input) and writes each output beside it.
_SCRIPT = """
import fs from "node:fs";
import { createRequire } from "node:module";
const request = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const ort = createRequire(request.resolve_from)("onnxruntime-web");
ort.env.wasm.numThreads = 1;
const arrays = {
  float32: Float32Array, float64: Float64Array, float16: Uint16Array, int8: Int8Array, int16: Int16Array,
  int32: Int32Array, int64: BigInt64Array, uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array,
  uint64: BigUint64Array, bool: Uint8Array,
};
const bytes = fs.readFileSync(request.model);
const session = await ort.InferenceSession.create(new Uint8Array(bytes), { executionProviders: ["wasm"] });
const feeds = {};
for (const { name, type, shape, file } of request.inputs) {
  const raw = fs.readFileSync(file);
  const copy = raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.byteLength);
  feeds[name] = new ort.Tensor(type, new arrays[type](copy), shape);
}
const results = await session.run(feeds);
const outputs = [];
for (const name of session.outputNames) {
  const tensor = results[name];
  const file = `${request.folder}/output_${outputs.length}`;
  const data = tensor.data;
  fs.writeFileSync(file, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  outputs.push({ name, type: tensor.type, shape: [...tensor.dims], file });
}
fs.writeFileSync(`${request.folder}/answer`, JSON.stringify(outputs));
"""


def allclose_onnxruntime_web(
    onnx_model_path: str | os.PathLike[str],
    inputs: Sequence[Any],
    input_params: Mapping[str, Any] | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    *,
    timeout: float = 120.0,
) -> tuple[bool, str]:
    """Run the model in onnxruntime-web, in Node.js, and in ONNX Runtime on the same arrays, and compare every output.

    Node.js must be installed, and so must ``onnxruntime-web`` (``npm install onnxruntime-web``), where Node.js finds it
    from the current folder. Returns whether all outputs agree, and a message that names the first one that does not.
    """
    session = open_session(onnx_model_path)
    arrays = [np.asarray(value) for value in (*inputs, *(input_params or {}).values())]
    names = [value.name for value in session.get_inputs()]
    if len(names) != len(arrays):
        return False, f"the model has {len(names)} inputs, {len(arrays)} were given"
    feeds = dict(zip(names, arrays, strict=True))
    expected = run_session(session, feeds)
    actual = _run_web(os.fspath(onnx_model_path), feeds, timeout)
    outputs = [value.name for value in session.get_outputs()]
    return compare_outputs(expected, actual, outputs, rtol, atol, ("onnxruntime-web", "ONNX Runtime"))


def _run_web(model: str, feeds: Mapping[str, np.ndarray], timeout: float) -> list[np.ndarray]:
    node = shutil.which("node")
    if node is None:
        raise RuntimeError("Node.js is not found; allclose_onnxruntime_web runs onnxruntime-web with the command node")
    with tempfile.TemporaryDirectory() as folder:
        script, request = os.path.join(folder, "run.mjs"), os.path.join(folder, "request")
        with open(script, "w", encoding="utf-8") as file:
            file.write(_SCRIPT)
        with open(request, "w", encoding="utf-8") as file:
            json.dump(_request(model, feeds, folder), file)
        done = subprocess.run([node, script, request], capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode != 0:
            raise RuntimeError(_reason(done.stderr))
        with open(os.path.join(folder, "answer"), encoding="utf-8") as file:
            return [_output(item) for item in json.load(file)]


def _request(model: str, feeds: Mapping[str, np.ndarray], folder: str) -> dict[str, Any]:
    inputs = []
    for index, (name, array) in enumerate(feeds.items()):
        path = os.path.join(folder, f"input_{index}")
        np.ascontiguousarray(array).tofile(path)
        inputs.append({"name": name, "type": array.dtype.name, "shape": list(array.shape), "file": path})
    resolve_from = os.path.join(os.getcwd(), "package.json")
    return {"model": os.path.abspath(model), "folder": folder, "inputs": inputs, "resolve_from": resolve_from}


def _reason(stderr: str) -> str:
    if "Cannot find module 'onnxruntime-web'" in stderr:
        return "onnxruntime-web is not installed; run `npm install onnxruntime-web` in this folder"
    lines = [line for line in stderr.splitlines() if "Error" in line] or stderr.splitlines()[-1:]
    return f"onnxruntime-web cannot run the model: {lines[0].strip() if lines else 'Node.js failed'}"


def _output(item: Mapping[str, Any]) -> np.ndarray:
    return np.fromfile(item["file"], dtype=np.dtype(item["type"])).reshape(item["shape"])
