#!/usr/bin/env bash
# demo-split.sh: on the cluster of `make demo`, half of a range of the fleet moves to a pair of its own while clients write to it.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export CLUSTER=${CLUSTER:-demo}

fleet=main
[ "${FLEET:-quickstart}" = quickstart ] || fleet=$FLEET
[ -x "$CARGO_TARGET_DIR/release/e2e" ] || die "nothing is built yet: make demo"
"$BED" kubectl get shardcluster "$fleet" >/dev/null || die "there is no fleet: make demo"

say "before"
"$BED" kubectl get shardranges -o wide
"$BED" exec "$CARGO_TARGET_DIR/release/e2e" demo-split --namespace default --cluster "$fleet" --range "$fleet-r0" --to "$fleet-split"
say "after"
"$BED" kubectl get shardranges -o wide
note "back again: $BED kubectl patch shardrange $fleet-split --type merge --patch '{\"spec\": {\"pairRef\": {\"name\": \"$fleet-p0\"}}}'"
