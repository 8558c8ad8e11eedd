#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds, then runs every test that needs one.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh ops_test layouts_test orthant
build/bin/ops_test --gtest_filter='*Cuda*'
build/bin/layouts_test --gtest_filter='*Cuda*'
