"""The core reads its options by the rows of a table: what is missing, unknown or of another type is named."""

import pytest
from export_check import check_export

from jax2onnx import _core

convert = getattr(_core.convert, "__wrapped__", _core.convert)  # without the check of replays around it


@pytest.fixture
def options(monkeypatch):
    """Those of an export that works."""
    seen = []
    monkeypatch.setattr(_core, "convert", lambda **given: (seen.append(given), convert(**given))[1])
    check_export(lambda x: x + 1, [1.0])
    return seen[0]


@pytest.mark.parametrize(
    "change,message",
    [
        ({"types": []}, "the option 'types' must be a dict, not <class 'list'>"),
        ({"root": []}, "the option 'root' must be a tuple, not <class 'list'>"),
        ({"input_names": ()}, "the option 'input_names' must be a list, not <class 'tuple'>"),
        ({"model_name": b"m"}, "bad argument type for built-in operation"),
        ({"path": "text"}, "expected bytes, str found"),
        ({"opset": "21"}, "'str' object cannot be interpreted as an integer"),
        ({"colour": "red"}, "unknown option 'colour'"),
    ],
)
def test_an_option_of_another_type_is_refused(options, change, message):
    with pytest.raises(TypeError, match=message):
        convert(**{**options, **change})


def test_every_option_is_needed(options):
    for name in options:
        with pytest.raises(TypeError, match=f"the option '{name}' is missing"):
            convert(**{key: value for key, value in options.items() if key != name})


def test_options_have_names():
    with pytest.raises(TypeError, match="options must be passed by name"):
        convert(1)
