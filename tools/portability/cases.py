"""What goes between the exports and the programs that run them: a folder with three files for each model.

NAME.onnx is the model. NAME.case has a line for each array, `input NAME TYPE 2,3 OFFSET` or `output …`, in order, and
NAME.bin their bytes. A program that runs the models writes NAME.got and NAME.got.bin likewise, or NAME.error. The
form is as simple as that so that programs in Rust and JavaScript read it too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np


class Array(NamedTuple):
    kind: str
    name: str
    value: np.ndarray


def write_arrays(table: str, data: str, arrays: Iterable[Array]) -> None:
    offset = 0
    with open(table, "w", encoding="utf-8") as lines, open(data, "wb") as file:
        for kind, name, value in arrays:
            array = np.asarray(value)
            content = array.tobytes()
            lines.write(f"{kind} {name} {array.dtype.name} {','.join(map(str, array.shape)) or '-'} {offset}\n")
            file.write(content)
            offset += len(content)


def read_arrays(table: str, data: str) -> list[Array]:
    with open(data, "rb") as file:
        content = file.read()
    arrays = []
    with open(table, encoding="utf-8") as lines:
        for line in lines:
            kind, name, dtype, sizes, offset = line.split()
            shape = () if sizes == "-" else tuple(map(int, sizes.split(",")))
            count = int(np.prod(shape, dtype=np.int64))
            flat = np.frombuffer(content, np.dtype(dtype), count, int(offset))
            arrays.append(Array(kind, name, flat.reshape(shape)))
    return arrays


def names_in(folder: str) -> list[str]:
    return sorted(entry[: -len(".case")] for entry in os.listdir(folder) if entry.endswith(".case"))


def inputs_of(folder: str, name: str) -> dict[str, np.ndarray]:
    path = os.path.join(folder, name)
    return {array.name: array.value for array in read_arrays(path + ".case", path + ".bin") if array.kind == "input"}


def expected_of(folder: str, name: str) -> list[np.ndarray]:
    path = os.path.join(folder, name)
    return [array.value for array in read_arrays(path + ".case", path + ".bin") if array.kind == "output"]
