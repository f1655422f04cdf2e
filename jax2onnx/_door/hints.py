"""What probably caused an error that JAX, Flax or Equinox raised while the function was traced, and how to mend it.

The error stays as it is: a hint is a note on it (``add_note``), which Python prints below the message.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_FIX_IT = "fix it before the export: to_onnx(functools.partial(fn, flag=True), ...)"


@dataclass(frozen=True)
class _Hint:
    """For an error of this class, or of one that derives from it, whose message holds the words."""

    error: str
    words: str
    text: str

    def fits(self, error: Exception) -> bool:
        names = (kind.__name__ for kind in type(error).__mro__)
        return self.error in names and self.words in str(error)


_LINEN_BIND = (
    "a Linen module holds no parameters of its own. Bind them, to_onnx(module.bind(variables), ...), or export "
    "lambda x: module.apply(variables, x)."
)
_EVALUATION = (
    "a layer updates its statistics, which a model cannot. Export it for evaluation: BatchNorm with "
    "use_running_average=True (train=False in many models), model.eval() in NNX, eqx.nn.inference_mode(model) in "
    "Equinox."
)
_NO_DROPOUT = (
    "Dropout is on and wants random numbers. Export the model for evaluation: deterministic=True (train=False in many "
    "models), model.eval() in NNX, eqx.nn.inference_mode(model) in Equinox."
)
_PYTHON_NUMBER = (
    "Python needs a number here (a size, an index, an axis, the bound of a loop), and an input of the model has none "
    f"until it runs. If it is a setting, {_FIX_IT}. Sizes come from x.shape; a loop over a computed bound is "
    "jax.lax.fori_loop."
)

# The first that fits is taken.
_HINTS = (
    _Hint("CallCompactUnboundModuleError", "", _LINEN_BIND),
    _Hint("AttributeError", "only accessible from inside 'init' or 'apply'", _LINEN_BIND),
    _Hint("AttributeError", "'NoneType' object has no attribute 'default_metadata'", _LINEN_BIND),
    _Hint("ModifyScopeVariableError", "", _EVALUATION),
    _Hint("TraceContextError", "", _EVALUATION),
    _Hint("InvalidRngError", "", _NO_DROPOUT),
    _Hint("RuntimeError", "Dropout requires a key", _NO_DROPOUT),
    _Hint(
        "ScopeParamNotFoundError",
        "",
        "the variables are not those of this module: check what init or the checkpoint gave.",
    ),
    _Hint(
        "TracerBoolConversionError",
        "",
        "a Python if, while, and, or or not depends on an input of the model. If it is a setting, "
        f"{_FIX_IT}. If it depends on the data, write jnp.where or jax.lax.cond.",
    ),
    _Hint(
        "NonConcreteBooleanIndexError",
        "",
        "x[mask] has a size that is known only when the model runs. Write jnp.where(mask, x, 0), or give the size: "
        "jnp.nonzero(mask, size=n).",
    ),
    _Hint(
        "TracerArrayConversionError",
        "",
        "NumPy cannot compute with an input of the model. Use jax.numpy where the function uses numpy.",
    ),
    _Hint("UnexpectedTracerError", "", "the function keeps a value in a global or an attribute. Return it instead."),
    _Hint("TracerIntegerConversionError", "", _PYTHON_NUMBER),
    _Hint("ConcretizationTypeError", "", _PYTHON_NUMBER),
    _Hint("TypeError", "Shapes must be 1D sequences of concrete values", _PYTHON_NUMBER),
    _Hint(
        "ValueError",
        "Non-hashable static arguments",
        "an argument is static in jax.jit, and an input of the model cannot be. "
        "Leave it out of inputs: to_onnx(functools.partial(fn, setting=value), ...).",
    ),
    _Hint(
        "TypeError",
        "not a valid JAX type",
        "what the function takes and returns must be arrays. Settings such as texts are fixed before the export: "
        "to_onnx(functools.partial(fn, mode='same'), ...).",
    ),
)


@contextmanager
def hints(fn: Callable[..., Any], inputs: Sequence[Any]) -> Iterator[None]:
    """Errors that leave this block have a hint where the cause is known."""
    try:
        yield
    except Exception as error:
        text = _of_arguments(fn, inputs, error) or next((hint.text for hint in _HINTS if hint.fits(error)), None)
        if text:
            error.add_note(f"Hint: {text}")
        raise


def _of_arguments(fn: Any, inputs: Sequence[Any], error: Exception) -> str | None:
    if isinstance(fn, type):
        return f"{fn.__name__} is a class. Export an object of it: to_onnx({fn.__name__}(...), ...)."
    if not isinstance(error, TypeError) or "argument" not in str(error):
        return None
    try:
        signature = inspect.signature(fn)
        signature.bind(*inputs)
    except ValueError:  # it has none
        return None
    except TypeError:
        count = f"{len(inputs)} {'entry' if len(inputs) == 1 else 'entries'}"
        return f"inputs needs one entry for each argument, and has {count}; the function takes {signature}."
    return None
