#!/usr/bin/env bash
# test.sh [--no-check] [--full] [--bench] [--bench-failover] [--only NAME]
# All checks, then the end-to-end scenarios (or the benchmarks) on a real cluster. With KUBECONFIG set, on that cluster;
# else on one that is made on this machine and taken down again (KEEP=1 leaves it up). --full also proves the test cluster itself,
# and that the Dockerfile makes the image that was tested.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=hack/bed.sh
source "$ROOT/hack/bed.sh"

check=1
prove=''
only=''
command=run
arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --no-check) check='' ;;
    --full) arguments+=(--full) && prove=1 ;;
    --only) arguments+=(--only "${2:?which scenario}") && only=1 && shift ;;
    --bench | --bench-failover) command=${1#--} && check='' ;;
    *) die "unknown argument: $1" ;;
  esac
  shift
done

given=${KUBECONFIG:-}
[ -n "$given" ] || hack/prerequisites.sh
times_begin
[ -z "$check" ] || hack/check.sh

mkdir -p e2e-results bench-results
if [ "$command" = run ]; then
  arguments+=(--junit e2e-results/junit.xml --report e2e-results/report.json)
else
  arguments+=(--json "bench-results/${command#bench-}.json")
fi
e2e=$CARGO_TARGET_DIR/release/e2e
if [ -n "$given" ]; then
  note "the cluster of KUBECONFIG=$given is used; scenarios that kill nodes are skipped by name"
  step "build the tool and the end-to-end tests" cargo build --release --locked --package shardwright --bin shardwright \
    --package shardwright-e2e --bin e2e
  step "end-to-end: $command" "$e2e" "$command" "${arguments[@]}"
  exit
fi

# The image that is loaded below: hack/image.sh left its program there.
prove_bed() {
  step "the test cluster keeps its promises, on clusters of its own" e2e/cluster/selftest
  step "the Dockerfile makes the same image" "$BED" image prove "$CARGO_TARGET_DIR/release/shardwright"
}

bed_ready e2e
# A cluster that was kept has an operator of the same tag, from an older image.
"$BED" kubectl --namespace shardwright-system rollout restart deployment shardwright >/dev/null 2>&1 || true
export SHARDWRIGHT_E2E_LOCAL=true
# A failure leaves the cluster as it is, to be looked at; not in CI, where nobody will.
[ -z "${CI:-}" ] || trap '"$BED" down || true; print_times' EXIT
if ! (step "end-to-end: $command" "$BED" exec "$e2e" "$command" "${arguments[@]}"); then
  note "the cluster is still there: CLUSTER=$CLUSTER e2e/cluster/cluster kubectl get pods -A"
  note "take it down: CLUSTER=$CLUSTER e2e/cluster/cluster down"
  exit 1
fi
[ -n "${KEEP:-}" ] || step "cluster down" "$BED" down
[ -z "$prove" ] || [ -n "$only" ] || prove_bed
