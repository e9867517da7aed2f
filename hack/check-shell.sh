#!/usr/bin/env bash
# Every shell script of the repository through shellcheck; what a script sources is checked along with it.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mapfile -t scripts < <(git grep --untracked -lE '^#!(/usr/bin/env |/bin/)(ba|)sh' -- . ':!*.md')
[ ${#scripts[@]} -gt 0 ] || die "no scripts found"
shellcheck --severity=warning --external-sources --check-sourced --source-path=SCRIPTDIR --source-path="$ROOT" "${scripts[@]}"
echo "${#scripts[@]} scripts"
