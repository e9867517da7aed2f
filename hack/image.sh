#!/usr/bin/env bash
# The operator's image: a static release binary in an otherwise empty file system.
# IMAGE=name:tag (default shardwright/shardwright:dev); the archive is target/images/TAG.tar.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

image=${IMAGE:-shardwright/shardwright:dev}
out=$CARGO_TARGET_DIR/images/${image##*[:/]}.tar
binary=$CARGO_TARGET_DIR/release/shardwright

# Only the program itself is linked statically, so that build scripts and macros stay shared with every other build.
cargo rustc --release --locked --package shardwright --bin shardwright -- -C target-feature=+crt-static
if readelf --program-headers "$binary" | grep -q INTERP; then die "$binary is not a static program"; fi
mkdir -p "$(dirname "$out")"
"$BED" image operator "$binary" "$image" "$out" >&2
printf '%s\n' "$out"
