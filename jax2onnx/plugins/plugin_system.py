"""``register_primitive`` and ``PrimitiveLeafPlugin``, for plugins written for the Python jax2onnx.

What such a plugin emits through ``ctx.builder`` becomes the nodes of one of our plugins (``jax2onnx.plugin``), with
provenance like all others. The types of intermediate values, which our plugins must know, come from ONNX's own type
inference. Our builder supports only ONNX's operators and constants. For anything else that the builder of the other
package can do, the error says what was requested and how to write a plugin here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnx

from jax2onnx._door.plugins import Equation, LoweringContext, Type, Value, plugin

__all__ = ["PrimitiveLeafPlugin", "register_primitive"]

_INSTEAD = "write it with jax2onnx.plugin, as docs/guide.md shows under 'Custom primitives'"


class PrimitiveLeafPlugin:
    """The lowering of one primitive: ``lower(ctx, eqn)`` emits its nodes and binds its outputs."""

    primitive: str | None = None

    def lower(self, ctx: Any, eqn: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no lower(ctx, eqn)")


def register_primitive(*, jaxpr_primitive: str | None = None, **described: Any) -> Callable[[type], type]:
    """Register the decorated class as the lowering of a primitive; it takes precedence over the package's own.

    ``testcases``, ``onnx``, ``component`` and the other keywords describe a plugin there; they are ignored here.
    """
    if not isinstance(jaxpr_primitive, str) or not jaxpr_primitive:
        raise TypeError(f"register_primitive needs jaxpr_primitive, the name of a primitive; got {jaxpr_primitive!r}")

    def register(cls: type) -> type:
        if not isinstance(getattr(cls, "lower", None), Callable):
            raise TypeError(f"{cls.__qualname__} has no method lower(ctx, eqn); {_INSTEAD}")
        instance = cls()
        instance.metadata = {"jaxpr_primitive": jaxpr_primitive, **described}

        def lower(ctx: LoweringContext, equation: Equation) -> list[Value]:
            context = _Context(ctx, equation)
            instance.lower(context, equation.source)
            return context.results()

        lower.__qualname__ = f"{cls.__qualname__}.lower"
        plugin(jaxpr_primitive, replace=True)(lower)
        return cls

    return register


class _Symbol:
    """A value as such plugins see it, with a name, and with a type and a shape that they may set."""

    def __init__(self, name: str, dtype: Any, shape: tuple[Any, ...], value: Value | None) -> None:
        self.name, self.value = name, value
        self.dtype = self.type = dtype
        self.shape = shape


class _Context:
    """The ``ctx`` that ``lower`` receives."""

    def __init__(self, context: LoweringContext, equation: Equation) -> None:
        self._context, self._equation = context, equation
        self.opset = context.opset
        self.builder = _Builder(self, context)
        self._names = 0
        self._symbols: dict[int, _Symbol] = {}
        self._bound: dict[int, _Symbol] = {}
        source = equation.source
        for atom, value in zip(source.invars, equation.inputs, strict=True):
            self._symbols[id(atom)] = _Symbol(self.fresh_name("in"), value.dtype, value.shape, value)
        for atom, kind in zip(source.outvars, equation.outputs, strict=True):
            self._symbols[id(atom)] = _Symbol(self.fresh_name("out"), kind.dtype, kind.shape, None)

    def fresh_name(self, base: str = "v") -> str:
        self._names += 1
        return f"{base}_{self._names}"

    def get_value_for_var(self, var: Any, **hints: Any) -> _Symbol:
        if id(var) not in self._symbols:
            raise ValueError(f"{var} is neither an input nor an output of this equation")
        return self._symbols[id(var)]

    def bind_value_for_var(self, var: Any, value: _Symbol) -> None:
        self._bound[id(var)] = value

    def results(self) -> list[Value]:
        values = []
        for index, atom in enumerate(self._equation.source.outvars):
            bound = self._bound.get(id(atom)) or self.builder.named.get(self._symbols[id(atom)].name)
            if bound is None or bound.value is None:
                raise ValueError(f"output {index} was not bound: ctx.bind_value_for_var(eqn.outvars[{index}], value)")
            values.append(bound.value)
        return values

    def type_of_name(self, name: str) -> Type | None:
        """The type of an output of the equation, if a node's output has the name that was assigned to it."""
        for symbol in self._symbols.values():
            if symbol.name == name and symbol.value is None:
                return Type(symbol.dtype, symbol.shape)
        return None

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"ctx.{name} is not supported; {_INSTEAD}")


class _Builder:
    """``ctx.builder``: a method for every operator of ONNX, and constants."""

    def __init__(self, owner: _Context, context: LoweringContext) -> None:
        self._owner, self._context = owner, context
        self.named: dict[str, _Symbol] = {}

    def add_initializer_from_array(self, name: str, array: Any) -> _Symbol:
        value = self._context.constant(np.asarray(array))
        return self._keep(_Symbol(name, value.dtype, value.shape, value))

    def add_initializer_from_scalar(self, name: str, value: Any) -> _Symbol:
        return self.add_initializer_from_array(name, np.asarray(jnp.asarray(value)))

    def const_i64(self, name: str, value: Any) -> _Symbol:
        return self.add_initializer_from_array(name, np.asarray(value, np.int64))

    def _keep(self, symbol: _Symbol) -> _Symbol:
        self.named[symbol.name] = symbol
        return symbol

    def __getattr__(self, operator: str) -> Callable[..., Any]:
        if not operator[:1].isupper():
            raise NotImplementedError(f"ctx.builder.{operator} is not supported; {_INSTEAD}")

        def emit(*inputs: Any, _outputs: Any = 1, _domain: str = "", _version: int = 1, **attributes: Any) -> Any:
            if isinstance(_outputs, str):
                raise TypeError(f"_outputs must be a number or a list of names; got {_outputs!r}")
            names = (
                [self._owner.fresh_name(operator) for _ in range(_outputs)] if isinstance(_outputs, int) else _outputs
            )
            values = [None if symbol is None else symbol.value for symbol in inputs]
            types = self._types(operator, _domain, values, names, attributes)
            made = self._context.emit(
                operator, values, outputs=types, domain=_domain, version=_version, attributes=attributes
            )
            symbols = [self._keep(_Symbol(n, v.dtype, v.shape, v)) for n, v in zip(names, made, strict=True)]
            return symbols[0] if len(symbols) == 1 else symbols

        return emit

    def _types(
        self, operator: str, domain: str, values: list[Value | None], names: list[str], attributes: dict[str, Any]
    ) -> list[Type]:
        declared = [self._owner.type_of_name(name) for name in names]
        if all(declared):
            return [kind for kind in declared if kind]
        inferred = _inferred(operator, domain, self._context.opset, values, len(names), attributes)
        if inferred is None:
            raise NotImplementedError(f"the types of {operator}'s outputs are not known; {_INSTEAD}")
        return [known or guess for known, guess in zip(declared, inferred, strict=True)]


def _inferred(
    operator: str, domain: str, opset: int, values: Sequence[Value | None], count: int, attributes: dict[str, Any]
) -> list[Type] | None:
    """The types of one node's outputs from ONNX's type inference; None if they are not completely known."""
    helper = onnx.helper
    inputs = ["" if value is None else f"i{index}" for index, value in enumerate(values)]
    outputs = [f"o{index}" for index in range(count)]
    node = helper.make_node(operator, inputs, outputs, domain=domain, **attributes)
    present = [(name, value) for name, value in zip(inputs, values, strict=True) if value is not None]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), list(map(_size, value.shape)))
        for name, value in present
    ]
    constants = [onnx.numpy_helper.from_array(v.constant, n) for n, v in present if v.constant is not None]
    empty = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "node", infos, empty, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, opset)])
    try:
        found = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True).graph.output
    except onnx.shape_inference.InferenceError as error:
        raise ValueError(f"{operator}: {error}") from error
    sizes = {str(size): size for _, value in present for size in value.shape if not isinstance(size, int)}
    types = [_type(info.type.tensor_type, sizes) for info in found]
    return None if None in types else [kind for kind in types if kind]


def _size(size: Any) -> int | str:
    return size if isinstance(size, int) else str(size)


def _type(tensor: Any, sizes: dict[str, Any]) -> Type | None:
    if not tensor.elem_type or not tensor.HasField("shape"):
        return None
    dims = [dim.dim_value if dim.HasField("dim_value") else sizes.get(dim.dim_param) for dim in tensor.shape.dim]
    if None in dims:
        return None
    return Type(jnp.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)), tuple(dims))
