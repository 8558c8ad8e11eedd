#!/usr/bin/env bash
# Installs from the distribution's packages what Orthant needs: scripts/install.sh [build] [tests] [fuzz] [text].
# A package that is already there is left alone; when all are there, nothing is run and no network is used.
set -euo pipefail

# libdnnl-dev's CMake files ask for OpenCL, which the package only recommends.
build_packages=(
  g++ cmake ninja-build pkg-config ccache
  libdnnl-dev ocl-icd-opencl-dev libtomlplusplus-dev nlohmann-json3-dev libcli11-dev libfmt-dev
  libpcre2-dev libsentencepiece-dev libicu-dev zlib1g-dev libzstd-dev libgtest-dev
)
# Ranks on several hosts. Without it the binary says that it has no MPI.
mpi_packages=(libopenmpi-dev openmpi-bin)
# The checks that use these say that they are skipped where a distribution does not have them.
check_packages=(git python3 clang-format-14 clang-tidy-14 libomp-14-dev)
fuzz_packages=(clang-14 libclang-rt-14-dev libomp-14-dev)
text_packages=(bible-kjv)

fail() {
  echo "install: $*" >&2
  exit 1
}

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

is_offered() {
  local candidate
  candidate=$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p')
  [ -n "$candidate" ] && [ "$candidate" != "(none)" ]
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "missing package(s) ${missing[*]}: run this as root, or install sudo"
  fi
}

lists_are_new=false
update_lists() {
  if [ "$lists_are_new" = false ]; then
    echo "install: reading the package lists (apt-get update)"
    as_root apt-get update -qq || fail "apt-get update failed, and ${missing[*]} must still be installed"
    lists_are_new=true
  fi
}

# Its output is of interest only when it fails.
apt_install() {
  local output
  output=$(as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" 2>&1) && return
  printf '%s\n' "$output" >&2
  return 1
}

# install_all NEED PACKAGE...; NEED is required or optional.
install_all() {
  local need=$1 package
  shift
  missing=()
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null ||
    fail "apt-get is not here, so install these by hand: ${missing[*]}"
  # What is optional may be missing for good: then new lists are read only where there are none.
  local asked=("${missing[@]}")
  [ "$need" = required ] || asked=(g++)
  for package in "${asked[@]}"; do
    is_offered "$package" || { update_lists; break; }
  done
  local wanted=()
  for package in "${missing[@]}"; do
    if is_offered "$package"; then
      wanted+=("$package")
    elif [ "$need" = required ]; then
      fail "package $package is not offered here; Debian 12 and Ubuntu 24.04 (with universe) have it"
    else
      echo "install: package $package is not offered here; what uses it will be left out"
    fi
  done
  [ ${#wanted[@]} -gt 0 ] || return 0
  echo "install: ${wanted[*]}"
  if ! apt_install "${wanted[@]}"; then
    # Lists older than the mirror name files that are gone.
    update_lists
    apt_install "${wanted[@]}" || fail "apt-get could not install ${wanted[*]}; its message is above"
  fi
}

check_cmake() {
  local version
  version=$(cmake --version | sed -n '1s/.* //p')
  if [ "$(printf '%s\n' 3.25 "$version" | sort -V | head -1)" != 3.25 ]; then
    fail "cmake $version is too old: 3.25 or newer is needed"
  fi
}

[ $# -gt 0 ] || set -- build tests
for group in "$@"; do
  case $group in
    build)
      install_all required "${build_packages[@]}"
      install_all optional "${mpi_packages[@]}"
      check_cmake
      ;;
    tests) install_all optional "${check_packages[@]}" ;;
    fuzz) install_all required "${fuzz_packages[@]}" ;;
    text) install_all required "${text_packages[@]}" ;;
    *) fail "no group '$group'; the groups are build, tests and text" ;;
  esac
done
