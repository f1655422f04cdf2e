"""Writes the seeds of command_harness.c: small models of each kind, once for every command that has something to do.

usage: make_corpus.py J2O FOLDER, where J2O is the built program.
"""

import json
import math
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

import onnx
from onnx import TensorProto, helper

SOURCE = b"""import jax.numpy as jnp


class Block:
    @property
    def size(self):
        return 3

    def __call__(self, x):
        return jnp.sin(x) * self.size


def outer(x):
    return (lambda y: y + 1)(x)
"""
TRACE = "/site-packages/jax/core.py:7 (bind)\n/project/model.py:10 (Block.__call__)\n/project/main.py:{line} (<module>)"
STACK = "/project/main.py:3 in <module>\nsrc/lower/elementwise.c:{line} in SinPlugin.lower"
TORCH = (
    'File "/project/net.py", line 8, in forward\n    return self.act(x)\n'
    'File "/site-packages/torch/nn.py", line 5, in relu\n'
)


def annotated(node: onnx.NodeProto, line: int, level: int) -> onnx.NodeProto:
    if level >= 1:
        values = {"callsite": "Block.__call__:10", "plugin": f"SinPlugin.lower:{line}"}
        if level == 2:
            values |= {"stacktrace": STACK.format(line=line), "jax_traceback": TRACE.format(line=line)}
        for key, value in values.items():
            node.metadata_props.add(key=f"pkg.jax2onnx.{key}", value=value)
    return node


def chain(level: int, operators: tuple[str, ...] = ("Sin", "Mul")) -> onnx.ModelProto:
    nodes, last = [], "x"
    for index, operator in enumerate(operators):
        inputs = [last, "w"] if operator == "Mul" else [last]
        last = "y" if index + 1 == len(operators) else f"v{index}"
        node = helper.make_node(operator, inputs, [last], name=f"n{index}" if index else "n")
        nodes.append(annotated(node, 13 + index, level))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["B", 2])],
        [helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])],
    )
    return helper.make_model(graph, producer_name="seed", opset_imports=[helper.make_opsetid("", 20)])


def merged() -> onnx.ModelProto:
    """A node that two others were fused into: two traces."""
    model = chain(2)
    for entry in model.graph.node[0].metadata_props:
        if entry.key.endswith("traceback"):
            entry.value += "\n\n" + TRACE.format(line=99)
    return model


def fused() -> onnx.ModelProto:
    """The chain as a tool might leave it: one node for two, a cast in front."""
    model = chain(0)
    nodes = [helper.make_node("Cast", ["x"], ["c"], to=10), helper.make_node("SinMul", ["c", "w"], ["y"], domain="d")]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def nested() -> onnx.ModelProto:
    body = helper.make_graph(
        [annotated(helper.make_node("Neg", ["x"], ["b"], name="inner"), 5, 2)],
        "body",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [2])],
    )
    node = annotated(helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body), 6, 2)
    inputs = [helper.make_tensor_value_info(n, t, s) for n, t, s in (("c", 9, []), ("x", 1, [2]))]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", 1, [2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("d", 1)])
    call = annotated(helper.make_node("Sin", ["p"], ["q"]), 1, 2)
    model.functions.append(helper.make_function("d", "f", ["p"], ["q"], [call], model.opset_import))
    return model


def torch() -> onnx.ModelProto:
    model = chain(0, ("Relu", "Softmax"))
    for node in model.graph.node:
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=TORCH)
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'act']")
        node.doc_string = "text"
    return model


def compacted(j2o: str, model: onnx.ModelProto) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "full.onnx").write_bytes(model.SerializeToString())
        subprocess.run([j2o, "compact", path / "full.onnx", "-o", path / "out.onnx"], check=True, capture_output=True)
        return (path / "out.onnx").read_bytes()


def divided(j2o: str, model: onnx.ModelProto) -> tuple[bytes, bytes]:
    """The model without its provenance, and the sidecar."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "full.onnx").write_bytes(model.SerializeToString())
        subprocess.run([j2o, "split", path / "full.onnx", "-o", path / "small.onnx"], check=True, capture_output=True)
        return (path / "small.onnx").read_bytes(), (path / "small.j2o").read_bytes()


def to_be_filled() -> tuple[onnx.ModelProto, bytes]:
    """A model whose weights are yet to come, and these as safetensors."""
    shapes = {"a.kernel": [2, 3], "b": [3]}
    header, at = {"__metadata__": {"format": "pt"}}, 0
    weights = []
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
        tensor = onnx.TensorProto(name=name, dims=shape, data_type=onnx.TensorProto.FLOAT, data_location="EXTERNAL")
        for key, value in (("location", "weights-to-come"), ("offset", "0"), ("length", str(size))):
            tensor.external_data.add(key=key, value=value)
        weights.append(tensor)
    text = json.dumps(header).encode()
    nodes = [helper.make_node("Gemm", ["x", *shapes], ["y"], "n")]
    values = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, size]) for name, size in (("x", 2), ("y", 3))
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    model = helper.make_model(graph, producer_name="jax2onnx", opset_imports=[helper.make_opsetid("", 20)])
    return model, struct.pack("<Q", len(text)) + text + bytes(at)


def seed(command: int, model: bytes, other: bytes = b"") -> bytes:
    """The harness cuts at a whole 255th of the bytes: what the model is shorter than that is filled up in front."""
    size = len(model) + len(other)
    share = size and min(255, max(0, round(255 * len(other) / size)))
    while other and size - size * share // 255 != len(model):
        model += b"\xa2\x3f\x00"  # an empty field that nobody knows
        size = len(model) + len(other)
        share = round(255 * len(other) / size)
    return bytes([command, share]) + model + other


PROGRAMS = """
import jax, jax.numpy as jnp
from jax import lax
from jax2onnx import onnx_function

@onnx_function
def block(x):
    return jnp.tanh(x) * 2

def calls(x):
    return block(x) + block(x + 1)

def loops(x):
    total, steps = lax.scan(lambda c, r: (c + r, c * 2), x[0], x)
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, total))[1], steps

def branches(x):
    return lax.cond(x.sum() > 0, lambda v: jnp.sin(v), lambda v: v - 1, x)

def choice(x):
    return lax.switch(x.sum().astype(int), [jnp.sin, jnp.cos, lambda v: v], x)

def matrices(x):
    return jnp.linalg.solve(x @ x.T + 3 * jnp.eye(3), x)

def factors(x):
    return jnp.linalg.svd(x)[1], jnp.linalg.qr(x)[0], jnp.linalg.eigh(x)[0], jnp.linalg.cholesky(x @ x.T)

def numbers(x):
    key = jax.random.key(0)
    return x + jax.random.normal(key, x.shape) + jax.random.permutation(key, 3)

def spectrum(x):
    return jnp.abs(jnp.fft.rfft(x)) + (x[..., :2] * 1j).imag

def sorting(x):
    return jnp.sort(x, axis=0), lax.top_k(x, 2)[0], jnp.argsort(x, axis=1), jnp.median(x, axis=0)

def indexing(x):
    return x.at[1].set(0).at[:, 1].add(2)[jnp.array([0, 2])], x[x[0].astype(int)], lax.dynamic_slice(x, (1, 0), (1, 2))

def windows(x):
    image = x.reshape(1, 3, 3, 1)
    kernel = jnp.ones((2, 2, 1, 1))
    made = lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return made, lax.reduce_window(image, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "SAME"), jnp.cumsum(x, axis=0)

def symbols(x):
    return jnp.concatenate([x, x[::-1]]).reshape(-1, 3).mean(axis=0), jnp.pad(x, ((1, 1), (0, 0)))
"""


def records() -> dict[str, str]:
    """What exports of small programs leave, less most of JAX's frames and the paths of the machine it was made on."""
    import jax

    import jax2onnx

    names = {"__name__": "model"}
    exec(compile(PROGRAMS, "/project/model.py", "exec"), names)
    made = {}
    for name in re.findall(r"^def (\w+)", PROGRAMS, re.M):
        if name == "block":
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "record"
            shape = ("B", 3) if name == "symbols" else (3, 3)
            jax2onnx.to_onnx(names[name], [shape], record=str(path))
            text = path.read_text()
        text = text.replace(str(pathlib.Path(jax.__path__[0]).parent), "/site-packages")
        text = re.sub(r' < "[^"]*":\d+ "[^"]*"\[jax\](\([^)]*\))?', "", text)
        made[name] = text.replace(str(pathlib.Path.cwd()), "/package").replace(sys.prefix, "/python")
    return made


def main(j2o: str, folder: str) -> None:
    models = {
        "plain": chain(0).SerializeToString(),
        "minimal": chain(1).SerializeToString(),
        "full": chain(2).SerializeToString(),
        "merged": merged().SerializeToString(),
        "nested": nested().SerializeToString(),
        "torch": torch().SerializeToString(),
        "compact": compacted(j2o, merged()),
        "compact_nested": compacted(j2o, nested()),
    }
    models["small"], sidecar = divided(j2o, merged())
    models["small_nested"], nested_sidecar = divided(j2o, nested())
    waiting, safetensors = to_be_filled()
    models["waiting"] = waiting.SerializeToString()
    changed = chain(2, ("Cos", "Mul")).SerializeToString()
    # What each seed is called, the command's row in command_harness.c, the models, the second file.
    rows = [
        ("inspect", 0, ("plain", "torch"), b""),
        ("json", 1, ("nested",), b""),
        ("summary", 2, ("compact",), b""),
        ("line", 4, ("minimal", "compact"), b""),
        ("blame", 7, ("torch", "compact_nested"), b""),
        ("blame_source", 8, ("minimal", "full"), SOURCE),
        ("locate", 10, ("merged", "torch"), b""),
        ("diff", 13, ("full",), changed),
        ("stats", 15, ("full",), b""),
        ("text", 17, ("plain", "nested"), b""),
        ("strip", 18, ("compact",), b""),
        ("strip_all", 19, ("torch",), b""),
        ("compact", 20, ("full", "merged", "nested"), b""),
        ("expand", 21, ("compact", "compact_nested"), b""),
        ("report_source", 22, ("minimal", "nested"), SOURCE),
        ("report_profile", 23, ("merged",), b'{"n": 12.5, "n\\u00e91": 3e2}'),
        ("report", 24, ("torch", "compact_nested"), b""),
        ("graft", 25, ("full", "merged", "torch", "compact"), models["plain"]),
        ("graft_nested", 25, ("nested", "compact_nested"), nested().SerializeToString()),
        ("graft_fused", 25, ("full",), fused().SerializeToString()),
        ("graft_map", 26, ("full",), fused().SerializeToString()),
        ("original", 27, ("merged",), models["plain"]),
        ("sidecar", 36, ("small",), sidecar),
        ("join", 37, ("small",), sidecar),
        ("join_nested", 37, ("small_nested",), nested_sidecar),
        ("split", 38, ("full", "compact_nested"), b""),
        ("fill", 43, ("waiting",), safetensors),
    ]
    target = pathlib.Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, text in records().items():
        (target / f"{name}.record").write_text(text)
    for name, command, chosen, other in rows:
        for model in chosen:
            (target / f"{name}_{model}").write_bytes(seed(command, models[model], other))


if __name__ == "__main__":
    main(*sys.argv[1:])
