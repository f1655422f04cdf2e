"""The models of bench/models/vision.py in Flax Linen, and by hand over lax.conv with the channels first inside."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen
from models.vision import MODELS
from precision import converted

STYLES = ("linen", "lax")
NAMES = tuple(f"{name}_{style}" for name in MODELS for style in STYLES)
DEPTHS = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}
UPSAMPLING = {"unet_batch_norm": "transposed", "unet_nearest": "nearest", "unet_bilinear": "bilinear"}
GROUPS = 4


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


class Bottleneck(linen.Module):
    width: int
    strides: int

    @linen.compact
    def __call__(self, x):
        y = linen.relu(ConvNorm(self.width, 1)(x))
        y = linen.relu(ConvNorm(self.width, 3, self.strides)(y))
        y = ConvNorm(4 * self.width, 1)(y)
        if self.strides != 1 or x.shape[-1] != 4 * self.width:
            x = ConvNorm(4 * self.width, 1, self.strides)(x)
        return linen.relu(x + y)


class ResNet(linen.Module):
    block: type
    depths: tuple[int, ...]
    width: int

    @linen.compact
    def __call__(self, x):
        x = linen.relu(ConvNorm(self.width, 7, 2)(x))
        x = linen.max_pool(x, (3, 3), (2, 2), "SAME")
        for stage, depth in enumerate(self.depths):
            for index in range(depth):
                x = self.block(self.width << stage, 2 if stage and not index else 1)(x)
        return linen.Dense(10)(x.mean((1, 2)))


class DoubleConv(linen.Module):
    features: int
    grouped: bool

    @linen.compact
    def __call__(self, x):
        for _ in range(2):
            x = linen.Conv(self.features, (3, 3))(x)
            norm = linen.GroupNorm(GROUPS) if self.grouped else linen.BatchNorm(use_running_average=True)
            x = linen.relu(norm(x))
        return x


class UNet(linen.Module):
    upsampling: str

    def larger(self, x):
        if self.upsampling == "nearest":
            return x.repeat(2, axis=1).repeat(2, axis=2)
        return jax.image.resize(x, (x.shape[0], 2 * x.shape[1], 2 * x.shape[2], x.shape[3]), "linear")

    @linen.compact
    def __call__(self, x):
        skips, transposed = [], self.upsampling == "transposed"
        for width in (8, 16):
            skips.append(DoubleConv(width, not transposed)(x))
            x = linen.max_pool(skips[-1], (2, 2), (2, 2))
        x = DoubleConv(32, not transposed)(x)
        for width in (16, 8):
            enlarge = linen.ConvTranspose(width, (2, 2), (2, 2)) if transposed else linen.Conv(width, (3, 3))
            x = enlarge(x if transposed else self.larger(x))
            x = DoubleConv(width, not transposed)(jnp.concatenate([skips.pop(), x], axis=-1))
        return jax.nn.sigmoid(linen.Conv(1, (1, 1))(x))


def in_linen(name):
    if name in UPSAMPLING:
        return UNet(UPSAMPLING[name])
    return ResNet(BasicBlock, DEPTHS[name], 8) if name == "resnet18" else ResNet(Bottleneck, DEPTHS[name], 4)


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


def bottleneck(weights, inputs, width, strides):
    outputs = 4 * width
    parts = [(inputs, width, 1, 1), (width, width, 3, strides), (width, outputs, 1, 1)]
    first, second, third = (conv_norm(weights, *part) for part in parts)
    shortcut = conv_norm(weights, inputs, outputs, 1, strides) if strides != 1 or inputs != outputs else lambda x: x
    return lambda x: jax.nn.relu(third(jax.nn.relu(second(jax.nn.relu(first(x))))) + shortcut(x))


def pooled(x, size, strides):
    padding = "SAME" if size != strides else "VALID"
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, size, size), (1, 1, strides, strides), padding)


def resnet(name, dtype):
    weights = Weights(dtype)
    block, width, expansion = (basic_block, 8, 1) if name == "resnet18" else (bottleneck, 4, 4)
    stem, blocks, inputs = conv_norm(weights, 3, width, 7, 2), [], width
    for stage, depth in enumerate(DEPTHS[name]):
        for index in range(depth):
            blocks.append(block(weights, inputs, width << stage, 2 if stage and not index else 1))
            inputs = (width << stage) * expansion
    head, bias = weights(inputs, 10), weights(10)

    def fn(images):
        x = pooled(jnp.maximum(stem(jnp.transpose(images, (0, 3, 1, 2))), 0), 3, 2)
        for block in blocks:
            x = block(x)
        return x.reshape(*x.shape[:2], -1).mean(-1) @ head + bias

    return fn


def normalised_by_group(weights, channels):
    """A group's channels and pixels in one axis; scale and shift by channel."""
    scale, bias = (weights(channels, 1, 1, low=low) for low in (0.8, 0.0))

    def fn(x):
        groups = x.reshape(x.shape[0], GROUPS, -1)
        groups = groups - groups.mean(-1, keepdims=True)
        variance = jnp.square(groups).mean(-1, keepdims=True)
        return (groups / jnp.sqrt(variance + 1e-6)).reshape(x.shape) * scale + bias

    return fn


def double_conv(weights, inputs, outputs, norm):
    parts = []
    for size in (inputs, outputs):
        parts.append((weights(outputs, size, 3, 3), weights(outputs, 1, 1), norm(weights, outputs)))

    def fn(x):
        for kernel, bias, norm in parts:
            x = jnp.maximum(norm(convolution(x, kernel) + bias), 0)
        return x

    return fn


def doubled(size, dtype):
    """Every row of the larger image is a quarter of one row and three quarters of its neighbour."""
    weights = np.zeros((2 * size, size))
    for row in range(2 * size):
        for source, share in ((row // 2, 0.75), (row // 2 + (1 if row % 2 else -1), 0.25)):
            weights[row, min(max(source, 0), size - 1)] += share
    return jnp.asarray(weights, dtype)


def larger(x, upsampling):
    batch, channels, height, width = x.shape
    if upsampling == "bilinear":
        return jnp.einsum("yh,xw,bchw->bcyx", doubled(height, x.dtype), doubled(width, x.dtype), x)
    pixels = jnp.broadcast_to(x[:, :, :, None, :, None], (batch, channels, height, 2, width, 2))
    return pixels.reshape(batch, channels, 2 * height, 2 * width)


def enlarged(weights, width, upsampling):
    if upsampling != "transposed":
        kernel, shift = weights(width, 2 * width, 3, 3), weights(width, 1, 1)
        return lambda x: convolution(larger(x, upsampling), kernel) + shift
    kernel, shift, axes = weights(2, 2, 2 * width, width), weights(width, 1, 1), ("NCHW", "HWIO", "NCHW")
    return lambda x: jax.lax.conv_transpose(x, kernel, (2, 2), "SAME", dimension_numbers=axes) + shift


def unet(name, dtype):
    weights, upsampling = Weights(dtype), UPSAMPLING[name]
    norm = normalised if upsampling == "transposed" else normalised_by_group
    down = [double_conv(weights, *sizes, norm) for sizes in ((3, 8), (8, 16), (16, 32))]
    enlarge = [enlarged(weights, width, upsampling) for width in (16, 8)]
    up = [double_conv(weights, 2 * width, width, norm) for width in (16, 8)]
    last, bias = weights(1, 8, 1, 1), weights(1, 1, 1)

    def fn(images):
        x, skips = jnp.moveaxis(images, -1, 1), []
        for block in down[:-1]:
            skips.append(block(x))
            x = pooled(skips[-1], 2, 2)
        x = down[-1](x)
        for enlarge_to, block in zip(enlarge, up, strict=True):
            x = block(jnp.concatenate([skips.pop(), enlarge_to(x)], axis=1))
        return jnp.moveaxis(1 / (1 + jnp.exp(-(convolution(x, last) + bias))), 1, -1)

    return fn


def expert(name: str) -> Counter[str]:
    return Counter(MODELS[name.rpartition("_")[0]][2])


def build(name: str, dtype=jnp.float32):
    model, _, style = name.rpartition("_")
    shape = MODELS[model][1]
    inputs = [jax.ShapeDtypeStruct(shape, dtype)]
    if style == "lax":
        return (unet if model in UPSAMPLING else resnet)(model, dtype), inputs
    module = in_linen(model)
    weights = converted(varied(module.init(jax.random.key(0), jnp.zeros(shape))), dtype)
    return (lambda x: module.apply(weights, x)), inputs
