#!/bin/sh
# Builds the C library without Python and installs it with its header and pkg-config file.
# Usage: install_library.sh PYTHON FOLDER PREFIX
set -eu
python=$1
folder=$2
prefix=$3
mkdir -p "$(dirname "$folder")"
[ -f "$folder/build.ninja" ] || "$python" -m mesonbuild.mesonmain setup "$folder" --libdir lib \
  -Dextension=false -Dlibrary=true -Db_lto=false >"$folder.log" 2>&1 || {
  cat "$folder.log"
  exit 1
}
"$python" -m mesonbuild.mesonmain configure "$folder" -Dprefix="$prefix" >"$folder.log" 2>&1
ninja -C "$folder" -j "${JOBS:-2}" install >"$folder.log" 2>&1 || {
  cat "$folder.log"
  exit 1
}
