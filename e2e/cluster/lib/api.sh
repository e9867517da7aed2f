# shellcheck shell=bash
# The API server: killed, kept away and had again, with all that it knew.

api_command() {
    local what=${1:-} started
    require_up
    lock_state
    started=$(now)
    case $what in
        stop) api_stop ;;
        start) api_start ;;
        restart) api_stop && api_start ;;
        *) die "usage: cluster api stop|start|restart" ;;
    esac
    say "API server: $what ($(since "$started") s)"
}

# api_stop kills it without notice. Its keeper finds the file and waits.
api_stop() {
    mkdir -p "$STATE/hold"
    touch "$STATE/hold/kube-apiserver"
    wait_for 10 api_killed || die "the API server does not end"
}

# api_killed kills it and says whether none is left: its keeper may have been about to start one.
api_killed() {
    local pid found=''
    for pid in $(cgroup_processes "$CGROUP/boxes/control"); do
        [ "$(cat "/proc/$pid/comm" 2> /dev/null)" = kube-apiserver ] || continue
        kill -9 "$pid" 2> /dev/null || true
        found=1
    done
    [ -z "$found" ]
}

api_start() {
    rm -f "$STATE/hold/kube-apiserver"
    wait_for 60 up_api || die "the API server does not answer: see $STATE/log/control/kube-apiserver"
}
