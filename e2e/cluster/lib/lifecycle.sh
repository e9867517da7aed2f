# shellcheck shell=bash
# up, down, status and logs.

# is_up says whether the cluster was made whole and still runs. Its files alone prove nothing: they outlive a reboot,
# and whatever else ends processes. A node may be down, that is no reason to make a new cluster.
is_up() {
    [ -e "$STATE/up" ] && box_pid router > /dev/null && box_pid control > /dev/null && box_pid client > /dev/null
}

# require_up refuses what needs a running cluster.
require_up() {
    is_up || die "cluster $CLUSTER is not up: cluster up"
}

cluster_up() {
    local nodes=3 started=$SECONDS n
    while [ $# -gt 0 ]; do
        case $1 in
            --nodes) nodes=${2:-}; shift 2 || die "--nodes how many?" ;;
            --nodes=*) nodes=${1#*=}; shift ;;
            *) die "usage: cluster up [--nodes N]" ;;
        esac
    done
    [[ $nodes =~ ^[1-9][0-9]?$ ]] || die "--nodes $nodes: 1 to 99"
    prerequisites
    if ! is_up && ! built; then
        build_all
    fi
    lock_state
    if is_up; then
        say "cluster $CLUSTER is up with $(< "$STATE/nodes.count") nodes"
        return
    fi
    raise_limits
    # Whatever an earlier up that was interrupted has left goes first.
    remove_everything
    started=$(now)
    umask 022
    mkdir -p "$STATE"
    chmod 700 "$STATE"
    echo "$nodes" > "$STATE/nodes.count"
    echo "${CRASHLOOP:-1s}" > "$STATE/crashloop"
    echo "$PAUSE_IMAGE" > "$STATE/pause-image"
    cp "$(part_dir mysql)/version" "$STATE/mysql-version"
    cp "$HERE/audit-policy.yaml" "$STATE/audit-policy.yaml"
    printf 'nameserver 10.250.0.2\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n' \
        > "$STATE/resolv.conf"
    parts_link
    credentials_make
    cgroup_make "$CGROUP"
    network_start
    box_start control control
    network_connect control 10.250.0.1
    box_start client client
    network_connect client 10.250.0.2
    for ((n = 1; n <= nodes; n++)); do
        node_prepare "$n"
        node_start "$n"
    done
    touch "$STATE/up.partly"
    wait_for 120 up_api || die "the API server does not answer: see $STATE/log/control/kube-apiserver"
    say "API server ready after $(since "$started") s"
    wait_for 30 up_addons || die "cannot make the storage classes and roles"
    wait_for 120 up_nodes "$nodes" || die "not all nodes are ready: see $STATE/log/node-*/kubelet"
    say "nodes ready after $(since "$started") s"
    wait_for 60 up_volumes "$nodes" || die "no volumes: see $STATE/log/node-*/localvolumes"
    wait_for 60 up_client || die "the client does not reach Services: see $STATE/log/client"
    since "$started" > "$STATE/up-seconds"
    mv "$STATE/up.partly" "$STATE/up"
    say "cluster $CLUSTER is up with $nodes nodes ($(since "$started") s); MySQL $(< "$STATE/mysql-version") in mysql:9.7"
}

# The conditions of up. They run before the cluster counts as up, so they cannot use client_run.
up_run() {
    local pid
    pid=$(box_pid client) || return 1
    KUBECONFIG=$STATE/admin.kubeconfig nsenter --target "$pid" --net -- "$@" 2> /dev/null
}
up_kubectl() { up_run "$STATE/bin/kubectl" "$@"; }
up_api() { up_run curl -sk --max-time 2 https://10.250.0.1:6443/readyz | grep -q '^ok$'; }
up_addons() { up_kubectl apply -f "$HERE/addons.yaml" > /dev/null; }
up_nodes() { [ "$(up_kubectl get nodes --no-headers | grep -c ' Ready ')" = "$1" ]; }
up_volumes() { [ "$(up_kubectl get pv --no-headers | grep -c ' Available .* local ')" -ge $((8 * $1)) ]; }
# A Service by its address, which needs the client's kube-proxy, and its name service.
up_client() {
    up_run curl -sk --max-time 2 https://10.96.0.1/readyz | grep -q '^ok$' &&
        up_run bash -c '< /dev/tcp/10.250.0.2/53'
}

cluster_down() {
    local started
    [ "$(id -u)" = 0 ] || die "needs root"
    lock_state
    started=$(now)
    if [ ! -e "$STATE" ] && [ -z "$(cgroup_processes "$CGROUP")" ]; then
        remove_everything
        say "cluster $CLUSTER is not there"
        return
    fi
    remove_everything
    say "cluster $CLUSTER is gone ($(since "$started") s)"
}

# remove_everything takes down whatever there is of the cluster, from any state. The control groups know every process
# that was ever started; namespaces, interfaces and mounts end with the last process in them.
remove_everything() {
    local mount root
    rm -f "$STATE/up"
    cgroup_kill "$CGROUP"
    cgroup_remove "$CGROUP"
    while read -r root; do
        # The common parent goes with the last cluster.
        rmdir "$root/shardwright" 2> /dev/null || true
    done < <(cgroup_hierarchies)
    while read -r mount; do
        umount -l "$mount"
    done < <(findmnt -rn -o TARGET | grep -F "$STATE/" | sort -r)
    rm -rf --one-file-system "$STATE"
    rmdir "$STATE_ROOT" 2> /dev/null || true
}

cluster_status() {
    local name
    echo "cluster: $CLUSTER"
    echo "kubernetes: $(pin kube k8s.io/kubernetes)"
    echo "containerd: $(pin containerd github.com/containerd/containerd/v2)"
    echo "etcd: $(pin etcd go.etcd.io/etcd/server/v3)"
    echo "coredns: $(pin coredns github.com/coredns/coredns)"
    echo "helm: $(pin helm helm.sh/helm/v3)"
    echo "cache: $CACHE"
    if ! is_up; then
        [ ! -r "$(part_dir mysql)/version" ] || echo "mysql: $(< "$(part_dir mysql)/version")"
        echo "state: down"
        return
    fi
    echo "mysql: $(< "$STATE/mysql-version")"
    echo "state: up since $(stat -c %y "$STATE/up" | cut -d . -f 1), made in $(< "$STATE/up-seconds") s, in $STATE"
    for name in router control client $(node_names); do
        printf '%s: ' "$name"
        if ! box_pid "$name" > /dev/null; then
            echo "down"
        elif [[ $name == node-* ]] && network_partitioned "$name"; then
            echo "running, partitioned, pid $(box_pid "$name")"
        else
            echo "running, pid $(box_pid "$name")"
        fi
    done
    up_kubectl get nodes -o wide || true
}

# cluster_logs prints one log, or the names of all.
cluster_logs() {
    [ -d "$STATE/log" ] || die "cluster $CLUSTER has no logs"
    if [ $# -eq 0 ]; then
        (cd "$STATE/log" && find . -type f -printf '%P\n' | sort)
    elif [ -f "$STATE/log/$1" ]; then
        cat "$STATE/log/$1"
    else
        die "no log $1; 'cluster logs' lists them"
    fi
}
