# shellcheck shell=bash
# The parts: what is built once into the cache. Each part lies in a folder named by a key of all that goes into it (the
# sources and pins in its folder here, the function that builds it, the Go release), so that a change of a pin builds
# that part again and nothing else, and no two checkouts disturb each other.

# In the order of building: what takes longest first.
PARTS=(kube containerd coredns etcd helm cni tools resizer pause mysql template)

# go_build builds programs as the same bytes wherever it is done. The caller's Go settings must not leak in.
go_build() {
    local dir=$1
    shift
    (
        cd "$HERE/$dir" || exit 1
        GOFLAGS='' GOWORK=off GOTOOLCHAIN=local CGO_ENABLED=0 \
            nice -n 5 go build -trimpath -buildvcs=false -mod=readonly "$@"
    )
}

# pin prints the version that a part's go.mod requires of a module.
pin() {
    sed -n "s|^\(require \)\?[[:space:]]*$2 \(v[^ ]*\).*|\2|p" "$HERE/$1/go.mod" | head -n 1
}

# links makes further names of a program.
links() {
    local dir=$1 target=$2 name
    shift 2
    for name in "$@"; do
        ln -s "$target" "$dir/$name"
    done
}

build_kube() {
    local out=$1 version minor
    version=$(pin kube k8s.io/kubernetes)
    minor=${version#v1.}
    go_build kube -o "$out/kube" -ldflags "-s -w \
        -X k8s.io/component-base/version.gitVersion=$version \
        -X k8s.io/component-base/version.gitMajor=1 \
        -X k8s.io/component-base/version.gitMinor=${minor%%.*}" .
    links "$out" kube kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl
}

build_containerd() {
    local module=github.com/containerd/containerd/v2
    go_build containerd -o "$1/" -tags "no_btrfs no_devmapper no_zfs" \
        -ldflags "-s -w -X $module/version.Version=$(pin containerd $module)" \
        $module/cmd/containerd $module/cmd/containerd-shim-runc-v2 $module/cmd/ctr
}

build_etcd() { go_build etcd -o "$1/etcd" -ldflags "-s -w" .; }

build_coredns() { go_build coredns -o "$1/coredns" -ldflags "-s -w" .; }

build_helm() {
    go_build helm -o "$1/" \
        -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=$(pin helm helm.sh/helm/v3)" \
        helm.sh/helm/v3/cmd/helm
}

build_cni() {
    local module=github.com/containernetworking/plugins/plugins
    go_build cni -o "$1/" -ldflags "-s -w" \
        $module/main/ptp $module/main/loopback $module/ipam/host-local $module/meta/portmap
}

build_tools() {
    go_build ocipack -o "$1/ocipack" -ldflags "-s -w" .
    go_build localvolumes -o "$1/localvolumes" -ldflags "-s -w" .
}

build_resizer() { go_build resizer -o "$1/resizer" -ldflags "-s -w" .; }

PAUSE_IMAGE=shardwright.test/pause:1

build_pause() {
    go_build pause -o "$1/pause" -ldflags "-s -w" .
    "$(part_dir tools)/ocipack" -out "$1/pause.tar" -image "$PAUSE_IMAGE" -file "$1/pause=/pause" \
        -entrypoint /pause -user 65535:65535
}

# Two tags of one content, for tests of an upgrade: they differ in a label, so they are two images to the kubelet.
build_mysql() {
    local root=$1/root version
    version=$("$HERE/mysql/rootfs" "$root")
    echo "$version" > "$1/version"
    "$(part_dir tools)/ocipack" -out "$1/mysql.tar" -root "$root" -cmd mysqld \
        -env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        -label "org.opencontainers.image.version=$version" \
        -annotation "org.opencontainers.image.version=$version" \
        -image mysql:9.7,shardwright.test/variant=a -image mysql:9.7-b,shardwright.test/variant=b
    rm -rf "$root"
}

# The template is a containerd's folder with every image imported and unpacked: a new node's is made from it by hard
# links, in a fraction of the time of an import.
build_template() {
    unshare --mount --pid --fork --kill-child --mount-proc bash "$HERE/box/template" "$1" \
        "$(part_dir containerd)" "$(part_dir pause)/pause.tar" "$(part_dir mysql)/mysql.tar"
}

# part_key prints what names a part's content.
part_key() {
    local part=$1 sources=()
    case $part in
        tools) sources=(ocipack localvolumes) ;;
        template) sources=(box/template) ;;
        *) sources=("$part") ;;
    esac
    {
        declare -f "build_$part" go_build
        case $part in
            mysql) part_key tools ;;
            pause) part_key tools; go_version ;;
            template) part_key containerd; part_key pause; part_key mysql ;;
            *) go_version ;;
        esac
        (cd "$HERE" && find "${sources[@]}" -type f | LC_ALL=C sort | xargs sha256sum)
    } | sha256sum | cut -c 1-16
}

# go_version prints what check_go has found, or asks: that takes longer than all the rest of a key.
go_version() {
    [ -n "$GO_VERSION" ] || GO_VERSION=$(GOTOOLCHAIN=local go env GOVERSION)
    echo "$GO_VERSION"
}

# part_dir prints where a part lies, or will.
part_dir() { echo "$CACHE/parts/$1-$(part_key "$1")"; }

# part_build builds one part unless it is there. A part's folder appears whole or not at all.
part_build() {
    local part=$1 dir tmp
    dir=$(part_dir "$part")
    [ ! -d "$dir" ] || return 0
    tmp=$CACHE/parts/.$part.$$
    rm -rf "$tmp"
    mkdir -p "$tmp"
    "build_$part" "$tmp"
    mv "$tmp" "$dir"
}

# build_all builds what is missing and tells how long each part took.
build_all() {
    local part started begun n=0 dir
    begun=$(now)
    lock_cache
    mkdir -p "$CACHE/parts" "$CACHE/log"
    # What a killed build left behind; the lock says that none is running.
    rm -rf "$CACHE"/parts/.[a-z]*
    for part in "${PARTS[@]}"; do
        n=$((n + 1))
        dir=$(part_dir "$part")
        if [ -d "$dir" ]; then
            touch "$dir"
            say "$n/${#PARTS[@]} $part, cached"
            continue
        fi
        started=$(now)
        # Not "(...) ||": that would have the shell go on after an error inside.
        (part_build "$part") > "$CACHE/log/$part" 2>&1 &
        wait $! || {
            tail -n 20 "$CACHE/log/$part" >&2
            die "building $part failed: see $CACHE/log/$part"
        }
        say "$n/${#PARTS[@]} $part, $(since "$started") s"
    done
    # What no build has asked for in two weeks goes: it is of other pins.
    find "$CACHE/parts" -mindepth 1 -maxdepth 1 -mtime +14 -exec rm -rf {} +
    unlock_cache
    say "everything is built ($(since "$begun") s)"
}

# built says whether all parts are in the cache.
built() {
    local part
    for part in "${PARTS[@]}"; do
        [ -d "$(part_dir "$part")" ] || return 1
    done
}

# parts_link fills the folder of programs of a running cluster: links, so that a later build changes nothing in it.
parts_link() {
    local part dir file
    mkdir -p "$STATE/bin" "$STATE/tools"
    for part in kube containerd etcd coredns cni helm tools resizer; do
        dir=$(part_dir "$part")
        for file in "$dir"/*; do
            ln -sf "$file" "$STATE/bin/${file##*/}"
        done
    done
    ln -sf "$STATE/bin/kubectl" "$STATE/bin/helm" "$STATE/tools/"
}
