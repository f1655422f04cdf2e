"""Writes safetensors for tests: as the format says, or with something wrong in it."""

from __future__ import annotations

import json
import pathlib
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

SPELLED = {
    "bool": "BOOL",
    "int8": "I8",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}


def header_of(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    header, at = {}, 0
    for name, array in arrays.items():
        end = at + array.nbytes
        header[name] = {"dtype": SPELLED[array.dtype.name], "shape": list(array.shape), "data_offsets": [at, end]}
        at = end
    return header


def packed(header: Any, data: bytes) -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text)) + text + data


def write_safetensors(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    path.write_bytes(packed(header_of(arrays), b"".join(array.tobytes() for array in arrays.values())))


def write_shards(folder: pathlib.Path, arrays: Mapping[str, np.ndarray], count: int) -> None:
    """Several files and their index, as large models are published."""
    names = list(arrays)
    places = {}
    for index in range(count):
        file = f"model-{index + 1:05}-of-{count:05}.safetensors"
        part = {name: arrays[name] for name in names[index::count]}
        places.update(dict.fromkeys(part, file))
        write_safetensors(folder / file, part)
    index = {"metadata": {"total_size": sum(array.nbytes for array in arrays.values())}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
