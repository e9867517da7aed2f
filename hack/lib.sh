# shellcheck shell=bash
# For the scripts in hack/: messages, timed steps and the table of what took how long.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export SHARDWRIGHT_CACHE=${SHARDWRIGHT_CACHE:-$HOME/.cache/shardwright}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$ROOT/target}
# The test bed: a Kubernetes cluster on this machine.
# shellcheck disable=SC2034
BED=$ROOT/e2e/cluster/cluster
cd "$ROOT" || exit 1

if [ -t 2 ]; then BOLD=$'\e[1m' RED=$'\e[31m' OFF=$'\e[0m'; else BOLD='' RED='' OFF=''; fi
say() { printf '%s\n' "$BOLD==> $*$OFF" >&2; }
note() { printf '%s\n' "    $*" >&2; }
die() {
  printf '%s\n' "${RED}error: $*$OFF" >&2
  exit 1
}

# times_begin: scripts that call each other write their steps into one list; the outermost one prints it at its end.
times_begin() {
  [ -z "${SHARDWRIGHT_TIMES:-}" ] || return 0
  SHARDWRIGHT_TIMES=$(mktemp)
  export SHARDWRIGHT_TIMES
  trap 'print_times; rm -f "$SHARDWRIGHT_TIMES"' EXIT
}

# step NAME COMMAND…: runs the command (also a function, under set -e), times it, stops at a failure.
step() {
  local name=$1 began=$SECONDS rc
  shift
  say "$name"
  set +e
  (
    set -e
    "$@"
  )
  rc=$?
  set -e
  printf '%s\t%s\t%s\n' "$((SECONDS - began))" "$rc" "$name" >>"$SHARDWRIGHT_TIMES"
  if [ "$rc" != 0 ]; then
    printf '%s\n' "${RED}failed: $name (exit code $rc)$OFF" >&2
    exit "$rc"
  fi
}

print_times() {
  [ -s "$SHARDWRIGHT_TIMES" ] || return 0
  printf '\n%s\n' "${BOLD}What took how long$OFF" >&2
  awk -F '\t' '{ sum += $1; printf "  %4d:%02d  %s%s\n", $1 / 60, $1 % 60, $3, ($2 == 0 ? "" : "   FAILED") }
    END { printf "  %4d:%02d  in all\n", sum / 60, sum % 60 }' "$SHARDWRIGHT_TIMES" >&2
}

have() { command -v "$1" >/dev/null 2>&1; }
