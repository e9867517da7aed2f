#!/usr/bin/env bash
# test.sh [--no-check] [--full] [--bench] [--bench-failover] [--bench-split] [--only NAME]
# test.sh --chaos [ARGUMENTS OF e2e chaos...]
# All checks, then the end-to-end scenarios and two minutes of chaos (or the benchmarks, or chaos alone) on a real cluster. With KUBECONFIG
# set, on that cluster; else on one that is made on this machine and taken down again (KEEP=1 leaves it up). --full also explores the
# decision cores further, and proves the test cluster itself, and that the Dockerfile makes the image that was tested.
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
    --bench | --bench-failover | --bench-split) command=${1#--} && check='' ;;
    # What follows is for the tool.
    --chaos)
      command=chaos check=''
      shift
      arguments=("$@")
      break
      ;;
    *) die "unknown argument: $1" ;;
  esac
  shift
done

given=${KUBECONFIG:-}
[ -n "$given" ] || hack/prerequisites.sh
times_begin
[ -z "$check" ] || hack/check.sh
# Minutes more than the search that `check` makes.
[ -z "$prove" ] || [ -z "$check" ] || step "the decision cores, explored further" env SHARDWRIGHT_EXPLORE_FURTHER=1 \
  cargo test --release --locked --package shardwright --lib model::tests::further -- --nocapture

mkdir -p e2e-results bench-results
case $command in
  run) arguments+=(--junit e2e-results/junit.xml --report e2e-results/report.json) ;;
  bench*) arguments+=(--json "bench-results/${command#bench-}.json") ;;
esac
# Beside the scenarios: two seeds whose faults are known, a minute each, and what their last fault takes to heal.
short_chaos=(chaos --minutes 1 --seed 18 --seed 5)
e2e=$CARGO_TARGET_DIR/release/e2e
if [ -n "$given" ]; then
  [ "$command" != chaos ] || die "chaos needs the cluster of this machine: it kills nodes. Unset KUBECONFIG"
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
# With the MySQL that the cluster's parts have.
[ -z "$check" ] || [ -n "$only" ] || step "what only mysqld can answer, without a cluster" cargo test --locked --package shardwright \
  --test channel --test cloned_over --test copy_closed --test follow_map --test shard_drop --test shard_fence --test shard_held -- --ignored
# A cluster that was kept has an operator of the same tag, from an older image.
"$BED" kubectl --namespace shardwright-system rollout restart deployment shardwright >/dev/null 2>&1 || true
export SHARDWRIGHT_E2E_LOCAL=true
# A failure leaves the cluster as it is, to be looked at; not in CI, where nobody will.
[ -z "${CI:-}" ] || trap '"$BED" down || true; print_times' EXIT
end_to_end() {
  step "end-to-end: $command" "$BED" exec "$e2e" "$command" "${arguments[@]}"
  [ "$command" != run ] || [ -n "$only" ] || step "end-to-end: a short chaos" "$BED" exec "$e2e" "${short_chaos[@]}"
}
if ! (end_to_end); then
  note "the cluster is still there: CLUSTER=$CLUSTER e2e/cluster/cluster kubectl get pods -A"
  note "take it down: CLUSTER=$CLUSTER e2e/cluster/cluster down"
  exit 1
fi
[ -n "${KEEP:-}" ] || step "cluster down" "$BED" down
[ -z "$prove" ] || [ -n "$only" ] || prove_bed
