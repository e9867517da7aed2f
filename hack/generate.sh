#!/usr/bin/env bash
# What is generated from the code: the CRDs, their copies for Helm and kustomize, docs/api.md, the table in docs/split.md and its drawing.
# generate.sh writes it; generate.sh --check says what is not as generated, and writes nothing. (The table and the drawing are checked by `cargo test`.)
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cargo build --quiet --locked --bin shardwright
shardwright="$CARGO_TARGET_DIR/debug/shardwright"
"$shardwright" crds --output-dir "$tmp/crds"
"$shardwright" crds --format markdown --scenarios docs/field-scenarios.tsv --output-dir "$tmp/docs"

rc=0
for into in crds config/crd/bases charts/shardwright/files/crds; do
  if [ "${1:-}" != --check ]; then
    mkdir -p "$into"
    rm -f "$into"/*.yaml
    cp "$tmp"/crds/*.yaml "$into/"
  elif ! diff -ru "$into" "$tmp/crds" >&2; then
    rc=1
  fi
done
if [ "${1:-}" != --check ]; then
  cp "$tmp/docs/api.md" docs/api.md
elif ! diff -u docs/api.md "$tmp/docs/api.md" >&2; then
  rc=1
fi
[ "${1:-}" = --check ] || UPDATE_FSM=1 cargo test --quiet --locked --package shardwright --test fsm >/dev/null
[ $rc = 0 ] || die "not as generated: run 'make generate' and commit what it changes"
