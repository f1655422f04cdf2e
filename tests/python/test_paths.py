"""How a model names files: as Python knows them, or without the machine they were on."""

import os
import pathlib
import subprocess
import sys

import onnx
import pytest
from export_check import expanded

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """\
import jax
import jax.numpy as jnp

from jax2onnx import onnx_function


def scaled(x):
    return jnp.sin(x) * 2.0


def model(x):
    y = scaled(x)
    return jax.nn.softmax(y @ jnp.ones((3, 3))) + y
"""


def checkout(folder):
    """A project with the program in a package."""
    package = folder / "src" / "waves"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text("")
    (package / "net.py").write_text(PROGRAM)
    (folder / "make.py").write_text(
        "import sys\nsys.path.insert(0, 'src')\nfrom waves.net import model\nfrom jax2onnx import to_onnx\n"
        "to_onnx(model, [(2, 3)], return_mode='file', output_path=sys.argv[1], stacktrace_metadata=sys.argv[2])\n"
    )
    return folder


def exported(folder, target, level="full", **environment):
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    subprocess.run([sys.executable, folder / "make.py", target, level], cwd=folder, env=variables, check=True)
    return pathlib.Path(target).read_bytes()


def texts(path):
    """Every provenance text of the model."""
    return [entry.value for node in onnx.load(path).graph.node for entry in node.metadata_props]


@pytest.mark.parametrize("level", ["full", "compact"])
@pytest.mark.parametrize("setting", ["relative", "map"])
def test_two_checkouts_give_the_same_bytes(tmp_path, level, setting):
    contents = []
    for name in ("first", "a/second"):
        folder = checkout(tmp_path / name)
        rule = f"{folder}=project"
        words = {"JAX2ONNX_PATHS": "relative"} if setting == "relative" else {"JAX2ONNX_PATH_PREFIX_MAP": rule}
        contents.append(exported(folder, tmp_path / f"{len(contents)}.onnx", level, **words))
    assert contents[0] == contents[1]
    assert str(tmp_path).encode() not in contents[0]
    whole = expanded(onnx.load_from_string(contents[0])).SerializeToString()
    assert str(tmp_path).encode() not in whole
    assert (b"src/waves/net.py" if setting == "relative" else b"project/src/waves/net.py") in whole


def test_relative_paths_name_no_machine(tmp_path):
    folder = checkout(tmp_path / "here")
    exported(folder, tmp_path / "m.onnx", JAX2ONNX_PATHS="relative")
    lines = [line for text in texts(tmp_path / "m.onnx") for line in text.splitlines()]
    files = {line.rpartition(":")[0] for line in lines if ".py:" in line or ".c:" in line}
    assert files and not [file for file in files if file.startswith("/")]
    assert any(file.startswith("python/lib/python3") and "/site-packages/jax/" in file for file in files)


def test_the_default_is_what_jax_prints(tmp_path):
    folder = checkout(tmp_path / "here")
    exported(folder, tmp_path / "m.onnx")
    assert any(f"{folder}/src/waves/net.py:8 (scaled)" in text for text in texts(tmp_path / "m.onnx"))


def test_readers_find_the_files(tmp_path):
    folder = checkout(tmp_path / "here")
    exported(folder, tmp_path / "m.onnx", JAX2ONNX_PATHS="relative")
    command = [sys.executable, "-m", "jax2onnx", "blame", tmp_path / "m.onnx"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    there = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=True).stdout
    assert "return jnp.sin(x) * 2.0" in there
    words = [*command, "--source-root", folder]
    elsewhere = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True).stdout
    assert "return jnp.sin(x) * 2.0" in elsewhere


def export_here(tmp_path, **options):
    import jax.numpy as jnp

    from jax2onnx import to_onnx

    path = tmp_path / "m.onnx"
    to_onnx(
        lambda x: jnp.sin(x), [(2,)], return_mode="file", output_path=str(path), stacktrace_metadata="full", **options
    )
    return "\n".join(texts(path))


def test_arguments(tmp_path):
    assert "tests/python/test_paths.py" in export_here(tmp_path, paths="relative")
    assert str(ROOT) + "/tests" not in export_here(tmp_path, paths="relative")
    assert "here/python/test_paths.py" in export_here(tmp_path, path_prefix_map={str(ROOT / "tests"): "here"})
    assert "here/test_paths.py" in export_here(
        tmp_path, path_prefix_map=f"{ROOT}/tests/=there:{ROOT}/tests/python=here"
    ), "the longest rule counts"
    assert "elsewhere" not in export_here(tmp_path, path_prefix_map={str(ROOT / "tes"): "elsewhere"}), (
        "whole parts only"
    )
    assert "\n/python/test_paths.py" not in export_here(tmp_path, path_prefix_map={str(ROOT / "tests"): ""})
    with pytest.raises(ValueError, match="must be 'absolute' or 'relative'"):
        export_here(tmp_path, paths="short")
    with pytest.raises(ValueError, match="a path rule must be OLD=NEW"):
        export_here(tmp_path, path_prefix_map="project")


def test_flags(tmp_path):
    folder = checkout(tmp_path / "here")
    command = [sys.executable, "-m", "jax2onnx", "export", "src/waves/net.py:model", "--input", "f32[2,3]", "-q"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    for flags, expected in (
        (["--paths", "relative"], "src/waves/net.py:8"),
        (["--path-prefix-map", f"{folder}=p"], "p/src/"),
    ):
        words = [*command, "--stacktrace=full", *flags, "-o", "m.onnx"]
        subprocess.run(words, cwd=folder, env=variables, check=True)
        assert any(text.find(expected) >= 0 for text in texts(folder / "m.onnx"))
        assert not any(str(folder) in text for text in texts(folder / "m.onnx"))


def test_errors_name_the_file_as_it_is(tmp_path):
    import jax

    from jax2onnx import UnsupportedError, to_onnx

    with pytest.raises(UnsupportedError, match=str(ROOT)):
        to_onnx(lambda x: jax.pure_callback(lambda v: v, x, x), [(2,)], paths="relative")
