# shellcheck shell=bash
# Pods: what no API offers. The first process of a container takes no SIGKILL from inside, and a crash is no deletion.

pod_command() {
    local what=${1:-} signal=${2:-} pod=${3:-} container=${4:-} namespace name which='started==true' id dir pids
    require_up
    if [ "$what" != signal ] || [ -z "$pod" ]; then
        die "usage: cluster pod signal KILL|STOP|CONT NAMESPACE/POD [CONTAINER]"
    fi
    namespace=${pod%/*}
    name=${pod#*/}
    [ "$namespace" != "$pod" ] || namespace=default
    # Without a container's name the first one that is up.
    [ -z "$container" ] || which="name==\"$container\""
    id=$(up_kubectl get pod "$name" -n "$namespace" -o \
        "jsonpath={.status.containerStatuses[?(@.$which)].containerID}") ||
        die "no pod $namespace/$name"
    id=${id%% *}
    id=${id#containerd://}
    [ -n "$id" ] || die "$namespace/$name has no running container $container"
    dir=$(find "$(cgroup_track)/$CGROUP" -type d -name "$id" | head -n 1)
    [ -n "$dir" ] || die "container $id does not run"
    pids=$(find "$dir" -name cgroup.procs -exec cat {} +)
    # shellcheck disable=SC2086
    kill -s "${signal#SIG}" $pids
    say "$namespace/$name: $signal to $(wc -w <<< "$pids") processes"
}
