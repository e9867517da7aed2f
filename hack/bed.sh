# shellcheck shell=bash
# For the scripts that use a cluster on this machine: its parts, its images, and a name for it.

# bed_ready NAME: builds what is missing and has cluster NAME up with the operator's images loaded.
bed_ready() {
  export CLUSTER=${CLUSTER:-$1}
  step "build the operator and the end-to-end tests" \
    cargo build --release --locked --package shardwright-e2e --bin e2e
  step "operator image" hack/image.sh
  # Another tag of the same program: for the scenario that upgrades the operator.
  step "operator image, second tag" env IMAGE=shardwright/shardwright:dev-b hack/image.sh
  step "parts of the cluster (built once, about 5 minutes on two idle cores)" "$BED" build
  step "cluster up" "$BED" up
  step "load the images" bed_load
}

bed_load() {
  local archive
  for archive in "$CARGO_TARGET_DIR"/images/dev.tar "$CARGO_TARGET_DIR"/images/dev-b.tar; do
    "$BED" load "$archive"
  done
}
