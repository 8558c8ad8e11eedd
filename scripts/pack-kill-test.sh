#!/usr/bin/env bash
# Kills data pack at random moments until it ends, again and again, and compares its bytes with those of a packing that
# was not killed: scripts/pack-kill-test.sh [TIMES], 20 when not given. Needs a built binary, gzip and zstd.
set -euo pipefail
cd "$(dirname "$0")/.."

times=${1:-20}
binary=$PWD/build/bin/orthant
[ -x "$binary" ] || { echo "pack-kill-test: $binary is missing; run scripts/build.sh" >&2; exit 1; }
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true; rm -rf "$work"' EXIT

# Documents of many lengths, some of them broken, as lines, compressed lines and one text.
awk 'BEGIN { for (i = 0; i < 120000; ++i) { if (i % 9973 == 5) { print "{broken"; continue }
  printf "{\"text\": \""; for (j = 0; j < i % 90; ++j) printf "word%d and ", i * j % 977; print "\"}" } }' >"$work/a.jsonl"
cd "$work"
gzip -k a.jsonl
zstd -q a.jsonl
cat ./*.jsonl ./*.jsonl >text.txt
command=("$binary" data pack a.jsonl a.jsonl.gz text.txt a.jsonl.zst --tokenizer bytes --bad-lines skip --valid-fraction 0.02)
"${command[@]}" --output whole >/dev/null
kills=0
for ((i = 1; i <= times; ++i)); do
  while true; do
    "${command[@]}" --output killed --save-interval "0.0$((RANDOM % 10))" --threads $((1 + RANDOM % 4)) >out 2>err &
    pid=$!
    for ((wait = RANDOM % 60; wait > 0; --wait)); do kill -0 "$pid" 2>/dev/null || break; sleep 0.02; done
    if kill -9 "$pid" 2>/dev/null; then kills=$((kills + 1)); fi
    status=0
    wait "$pid" 2>/dev/null || status=$?
    pid=
    [ $status -ne 0 ] || break
    # 128 + 9 is ours; anything else it has ended with by itself.
    if [ $status -ne 137 ]; then cat err; echo "pack-kill-test: it failed by itself, status $status" >&2; exit 1; fi
  done
  for name in .bin .idx -valid.bin -valid.idx .bad-lines.txt; do
    cmp "whole$name" "killed$name" || { echo "pack-kill-test: run $i gave other bytes" >&2; exit 1; }
  done
  left=$(find . -name 'killed*partial' -o -name 'killed*progress*')
  [ -z "$left" ] || { echo "pack-kill-test: left behind: $left" >&2; exit 1; }
  rm killed*
done
echo "pack-kill-test: $times packings, killed $kills times, gave the bytes of one that was not"
