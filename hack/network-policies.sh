#!/usr/bin/env bash
# The NetworkPolicies of the operator and of a pair, under an engine that enforces them: kube-router, on the nodes of a
# cluster of its own. The test cluster itself enforces none. Builds kube-router once (some minutes).
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=hack/bed.sh
source "$ROOT/hack/bed.sh"
export CLUSTER=${CLUSTER:-netpol}

ENGINE_VERSION=2.1.0
engine=$SHARDWRIGHT_CACHE/tools/kube-router-$ENGINE_VERSION/kube-router
state=${SHARDWRIGHT_STATE:-${TMPDIR:-/tmp}/shardwright-clusters}/$CLUSTER

kubectl() { "$BED" kubectl "$@"; }

engine_build() {
  [ -x "$engine" ] || GOBIN=$(dirname "$engine") GOFLAGS='' nice -n 5 \
    go install -trimpath -ldflags '-s -w' "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router@v$ENGINE_VERSION"
  local missing=()
  have iptables || missing+=(iptables)
  have ipset || missing+=(ipset)
  [ ${#missing[@]} -eq 0 ] || DEBIAN_FRONTEND=noninteractive apt-get install -y -q "${missing[@]}" >/dev/null
}

# One on each node, in the node's own namespaces; it ends with the node.
engine_start() {
  local node pid
  for node in "$state"/box/node-*; do
    read -r pid _ <"$node"
    node=${node##*/}
    # shellcheck disable=SC2016
    nsenter --target "$pid" --net --mount --pid --uts --ipc -- sh -c 'cd /
      nohup "$1" --run-firewall=true --run-router=false --run-service-proxy=false --enable-ipv6=false --health-port=0 \
        --kubeconfig="$2/admin.kubeconfig" --hostname-override="$3" --service-cluster-ip-range=10.96.0.0/16 \
        >"$2/log/$3/kube-router" 2>&1 &' sh "$engine" "$state" "$node"
  done
}

fleet() {
  "$BED" helm upgrade --install shardwright charts/shardwright --namespace shardwright-system --create-namespace \
    --set image.repository=shardwright/shardwright --set image.tag=dev --wait --timeout 3m >/dev/null
  kubectl apply -f - <<'YAML'
apiVersion: shardwright.dev/v1alpha1
kind: ShardCluster
metadata: {name: main}
spec:
  shards: {total: 16}
  mysql: {image: "mysql:9.7", storage: {size: 1Gi}}
  layout: {pairs: 1, open: 4}
  tables:
    objects: [{name: pins, typeId: 1}]
---
apiVersion: v1
kind: Namespace
metadata: {name: apps}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: apps}
spec:
  containers: [{name: c, image: "mysql:9.7", imagePullPolicy: IfNotPresent, command: [sleep, "3600"]}]
---
# Stands in for the operator, whose image has no shell: the same labels, so the same policy.
apiVersion: v1
kind: Pod
metadata:
  name: twin
  namespace: shardwright-system
  labels:
    app.kubernetes.io/name: shardwright
    app.kubernetes.io/instance: shardwright
    app.kubernetes.io/component: operator
spec:
  containers: [{name: c, image: "mysql:9.7", imagePullPolicy: IfNotPresent, command: [sleep, "3600"]}]
YAML
  kubectl wait shardcluster/main --for=condition=Ready --timeout=5m
  kubectl wait --namespace apps pod/client --for=condition=Ready --timeout=1m
}

failed=0
# expect open|blocked WHAT NAMESPACE POD HOST PORT
expect() {
  local got=blocked
  if kubectl exec --namespace "$3" "$4" -- timeout 5 bash -c "exec 3<>/dev/tcp/$5/$6" >/dev/null 2>&1; then got=open; fi
  if [ $got = "$1" ]; then printf '    %-8s %s\n' $got "$2"; else
    printf '    %-8s %s: EXPECTED %s\n' $got "$2" "$1"
    failed=$((failed + 1))
  fi
}

policies() {
  local operator a b db=main-p0.default.svc
  operator=$(kubectl get pods -n shardwright-system -l app.kubernetes.io/component=operator -o jsonpath='{.items[0].status.podIP}')
  a=main-p0-0.$db b=main-p0-1.$db
  # The engine follows new Pods within a second or two.
  sleep 15
  expect open "application to mysqld, by name" apps client $a 3306
  expect open "application to the shard maps" apps client shardwright.shardwright-system.svc 8080
  expect open "application to a kubelet (no policy: shows that the way is there)" apps client 10.250.0.11 10250
  expect open "mysqld to the other one of its pair" default main-p0-0 $b 3306
  expect blocked "mysqld to the operator" default main-p0-0 "$operator" 8080
  expect blocked "mysqld to the Kubernetes API" default main-p0-0 10.96.0.1 443
  expect blocked "mysqld to a kubelet" default main-p0-0 10.250.0.11 10250
  expect open "operator to mysqld" shardwright-system twin $a 3306
  expect open "operator to the Kubernetes API" shardwright-system twin kubernetes.default.svc 443
  expect blocked "operator to a kubelet" shardwright-system twin 10.250.0.11 10250
  expect blocked "operator to etcd's port" shardwright-system twin 10.250.0.1 2379
  [ $failed = 0 ] || die "$failed connections are not as the policies say"
}

# Everything goes on working under enforcement: both servers are lost and come back.
heals() {
  kubectl delete pod main-p0-0 main-p0-1 --wait=true >/dev/null
  sleep 5
  kubectl wait mysqlpair/main-p0 --for=condition=Ready --timeout=3m
}

hack/prerequisites.sh
times_begin
bed_ready netpol
step "build the engine" engine_build
step "start it on each node" engine_start
step "operator, fleet and clients" fleet
step "who reaches whom" policies
step "a pair heals under enforcement" heals
step "cluster down" "$BED" down
