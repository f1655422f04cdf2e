"""Every node names the right line: checked against an independent walk over the jaxpr, and by hand on library code."""

import functools
import importlib
import inspect
import os
import re
import subprocess
import sys
import textwrap

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from export_check import all_nodes, check_model, expected_callsites, metadata, stripped
from flax import nnx

import jax2onnx
from jax2onnx import to_onnx

CALLSITE, PLUGIN, STACKTRACE, TRACEBACK = (
    f"pkg.jax2onnx.{key}" for key in ("callsite", "plugin", "stacktrace", "jax_traceback")
)
X = np.array([[0.5, -1.0, 2.0], [0.25, 3.0, -0.75]], np.float32)


def line_of(function, text):
    """The number of the line of ``function`` that holds ``text``."""
    lines, first = inspect.getsourcelines(function)
    (found,) = [number for number, line in enumerate(lines, first) if text in line]
    return found


def callsites(model):
    return {metadata(node)[CALLSITE] for node in all_nodes(model)}


# Programs whose provenance is checked equation by equation


def library_calls(x):
    length = jnp.linalg.norm(x)
    clean = jnp.nan_to_num(x)
    chosen = jnp.where(clean > 0.0, clean, length)
    smooth = jax.nn.silu(chosen)
    spread = jnp.var(smooth, axis=-1)
    return spread + jnp.mean(smooth, axis=-1)


@jax.jit
def helper(x):
    return jnp.sin(x) * 2.0


def helper_on_two_lines(x):
    first = helper(x)
    second = helper(first)
    return second


def nested_jits(x):
    @jax.jit
    def outer(y):
        return jax.jit(lambda z: jnp.exp(z) + helper(z))(y)

    return outer(x) + jax.jit(helper)(x)


@jax.custom_jvp
def own_rule(x):
    return jnp.tanh(x) * 0.5


own_rule.defjvp(lambda primals, tangents: (own_rule(*primals), tangents[0]))


def decorators_and_lambdas(x):
    y = own_rule(x)
    y = jax.checkpoint(lambda v: jnp.cos(v) + 1.0)(y)
    y = functools.partial(lambda a, b: a * b, b=y)(x)
    return jax.vmap(lambda row: jnp.exp(row) - row)(y)


class Normalised:
    def __init__(self):
        self.scale = np.linspace(0.5, 1.5, 3, dtype=np.float32)

    def normalise(self, x):
        mean = jnp.mean(x, axis=-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(jnp.var(x, axis=-1, keepdims=True) + 1e-5)

    def __call__(self, x):
        return self.normalise(x) * self.scale


def softmax_of_dots(x):
    scores = jnp.einsum("ij,kj->ik", x, x)
    return jax.nn.softmax(scores, axis=-1) @ x


def gradients(x):
    return jax.grad(lambda v: jnp.sum(jnp.sin(v) * v))(x)


def activations(x):
    return jax.nn.gelu(x) + jax.nn.softplus(x) + jax.nn.relu(x) + jax.nn.elu(x)


class NnxBlock(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.first = nnx.Linear(3, 4, rngs=rngs)
        self.norm = nnx.LayerNorm(4, rngs=rngs)

    def __call__(self, x):
        x = self.first(x)
        x = nnx.relu(x)
        return self.norm(x)


class LinenBlock(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.Dense(4)(x)
        x = linen.relu(x)
        return linen.LayerNorm()(x)


class EquinoxBlock(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.LayerNorm

    def __init__(self):
        self.first = eqx.nn.Linear(3, 4, key=jax.random.key(0))
        self.norm = eqx.nn.LayerNorm(4)

    def __call__(self, x):
        x = self.first(x)
        x = jax.nn.relu(x)
        return self.norm(x)


def linen_block():
    return LinenBlock().bind(LinenBlock().init(jax.random.key(0), X))


PROGRAMS = {
    "library calls": (lambda: library_calls, X),
    "helper on two lines": (lambda: helper_on_two_lines, X),
    "nested jits": (lambda: nested_jits, X),
    "decorators and lambdas": (lambda: decorators_and_lambdas, X),
    "callable object": (Normalised, X),
    "softmax of dots": (lambda: softmax_of_dots, X),
    "gradients": (lambda: gradients, X),
    "activations": (lambda: activations, X),
    "NNX": (NnxBlock, X),
    "Linen": (linen_block, X),
    "Equinox": (EquinoxBlock, X[0]),
}
# Equations of these always become nodes of their own, whose traces must all be found again.
ALWAYS_A_NODE = {"sin", "cos", "exp", "tanh", "rsqrt", "dot_general", "erf", "logistic", "log1p"}


def joined_traces(jaxpr, outer=""):
    """(primitive, joined trace) of every equation, inner ones included: its own frames, then those of its calls."""
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    for equation in jaxpr.eqns:
        own = str(equation.source_info.traceback)
        trace = f"{own}\n{outer}" if outer else own
        yield equation.primitive.name, trace
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, (tuple, list)) else (parameter,):
                if hasattr(inner, "eqns"):
                    yield from joined_traces(inner, trace)


def hashable(fn):
    return functools.partial(fn) if not inspect.isfunction(fn) else fn


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_equations_trace_is_the_nodes(name):
    make, x = PROGRAMS[name]
    fn = make()
    model = to_onnx(fn, [x], stacktrace_metadata="full")
    check_model(model, to_onnx(fn, [x], stacktrace_metadata=False))
    expected = list(joined_traces(jax.make_jaxpr(hashable(fn))(x)))
    known = {trace for _, trace in expected}
    found = set()
    for node in all_nodes(model):
        said = metadata(node)
        blocks = said[TRACEBACK].split("\n\n")
        for block in blocks:
            assert block in known, f"{node.op_type} {node.name}: a trace of no equation\n{block}"
        assert said[CALLSITE] in expected_callsites(blocks[0])
        assert said[CALLSITE].rsplit(":", 1)[1].isdigit()
        found.update(blocks)
    lost = {trace for primitive, trace in expected if primitive in ALWAYS_A_NODE} - found
    assert not lost, "equations without a node:\n" + "\n\n".join(lost)


def test_the_traceback_of_a_top_level_equation_is_jaxs_own_text():
    def fn(x):
        return jax.lax.exp(jax.lax.sin(x))

    model = to_onnx(fn, [X], stacktrace_metadata="full")
    equations = jax.make_jaxpr(fn)(X).eqns
    assert [metadata(node)[TRACEBACK] for node in model.graph.node] == [
        str(equation.source_info.traceback) for equation in equations
    ]


@pytest.mark.parametrize("installed", [True, False])
def test_packages_may_be_installed_into_any_folder(installed, tmp_path, monkeypatch):
    """As ``pip install --target`` does; a folder of modules alone belongs to the user."""
    module = f"vendored_{installed}".lower()
    (tmp_path / f"{module}.py").write_text("def twice(x):\n    return x + x\n")
    if installed:
        (tmp_path / f"{module}-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    twice = importlib.import_module(module).twice

    def fn(x):
        return twice(x)

    line = fn.__code__.co_firstlineno + 1
    expected = f"{fn.__qualname__}:{line}" if installed else "twice:2"
    assert callsites(to_onnx(fn, [X], stacktrace_metadata=True)) == {expected}


def test_library_functions_name_the_users_own_lines():
    model = to_onnx(library_calls, [X], stacktrace_metadata=True)
    words = ["norm(x)", "nan_to_num", "jnp.where", "jax.nn.silu", "jnp.var", "jnp.mean"]
    assert callsites(model) == {f"library_calls:{line_of(library_calls, word)}" for word in words}


@pytest.mark.parametrize(
    "function",
    [
        jnp.linalg.norm,
        jnp.nan_to_num,
        lambda x: jnp.where(x > 0, x, 0.0),
        jax.nn.silu,
        jnp.var,
        jnp.std,
        jnp.square,
        jax.nn.softmax,
        jax.nn.gelu,
        jax.nn.log_softmax,
        jax.scipy.special.logsumexp,
        lambda x: jnp.clip(x, 0.0, 1.0),
        lambda x: jnp.einsum("ij,ij->i", x, x),
        lambda x: jnp.pad(x, 1),
        lambda x: jnp.stack([x, x]),
        lambda x: jnp.tile(x, 2),
        lambda x: jnp.matmul(x, x.T),
        lambda x: x @ x.T,
        jnp.max,
        jnp.argmax,
        jnp.tril,
        lambda x: jnp.linspace(0.0, 1.0, 3) + x,
        lambda x: jax.nn.one_hot(jnp.argmax(x, axis=-1), 3),
        lambda x: jnp.cross(x, x),
    ],
    ids=lambda function: getattr(function, "__name__", "library"),
)
def test_one_library_call_one_line(function):
    def program(x):
        return function(x)

    model = to_onnx(program, [X], stacktrace_metadata="full")
    check_model(model)
    # A function of this file, like the lambdas above, is the user's too, and further in.
    code = getattr(function, "__code__", None)
    if code is not None and code.co_filename == __file__:
        assert callsites(model) == {f"{function.__qualname__}:{code.co_firstlineno}"}
    else:
        assert callsites(model) == {f"{program.__qualname__}:{line_of(program, 'return function(x)')}"}


def test_a_helper_called_on_two_lines_gives_two_traces():
    model = to_onnx(helper_on_two_lines, [X], stacktrace_metadata="full")
    nodes = [node for node in model.graph.node if node.op_type == "Sin"]
    assert len(nodes) == 2
    traces = [metadata(node)[TRACEBACK] for node in nodes]
    assert traces[0] != traces[1]
    for trace, word in zip(traces, ("helper(x)", "helper(first)"), strict=True):
        assert trace.splitlines()[-1].endswith(f":{line_of(helper_on_two_lines, word)} (helper_on_two_lines)")
    line = line_of(helper, "jnp.sin(x)")
    assert callsites(model) == {f"helper:{line}"}, "the helper is the user's own and innermost"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NNX", ["self.first(x)", "nnx.relu(x)", "self.norm(x)"]),
        ("Linen", ["linen.Dense(4)(x)", "linen.relu(x)", "linen.LayerNorm()(x)"]),
        ("Equinox", ["self.first(x)", "jax.nn.relu(x)", "self.norm(x)"]),
    ],
)
def test_layers_name_the_line_of_the_users_class(name, words):
    make, x = PROGRAMS[name]
    module = make()
    kind = type(module)
    model = to_onnx(module, [x], stacktrace_metadata=True)
    function = inspect.unwrap(kind.__call__)
    assert callsites(model) == {f"{kind.__name__}.__call__:{line_of(function, word)}" for word in words}


def test_nodes_that_no_equation_made_name_the_function_itself():
    image = np.zeros((1, 2, 2, 3), np.float32)

    def fn(x):
        return x

    model = to_onnx(fn, [image], inputs_as_nchw=[0], stacktrace_metadata="full")
    check_model(model)
    assert callsites(model) == {f"{fn.__qualname__}:{fn.__code__.co_firstlineno}"}


def test_the_stacktrace_begins_with_the_callers_of_to_onnx():
    def exporting():
        return to_onnx(helper, [X], stacktrace_metadata="full")

    node = exporting().graph.node[0]
    # A parallel test runner is started from a command string, which counts as the user's.
    frames = [frame for frame in metadata(node)[STACKTRACE].splitlines() if not frame.startswith("<string>")]
    line = line_of(exporting, "return to_onnx")
    users = [frame for frame in frames if frame.startswith(__file__)]
    assert users[-1] == f"{__file__}:{line} in {exporting.__qualname__}"
    assert users == frames[: len(users)], "the user's frames come first"
    assert "site-packages" not in metadata(node)[STACKTRACE]
    assert re.fullmatch(r"src/lower/[\w/]+\.c:\d+ in SinPlugin\.lower", frames[-1])


def test_levels_are_the_same_graph():
    plain = to_onnx(library_calls, [X], stacktrace_metadata=False)
    for level in ("minimal", "full"):
        assert stripped(to_onnx(library_calls, [X], stacktrace_metadata=level)) == plain


def test_minimal_is_the_beginning_of_full():
    minimal = to_onnx(library_calls, [X], stacktrace_metadata="minimal")
    full = to_onnx(library_calls, [X], stacktrace_metadata="full")
    for few, all_of_them in zip(minimal.graph.node, full.graph.node, strict=True):
        assert list(metadata(few).items()) == list(metadata(all_of_them).items())[:2]


# Where the user's code may come from

PROGRAM = """\
import jax.numpy as jnp
from jax2onnx import to_onnx

def scaled_sine(x):
    return jnp.sin(x) * 2.0

model = to_onnx(scaled_sine, [(2,)], stacktrace_metadata="full")
for node in model.graph.node:
    said = {entry.key: entry.value for entry in node.metadata_props}
    print(said["pkg.jax2onnx.callsite"], said["pkg.jax2onnx.stacktrace"].splitlines()[0], sep=" | ")
"""


def run_python(*arguments, **options):
    root = os.path.dirname(os.path.dirname(os.path.abspath(jax2onnx.__file__)))
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_scripts_modules_standard_input_and_command_strings(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    assert run_python(str(path)) == [f"scaled_sine:5 | {path}:7 in <module>"] * 2
    assert run_python("-m", "program", cwd=tmp_path) == [f"scaled_sine:5 | {path}:7 in <module>"] * 2
    assert run_python("-", input=PROGRAM) == ["scaled_sine:5 | <stdin>:7 in <module>"] * 2
    assert run_python("-c", PROGRAM) == ["scaled_sine:5 | <string>:7 in <module>"] * 2


def test_notebook_cells():
    name = "<ipython-input-3-0123456789ab>"
    space = {}
    exec(compile(PROGRAM.split("model =")[0], name, "exec"), space)
    model = to_onnx(space["scaled_sine"], [(2,)], stacktrace_metadata="full")
    assert callsites(model) == {"scaled_sine:5"}
    assert f"{name}:5 (scaled_sine)" in metadata(model.graph.node[0])[TRACEBACK]


def test_lambdas_methods_and_decorated_functions():
    def decorator(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args)

        return wrapper

    @decorator
    def decorated(x):
        return jnp.sin(x)

    sine = lambda x: jnp.sin(x)  # noqa: E731
    for fn, code in ((decorated, decorated.__wrapped__.__code__), (sine, sine.__code__)):
        line = code.co_firstlineno + (2 if fn is decorated else 0)
        assert callsites(to_onnx(fn, [X], stacktrace_metadata=True)) == {f"{code.co_qualname}:{line}"}


def test_code_in_an_editable_install_is_the_users(tmp_path):
    """A .pth file puts a folder outside site-packages on the path, as an editable install does."""
    (tmp_path / "edited.py").write_text("import jax.numpy as jnp\n\ndef sine(x):\n    return jnp.sin(x)\n")
    script = f"""
        import site
        site.addsitedir({str(tmp_path)!r})
        import sys
        sys.path.append({str(tmp_path)!r})
        import edited
        from jax2onnx import to_onnx
        model = to_onnx(edited.sine, [(2,)], stacktrace_metadata=True)
        print(model.graph.node[0].metadata_props[0].value)
        """
    assert run_python("-c", textwrap.dedent(script)) == ["sine:4"]


def test_installed_packages_are_named_when_nothing_is_the_users():
    model = to_onnx(nnx.LayerNorm(3, rngs=nnx.Rngs(0)), [X], stacktrace_metadata="full")
    check_model(model)
    for node in model.graph.node:
        function, line = metadata(node)[CALLSITE].rsplit(":", 1)
        (frame,) = {
            frame for frame in metadata(node)[TRACEBACK].splitlines() if frame.endswith(f":{line} ({function})")
        }
        assert "/flax/" in frame, "the frame of the module that was running is Flax's"


def test_metadata_survives_onnx(tmp_path):
    model = to_onnx(helper_on_two_lines, [X], stacktrace_metadata="full")
    onnx.save(model, tmp_path / "m.onnx")
    assert onnx.load(tmp_path / "m.onnx") == model
