"""Keras' image models. What an expert would write is counted from their layers: what folds away counts nothing."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import jax.numpy as jnp
import keras
import numpy as np

NAMES = ("MobileNetV2", "ResNet50", "EfficientNetB0", "DenseNet121", "InceptionV3", "ConvNeXtTiny")
SIZES = {"InceptionV3": 75, "ConvNeXtTiny": 64}

# One operator each, unless a layer below says otherwise; Swish is two before it became an operator of its own.
ACTIVATIONS = {
    "linear": [],
    "relu": ["Relu"],
    "relu6": ["Clip"],
    "silu": ["Sigmoid", "Mul"],
    "gelu": ["Gelu"],
    "sigmoid": ["Sigmoid"],
    "softmax": ["Softmax"],
}
LAYERS = {
    "InputLayer": [],
    "Dropout": [],
    "ZeroPadding2D": [],  # an attribute of what follows
    "Conv2D": ["Conv"],
    "DepthwiseConv2D": ["Conv"],
    "GlobalAveragePooling2D": ["ReduceMean"],
    "Dense": ["Gemm"],
    "Dense of an image": ["MatMul", "Add"],  # Gemm takes matrices only
    "MaxPooling2D": ["MaxPool"],
    "AveragePooling2D": ["AveragePool"],
    "Add": ["Add"],
    "Multiply": ["Mul"],
    "Concatenate": ["Concat"],
    "Reshape": ["Reshape"],
    "Rescaling": ["Mul"],
    "Normalization": ["Sub", "Mul"],
    "LayerNormalization": ["LayerNormalization"],
    "LayerScale": ["Mul"],
}


def _is_folded(layer: Any) -> bool:
    """Is this a normalisation of what a convolution gives to it alone?"""
    source = layer.input._keras_history.operation
    return LAYERS.get(type(source).__name__) == ["Conv"] and len(source._outbound_nodes) == 1


def _operators(layer: Any) -> list[str]:
    kind = type(layer).__name__
    if kind == "Sequential":
        return [op for part in layer.layers for op in _operators(part)]
    if kind == "BatchNormalization":
        return [] if _is_folded(layer) else ["BatchNormalization"]
    if kind == "Dense" and len(layer.input.shape) > 2:
        kind = "Dense of an image"
    if kind == "ReLU":
        return ["Clip" if layer.max_value is not None else "Relu"]
    activation = getattr(layer, "activation", None)
    name = activation.__name__ if activation is not None else "linear"
    return ([] if kind == "Activation" else LAYERS[kind]) + ACTIVATIONS[name]


def expert(name: str) -> Counter[str]:
    model = make(name)
    counts = Counter(op for layer in model.operations for op in _operators(layer))
    # Images come with the channels last. Conv wants them second, LayerNormalization and MatMul want them last.
    counts["Transpose"] += 2 * counts["Conv"] if counts["LayerNormalization"] else 1
    return counts


def make(name: str, dtype=jnp.float32) -> Any:
    """The model: logits for results, as the probabilities of an untrained one hide errors; statistics as if trained."""
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(jnp.dtype(dtype).name)
    size = SIZES.get(name, 64)
    model = getattr(keras.applications, name)(
        weights=None, input_shape=(size, size, 3), classes=10, classifier_activation=None
    )
    random = np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.set_weights([random.uniform(0.6, 1.4, weight.shape) for weight in layer.get_weights()])
    return model


def build(name: str, dtype=jnp.float32):
    model = make(name, dtype)
    return (lambda x: model(x, training=False)), [jax.ShapeDtypeStruct((1, *model.input.shape[1:]), dtype)]
