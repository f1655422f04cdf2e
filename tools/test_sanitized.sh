#!/bin/sh
# Runs the Python suite with the extension under AddressSanitizer and UBSan. Usage: test_sanitized.sh PYTHON FOLDER [PYTEST ARGUMENT…]
# Without arguments of pytest it takes the part that is made for: under 40 minutes on two cores.
# The interpreter itself is not instrumented, so the runtime is preloaded; leaks are looked for by tests of their own.
set -eu
python=$1
folder=$2
shift 2
# libstdc++ comes along: the runtime looks for C++'s throw when it is loaded, and jaxlib throws.
runtime="$(gcc -print-file-name=libasan.so) libstdc++.so.6"
kept=$(mktemp)
[ ! -f "jax2onnx/_core.abi3.so" ] || cp "jax2onnx/_core.abi3.so" "$kept"
trap 'if [ -s "$kept" ]; then cp "$kept" "jax2onnx/_core.abi3.so"; fi; rm -f "$kept"' EXIT
tools/build_in_place.sh "$python" "$folder" -Db_lto=false -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1
sanitized() {
  LD_PRELOAD="$runtime" ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0:alloc_dealloc_mismatch=0 \
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    "$python" -m pytest -q -p no:cacheprovider -n "${JOBS:-2}" "$@"
}
if [ $# -gt 0 ]; then
  sanitized "$@"
  exit
fi
# Whole: what reads and writes files, takes Python's objects apart, or ends in errors. Of the rest, which is many cases of the
# same code, one in eight; SHARD=2/8 takes the next.
whole="files output tools command_line provenance passes thin_slice to_onnx goldens refusals onnx_functions
  onnx_function_tools custom_primitives settings explain regressions graph_quality"
ignored=
paths=
for name in $whole; do
  paths="$paths tests/python/test_$name.py"
  ignored="$ignored --ignore=tests/python/test_$name.py"
done
sanitized $paths
sanitized --shard="${SHARD:-1/8}" $ignored tests/python
