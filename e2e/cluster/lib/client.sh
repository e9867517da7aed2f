# shellcheck shell=bash
# Commands from outside that need the cluster's network.

# client_run runs a command in the client's network, where pods, Services and names are reached. Processes and files
# stay the machine's; only /etc/resolv.conf is covered, in a mount namespace of the command's own. Mounts made later on
# the machine still appear in it.
client_run() {
    local pid resolv
    require_up
    pid=$(box_pid client) || die "the client box of $CLUSTER does not run"
    resolv=$(readlink -f /etc/resolv.conf)
    export KUBECONFIG=$STATE/admin.kubeconfig
    # Every cluster has the same address, so that one's cached list of types must not be taken for another's.
    export KUBECACHEDIR=$STATE/kube-cache
    export PATH=$STATE/tools:$PATH
    # shellcheck disable=SC2016
    exec nsenter --target "$pid" --net -- unshare --mount --propagation slave -- \
        sh -c '[ ! -e "$1" ] || mount --bind "$0" "$1"; shift; exec "$@"' "$STATE/resolv.conf" "$resolv" "$@"
}

# admin is kubectl for this script's own use, without the end of the process that client_run is.
admin() { (client_run kubectl "$@"); }
