#!/bin/sh
# Fuzzes every command that reads a file, under sanitizers: tests/fuzz/campaign.c. Usage: fuzz.sh PYTHON FOLDER [SECONDS]
# The inputs follow from the sources: others for every change of them, the same again for the same tree. What is found is
# left in FOLDER.
set -eu
python=$1
folder=$2
seconds=${3:-600}
build=build/sanitized
[ -f "$build/build.ninja" ] || tools/test_c.sh "$python" "$build"
ninja -C "$build" -j "${JOBS:-2}" j2o_fuzz >"$build.log" 2>&1 || {
  cat "$build.log"
  exit 1
}
mkdir -p "$folder/files"
seed=${SEED:-$(cat $(git ls-files src include tests/fuzz tests/lower tests/passes) | cksum | cut -d ' ' -f 1)}
TMPDIR=$folder/files UBSAN_OPTIONS=halt_on_error=1:abort_on_error=1:print_stacktrace=1 \
  "$build/j2o_fuzz" --seconds "$seconds" --seed "$seed" "$folder" tests/fuzz/corpus/* tests/lower/*.txt tests/passes/*.txt
