# shellcheck shell=bash
# For the first processes of the boxes, which run it inside. STATE, BOX and CLUSTER come from outside.
set -euo pipefail
LOG=$STATE/log/$BOX

# settle makes the box's mounts its own and gives it a private /run: several containerds and several sets of network
# namespaces would meet there.
settle() {
    mount --make-rprivate /
    hostname "$BOX"
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir -p /run/lock
    # Containers inherit the number of files they may open, and a shell's is small.
    ulimit -Sn "$(ulimit -Hn)"
}

# connected waits for the cable, which is laid from outside once the box runs.
connected() {
    until ip route show default 2> /dev/null | grep -q .; do sleep 0.05; done
}

# api_ready waits for the API server, so that nothing below starts with a back-off.
api_ready() {
    until curl -sk --max-time 2 https://10.250.0.1:6443/readyz 2> /dev/null | grep -q '^ok$'; do sleep 0.2; done
}

# daemon NAME COMMAND... keeps a program running, as a machine's init does, with its output in the log of that name. The
# file hold/NAME keeps it from being started again for as long as it is there.
daemon() {
    local name=$1
    shift
    (
        while :; do
            while [ -e "$STATE/hold/$name" ]; do sleep 0.1; done
            code=0
            "$@" >> "$LOG/$name" 2>&1 || code=$?
            echo "--- $name ended with $code; starting it again" >> "$LOG/$name"
            sleep 1
        done
    ) &
}

# name_service runs CoreDNS on an address. Each node has its own, as with a node-local cache, so that a node that is
# cut off from the control plane still resolves the names it knew.
name_service() {
    local address=$1
    cat > /run/Corefile <<COREFILE
.:53 {
    bind $address
    errors
    kubernetes cluster.local in-addr.arpa {
        kubeconfig $STATE/dns.kubeconfig
        ttl 1
    }
}
COREFILE
    GOGC=50 daemon coredns coredns -conf /run/Corefile
}

# service_proxy runs kube-proxy for a node's name. The conntrack limits cannot be set from within a namespace.
service_proxy() {
    daemon kube-proxy kube-proxy --kubeconfig "$STATE/proxy.kubeconfig" --hostname-override "$1" \
        --proxy-mode nftables --cluster-cidr 10.244.0.0/16 \
        --healthz-bind-address 127.0.0.1:10256 --metrics-bind-address 127.0.0.1:10249 \
        --conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0 --conntrack-tcp-timeout-close-wait 0
}

# stay is the end of a first process: it waits for ever and reaps what is orphaned.
stay() {
    while :; do
        wait || true
        sleep 1
    done
}
