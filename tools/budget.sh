#!/usr/bin/env bash
# Lines of each room and of its tests, from the bottom to the top.
set -euo pipefail
cd "$(dirname "$0")/.."

lines() { if [ -d "$1" ]; then find "$1" -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -exec cat {} + | wc -l; else echo 0; fi; }

printf '%-10s %8s %8s\n' room src tests
total=0
total_tests=0
for room in $(sed -n 's/^\([a-z]*\):.*/\1/p' src/LAYERS); do
  source=$(lines "src/$room")
  tests=$(lines "tests/$room")
  printf '%-10s %8d %8d\n' "$room" "$source" "$tests"
  total=$((total + source))
  total_tests=$((total_tests + tests))
done
for folder in tests/*/; do
  name=$(basename "$folder")
  if ! grep -q "^$name:" src/LAYERS; then
    tests=$(lines "$folder")
    printf '%-10s %8s %8d\n' "$name" - "$tests"
    total_tests=$((total_tests + tests))
  fi
done
printf '%-10s %8d %8d\n' total "$total" "$total_tests"
