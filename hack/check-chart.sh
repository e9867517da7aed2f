#!/usr/bin/env bash
# The chart and the kustomization, rendered with several values and compared: see check_packaging.py. What only an API
# server knows (unknown fields, immutable ones) is checked by the end-to-end scenarios, which install both ways.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

chart=charts/shardwright
out=$CARGO_TARGET_DIR/packaging
rm -rf "$out"
mkdir -p "$out/crds"
helm() { "$ROOT/hack/tool.sh" helm "$@"; }
# A Helm built from its Go module does not know which Kubernetes it is for.
render() { helm template shardwright "$chart" --namespace shardwright-system --kube-version 1.36.0 "$@"; }

helm lint "$chart" --strict --quiet --kube-version 1.36.0
render >"$out/default.yaml"
for values in "$chart"/ci/*.yaml; do
  helm lint "$chart" --strict --quiet --kube-version 1.36.0 --values "$values"
  render --values "$values" >"$out/$(basename "$values")"
done
for values in "$chart"/ci/bad/*.yaml; do
  if error=$(render --values "$values" 2>&1 >/dev/null); then die "$values was accepted"; fi
  case $error in
    *"meet the specifications of the schema"*) ;;
    *) die "$values was refused by something else than the schema: $error" ;;
  esac
done
hack/tool.sh kustomize config/default >"$out/kustomize.yaml"
hack/tool.sh kustomize config/prometheus >"$out/prometheus.yaml"
for overlay in config/samples config/samples/gitops config/samples/original-2015; do
  hack/tool.sh kustomize "$overlay" >/dev/null
done
cp crds/*.yaml "$out/crds/"
/usr/bin/python3 hack/check_packaging.py "$out"
