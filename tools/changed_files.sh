#!/usr/bin/env bash
# Source files, the latest change first: what is not committed yet, then what the last 3 commits touched.
set -euo pipefail
cd "$(dirname "$0")/.."
{
  git diff --name-only HEAD
  git log --max-count=3 --name-only --format=
} | awk '/^(src|tests)\/.*\.cpp$/ && !seen[$0]++' | while IFS= read -r file; do
  if [ -f "$file" ]; then echo "$file"; fi
done
