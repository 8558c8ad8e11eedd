#!/usr/bin/env bash
# Kills a run at random moments while it saves and checks that the newest whole checkpoint always loads:
# scripts/kill-test.sh [TIMES], 200 when not given. Needs a built binary.
set -euo pipefail
cd "$(dirname "$0")/.."

times=${1:-200}
binary=$PWD/build/bin/orthant
[ -x "$binary" ] || { echo "kill-test: $binary is missing; run scripts/build.sh" >&2; exit 1; }
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"

seq 1 2000 >text.txt
"$binary" data pack text.txt --tokenizer bytes --output corpus >/dev/null
cat >run.toml <<'RUN'
model = { family = "gpt", layers = 4, hidden = 64, heads = 4, vocab = 256, max_positions = 32 }
layout = { ranks = 4, tp = 2, pp = 2 }
train = { steps = 1000000, global_batch = 1, seq_length = 16 }
data = { train = "corpus" }
checkpoint = { dir = "ckpt", interval = 1, keep = 2 }
RUN

newest=
for ((i = 1; i <= times; ++i)); do
  # Every third run begins again, so that its saves replace folders of the same step.
  options=()
  [ $((i % 3)) -ne 0 ] || options+=(--checkpoint.resume=false)
  : >err  # of the run before
  "$binary" train run.toml "${options[@]}" >out 2>>err &
  pid=$!
  until grep -q 'checkpoint saved' err; do
    kill -0 "$pid" 2>/dev/null || { echo "kill-test: run $i ended by itself:"; cat err; exit 1; }
    sleep 0.01
  done
  sleep "0.$(printf '%03d' $((RANDOM % 150)))"
  kill -9 "$pid"
  wait "$pid" 2>/dev/null || true
  pid=
  if [ ${#options[@]} -eq 0 ] && [ -n "$newest" ] && ! grep -q "weights: checkpoint $newest" err; then
    echo "kill-test: run $i did not go on from $newest:"
    cat err
    exit 1
  fi
  newest=$(find ckpt -maxdepth 1 -name 'step-*' ! -name '*.partial' | sort | tail -n 1)
  [ $((i % 20)) -ne 0 ] || echo "kill-test: $i of $times kills, newest $newest"
done
"$binary" train run.toml --train.max_minutes=1e-6 2>err || { cat err; exit 1; }
grep -q "weights: checkpoint $newest" err || { cat err; exit 1; }
echo "kill-test: after each of $times kills the newest checkpoint was whole"
