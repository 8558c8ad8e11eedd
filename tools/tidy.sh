#!/usr/bin/env bash
# clang-tidy on FILES as build/ compiles them: tools/tidy.sh [--seconds N] [--deep] FILE...
# With --seconds no file is begun after N seconds; with --deep the static analyzer, too, walks the paths of src/. A file
# that passed is checked again only when it, a header that it includes or .clang-tidy has changed.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=0
if [ "${1:-}" = --seconds ]; then
  seconds=$2
  shift 2
fi
depth=quick
if [ "${1:-}" = --deep ]; then
  depth=deep
  shift
fi
tidy=
for name in clang-tidy-14 clang-tidy; do
  if command -v "$name" >/dev/null && "$name" --version | grep -q 'version 14\.'; then
    tidy=$name
    break
  fi
done
if [ -z "$tidy" ]; then
  echo "tidy: skipped, clang-tidy 14 is not here"
  exit 0
fi
if [ ! -f build/compile_commands.json ]; then
  echo "tidy: build/compile_commands.json is missing; run scripts/build.sh first" >&2
  exit 1
fi
exec python3 tools/tidy.py "$tidy" "$seconds" "$depth" "$@"
