{{/*
What the operator may do in a namespace it looks after. config/rbac/role.yaml says the same; `make check` compares them.
No rule has a "*".
*/}}
{{- define "shardwright.rules" -}}
# Our own kinds. `create` is for the pairs and ranges that a layout seeds, `patch` and `update` for their finalizers.
- apiGroups: [shardwright.dev]
  resources: [shardclusters]
  verbs: [get, list, watch, update, patch]
- apiGroups: [shardwright.dev]
  resources: [shardranges, mysqlpairs]
  verbs: [get, list, watch, create, update, patch]
# The records (who serves which shard, which server is active) are kept in status, changed by compare-and-swap.
- apiGroups: [shardwright.dev]
  resources: [shardclusters/status, shardranges/status, mysqlpairs/status]
  verbs: [get, update, patch]
# Children carry ownerReferences that block the owner's deletion; some clusters ask for this right before allowing that.
- apiGroups: [shardwright.dev]
  resources: [shardclusters/finalizers, shardranges/finalizers, mysqlpairs/finalizers]
  verbs: [update]
# The two servers of a pair.
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
# A pair's Services.
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
# my.cnf, and the published shard map, which is replaced as a whole.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, update, patch, delete]
# Passwords and certificates, by name. No list, no watch: other people's Secrets are not looked through. No delete:
# credentials outlive the cluster as its volumes do.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch, update]
# `delete` rolls a server after its spec has changed, the passive one first.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
# Only looked at, to say why a server does not start. Never deleted: they are the data.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch]
# A namespace that is being deleted is not held up by our finalizers.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
# A drained node takes at most one server of a pair.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
# Only applications, the other server and the operator reach mysqld.
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
# Where a pair's active and passive Services lead to.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch, create, patch, delete]
# What a person wants to know.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}
