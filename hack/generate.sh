#!/usr/bin/env bash
# What is generated from the code: the CRDs, their copies for Helm and kustomize, and docs/api.md.
# generate.sh writes it; generate.sh --check says what is not as generated, and writes nothing.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cargo build --quiet --locked --bin shardwright
# One file a kind, named by its plural.
"$CARGO_TARGET_DIR/debug/shardwright" crds >"$tmp/all.yaml"
awk -v dir="$tmp" 'BEGIN { RS = "(^|\n)---\n" }
  match($0, /\n  name: [a-z]+\.shardwright\.dev/) {
    name = substr($0, RSTART + 9, RLENGTH - 9); sub(/\..*/, "", name)
    sub(/\n*$/, "\n"); printf "%s", $0 >(dir "/" name ".yaml"); n++ }
  END { exit n == 3 ? 0 : 1 }' "$tmp/all.yaml" || die "shardwright crds did not print three CRDs"
rm "$tmp/all.yaml"

rc=0
for into in crds config/crd/bases charts/shardwright/files/crds; do
  if [ "${1:-}" != --check ]; then
    mkdir -p "$into"
    rm -f "$into"/*.yaml
    cp "$tmp"/*.yaml "$into/"
  elif ! diff -ru "$into" "$tmp" >&2; then
    rc=1
  fi
done
[ $rc = 0 ] || die "not as generated: run 'make generate' and commit what it changes"
