"""Keras on JAX: models exported by Keras' own ``model.export(format="onnx")``, run at other batch sizes than traced."""

import inspect

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from export_check import all_nodes, check_model, metadata
from keras import layers
from layer_check import check_coverage, numbers

from jax2onnx import stacktrace_metadata

BATCHES = (1, 3)


def exported(model, path, **options):
    """The model as Keras writes it, with the whole provenance, checked."""
    if hasattr(model, "input"):
        model(model.input)  # Keras exports models that have been called
    with stacktrace_metadata("full"):
        model.export(path, format="onnx", verbose=False, **options)
    proto = onnx.load(path)
    check_model(proto)
    return proto


def check_keras(model, path, atol=1e-5, inputs=(), **options):
    texts = inputs or [input_text(tensor) for tensor in model.inputs]
    values = [[numbers(text, batch) for text in texts] for batch in BATCHES]
    results = [model.predict_on_batch(args if len(args) > 1 else args[0]) for args in values]
    proto = exported(model, path, **options)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    for args, expected in zip(values, results, strict=True):
        actual = session.run(None, dict(zip(names, args, strict=True)))
        for got, want in zip(actual, map(np.asarray, keras.tree.flatten(expected)), strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=atol * max(1.0, np.abs(want).max(initial=0)))
    return proto


def input_text(tensor):
    sizes = ["B" if size is None else str(size) for size in tensor.shape]
    return f"{tensor.dtype}[{','.join(sizes)}]"


def vary(model):
    """Moves every weight away from its initial value, so that none is all zeros or ones."""
    generator = np.random.default_rng(0)
    model.set_weights(
        [
            weight + generator.uniform(0.05, 0.3, weight.shape) if weight.dtype.kind == "f" else weight
            for weight in model.get_weights()
        ]
    )


def model_of(make, *shapes, dtype="float32"):
    """A model of one layer over inputs of these shapes, without the batch."""
    inputs = [keras.Input(shape, dtype=dtype) for shape in shapes]
    model = keras.Model(
        inputs if len(inputs) > 1 else inputs[0], make()(*inputs) if len(inputs) == 1 else make()(inputs)
    )
    vary(model)
    return model


def attention(make):
    """Layers that take query, value and key as arguments of their own."""
    return lambda: lambda inputs: make()(*inputs)


def recurrent_cell(make, states):
    return lambda: lambda inputs: make()(inputs[0], list(inputs[1 : 1 + states]))[0]


def normalization():
    return layers.Normalization(mean=[1.0, 2.0, 3.0, 4.0], variance=[4.0, 3.0, 2.0, 1.0])


def masked():
    return lambda x: layers.LSTM(3)(layers.Masking(mask_value=0.0)(x))


def embedded():
    return lambda x: layers.GRU(3)(layers.Embedding(5, 4, mask_zero=True)(x))


def discretized():
    return layers.Discretization(bin_boundaries=[-1.0, 0.0, 0.5])


SEQUENCE, IMAGE, VOLUME = (6, 4), (6, 7, 4), (4, 5, 6, 2)
PHOTO = (6, 7, 3)  # some layers insist on three colours
# The layers that the default run tries; the rest runs when asked for.
SAMPLE = (
    *("Dense", "LSTM", "Bidirectional", "MultiHeadAttention", "GroupNormalization", "Conv2D", "Conv1DTranspose"),
    *("MaxPooling2D", "Resizing", "Embedding", "SeparableConv2D", "Concatenate", "BatchNormalization"),
)


def over(shape, *kinds, **options):
    """One case for each kind of layer that takes the same arguments."""
    return {kind.__name__: (lambda kind=kind: kind(**options), shape) for kind in kinds}


LAYERS = {
    # Recurrent
    "SimpleRNN": (lambda: layers.SimpleRNN(3), SEQUENCE),
    "SimpleRNN sequences": (lambda: layers.SimpleRNN(3, return_sequences=True, go_backwards=True), SEQUENCE),
    "GRU": (lambda: layers.GRU(3, return_sequences=True), SEQUENCE),
    "GRU old": (lambda: layers.GRU(3, reset_after=False, return_state=True), SEQUENCE),
    "LSTM": (lambda: layers.LSTM(3, return_sequences=True), SEQUENCE),
    "LSTM states": (lambda: layers.LSTM(3, return_sequences=True, return_state=True), SEQUENCE),
    "LSTM unrolled": (lambda: layers.LSTM(3, unroll=True), SEQUENCE),
    "LSTM symbolic": (lambda: layers.LSTM(3), (None, 4)),
    "Bidirectional": (lambda: layers.Bidirectional(layers.LSTM(3, return_sequences=True)), SEQUENCE),
    "Bidirectional sum": (lambda: layers.Bidirectional(layers.GRU(3), merge_mode="sum"), SEQUENCE),
    "RNN": (lambda: layers.RNN(layers.GRUCell(3)), SEQUENCE),
    "StackedRNNCells": (lambda: layers.RNN(layers.StackedRNNCells([layers.LSTMCell(3), layers.GRUCell(4)])), SEQUENCE),
    "SimpleRNNCell": (recurrent_cell(lambda: layers.SimpleRNNCell(3), 1), (4,), (3,)),
    "GRUCell": (recurrent_cell(lambda: layers.GRUCell(3), 1), (4,), (3,)),
    "LSTMCell": (recurrent_cell(lambda: layers.LSTMCell(3), 2), (4,), (3,), (3,)),
    "ConvLSTM1D": (lambda: layers.ConvLSTM1D(3, 3, padding="same"), (3, 6, 2)),
    "ConvLSTM2D": (lambda: layers.ConvLSTM2D(3, 3, return_sequences=True), (3, 5, 6, 2)),
    "ConvLSTM3D": (lambda: layers.ConvLSTM3D(2, 2), (2, 3, 4, 3, 2)),
    "TimeDistributed": (lambda: layers.TimeDistributed(layers.Dense(3)), SEQUENCE),
    "Masking": (masked, SEQUENCE),
    # Attention
    "MultiHeadAttention": (attention(lambda: layers.MultiHeadAttention(2, 4)), (5, 8), (3, 8)),
    "MultiHeadAttention causal": (
        lambda: lambda x: layers.MultiHeadAttention(2, 4, flash_attention=False)(x, x, use_causal_mask=True),
        (5, 8),
    ),
    "GroupedQueryAttention": (attention(lambda: layers.GroupQueryAttention(4, 4, 2)), (5, 8), (3, 8)),
    "Attention": (lambda: layers.Attention(use_scale=True), (5, 4), (3, 4)),
    "Attention concat": (lambda: layers.Attention(score_mode="concat"), (5, 4), (3, 4)),
    "AdditiveAttention": (lambda: layers.AdditiveAttention(), (5, 4), (3, 4)),
    # Normalisation
    "BatchNormalization": (lambda: layers.BatchNormalization(), IMAGE),
    "BatchNormalization axis": (lambda: layers.BatchNormalization(axis=1), IMAGE),
    "LayerNormalization": (lambda: layers.LayerNormalization(), SEQUENCE),
    "LayerNormalization axes": (lambda: layers.LayerNormalization(axis=(1, 2)), SEQUENCE),
    "GroupNormalization": (lambda: layers.GroupNormalization(groups=2), IMAGE),
    "RMSNormalization": (lambda: layers.RMSNormalization(), SEQUENCE),
    "UnitNormalization": (lambda: layers.UnitNormalization(), SEQUENCE),
    "SpectralNormalization": (lambda: layers.SpectralNormalization(layers.Dense(3)), (4,)),
    "Normalization": (normalization, SEQUENCE),
    # Resampling and movement
    **over(SEQUENCE, layers.UpSampling1D, size=2),
    **over(IMAGE, layers.UpSampling2D, size=(2, 3)),
    **over(VOLUME, layers.UpSampling3D, size=2),
    "UpSampling2D bilinear": (lambda: layers.UpSampling2D(2, interpolation="bilinear"), IMAGE),
    "UpSampling2D bicubic": (lambda: layers.UpSampling2D(2, interpolation="bicubic"), IMAGE),
    "Resizing": (lambda: layers.Resizing(9, 5), IMAGE),
    "Resizing nearest": (lambda: layers.Resizing(3, 11, interpolation="nearest"), IMAGE),
    "Resizing lanczos": (lambda: layers.Resizing(4, 4, interpolation="lanczos3"), IMAGE),
    "Resizing crop": (lambda: layers.Resizing(4, 6, crop_to_aspect_ratio=True), IMAGE),
    "CenterCrop": (lambda: layers.CenterCrop(4, 3), IMAGE),
    "ZeroPadding1D": (lambda: layers.ZeroPadding1D((1, 2)), SEQUENCE),
    "ZeroPadding2D": (lambda: layers.ZeroPadding2D(((1, 2), (0, 3))), IMAGE),
    "ZeroPadding3D": (lambda: layers.ZeroPadding3D(1), VOLUME),
    "Cropping1D": (lambda: layers.Cropping1D((1, 2)), SEQUENCE),
    "Cropping2D": (lambda: layers.Cropping2D(((1, 2), (0, 3))), IMAGE),
    "Cropping3D": (lambda: layers.Cropping3D(1), VOLUME),
    "Flatten": (lambda: layers.Flatten(), IMAGE),
    "Reshape": (lambda: layers.Reshape((-1, 2)), SEQUENCE),
    "Permute": (lambda: layers.Permute((2, 1)), SEQUENCE),
    "RepeatVector": (lambda: layers.RepeatVector(3), (4,)),
    # Convolution
    **over(SEQUENCE, layers.Conv1D, filters=3, kernel_size=3),
    "Conv1D causal": (lambda: layers.Conv1D(3, 2, padding="causal", dilation_rate=2), SEQUENCE),
    **over(IMAGE, layers.Conv2D, filters=3, kernel_size=3, padding="same"),
    "Conv2D strides": (lambda: layers.Conv2D(4, 3, strides=2, padding="same", groups=2, activation="relu"), IMAGE),
    "Conv2D channels": (lambda: layers.Conv2D(3, 3, data_format="channels_first"), IMAGE),
    **over(VOLUME, layers.Conv3D, filters=3, kernel_size=2),
    **over(SEQUENCE, layers.SeparableConv1D, layers.Conv1DTranspose, filters=3, kernel_size=3, strides=2),
    **over(IMAGE, layers.SeparableConv2D, filters=3, kernel_size=3, padding="same"),
    **over(IMAGE, layers.Conv2DTranspose, filters=3, kernel_size=3, strides=2, padding="same"),
    "Conv2DTranspose output": (lambda: layers.Conv2DTranspose(3, 3, strides=3, output_padding=1), IMAGE),
    **over(VOLUME, layers.Conv3DTranspose, filters=3, kernel_size=2, strides=2),
    **over(SEQUENCE, layers.DepthwiseConv1D, kernel_size=3, depth_multiplier=2),
    **over(IMAGE, layers.DepthwiseConv2D, kernel_size=3, strides=2, padding="same"),
    # Pooling
    **over(SEQUENCE, layers.MaxPooling1D, layers.AveragePooling1D, pool_size=2),
    **over(IMAGE, layers.MaxPooling2D, layers.AveragePooling2D, pool_size=3, strides=2, padding="same"),
    **over(VOLUME, layers.MaxPooling3D, layers.AveragePooling3D, pool_size=2),
    **over(SEQUENCE, layers.GlobalMaxPooling1D, layers.GlobalAveragePooling1D),
    **over(IMAGE, layers.GlobalMaxPooling2D, layers.GlobalAveragePooling2D, keepdims=True),
    **over(VOLUME, layers.GlobalMaxPooling3D, layers.GlobalAveragePooling3D),
    **over(SEQUENCE, layers.AdaptiveAveragePooling1D, layers.AdaptiveMaxPooling1D, output_size=4),
    **over(IMAGE, layers.AdaptiveAveragePooling2D, layers.AdaptiveMaxPooling2D, output_size=3),
    **over(VOLUME, layers.AdaptiveAveragePooling3D, layers.AdaptiveMaxPooling3D, output_size=2),
    # Products and tables
    "Dense": (lambda: layers.Dense(3, activation="gelu"), SEQUENCE),
    "Dense lora": (lambda: layers.Dense(3, lora_rank=2), SEQUENCE),
    "EinsumDense": (lambda: layers.EinsumDense("abc,cd->abd", output_shape=(None, 3), bias_axes="d"), SEQUENCE),
    "Embedding": (lambda: layers.Embedding(5, 4), (6,), "int32"),
    "Embedding masked": (embedded, (6,), "int32"),
    "ReversibleEmbedding": (lambda: layers.ReversibleEmbedding(5, 4), (6,), "int32"),
    "CategoryEncoding": (lambda: layers.CategoryEncoding(5, output_mode="multi_hot"), (3,), "int32"),
    "Discretization": (discretized, SEQUENCE),
    # Activations and element-wise
    "Activation": (lambda: layers.Activation("tanh"), SEQUENCE),
    **over(SEQUENCE, layers.ELU, layers.LeakyReLU, layers.PReLU, layers.Softmax, layers.Identity),
    "ReLU": (lambda: layers.ReLU(max_value=1.0, negative_slope=0.1, threshold=0.2), SEQUENCE),
    "Rescaling": (lambda: layers.Rescaling(1 / 127.5, offset=-1), IMAGE),
    "Lambda": (lambda: layers.Lambda(lambda x: keras.ops.sin(x) + 1), SEQUENCE),
    "ActivityRegularization": (lambda: layers.ActivityRegularization(l1=0.1), SEQUENCE),
    # Signals
    "STFTSpectrogram": (lambda: layers.STFTSpectrogram(frame_length=16, frame_step=8, fft_length=16), (64, 1)),
    "MelSpectrogram": (
        lambda: layers.MelSpectrogram(
            fft_length=32, sequence_stride=16, sampling_rate=400, num_mel_bins=6, max_freq=200
        ),
        (96,),
    ),
    # Off at inference
    **over(SEQUENCE, layers.Dropout, layers.AlphaDropout, layers.GaussianDropout, layers.SpatialDropout1D, rate=0.5),
    **over(IMAGE, layers.SpatialDropout2D, rate=0.5),
    **over(VOLUME, layers.SpatialDropout3D, rate=0.5),
    "GaussianNoise": (lambda: layers.GaussianNoise(0.5), SEQUENCE),
    # For training data: at inference these pass images on, or change them the same way each time
    **over(
        PHOTO, layers.AugMix, layers.CutMix, layers.RandAugment, layers.RandomColorJitter, layers.RandomElasticTransform
    ),
    **over(PHOTO, layers.RandomErasing, layers.RandomFlip, layers.RandomGaussianBlur, layers.RandomGrayscale),
    **over(PHOTO, layers.RandomInvert, layers.RandomPerspective, layers.RandomShear, layers.AutoContrast),
    **over(PHOTO, layers.ContrastLimitedAdaptiveHistogramEqualization, layers.Solarization),
    **over(PHOTO, layers.RandomBrightness, layers.RandomColorDegeneration, layers.RandomContrast, factor=0.2),
    **over(PHOTO, layers.RandomHue, layers.RandomRotation, layers.RandomSaturation, layers.RandomSharpness, factor=0.2),
    **over(PHOTO, layers.RandomPosterization, factor=4),
    **over(PHOTO, layers.RandomTranslation, layers.RandomZoom, height_factor=0.2, width_factor=0.2),
    **over(PHOTO, layers.RandomCrop, height=4, width=4),
    # Merging
    **{
        kind.__name__: (lambda kind=kind: kind(), SEQUENCE, SEQUENCE)
        for kind in (layers.Add, layers.Subtract, layers.Multiply, layers.Average, layers.Maximum, layers.Minimum)
    },
    "Concatenate": (lambda: layers.Concatenate(axis=1), (2, 4), (3, 4)),
    "Dot": (lambda: layers.Dot(axes=2, normalize=True), (2, 4), (3, 4)),
}
STRINGS = "works on strings or needs TensorFlow"
EXCEPTIONS = {
    "Layer": "the base of all layers",
    "Wrapper": "the base of wrapping layers",
    "InputLayer": "an input, in every model here",
    "Pipeline": "holds preprocessing layers",
    "MaxNumBoundingBoxes": "works on bounding boxes in a dictionary, not on arrays",
    "JaxLayer": "cannot be built without TensorFlow when the batch is not known",
    "FlaxLayer": "cannot be built without TensorFlow when the batch is not known",
    "TorchModuleWrapper": "holds a PyTorch module",
    "Equalization": "Keras itself cannot make a model of it ('part of a cycle')",
    "MixUp": "shuffles the batch, which JAX cannot trace when its size is not known",
    **dict.fromkeys(("HashedCrossing", "Hashing", "IntegerLookup", "StringLookup"), STRINGS),
    **dict.fromkeys(("TextVectorization", "TFSMLayer"), STRINGS),
}


def sampled(names, sample):
    return [pytest.param(name, marks=[] if name in sample else [pytest.mark.full]) for name in names]


def test_every_layer_is_accounted_for():
    kinds = [kind for kind in vars(layers).values() if inspect.isclass(kind) and issubclass(kind, keras.Layer)]
    check_coverage({kind.__name__ for kind in kinds}, LAYERS, EXCEPTIONS)


@pytest.mark.parametrize("name", sampled(LAYERS, SAMPLE))
def test_layer(name, tmp_path):
    make, *shapes = LAYERS[name]
    dtype = shapes.pop() if isinstance(shapes[-1], str) else "float32"
    check_keras(model_of(make, *shapes, dtype=dtype), tmp_path / "model.onnx")


ACTIVATIONS = [
    name
    for name, fn in vars(keras.activations).items()
    if inspect.isfunction(fn) and name not in ("get", "serialize", "deserialize", "threshold")
]


@pytest.mark.full
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name, tmp_path):
    check_keras(
        model_of(lambda: layers.Activation(getattr(keras.activations, name)), SEQUENCE), tmp_path / "model.onnx"
    )


def test_parameters_are_named_by_the_path_keras_gives_them(tmp_path):
    inputs = keras.Input((6, 4))
    hidden = layers.LSTM(3, name="memory")(layers.Dense(4, name="first")(inputs))
    model = keras.Model(inputs, layers.Dense(2, name="last")(hidden))
    vary(model)
    names = {tensor.name for tensor in check_keras(model, tmp_path / "model.onnx").graph.initializer}
    paths = {variable.path for variable in model.weights}
    assert {path for path in paths if "lstm_cell" not in path} <= names
    assert {f"{path}_packed" for path in paths if "lstm_cell" in path} <= names  # in the order of gates that ONNX has


def test_inputs_of_any_structure(tmp_path):
    inputs = {"left": keras.Input((4,), name="left"), "right": keras.Input((4,), name="right")}
    model = keras.Model(inputs, layers.Dense(2)(inputs["left"] * inputs["right"]))
    proto = exported(model, tmp_path / "model.onnx")
    assert [value.name for value in proto.graph.input] == ["left", "right"]
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_a_model_written_as_a_class(tmp_path):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = layers.Dense(8, activation="relu")
            self.last = layers.Dense(3)

        def call(self, x):
            return self.last(self.hidden(x))

    model = Model()
    model(np.ones((2, 4), np.float32))
    check_keras(model, tmp_path / "model.onnx", inputs=["f32[B,4]"])


def test_opset_version(tmp_path):
    proto = check_keras(model_of(lambda: layers.Dense(3), (4,)), tmp_path / "model.onnx", opset_version=18)
    assert proto.opset_import[0].version == 18


# The smallest input that each model takes, and as many kinds of architecture as there are.
APPLICATIONS = {
    "MobileNet": (32, 32, 3),
    "MobileNetV3Small": (32, 32, 3),
    "MobileNetV2": (32, 32, 3),
    "EfficientNetB0": (32, 32, 3),
    "EfficientNetV2B0": (32, 32, 3),
    "ResNet50": (32, 32, 3),
    "ResNet50V2": (32, 32, 3),
    "DenseNet121": (32, 32, 3),
    "Xception": (71, 71, 3),
    "InceptionV3": (75, 75, 3),
    "ConvNeXtTiny": (32, 32, 3),
    "NASNetMobile": (32, 32, 3),
    "VGG16": (32, 32, 3),
}


@pytest.mark.parametrize("name", sampled(APPLICATIONS, ("MobileNet",)))
def test_application(name, tmp_path):
    model = getattr(keras.applications, name)(weights=None, input_shape=APPLICATIONS[name], classes=10)
    proto = check_keras(model, tmp_path / "model.onnx")
    names = [tensor.name for tensor in proto.graph.initializer]
    kernels = [variable.path for variable in model.weights if len(variable.shape) > 1]
    assert all(any(name.startswith(path) for name in names) for path in kernels)


# The line that a node names


class Gate(layers.Layer):
    """The user's own layer around one of Keras'."""

    def __init__(self, **options):
        super().__init__(**options)
        self.dense = layers.Dense(4)

    def call(self, x):
        return keras.ops.sigmoid(self.dense(x)) * x


def network():
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, padding="same")(inputs)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.Reshape((16, 4))(layers.MaxPooling2D()(x))
    x = layers.MultiHeadAttention(2, 3)(layers.LayerNormalization()(x), x)
    x = Gate()(layers.GRU(4)(x))
    return keras.Model(inputs, layers.Dense(2, activation="softmax")(x))


def test_nodes_name_the_lines_of_the_layers_and_not_of_the_backend(tmp_path):
    model = network()
    proto = exported(model, tmp_path / "m.onnx")
    layers_by_path = {layer.path or layer.name: layer for layer in model._flatten_layers()}
    for node in all_nodes(proto):
        said = metadata(node)
        function, _, line = said["pkg.jax2onnx.callsite"].rpartition(":")
        kind, _, method = function.rpartition(".")
        layer = layers_by_path[said["pkg.jax2onnx.module"].replace(".", "/")]
        if node.name.startswith("gate/"):  # the user's frame is the innermost of the user's own
            layer = layers_by_path["gate"]
            assert kind == "Gate"
        [holder] = [base for base in type(layer).__mro__ if base.__name__ == kind]
        text, first = inspect.getsourcelines(inspect.unwrap(vars(holder)[method]))
        assert first <= int(line) < first + len(text), (node.name, function, line)
    dense = {node.op_type: metadata(node)["pkg.jax2onnx.callsite"] for node in proto.graph.node[-2:]}
    text, first = inspect.getsourcelines(layers.Dense.call)
    written = {key: first + at for at, row in enumerate(text) for key in ("ops.add(", "self.activation(") if key in row}
    assert dense == {
        "Gemm": f"Dense.call:{written['ops.add(']}",
        "Softmax": f"Dense.call:{written['self.activation(']}",
    }
