# shellcheck shell=bash
# Boxes: a box is a first process with namespaces of its own (net, mount, pid, uts, ipc). When that process dies the
# kernel ends every other process of the box at once, pods included, and its mounts and interfaces go with it. That is
# what makes a box a machine that can lose its power.

# box_start starts SCRIPT as the first process of the box NAME and remembers it.
box_start() {
    local name=$1 script=$2 track outer pid
    shift 2
    track=$(cgroup_track)/$CGROUP/boxes/$name
    mkdir -p "$track" "$STATE/box" "$STATE/log/$name"
    # The process enters its group before it becomes anything else: nothing of a box is ever outside of it.
    (
        echo "$BASHPID" > "$track/cgroup.procs"
        exec 8>&- 9>&-
        exec setsid unshare --net --mount --pid --uts --ipc --fork --kill-child --mount-proc \
            env -i PATH="$STATE/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" HOME=/root \
            CLUSTER="$CLUSTER" STATE="$STATE" BOX="$name" \
            bash "$HERE/box/$script" "$@" < /dev/null >> "$STATE/log/$name/box" 2>&1
    ) &
    outer=$!
    disown "$outer"
    wait_for 10 box_first_child "$outer" || die "box $name does not start: see $STATE/log/$name/box"
    pid=$(box_first_child_pid "$outer")
    echo "$pid $(process_start_time "$pid")" > "$STATE/box/$name"
}

# The child of "unshare --fork" is the box's first process. setsid execs unshare in place, so that its pid is known.
box_first_child_pid() { tr -d ' ' 2> /dev/null < "/proc/$1/task/$1/children"; }
box_first_child() { [ -n "$(box_first_child_pid "$1")" ]; }

# process_start_time prints the field of /proc that, with the pid, names a process for good: pids are used again.
process_start_time() {
    local stat
    stat=$(< "/proc/$1/stat") 2> /dev/null || return 1
    stat=${stat##*) }
    # shellcheck disable=SC2086
    set -- $stat
    echo "${20}"
}

# box_pid prints the pid of a box's first process, and fails when it does not run. One that is dying has a pid still, but
# no namespaces any more.
box_pid() {
    local pid started
    read -r pid started 2> /dev/null < "$STATE/box/$1" || return 1
    [ "$(process_start_time "$pid" 2> /dev/null)" = "$started" ] && [ -e "/proc/$pid/ns/net" ] ||
        return 1
    echo "$pid"
}

# box_kill ends a box: first its first process, which takes all others along at that instant, then what may be left of
# the starter outside.
box_kill() {
    local pid
    if pid=$(box_pid "$1"); then
        kill -9 "$pid" 2> /dev/null || true
    fi
    cgroup_kill "$CGROUP/boxes/$1"
    rm -f "$STATE/box/$1"
}

# box_net runs a command in a box's network; box_enter in its mounts and processes too.
box_net() {
    local pid
    pid=$(box_pid "$1") || die "$1 does not run"
    shift
    nsenter --target "$pid" --net -- "$@"
}

box_enter() {
    local pid
    pid=$(box_pid "$1") || die "$1 does not run"
    shift
    nsenter --target "$pid" --net --mount --pid --uts --ipc -- \
        env PATH="$STATE/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" "$@"
}
