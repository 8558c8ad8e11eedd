#!/usr/bin/env bash
# Hugging Face folders that Orthant writes are loaded by transformers, and folders of transformers by Orthant, with the
# same logits. scripts/transformers-test.sh [BINARY]
# Takes the python3 that $PYTHON names (python3), if it has torch, transformers and safetensors; else, with BINARY it ends
# with status 77, and without it makes build/python with them, by pip.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
binary=${1:-}
if ! "$python" -c 'import torch, transformers, safetensors' 2>/dev/null; then
  if [ -n "$binary" ]; then
    echo "transformers-test: skipped, $python lacks torch, transformers or safetensors"
    exit 77
  fi
  echo "transformers-test: $python lacks torch, transformers or safetensors; they go into build/python"
  "$python" -m venv build/python
  python=build/python/bin/python
  if ! "$python" -m pip install --quiet torch transformers safetensors; then
    echo "transformers-test: pip could not install them; name a python3 that has them in PYTHON" >&2
    exit 1
  fi
fi
if [ -z "$binary" ]; then
  scripts/build.sh orthant
  binary=build/bin/orthant
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$binary" data pack README.md ARCHITECTURE.md --tokenizer bytes --output "$folder/corpus"
"$python" tests/hf/transformers_check.py "$binary" "$folder/corpus" "$folder"
