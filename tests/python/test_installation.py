"""What an installed package is: one extension for every Python, and a word when another package wrote over it."""

import os
import pathlib
import subprocess
import sys
import tomllib

import pytest

from jax2onnx import _core

ROOT = pathlib.Path(__file__).resolve().parents[2]
OTHERS_INIT = '__version__ = "0.17.1"\n'


def run(site, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=site, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.fixture
def site(tmp_path):
    """A folder as pip leaves it, with the package of this tree in it."""
    package = tmp_path / "jax2onnx"
    package.mkdir()
    for part in (ROOT / "jax2onnx").iterdir():
        (package / part.name).symlink_to(part)
    (tmp_path / "jax2onnx_c-0.1.0.dist-info").mkdir()
    return tmp_path


def test_the_extension_is_one_for_all_versions_of_python():
    assert _core.__file__.endswith("_core.abi3.so")


def test_the_version_is_written_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dynamic"] == ["version"] and "version" not in project
    assert f"version: '{_core.VERSION}'" in (ROOT / "meson.build").read_text()


def test_alone_the_package_says_nothing(site):
    done = run(site, "-c", "import jax2onnx")
    assert done.returncode == 0 and done.stderr == ""


def test_another_package_of_the_same_name_is_noticed_at_import(site):
    (site / "jax2onnx-0.17.1.dist-info").mkdir()
    done = run(site, "-c", "import jax2onnx")
    assert done.returncode == 0
    assert "jax2onnx 0.17.1, another package, is installed in the same folder" in done.stderr
    assert "pip uninstall -y jax2onnx jax2onnx-c" in done.stderr


@pytest.mark.parametrize(
    "others, message", [(OTHERS_INIT, "has overwritten this one"), (None, "jax2onnx/__init__.py is missing")]
)
def test_the_command_says_when_the_package_was_overwritten(site, others, message):
    init = site / "jax2onnx" / "__init__.py"
    init.unlink()
    if others:
        init.write_text(others)
    done = run(site, "-m", "jax2onnx", "--version")
    assert done.returncode == 1 and message in done.stderr and done.stdout == ""
