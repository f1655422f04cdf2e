"""The door: every kind of callable, input, output and name; and what wrong arguments are told."""

import dataclasses
import functools
import threading
import warnings
from collections import OrderedDict, namedtuple

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from export_check import check_export, check_model, metadata, op_types, stripped
from flax import nnx
from flax.core import FrozenDict

import jax2onnx
from jax2onnx import _core, allclose, to_onnx
from jax2onnx._compare.sessions import run_session
from jax2onnx._door.jax_types import InconclusiveDimension

X = np.array([0.5, -1.0, 2.0], np.float32)


def scaled_sine(x):
    return jnp.sin(x) * 2.0


def scaled_by(x, factor):
    return jnp.sin(x) * factor


class Scaler:
    def __init__(self, factor):
        self.factor = factor

    def apply(self, x):
        return jnp.sin(x) * self.factor

    @staticmethod
    def plain(x):
        return jnp.sin(x) * 2.0

    @classmethod
    def doubled(cls, x):
        return cls(2.0).apply(x)

    def __call__(self, x):
        return self.apply(x)


class NnxScale(nnx.Module):
    def __init__(self):
        self.factor = nnx.Param(jnp.full((3,), 2.0))

    def __call__(self, x):
        return jnp.sin(x) * self.factor[...]


class LinenScale(linen.Module):
    @linen.compact
    def __call__(self, x):
        return jnp.sin(x) * self.param("factor", lambda key: jnp.full((3,), 2.0))


class EquinoxScale(eqx.Module):
    factor: jax.Array

    def __call__(self, x):
        return jnp.sin(x) * self.factor


def bound_linen():
    return LinenScale().bind({"params": {"factor": jnp.full((3,), 2.0)}})


CALLABLES = {
    "function": lambda: scaled_sine,
    "lambda": lambda: lambda x: jnp.sin(x) * 2.0,
    "partial": lambda: functools.partial(scaled_by, factor=2.0),
    "partial with positional": lambda: functools.partial(lambda factor, x: scaled_by(x, factor), 2.0),
    "bound method": lambda: Scaler(2.0).apply,
    "class method": lambda: Scaler.doubled,
    "static method": lambda: Scaler.plain,
    "callable object": lambda: Scaler(2.0),
    "object that cannot be hashed": lambda: Scaler(np.full(3, 2.0, np.float32)),
    "jitted": lambda: jax.jit(scaled_sine),
    "jitted method": lambda: jax.jit(Scaler(2.0).apply),
    "partial of jitted": lambda: functools.partial(jax.jit(scaled_by), factor=2.0),
    "decorated": lambda: functools.wraps(scaled_sine)(lambda x: scaled_sine(x)),
    "vmapped": lambda: jax.vmap(scaled_sine),
    "checkpointed": lambda: jax.checkpoint(scaled_sine),
    "NNX module": NnxScale,
    "NNX method": lambda: NnxScale().__call__,
    "Linen bound": bound_linen,
    "Linen apply": lambda: functools.partial(LinenScale().apply, {"params": {"factor": jnp.full((3,), 2.0)}}),
    "Equinox module": lambda: EquinoxScale(jnp.full((3,), 2.0)),
    "Equinox filter_jit": lambda: eqx.filter_jit(EquinoxScale(jnp.full((3,), 2.0))),
}


@pytest.mark.parametrize("kind", CALLABLES)
def test_every_kind_of_callable(kind):
    model = check_export(CALLABLES[kind](), [X])
    assert op_types(model) == ["Sin", "Mul"]


# Inputs


@pytest.mark.parametrize(
    "spec",
    [
        jax.ShapeDtypeStruct((3,), jnp.float32),
        jnp.zeros(3),
        np.zeros(3, np.float32),
        (3,),
        [3],
        (np.int64(3),),
    ],
    ids=["ShapeDtypeStruct", "jax array", "numpy array", "tuple", "list", "numpy size"],
)
def test_every_kind_of_input(spec):
    model = to_onnx(scaled_sine, [spec])
    (value,) = model.graph.input
    assert value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == [3]


@pytest.mark.parametrize(
    ("value", "elem_type"),
    [
        (1.5, onnx.TensorProto.FLOAT),
        (2, onnx.TensorProto.INT32),
        (True, onnx.TensorProto.BOOL),
        (np.float32(1), onnx.TensorProto.FLOAT),
        (np.int8(1), onnx.TensorProto.INT8),
        ((), onnx.TensorProto.FLOAT),
    ],
)
def test_scalars(value, elem_type):
    model = to_onnx(lambda x: x, [value])
    assert model.graph.input[0].type.tensor_type.elem_type == elem_type
    assert len(model.graph.input[0].type.tensor_type.shape.dim) == 0


def test_arrays_as_inputs_count_only_by_shape_and_type():
    assert to_onnx(scaled_sine, [X]) == to_onnx(scaled_sine, [X + 1])


def test_inputs_may_be_any_sequence():
    assert to_onnx(scaled_sine, (X,)) == to_onnx(scaled_sine, [X])


Pair = namedtuple("Pair", "left right")


def test_trees_in_and_out_are_flattened_in_order():
    def fn(tree, pair):
        return {"b": jnp.sin(tree["b"][0]), "a": (pair.left, [jnp.sin(pair.right)])}

    specs = [{"b": [(2,), (4,)], "a": (3,)}, Pair((5,), np.zeros(6, np.float32))]
    model = to_onnx(fn, specs, stacktrace_metadata="full")
    check_model(model)
    sizes = [value.type.tensor_type.shape.dim[0].dim_value for value in model.graph.input]
    assert sizes == [3, 2, 4, 5, 6], "leaves in JAX's order: dicts by key"
    assert [value.type.tensor_type.shape.dim[0].dim_value for value in model.graph.output] == [5, 6, 2]


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    position: object
    speed: object


def test_containers_keep_their_kind():
    def fn(state, ordered, frozen, nothing):
        assert type(state) is State
        assert type(ordered) is OrderedDict
        assert type(frozen) is FrozenDict
        assert nothing is None
        return state.position * state.speed * ordered["b"] * frozen["w"]

    specs = [State((3,), jnp.zeros(3)), OrderedDict(b=(3,), a=[(2,), 1.0]), FrozenDict(w=(3,)), None]
    model = to_onnx(fn, specs)
    assert [len(value.type.tensor_type.shape.dim) for value in model.graph.input] == [1, 1, 1, 1, 0, 1]


@jax.tree_util.register_pytree_node_class
class Blocks:
    """Takes nothing but arrays, not even the shapes that JAX puts in their place."""

    def __init__(self, blocks):
        self.blocks = [jnp.asarray(block) for block in blocks]

    def tree_flatten(self):
        return self.blocks, None

    @classmethod
    def tree_unflatten(cls, _, blocks):
        return cls(blocks)


class Splits:
    def __call__(self, x):
        return {"blocks": Blocks([x + 1, x * 2])}


@pytest.mark.parametrize("fn", [Splits(), Splits().__call__, jax.jit(Splits().__call__), lambda x: Splits()(x)])
def test_results_of_classes_that_hold_nothing_but_arrays(fn):
    check_export(fn, [X])


def test_errors_name_the_place_in_the_tree():
    with pytest.raises(TypeError, match=r"inputs\[0\]\['a'\]\[1\] must be a jax.ShapeDtypeStruct"):
        to_onnx(lambda tree: tree["a"][0], [{"a": [np.zeros(2), "text"]}])
    with pytest.raises(ValueError, match=r"inputs\[0\]\.speed, axis 0: a dimension cannot be negative"):
        to_onnx(lambda state: state.speed, [State((2,), (-2,))])


def test_names_of_dimensions_pass_through():
    model = check_export(scaled_sine, [X], specs=[("B",)], more_args=[[np.zeros(7, np.float32)]])
    assert [value.type.tensor_type.shape.dim[0].dim_param for value in model.graph.input] == ["B"]
    assert [value.type.tensor_type.shape.dim[0].dim_param for value in model.graph.output] == ["B"]


def test_a_name_means_the_same_size_in_all_inputs():
    model = to_onnx(lambda x, y: x * y, [("B", 2), ("B", 2)])
    assert {value.type.tensor_type.shape.dim[0].dim_param for value in model.graph.input} == {"B"}
    with pytest.warns(UserWarning, match="where 'C' is 'B'"):  # test_relations.py has more of these
        to_onnx(lambda x, y: x * y, [("B",), ("C",)])
    with pytest.raises(TypeError):  # JAX's own words
        to_onnx(lambda x, y: x * y, [("B", 2), ("C", 3)])


def test_symbolic_dimensions_of_jax_are_taken():
    shape = jax.export.symbolic_shape("rows, 2")
    model = to_onnx(scaled_sine, [jax.ShapeDtypeStruct(shape, jnp.float32)])
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"


def test_unused_inputs_stay_inputs():
    model = check_export(lambda x, unused: jnp.sin(x), [X, X])
    assert [value.name for value in model.graph.input] == ["in_0", "in_1"]


def test_functions_of_no_argument():
    model = check_export(lambda: jnp.sin(jnp.float32(1.0)), [])
    assert not model.graph.input
    assert len(model.graph.output) == 1


def test_zero_size_arrays():
    check_export(scaled_sine, [np.zeros((0,), np.float32)])
    check_export(scaled_sine, [np.zeros((2, 0, 3), np.float32)])


DTYPES = ["bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
DTYPES += ["float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_goes_in_and_out(dtype):
    array = np.array([0, 1, 1]).astype(jnp.dtype(dtype))
    model = check_export(lambda x: (x, x), [array], x64=dtype.endswith("64"))
    expected = onnx.TensorProto.DataType.Value({"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper()))
    assert {value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)} == {expected}


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_as_a_constant(dtype):
    with jax.enable_x64(True):
        weights = jnp.asarray(np.array([0, 1, 1]).astype(jnp.dtype(dtype)))
    check_export(lambda: weights, [], x64=dtype.endswith("64"))


def test_double_precision_makes_shapes_float64():
    assert to_onnx(scaled_sine, [(3,)], enable_double_precision=True).graph.input[0].type.tensor_type.elem_type == 11
    assert not jax.config.jax_enable_x64, "the setting of the process stays"
    check_export(scaled_sine, [X.astype(np.float64)], x64=True)


# Outputs


def test_outputs_that_are_inputs_constants_or_the_same():
    fixed = jnp.arange(3.0)

    def fn(x):
        y = jnp.sin(x)
        return x, y, y, fixed, 3.0, x, fixed

    model = check_export(fn, [X])
    names = [value.name for value in model.graph.output]
    assert names == [f"out_{index}" for index in range(7)]
    assert len(set(names)) == 7


def test_nothing_but_constants():
    check_export(lambda x: jnp.float32(2.0), [X])
    check_export(lambda: (1, True, 2.5, np.arange(4, dtype=np.int32)), [])


def test_a_function_without_outputs_is_refused():
    with pytest.raises(ValueError, match="returns no array"):
        to_onnx(lambda x: None, [X])


# Names


def test_given_names():
    model = to_onnx(scaled_by, [X, ()], input_names=["left", "factor"], output_names=["product"], model_name="scale")
    assert [value.name for value in model.graph.input] == ["left", "factor"]
    assert [value.name for value in model.graph.output] == ["product"]
    assert model.graph.name == "scale"
    assert to_onnx(scaled_sine, [X]).graph.name == "jax_model"


@pytest.mark.parametrize("name", ["sin_0", "Sin_0", "const_f32", "mul_0", "weights"])
def test_given_names_win_over_ours(name):
    weights = jnp.arange(3.0)
    model = check_export(lambda x: jnp.sin(jnp.sin(x) * 2.0) * weights, [X], input_names=[name])
    assert model.graph.input[0].name == name
    names = [value.name for value in model.graph.input] + [value.name for value in model.graph.initializer]
    names += [output for node in model.graph.node for output in node.output]
    assert len(names) == len(set(names))
    model = check_export(lambda x: jnp.sin(jnp.sin(x) * 2.0) * weights, [X], output_names=[name])
    assert model.graph.output[0].name == name


def test_input_params_become_named_inputs():
    model = to_onnx(scaled_by, [X], input_params={"factor": 2.0}, stacktrace_metadata="full")
    check_model(model)
    assert [value.name for value in model.graph.input] == ["in_0", "factor"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = run_session(session, {"in_0": X, "factor": np.array(3.0, np.float32)})
    np.testing.assert_allclose(result, np.sin(X) * 3.0, rtol=1e-6)


def test_input_params_may_be_trees():
    def fn(x, *, weights):
        return x * weights["scale"] * weights["layers"][0]

    params = {"weights": {"scale": (3,), "layers": [(3,)]}}
    model = to_onnx(fn, [X], input_params=params)
    assert [value.name for value in model.graph.input] == ["in_0", "weights.layers.0", "weights.scale"]


def test_input_names_may_name_keyword_inputs_too():
    model = to_onnx(scaled_by, [X], input_params={"factor": 2.0}, input_names=["x", "by"])
    assert [value.name for value in model.graph.input] == ["x", "by"]


# Names of parameters


def initializer_names(fn, *inputs):
    model = to_onnx(fn, inputs or [X])
    return {tensor.name for tensor in model.graph.initializer}


class Block(nnx.Module):
    def __init__(self):
        self.scale = nnx.Param(jnp.arange(3.0))


class Stack(nnx.Module):
    def __init__(self):
        self.blocks = nnx.List([Block(), Block()])
        self.head = nnx.Param(jnp.arange(3.0))

    def __call__(self, x):
        for block in self.blocks:
            x = jnp.sin(x) * block.scale[...]
        return x * self.head[...]


def test_parameters_of_nnx_modules_are_named_by_path():
    assert initializer_names(Stack()) == {"blocks.0.scale", "blocks.1.scale", "head"}


def test_parameters_seen_through_a_closure_lose_the_variables_name():
    model = Stack()
    assert initializer_names(lambda x: model(x)) == {"blocks.0.scale", "blocks.1.scale", "head"}


def test_a_part_that_holds_all_parameters_stays_in_their_names():
    class Tower(nnx.Module):
        def __init__(self):
            self.blocks = nnx.List([Block(), Block()])

        def __call__(self, x):
            return x * self.blocks[0].scale[...] + self.blocks[1].scale[...]

    model = Tower()
    assert initializer_names(model) == {"blocks.0.scale", "blocks.1.scale"}
    assert initializer_names(lambda x: model(x)) == {"blocks.0.scale", "blocks.1.scale"}


class LinenStack(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = LinenScale(name="first")(x)
        return LinenScale(name="second")(x)


def test_parameters_of_linen_modules_are_named_by_path():
    module = LinenStack()
    variables = module.init(jax.random.key(0), X)
    expected = {"first.factor", "second.factor"}
    assert initializer_names(module.bind(variables)) == expected
    assert initializer_names(functools.partial(module.apply, variables)) == expected
    assert initializer_names(lambda x: module.apply(variables, x)) == expected


class EquinoxStack(eqx.Module):
    layers: list
    last: EquinoxScale

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


def test_parameters_of_equinox_modules_are_named_by_path():
    module = EquinoxStack([EquinoxScale(jnp.arange(3.0)), EquinoxScale(jnp.arange(3.0))], EquinoxScale(jnp.ones(3)))
    expected = {"layers.0.factor", "layers.1.factor", "last.factor"}
    assert initializer_names(module) == expected
    assert initializer_names(lambda x: module(x)) == expected
    assert initializer_names(jax.jit(lambda x: module(x))) == expected


def test_parameters_in_dicts_and_numpy_arrays_are_named_by_path():
    weights = {"encoder": {"scale": np.arange(3.0, dtype=np.float32)}, "decoder": {"scale": jnp.arange(3.0)}}

    def fn(x):
        return x * weights["encoder"]["scale"] * weights["decoder"]["scale"]

    assert initializer_names(fn) == {"encoder.scale", "decoder.scale"}


def test_a_single_array_is_named_by_its_variable():
    table = np.arange(3.0, dtype=np.float32)
    assert initializer_names(lambda x: x * table) == {"table"}


def test_arrays_out_of_reach_are_named_by_what_they_are():
    assert initializer_names(lambda x: x * np.arange(3, dtype=np.float32)) == {"const_f32_3"}


def test_attributes_of_objects_are_named_by_path():
    assert initializer_names(Scaler(jnp.arange(3.0))) == {"factor"}


# Layout


def image_scale(x):
    return x * jnp.arange(1.0, 5.0)


def test_nchw_inputs_and_outputs():
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    model = to_onnx(image_scale, [x], inputs_as_nchw=[0], outputs_as_nchw=["out_0"], stacktrace_metadata="full")
    check_model(model)
    for value in (model.graph.input[0], model.graph.output[0]):
        assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == [1, 4, 2, 3]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"in_0": x.transpose(0, 3, 1, 2)})
    np.testing.assert_array_equal(result.transpose(0, 2, 3, 1), np.asarray(image_scale(x)))


def test_nchw_by_name_and_negative_index():
    x = np.zeros((1, 2, 3, 4), np.float32)
    named = to_onnx(image_scale, [x], inputs_as_nchw=["in_0"])
    assert named == to_onnx(image_scale, [x], inputs_as_nchw=[-1])
    assert named != to_onnx(image_scale, [x])


# What comes back


def test_return_modes(tmp_path):
    import onnx_ir

    path = tmp_path / "model.onnx"
    proto = to_onnx(scaled_sine, [X])
    assert isinstance(proto, onnx.ModelProto)
    ir = to_onnx(scaled_sine, [X], return_mode="ir")
    assert isinstance(ir, onnx_ir.Model)
    assert [node.op_type for node in ir.graph] == ["Sin", "Mul"]
    assert to_onnx(scaled_sine, [X], return_mode="file", output_path=path) == str(path)
    assert onnx.load(path) == proto


@pytest.mark.parametrize("opset", range(17, min(_core.NEWEST_OPSET, onnx.defs.onnx_opset_version()) + 1))
def test_every_opset(opset):
    model = to_onnx(scaled_sine, [X], opset=opset)
    onnx.checker.check_model(model, full_check=True)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", opset)]


def test_ir_version_is_the_first_with_metadata_on_nodes():
    assert to_onnx(scaled_sine, [X]).ir_version == 8
    assert to_onnx(scaled_sine, [X], stacktrace_metadata="full").ir_version == 10


def test_intermediate_values_have_types():
    model = to_onnx(lambda x: jnp.sin(jnp.sin(x) * 2.0), [("B", 3)])
    (first, second) = model.graph.value_info
    assert first.name == "sin_0"
    assert [dim.dim_param or dim.dim_value for dim in second.type.tensor_type.shape.dim] == ["B", 3]


def test_same_program_same_bytes():
    exports = {to_onnx(Stack(), [X], stacktrace_metadata="full").SerializeToString() for _ in range(3)}
    assert len(exports) == 1


def test_exports_in_threads_do_not_see_each_other():
    programs = [lambda x, n=n: functools.reduce(lambda y, _: jnp.sin(y) * 2.0, range(n), x) for n in range(1, 9)]
    expected = [to_onnx(program, [X], stacktrace_metadata="full") for program in programs]
    results = [None] * len(programs)

    def work(index):
        for _ in range(3):
            results[index] = to_onnx(programs[index], [X], stacktrace_metadata="full")

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(programs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for model, alone in zip(results, expected, strict=True):
        assert stripped(model) == stripped(alone)
        assert [metadata(node)["pkg.jax2onnx.jax_traceback"] for node in model.graph.node] == [
            metadata(node)["pkg.jax2onnx.jax_traceback"] for node in alone.graph.node
        ]


def test_record_of_the_traced_program(tmp_path):
    to_onnx(scaled_sine, [X], record_primitive_calls_file=tmp_path / "calls.txt")
    text = (tmp_path / "calls.txt").read_text()
    assert "sin" in text
    assert "mul" in text


# Wrong arguments

WRONG = [
    ({"fn": 3}, TypeError, "fn must be callable; got int"),
    ({"inputs": None}, TypeError, "inputs must be a sequence with one entry per argument"),
    ({"inputs": X}, TypeError, "inputs must be a sequence"),
    ({"inputs": "f32"}, TypeError, "inputs must be a sequence"),
    ({"inputs": {"x": X}}, TypeError, "inputs must be a sequence"),
    ({"inputs": ["f32[2]"]}, TypeError, r"inputs\[0\] must be a jax.ShapeDtypeStruct, an array, or a shape tuple"),
    ({"inputs": [object()]}, TypeError, r"inputs\[0\] must be a jax.ShapeDtypeStruct"),
    ({"inputs": [(None, 3)]}, ValueError, "a dimension is None; give it a name"),
    ({"inputs": [(-1, 3)]}, ValueError, "a dimension cannot be negative; got -1"),
    ({"inputs": [(2.0, 3)]}, TypeError, "a dimension must be an integer or a name; got 2.0"),
    ({"inputs": [("a b",)]}, ValueError, "'a b' is not a dimension name or expression"),
    ({"inputs": [np.array(["text"])]}, TypeError, r"inputs\[0\]"),
    ({"input_params": [1]}, TypeError, "input_params must be a dict of argument name -> value"),
    ({"input_params": {1: X}}, TypeError, "input_params must be a dict of argument name -> value"),
    ({"input_params": {"factor": "two"}}, TypeError, r"input_params\['factor'\] must be"),
    ({"opset": 8}, ValueError, r"opset must be between 13 and \d+; got 8"),
    ({"opset": 999}, ValueError, r"opset must be between 13 and \d+; got 999"),
    ({"opset": "23"}, TypeError, "opset must be an integer or 'auto'; got '23'"),
    ({"opset": True}, TypeError, "opset must be an integer"),
    ({"model_name": ""}, TypeError, "model_name must be a non-empty string"),
    ({"model_name": 3}, TypeError, "model_name must be a non-empty string; got 3"),
    ({"return_mode": "bytes"}, ValueError, "return_mode must be one of 'proto', 'ir', 'file'; got 'bytes'"),
    ({"return_mode": "file"}, ValueError, 'return_mode="file" needs output_path'),
    ({"return_mode": "file", "output_path": 3}, TypeError, "output_path must be a path; got 3"),
    ({"export_mode": "mobile"}, ValueError, "export_mode must be one of 'standard', 'web'; got 'mobile'"),
    ({"normalization_mode": "no"}, ValueError, "normalization_mode must be one of 'auto', 'prefer_native'"),
    ({"stacktrace_metadata": "some"}, ValueError, "stacktrace_metadata must be None, a bool, or one of 'off'"),
    ({"input_names": "x"}, TypeError, "input_names must be a sequence of strings; got 'x'"),
    ({"input_names": [3]}, TypeError, "input_names must be a sequence of strings"),
    ({"input_names": ["a", "b"]}, ValueError, "input_names must have 1 name; got 2"),
    ({"input_names": [""]}, ValueError, "input_names contains an empty name"),
    ({"output_names": ["a", "b"]}, ValueError, "output_names must have 1 name; got 2"),
    ({"input_names": ["a"], "output_names": ["a"]}, ValueError, "the name 'a' is given to two inputs or outputs"),
    ({"inputs_as_nchw": 0}, TypeError, "inputs_as_nchw must be a sequence of indices or names; got 0"),
    ({"inputs_as_nchw": [1]}, ValueError, "inputs_as_nchw: 1 is neither an index below 1 nor one of"),
    ({"inputs_as_nchw": ["y"]}, ValueError, "inputs_as_nchw: 'y' is neither an index"),
    ({"inputs_as_nchw": [0]}, ValueError, "inputs_as_nchw: 'in_0' has 1 dimensions; 4 are needed"),
    ({"outputs_as_nchw": [0]}, ValueError, "outputs_as_nchw: 'out_0' has 1 dimensions; 4 are needed"),
    ({"enable_double_precision": "yes"}, TypeError, "enable_double_precision must be a bool; got 'yes'"),
    ({"record_primitive_calls_file": 3}, TypeError, "record_primitive_calls_file must be a path; got 3"),
]


@pytest.mark.parametrize(("changed", "kind", "message"), WRONG)
def test_wrong_arguments_say_what_was_expected(changed, kind, message):
    arguments = {"fn": scaled_sine, "inputs": [X], **changed}
    with pytest.raises(kind, match=message):
        to_onnx(arguments.pop("fn"), arguments.pop("inputs"), **arguments)


# Errors of the program itself


class OwnError(Exception):
    pass


def failing(x):
    raise OwnError("mine")


def test_an_exception_of_the_users_passes_untouched():
    with pytest.raises(OwnError) as caught:
        to_onnx(failing, [X])
    assert caught.type is OwnError
    assert str(caught.value) == "mine"
    assert failing.__code__ in [entry.frame.code.raw for entry in caught.traceback]
    raised = OwnError("this very object")

    def raising(x):
        raise raised

    with pytest.raises(OwnError) as caught:
        to_onnx(raising, [X])
    assert caught.value is raised
    assert raised.__cause__ is None


def test_a_function_that_raises_is_called_once():
    calls = []

    class Raises:
        def __call__(self, x):
            calls.append(x)
            raise TypeError("of the user")

    for fn in (Raises(), Raises().__call__, jax.jit(Raises().__call__), lambda x: Raises()(x)):
        with pytest.raises(TypeError, match="of the user"):
            to_onnx(fn, [X])
    assert len(calls) == 4


def test_a_wrong_number_of_inputs_is_the_users_error():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        to_onnx(scaled_by, [X])


def unsupported(x):
    first = jax.pure_callback(np.sin, x, x)
    second = jax.ffi.ffi_call("somewhere", x)(x)
    return first, jax.jit(jnp.sin)(second)


def test_all_unsupported_primitives_are_listed_with_their_lines(tmp_path):
    path = tmp_path / "model.onnx"
    with pytest.raises(jax2onnx.UnsupportedError) as caught:
        to_onnx(unsupported, [(2, 2)], return_mode="file", output_path=path)
    first = unsupported.__code__.co_firstlineno + 1
    primitives = {item[0]: item for item in caught.value.items}
    assert {"pure_callback", "ffi_call"} <= set(primitives)
    assert primitives["pure_callback"][2:] == (__file__, first, "unsupported")
    assert primitives["ffi_call"][2:] == (__file__, first + 1, "unsupported")
    message = str(caught.value)
    assert f'File "{__file__}", line {first}, in unsupported' in message
    assert "first = jax.pure_callback(np.sin, x, x)" in message
    assert 'second = jax.ffi.ffi_call("somewhere", x)(x)' in message
    assert isinstance(caught.value, NotImplementedError)
    assert caught.value.__cause__ is None
    assert list(tmp_path.iterdir()) == [], "nothing is written"


# allclose


def test_allclose_compares_every_output(tmp_path):
    path = tmp_path / "model.onnx"
    to_onnx(scaled_by, [X], input_params={"factor": 2.0}, return_mode="file", output_path=path)
    assert (
        allclose(scaled_by, path, [X], input_params={"factor": 2.0})
        == (
            True,
            "the output agrees (largest difference 0)",
        )
        or allclose(scaled_by, path, [X], input_params={"factor": 2.0})[0]
    )
    same, message = allclose(lambda x, factor: scaled_by(x, factor) + 0.1, path, [(3,)], input_params={"factor": 2.0})
    assert not same
    assert "out_0: 3 of 3 elements differ; first at (0,)" in message
    assert "1 inputs" not in message
    same, message = allclose(scaled_sine, path, [X])
    assert not same
    assert message == "the model has 2 inputs, the function was given 1"


def test_allclose_of_other_types(tmp_path):
    path = tmp_path / "model.onnx"
    for dtype in (ml_dtypes.bfloat16, np.float16, np.int32):
        x = np.array([1, 2, 3]).astype(dtype)
        to_onnx(lambda x: x * x, [x], return_mode="file", output_path=path)
        assert allclose(lambda x: x * x, path, [x])[0]
    to_onnx(scaled_sine, [(3,)], return_mode="file", output_path=path, enable_double_precision=True)
    assert allclose(scaled_sine, path, [(3,)], enable_double_precision=True)[0]


def test_allclose_in_the_models_layout(tmp_path):
    path = tmp_path / "model.onnx"
    options = {"inputs_as_nchw": [0], "outputs_as_nchw": [0]}
    to_onnx(image_scale, [(1, 2, 3, 4)], return_mode="file", output_path=path, **options)
    assert allclose(image_scale, path, [(1, 2, 3, 4)], **options)[0]


def test_every_node_of_an_export_says_where_it_came_from():
    model = to_onnx(scaled_sine, [X], stacktrace_metadata=True)
    line = scaled_sine.__code__.co_firstlineno + 1
    for node in model.graph.node:
        assert metadata(node)["pkg.jax2onnx.callsite"] == f"scaled_sine:{line}"


@pytest.mark.parametrize("number", [False, True])
def test_a_function_that_needs_a_constant_size_is_told_which_and_where(number):
    def fn(x):
        rows = x.shape[0]
        return x * 2 if (int(rows) if number else rows > 3) else x

    with pytest.raises(InconclusiveDimension) as caught:
        to_onnx(fn, [("B", 3)])
    message = str(caught.value)
    assert "'B' (inputs[0], axis 0) has no constant size" in message
    assert f'File "{__file__}", line {fn.__code__.co_firstlineno + 2}' in message
    assert "return x * 2 if" in message


def test_inputs_that_jax_narrows_are_reported():
    def fn(x, tree, n):
        return x * n + tree["a"]

    inputs = [np.ones(3), {"a": jax.ShapeDtypeStruct((3,), np.float32)}]
    with pytest.warns(UserWarning) as caught:
        model = to_onnx(fn, inputs, {"n": np.int64(2)})
    (message,) = [str(warning.message) for warning in caught]
    assert message.startswith("JAX narrows inputs[0] (float64 to float32), input_params['n'] (int64 to int32), and")
    assert caught[0].filename == __file__
    assert [value.type.tensor_type.elem_type for value in model.graph.input] == [1, 1, 6]


@pytest.mark.parametrize("wide", [np.float64, np.int64, np.uint64, np.complex128])
def test_wide_inputs_stay_wide_with_double_precision(wide):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = to_onnx(lambda x: x + x, [np.ones(3, wide)], enable_double_precision=True)
        to_onnx(lambda x: x + x, [np.ones(3, np.float32)], {})
        to_onnx(lambda x: x + x, [3])
    expected = {np.float64: 11, np.int64: 7, np.uint64: 13, np.complex128: 11}[wide]
    assert model.graph.input[0].type.tensor_type.elem_type == expected
