#!/usr/bin/env bash
# What `make test` and `make demo` need, all of it said at once. `prerequisites.sh build` asks for the compilers alone.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

missing=()
need() { missing+=("$1"); }
# at_least HAVE WANT: by version.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

if ! have cargo; then
  need "Rust 1.90 or newer (cargo is not on the path)"
elif rust=$(cargo --version | awk '{print $2}') && ! at_least "$rust" 1.90; then
  need "Rust 1.90 or newer (found $rust)"
fi
if ! have go; then
  need "Go 1.26 or newer (not on the path): the parts of the test cluster are built from Go modules"
elif go=$(GOTOOLCHAIN=local go env GOVERSION) && ! at_least "${go#go}" 1.26; then
  need "Go 1.26 or newer (found ${go#go})"
fi
have cc || need "a C compiler (apt-get install gcc): ring has parts in C and assembly"

if [ "${1:-}" != build ]; then
  [ "$(uname -s)" = Linux ] || need "Linux: the cluster is made of its namespaces and control groups"
  [ "$(uname -m)" = x86_64 ] || [ "$(uname -m)" = aarch64 ] || need "x86-64 or ARM64 (found $(uname -m))"
  [ "$(id -u)" = 0 ] || need "root: the cluster is made of namespaces, mounts and control groups"
  have apt-get || need "Debian 12 or newer: the cluster's system parts and MySQL come from its packages"
  memory=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
  want=6000
  [ "${FLEET:-quickstart}" != original ] || want=14000
  [ "$memory" -ge $want ] || need "$want MiB of free memory (found $memory)"
  mkdir -p "$SHARDWRIGHT_CACHE"
  # The Go build and module caches and cargo's target/ are most of it.
  disk=$(df -Pm "$SHARDWRIGHT_CACHE" | awk 'NR == 2 {print $4}')
  want=20000
  [ -z "$(ls -A "$SHARDWRIGHT_CACHE/parts" 2>/dev/null)" ] || want=8000
  [ "$disk" -ge $want ] || need "$want MiB of free disk in $SHARDWRIGHT_CACHE (found $disk)"
fi

if [ ${#missing[@]} -gt 0 ]; then
  say "This machine lacks:"
  for m in "${missing[@]}"; do note "- $m"; done
  note ""
  note "On another machine's cluster instead: KUBECONFIG=… make test (see CONTRIBUTING.md)."
  exit 1
fi
