#!/bin/sh
# Fuzzes every command that reads a file. Usage: fuzz.sh FOLDER [SECONDS]; what is found is left in FOLDER.
set -eu
folder=$1
seconds=${2:-600}
compiler=${CLANG:-}
for name in clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do
  [ -n "$compiler" ] || compiler=$(command -v "$name" || true)
done
[ -n "$compiler" ] || { echo "clang is needed: CLANG=/path/to/clang"; exit 1; }
mkdir -p "$folder/corpus" "$folder/files"
python3 tools/embed_page.py src/tool/page/page.html src/tool/page/page.css src/tool/page/page_list.js src/tool/page/page.js "$folder/page_parts.inc"
"$compiler" -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -D_GNU_SOURCE \
  -DJ2O_VERSION='"0"' -Isrc -Iinclude -I"$folder" tests/fuzz/command_harness.c \
  $(find src -name '*.c' ! -name main.c ! -path 'src/python/*') -lm -o "$folder/command_harness"
TMPDIR=$folder/files "$folder/command_harness" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
  -artifact_prefix="$folder/" "$folder/corpus" tests/fuzz/corpus
