# shellcheck shell=bash
# Volumes: a full disk. Only those with a file system of their own can be filled, else it would be the machine's.

volume_command() {
    local what=${1:-} claim=${2:-} namespace name volume class path node
    require_up
    [ -n "$claim" ] || die "usage: cluster volume fill|free NAMESPACE/CLAIM"
    namespace=${claim%/*}
    name=${claim#*/}
    [ "$namespace" != "$claim" ] || namespace=default
    volume=$(up_kubectl get pvc "$name" -n "$namespace" -o 'jsonpath={.spec.volumeName}') && [ -n "$volume" ] ||
        die "no bound claim $namespace/$name"
    read -r class path node < <(up_kubectl get pv "$volume" -o \
        'jsonpath={.spec.storageClassName} {.spec.local.path} {.metadata.labels.shardwright\.test/node}{"\n"}')
    [ "$class" = local-small ] || die "$namespace/$name is of class $class; only local-small can be filled"
    case $what in
        # The bulk at once, then block by block what was freed or is left over; at its end nothing more fits. As mysqld's user, who
        # may not use what is kept back for the volume to grow.
        fill)
            # shellcheck disable=SC2016
            box_enter "$node" setpriv --reuid 999 --regid 999 --clear-groups sh -c '
                mountpoint -q "$1" || exit 1
                fallocate -l "$(($(stat -f -c "%a * %S" "$1")))" "$1/.ballast" 2> /dev/null ||
                    dd if=/dev/zero of="$1/.ballast" bs=1M 2> /dev/null
                dd if=/dev/zero of="$1/.ballast-2" bs=4k 2> /dev/null
                [ "$(stat -f -c %a "$1")" -lt 64 ]' sh "$path" || die "$volume cannot be filled" ;;
        free) box_enter "$node" rm -f "$path/.ballast" "$path/.ballast-2" ;;
        *) die "usage: cluster volume fill|free NAMESPACE/CLAIM" ;;
    esac
    say "$namespace/$name ($volume on $node): $what"
}
