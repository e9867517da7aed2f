# shellcheck shell=bash
# Nodes: making, killing and cutting them off.

# node_names prints the names of the cluster's nodes.
node_names() {
    local i
    for ((i = 1; i <= $(< "$STATE/nodes.count"); i++)); do
        echo "node-$i"
    done
}

node_address() { echo "10.250.0.$((10 + $1))"; }

# node_prepare makes a node's folders. The containerd folder is the template by hard links: what an image holds is
# never written again, only the databases are, and those are copied.
node_prepare() {
    local home=$STATE/nodes/node-$1 template
    template=$(part_dir template)/root
    mkdir -p "$home/lib" "$home/log"
    if [ "$(stat -c %d "$template")" = "$(stat -c %d "$home")" ]; then
        cp -al "$template" "$home/lib/containerd"
        local db
        while read -r db; do
            cp --remove-destination --preserve=all "$template/$db" "$home/lib/containerd/$db"
        done < <(cd "$template" && find . -name '*.db')
    else
        cp -a "$template" "$home/lib/containerd"
    fi
}

# node_start makes the box of a node and lays its cable.
node_start() {
    local n=$1 name=node-$1
    cgroup_make "$CGROUP/$name"
    box_start "$name" node "$n" "$(node_address "$n")"
    network_connect "$name" "$(node_address "$n")" "10.244.$n.0/24"
}

# node_stop is a power cut: the cable first, so that no dying process can still say good-bye to its peers, then
# everything at once.
node_stop() {
    local name=node-$1
    network_cut "$name"
    box_kill "$name"
    cgroup_kill "$CGROUP/$name"
    cgroup_remove "$CGROUP/$name"
}

# node_known checks a node's number.
node_known() {
    local count
    count=$(< "$STATE/nodes.count")
    if [[ ! $1 =~ ^[1-9][0-9]?$ ]] || [ "$1" -gt "$count" ]; then
        die "no node $1: there are $count"
    fi
}

node_command() {
    local what=${1:-} n=${2:-} started
    require_up
    # Names work as well as numbers.
    n=${n#node-}
    [ -n "$n" ] || die "usage: cluster node kill|start|partition|heal N"
    node_known "$n"
    lock_state
    started=$(now)
    case $what in
        kill) node_stop "$n"; say "node-$n killed ($(since "$started") s)" ;;
        start)
            if box_pid "node-$n" > /dev/null; then
                say "node-$n runs already"
                return
            fi
            network_heal "node-$n"
            node_start "$n"
            say "node-$n started ($(since "$started") s)"
            ;;
        partition)
            box_pid "node-$n" > /dev/null || die "node-$n does not run"
            [[ ${3:-} != node-* ]] || node_known "${3#node-}"
            network_partition "node-$n" "${3:-both}"
            say "node-$n cut off: ${3:-both} ($(since "$started") s)"
            ;;
        heal) network_heal "node-$n"; say "node-$n healed ($(since "$started") s)" ;;
        *) die "usage: cluster node kill|start|partition|heal N" ;;
    esac
}
