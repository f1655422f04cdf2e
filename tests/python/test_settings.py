"""Who decides how much provenance is written: argument, block, command line, config, environment, in that order."""

import warnings

import jax.numpy as jnp
import pytest
from export_check import KEYS, metadata

import jax2onnx
from jax2onnx import to_onnx
from jax2onnx._door.settings import command_line_level

SWITCH, DETAIL = "JAX2ONNX_ENABLE_STACKTRACE_METADATA", "JAX2ONNX_STACKTRACE_DETAIL"


def sine(x):
    return jnp.sin(x)


def level(argument=None):
    (node,) = to_onnx(sine, [(2,)], stacktrace_metadata=argument).graph.node
    keys = tuple(metadata(node))
    full = (*KEYS, "pkg.jax2onnx.span")
    assert keys in ((), KEYS[:2], full)
    return {0: "off", 2: "minimal", len(full): "full"}[len(keys)]


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.delenv(DETAIL, raising=False)
    monkeypatch.setattr(jax2onnx.config, "stacktrace_metadata", None)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [(None, "off"), (False, "off"), ("off", "off"), (True, "minimal"), ("minimal", "minimal"), ("full", "full")],
)
def test_the_argument(argument, expected):
    assert level(argument) == expected


@pytest.mark.parametrize("value", ["0", "false", "off", "no", "", "False", "OFF", " 0 "])
def test_environment_off(monkeypatch, value):
    monkeypatch.setenv(SWITCH, value)
    monkeypatch.setenv(DETAIL, "full")
    assert level() == "off"


@pytest.mark.parametrize("value", ["1", "true", "on", "yes", "TRUE"])
def test_environment_on(monkeypatch, value):
    monkeypatch.setenv(SWITCH, value)
    assert level() == "minimal"


@pytest.mark.parametrize(
    ("detail", "expected"), [("minimal", "minimal"), ("full", "full"), ("FULL", "full"), ("", "minimal")]
)
def test_environment_detail(monkeypatch, detail, expected):
    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setenv(DETAIL, detail)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert level() == expected


def test_an_unknown_detail_warns_and_means_minimal(monkeypatch):
    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setenv(DETAIL, "everything")
    with pytest.warns(UserWarning, match="'minimal', 'full' or 'compact', not 'everything'") as caught:
        assert level() == "minimal"
    assert caught[0].filename == __file__, "the warning points at the line that exports"


def test_detail_alone_switches_nothing_on(monkeypatch):
    monkeypatch.setenv(DETAIL, "full")
    assert level() == "off"


def test_strength(monkeypatch):
    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setenv(DETAIL, "full")
    assert level() == "full"
    jax2onnx.config.stacktrace_metadata = False
    assert level() == "off", "config wins over the environment"
    with command_line_level("minimal"):
        assert level() == "minimal", "the command line wins over config"
        with jax2onnx.stacktrace_metadata("full"):
            assert level() == "full", "a block wins over the command line"
            assert level(False) == "off", "the argument wins over all"
    assert level() == "off"


def test_blocks_nest_and_end_with_an_error():
    with jax2onnx.stacktrace_metadata("full"):
        with jax2onnx.stacktrace_metadata(False):
            assert level() == "off"
        assert level() == "full"
    with pytest.raises(KeyError), jax2onnx.stacktrace_metadata("full"):
        raise KeyError
    assert level() == "off"


def test_config_refuses_what_is_no_level():
    with pytest.raises(ValueError, match="stacktrace_metadata must be None, a bool, or one of"):
        jax2onnx.config.stacktrace_metadata = "loud"
    with pytest.raises(AttributeError):
        jax2onnx.config.stacktrace_metdata = True
    with pytest.raises(ValueError, match="loud"), jax2onnx.stacktrace_metadata("loud"):
        pass
    assert level() == "off"
    jax2onnx.config.stacktrace_metadata = "full"
    assert level() == "full"
    assert "full" in repr(jax2onnx.config)
