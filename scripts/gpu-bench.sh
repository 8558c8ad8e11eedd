#!/usr/bin/env bash
# On a machine with NVIDIA GPUs: how fast whole training steps are on one GPU and, where there are as many, on two, four and
# eight; what was predicted of them, and where their time goes. scripts/gpu-bench.sh [SECONDS [MACHINE]]: measures each
# row for so long (60), after 20 seconds that are not measured, on sequences of one document, and predicts it by that
# machine's rates (h200; a file of orthant bench machine for another).
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
machine=${2:-h200}
[ -x build/bin/orthant ] || scripts/build.sh

# Of standard input: MODEL SEQUENCE MICRO_BATCH SEQUENCES_A_STEP OPTIONS
measure_rows() {
  while read -r model seq micro batch options; do
    echo "== $model, sequence $seq, micro-batch $micro, $((seq * batch)) tokens a step ${options}"
    # shellcheck disable=SC2086
    build/bin/orthant bench step --preset "$model" --device.kind=cuda --compute bf16 --seq "$seq" \
      --layout.micro_batch="$micro" --train.global_batch="$batch" --machine "$machine" \
      --data.cross_documents=true --warm-up 20 --seconds "$seconds" $options
  done
}

# The last three take 128 GiB of host memory.
split=--precision.master=split
offload="--layout.recompute=block --layout.offload=optimizer"
measure_rows <<ROWS
gpt2-124m 1024 64 512
gpt2-1558m 1024 16 256
llama-7b 2048 2 64
llama-7b 2048 4 64 $split
llama-7b 2048 8 64 --layout.recompute=block
llama-13b 2048 16 32 $offload --layout.offload_fraction=0.7 --without-update
llama-13b 2048 16 32 $split $offload --layout.offload_fraction=0.63 --without-update
llama-13b 2048 4 32 --model.layers=51 $split $offload --layout.offload_fraction=0.75
ROWS

gpus=$(build/bin/orthant doctor --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["gpus"]))')
[ "$gpus" -ge 2 ] || exit 0

# One GPU's figure, then layouts of two at the same tokens a step, or a step and GPU.
measure_rows <<'ROWS'
llama-7b 2048 2 16
llama-7b 2048 2 16 --layout.ranks=2 --layout.tp=2 --layout.sequence_parallel=true
llama-7b 2048 8 16 --layout.ranks=2 --layout.tp=2 --layout.sequence_parallel=true
llama-7b 2048 8 16 --layout.ranks=2 --layout.tp=2 --layout.sequence_parallel=true --layout.tp_overlap=halves
llama-7b 2048 2 16 --layout.ranks=2 --layout.pp=2 --layout.schedule=gpipe
llama-7b 2048 2 16 --layout.ranks=2 --layout.pp=2 --layout.schedule=1f1b
llama-7b 2048 2 16 --layout.ranks=2 --layout.pp=2 --layout.schedule=interleaved --layout.virtual_stages=2
llama-7b 2048 2 16 --layout.ranks=2 --layout.pp=2 --layout.schedule=zero_bubble
llama-7b 2048 2 16 --layout.ranks=2 --layout.pp=2 --layout.schedule=zero_bubble_v
llama-7b 2048 2 32
llama-7b 2048 2 64 --layout.ranks=2 --layout.zero_stage=1
llama-7b 2048 8 64 --layout.ranks=2 --layout.zero_stage=3
llama3-8b 8192 1 16 --layout.ranks=2 --layout.zero_stage=1
ROWS

[ "$gpus" -ge 4 ] || exit 0
four="--layout.ranks=4 --layout.sequence_parallel=true"
halves=--layout.tp_overlap=halves
in_34b="--model.layers=38 $split $halves"
measure_rows <<ROWS
llama-7b 2048 8 16 $four --layout.tp=4
llama-7b 2048 8 16 $four --layout.tp=4 $halves
llama-13b 2048 8 16 $four --layout.tp=4
llama-13b 2048 8 16 $four --layout.tp=4 $halves
llama-13b 2048 2 32 $four --layout.tp=2 --layout.pp=2 --layout.schedule=1f1b
llama-13b 2048 2 32 $four --layout.tp=2 --layout.pp=2 --layout.schedule=interleaved --layout.virtual_stages=2
llama-13b 2048 2 32 $four --layout.tp=2 --layout.pp=2 --layout.schedule=zero_bubble $halves
llama-13b 2048 2 32 $four --layout.tp=2 --layout.pp=2 --layout.schedule=zero_bubble_v
llama2-70b 4096 2 16 $four --layout.tp=4 $in_34b --layout.offload=optimizer --layout.offload_fraction=0.2
ROWS

[ "$gpus" -ge 8 ] || exit 0
eight="--layout.ranks=8 --layout.sequence_parallel=true"
cube="$eight --layout.tp=2 --layout.pp=2"
measure_rows <<ROWS
llama-13b 2048 2 64 $cube --layout.schedule=1f1b --layout.zero_stage=1
llama-13b 2048 2 64 $cube --layout.schedule=1f1b --layout.zero_stage=3
llama-13b 2048 2 64 $cube --layout.schedule=interleaved --layout.virtual_stages=2 --layout.zero_stage=1
llama-13b 2048 2 64 $cube --layout.schedule=zero_bubble --layout.zero_stage=1 $halves
llama-13b 2048 2 64 $cube --layout.schedule=zero_bubble_v --layout.zero_stage=1
llama2-70b 4096 2 16 $eight --layout.tp=8 $in_34b
llama2-70b 4096 2 16 $eight --layout.tp=8 $split $halves --layout.offload=optimizer --layout.offload_fraction=0.2
ROWS
