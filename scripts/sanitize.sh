#!/usr/bin/env bash
# Runs tests under sanitizers: threads on what runs ranks as threads, addresses and undefined behaviour on every test.
# scripts/sanitize.sh [thread] [address]
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- thread address
scripts/install.sh build
for kind in "$@"; do
  case $kind in
    thread)
      targets=()
      for folder in comm layouts; do
        if compgen -G "tests/$folder/*_test.cpp" >/dev/null; then targets+=("${folder}_test"); fi
      done
      if [ ${#targets[@]} -eq 0 ]; then
        echo "sanitize: there are no tests in tests/comm and tests/layouts" >&2
        exit 1
      fi
      echo "sanitize: thread"
      scripts/build.sh --sanitize=thread "${targets[@]}"
      TSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/tests/tsan.supp \
        ctest --test-dir build-tsan -j2 --output-on-failure --no-tests=error -L '^(comm|layouts)$'
      ;;
    address)
      echo "sanitize: address,undefined"
      scripts/build.sh --sanitize=address,undefined --all
      UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        ctest --test-dir build-asan -j2 --output-on-failure --no-tests=error
      ;;
    *)
      echo "sanitize: no sanitizer '$kind'; there are thread and address" >&2
      exit 2
      ;;
  esac
done
