#!/usr/bin/env bash
# demo.sh [down]: a cluster on this machine with the operator and a fleet on it. FLEET=quickstart or original.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=hack/bed.sh
source "$ROOT/hack/bed.sh"
export CLUSTER=${CLUSTER:-demo}

if [ "${1:-}" = down ]; then
  exec "$BED" down
fi

case ${FLEET:-quickstart} in
  quickstart) fleet=main sample=(-f config/samples/quickstart.yaml) patience=600 ;;
  original) fleet=original sample=(-k config/samples/original-2015) patience=1800 ;;
  *) die "FLEET=$FLEET: quickstart or original" ;;
esac
kubectl() { "$BED" kubectl "$@"; }

# The annotation has a changed image of the same name roll the operator.
install() {
  local content
  content=$(sha256sum "$CARGO_TARGET_DIR/images/dev.tar" | cut -c 1-16)
  "$BED" helm upgrade --install shardwright charts/shardwright --namespace shardwright-system --create-namespace \
    --set image.repository=shardwright/shardwright --set image.tag=dev \
    --set-string "podAnnotations.demo/image=$content" --wait --timeout 3m >/dev/null
  kubectl label namespace shardwright-system --overwrite pod-security.kubernetes.io/enforce=restricted >/dev/null
  kubectl -n shardwright-system get deployment shardwright
}

e2e() { "$BED" exec "$CARGO_TARGET_DIR/release/e2e" "$@"; }

# Prints what has changed since the last look, until everything is ready.
apply_and_wait() {
  kubectl apply "${sample[@]}"
  if ! e2e wait-ready --namespace default --timeout "$patience"; then
    kubectl get pods,shardclusters,mysqlpairs,shardranges -o wide
    kubectl events | tail -n 30
    return 1
  fi
}

hack/prerequisites.sh
times_begin
bed_ready demo
step "install the operator" install
step "apply the fleet and wait" apply_and_wait
say "What there is now"
kubectl get shardclusters,mysqlpairs,shardranges
step "an application writes an object through the map and reads it back" \
  e2e demo-write --namespace default --cluster "$fleet"

cat >&2 <<TEXT

${BOLD}Look around${OFF} (the cluster lies in a network of its own, so kubectl goes through a script)
    export CLUSTER=$CLUSTER
    alias k=$BED\ kubectl
    k get pods -o wide
    k describe shardcluster $fleet
    k get mysqlpair $fleet-p0 -o yaml
    k delete pod $fleet-p0-0          # and watch it come back: k get mysqlpairs -w
    k get configmap $fleet-shard-map -o yaml
    make demo-split FLEET=${FLEET:-quickstart}   # half of a range moves to a new pair while clients write to it
${BOLD}Take it down${OFF}
    make demo-down

TEXT
