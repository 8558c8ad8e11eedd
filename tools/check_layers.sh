#!/usr/bin/env bash
# Fails when a file includes a room that src/LAYERS does not allow, or a room names one that is not below it.
set -euo pipefail
cd "${1:-$(dirname "$0")/../src}"
awk '
  FILENAME == "LAYERS" {
    if ($0 ~ /^#/ || NF == 0) next
    room = $1; sub(":", "", room); allowed[room, room] = 1
    for (i = 2; i <= NF; ++i) {
      if (!($i in known)) { print "LAYERS: " room " names " $i ", which is not below it"; bad = 1 }
      allowed[room, $i] = 1
    }
    known[room] = 1
    next
  }
  match($0, /^#include "[a-z_0-9]+\//) {
    from = FILENAME; sub("/.*", "", from)
    to = substr($0, RSTART + 10, RLENGTH - 11)
    if (!((from, to) in allowed)) { print FILENAME ":" FNR ": " from " may not include " to; bad = 1 }
  }
  END { exit bad }
' LAYERS $(find $(sed -n "s/^\([a-z]*\):.*/\1/p" LAYERS) -name "*.h" -o -name "*.cpp" -o -name "*.cu" -o -name "*.cuh")
