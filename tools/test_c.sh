#!/bin/sh
# Builds the core without Python, its unit tests and the j2o program under AddressSanitizer and UBSan, and runs the tests.
# Usage: test_c.sh PYTHON FOLDER
set -eu
python=$1
folder=$2
mkdir -p "$(dirname "$folder")"
[ -f "$folder/build.ninja" ] || "$python" -m mesonbuild.mesonmain setup "$folder" \
  -Dextension=false -Dunit_tests=true -Db_lto=false -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 >"$folder.log" 2>&1 || {
  cat "$folder.log"
  exit 1
}
ninja -C "$folder" -j "${JOBS:-2}" >"$folder.log" 2>&1 || {
  cat "$folder.log"
  exit 1
}
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
"$folder/j2o_tests"
"$folder/j2o_text_tests" tests/legalize tests/lower tests/passes

# Every system call of an export fails once, and before every one the process is killed once.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
LD_PRELOAD="$folder/failing_calls.so" ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 "$folder/crash_export" "$scratch/folder" | tail -1
