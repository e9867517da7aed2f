-- Health of ShardCluster, ShardRange and MySQLPair for Argo CD, from the three kstatus conditions and observedGeneration.
-- In the ConfigMap argocd-cm, once for each kind:
--
--   resource.customizations.health.shardwright.dev_ShardCluster: |
--     <this file>
--   resource.customizations.health.shardwright.dev_ShardRange: |
--     <this file>
--   resource.customizations.health.shardwright.dev_MySQLPair: |
--     <this file>
--
-- `make check` runs it on sample objects (hack/check_argocd_health.lua).
local hs = {}

if obj.metadata.deletionTimestamp ~= nil then
  hs.status = "Progressing"
  hs.message = "Being deleted"
  return hs
end

local conditions = {}
if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, c in ipairs(obj.status.conditions) do
    conditions[c.type] = c
  end
end

local function is_true(c)
  return c ~= nil and c.status == "True"
end

local ready = conditions["Ready"]
if ready == nil then
  hs.status = "Progressing"
  hs.message = "Waiting for the operator"
elseif obj.status.observedGeneration ~= obj.metadata.generation then
  hs.status = "Progressing"
  hs.message = "Waiting for the operator to look at the latest change"
elseif obj.spec ~= nil and obj.spec.reconciliation == "Paused" then
  hs.status = "Suspended"
  hs.message = ready.message
elseif is_true(conditions["Stalled"]) then
  hs.status = "Degraded"
  hs.message = conditions["Stalled"].reason .. ": " .. conditions["Stalled"].message
elseif is_true(conditions["Reconciling"]) then
  hs.status = "Progressing"
  hs.message = conditions["Reconciling"].reason .. ": " .. conditions["Reconciling"].message
elseif is_true(ready) then
  hs.status = "Healthy"
  hs.message = ready.message
else
  hs.status = "Progressing"
  hs.message = ready.reason .. ": " .. ready.message
end

return hs
