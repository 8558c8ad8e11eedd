#!/usr/bin/env bash
# clang-tidy on every source file, in parallel; a file that passed and did not change since is not checked again.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install.sh build tests
scripts/build.sh --all
tools/tidy.sh $(git ls-files 'src/*.cpp' 'tests/*.cpp' 'bench/*.cpp')
