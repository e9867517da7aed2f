# shellcheck shell=bash
# Names, paths, messages and locks that every other file uses.

CLUSTER=${CLUSTER:-shardwright}
CACHE=${SHARDWRIGHT_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/shardwright}
STATE_ROOT=${SHARDWRIGHT_STATE:-${TMPDIR:-/tmp}/shardwright-clusters}
# shellcheck disable=SC2034 # for the other files
STATE=$STATE_ROOT/$CLUSTER

say() { printf '%s\n' "$*" >&2; }

die() {
    printf 'cluster: %s\n' "$*" >&2
    exit 1
}

# check_names refuses what would break later in a less obvious place: the name becomes part of paths and control
# groups, and each box covers /run, /var/lib and /var/log by folders of its own.
check_names() {
    [[ $CLUSTER =~ ^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$ ]] ||
        die "CLUSTER=$CLUSTER: use lower-case letters, digits and '-', 32 at most"
    local dir
    for dir in "$CACHE" "$STATE_ROOT"; do
        case $dir/ in
            /run/* | /var/run/* | /var/lib/* | /var/log/* | /proc/* | /sys/*)
                die "$dir: the cache and the state cannot lie under /run, /var/lib or /var/log" ;;
            /*) ;;
            *) die "$dir: must be an absolute path" ;;
        esac
    done
}
check_names

# now prints the time in milliseconds, for the figures that are printed.
now() { date +%s%3N; }

# since prints the seconds since a time of now, with one digit behind the point.
since() {
    local ms=$(($(now) - $1))
    printf '%d.%d' $((ms / 1000)) $((ms % 1000 / 100))
}

# lock makes the rest of this process the only one that changes the thing named. The lock goes with the process;
# whatever is started for longer than that must close descriptor 9 (and 8, the cache's).
lock_state() {
    mkdir -p "$STATE_ROOT"
    exec 9> "$STATE_ROOT/.$CLUSTER.lock"
    flock -n 9 || { say "waiting for another command on cluster $CLUSTER"; flock 9; }
}

lock_cache() {
    mkdir -p "$CACHE"
    exec 8> "$CACHE/.lock"
    flock -n 8 || { say "waiting for another build into $CACHE"; flock 8; }
}

unlock_cache() { exec 8>&-; }

# wait_for calls a command every 50 ms until it succeeds, SECONDS at most.
wait_for() {
    local seconds=$1 end
    shift
    end=$(($(now) + seconds * 1000))
    until "$@"; do
        [ "$(now)" -lt "$end" ] || return 1
        sleep 0.05
    done
}
