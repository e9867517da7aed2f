# shellcheck shell=bash
# Keys, tokens and kubeconfigs of one cluster, made new at each up.

# credentials_make writes all of them. Elliptic keys, because they cost no time to make.
credentials_make() {
    local pki=$STATE/pki node
    mkdir -p "$pki"
    (
        cd "$pki" || exit 1
        key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }
        key ca.key
        openssl req -x509 -new -key ca.key -subj "/CN=$CLUSTER" -days 365 -out ca.crt
        key sa.key
        certificate apiserver "/CN=kube-apiserver" serverAuth \
            "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,DNS:localhost,IP:127.0.0.1,IP:10.96.0.1,IP:10.250.0.1"
        certificate kubelet-client "/O=system:masters/CN=kube-apiserver-kubelet-client" clientAuth
    )
    : > "$STATE/tokens.csv"
    credential admin admin system:masters
    credential controller-manager system:kube-controller-manager
    credential scheduler system:kube-scheduler
    credential proxy system:kube-proxy
    credential dns shardwright-test:dns
    credential volumes shardwright-test:local-volumes
    for node in $(node_names); do
        credential "$node" "system:node:$node" system:nodes
    done
}

# certificate NAME SUBJECT USAGE [SUBJECT-ALT-NAMES], signed by the cluster's authority, in the current folder.
certificate() {
    local name=$1 subject=$2 usage=$3 names=${4:-}
    openssl ecparam -name prime256v1 -genkey -noout -out "$name.key"
    {
        echo "extendedKeyUsage=$usage"
        [ -z "$names" ] || echo "subjectAltName=$names"
    } > "$name.ext"
    openssl req -new -key "$name.key" -subj "$subject" |
        openssl x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -extfile "$name.ext" -out "$name.crt" \
            2> /dev/null
}

# credential NAME USER [GROUP] adds a token for a user and writes it as NAME.token and NAME.kubeconfig.
credential() {
    local name=$1 user=$2 group=${3:-} token
    token=$(openssl rand -hex 16)
    echo "$token,$user,$user,\"$group\"" >> "$STATE/tokens.csv"
    echo "$token" > "$STATE/$name.token"
    cat > "$STATE/$name.kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters:
- name: $CLUSTER
  cluster:
    server: https://10.250.0.1:6443
    certificate-authority-data: $(base64 -w 0 "$STATE/pki/ca.crt")
users:
- name: $user
  user: {token: $token}
contexts:
- name: $CLUSTER
  context: {cluster: $CLUSTER, user: "$user"}
current-context: $CLUSTER
YAML
}
