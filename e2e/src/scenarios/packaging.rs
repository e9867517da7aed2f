//! Rights, the chart and the kustomizations.

use crate::blueprint::{self as bp, PAIR, RANGE};
use crate::fleet::Fleet;
use crate::scenario;
use crate::scenario::{Fixture, Group};
use crate::settings::Settings;
use crate::shell;
use crate::wait::{self, BRING_UP, REPAIR, SOON, Seen};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::ResourceExt as _;
use kube::api::ListParams;
use shardwright::api::MySQLPair;
use std::path::Path;
use std::time::Duration;

/// The groups.
pub fn groups() -> Vec<Group> {
    vec![
        Group {
            name: "rights",
            alone: false,
            fixture: Fixture::Empty,
            scenarios: vec![
                scenario!(
                    Short,
                    "rbac",
                    rbac,
                    "the operator runs under its chart's ServiceAccount, which may no more than it needs",
                    Operator
                ),
                scenario!(
                    Short,
                    "restricted-pods",
                    restricted,
                    "the operator's own Pods pass the restricted standard, a Pod without those settings does not",
                    Operator
                ),
                scenario!(
                    Short,
                    "dry-run",
                    dry_run,
                    "chart, kustomizations and samples pass a dry run on the server"
                ),
            ],
        },
        Group {
            name: "packaging",
            alone: true,
            fixture: Fixture::Empty,
            scenarios: vec![
                scenario!(
                    Full,
                    "watch-namespaces",
                    watch_namespaces,
                    "an operator for one namespace looks after that one and has no rights elsewhere",
                    Operator
                ),
                scenario!(
                    Short,
                    "kustomize",
                    kustomize,
                    "installed by kustomize, a fleet comes up",
                    Operator
                ),
            ],
        },
    ]
}

fn account(f: &Fleet) -> String {
    format!(
        "system:serviceaccount:{}:{}",
        f.world.settings.operator_namespace,
        Settings::RELEASE
    )
}

/// What `kubectl auth can-i` answers for the operator.
async fn may(f: &Fleet, args: &[&str]) -> Result<bool> {
    let who = account(f);
    let mut all = vec!["auth", "can-i", "--as", &who, "-q"];
    all.extend(args);
    Ok(shell::say(Duration::from_secs(30), None, "kubectl", &all)
        .await?
        .ok)
}

async fn rbac(f: &Fleet) -> Result<()> {
    let pods = f.world.operator_pods().await?;
    ensure!(!pods.is_empty(), "there is no operator");
    for p in &pods {
        let spec = p.spec.as_ref().context("no spec")?;
        ensure!(
            spec.service_account_name.as_deref() == Some(Settings::RELEASE),
            "{} runs as {:?}",
            p.name_any(),
            spec.service_account_name
        );
    }
    let ns = f.ns.as_str();
    for allowed in [
        ["get", "secrets", "-n", ns],
        ["create", "secrets", "-n", ns],
        ["patch", "shardclusters.shardwright.dev/status", "-n", ns],
        ["create", "statefulsets.apps", "-n", ns],
        ["patch", "persistentvolumeclaims", "-n", ns],
        ["delete", "persistentvolumeclaims", "-n", ns],
        ["watch", "nodes", "-n", ns],
        ["patch", "persistentvolumes", "-n", ns],
        ["get", "storageclasses.storage.k8s.io", "-n", ns],
    ] {
        let allowed = if allowed[1].contains("/status") {
            vec![
                "patch",
                "shardclusters.shardwright.dev",
                "--subresource=status",
                "-n",
                ns,
            ]
        } else {
            allowed.to_vec()
        };
        ensure!(may(f, &allowed).await?, "the operator may not {allowed:?}");
    }
    for forbidden in [
        vec!["list", "secrets", "-n", ns],
        vec!["watch", "secrets", "-n", ns],
        vec!["list", "secrets", "-A"],
        vec!["delete", "secrets", "-n", ns],
        vec!["create", "pods", "-n", ns],
        vec!["create", "pods", "--subresource=exec", "-n", ns],
        vec!["create", "persistentvolumeclaims", "-n", ns],
        vec!["deletecollection", "persistentvolumeclaims", "-n", ns],
        vec!["delete", "persistentvolumes"],
        vec!["patch", "nodes"],
        vec!["patch", "pods", "-n", ns],
        vec!["deletecollection", "pods", "-n", ns],
        vec!["delete", "shardclusters.shardwright.dev", "-n", ns],
        vec!["delete", "mysqlpairs.shardwright.dev", "-n", ns],
        vec!["delete", "namespaces"],
        vec!["list", "persistentvolumes"],
        vec!["create", "clusterrolebindings.rbac.authorization.k8s.io"],
        vec!["escalate", "roles.rbac.authorization.k8s.io", "-n", ns],
        vec!["impersonate", "users"],
        vec!["patch", "customresourcedefinitions.apiextensions.k8s.io"],
        vec!["update", "leases.coordination.k8s.io", "-n", ns],
        vec!["*", "*"],
    ] {
        ensure!(!may(f, &forbidden).await?, "the operator may {forbidden:?}");
    }
    Ok(())
}

async fn restricted(f: &Fleet) -> Result<()> {
    let pods = f.world.operator_pods().await?;
    let mut pod = pods.into_iter().next().context("there is no operator")?;
    let spec = pod.spec.as_mut().context("no spec")?;
    spec.node_name = None;
    spec.service_account_name = None;
    spec.service_account = None;
    let clean = kube::api::ObjectMeta {
        name: Some("probe".into()),
        ..Default::default()
    };
    let dry = kube::api::PostParams {
        dry_run: true,
        ..Default::default()
    };
    let bare = k8s_openapi::api::core::v1::Pod {
        metadata: clean.clone(),
        spec: Some(k8s_openapi::api::core::v1::PodSpec {
            containers: vec![k8s_openapi::api::core::v1::Container {
                name: "c".into(),
                image: Some("i".into()),
                ..Default::default()
            }],
            ..Default::default()
        }),
        status: None,
    };
    let api = f.api::<k8s_openapi::api::core::v1::Pod>();
    let refused = api.create(&dry, &bare).await;
    ensure!(
        matches!(&refused, Err(kube::Error::Api(s)) if s.is_forbidden() && s.message.contains("restricted")),
        "the namespace does not enforce the standard: {refused:?}"
    );
    pod.metadata = clean;
    pod.status = None;
    if let Some(spec) = pod.spec.as_mut() {
        // A token's volume belongs to the Pod it was made for.
        let is_token = |name: &str| name.starts_with("kube-api-access");
        spec.volumes
            .iter_mut()
            .for_each(|v| v.retain(|v| !is_token(&v.name)));
        for c in &mut spec.containers {
            c.volume_mounts
                .iter_mut()
                .for_each(|m| m.retain(|m| !is_token(&m.name)));
        }
    }
    api.create(&dry, &pod)
        .await
        .context("the operator's Pod under the restricted standard")?;
    Ok(())
}

async fn dry_run(f: &Fleet) -> Result<()> {
    let (chart, config) = (text(&f.world.settings.chart), text(&f.world.settings.config));
    let ns = f.ns.as_str();
    let minute = Duration::from_secs(60);
    let version = f.world.client.apiserver_version().await?.git_version;
    let args = [
        "template",
        "dry",
        &chart,
        "--namespace",
        ns,
        "--kube-version",
        &version,
    ];
    let rendered = shell::run(minute, None, "helm", &args).await?;
    apply_dry(&rendered, ns).await.context("the chart")?;
    let all = ["crd", "rbac", "manager", "default"];
    for part in all {
        let folder = format!("{config}/{part}");
        if Path::new(&folder).join("kustomization.yaml").exists() {
            let rendered = shell::kubectl(&["kustomize", &folder]).await?;
            let here = rendered.replace("namespace: shardwright-system", &format!("namespace: {ns}"));
            apply_dry(&here, ns).await.context(folder)?;
        }
    }
    let samples = format!("{config}/samples");
    let mut seen = 0;
    for entry in std::fs::read_dir(&samples).context(samples.clone())? {
        let path = entry?.path();
        let rendered = if path.join("kustomization.yaml").exists() {
            shell::kubectl(&["kustomize", &text(&path)]).await?
        } else if path.extension().is_some_and(|e| e == "yaml") && !path.ends_with("kustomization.yaml") {
            std::fs::read_to_string(&path)?
        } else {
            continue;
        };
        apply_dry(&rendered, ns)
            .await
            .with_context(|| path.display().to_string())?;
        seen += 1;
    }
    ensure!(seen > 0, "there are no samples in {samples}");
    Ok(())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

async fn apply_dry(yaml: &str, ns: &str) -> Result<()> {
    let args = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=e2e-dry",
        "--dry-run=server",
        "-n",
        ns,
        "-f",
        "-",
    ];
    shell::kubectl_with(yaml, &args).await.map(|_| ())
}

async fn small_fleet(f: &Fleet) -> Result<()> {
    bp::small(f).await?;
    f.healthy(PAIR).await?;
    f.intact().await
}

async fn remove(f: &Fleet) -> Result<()> {
    f.delete::<shardwright::api::ShardCluster>(&f.cluster).await?;
    f.delete::<shardwright::api::ShardRange>(RANGE).await?;
    f.delete::<MySQLPair>(PAIR).await?;
    f.gone::<shardwright::api::ShardRange>(RANGE, REPAIR).await?;
    f.gone::<MySQLPair>(PAIR, REPAIR).await?;
    f.gone::<shardwright::api::ShardCluster>(&f.cluster, REPAIR).await
}

async fn watch_namespaces(f: &Fleet) -> Result<()> {
    let outside = format!("{}-out", f.ns);
    f.world.make_namespace(&outside).await?;
    let result = one_namespace(f, &outside).await;
    f.world.delete_namespace(&outside).await?;
    // However it ended, the next scenarios need an operator for all namespaces.
    f.world.install(&f.world.settings.operator_image, &[]).await?;
    result
}

async fn one_namespace(f: &Fleet, outside: &str) -> Result<()> {
    let only = format!("watchNamespaces={{{}}}", f.ns);
    f.world
        .install(&f.world.settings.operator_image, &["--set", &only])
        .await?;
    ensure!(
        may(f, &["get", "secrets", "-n", &f.ns]).await?,
        "no rights in its namespace"
    );
    for what in ["secrets", "pods", "shardclusters.shardwright.dev"] {
        ensure!(
            !may(f, &["get", what, "-n", outside]).await?,
            "may get {what} outside"
        );
    }
    let stranger = Fleet::new(f.world.clone(), outside.to_owned(), "c");
    stranger.apply(&bp::cluster(&stranger)).await?;
    stranger.apply(&bp::pair(&stranger, PAIR)).await?;
    small_fleet(f).await?;
    let made = stranger
        .api::<StatefulSet>()
        .list(&ListParams::default())
        .await?
        .items
        .len();
    ensure!(made == 0, "it made something outside");
    let p: MySQLPair = stranger.get(PAIR).await?;
    ensure!(
        p.status.is_none() && p.finalizers().is_empty(),
        "it touched a pair outside"
    );
    remove(f).await
}

async fn kustomize(f: &Fleet) -> Result<()> {
    let rendered = kustomized(f).await?;
    f.world.uninstall().await?;
    let result = async {
        shell::kubectl_with(
            &rendered,
            &["apply", "--server-side", "--force-conflicts", "-f", "-"],
        )
        .await?;
        wait::until("the operator to be ready", BRING_UP, || async {
            let api = f.world.operator();
            let all = api.list(&ListParams::default()).await?;
            let ready = all.items.iter().any(|d| {
                let s = d.status.clone().unwrap_or_default();
                s.ready_replicas.unwrap_or(0) > 0 && s.ready_replicas == s.replicas
            });
            Ok(Seen::when(ready, || format!("{} Deployments", all.items.len())))
        })
        .await?;
        small_fleet(f).await?;
        remove(f).await
    }
    .await;
    // The CRDs are kept: deleting them would take every fleet of the run along.
    let without_crds = documents_but(&rendered, &["CustomResourceDefinition", "Namespace"]);
    shell::kubectl_with(
        &without_crds,
        &["delete", "--ignore-not-found", "--wait=true", "-f", "-"],
    )
    .await?;
    wait::until("its Pods to be gone", SOON, || async {
        let n = f.world.operator_pods().await?.len();
        Ok(Seen::when(n == 0, || format!("{n} Pods")))
    })
    .await?;
    f.world
        .install(&f.world.settings.operator_image, &["--take-ownership"])
        .await?;
    result
}

/// The default kustomization, with the image of this run.
async fn kustomized(f: &Fleet) -> Result<String> {
    let folder = format!("{}/default", text(&f.world.settings.config));
    let rendered = shell::kubectl(&["kustomize", &folder]).await?;
    let image = &f.world.settings.operator_image;
    let mut seen = 0;
    let lines: Vec<String> = rendered
        .lines()
        .map(|line| match line.split_once("image:") {
            // With a value: the schemas have a property of that name.
            Some((before, value))
                if before.trim_start_matches('-').trim().is_empty() && !value.trim().is_empty() =>
            {
                seen += 1;
                format!("{before}image: {image}")
            }
            _ => line.to_owned(),
        })
        .collect();
    ensure!(seen == 1, "{seen} images in {folder}");
    Ok(lines.join("\n"))
}

/// The YAML documents of other kinds.
fn documents_but(yaml: &str, kinds: &[&str]) -> String {
    yaml.split("\n---\n")
        .filter(|d| !kinds.iter().any(|k| d.lines().any(|l| l == format!("kind: {k}"))))
        .collect::<Vec<_>>()
        .join("\n---\n")
}

#[cfg(test)]
mod tests {
    use super::documents_but;

    #[test]
    fn documents_are_left_out_by_kind() {
        assert_eq!(
            documents_but("kind: A\nx: 1\n---\nkind: B\n---\nkind: C", &["B"]),
            "kind: A\nx: 1\n---\nkind: C"
        );
    }
}
