"""The likely cause of an error that JAX, Flax or Equinox raised while the function was traced, and the fix.

The error itself is unchanged: a hint is a note on it (``add_note``), which Python prints below the message.
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
    """A hint for errors of this class or a subclass whose message contains the words."""

    error: str
    words: str
    text: str

    def fits(self, error: Exception) -> bool:
        names = (kind.__name__ for kind in type(error).__mro__)
        return self.error in names and self.words in str(error)


_LINEN_BIND = (
    "a Linen module does not hold its parameters. Bind them with to_onnx(module.bind(variables), ...), or export "
    "lambda x: module.apply(variables, x)."
)
_EVALUATION = (
    "a layer updates its statistics, which an ONNX model cannot do. Export it in evaluation mode: BatchNorm with "
    "use_running_average=True (train=False in many models), model.eval() in NNX, eqx.nn.inference_mode(model) in "
    "Equinox."
)
_NO_DROPOUT = (
    "Dropout is active and needs random numbers. Export the model in evaluation mode: deterministic=True "
    "(train=False in many models), model.eval() in NNX, eqx.nn.inference_mode(model) in Equinox."
)
_PYTHON_NUMBER = (
    "Python needs a number here (a size, an index, an axis, a loop bound), but a model input has no value "
    f"until the model runs. If it is a setting, {_FIX_IT}. Take sizes from x.shape; for a computed loop bound use "
    "jax.lax.fori_loop."
)

# The first one that fits is used.
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
        "the variables do not belong to this module: check the result of init or the checkpoint.",
    ),
    _Hint(
        "TracerBoolConversionError",
        "",
        "a Python if, while, and, or, or not depends on a model input. If it is a setting, "
        f"{_FIX_IT}. If it depends on the data, use jnp.where or jax.lax.cond.",
    ),
    _Hint(
        "NonConcreteBooleanIndexError",
        "",
        "the size of x[mask] is only known when the model runs. Use jnp.where(mask, x, 0), or give the size: "
        "jnp.nonzero(mask, size=n).",
    ),
    _Hint(
        "TracerArrayConversionError",
        "",
        "NumPy cannot compute with a model input. Use jax.numpy instead of numpy in the function.",
    ),
    _Hint(
        "UnexpectedTracerError",
        "",
        "the function stores a traced value in a global variable or an attribute. Return it instead.",
    ),
    _Hint("TracerIntegerConversionError", "", _PYTHON_NUMBER),
    _Hint("ConcretizationTypeError", "", _PYTHON_NUMBER),
    _Hint("TypeError", "Shapes must be 1D sequences of concrete values", _PYTHON_NUMBER),
    _Hint(
        "ValueError",
        "Non-hashable static arguments",
        "an argument is static in jax.jit, but a model input cannot be static. "
        "Leave it out of inputs: to_onnx(functools.partial(fn, setting=value), ...).",
    ),
    _Hint(
        "TypeError",
        "not a valid JAX type",
        "the arguments and results of the function must be arrays. Fix settings such as strings before the export: "
        "to_onnx(functools.partial(fn, mode='same'), ...).",
    ),
)


@contextmanager
def hints(fn: Callable[..., Any], inputs: Sequence[Any]) -> Iterator[None]:
    """Errors that leave this block get a hint if the cause is known."""
    try:
        yield
    except Exception as error:
        text = _of_arguments(fn, inputs, error) or next((hint.text for hint in _HINTS if hint.fits(error)), None)
        if text:
            error.add_note(f"Hint: {text}")
        raise


def _of_arguments(fn: Any, inputs: Sequence[Any], error: Exception) -> str | None:
    if isinstance(fn, type):
        return f"{fn.__name__} is a class. Export an instance: to_onnx({fn.__name__}(...), ...)."
    if not isinstance(error, TypeError) or "argument" not in str(error):
        return None
    try:
        signature = inspect.signature(fn)
        signature.bind(*inputs)
    except ValueError:  # it has none
        return None
    except TypeError:
        count = f"{len(inputs)} {'entry' if len(inputs) == 1 else 'entries'}"
        return f"inputs needs one entry for each argument, but has {count}; the function takes {signature}."
    return None
