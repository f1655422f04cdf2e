"""The command ``jax2onnx``: what it exports, what it says, and its exit codes."""

import io
import json
import os
import pty
import subprocess
import sys
import textwrap

import onnx
import pytest
from export_check import metadata, op_types

import jax2onnx
from jax2onnx.__main__ import FAILED, OK, USAGE, main
from jax2onnx._commands.target import UsageError, parse_input, parse_target
from jax2onnx._door.progress import Progress, progress_on
from jax2onnx._door.progress import Terminal as Line

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(jax2onnx.__file__)))
PROGRAM = """\
import time
import jax
import jax.numpy as jnp

def scaled_sine(x):
    return jnp.sin(x) * 2.0

def scaled(x, *, factor):
    return x * factor

class Model:
    def __call__(self, x):
        return jnp.sin(x)
    def encode(self, x):
        return jnp.cos(x)

def make_model():
    return Model()

model = Model()
number = 3

def failing(x):
    raise ValueError("the user's own words")

def unsupported(x):
    return jax.pure_callback(lambda x: x, x, x)

def slow(x):
    time.sleep(1.6)
    return jnp.sin(x)

def image(x):
    return x * 2.0

def centred(x):
    return x - jnp.mean(x)

def named(image, weights):
    return {"logits": image * weights}

def branching(x):
    return x if x.sum() > 0 else -x
"""


@pytest.fixture(autouse=True)
def program(tmp_path, monkeypatch):
    (tmp_path / "program_under_test.py").write_text(PROGRAM)
    package = tmp_path / "package_under_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "layers.py").write_text("import jax.numpy as jnp\ndef sine(x):\n    return jnp.sin(x)\n")
    (tmp_path / "broken_under_test.py").write_text("import no_such_module_at_all\n")
    (tmp_path / "syntax_under_test.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if "_under_test" in name]:
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in [name for name in sys.modules if "_under_test" in name]:
        del sys.modules[name]


def export(target, *options, code=OK):
    assert main(["export", target, "-o", "m.onnx", *options]) == code
    return onnx.load("m.onnx") if code == OK else None


@pytest.mark.parametrize(
    ("target", "operator"),
    [
        ("program_under_test:model", "Sin"),
        ("program_under_test.py:model", "Sin"),
        ("./program_under_test.py:model.encode", "Cos"),
        ("program_under_test:make_model()", "Sin"),
        ("program_under_test:make_model().encode", "Cos"),
        ("program_under_test:Model()", "Sin"),
        ("package_under_test.layers:sine", "Sin"),
        ("package_under_test/layers.py:sine", "Sin"),
    ],
)
def test_targets(target, operator):
    assert op_types(export(target, "--input", "f32[2]")) == [operator]


def test_inputs_names_and_options(capsys):
    model = export(
        "program_under_test:scaled",
        *("--input", "x:f16[B,3]", "--param", "factor:f16[]", "--output-name", "product"),
        *("--name", "scaling", "--opset", "21"),
    )
    assert [value.name for value in model.graph.input] == ["x", "factor"]
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    assert [dim.dim_param or dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim] == ["B", 3]
    assert [value.name for value in model.graph.output] == ["product"]
    assert model.graph.name == "scaling"
    assert model.opset_import[0].version == 21
    out, err = capsys.readouterr()
    assert out.startswith("m.onnx\n") and err == ""


def test_the_graph_is_named_after_the_function():
    assert export("program_under_test:make_model().encode", "--input", "f32[2]").graph.name == "encode"


def test_double_precision_and_layout():
    model = export(
        "program_under_test:image", "--input", "f64[1,2,3,4]", "--x64", "--nchw-input", "0", "--nchw-output=-1"
    )
    value = model.graph.input[0]
    assert value.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE
    assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == [1, 4, 2, 3]


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ([], 0),
        (["--stacktrace"], 2),
        (["--stacktrace=minimal"], 2),
        (["--stacktrace=full"], 5),
        (["--stacktrace", "full"], 5),
        (["--stacktrace=off"], 0),
    ],
)
def test_stacktrace(options, keys, monkeypatch):
    monkeypatch.delenv("JAX2ONNX_ENABLE_STACKTRACE_METADATA", raising=False)
    model = export("program_under_test:scaled_sine", *options, "--input", "f32[2]")
    for node in model.graph.node:
        assert len(metadata(node)) == keys
        if keys:
            assert metadata(node)["pkg.jax2onnx.callsite"] == "scaled_sine:6"


def test_passes_are_listed_left_out_and_dumped(capsys, tmp_path):
    assert main(["export", "--list-passes"]) == OK
    listed = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert listed["fold_constants"] == "computes constant expressions during the export"
    steps = tmp_path / "steps"
    steps.mkdir()
    (steps / "77_left_by_another_export.onnx.txt").write_text("")
    target = ("program_under_test:centred", "--input", "f32[2]")
    assert op_types(export(*target, "--dump-passes", str(steps))) == ["ReduceMean", "Sub"]
    dumped = sorted(path.name for path in steps.iterdir())
    assert dumped[0] == "00_lowered.onnx.txt" and "ReduceSum" in (steps / dumped[0]).read_text()
    assert not any("another" in name for name in dumped)
    assert "ReduceMean" in (steps / dumped[-1]).read_text()
    assert "ReduceSum" in op_types(export(*target, "--disable-pass", "fuse_reductions"))
    assert main(["export", *target, "-o", "m.onnx", "--disable-pass", "nonsense"]) == FAILED
    assert "there is no pass 'nonsense'" in capsys.readouterr().err


def test_a_bare_stacktrace_before_the_target():
    assert main(["export", "--stacktrace", "program_under_test:scaled_sine", "-i", "f32[2]", "-o", "m.onnx"]) == OK
    assert len(metadata(onnx.load("m.onnx").graph.node[0])) == 2


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["exprot"], "unknown command exprot; did you mean export?"),
        (["verfy"], "unknown command verfy; did you mean verify?"),
        (["reprot"], "unknown command reprot; did you mean report?"),
        (["inspect", "--summry", "m.onnx"], "unknown option --summry; did you mean --summary?"),
        (["nothing-like-it"], "unknown command nothing-like-it\n"),
    ],
)
def test_what_was_meant(command, message, capfd):
    assert main(command) == USAGE
    assert message in capfd.readouterr().err


def test_help_of_a_command(capfd):
    for command, words in (("export", "x:i32[B,128]"), ("blame", "usage: j2o blame"), ("completion", "zsh")):
        assert main(["help", command]) == OK
        assert words in capfd.readouterr().out
    assert main(["help"]) == OK
    assert "export" in capfd.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_every_command_and_option(shell, capfd):
    assert main(["completion", shell]) == OK
    script = capfd.readouterr().out
    for word in ("export", "verify", "inspect", "--opset", "--model-explorer", "--summary"):
        assert word in script
    assert main(["completion", "tcsh"]) == USAGE


def test_bash_completes(capfd):
    assert main(["completion", "bash"]) == OK
    script = capfd.readouterr().out
    asked = "COMP_WORDS=(jax2onnx {}); COMP_CWORD={}; _jax2onnx; echo ${{COMPREPLY[@]}}\n"
    script += asked.format("insp", 1) + asked.format("inspect --su", 2) + asked.format("export --ops", 2)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["inspect", "--summary", "--opset"]


def test_a_model_on_standard_input(capfd):
    export("program_under_test:scaled_sine", "--input", "f32[2]")
    with open("m.onnx", "rb") as file:
        mapped = run("stats", "-", "--json", stdin=file, capture_output=True)
    with open("m.onnx", "rb") as file:
        piped = run("stats", "-", "--json", input=file.read(), capture_output=True)
    assert mapped.returncode == piped.returncode == OK and mapped.stdout == piped.stdout
    assert json.loads(mapped.stdout)["file"] == "-"
    assert run("stats", "-", input=b"not a model", capture_output=True).returncode == FAILED


def test_the_manual_page_has_every_command(capfd):
    assert main(["man"]) == OK
    page = capfd.readouterr().out
    assert page.startswith(".TH J2O 1")
    for section in ("j2o inspect", "j2o graft", "j2o completion"):
        assert f".SH {section}\n" in page


def test_what_was_made_is_said(capsys):
    export("program_under_test:named", "--input", "f32[B]", "--input", "f32[B]")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "m.onnx"
    said = "\n".join(lines)
    assert "named: 1 node" in said and "  image  f32[B]" in said and "logits  f32[B]" in said
    assert lines[-1].startswith(f"{os.path.getsize('m.onnx'):,} bytes, ")


def test_a_page_and_a_comparison_in_one_go(capsys):
    export("program_under_test:scaled_sine", "--input", "f32[2]", "--report", "--verify")
    with open("m.html") as page:
        assert "scaled_sine" in page.read()
    out, err = capsys.readouterr()
    assert "\nm.html\n" in out and err == ""
    assert "agree" in out.split("m.html\n")[1]


def test_quiet_and_record(capsys):
    export("program_under_test:scaled_sine", "--input", "f32[2]", "--quiet", "--record", "calls.txt")
    assert capsys.readouterr() == ("", "")
    with open("calls.txt") as file:
        assert "sin" in file.read()


# Failures


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing", "-i", "f32[2]"], USAGE, "'nothing' does not name a function; expected pkg.module:fn"),
        (["no_such_module:fn"], USAGE, "there is no module 'no_such_module'"),
        (["no_such_file.py:fn"], USAGE, "file not found: 'no_such_file.py'"),
        (["program_under_test:scaled_sin"], USAGE, "has no attribute 'scaled_sin'; did you mean 'scaled_sine'"),
        (["program_under_test:number"], USAGE, "is not callable; its type is int"),
        (["program_under_test:model", "-i", "q32[2]"], USAGE, "'q32[2]' is not an input; expected [NAME:]TYPE"),
        (["program_under_test:model", "-i", "i64[2]"], USAGE, "int64 needs --x64"),
        (["program_under_test:model", "-i", "f32[2,]"], USAGE, "a dimension is empty"),
        (["program_under_test:model", "--param", "f32[2]"], USAGE, "needs the argument's name"),
        (["program_under_test:model", "--stacktrace=loud"], USAGE, "invalid choice"),
        (["program_under_test:model", "--opset", "new"], USAGE, "invalid _opset_number value"),
        (["program_under_test:model", "-i", "f32[2]", "--opset", "3"], FAILED, "opset must be between 13"),
        (["program_under_test:model"], FAILED, "missing 1 required positional argument"),
        (["broken_under_test:fn"], FAILED, "No module named 'no_such_module_at_all'"),
        (["syntax_under_test:fn"], FAILED, "SyntaxError"),
        (["program_under_test:unsupported", "-i", "f32[2,2]"], FAILED, "pure_callback: it calls back into Python"),
    ],
)
def test_failures(arguments, code, message, capsys):
    assert main(["export", *arguments, "-o", "m.onnx"]) == code
    out, err = capsys.readouterr()
    assert message in err
    assert "Traceback" not in err
    assert out == ""
    assert not os.path.exists("m.onnx")


def test_the_users_error_comes_with_its_line(capsys):
    export("program_under_test:failing", "--input", "f32[2]", code=FAILED)
    assert capsys.readouterr().err == textwrap.dedent(f"""\
        jax2onnx: ValueError: the user's own words
          File "{os.getcwd()}/program_under_test.py", line 24, in failing
            raise ValueError("the user's own words")
        --debug shows the whole traceback
        """)
    export("program_under_test:failing", "--input", "f32[2]", "--debug", code=FAILED)
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_missing_folder_is_made(tmp_path):
    assert main(["export", "program_under_test:model", "-i", "f32[2]", "-o", str(tmp_path / "nowhere/m.onnx")]) == OK
    assert (tmp_path / "nowhere" / "m.onnx").exists()


def test_a_folder_stays_missing_when_nothing_is_written(tmp_path):
    path = str(tmp_path / "nowhere" / "near" / "m.onnx")
    assert main(["export", "program_under_test:unsupported", "-i", "f32[2,2]", "-o", path]) == FAILED
    assert not (tmp_path / "nowhere").exists()


def test_the_command_names_values_as_the_function_does():
    model = export("program_under_test:named", "--input", "f32[2]", "--input", "weight:f32[2]")
    assert [value.name for value in model.graph.input] == ["image", "weight"]
    assert [value.name for value in model.graph.output] == ["logits"]


def test_hints_are_printed(capsys):
    export("program_under_test:branching", "--input", "f32[2]", code=FAILED)
    assert "\nHint: a Python if, while, and, or, or not depends on a model input" in capsys.readouterr().err


def test_help_and_version(capfd):
    for arguments, words in (
        (["--help"], ["export", "inspect", "exit codes"]),
        (["-h"], ["export", "inspect"]),
        (["export", "--help"], ["x:i32[B,128]", "exit codes"]),
        (["inspect", "--help"], ["--json"]),
        (["--version"], [jax2onnx.__version__]),
        (["-V"], [jax2onnx.__version__]),
    ):
        assert main(arguments) == OK
        out, err = capfd.readouterr()
        assert [word for word in words if word not in out] == []
        assert err == ""
    assert main([]) == USAGE
    assert "Try jax2onnx --help" in capfd.readouterr().err


@pytest.mark.parametrize("text", ["", "a:", ":fn", "a:b.", "a:b(1)", "a:b()()", "a:1"])
def test_what_is_no_target(text):
    with pytest.raises(UsageError, match="does not name a function"):
        parse_target(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32", (None, (), "float32")),
        ("f32[]", (None, (), "float32")),
        ("bf16[2, 3]", (None, (2, 3), "bfloat16")),
        ("x:u8[B,2*N+1]", ("x", ("B", "2*N+1"), "uint8")),
        ("flag:bool[]", ("flag", (), "bool")),
        ("layer/0.x:float64[0]", ("layer/0.x", (0,), "float64")),
    ],
)
def test_inputs(text, expected):
    assert parse_input(text) == expected


# The command as a program of its own


def run(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": ROOT}
    return subprocess.run([sys.executable, "-m", "jax2onnx", *arguments], env=environment, **options)


def test_export_then_inspect():
    target = ["export", "program_under_test.py:scaled_sine", "--input", "x:f32[B]", "--stacktrace=full", "-o", "m.onnx"]
    done = run(*target, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[0], done.stderr) == (0, "m.onnx", "")
    done = run("inspect", "m.onnx", capture_output=True, text=True)
    assert done.returncode == 0
    assert "at scaled_sine:6" in done.stdout
    done = run("inspect", "m.onnx", "--json", capture_output=True, text=True)
    json.loads(done.stdout)
    done = run("text", "m.onnx", capture_output=True, text=True)
    assert "Sin (x)" in done.stdout
    assert run("inspect", "no.onnx", capture_output=True).returncode == FAILED
    assert run("no-such-command", capture_output=True).returncode == USAGE


def test_the_commands_own_frames_are_not_the_users():
    run("export", "program_under_test.py:scaled_sine", "--input", "f32[2]", "--stacktrace=full", "-o", "m.onnx")
    (first, *_) = metadata(onnx.load("m.onnx").graph.node[0])["pkg.jax2onnx.stacktrace"].splitlines()
    assert first.startswith("src/"), "nothing but the lowering: no line of the user's called to_onnx"


def on_terminal(*arguments):
    """Standard error is a terminal; returns what was written there."""
    ours, theirs = pty.openpty()
    try:
        run(*arguments, stderr=theirs, check=True, stdout=subprocess.DEVNULL)
        os.write(theirs, b"END")
        text = b""
        while not text.endswith(b"END"):
            text += os.read(ours, 10_000)
        return text.removesuffix(b"END").decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_progress_on_a_terminal_only():
    arguments = ["export", "program_under_test.py:slow", "--input", "f32[2]", "-o", "m.onnx"]
    shown = on_terminal(*arguments)
    assert "tracing … " in shown
    assert shown.endswith("\r\x1b[K"), "the line is erased at the end"
    assert run(*arguments, capture_output=True).stderr == b""
    assert on_terminal(*arguments, "--quiet") == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_short_export_shows_nothing():
    stream = Terminal()
    progress = Progress(Line(stream), patience=60)
    progress.close()
    with progress_on(stream):
        pass
    assert stream.getvalue() == ""


def test_stages_are_logged(caplog):
    with caplog.at_level("DEBUG", logger="jax2onnx"):
        export("program_under_test:scaled_sine", "--input", "f32[2]")
    assert [record.message for record in caplog.records if record.name == "jax2onnx"][-4:] == [
        "tracing",
        "converting",
        "writing",
        "opset 17",
    ]


def test_the_summary_says_what_asked_for_the_opset(capsys):
    export("program_under_test:scaled_sine", "--input", "f32[2]")
    assert "\n  opset       17\n" in capsys.readouterr().out
    export("jax.nn:gelu", "--input", "f32[2]")
    assert "\n  opset       20, the oldest with Gelu (" in capsys.readouterr().out
    export("jax.nn:gelu", "--input", "f32[2]", "--opset", "21")
    assert "\n  opset       21\n" in capsys.readouterr().out
