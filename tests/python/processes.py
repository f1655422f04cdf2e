"""One of several processes of jax.distributed that export a model together; test_processes.py starts them.

usage: processes.py PROCESS COUNT PORT FOLDER CASE
"""

from __future__ import annotations

import os
import pathlib
import signal
import sys

DEVICES = 8


def main(process: int, count: int, port: str, folder: pathlib.Path, case: str) -> None:
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES // count}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    if count > 1:
        jax.distributed.initialize(f"localhost:{port}", count, process)
    from jax2onnx import to_onnx
    from jax2onnx._door import fetching, together

    fetching.PIECE = 1 << 18
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
    rng = np.random.default_rng(0)

    def spread(shape: tuple[int, ...], *axes: object) -> jax.Array:
        numbers = rng.normal(size=shape).astype(np.float32)
        if count == 1:
            return jnp.asarray(numbers)
        return jax.make_array_from_callback(
            shape, NamedSharding(mesh, PartitionSpec(*axes)), lambda index: numbers[index]
        )

    weights = {
        "rows": spread((512, 1024), "a"),
        "columns": spread((1024, 512), None, "b"),
        "both": spread((512, 1024), "b", "a"),
        "all": spread((1024, 512), ("a", "b"), None),
        "inner": spread((8, 64, 512), None, "a", None),
        "middle": spread((512, 8, 64), "b", None, "a"),
        "replicated": spread((512, 600)),
        "small": spread((8,), "a"),
        "turned": spread((512, 600), "a", "b"),
        "scaled": spread((3, 3, 2, 8), None, None, None, "a"),
        "local": jnp.asarray(rng.normal(size=(512, 512)).astype(np.float32)),
    }

    def model(x: jax.Array, image: jax.Array) -> jax.Array:
        x = x @ weights["rows"] @ weights["columns"] @ weights["both"] @ weights["all"]
        x = x @ weights["inner"].reshape(512, 512) @ weights["middle"].reshape(512, 512)
        x = x @ weights["replicated"] @ weights["turned"].T @ weights["local"]
        numbers = ("NHWC", "HWIO", "NHWC")
        image = jax.lax.conv_general_dilated(image, weights["scaled"], (1, 1), "SAME", dimension_numbers=numbers)
        return x + (image.mean((1, 2)) * weights["small"]).sum(-1)[:, None]

    def export(path: pathlib.Path) -> str:
        def fresh(x: jax.Array, image: jax.Array) -> jax.Array:  # JAX keeps the trace of a function, and its weights
            return model(x, image)

        return to_onnx(fresh, [(2, 512), (2, 8, 8, 2)], return_mode="file", output_path=path)

    if case == "twice":  # the second time over the first, with other weights
        export(folder / "model.onnx")
        weights["rows"] = spread((512, 1024), "a")
        export(folder / "model.onnx")
    elif case == "plain":
        assert export(folder / "model.onnx") == str(folder / "model.onnx")
    else:
        fail(case, process, together)
        try:
            export(folder / "model.onnx")
        except Exception as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            os._exit(3)  # without JAX's own farewell, for which it waits
    print("good", flush=True)
    os._exit(0) if count == 1 else jax.distributed.shutdown()


def fail(case: str, process: int, together: object) -> None:
    """Something happens to one of the processes when it is asked to write."""
    what, _, who = case.partition(" ")
    original = together.Company._write

    def write(self: object, *request: object) -> None:
        if process == int(who):
            if what == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError("the disk is full")
        original(self, *request)

    together.Company._write = write


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], pathlib.Path(sys.argv[4]), sys.argv[5])
