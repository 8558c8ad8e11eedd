#!/usr/bin/env bash
# On a machine with a GPU: trains GPT-2 124M for 200 steps in every kind of layout of two ranks, in fp32 and in bf16, and
# compares the losses with those of one rank: scripts/gpu-curves.sh TEXT [TOKENIZER [PRECISION...]]. Ranks have a GPU each
# where there are two, and share it where there is one. The mean difference may be 1e-4 in fp32 and 1e-2 in bf16.
set -euo pipefail
cd "$(dirname "$0")/.."
text=$(realpath "${1:?gpu-curves: name a text file to train on}")
tokenizer=${2:-bytes}
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
micro_batch = 4
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

layouts=(
  "one --layout.ranks=1"
  "tp --layout.tp=2"
  "tp_rows_split --layout.tp=2 --layout.sequence_parallel=true"
  "tp_halves --layout.tp=2 --layout.sequence_parallel=true --layout.tp_overlap=halves"
  "pp_1f1b --layout.pp=2"
  "pp_zero_bubble --layout.pp=2 --layout.schedule=zero_bubble"
  "dp_zero_0 --layout.zero_stage=0"
  "dp_zero_1 --layout.zero_stage=1"
  "dp_zero_3 --layout.zero_stage=3"
)

# Three at a time: each leaves most of the GPU alone.
train_all() {
  local layout name options
  for layout in "${layouts[@]}"; do
    read -r name options <<<"$layout"
    while [ "$(jobs -rp | wc -l)" -ge 3 ]; do wait -n; done
    # shellcheck disable=SC2086
    "$orthant" train "$work/run.toml" --layout.ranks=2 $options --precision.compute="$1" --log.dir="$work/$1-$name" \
      >"$work/$1-$name.out" 2>&1 || { tail -n 5 "$work/$1-$name.out" >&2; echo "gpu-curves: $name in $1 failed" >&2; } &
  done
  wait
}

compare() {
  python3 - "$work" "$1" <<'COMPARE'
import json, pathlib, sys

work, compute = pathlib.Path(sys.argv[1]), sys.argv[2]
most = {"bf16": 1e-2, "fp32": 1e-4}[compute]


def losses(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


one = losses(work / f"{compute}-one")
print(f"{compute}: loss {one[0]:.4f} to {one[-1]:.4f} in {len(one)} steps on one rank")
bad = 0
for folder in sorted(work.glob(f"{compute}-*/")):
    if folder.name == f"{compute}-one":
        continue
    other = losses(folder)
    mean = sum(abs(a - b) for a, b in zip(one, other)) / len(one)
    fits = len(other) == len(one) and mean <= most
    bad += not fits
    print(f"  {folder.name}: mean difference {mean:.2e}" + ("" if fits else f", more than {most:g}"))
sys.exit(bad > 0)
COMPARE
}

status=0
for precision in "${precisions[@]}"; do
  train_all "$precision"
  compare "$precision" || status=1
done
exit $status
