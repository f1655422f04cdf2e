"""The generated ONNX facts are those of the installed onnx, and the C lookup gives them back."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import generate_operators  # noqa: E402
import generate_schema  # noqa: E402

FIELDS = (ROOT / generate_schema.FIELDS_PATH).read_text()
TABLE = (ROOT / generate_schema.TABLE_PATH).read_text()
ROWS = generate_schema.read_table(TABLE)


def skip_unless_generated_from_installed_onnx(text: str) -> None:
    recorded = generate_schema.recorded_version("onnx", text)
    if recorded != onnx.__version__:
        pytest.skip(f"generated from onnx {recorded}, and onnx {onnx.__version__} is installed")


def bit(dtype: str) -> int:
    return 1 << generate_schema.dtypes().index(dtype)


def row_in_force(name: str, opset: int) -> generate_schema.Row:
    return [row for row in ROWS if row.name == name and row.version <= opset][-1]


def test_field_numbers_are_those_of_onnx() -> None:
    skip_unless_generated_from_installed_onnx(FIELDS)
    assert generate_schema.fields_text() == FIELDS


def test_versions_and_standard_types_are_those_of_onnx() -> None:
    skip_unless_generated_from_installed_onnx(TABLE)
    assert generate_schema.schema_part(generate_schema.table_rows(measure=False)) == generate_schema.schema_part(ROWS)


def test_rows_are_sorted_and_unique() -> None:
    keys = [(row.name.encode(), row.version) for row in ROWS]
    assert keys == sorted(set(keys))


def test_masks_use_the_bits_of_the_current_dtype() -> None:
    assert row_in_force("Not", 21).schema == bit("BOOL")
    assert row_in_force("Det", 21).schema == bit("FLOAT16") | bit("FLOAT32") | bit("FLOAT64")
    assert row_in_force("StringConcat", 21).schema == bit("STRING")


@pytest.mark.parametrize(
    ("name", "dtype", "runs"),
    [
        ("Add", "FLOAT32", True),
        ("Add", "INT64", True),
        ("Sin", "FLOAT64", True),
        ("Sin", "BFLOAT16", False),
        ("Conv", "FLOAT32", True),
        ("Not", "BOOL", True),
        ("Not", "INT32", False),
        ("Identity", "BFLOAT16", True),
        ("ScatterND:add", "FLOAT32", True),
        ("Cast:to", "BOOL", True),
    ],
)
def test_runtime_masks_hold_what_was_measured(name: str, dtype: str, runs: bool) -> None:
    assert bool(row_in_force(name, 21).runtime & bit(dtype)) == runs


@pytest.mark.parametrize("name", ["Abs", "Conv", "ScatterND:add"])
def test_measuring_again_gives_the_same_mask(name: str) -> None:
    import onnxruntime

    recorded = generate_schema.recorded_version("onnxruntime", TABLE)
    if recorded != onnxruntime.__version__:
        pytest.skip(f"measured with onnxruntime {recorded}, and onnxruntime {onnxruntime.__version__} is installed")
    row = row_in_force(name, 21)
    assert generate_schema.runtime_mask(name, row.version, range(max(row.version, 17), 22)) & row.runtime == row.runtime


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    path = tmp_path_factory.mktemp("schema") / "schema.so"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-shared", "-fPIC"]
    flags.append("-Wno-missing-field-initializers")
    sources = [ROOT / "src/onnx/facts/schema.c", ROOT / "src/onnx/facts/operators.c"]
    subprocess.run([compiler, *flags, f"-I{ROOT / 'src'}", *sources, "-o", path], check=True)
    loaded = ctypes.CDLL(str(path))
    loaded.schema_runs.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int]
    loaded.schema_runs.restype = ctypes.c_bool
    loaded.op_from_name.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    loaded.schema_version.argtypes = [ctypes.c_int, ctypes.c_int64]
    loaded.schema_version.restype = ctypes.c_int64
    return loaded


def test_lookup_finds_every_row_at_every_opset(library: ctypes.CDLL) -> None:
    for name in {row.name for row in ROWS}:
        op, _, variant = name.partition(":")
        number = library.op_from_name(op.encode(), b"")
        for opset in range(generate_schema.newest_opset() + 2):
            known = [row for row in ROWS if row.name == name and row.version <= opset]
            mask = known[-1].schema & known[-1].runtime if known else 0
            for dtype in range(len(generate_schema.dtypes())):
                found = library.schema_runs(
                    library.op_from_name(op.encode(), b""), variant.encode() or None, opset, dtype
                )
                assert found == bool(mask >> dtype & 1), (name, opset, dtype)
            if not variant:
                version = known[-1].version if known and known[-1].schema else 0
                assert library.schema_version(number, opset) == version, (name, opset)


@pytest.mark.parametrize(("op", "variant"), [("", None), ("Zzz", None), ("Pa", None), ("Pad", "x"), ("Add", "edge")])
def test_lookup_of_the_unknown_is_false(library: ctypes.CDLL, op: str, variant: str | None) -> None:
    float32 = generate_schema.dtypes().index("FLOAT32")
    number = library.op_from_name(op.encode(), b"")
    assert not library.schema_runs(number, variant.encode() if variant else None, 21, float32)


def test_operators_are_those_of_onnx() -> None:
    text = generate_operators.PATH.read_text()
    skip_unless_generated_from_installed_onnx(text)
    assert generate_operators.rows(dict(generate_operators.ROW.findall(text))) in text
    assert generate_operators.signatures() in generate_operators.SIGNATURES.read_text()


def test_dtype_numbers_are_those_of_onnx(library: ctypes.CDLL) -> None:
    numbers = {index: onnx.TensorProto.DataType.Value(name) for name, index in generate_schema.onnx_names().items()}
    for index in range(len(generate_schema.dtypes())):
        assert library.onnx_dtype(index) == numbers.get(index, 0)
    for number in range(-1, 40):
        expected = next((index for index, known in numbers.items() if known == number), 0)
        assert library.dtype_from_onnx(number) == expected
