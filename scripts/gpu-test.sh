#!/usr/bin/env bash
# On a machine with NVIDIA GPUs: builds, then runs every test that needs one, and small cases under compute-sanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh ops_test layouts_test orthant
build/bin/ops_test --gtest_filter='*Cuda*'
build/bin/layouts_test --gtest_filter='*Cuda*'
if command -v compute-sanitizer >/dev/null; then
  compute-sanitizer --tool memcheck --error-exitcode 1 build/bin/ops_test --gtest_filter='*CudaEqualsRef*'
else
  echo "gpu-test: compute-sanitizer is not here; memory accesses are not checked"
fi
