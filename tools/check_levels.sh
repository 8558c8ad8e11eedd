#!/usr/bin/env bash
# Checks object files that are compiled for AVX-512: check_levels.sh OBJECT... An inline function or a template that such a
# file shares with others must have vanished into its callers: the linker may take its copy for all, which a processor
# without AVX-512 could not run.
set -euo pipefail

[ $# -gt 0 ] || { echo "levels: name the object files" >&2; exit 2; }
shared=$(nm -C --defined-only "$@" | grep -E '^[0-9a-f]+ W ' | grep -v 'orthant::cpu::avx512::' | sort -u || true)
if [ -n "$shared" ]; then
  echo "levels: compiled for AVX-512 and visible to files that are not; move them out of ORTHANT_LEVEL's files or inline them:"
  echo "$shared"
  exit 1
fi
echo "levels: $# object files share no code"
