#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: how fast whole training steps are on one GPU, and where their time goes.
# scripts/gpu-bench.sh [SECONDS]: measures each model for so long (60), after 20 seconds that are not measured.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
[ -x build/bin/orthant ] || scripts/build.sh

# MODEL SEQUENCE MICRO_BATCH SEQUENCES_A_STEP
while read -r model seq micro batch; do
  echo "== $model, sequence $seq, micro-batch $micro, $((seq * batch)) tokens a step"
  build/bin/orthant bench step --preset "$model" --device.kind=cuda --compute bf16 --seq "$seq" \
    --layout.micro_batch="$micro" --train.global_batch="$batch" --warm-up 20 --seconds "$seconds"
done <<'ROWS'
gpt2-124m 1024 64 512
gpt2-1558m 1024 16 256
llama-7b 2048 2 64
ROWS
