"""Keras' image models with every layer in Flax Linen, and by hand over lax.conv with the channels first inside. How the
layers are joined, and their weights, are those of the models of bench/models/keras_applications.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen
from models import keras_applications
from models.keras_applications import make

STYLES = ("linen", "lax")
NAMES = tuple(f"{name}_{style}" for name in keras_applications.NAMES for style in STYLES)
Function = Callable[..., jax.Array]


def one(value: Any) -> int:
    """Windows, strides and rates are the same along both axes."""
    first, second = value
    assert first == second
    return first


class Layers:
    """A function for each layer of Keras, by the name of its class; weights are of one type."""

    def __init__(self, dtype: Any):
        self.dtype = dtype

    def array(self, variable: Any) -> jax.Array | None:
        return None if variable is None else jnp.asarray(variable.value, self.dtype)

    def of(self, layer: Any) -> Function:
        kind = type(layer).__name__
        if kind == "Sequential":
            parts = [self.of(part) for part in layer.layers]
            return lambda x: self.chain(parts, x)
        activation = getattr(layer, "activation", None)
        act = getattr(self, activation.__name__) if activation is not None else self.linear
        if kind == "Activation":
            return act
        fn = getattr(self, kind)(layer)
        return lambda *inputs: act(fn(*inputs))

    @staticmethod
    def chain(parts: list[Function], x: jax.Array) -> jax.Array:
        for part in parts:
            x = part(x)
        return x

    @staticmethod
    def linear(x):
        return x

    def Dropout(self, layer):
        return self.linear

    InputLayer = Dropout

    def Conv2D(self, layer):
        return self.convolution(layer, self.array(layer.kernel), layer.groups)

    def DepthwiseConv2D(self, layer):
        kernel = self.array(layer.kernel)
        return self.convolution(layer, kernel.reshape(*kernel.shape[:2], 1, -1), kernel.shape[2])

    def Add(self, layer):
        return lambda inputs: inputs[0] + inputs[1]

    def Multiply(self, layer):
        return lambda inputs: inputs[0] * inputs[1]

    def Rescaling(self, layer):
        return lambda x: x * jnp.asarray(layer.scale, x.dtype) + jnp.asarray(layer.offset, x.dtype)


class InLinen(Layers):
    """Channels last. Each layer is a module of its own."""

    relu, silu, sigmoid = staticmethod(linen.relu), staticmethod(linen.silu), staticmethod(linen.sigmoid)

    @staticmethod
    def gelu(x):
        return linen.gelu(x, approximate=False)

    def applied(self, module, params, **collections):
        params = {name: value for name, value in params.items() if value is not None}
        return lambda x: module.apply({"params": params, **collections}, x)

    def convolution(self, layer, kernel, groups):
        size, bias = kernel.shape[:2], self.array(layer.bias)
        strides, rate, padding = one(layer.strides), one(layer.dilation_rate), layer.padding.upper()
        rest = {"kernel_dilation": rate, "feature_group_count": groups, "use_bias": bias is not None}
        return self.applied(
            linen.Conv(kernel.shape[-1], size, strides, padding, **rest), {"kernel": kernel, "bias": bias}
        )

    def BatchNormalization(self, layer):
        scale, bias = self.array(layer.gamma), self.array(layer.beta)
        rest = {"use_scale": scale is not None, "use_bias": bias is not None}
        statistics = {"mean": self.array(layer.moving_mean), "var": self.array(layer.moving_variance)}
        module = linen.BatchNorm(use_running_average=True, epsilon=layer.epsilon, **rest)
        return self.applied(module, {"scale": scale, "bias": bias}, batch_stats=statistics)

    def LayerNormalization(self, layer):
        weights = {"scale": self.array(layer.gamma), "bias": self.array(layer.beta)}
        return self.applied(linen.LayerNorm(epsilon=layer.epsilon), weights)

    def Normalization(self, layer):
        mean, variance = (jnp.asarray(value, self.dtype) for value in (layer.mean, layer.variance))
        return lambda x: (x - mean) / jnp.sqrt(variance)

    def LayerScale(self, layer):
        gamma = self.array(layer.gamma)
        return lambda x: x * gamma

    def Dense(self, layer):
        weights = {"kernel": self.array(layer.kernel), "bias": self.array(layer.bias)}
        return self.applied(linen.Dense(layer.units), weights)

    def ReLU(self, layer):
        return linen.relu6 if layer.max_value is not None else linen.relu

    def ZeroPadding2D(self, layer):
        return lambda x: jnp.pad(x, ((0, 0), *layer.padding, (0, 0)))

    def MaxPooling2D(self, layer):
        return lambda x: linen.max_pool(x, layer.pool_size, layer.strides, layer.padding.upper())

    def AveragePooling2D(self, layer):
        window = (layer.pool_size, layer.strides, layer.padding.upper())
        return lambda x: linen.avg_pool(x, *window, count_include_pad=False)

    def GlobalAveragePooling2D(self, layer):
        return lambda x: x.mean((1, 2), keepdims=layer.keepdims)

    def Concatenate(self, layer):
        return lambda inputs: jnp.concatenate(inputs, axis=-1)

    def Reshape(self, layer):
        return lambda x: x.reshape(x.shape[0], *layer.target_shape)


class ByHand(Layers):
    """Channels first. Nothing of a library but arithmetic and windows."""

    @staticmethod
    def relu(x):
        return jnp.maximum(x, 0)

    @staticmethod
    def sigmoid(x):
        return 1 / (1 + jnp.exp(-x))

    @staticmethod
    def silu(x):
        return x / (1 + jnp.exp(-x))

    @staticmethod
    def gelu(x):
        return x * (1 + jax.lax.erf(x / np.sqrt(2).astype(x.dtype))) / 2

    def by_channel(self, variable):
        return None if variable is None else self.array(variable).reshape(-1, 1, 1)

    def convolution(self, layer, kernel, groups):
        """The bias is added by itself."""
        kernel, bias = jnp.transpose(kernel, (3, 2, 0, 1)), self.by_channel(layer.bias)
        axes = ("NCHW", "OIHW", "NCHW")
        rest = {"rhs_dilation": layer.dilation_rate, "dimension_numbers": axes, "feature_group_count": groups}

        def fn(x):
            x = jax.lax.conv_general_dilated(x, kernel, layer.strides, layer.padding.upper(), **rest)
            return x if bias is None else x + bias

        return fn

    def BatchNormalization(self, layer):
        mean, variance = self.by_channel(layer.moving_mean), self.by_channel(layer.moving_variance)
        scale, bias = self.by_channel(layer.gamma), self.by_channel(layer.beta)

        def fn(x):
            x = (x - mean) / jnp.sqrt(variance + layer.epsilon)
            x = x if scale is None else x * scale
            return x if bias is None else x + bias

        return fn

    def LayerNormalization(self, layer):
        """Of images along the channels, of rows along the last axis."""
        scale, bias = self.array(layer.gamma), self.array(layer.beta)

        def fn(x):
            axis = 1 if x.ndim == 4 else -1
            shape = (-1, 1, 1) if x.ndim == 4 else (-1,)
            centred = x - x.mean(axis, keepdims=True)
            variance = (centred * centred).mean(axis, keepdims=True)
            return centred * jax.lax.rsqrt(variance + layer.epsilon) * scale.reshape(shape) + bias.reshape(shape)

        return fn

    def Normalization(self, layer):
        mean, variance = (jnp.asarray(value, self.dtype).reshape(-1, 1, 1) for value in (layer.mean, layer.variance))
        return lambda x: (x - mean) / jnp.sqrt(variance)

    def LayerScale(self, layer):
        gamma = self.by_channel(layer.gamma)
        return lambda x: gamma * x

    def Dense(self, layer):
        kernel, bias = self.array(layer.kernel), self.array(layer.bias)

        def fn(x):
            if x.ndim == 4:
                return jnp.einsum("nchw,cd->ndhw", x, kernel) + bias[:, None, None]
            return jnp.einsum("nc,cd->nd", x, kernel) + bias

        return fn

    def ReLU(self, layer):
        if layer.max_value is None:
            return self.relu
        return lambda x: jnp.minimum(jnp.maximum(x, 0), layer.max_value)

    def ZeroPadding2D(self, layer):
        return lambda x: jnp.pad(x, ((0, 0), (0, 0), *layer.padding))

    @staticmethod
    def windows(x, initial, computation, layer):
        size, strides = (1, 1, *layer.pool_size), (1, 1, *layer.strides)
        return jax.lax.reduce_window(x, initial, computation, size, strides, layer.padding.upper())

    def MaxPooling2D(self, layer):
        return lambda x: self.windows(x, -jnp.inf, jax.lax.max, layer)

    def AveragePooling2D(self, layer):
        def fn(x):
            count = self.windows(np.ones(x.shape, x.dtype), 0.0, jax.lax.add, layer)
            return self.windows(x, 0.0, jax.lax.add, layer) / count

        return fn

    def GlobalAveragePooling2D(self, layer):
        def fn(x):
            mean = x.reshape(*x.shape[:2], -1).mean(-1)
            return mean[:, :, None, None] if layer.keepdims else mean

        return fn

    def Concatenate(self, layer):
        return lambda inputs: jnp.concatenate(inputs, axis=1)

    def Reshape(self, layer):
        *sizes, channels = layer.target_shape
        return lambda x: x.reshape(x.shape[0], channels, *sizes)


def expert(name: str) -> Counter[str]:
    return keras_applications.expert(name.rpartition("_")[0])


def called(fn: Function) -> Function:
    """Keras gives a layer one argument, which may be a list, and an operator its operands."""
    return lambda *inputs, **_: fn(inputs[0] if len(inputs) == 1 else inputs)


def build(name: str, dtype=jnp.float32):
    model_name, _, style = name.rpartition("_")
    model = make(model_name)
    layers = (InLinen if style == "linen" else ByHand)(dtype)
    functions = {id(operation): layers.of(operation) for operation in model.operations}

    def fn(images):
        x = images if style == "linen" else jnp.transpose(images, (0, 3, 1, 2))
        return model._run_through_graph(x, lambda operation: called(functions[id(operation)]))

    return fn, [jax.ShapeDtypeStruct((1, *model.input.shape[1:]), dtype)]
