#!/usr/bin/env bash
# Configures and builds: scripts/build.sh [--debug | --sanitize=address,undefined | --sanitize=thread] [--all | TARGET...]
# Without an option the Release binary, build/bin/orthant, with the CUDA backend where a toolkit is found. --all builds the
# tests too.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=release
targets=()
for option in "$@"; do
  case $option in
    --debug) preset=debug ;;
    --sanitize=address,undefined | --sanitize=address) preset=asan ;;
    --sanitize=thread) preset=tsan ;;
    --all) targets+=(all) ;;
    -*) echo "build: no option '$option'; see the head of scripts/build.sh" >&2; exit 2 ;;
    *) targets+=("$option") ;;
  esac
done
[ ${#targets[@]} -gt 0 ] || targets=(orthant)
case $preset in
  release) folder=build ;;
  *) folder=build-$preset ;;
esac

scripts/install.sh build

# A compile can take 1.5 GiB, so a machine with many cores and little memory runs fewer at once.
jobs=$(nproc)
memory_jobs=$(awk '/^MemAvailable/ { print int($2 / 1572864) }' /proc/meminfo)
[ "$memory_jobs" -ge "$jobs" ] || jobs=$((memory_jobs > 1 ? memory_jobs : 1))

echo "build: configuring $folder/ (preset $preset)"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cuda=OFF
[ "$preset" != release ] || cuda=AUTO
if ! cmake --preset "$preset" -D ORTHANT_CUDA="$cuda" >"$log" 2>&1; then
  cat "$log" >&2
  echo "build: cmake could not configure $folder/; the missing thing is named above" >&2
  exit 1
fi
grep 'no CUDA backend' "$log" || true
echo "build: ${targets[*]} with $jobs jobs"
cmake --build "$folder" --parallel "$jobs" --target "${targets[@]}"
if [ -x "$folder/bin/orthant" ]; then
  echo "build: $folder/bin/orthant is up to date"
fi
