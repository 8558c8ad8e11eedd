#!/usr/bin/env bash
# clang-tidy on every source file, in parallel; a file that passed and did not change since is not checked again:
# scripts/tidy-all.sh [--deep], --deep with the static analyzer, which takes three times as long.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install.sh build tests
scripts/build.sh --all
mapfile -t files < <(git ls-files "src/*.cpp" "tests/*.cpp")
tools/tidy.sh "$@" "${files[@]}"
