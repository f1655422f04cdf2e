#!/bin/sh
# Builds the core without sanitizers or optimisation and runs the text tests: seconds after a changed line.
# Usage: test_text.sh PYTHON FOLDER [--write] [-k PART OF A NAME] [FILE|FOLDER…]
set -eu
python=$1
folder=$2
shift 2
mkdir -p "$(dirname "$folder")"
[ -f "$folder/build.ninja" ] || "$python" -m mesonbuild.mesonmain setup "$folder" \
  -Dextension=false -Dunit_tests=true -Db_lto=false -Doptimization=0 >"$folder.log" 2>&1 || {
  cat "$folder.log"
  exit 1
}
ninja -C "$folder" -j "${JOBS:-2}" j2o_text_tests >"$folder.log" 2>&1 || {
  cat "$folder.log"
  exit 1
}
case " $* " in
  *" tests/"* | *.txt*) ;;
  *) set -- "$@" tests/legalize tests/lower tests/passes ;;
esac
"$folder/j2o_text_tests" "$@"
