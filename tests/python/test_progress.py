"""``to_onnx(progress=...)``: who is told of the stages of an export, and where they are shown."""

import io
import sys
import types

import jax.numpy as jnp
import pytest

from jax2onnx import to_onnx
from jax2onnx._door import progress as progress_module

STAGES = ["tracing", "converting", "writing"]


def fn(x):
    return jnp.sin(x) + 1


def test_a_function_of_three_arguments_is_told_the_stages():
    told = []
    to_onnx(fn, [(2,)], progress=lambda stage, done, total: told.append((stage, done, total)))
    assert told == [(stage, 0, 0) for stage in STAGES]


def test_bytes_come_with_the_stage(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX2ONNX_EXTERNAL_DATA_THRESHOLD", "16")
    weight = jnp.ones((64, 64))
    told = []

    def tell(stage, done, total):
        told.append((stage, done, total))

    to_onnx(lambda x: x @ weight, [(2, 64)], return_mode="file", output_path=tmp_path / "model.onnx", progress=tell)
    assert told[:3] == [(stage, 0, 0) for stage in STAGES] and told[-1] == ("writing", weight.nbytes, weight.nbytes)


def test_of_a_model_in_one_file_all_bytes_are_told(tmp_path):
    weight, told, file = jnp.ones((2048, 8192)), [], tmp_path / "model.onnx"

    def tell(stage, done, total):
        told.append((stage, done, total))

    to_onnx(lambda x: x @ weight, [(2, 2048)], return_mode="file", output_path=file, progress=tell)
    size = file.stat().st_size
    assert told[-1] == ("writing", size, size) and size > weight.nbytes
    assert all(total == size and done <= total for _, done, total in told[3:])


@pytest.mark.parametrize("stage", STAGES)
def test_what_it_raises_ends_the_export(stage, tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(b"old")

    def stop(name, done, total):
        if name == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        to_onnx(fn, [(2,)], return_mode="file", output_path=file, progress=stop)
    assert file.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("progress", ["yes", 1])
def test_nonsense_is_refused(progress):
    with pytest.raises(TypeError, match="progress must be callable, a bool or None"):
        to_onnx(fn, [(2,)], progress=progress)


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def impatient(monkeypatch):
    """Progress is shown at once, on this screen."""
    screen = Screen()
    monkeypatch.setattr(progress_module, "sys", types.SimpleNamespace(stderr=screen, modules=sys.modules))
    monkeypatch.setattr(progress_module.Progress.__init__, "__defaults__", (0.0,))
    return screen


def test_a_terminal_shows_it_when_asked_to(impatient):
    to_onnx(fn, [(2,)], progress=True)
    shown = impatient.getvalue()
    assert " … " in shown and shown.endswith("\r\x1b[K"), "the line is erased at the end"


@pytest.mark.parametrize("progress", [None, False])
def test_a_script_shows_nothing_by_itself(impatient, progress):
    to_onnx(fn, [(2,)], progress=progress)
    assert impatient.getvalue() == ""


def test_a_prompt_shows_it(impatient, monkeypatch):
    monkeypatch.setattr(progress_module.sys, "ps1", ">>> ", raising=False)
    to_onnx(fn, [(2,)])
    assert " … " in impatient.getvalue()


def test_a_notebook_shows_it_in_the_cell(impatient, monkeypatch):
    lines = []

    class Handle:
        def update(self, content, raw):
            lines.append(content["text/plain"])

    def display(content, raw, display_id):
        lines.append(content["text/plain"])
        return Handle()

    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    to_onnx(fn, [(2,)])
    assert " … " in lines[0] and lines[-1] == "" and impatient.getvalue() == ""


def test_writing_has_a_bar(monkeypatch):
    progress = progress_module.Progress(progress_module.Terminal(Screen()), patience=60)
    progress.written(2_000_000_000, 8_000_000_000)
    progress.close()
    assert progress.stage.startswith("writing █████░░░░░░░░░░░░░░░ 2.0 of 8.0 GB, ")
