"""The commands of `python -m jax2onnx`. No other module imports from here."""
