"""Runs every model of a folder in one runtime, each in a process of its own: a crash is a result.

usage: python worker.py RUNTIME FOLDER [NAME…]        with the Python of the runtime's environment

Needs NumPy and the runtime alone. cases.py says what is read and written.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases

SECONDS = 300  # of the processor for one model, in each process that runs for it
WAIT = 1800  # for one that does nothing

Run = Callable[[str, dict[str, np.ndarray]], Sequence[np.ndarray]]


def onnxruntime_run() -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4

    def run(path: str, feeds: dict[str, np.ndarray]) -> Sequence[np.ndarray]:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return session.run(None, feeds)

    return run


def reference_run() -> Run:
    from onnx.reference import ReferenceEvaluator

    return lambda path, feeds: ReferenceEvaluator(path).run(None, feeds)


def openvino_run() -> Run:
    import openvino

    core = openvino.Core()

    def run(path: str, feeds: dict[str, np.ndarray]) -> Sequence[np.ndarray]:
        compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        result = compiled(feeds)
        return [result[output] for output in compiled.outputs]

    return run


def tinygrad_run() -> Run:
    os.environ.setdefault("DEV", "CPU")
    from tinygrad import Tensor
    from tinygrad.nn.onnx import OnnxRunner

    def run(path: str, feeds: dict[str, np.ndarray]) -> Sequence[np.ndarray]:
        results = OnnxRunner(path)({name: Tensor(value) for name, value in feeds.items()})
        return [value.numpy() for value in results.values()]

    return run


def iree_run() -> Run:
    import iree.compiler.tools as compiler
    import iree.runtime as runtime
    import onnx
    from iree.compiler.extras import onnx_importer
    from iree.compiler.ir import Context

    def run(path: str, feeds: dict[str, np.ndarray]) -> Sequence[np.ndarray]:
        model = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True)
        with Context() as context:
            info = onnx_importer.ModelInfo(model)
            module = info.create_module(context=context).operation
            onnx_importer.NodeImporter.define_function(info.main_graph, module).import_all()
            text = module.get_asm(assume_verified=True)
        binary = compiler.compile_str(
            text, input_type="onnx", target_backends=["llvm-cpu"], extra_args=["--iree-llvmcpu-target-cpu=host"]
        )
        config = runtime.Config("local-task")
        loaded = runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, binary), config)
        results = loaded[model.graph.name](*feeds.values())
        results = results if isinstance(results, (list, tuple)) else [results]
        return [np.asarray(result) for result in results]

    return run


def mnn_run() -> Run:
    import _tools  # the library: MNN.tools installs packages by itself
    import MNN

    def scalar(value: np.ndarray) -> object:
        kind = MNN.expr.float if value.dtype.kind == "f" else MNN.expr.int
        return MNN.expr.const([value.item()], [], MNN.expr.NCHW, kind)

    def run(path: str, feeds: dict[str, np.ndarray]) -> Sequence[np.ndarray]:
        with tempfile.TemporaryDirectory() as folder:
            made = os.path.join(folder, "model.mnn")
            arguments = ["mnnconvert", "-f", "ONNX", "--modelFile", path, "--MNNModel", made, "--bizCode", "test"]
            _tools.mnnconvert([*arguments, "--keepInputFormat"])
            outputs = [
                array.name
                for array in cases.read_arrays(path[:-5] + ".case", path[:-5] + ".bin")
                if array.kind == "output"
            ]
            net = MNN.nn.load_module_from_file(made, list(feeds), outputs)
        given = []
        for value in feeds.values():
            kept = value.astype(np.int32) if value.dtype in (np.int64, np.bool_) else value
            given.append(MNN.numpy.array(kept) if kept.ndim else scalar(kept))
        results = net.forward([MNN.expr.convert(value, MNN.expr.NCHW) for value in given])
        results = results if isinstance(results, (list, tuple)) else [results]
        return [np.array(MNN.expr.convert(result, MNN.expr.NCHW).read()) for result in results]

    return run


RUNTIMES = {
    "onnxruntime": onnxruntime_run,
    "reference": reference_run,
    "openvino": openvino_run,
    "tinygrad": tinygrad_run,
    "iree": iree_run,
    "mnn": mnn_run,
}


def attempt(run: Run, folder: str, name: str) -> None:
    path = os.path.join(folder, name)
    try:
        feeds = {key: value.copy() for key, value in cases.inputs_of(folder, name).items()}
        results = run(path + ".onnx", feeds)
        arrays = [cases.Array("output", str(index), np.asarray(value)) for index, value in enumerate(results)]
        cases.write_arrays(path + ".got", path + ".got.bin", arrays)
    except BaseException as error:
        with open(path + ".error", "w", encoding="utf-8") as file:
            file.write(f"{type(error).__name__}: {error}"[:20000])


def main() -> None:
    runtime, folder, *names = sys.argv[1:]
    run = RUNTIMES[runtime]()
    for name in names or cases.names_in(folder):
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
            signal.alarm(WAIT)
            attempt(run, folder, name)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            late = os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGXCPU)
            with open(os.path.join(folder, name + ".error"), "w", encoding="utf-8") as file:
                file.write("timed out" if late else f"crashed, signal {status}")


if __name__ == "__main__":
    main()
