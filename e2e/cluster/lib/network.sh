# shellcheck shell=bash
# The network: one router box in the middle, each other box on a cable (a veth pair) of its own. Nothing here has a way
# out of the machine, and every cluster may use the same addresses.
#
#   10.250.0.1    control plane          10.244.N.0/24  pods of node N
#   10.250.0.2    client (exec)          10.96.0.0/16   Services
#   10.250.0.10+N node N                 10.250.0.254   the router, seen from everywhere

ROUTER_IP=10.250.0.254

# network_start makes the router. What has no cable is swallowed without a word, as the address of a machine without
# power is: no refusal may come back that tells a client sooner than in life.
network_start() {
    box_start router router
    box_net router sysctl -qw net.ipv4.ip_forward=1
    box_net router ip link set lo up
    box_net router ip route add blackhole 10.250.0.0/24 metric 4096
    box_net router ip route add blackhole 10.244.0.0/16 metric 4096
    box_net router nft -f - <<'NFT'
table inet partition {
    chain forward { type filter hook forward priority 0; policy accept; }
}
NFT
}

# network_connect lays the cable of a box: BOX ADDRESS [PODS' RANGE].
network_connect() {
    local box=$1 address=$2 range=${3:-} pid port="to-$1"
    pid=$(box_pid "$box") || die "$box does not run"
    # The far end of a dead box's cable goes only when the kernel gets round to it.
    box_net router ip link del "$port" 2> /dev/null || true
    box_net router ip link add "$port" type veth peer name eth0 netns "$pid"
    box_net router sh -ec "
        ip addr add $ROUTER_IP/32 dev $port
        ip link set $port up
        ip route add $address/32 dev $port
        [ -z '$range' ] || ip route add $range via $address dev $port"
    box_net "$box" sh -ec "
        ip link set lo up
        ip addr add $address/32 dev eth0
        ip link set eth0 up
        ip route add $ROUTER_IP/32 dev eth0 src $address
        ip route add default via $ROUTER_IP dev eth0 src $address"
}

# network_cut takes a box's cable out.
network_cut() { box_net router ip link set "to-$1" down 2> /dev/null || true; }

# network_partition drops what passes between a node and others, both ways. WHAT: api, nodes, node-M, both, all.
network_partition() {
    local node=$1 what=$2 port rules=''
    port="to-$node"
    case $what in
        node-*) rules="iifname $port oifname to-$what drop; iifname to-$what oifname $port drop;" ;;
        api) rules="iifname $port oifname to-control drop; iifname to-control oifname $port drop;" ;;
        nodes) rules="iifname $port oifname \"to-node-*\" drop; iifname \"to-node-*\" oifname $port drop;" ;;
        both)
            rules="iifname $port oifname != to-client drop; iifname != to-client oifname $port drop;" ;;
        all) rules="iifname $port drop; oifname $port drop;" ;;
        *) die "partition from what? api, nodes, node-M, both or all" ;;
    esac
    network_heal "$node"
    box_net router nft -f - <<NFT
table inet partition {
    chain $node { ${rules//;/
} }
}
add rule inet partition forward jump $node
NFT
}

# network_heal removes a node's partition, if it has one.
network_heal() {
    local node=$1 handle
    handle=$(box_net router nft --handle list chain inet partition forward |
        sed -n "s/.*jump $node # handle //p")
    [ -n "$handle" ] || return 0
    box_net router nft "delete rule inet partition forward handle $handle; delete chain inet partition $node"
}

# network_partitioned says whether a node is cut off now.
network_partitioned() {
    box_net router nft list chain inet partition forward 2> /dev/null | grep -q "jump $1\$"
}
