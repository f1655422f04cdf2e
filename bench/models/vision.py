"""Models of images, small but of real structure, in Flax NNX: what graph quality is measured by.

Each is channel-last, as JAX's libraries have it, and in inference mode; statistics and scales are not the initial zeros
and ones, so that nothing folds away that would not in a trained model.
"""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from precision import of_type


def vary(module: nnx.Module) -> nnx.Module:
    """Moves every scale, bias and statistic away from where it is initialised."""
    generator = np.random.default_rng(0)
    graph, state = nnx.split(module)

    def moved(leaf):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.ndim == 1:
            return leaf + generator.uniform(0.05, 0.3, leaf.shape).astype(leaf.dtype)
        return leaf

    return nnx.merge(graph, jax.tree.map(moved, state))


class ConvNorm(nnx.Module):
    """A convolution without bias, then batch normalisation."""

    def __init__(self, inputs, outputs, size, rngs, strides=1):
        self.conv = nnx.Conv(inputs, outputs, (size, size), strides=strides, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(outputs, use_running_average=True, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.conv(x))


class BasicBlock(nnx.Module):
    expansion = 1

    def __init__(self, inputs, width, rngs, strides=1):
        self.first = ConvNorm(inputs, width, 3, rngs, strides)
        self.second = ConvNorm(width, width, 3, rngs)
        self.shortcut = ConvNorm(inputs, width, 1, rngs, strides) if strides != 1 or inputs != width else None

    def __call__(self, x):
        y = self.second(nnx.relu(self.first(x)))
        return nnx.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class Bottleneck(nnx.Module):
    expansion = 4

    def __init__(self, inputs, width, rngs, strides=1):
        outputs = 4 * width
        self.first = ConvNorm(inputs, width, 1, rngs)
        self.second = ConvNorm(width, width, 3, rngs, strides)
        self.third = ConvNorm(width, outputs, 1, rngs)
        self.shortcut = ConvNorm(inputs, outputs, 1, rngs, strides) if strides != 1 or inputs != outputs else None

    def __call__(self, x):
        y = nnx.relu(self.second(nnx.relu(self.first(x))))
        return nnx.relu(self.third(y) + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nnx.Module):
    def __init__(self, block, depths, rngs, width=8, classes=10):
        self.stem = ConvNorm(3, width, 7, rngs, 2)
        blocks, inputs = [], width
        for stage, depth in enumerate(depths):
            for index in range(depth):
                strides = 2 if stage > 0 and index == 0 else 1
                blocks.append(block(inputs, width << stage, rngs, strides))
                inputs = (width << stage) * block.expansion
        self.blocks = nnx.List(blocks)
        self.head = nnx.Linear(inputs, classes, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.stem(x))
        x = nnx.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
        for block in self.blocks:
            x = block(x)
        return self.head(jnp.mean(x, axis=(1, 2)))


class DoubleConv(nnx.Module):
    def __init__(self, inputs, outputs, norm, rngs):
        self.first = nnx.Conv(inputs, outputs, (3, 3), rngs=rngs)
        self.norm1 = norm(outputs, rngs=rngs)
        self.second = nnx.Conv(outputs, outputs, (3, 3), rngs=rngs)
        self.norm2 = norm(outputs, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm1(self.first(x)))
        return nnx.relu(self.norm2(self.second(x)))


class UNet(nnx.Module):
    """Skips from the way down to the way up; upsampling by transposed convolution, or by resizing and a convolution."""

    def __init__(self, norm, upsampling, rngs, width=8, depth=2):
        self.upsampling = upsampling
        sizes = [width << level for level in range(depth + 1)]
        self.down = nnx.List([DoubleConv(a, b, norm, rngs) for a, b in zip([3, *sizes], sizes, strict=False)])
        pairs = [(sizes[level + 1], sizes[level]) for level in reversed(range(depth))]
        if upsampling == "transposed":
            self.enlarge = nnx.List([nnx.ConvTranspose(a, b, (2, 2), strides=(2, 2), rngs=rngs) for a, b in pairs])
        else:
            self.enlarge = nnx.List([nnx.Conv(a, b, (3, 3), rngs=rngs) for a, b in pairs])
        self.up = nnx.List([DoubleConv(2 * b, b, norm, rngs) for _, b in pairs])
        self.last = nnx.Conv(width, 1, (1, 1), rngs=rngs)

    def larger(self, x, layer):
        if self.upsampling != "transposed":
            batch, height, width, channels = x.shape
            x = jax.image.resize(x, (batch, 2 * height, 2 * width, channels), self.upsampling)
        return layer(x)

    def __call__(self, x):
        skips = []
        for index, block in enumerate(self.down):
            x = block(x)
            if index + 1 < len(self.down):
                skips.append(x)
                x = nnx.max_pool(x, (2, 2), strides=(2, 2))
        for enlarge, block, skip in zip(self.enlarge, self.up, reversed(skips), strict=True):
            x = block(jnp.concatenate([skip, self.larger(x, enlarge)], axis=-1))
        return nnx.sigmoid(self.last(x))


def batch_norm(features, rngs):
    return nnx.BatchNorm(features, use_running_average=True, rngs=rngs)


def group_norm(features, rngs):
    return nnx.GroupNorm(features, num_groups=4, rngs=rngs)


RESNET = {"MaxPool": 1, "ReduceMean": 1, "Gemm": 1, "Transpose": 1}
UNET = {"Relu": 10, "MaxPool": 2, "Concat": 2, "Sigmoid": 1, "Transpose": 2}
# ONNX Runtime takes GroupNormalization apart into some twenty nodes; an InstanceNormalization of the groups is twice
# as fast: Reshape, InstanceNormalization, Reshape, Mul, Add.
GROUP_NORMS = {"Reshape": 20, "InstanceNormalization": 10, "Mul": 10, "Add": 10}
RESIZING = {**UNET, **GROUP_NORMS, "Conv": 13, "Resize": 2}

# Name -> (a function that makes the model, the shape of its input, what an expert would write by hand).
MODELS = {
    "resnet18": (
        lambda: ResNet(BasicBlock, (2, 2, 2, 2), nnx.Rngs(0)),
        (1, 64, 64, 3),
        {**RESNET, "Conv": 20, "Relu": 17, "Add": 8},
    ),
    "resnet50": (
        lambda: ResNet(Bottleneck, (3, 4, 6, 3), nnx.Rngs(0), width=4),
        (1, 64, 64, 3),
        {**RESNET, "Conv": 53, "Relu": 49, "Add": 16},
    ),
    "unet_batch_norm": (
        lambda: UNet(batch_norm, "transposed", nnx.Rngs(0)),
        (1, 16, 16, 3),
        {**UNET, "Conv": 11, "ConvTranspose": 2},
    ),
    "unet_nearest": (lambda: UNet(group_norm, "nearest", nnx.Rngs(0)), (1, 16, 16, 3), RESIZING),
    "unet_bilinear": (lambda: UNet(group_norm, "bilinear", nnx.Rngs(0)), (1, 16, 16, 3), RESIZING),
}
NAMES = tuple(MODELS)


def expert(name: str) -> Counter[str]:
    return Counter(MODELS[name][2])


def build(name: str, dtype=jnp.float32):
    make, shape, _ = MODELS[name]
    return of_type(vary(make()), dtype), [jax.ShapeDtypeStruct(shape, dtype)]
