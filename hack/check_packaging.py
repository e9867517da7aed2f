#!/usr/bin/env python3
"""What the chart and the kustomization make, compared with each other and with the rules they have to keep.

check_packaging.py DIR, where DIR holds default.yaml, namespaced.yaml, everything.yaml, minimal.yaml (helm template),
kustomize.yaml (kustomize build config/default), prometheus.yaml (config/prometheus) and crds/ (the generated ones).
"""

import pathlib
import re
import sys

import yaml

PROBLEMS = []
# What belongs to no namespace: no Role can grant it, and the operator does without where it is restricted to namespaces.
CLUSTER_SCOPED = {"nodes", "persistentvolumes", "storageclasses"}


def expect(true, what):
    if not true:
        PROBLEMS.append(what)


def load(path):
    return [d for d in yaml.safe_load_all(path.read_text()) if d]


def of_kind(objects, *kinds):
    return {o["metadata"]["name"]: o for o in objects if o["kind"] in kinds}


def canonical(rules):
    """One entry for each group, resource, name and verb, so that order and grouping do not matter."""
    return {
        (group, resource, name, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [None])
        for verb in rule["verbs"]
    }


def restricted(where, spec):
    """The restricted Pod Security Standard, and what we ask for beyond it."""
    pod = spec.get("securityContext", {})
    expect(pod.get("runAsNonRoot") is True, f"{where}: runAsNonRoot")
    expect(pod.get("runAsUser") == 65532, f"{where}: runAsUser 65532")
    expect(pod.get("seccompProfile", {}).get("type") == "RuntimeDefault", f"{where}: seccomp")
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        expect(not spec.get(key), f"{where}: {key}")
    expect(not spec.get("volumes"), f"{where}: no volumes are needed")
    for container in spec["containers"]:
        context = container.get("securityContext", {})
        expect(context.get("allowPrivilegeEscalation") is False, f"{where}: allowPrivilegeEscalation")
        expect(context.get("readOnlyRootFilesystem") is True, f"{where}: readOnlyRootFilesystem")
        expect(context.get("capabilities", {}).get("drop") == ["ALL"], f"{where}: capabilities")
        expect("privileged" not in context, f"{where}: privileged")


def without_selectors(value):
    """Label selectors and labels carry the release's name in the chart only."""
    if isinstance(value, dict):
        return {k: without_selectors(v) for k, v in value.items() if k not in ("labelSelector", "labels")}
    if isinstance(value, list):
        return [without_selectors(v) for v in value]
    return value


def same(at, x, y):
    """Complains of each place where the chart's x differs from kustomize's y."""
    if isinstance(x, dict) and isinstance(y, dict):
        for key in sorted(x.keys() | y.keys()):
            same(f"{at}.{key}", x.get(key), y.get(key))
    elif isinstance(x, list) and isinstance(y, list) and len(x) == len(y):
        for i, (a, b) in enumerate(zip(x, y)):
            same(f"{at}[{i}]", a, b)
    else:
        expect(x == y, f"{at}: chart {x}, kustomize {y}")


def roles(objects):
    return {
        name: canonical(o["rules"]) for name, o in of_kind(objects, "ClusterRole", "Role").items()
    }


def selectors_match(where, objects):
    """Every selector finds the Deployment's Pods."""
    for deployment in of_kind(objects, "Deployment").values():
        labels = deployment["spec"]["template"]["metadata"]["labels"].items()
        expect(deployment["spec"]["selector"]["matchLabels"].items() <= labels, f"{where}: Deployment's selector")
        for service in of_kind(objects, "Service").values():
            expect(service["spec"]["selector"].items() <= labels, f"{where}: Service's selector")
        for kind, path in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
            for o in of_kind(objects, kind).values():
                expect(o["spec"][path]["matchLabels"].items() <= labels, f"{where}: {kind}'s selector")


def bindings_match(where, objects):
    """Every binding names a role and an account of the same installation."""
    accounts = {(o["metadata"]["namespace"], n) for n, o in of_kind(objects, "ServiceAccount").items()}
    for kind in ("Role", "ClusterRole"):
        have = of_kind(objects, kind)
        for name, binding in of_kind(objects, f"{kind}Binding").items():
            expect(binding["roleRef"]["name"] in have, f"{where}: {name} names no role")
            for s in binding["subjects"]:
                expect((s["namespace"], s["name"]) in accounts, f"{where}: {name} names no account")


def main(directory):
    files = {p.stem: load(p) for p in sorted(directory.glob("*.yaml"))}
    crds = {o["metadata"]["name"]: o for p in sorted((directory / "crds").glob("*.yaml")) for o in load(p)}
    chart, kustomize = files["default"], files["kustomize"]

    for where, objects in files.items():
        keys = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]
        expect(len(keys) == len(set(keys)), f"{where}: an object is there twice")
        for o in of_kind(objects, "Deployment").values():
            restricted(f"{where}: Deployment", o["spec"]["template"]["spec"])
        for o in of_kind(objects, "Pod").values():
            restricted(f"{where}: Pod {o['metadata']['name']}", o["spec"])
        for name, o in of_kind(objects, "ClusterRole", "Role").items():
            for entry in canonical(o["rules"]):
                expect("*" not in entry, f"{where}: {name} has a *: {entry}")
        for entry in (e for r in roles(objects).values() for e in r if e[1] == "secrets"):
            expect(entry[3] in ("get", "create", "patch"), f"{where}: secrets: {entry[3]}")
        selectors_match(where, objects)
        if where != "minimal":
            bindings_match(where, objects)

    # The same rights, whichever way one installs.
    a, b = roles(chart), roles(kustomize)
    expect(a.keys() == b.keys(), f"roles differ: chart {sorted(a)}, kustomize {sorted(b)}")
    for name in a.keys() & b.keys():
        expect(a[name] == b[name], f"{name}: chart and kustomize differ in {sorted(map(str, a[name] ^ b[name]))}")
    expect(len(a) == 11, f"{len(a)} roles instead of 11")

    # The same Pods and policies.
    for kind in ("Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"):
        x, y = of_kind(chart, kind), of_kind(kustomize, kind)
        expect(x.keys() == y.keys() == {"shardwright"}, f"{kind}: {sorted(x)} and {sorted(y)}")
        x, y = (dict(without_selectors(o["shardwright"]["spec"])) for o in (x, y))
        for spec in (x, y):
            for key in ("selector", "podSelector"):
                spec.pop(key, None)
        same(f"{kind}.spec", x, y)

    # The optional objects for Prometheus.
    x, y = files["everything"], files["prometheus"]
    monitor, rule = (of_kind(x, k)["sw"]["spec"] for k in ("ServiceMonitor", "PrometheusRule"))
    same("PrometheusRule.spec", rule, of_kind(y, "PrometheusRule")["shardwright"]["spec"])
    endpoint = of_kind(y, "ServiceMonitor")["shardwright"]["spec"]["endpoints"][0]
    same("ServiceMonitor.spec.endpoints[0].path", monitor["endpoints"][0]["path"], endpoint["path"])

    # One version everywhere.
    cargo = re.search(r'^version = "(.*)"$', pathlib.Path("Cargo.toml").read_text(), re.M)[1]
    about = yaml.safe_load(pathlib.Path("charts/shardwright/Chart.yaml").read_text())
    for key in ("version", "appVersion"):
        expect(about[key] == cargo, f"Chart.yaml: {key} is {about[key]}, Cargo.toml says {cargo}")

    # The generated CRDs, unchanged but for the annotation that keeps them.
    expect(len(crds) == 3, f"{len(crds)} CRDs instead of 3")
    for where in ("default", "everything", "kustomize"):
        have = of_kind(files[where], "CustomResourceDefinition")
        expect(have.keys() == crds.keys(), f"{where}: CRDs {sorted(have)}")
        for name, crd in have.items():
            annotations = crd["metadata"].pop("annotations", {})
            keep = annotations.pop("helm.sh/resource-policy", None)
            expect((keep == "keep") == (where == "default"), f"{where}: {name} keep: {keep}")
            if where == "kustomize":
                crd["metadata"].pop("labels", None)
            if not annotations:
                expect(crd["spec"] == crds[name]["spec"], f"{where}: {name} is not the generated one")
    for where in ("namespaced", "minimal"):
        expect(not of_kind(files[where], "CustomResourceDefinition"), f"{where}: CRDs are there")

    # Restricted to namespaces: the same rules in each of them, but for what belongs to none, and nothing for the whole cluster.
    namespaced = files["namespaced"]
    expect(not of_kind(namespaced, "ClusterRole", "ClusterRoleBinding"), "namespaced: a ClusterRole is there")
    got = {
        o["metadata"]["namespace"]: canonical(o["rules"])
        for o in namespaced
        if o["kind"] == "Role" and o["metadata"]["name"] == "shardwright"
    }
    everywhere = {e for e in a["shardwright"] if e[1] not in CLUSTER_SCOPED}
    expect(got == {n: everywhere for n in ("team-a", "team-b")}, "namespaced: the Roles differ from the ClusterRole")
    env = of_kind(namespaced, "Deployment")["shardwright"]["spec"]["template"]["spec"]["containers"][0]["env"]
    expect({"name": "WATCH_NAMESPACES", "value": "team-a,team-b"} in env, "namespaced: WATCH_NAMESPACES")

    for problem in PROBLEMS:
        print(f"error: {problem}", file=sys.stderr)
    print(f"{len(files)} renderings, {sum(map(len, files.values()))} objects, {len(PROBLEMS)} problems")
    return 1 if PROBLEMS else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
