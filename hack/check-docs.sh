#!/usr/bin/env bash
# Every condition reason and event of the code stands in docs/conditions-and-events.md, and none that is not in the code;
# every metric and alert stands in docs/metrics.md; what the README quotes is in an example; links between the documents lead somewhere.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
exec /usr/bin/python3 hack/check_docs.py
