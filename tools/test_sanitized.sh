#!/bin/sh
# Runs the Python suite with the extension under AddressSanitizer and UBSan. Usage: test_sanitized.sh PYTHON FOLDER [PYTEST ARGUMENT…]
# Without arguments of pytest it takes what touches the extension: under 40 minutes on two cores.
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
# What measures memory would measure the sanitizer's.
sanitized() {
  LD_PRELOAD="$runtime" ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0:alloc_dealloc_mismatch=0 \
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    "$python" -m pytest -q -p no:cacheprovider --no-browser -k "not peak_memory" -n "${JOBS:-2}" "$@"
}
if [ $# -gt 0 ]; then
  sanitized "$@"
  exit
fi
named() {
  for name in $2; do printf '%stests/python/test_%s.py ' "$1" "$name"; done
}
# As they are: what reads and writes files, takes Python's objects apart, or ends in errors.
whole="check command_line core_options custom_primitives doors explain files goldens graft hostile_files large_models
  ledger lines onnx_function_tools onnx_functions opset output passes paths profile provenance provenance_keys records
  refusals regressions report report_against report_graph settings sidecar sources thin_slice to_onnx tools verify weights"
# Not at all: what has other programs at work, or asks nothing of the extension. The crash tests preload a library of
# their own; `make test-c` has the same under sanitizers.
absent="coverage crash demo documents forms graph_quality guides hardening house installation leaks library other_package
  random_programs report_accessibility runtime_quirks schema_table"
# Whole models: every eighth case is converted; SHARD=2/8 takes the next.
models="convolution_layers equinox_layers flax_linen_layers flax_nnx_layers keras_export models modules vision_models"
# All the rest, which is every lowering and every pass: the programs are converted and not run.
sanitized $(named "" "$whole")
export CONVERT_ONLY=1
sanitized --shard="${SHARD:-1/8}" $(named "" "$models")
sanitized $(named --ignore= "$whole $absent $models") tests/python
