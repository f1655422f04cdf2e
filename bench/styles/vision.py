"""The ResNet18 and the U-Net of bench/models/vision.py in Flax Linen, and by hand over lax.conv with the channels first
inside."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen
from models.vision import MODELS
from precision import converted

NAMES = ("resnet18_linen", "resnet18_lax", "unet_linen", "unet_lax")


# ---- Flax Linen


class ConvNorm(linen.Module):
    features: int
    size: int
    strides: int = 1

    @linen.compact
    def __call__(self, x):
        x = linen.Conv(self.features, (self.size, self.size), self.strides, use_bias=False)(x)
        return linen.BatchNorm(use_running_average=True)(x)


class BasicBlock(linen.Module):
    width: int
    strides: int

    @linen.compact
    def __call__(self, x):
        y = linen.relu(ConvNorm(self.width, 3, self.strides)(x))
        y = ConvNorm(self.width, 3)(y)
        if self.strides != 1 or x.shape[-1] != self.width:
            x = ConvNorm(self.width, 1, self.strides)(x)
        return linen.relu(x + y)


class ResNet(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.relu(ConvNorm(8, 7, 2)(x))
        x = linen.max_pool(x, (3, 3), (2, 2), "SAME")
        for stage in range(4):
            for index in range(2):
                x = BasicBlock(8 << stage, 2 if stage and not index else 1)(x)
        return linen.Dense(10)(x.mean((1, 2)))


class DoubleConv(linen.Module):
    features: int

    @linen.compact
    def __call__(self, x):
        for _ in range(2):
            x = linen.Conv(self.features, (3, 3))(x)
            x = linen.relu(linen.BatchNorm(use_running_average=True)(x))
        return x


class UNet(linen.Module):
    @linen.compact
    def __call__(self, x):
        skips = []
        for width in (8, 16):
            skips.append(DoubleConv(width)(x))
            x = linen.max_pool(skips[-1], (2, 2), (2, 2))
        x = DoubleConv(32)(x)
        for width in (16, 8):
            x = linen.ConvTranspose(width, (2, 2), (2, 2))(x)
            x = DoubleConv(width)(jnp.concatenate([skips.pop(), x], axis=-1))
        return jax.nn.sigmoid(linen.Conv(1, (1, 1))(x))


def varied(weights):
    """Moves every scale, bias and statistic away from where it is initialised."""
    generator = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: leaf + generator.uniform(0.05, 0.3, leaf.shape) if leaf.ndim == 1 else leaf, weights
    )


# ---- by hand


class Weights:
    """Hands out random arrays of one type."""

    def __init__(self, dtype):
        self.random, self.dtype = np.random.default_rng(0), dtype

    def __call__(self, *shape, low=None):
        numbers = self.random.standard_normal(shape) / np.prod(shape[1:]) ** 0.5
        return jnp.asarray(numbers if low is None else self.random.uniform(low, low + 0.5, shape), self.dtype)


def convolution(x, kernel, strides=1, padding="SAME"):
    return jax.lax.conv_general_dilated(
        x, kernel, (strides, strides), padding, dimension_numbers=("NCHW", "OIHW", "NCHW")
    )


def normalised(weights, channels):
    """Batch normalisation with scale and shift by channel, the statistics as constants."""
    scale, bias, mean, variance = (weights(channels, 1, 1, low=low) for low in (0.8, 0.0, 0.0, 0.8))
    return lambda x: (x - mean) / jnp.sqrt(variance + 1e-5) * scale + bias


def conv_norm(weights, inputs, outputs, size, strides=1):
    kernel, norm = weights(outputs, inputs, size, size), normalised(weights, outputs)
    return lambda x: norm(convolution(x, kernel, strides))


def basic_block(weights, inputs, width, strides):
    first, second = conv_norm(weights, inputs, width, 3, strides), conv_norm(weights, width, width, 3)
    shortcut = conv_norm(weights, inputs, width, 1, strides) if strides != 1 or inputs != width else lambda x: x
    return lambda x: jax.nn.relu(second(jax.nn.relu(first(x))) + shortcut(x))


def pooled(x, size, strides):
    padding = "SAME" if size != strides else "VALID"
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, size, size), (1, 1, strides, strides), padding)


def resnet(dtype):
    weights = Weights(dtype)
    stem, blocks, inputs = conv_norm(weights, 3, 8, 7, 2), [], 8
    for stage in range(4):
        for index in range(2):
            blocks.append(basic_block(weights, inputs, 8 << stage, 2 if stage and not index else 1))
            inputs = 8 << stage
    head, bias = weights(inputs, 10), weights(10)

    def fn(images):
        x = pooled(jnp.maximum(stem(jnp.transpose(images, (0, 3, 1, 2))), 0), 3, 2)
        for block in blocks:
            x = block(x)
        return x.reshape(*x.shape[:2], -1).mean(-1) @ head + bias

    return fn


def double_conv(weights, inputs, outputs):
    parts = []
    for size in (inputs, outputs):
        parts.append((weights(outputs, size, 3, 3), weights(outputs, 1, 1), normalised(weights, outputs)))

    def fn(x):
        for kernel, bias, norm in parts:
            x = jnp.maximum(norm(convolution(x, kernel) + bias), 0)
        return x

    return fn


def unet(dtype):
    weights = Weights(dtype)
    down = [double_conv(weights, *sizes) for sizes in ((3, 8), (8, 16), (16, 32))]
    enlarge = [(weights(2, 2, 2 * width, width), weights(width, 1, 1)) for width in (16, 8)]
    up = [double_conv(weights, 2 * width, width) for width in (16, 8)]
    last, bias = weights(1, 8, 1, 1), weights(1, 1, 1)

    def fn(images):
        x, skips = jnp.moveaxis(images, -1, 1), []
        for block in down[:-1]:
            skips.append(block(x))
            x = pooled(skips[-1], 2, 2)
        x = down[-1](x)
        for (kernel, shift), block in zip(enlarge, up, strict=True):
            x = jax.lax.conv_transpose(x, kernel, (2, 2), "SAME", dimension_numbers=("NCHW", "HWIO", "NCHW")) + shift
            x = block(jnp.concatenate([skips.pop(), x], axis=1))
        return jnp.moveaxis(1 / (1 + jnp.exp(-(convolution(x, last) + bias))), 1, -1)

    return fn


def model_of(name: str) -> str:
    return "resnet18" if name.startswith("resnet18") else "unet_batch_norm"


def expert(name: str) -> Counter[str]:
    return Counter(MODELS[model_of(name)][2])


def build(name: str, dtype=jnp.float32):
    shape = MODELS[model_of(name)][1]
    inputs = [jax.ShapeDtypeStruct(shape, dtype)]
    if name.endswith("lax"):
        return (resnet if name.startswith("resnet18") else unet)(dtype), inputs
    model = ResNet() if name.startswith("resnet18") else UNet()
    weights = converted(varied(model.init(jax.random.key(0), jnp.zeros(shape))), dtype)
    return (lambda x: model.apply(weights, x)), inputs
