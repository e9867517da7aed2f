# shellcheck shell=bash
# Images: loading them into the nodes, and making the operator's.

# image_load gives an archive to every node: it is kept in a numbered queue that each node works off, also one that is
# down now, when it comes back.
image_load() {
    local archive=${1:-} number old node started failed='' pids=() names=() i
    require_up
    [ -f "$archive" ] || die "usage: cluster load IMAGE.tar"
    lock_state
    started=$(now)
    mkdir -p "$STATE/images"
    number=$(find "$STATE/images" -name '*.tar' -printf '%f\n' | sort | tail -n 1)
    number=${number%.tar}
    number=$(printf '%06d' $((10#${number:-0} + 1)))
    cp --reflink=auto "$archive" "$STATE/images/.new"
    # The same archive again: its earlier place in the queue is of no use any more.
    for old in "$STATE"/images/*.tar; do
        if [ -e "$old" ] && cmp -s "$old" "$STATE/images/.new"; then
            rm -f "$old"
        fi
    done
    mv "$STATE/images/.new" "$STATE/images/$number.tar"
    for node in $(node_names); do
        box_pid "$node" > /dev/null || { say "$node is down: it will import $archive when it starts"; continue; }
        (
            exec 8>&- 9>&-
            wait_for 60 box_enter "$node" ctr version > /dev/null 2>&1
            box_enter "$node" ctr -n k8s.io images import - < "$STATE/images/$number.tar" >> "$STATE/log/$node/import" 2>&1
            echo "$((10#$number))" > "$STATE/nodes/$node/images"
        ) &
        pids+=($!)
        names+=("$node")
    done
    for i in "${!pids[@]}"; do
        wait "${pids[$i]}" || failed="$failed ${names[$i]}"
    done
    [ -z "$failed" ] || die "import failed on$failed: see $STATE/log/NODE/import"
    say "loaded $archive into ${#pids[@]} nodes ($(since "$started") s)"
}

image_command() {
    local what=${1:-}
    [ $# -eq 0 ] || shift
    case $what in
        operator) image_operator "$@" ;;
        prove) image_prove "$@" ;;
        *) die "usage: cluster image operator BINARY TAG OUT.tar" ;;
    esac
}

# image_tools makes sure of the packer alone: packing an image needs none of the other parts.
image_tools() {
    check_go
    lock_cache
    mkdir -p "$CACHE/parts"
    part_build tools
    unlock_cache
}

# image_operator packs the operator's image. The Dockerfile at the top of the repository says the same.
image_operator() {
    local binary=${1:-} tag=${2:-} out=${3:-}
    if [ ! -f "$binary" ] || [ -z "$tag" ] || [ -z "$out" ]; then
        die "usage: cluster image operator BINARY TAG OUT.tar"
    fi
    image_tools
    "$(part_dir tools)/ocipack" -static -out "$out" -image "$tag" -file "$binary=/shardwright" \
        -user 65532:65532 -entrypoint /shardwright
}

# image_prove builds the Dockerfile by buildah around the same binary and compares what comes out: the files with their
# modes, owners and content, and how the image is run.
image_prove() {
    local binary=${1:-} tmp top=$HERE/../.. failed=0
    [ -f "$binary" ] || die "usage: cluster image prove BINARY"
    [ "$(id -u)" = 0 ] || die "needs root"
    command -v buildah > /dev/null || apt_install buildah
    tmp=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$tmp'" EXIT
    mkdir "$tmp/context" "$tmp/store" "$tmp/run" "$tmp/ours" "$tmp/theirs"
    cp "$binary" "$tmp/context/shardwright"
    image_operator "$binary" prove:1 "$tmp/ours.tar"
    local buildah=(buildah --root "$tmp/store" --runroot "$tmp/run" --storage-driver vfs)
    "${buildah[@]}" bud --quiet --isolation chroot --target prebuilt -t prove:1 -f "$top/Dockerfile" "$tmp/context" \
        > /dev/null
    "${buildah[@]}" push --quiet prove:1 "oci-archive:$tmp/theirs.tar:prove:1"
    local side
    for side in ours theirs; do
        "$(part_dir tools)/ocipack" -describe "$tmp/$side.tar" > "$tmp/$side.txt"
    done
    if diff -u "$tmp/ours.txt" "$tmp/theirs.txt"; then
        say "the Dockerfile and 'image operator' give the same image:"
        cat "$tmp/ours.txt"
    else
        failed=1
    fi
    "${buildah[@]}" rmi --all --force > /dev/null 2>&1 || true
    [ $failed = 0 ] || die "the images differ"
}
