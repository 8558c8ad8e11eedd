#!/usr/bin/env bash
# Installs what is missing, builds everything, runs every quick check and every test that this machine can run.
# Slower checks have scripts of their own: tidy-all.sh and sanitize.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s (after %d s)\n' "$*" "$SECONDS"; }

step "installing what is missing"
scripts/install.sh build tests

step "layers: which room may include which"
tools/check_layers.sh
step "style: format, file length, words"
tools/check_style.sh
step "documents: every file that they name exists"
tools/check_docs.sh

step "building everything"
scripts/build.sh --all

step "clang-tidy on what changed last, for at most two minutes"
mapfile -t changed < <(tools/changed_files.sh)
tools/tidy.sh --seconds 120 "${changed[@]}"

step "tests"
if ! ctest --test-dir build -j2 --output-on-failure --no-tests=error; then
  # Processes, deadlines and signals meet a busy machine here: only what fails alone, too, is a fault.
  step "what failed, once more and alone"
  ctest --test-dir build --rerun-failed --output-on-failure --no-tests=error
  echo "test: what failed among others has passed alone: it depends on the load of the machine, see above"
fi
