-- Runs docs/argocd-health.lua on sample objects: lua5.4 hack/check_argocd_health.lua
local file = assert(io.open("docs/argocd-health.lua"))
local source = file:read("a")
file:close()

local function object(ready, reconciling, stalled, more)
  local function condition(type_, status)
    return { type = type_, status = status, reason = "Because", message = type_ .. " is " .. status }
  end
  local o = {
    metadata = { name = "main", generation = 2 },
    spec = {},
    status = {
      observedGeneration = 2,
      conditions = {
        condition("Accepted", "True"),
        condition("Ready", ready),
        condition("Reconciling", reconciling),
        condition("Stalled", stalled),
      },
    },
  }
  if more ~= nil then
    more(o)
  end
  return o
end

local cases = {
  { "a new object", { metadata = { generation = 1 }, spec = {} }, "Progressing" },
  { "a status without conditions", { metadata = { generation = 1 }, spec = {}, status = {} }, "Progressing" },
  { "ready", object("True", "False", "False"), "Healthy" },
  { "being worked on", object("False", "True", "False"), "Progressing" },
  { "stalled", object("False", "False", "True"), "Degraded" },
  { "not ready, nothing else said", object("False", "False", "False"), "Progressing" },
  { "unknown", object("Unknown", "False", "False"), "Progressing" },
  { "ready, of an older generation", object("True", "False", "False", function(o) o.metadata.generation = 3 end), "Progressing" },
  { "stalled, of an older generation", object("False", "False", "True", function(o) o.metadata.generation = 3 end), "Progressing" },
  { "being deleted", object("True", "False", "False", function(o) o.metadata.deletionTimestamp = "2026-01-01T00:00:00Z" end), "Progressing" },
  { "paused", object("True", "False", "False", function(o) o.spec.reconciliation = "Paused" end), "Suspended" },
}

local failed = 0
for _, case in ipairs(cases) do
  local name, obj, want = case[1], case[2], case[3]
  -- Argo CD gives the script `obj` and few libraries.
  local script = assert(load(source, "argocd-health.lua", "t", { obj = obj, ipairs = ipairs, pairs = pairs }))
  local got = script()
  if got.status ~= want or type(got.message) ~= "string" then
    failed = failed + 1
    io.stderr:write(string.format("%s: %s instead of %s (%s)\n", name, got.status, want, tostring(got.message)))
  end
end
print(#cases .. " objects, " .. failed .. " wrong")
os.exit(failed == 0)
