#!/bin/sh
# Builds the extension for a Python and puts it beside the package. Usage: build_in_place.sh PYTHON FOLDER [MESON OPTION…]
set -eu
python=$1
folder=$2
shift 2
native=$folder.ini
[ -f "$folder/build.ninja" ] || echo "Building the converter in $folder (half a minute, once)"
mkdir -p "$(dirname "$folder")"
printf "[binaries]\npython = '%s'\n" "$("$python" -c 'import sys; print(sys.executable)')" >"$native.new"
cmp -s "$native.new" "$native" 2>/dev/null || mv "$native.new" "$native"
rm -f "$native.new"
[ -f "$folder/build.ninja" ] || "$python" -m mesonbuild.mesonmain setup "$folder" --native-file "$native" "$@" >"$folder.log" 2>&1 || {
  cat "$folder.log"
  exit 1
}
"$python" -m ninja --version >/dev/null 2>&1 && ninja="$python -m ninja" || ninja=ninja
$ninja -C "$folder" -j "${JOBS:-2}" >"$folder.log" 2>&1 || {
  cat "$folder.log"
  exit 1
}
grep -n "warning:" "$folder.log" || true
module=_core.abi3.so
rm -f jax2onnx/_core.cpython-*.so # Python would prefer one that was built for its version alone
# Renamed into place: a process that has the old one loaded keeps it whole.
cmp -s "$folder/$module" "jax2onnx/$module" || {
  cp "$folder/$module" "jax2onnx/$module.new"
  mv "jax2onnx/$module.new" "jax2onnx/$module"
}
