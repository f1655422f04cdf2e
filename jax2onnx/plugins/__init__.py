"""Names that plugins for the Python jax2onnx import."""
