"""Writes the model and the messages: breaks the model in many ways and keeps what onnx.checker and ONNX Runtime say.

python tests/data/messages/make.py

The model is kept beside them, because names of nodes change with the converter.
"""

from __future__ import annotations

import pathlib
import re
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(__file__).resolve().parent
MODEL = FOLDER / "program.onnx"
sys.path[:0] = [str(FOLDER), str(FOLDER.parents[2])]

import jax  # noqa: E402

import program  # noqa: E402
from jax2onnx import to_onnx  # noqa: E402

FEEDS = {"x": np.ones((6, 4), np.float32), "tokens": np.arange(6, dtype=np.int32)}


def export() -> onnx.ModelProto:
    """The program's model with full provenance, without the folders of this machine."""
    inputs = [jax.ShapeDtypeStruct((6, 4), np.float32), jax.ShapeDtypeStruct((6,), np.int32)]
    model = to_onnx(program.model, inputs, input_names=["x", "tokens"], stacktrace_metadata="full")
    for graph in graphs(model.graph):
        for node in graph.node:
            for entry in node.metadata_props:
                text = entry.value.replace(str(FOLDER) + "/", "")
                entry.value = re.sub(r"(?m)^/.*/site-packages/", "/lib/python3/site-packages/", text)
    return model


def frozen() -> onnx.ModelProto:
    return onnx.load(MODEL)


def graphs(graph):
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def find(model, op, index=0):
    return [node for graph in graphs(model.graph) for node in graph.node if node.op_type == op][index]


def replace_tensor(model, name, array):
    for graph in graphs(model.graph):
        for tensor in graph.initializer:
            if tensor.name == name:
                tensor.CopyFrom(numpy_helper.from_array(array, name))


def forget_types(model):
    for graph in graphs(model.graph):
        del graph.value_info[:]


def check(model, feeds, path):
    onnx.checker.check_model(model, full_check=True)


def load(model, feeds, path):
    onnx.save(model, path)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def run(model, feeds, path):
    load(model, feeds, path).run(None, feeds)


def unknown_operator(model, feeds):
    find(model, "Sin").op_type = "Sine"


def unknown_attribute(model, feeds):
    find(model, "Softmax").attribute.append(helper.make_attribute("temperature", 2.0))


def value_that_nobody_makes(model, feeds):
    find(model, "Sin").input[0] = "nothing"


def wrong_type(model, feeds):
    node = find(model, "Sin")
    node.op_type = "Not"


def one_name_twice(model, feeds):
    find(model, "Sin").output[0] = find(model, "Softmax").output[0]


def weight_of_wrong_shape(model, feeds):
    forget_types(model)
    replace_tensor(model, find(model, "Gemm").input[1], np.ones((7, 4), np.float32))


def axis_that_is_not_there(model, feeds):
    node = find(model, "Transpose")
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("perm", [1, 7]))


def reshape_to_other_size(model, feeds):
    forget_types(model)
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    node = find(model, "Reshape", -1)
    model.graph.initializer.append(numpy_helper.from_array(np.array([5, 5], np.int64), "target"))
    node.input[1] = "target"


def index_out_of_bounds(model, feeds):
    forget_types(model)
    gather = find(model, "Gather")
    model.graph.initializer.append(numpy_helper.from_array(np.array([99] * 6, np.int64), "indices"))
    gather.input[1] = "indices"


def no_kernel(model, feeds):
    """ONNX knows Sin of bfloat16, ONNX Runtime has no kernel for it on a CPU."""
    sin = find(model, "Sin")
    index = list(model.graph.node).index(sin)
    model.graph.node.insert(index, helper.make_node("Cast", [sin.input[0]], ["narrow"], "Narrow", to=16))
    model.graph.node.insert(index + 2, helper.make_node("Cast", ["wave_narrow"], [sin.output[0]], "Wide", to=1))
    sin = find(model, "Sin")
    sin.input[0], sin.output[0] = "narrow", "wave_narrow"


def body_reads_wrong_size(model, feeds):
    """Sizes that nothing but running tells: the scan's rows are of a size known only then."""
    forget_types(model)
    scan = find(model, "Scan")
    body = next(item.g for item in scan.attribute if item.name == "body")
    body.input[1].type.tensor_type.ClearField("shape")
    rows = helper.make_tensor_value_info("rows", TensorProto.FLOAT, None)
    model.graph.input.append(rows)
    scan.input[1] = "rows"
    feeds["rows"] = np.ones((3, 5), np.float32)


def input_of_wrong_size(model, feeds):
    feeds["tokens"] = np.arange(9, dtype=np.int32)


def input_of_wrong_type(model, feeds):
    feeds["tokens"] = np.arange(6, dtype=np.int64)


def declared_type_is_wrong(model, feeds):
    name = find(model, "Sin").output[0]
    for value in model.graph.value_info:
        if value.name == name:
            value.type.tensor_type.elem_type = TensorProto.INT32


def declared_size_is_wrong(model, feeds):
    name = find(model, "Softmax").output[0]
    for value in model.graph.value_info:
        if value.name == name:
            value.type.tensor_type.shape.dim[0].dim_value = 17


BREAKS = [
    (unknown_operator, (check, load)),
    (unknown_attribute, (check, load)),
    (value_that_nobody_makes, (check, load)),
    (wrong_type, (load,)),
    (one_name_twice, (check, load)),
    (weight_of_wrong_shape, (check, load)),
    (axis_that_is_not_there, (check, load)),
    (reshape_to_other_size, (run,)),
    (index_out_of_bounds, (run,)),
    (no_kernel, (load,)),
    (body_reads_wrong_size, (run,)),
    (input_of_wrong_size, (run,)),
    (input_of_wrong_type, (run,)),
    (declared_type_is_wrong, (check, load)),
    (declared_size_is_wrong, (check, load)),
]


def normalised(message: str, path: str) -> str:
    """Without the folders of the machine that the message was made on."""
    message = message.replace(path, "model.onnx")
    return re.sub(r"(?:/[\w.+-]+)+/(onnxruntime|onnx)/", r"/src/\1/", message).strip() + "\n"


def main() -> None:
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    onnx.save(export(), MODEL)
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "model.onnx")
        for change, ways in BREAKS:
            for way in ways:
                model, feeds = frozen(), dict(FEEDS)
                change(model, feeds)
                try:
                    way(model, feeds, path)
                except Exception as error:
                    text = normalised(f"{type(error).__name__}: {error}", path)
                    (FOLDER / f"{change.__name__}.{way.__name__}.txt").write_text(text)
                else:
                    print(f"{change.__name__}: {way.__name__} has nothing against it", file=sys.stderr)


if __name__ == "__main__":
    main()
