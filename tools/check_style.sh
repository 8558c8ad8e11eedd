#!/usr/bin/env bash
# Checks the tracked C++ files: format, length, preprocessor branches, words, and a first line that says what a file is.
set -euo pipefail
cd "$(dirname "$0")/.."

bad=0
complain() {
  echo "style: $*"
  bad=1
}

mapfile -t files < <(git ls-files 'src/*.h' 'src/*.cpp' 'src/*.cu' 'src/*.cuh' 'tests/*.h' 'tests/*.cpp')
present=()
for file in "${files[@]}"; do
  if [ -f "$file" ]; then present+=("$file"); fi
done
files=("${present[@]}")
[ ${#files[@]} -gt 0 ] || { echo "style: no tracked C++ file found" >&2; exit 1; }

# Other versions format otherwise, so only 14 is asked.
format=
for name in clang-format-14 clang-format; do
  if command -v "$name" >/dev/null && "$name" --version | grep -q 'version 14\.'; then
    format=$name
    break
  fi
done
if [ -n "$format" ]; then
  "$format" --dry-run -Werror "${files[@]}" || complain "run: $format -i FILE"
else
  echo "style: clang-format 14 is not here, so the format is not checked"
fi

# Where the preprocessor may choose: factories, the CUDA backends, and these.
may_branch='(^|/)make_[a-z_0-9]+\.cpp$|^src/[a-z]+/(cuda|nccl|mpi)/|^src/mem/cuda_[a-z_0-9]+\.|^src/mem/device\.h$|^src/ops/cpu/onednn[a-z_0-9]*\.(h|cpp)$'
while IFS= read -r hit; do
  [ -z "$hit" ] || complain "$hit: #if belongs into make_*.cpp or a CUDA backend"
done < <(printf '%s\n' "${files[@]}" | grep -Ev "$may_branch" | xargs grep -nE '^[[:space:]]*#[[:space:]]*(if|ifdef|ifndef|elif)\b' || true)

while read -r lines file; do
  [ "$lines" -le 400 ] || complain "$file: $lines lines; 400 is the limit"
done < <(wc -l "${files[@]}" | grep -v ' total$')

while IFS= read -r hit; do
  [ -z "$hit" ] || complain "$hit: open ends belong into an issue or a check with a message"
done < <(printf '%s\n' "${files[@]}" | xargs grep -nE '\b(TODO|FIXME|XXX)\b' || true)

for file in "${files[@]}"; do
  case $(basename "$file") in
    *util* | *helper* | *manager* | *common* | *misc*)
      complain "$file: the name says where code was put, not what it is" ;;
  esac
  case $file in
    src/*.h | src/*.cuh)
      case $(head -n 1 "$file") in
        "// "*) ;;
        *) complain "$file: the first line says what the header is, as a comment" ;;
      esac
      grep -q '^#pragma once$' "$file" || complain "$file: #pragma once is missing"
      ;;
  esac
done

[ "$bad" = 0 ] && echo "style: ${#files[@]} files are in order"
exit "$bad"
