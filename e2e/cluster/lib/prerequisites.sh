# shellcheck shell=bash
# What the machine must have: root, Go, and Debian packages, which are installed when they are missing.

# The command that shows that a package is there, and the package.
PREREQUISITES=(
    unshare:util-linux nsenter:util-linux ip:iproute2 nft:nftables conntrack:conntrack runc:runc openssl:openssl
    curl:curl mkfs.ext4:e2fsprogs mmdebstrap:mmdebstrap sysctl:procps flock:util-linux find:findutils
)

# prerequisites checks everything before anything is begun.
prerequisites() {
    [ "$(uname -s)" = Linux ] || die "needs Linux"
    [ "$(id -u)" = 0 ] || die "needs root: it makes namespaces, mounts and control groups"
    local pair missing=()
    for pair in "${PREREQUISITES[@]}"; do
        command -v "${pair%%:*}" > /dev/null || missing+=("${pair#*:}")
    done
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing+=(debian-archive-keyring)
    if [ ${#missing[@]} -gt 0 ]; then
        command -v apt-get > /dev/null || die "missing, and no apt-get to install them: ${missing[*]}"
        apt_install "${missing[@]}"
    fi
    check_go
}

# apt_install installs packages; another apt that runs is waited for. A fresh machine has no package lists, hence the
# update; one list that cannot be had is no reason to give up when the package is in another.
apt_install() {
    say "installing $*"
    apt-get update -q > /dev/null 2>&1 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" \
        > /dev/null || die "cannot install $*"
}

GO_VERSION=''

# check_go: only the build needs Go, but without it no cache key can be had either.
check_go() {
    command -v go > /dev/null || die "needs Go 1.26 or newer on PATH"
    local version
    GO_VERSION=$(GOTOOLCHAIN=local go env GOVERSION)
    version=${GO_VERSION#go}
    [ "$(printf '1.26\n%s\n' "${version%%-*}" | sort -V | head -n 1)" = 1.26 ] ||
        die "needs Go 1.26 or newer, found $version"
}

# The machine's limits that many nodes and servers on one machine meet, and what they are raised to. They count all
# processes of a user together, so that no box can have its own. Without the first, a containerd or kubelet starts
# without its watchers and stays useless.
LIMITS=(fs.inotify.max_user_instances:8192 fs.inotify.max_user_watches:524288 fs.aio-max-nr:1048576)

# raise_limits raises those that are lower. They stay raised: another cluster may need them.
raise_limits() {
    local pair file
    for pair in "${LIMITS[@]}"; do
        file=/proc/sys/$(tr . / <<< "${pair%%:*}")
        if [ -e "$file" ] && [ "$(< "$file")" -lt "${pair#*:}" ]; then
            echo "${pair#*:}" > "$file" || die "cannot raise ${pair%%:*} to ${pair#*:}"
        fi
    done
}
