#!/usr/bin/env bash
# On a machine with a GPU: trains GPT-2 124M for 200 steps in every kind of layout of two ranks, or of RANKS=4 or 8, in
# fp32 and in bf16, and compares the losses with those of one rank: scripts/gpu-curves.sh TEXT [TOKENIZER [PRECISION...]].
# Ranks have a GPU each where there are as many, and share them where there are fewer. The mean difference may be 1e-5 in
# fp32 and 3e-3 in bf16, some times what programs that are right were measured at. The last layout is trained twice in
# deterministic mode, and no bit may differ.
set -euo pipefail
cd "$(dirname "$0")/.."
text=$(realpath "${1:?gpu-curves: name a text file to train on}")
tokenizer=${2:-bytes}
ranks=${RANKS:-2}
precisions=("${@:3}")
[ ${#precisions[@]} -gt 0 ] || precisions=(bf16 fp32)
orthant=$PWD/build/bin/orthant
[ -x "$orthant" ] || scripts/build.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$orthant" data pack "$text" --tokenizer "$tokenizer" --output "$work/corpus" >/dev/null

cat >"$work/run.toml" <<RUN
[model]
preset = "gpt2-124m"
[layout]
micro_batch = $((8 / ranks))
[train]
steps = 200
global_batch = 8
seq_length = 256
[optimizer]
lr = 0.0003
min_lr = 0.00003
warmup_steps = 20
[data]
train = ["$work/corpus"]
[checkpoint]
dir = ""
[device]
kind = "cuda"
RUN

tp() { echo "--layout.tp=$1 --layout.sequence_parallel=true"; }
halves="--layout.micro_batch=4 --layout.tp_overlap=halves"
interleaved="--layout.schedule=interleaved --layout.virtual_stages=2"
case $ranks in
  2) layouts=(
    "tp --layout.tp=2"
    "tp_rows_split $(tp 2)"
    "tp_halves $(tp 2) $halves"
    "pp_1f1b --layout.pp=2"
    "pp_zero_bubble --layout.pp=2 --layout.schedule=zero_bubble"
    "dp_zero_0 --layout.zero_stage=0"
    "dp_zero_1 --layout.zero_stage=1"
    "dp_zero_3 --layout.zero_stage=3") ;;
  4) layouts=(
    "tp $(tp 4)"
    "tp_halves $(tp 4) $halves"
    "pp --layout.pp=4"
    "dp_zero_2 --layout.zero_stage=2"
    "tp_pp_zero_bubble $(tp 2) --layout.pp=2 --layout.schedule=zero_bubble"
    "pp_dp_interleaved_zero_1 --layout.pp=2 $interleaved --layout.zero_stage=1"
    "tp_dp_halves_zero_3 $(tp 2) $halves --layout.zero_stage=3") ;;
  8) layouts=(
    "tp_dp_zero_1 $(tp 4) --layout.zero_stage=1"
    "tp_pp_halves $(tp 4) --layout.pp=2 $halves"
    "pp_dp_zero_2 --layout.pp=4 --layout.zero_stage=2"
    "dp_zero_3 --layout.zero_stage=3"
    "cube_1f1b_zero_1 $(tp 2) --layout.pp=2 --layout.zero_stage=1"
    "cube_interleaved_zero_0 $(tp 2) --layout.pp=2 $interleaved --layout.zero_stage=0"
    "cube_zero_bubble_zero_1 $(tp 2) --layout.pp=2 --layout.schedule=zero_bubble --layout.zero_stage=1"
    "cube_zero_bubble_v_zero_3 $(tp 2) --layout.pp=2 --layout.schedule=zero_bubble_v --layout.zero_stage=3") ;;
  *) echo "gpu-curves: RANKS=$ranks; it must be 2, 4 or 8" >&2; exit 2 ;;
esac
exact="${layouts[-1]#* } --train.deterministic=true"
layouts=("one --layout.ranks=1" "${layouts[@]}" "exact_a $exact" "exact_b $exact")

# Three at a time: each leaves most of the GPU alone.
train_all() {
  local layout name options
  for layout in "${layouts[@]}"; do
    read -r name options <<<"$layout"
    while [ "$(jobs -rp | wc -l)" -ge 3 ]; do wait -n; done
    # shellcheck disable=SC2086
    "$orthant" train "$work/run.toml" --layout.ranks="$ranks" $options --precision.compute="$1" --log.dir="$work/$1-$name" \
      >"$work/$1-$name.out" 2>&1 || { tail -n 5 "$work/$1-$name.out" >&2; echo "gpu-curves: $name in $1 failed" >&2; } &
  done
  wait
}

compare() {
  python3 - "$work" "$1" "${layouts[@]%% *}" <<'COMPARE'
import json, pathlib, sys

work, compute, names = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
most = {"bf16": 3e-3, "fp32": 1e-5}[compute]


def losses(name):
    metrics = work / f"{compute}-{name}" / "metrics.jsonl"
    return [json.loads(line)["loss"] for line in metrics.read_text().splitlines()] if metrics.exists() else []


one = losses("one")
if not one:
    sys.exit(f"gpu-curves: {compute}: one rank has trained nothing")
print(f"{compute}: loss {one[0]:.4f} to {one[-1]:.4f} in {len(one)} steps on one rank")
bad = 0
for name in names[1:]:
    other = losses(name)
    mean = sum(abs(a - b) for a, b in zip(one, other)) / len(one)
    fits = len(other) == len(one) and mean <= most
    bad += not fits
    fault = "" if fits else f", more than {most:g}" if len(other) == len(one) else f", {len(other)} steps"
    print(f"  {name}: mean difference {mean:.2e}{fault}")
if losses("exact_a") != losses("exact_b"):
    print(f"  {compute}: two runs in deterministic mode differ")
    bad += 1
sys.exit(bad > 0)
COMPARE
}

status=0
for precision in "${precisions[@]}"; do
  train_all "$precision"
  compare "$precision" || status=1
done
exit $status
