"""Names that plugins written for the Python jax2onnx import."""
