#!/usr/bin/env bash
# On a machine with NVIDIA GPUs: builds, then runs every test that needs one, and small cases under compute-sanitizer. Tests
# of two GPUs say that they are skipped where there is one.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh ops_test layouts_test matrix_test comm_test cli_test orthant
build/bin/ops_test --gtest_filter='*Cuda*'
build/bin/layouts_test --gtest_filter='*Cuda*'
build/bin/matrix_test --gtest_filter='*CudaMatrix*'
build/bin/comm_test --gtest_filter='*Gpu*'
build/bin/cli_test --gtest_filter='*OnGpus*'
scripts/gpu-hosts-test.sh || [ $? = 77 ]
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
if [ -n "$sanitizer" ]; then
  # Kernels of our own, on the shapes of the tests: bad accesses, and races in shared memory. The races that the tool names
  # in cuDNN's attention are waits that it does not know, so 16-bit attention is left out.
  ours=(adamw squared_norm norm cross_entropy softmax embedding 'attention*_f32' attention_cached rotary)
  own=$(printf ':*CudaEqualsRef*/%s*' "${ours[@]}")
  for tool in memcheck racecheck; do
    "$sanitizer" --tool "$tool" --error-exitcode 1 build/bin/ops_test --gtest_filter="$own"
  done
  "$sanitizer" --tool memcheck --error-exitcode 1 build/bin/ops_test --gtest_filter='*CudaEqualsRef*'
else
  echo "gpu-test: compute-sanitizer is not here; memory accesses are not checked"
fi
