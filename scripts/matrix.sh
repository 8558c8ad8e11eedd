#!/usr/bin/env bash
# Trains small models on 3,000 combinations of every option of a layout and holds each to the contract's promises
# about numbers and memory. The tests of scripts/test.sh take 300 of them.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/build.sh matrix_test
jobs=$(nproc)
echo "matrix: 3,000 combinations in $jobs shards"
status=0
pids=()
for ((shard = 0; shard < jobs; ++shard)); do
  GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$shard OMP_WAIT_POLICY=passive build/bin/matrix_test \
    --gtest_also_run_disabled_tests --gtest_filter='*OfThreeThousand*' --gtest_brief=1 &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
[ $status = 0 ] && echo "matrix: all 3,000 combinations hold" || echo "matrix: some fail, see above" >&2
exit $status
