"""Programs that were written for the Python jax2onnx run unchanged: what its documentation shows and allows."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from flax import nnx

import jax2onnx
from jax2onnx import allclose, onnx_function, to_onnx

X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)


class Perceptron(nnx.Module):
    """As its quickstart has it: in training mode, with layers that change their own state."""

    def __init__(self, inside, between, outside, *, rngs):
        self.first = nnx.Linear(inside, between, rngs=rngs)
        self.dropout = nnx.Dropout(rate=0.1, rngs=rngs)
        self.norm = nnx.BatchNorm(between, rngs=rngs)
        self.second = nnx.Linear(between, outside, rngs=rngs)

    def __call__(self, x):
        return self.second(nnx.gelu(self.dropout(self.norm(self.first(x)))))


@onnx_function
class Block(nnx.Module):
    def __init__(self, size, *, rngs):
        self.first = nnx.Linear(size, size, rngs=rngs)
        self.norm = nnx.BatchNorm(size, rngs=rngs)

    def __call__(self, x):
        return nnx.gelu(self.norm(nnx.gelu(self.first(x))))


class Blocks(nnx.Module):
    def __init__(self, size, *, rngs):
        self.one, self.two = Block(size, rngs=rngs), Block(size, rngs=rngs)

    def __call__(self, x):
        return self.two(self.one(x))


class Switched(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(4, 4, rngs=rngs)
        self.dropout = nnx.Dropout(rate=0.5, rngs=rngs)

    def __call__(self, x, deterministic=True):
        return self.dropout(self.linear(x), deterministic=deterministic)


def run(model, x, **flags):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"in_0": x, **{name: np.asarray(value) for name, value in flags.items()}})


def state_of(model):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(nnx.state(model, (nnx.Param, nnx.BatchStat, nnx.RngCount)))]


def test_the_quickstart(tmp_path):
    model = Perceptron(30, 20, 10, rngs=nnx.Rngs(0))
    before = state_of(model)
    path = tmp_path / "exports" / "today" / "my_callable.onnx"
    assert to_onnx(model, [("B", 30)], return_mode="file", output_path=str(path)) == str(path)
    assert all(map(np.array_equal, before, state_of(model)))  # the user's model is as it was
    passed, message = allclose(model, str(path), inputs=[(5, 30)])
    assert passed, message


def test_the_quickstart_of_functions(tmp_path):
    model = Blocks(16, rngs=nnx.Rngs(0))
    path = to_onnx(model, [(10, 16)], return_mode="file", output_path=tmp_path / "model_with_function.onnx")
    assert [function.name for function in onnx.load(path).functions] == ["Block", "Block_2"]
    passed, message = allclose(model, path, inputs=[(10, 16)])
    assert passed, message


@pytest.mark.parametrize("how", ["closure", "partial", "method", "inside a list"])
def test_a_model_that_changes_is_found_wherever_the_function_holds_it(how):
    import functools

    model = Perceptron(4, 3, 2, rngs=nnx.Rngs(1))
    models = [model]
    fn = {
        "closure": lambda x: model(x),
        "partial": functools.partial(lambda layer, x: layer(x), model),
        "method": model.__call__,
        "inside a list": lambda x: models[0](x),
    }[how]
    exported = to_onnx(fn, [("B", 4)], stacktrace_metadata="full")
    assert np.allclose(run(exported, X)[0], model(X), atol=1e-5)
    names = {tensor.name for tensor in exported.graph.initializer}
    assert any("first.kernel" in name for name in names), names


def test_other_errors_of_a_trace_stay():
    def branches(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(jax.errors.TracerBoolConversionError):
        to_onnx(branches, [(3,)])
    with pytest.raises(jax.errors.TracerBoolConversionError):
        to_onnx(lambda x, scale: branches(x * scale), [(3,)], input_params={"scale": 2.0})


# Flags that stay inputs


def test_a_flag_that_python_branches_on_is_one_if():
    model = Switched(nnx.Rngs(0))
    exported = to_onnx(model, [("B", 4)], input_params={"deterministic": True}, stacktrace_metadata="full")
    assert [value.name for value in exported.graph.input] == ["in_0", "deterministic"]
    assert exported.graph.input[1].type.tensor_type.elem_type == onnx.TensorProto.BOOL
    assert [node.op_type for node in exported.graph.node].count("If") == 1
    for value in (True, False):
        got = run(exported, X, deterministic=value)[0]
        assert np.allclose(got, nnx.clone(model)(X, deterministic=value), atol=1e-6), value


def test_several_flags():
    def fn(x, *, negate, double):
        x = -x if negate else x
        return x * 2 if double else x + 1

    model = to_onnx(fn, [("B", 4)], input_params={"negate": False, "double": True})
    for negate in (False, True):
        for double in (False, True):
            got = run(model, X, negate=negate, double=double)[0]
            assert np.allclose(got, fn(X, negate=negate, double=double))


def test_a_flag_that_is_computed_with_is_an_input_as_ever():
    model = to_onnx(lambda x, flag: jnp.where(flag, x, -x), [(3,)], input_params={"flag": True})
    assert [node.op_type for node in model.graph.node] == ["Neg", "Where"]


def test_of_a_number_that_python_needs_the_given_one_is_used():
    def fn(x, steps, flip):
        for _ in range(steps):
            x = x * 2
        return -x if flip else x

    with pytest.warns(UserWarning, match=r"needs the value of 'steps' .* made for steps=3, and its input") as caught:
        model = to_onnx(fn, [(3,)], input_params={"steps": 3, "flip": True})
    assert caught[0].filename == __file__
    assert [value.name for value in model.graph.input] == ["in_0", "flip", "steps"]
    x = np.float32([1, 2, 3])
    assert np.allclose(run(model, x, steps=np.int32(3), flip=False)[0], x * 8)
    assert np.allclose(run(model, x, steps=np.int32(3), flip=True)[0], x * -8)


def test_a_flag_whose_other_value_cannot_be_traced():
    def fn(x, training):
        if training:
            raise RuntimeError("only in inference")
        return x + 1

    with pytest.warns(UserWarning, match=r"'training' .*\(RuntimeError: only in inference\).*training=False"):
        model = to_onnx(fn, [(3,)], input_params={"training": False})
    assert np.allclose(run(model, np.float32([1, 2, 3]), training=False)[0], [2, 3, 4])


def test_a_flag_that_changes_the_shape_of_the_result():
    with pytest.warns(UserWarning, match=r"made for pooled=True"):
        model = to_onnx(lambda x, pooled: x.mean(0) if pooled else x, [(3, 4)], input_params={"pooled": True})
    assert run(model, X, pooled=True)[0].shape == (4,)


# Arguments


def test_output_path_with_other_return_modes(tmp_path):
    path = tmp_path / "new" / "m.onnx"
    model = to_onnx(jnp.sin, [(3,)], output_path=path)
    assert onnx.load(path) == model == to_onnx(jnp.sin, [(3,)])
    assert to_onnx(jnp.sin, [(3,)], return_mode="ir", output_path=path).graph.num_nodes() == 1


@pytest.mark.parametrize("mode", ["PROTO", "Proto", "IR", "File"])
def test_return_mode_in_capitals(mode, tmp_path):
    result = to_onnx(jnp.sin, [(3,)], return_mode=mode, output_path=tmp_path / "m.onnx")
    assert type(result).__name__ == {"proto": "ModelProto", "ir": "Model", "file": "str"}[mode.lower()]


@pytest.mark.parametrize("opset", range(13, 17))
def test_old_opsets(opset):
    model = to_onnx(lambda x: jax.nn.softmax(x - x.mean()), [(3, 4)], opset=opset)
    assert model.opset_import[0].version == opset
    onnx.checker.check_model(model, full_check=True)
    assert np.allclose(run(model, X)[0], jax.nn.softmax(X - X.mean()), atol=1e-6)


@pytest.mark.parametrize("opset", range(9, 13))
def test_older_ones_give_the_oldest_that_there_is(opset):
    with pytest.warns(UserWarning, match=f"opset {opset} is too old; using opset 13"):
        assert to_onnx(jnp.sin, [(3,)], opset=opset).opset_import[0].version == 13


def test_what_allclose_takes():
    key = jax.random.key(3)
    sample = lambda key: jax.random.normal(key, (3,))  # noqa: E731
    assert allclose(sample, to_onnx(sample, [key]), [key])[0]
    tree = {"a": (2, 3), "b": [(3, 2)]}
    product = lambda tree: tree["a"] @ tree["b"][0]  # noqa: E731
    assert allclose(product, to_onnx(product, [tree], return_mode="ir"), [tree])[0]
    assert allclose(jnp.sin, to_onnx(jnp.sin, [("B", 3)]), [("B", 3)])[0]
    written = lambda x: x.at[0].set(1)  # noqa: E731
    assert allclose(written, to_onnx(written, [X]), [X])[0]
    passed, message = allclose(jnp.cos, to_onnx(jnp.sin, [(3,)]), [(3,)])
    assert not passed and "in ONNX Runtime" in message and "in JAX" in message


# Names at their places


def test_import_paths():
    from jax2onnx import user_interface

    for name in user_interface.__all__:
        assert getattr(user_interface, name) is getattr(jax2onnx, name)


def test_a_web_model(tmp_path):
    from jax2onnx.quickstart import build_quickstart_web_model

    model = build_quickstart_web_model()
    path = to_onnx(model, [("B", 8)], return_mode="file", output_path=tmp_path / "web.onnx", export_mode="web")
    passed, message = allclose(model, path, [(2, 8)])
    assert passed, message


def test_comparing_in_the_web_runtime_says_what_is_missing(tmp_path, monkeypatch):
    from jax2onnx import allclose_onnxruntime_web

    path = to_onnx(jnp.sin, [(3,)], return_mode="file", output_path=tmp_path / "m.onnx")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"Node\.js is not found"):
        allclose_onnxruntime_web(path, [np.zeros(3, np.float32)])


def test_comparing_in_the_web_runtime(tmp_path, monkeypatch):
    """The command's side of the exchange, with a runtime of our own in place of Node.js."""
    from jax2onnx import allclose_onnxruntime_web

    path = to_onnx(lambda x: (x * 2, x > 0), [(3,)], return_mode="file", output_path=tmp_path / "m.onnx")
    node = tmp_path / "node"
    node.write_text(
        f"#!{sys.executable}\n"
        "import json, sys, numpy as np, onnxruntime\n"
        "request = json.load(open(sys.argv[2]))\n"
        "session = onnxruntime.InferenceSession(request['model'])\n"
        "load = lambda i: np.fromfile(i['file'], i['type']).reshape(i['shape'])\n"
        "results = session.run(None, {i['name']: load(i) for i in request['inputs']})\n"
        "answer = []\n"
        "for number, result in enumerate(results):\n"
        "    file = request['folder'] + f'/output_{number}'\n"
        "    (result if number else result * np.float32(open(__file__ + '.factor').read())).tofile(file)\n"
        "    answer.append({'file': file, 'type': result.dtype.name, 'shape': result.shape})\n"
        "json.dump(answer, open(request['folder'] + '/answer', 'w'))\n"
    )
    node.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    x = np.float32([1, -2, 3])
    (tmp_path / "node.factor").write_text("1")
    assert allclose_onnxruntime_web(path, [x])[0]
    (tmp_path / "node.factor").write_text("2")
    passed, message = allclose_onnxruntime_web(path, [x])
    assert not passed and "4.0 in onnxruntime-web, 2.0 in ONNX Runtime" in message


def test_expect_graph_where_it_is_there():
    from jax2onnx.plugins._post_check_onnx_graph import expect_graph

    model = to_onnx(lambda x: jnp.tanh(jnp.sin(x) * 2.0), [("B", 4)])
    assert expect_graph(["Sin:Bx4 -> Mul -> Tanh:Bx4"], no_unused_inputs=True)(model)
    assert expect_graph([("Mul", {"counts": {"Mul": 1}, "inputs": {1: {"const": 2.0}}})])(model)
    assert expect_graph(["Cos", "Sin"], mode="any")(model)
    for wrong in (
        ["Sin -> Tanh"],
        ["Sin:Bx5"],
        [("Mul", {"counts": {"Mul": 2}})],
        [{"path": "Mul", "must_absent": ["Sin"]}],
    ):
        assert not expect_graph(wrong, explain_on_fail=False)(model), wrong
    assert not expect_graph(["Sin"], must_absent=["Tanh"], explain_on_fail=False)(model)


def test_a_plugin_of_the_other_package():
    code = """
import jax, jax.numpy as jnp, numpy as np, json, onnxruntime
from jax.extend.core import Primitive
from jax2onnx import to_onnx
from jax2onnx.plugins.plugin_system import PrimitiveLeafPlugin, register_primitive

softer_p = Primitive("softer")
softer_p.def_abstract_eval(lambda x: x)

@register_primitive(jaxpr_primitive="softer", context="primitives.mine", component="softer", testcases=[])
class SofterPlugin(PrimitiveLeafPlugin):
    def lower(self, ctx, eqn):
        (x_var,), (out_var,) = eqn.invars, eqn.outvars
        x = ctx.get_value_for_var(x_var, name_hint=ctx.fresh_name("in"))
        out = ctx.get_value_for_var(out_var, name_hint=ctx.fresh_name("out"))
        half = ctx.builder.add_initializer_from_scalar(name="half", value=np.float32(0.5))
        size = ctx.builder.Abs(x, _outputs=[ctx.fresh_name("abs")])
        top, where = ctx.builder.TopK(size, ctx.builder.const_i64("k", [1]), axis=-1, _outputs=["top", "where"])
        scaled = ctx.builder.Mul(size, half)
        result = ctx.builder.Add(scaled, top, _outputs=[out.name])
        result.type, result.shape = out.type, out.shape
        ctx.bind_value_for_var(out_var, result)

model = to_onnx(lambda x: softer_p.bind(x), [(2, 3)], stacktrace_metadata=True)
x = np.float32([[1, -2, 3], [4, -5, 6]])
session = onnxruntime.InferenceSession(model.SerializeToString())
(y,) = session.run(None, {"in_0": x})
assert np.allclose(y, np.abs(x) / 2 + np.abs(x).max(-1, keepdims=True))
print(json.dumps([[node.op_type, {e.key[13:]: e.value for e in node.metadata_props}] for node in model.graph.node]))

@register_primitive(jaxpr_primitive="softer")
class Beyond(PrimitiveLeafPlugin):
    def lower(self, ctx, eqn):
        ctx.builder.op_multi_out("Split", [], num_outputs=2)

try:
    to_onnx(lambda x: softer_p.bind(x), [(2, 3)])
except NotImplementedError as error:
    print(json.dumps(str(error)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    nodes, refusal = map(json.loads, done.stdout.splitlines())
    assert [operator for operator, _ in nodes] == ["Abs", "TopK", "Mul", "Add"]
    assert all(said["plugin"].startswith("SofterPlugin.lower:") for _, said in nodes)
    assert "ctx.builder.op_multi_out is not supported; write it with jax2onnx.plugin" in refusal


POLICIES = {
    "continuous": lambda obs, w: jnp.tanh(jnp.tanh(obs @ w) @ w.T[:, :4]),
    "discrete": lambda obs, w: jnp.argmax(jnp.tanh(obs @ w), axis=-1).astype(jnp.int32),
}


@pytest.mark.parametrize("kind", POLICIES)
def test_a_policy_is_deployed_and_validated(kind, tmp_path):
    """The way from the export to a validated file: named interface, any batch, checker, shapes, runtime, JAX."""
    weights = np.random.default_rng(0).normal(size=(17, 17)).astype(np.float32)
    policy, path = lambda obs: POLICIES[kind](obs, weights), tmp_path / "policy.onnx"
    names = {"input_names": ["obs"], "output_names": ["action"]}
    to_onnx(policy, inputs=[("B", 17)], **names, return_mode="file", output_path=str(path))
    model = onnx.load(path)
    onnx.checker.check_model(model)
    onnx.shape_inference.infer_shapes(model, strict_mode=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [value.name for value in (*session.get_inputs(), *session.get_outputs())] == ["obs", "action"]
    for batch in (1, 2, 7):
        obs = np.linspace(-1.5, 1.5, batch * 17, dtype=np.float32).reshape(batch, 17)
        (action,) = session.run(["action"], {"obs": obs})
        assert action.shape[0] == batch
        passed, message = allclose(policy, str(path), inputs=[obs], rtol=1e-5, atol=1e-5)
        assert passed, message


def test_a_convolution_with_the_channels_in_front():
    kernel = np.random.default_rng(0).normal(size=(3, 3, 3, 4)).astype(np.float32)

    def fn(x):
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    specs = [jax.ShapeDtypeStruct((1, 32, 32, 3), jnp.float32)]
    model = to_onnx(fn, inputs=specs, inputs_as_nchw=[0], outputs_as_nchw=[0])
    assert [node.op_type for node in model.graph.node] == ["Conv"]
    shapes = [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.input]
    assert shapes == [[1, 3, 32, 32]]


def test_a_function_with_a_namespace_and_a_type():
    @onnx_function(unique=True, namespace="my.model", type="Square")
    def square(x):
        return x * x

    model = to_onnx(lambda x: square(square(x)), [(2, 4)])
    assert [function.name for function in model.functions] == ["Square"]
    assert model.functions[0].domain.startswith("my.model")
    assert [node.op_type for node in model.graph.node] == ["Square", "Square"]
