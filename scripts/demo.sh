#!/usr/bin/env bash
# From a clone to written text: scripts/demo.sh [TEXT_FILE] [--prompt TEXT]
# Installs what is missing, builds, packs a text, trains a small model on 8 ranks (tp 2, pp 2, dp 2) on the CPU,
# and writes with it. Without TEXT_FILE the text is the King James Bible (public domain), from the distribution.
# What is finished is not done again: the same text trains once, and an interrupted training goes on.
set -euo pipefail
start_folder=$PWD
cd "$(dirname "$0")/.."

own_text=
prompt=
while [ $# -gt 0 ]; do
  case $1 in
    --prompt)
      [ $# -ge 2 ] || { echo "demo: --prompt needs a text" >&2; exit 2; }
      prompt=$2
      shift
      ;;
    -*) echo "demo: no option '$1'; see the head of scripts/demo.sh" >&2; exit 2 ;;
    *) own_text=$(cd "$start_folder" && realpath -e -- "$1") || { echo "demo: there is no file $1" >&2; exit 2; } ;;
  esac
  shift
done

step() { printf '\n== %s (after %d s)\n' "$*" "$SECONDS"; }
fail() {
  echo "demo: $*" >&2
  exit 1
}

# The Bible as lines of one verse, without their numbers.
write_bible() {
  scripts/install.sh text || fail "the text lies in package bible-kjv; a text of your own does as well: scripts/demo.sh FILE"
  bible -f 'gen1:1-rev22:21' </dev/null | sed 's/^[0-9A-Za-z]*:[0-9]* //' >"$1"
}

step "installing what is missing, and building"
scripts/build.sh
orthant=build/bin/orthant

step "the text"
if [ -n "$own_text" ]; then
  bytes=$(stat -c %s "$own_text")
  [ "$bytes" -ge 200000 ] || fail "$own_text has $bytes bytes; at least 200000 are needed, a million is better"
  demo=data/demo-$(sha256sum "$own_text" | cut -c 1-12)
  valid_fraction=0.1
else
  demo=data/demo
  valid_fraction=0.02
  prompt=${prompt:-And it came to pass}
fi
mkdir -p "$demo"
if [ ! -f "$demo/text-is-ready" ]; then
  if [ -n "$own_text" ]; then
    cp -- "$own_text" "$demo/text.txt"
  else
    write_bible "$demo/text.txt"
  fi
  touch "$demo/text-is-ready"
fi
# The first words of the text are a prompt that fits it.
prompt=${prompt:-$(head -c 4096 "$demo/text.txt" | tr -s '[:space:]' ' ' | cut -d ' ' -f 1-4)}
echo "$demo/text.txt: $(stat -c %s "$demo/text.txt") bytes"

step "packing it; the last $valid_fraction of it is for validation"
if [ ! -f "$demo/corpus.idx" ] || [ ! -f "$demo/corpus-valid.idx" ]; then
  "$orthant" data pack "$demo/text.txt" --tokenizer bytes --valid-fraction "$valid_fraction" \
    --output "$demo/corpus"
fi
"$orthant" data info "$demo/corpus"

step "training on 8 ranks: tp 2, pp 2, dp 2"
paths=(
  "--data.train=[\"$demo/corpus\"]" "--data.valid=[\"$demo/corpus-valid\"]"
  "--checkpoint.dir=$demo/checkpoints" "--log.dir=$demo/log"
)
"$orthant" train configs/runs/demo.toml "${paths[@]}"
valid_loss=$(grep -o '"valid_loss": *[0-9.]*' "$demo/log/metrics.jsonl" | tail -1 | sed 's/.*: *//')
[ -n "$valid_loss" ] || fail "$demo/log/metrics.jsonl has no valid_loss; was the training stopped?"
echo "validation loss: $valid_loss nats per byte"

step "writing"
# With the prompt no longer than the 128 bytes of a training sequence: beyond them the model has seen no position.
"$orthant" generate "$demo/checkpoints" --prompt "$prompt" --tokens 100 --temperature 0.5 >"$demo/written.txt"
cat "$demo/written.txt"
echo

# A model that has learned nothing writes letters, not words of the text. The prompt does not count, nor does the last
# word, which may be cut off.
step "how many of its words occur in the text"
LC_ALL=C awk -v prompt="$prompt" '
  BEGIN { word = "[^a-z0-9\200-\377]+" }
  FNR == NR { n = split(tolower($0), found, word); for (i = 1; i <= n; ++i) known[found[i]] = 1; next }
  { written = written $0 "\n" }
  END {
    if (index(written, prompt) == 1) written = substr(written, length(prompt) + 1)
    n = split(tolower(written), found, word)
    for (i = 1; i <= n; ++i) if (found[i] != "") list[++count] = found[i]
    for (i = 1; i < count; ++i) {
      if (list[i] in known) ++good
      else print "not in the text: " list[i]
    }
    if (count < 2) { print "no word was written"; exit 1 }
    printf "%d of %d words, %.1f %%; nine of ten are asked for\n", good, count - 1, 100 * good / (count - 1)
    exit good < 0.9 * (count - 1)
  }
' "$demo/text.txt" "$demo/written.txt" || fail "fewer than nine of ten words occur in the text: the model has learned too little"
printf '\nDone after %d s: the run is in %s, its settings in configs/runs/demo.toml.\n' "$SECONDS" "$demo"
