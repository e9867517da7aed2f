# shellcheck shell=bash
# Control groups. Every process of a cluster lies in a group under shardwright/NAME of one hierarchy, so that "all that
# this cluster ever started" is known without a pid file and whatever died when. The kubelets use the groups node-N.

CGROUP_ROOT=/sys/fs/cgroup
# shellcheck disable=SC2034 # for the other files
CGROUP=shardwright/$CLUSTER

# cgroup_v2 says whether the machine has the one unified hierarchy.
cgroup_v2() { [ -e "$CGROUP_ROOT/cgroup.controllers" ]; }

# cgroup_hierarchies prints the folder of each hierarchy.
cgroup_hierarchies() {
    if cgroup_v2; then
        echo "$CGROUP_ROOT"
        return
    fi
    local dir
    for dir in "$CGROUP_ROOT"/*/; do
        [ ! -e "${dir}cgroup.procs" ] || echo "${dir%/}"
    done
}

# cgroup_track prints the hierarchy that holds the boxes' processes: in version 1 one whose controller does nothing by
# itself, so that a box keeps the limits that its caller has elsewhere.
cgroup_track() {
    local name
    if cgroup_v2; then
        echo "$CGROUP_ROOT"
        return
    fi
    for name in pids freezer systemd; do
        if [ -e "$CGROUP_ROOT/$name/cgroup.procs" ]; then
            echo "$CGROUP_ROOT/$name"
            return
        fi
    done
    die "no control group hierarchy to keep track of processes"
}

# cgroup_make makes a group in every hierarchy and fills in what version 1 leaves empty (cpuset) and what version 2
# leaves off (the children's controllers).
cgroup_make() {
    local path=$1 root dir part file
    while read -r root; do
        dir=$root
        for part in ${path//\// }; do
            if cgroup_v2; then
                tr ' ' '\n' < "$dir/cgroup.controllers" | while read -r file; do
                    echo "+$file" > "$dir/cgroup.subtree_control" 2> /dev/null || true
                done
            fi
            mkdir -p "$dir/$part"
            for file in cpuset.cpus cpuset.mems; do
                if ! cgroup_v2 && [ -e "$dir/$part/$file" ] && [ -z "$(< "$dir/$part/$file")" ]; then
                    cat "$dir/$file" > "$dir/$part/$file"
                fi
            done
            dir=$dir/$part
        done
    done < <(cgroup_hierarchies)
}

# cgroup_processes prints the processes under a group of the tracking hierarchy.
cgroup_processes() {
    local dir
    dir=$(cgroup_track)/$1
    [ ! -d "$dir" ] || find "$dir" -name cgroup.procs -exec cat {} + 2> /dev/null | sort -un
}

# cgroup_kill ends every process under a group and waits for the last to be gone. It asks again and again, because a
# process may have made another while the list was read.
cgroup_kill() {
    local group=$1 pids end
    end=$(($(now) + 20000))
    while pids=$(cgroup_processes "$group") && [ -n "$pids" ]; do
        [ "$(now)" -lt "$end" ] || die "processes of $group do not end: $(tr '\n' ' ' <<< "$pids")"
        # shellcheck disable=SC2086
        kill -9 $pids 2> /dev/null || true
        sleep 0.02
    done
}

# cgroup_remove removes a group with all its children from every hierarchy. A group whose last process has just died
# stays busy for a moment.
cgroup_remove() {
    local group=$1 root
    while read -r root; do
        [ -d "$root/$group" ] || continue
        wait_for 10 cgroup_remove_once "$root/$group" || die "control group $root/$group stays busy"
    done < <(cgroup_hierarchies)
}

cgroup_remove_once() {
    find "$1" -depth -type d -exec rmdir {} + 2> /dev/null
    [ ! -d "$1" ]
}
