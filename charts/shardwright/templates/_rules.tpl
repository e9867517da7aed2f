{{/*
What the operator may do in a namespace it looks after. config/rbac/role.yaml says the same; `make check` compares them.
No rule has a "*".
*/}}
{{- define "shardwright.rules" -}}
# Our own kinds. `create` is for the pairs and ranges that a layout seeds, `patch` for their finalizers. Clusters have none.
- apiGroups: [shardwright.dev]
  resources: [shardclusters]
  verbs: [get, list, watch]
- apiGroups: [shardwright.dev]
  resources: [shardranges, mysqlpairs]
  verbs: [get, list, watch, create, patch]
# The records (who serves which shard, which server is active) are kept in status, changed by compare-and-swap.
- apiGroups: [shardwright.dev]
  resources: [shardclusters/status, shardranges/status, mysqlpairs/status]
  verbs: [patch]
# Children carry ownerReferences that block the owner's deletion: no call of ours needs this right, but a cluster with the admission
# plugin OwnerReferencesPermissionEnforcement asks for it. Nothing is owned by a range.
- apiGroups: [shardwright.dev]
  resources: [shardclusters/finalizers, mysqlpairs/finalizers]
  verbs: [update]
# Children are made and mended by server-side apply, which is `patch`, and `create` where there is nothing yet. None is deleted by the
# operator: they go with their owner.
# The two servers of a pair.
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch]
# A pair's Services.
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch]
# my.cnf is applied; the published shard map is replaced as a whole (`update`), and deleted only to be made anew when somebody has
# made it immutable.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, update, patch, delete]
# Passwords, certificates and saved errant transactions, by name. No list, no watch: other people's Secrets are not looked through. No delete:
# credentials outlive the cluster as its volumes do.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
# `delete` rolls a server after its spec has changed, the passive one first; and lets go of one whose node is gone.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
# The readiness gate shardwright.dev/InSync.
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
# Looked at: to say why a server does not start, and which pairs once had data when the record is lost. `patch` lets a volume grow. `delete`
# is for one case: a passive server that is no member of the record, on a node or a volume that is gone for longer than
# `replacement.afterSeconds`; its volume is kept.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, patch, delete]
# A namespace that is being deleted is not held up by our finalizers.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
# A drained node takes at most one server of a pair.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
# Only applications, the other server and the operator reach mysqld.
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch]
# Where a pair's active and passive Services lead to.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch, create, patch]
# What a person wants to know.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/*
What belongs to no namespace. A Role can't grant it: with `watchNamespaces` the operator does without (docs/operations.md says what that
means).
*/}}
{{- define "shardwright.clusterRules" -}}
# Whether a server's node is gone.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
# The volume of a server that is replaced is kept: its reclaim policy becomes `Retain` before its claim is deleted.
- apiGroups: [""]
  resources: [persistentvolumes]
  verbs: [get, patch]
# Whether claims may grow.
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [get]
{{- end -}}
