#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: how fast whole training steps are on one GPU, what was predicted of them, and where
# their time goes. scripts/gpu-bench.sh [SECONDS [MACHINE]]: measures each row for so long (60), after 20 seconds that are
# not measured, and predicts it by that machine's rates (h200; a file of orthant bench machine for another).
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
machine=${2:-h200}
[ -x build/bin/orthant ] || scripts/build.sh

# MODEL SEQUENCE MICRO_BATCH SEQUENCES_A_STEP OPTIONS; the last two take 128 GiB of host memory
while read -r model seq micro batch options; do
  echo "== $model, sequence $seq, micro-batch $micro, $((seq * batch)) tokens a step ${options}"
  # shellcheck disable=SC2086
  build/bin/orthant bench step --preset "$model" --device.kind=cuda --compute bf16 --seq "$seq" \
    --layout.micro_batch="$micro" --train.global_batch="$batch" --machine "$machine" \
    --warm-up 20 --seconds "$seconds" $options
done <<'ROWS'
gpt2-124m 1024 64 512
gpt2-1558m 1024 16 256
llama-7b 2048 2 64
llama-7b 2048 8 64 --layout.recompute=block
llama-13b 2048 16 32 --layout.recompute=block --layout.offload=optimizer --layout.offload_fraction=0.7 --without-update
llama-13b 2048 4 32 --model.layers=43 --layout.recompute=block --layout.offload=optimizer --layout.offload_fraction=0.7
ROWS
