#!/usr/bin/env bash
# Fuzzes the readers of files that come from elsewhere with libFuzzer under the address and undefined-behaviour
# sanitizers: scripts/fuzz.sh [--seconds N] [READER...]; 600 seconds for each of idx, safetensors, tokenizer, toml and
# manifest unless told otherwise. A crash, a hang of 5 seconds or an allocation of 256 MiB ends it, and the input stays in
# tests/fuzz/found/READER, where the tests read it from then on.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=600
if [ "${1:-}" = --seconds ]; then
  seconds=${2:?fuzz: --seconds needs a number}
  shift 2
fi
readers=("$@")
[ ${#readers[@]} -gt 0 ] || readers=(idx safetensors tokenizer toml manifest)
for reader in "${readers[@]}"; do
  [ -d "tests/fuzz/found/$reader" ] || { echo "fuzz: there is no reader '$reader' in tests/fuzz/found" >&2; exit 2; }
done

scripts/install.sh build fuzz
targets=(fuzz_seeds "${readers[@]/#/fuzz_}")
echo "fuzz: building ${targets[*]} in build-fuzz/"
cmake --preset fuzz >/dev/null
cmake --build build-fuzz --target "${targets[@]}"

fuzz_for() {
  local reader_seconds=$1 reader=$2
  shift 2
  UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 build-fuzz/bin/"fuzz_$reader" -max_total_time="$reader_seconds" \
    -timeout=5 -malloc_limit_mb=256 -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 -verbosity=0 "$@"
}

run_one() {
  local reader=$1 corpus=build-fuzz/corpus/$1
  mkdir -p "$corpus"
  build-fuzz/bin/fuzz_seeds "$reader" "$corpus"
  local found=tests/fuzz/found/$reader left=$seconds inputs=0 start slow
  while [ "$left" -gt 0 ]; do
    start=$SECONDS
    if fuzz_for "$left" "$reader" -artifact_prefix="$found/" "$corpus" "$found" >"$corpus.log" 2>&1; then
      left=0
    else
      # A machine that stands still for 5 seconds is no hang of a reader: alone the input is quick.
      slow=$(sed -n 's/.*Test unit written to \(.*\/timeout-[0-9a-f]*\)$/\1/p' "$corpus.log")
      if [ -z "$slow" ] || ! fuzz_for 0 "$reader" -artifact_prefix="$corpus.again-" "$slow" >/dev/null 2>&1; then
        tail -n 40 "$corpus.log" >&2
        echo "fuzz: $reader: a fault, its input is in $found" >&2
        return 1
      fi
      rm "$slow"
      left=$((left - (SECONDS - start)))
    fi
    inputs=$((inputs + $(sed -n 's/^stat::number_of_executed_units: *//p' "$corpus.log")))
  done
  echo "fuzz: $reader: $inputs inputs in $seconds s, no fault, $(find "$corpus" -type f | wc -l) kept"
}

# As many at once as there are cores.
status=0
for reader in "${readers[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || status=1; done
  run_one "$reader" &
done
while [ "$(jobs -rp | wc -l)" -gt 0 ]; do wait -n || status=1; done
exit $status
