"""The smallest program whose nodes say where they came from. `make sample` keeps its export beside this file."""

import jax.numpy as jnp


def scaled_sine(x):
    return jnp.sin(x) * 2.0


if __name__ == "__main__":
    from jax2onnx import to_onnx

    path = "sandbox_stacktrace_sample.onnx"
    to_onnx(scaled_sine, [(2,)], return_mode="file", output_path=path, stacktrace_metadata="full")
    print(f"{path}: look into it with jax2onnx inspect --full {path}")
