//! Installing the operator, by its chart.

use crate::settings::{Settings, split_image};
use crate::shell;
use crate::wait::{self, Seen};
use crate::world::World;
use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);

impl World {
    /// Installs the chart, or upgrades it, and waits until every replica is ready.
    ///
    /// # Errors
    /// When helm fails or the operator does not become ready.
    pub async fn install(&self, image: &str, more: &[&str]) -> Result<()> {
        let (repository, tag) = split_image(image);
        let (repository, tag) = (
            format!("image.repository={repository}"),
            format!("image.tag={tag}"),
        );
        // A tag that was loaded anew since the last run is to be run, not what it meant then.
        let stamp = format!("podAnnotations.e2e-run={}", self.stamp);
        let chart = self.settings.chart.to_string_lossy().into_owned();
        let ns = self.settings.operator_namespace.as_str();
        let mut args = vec![
            "upgrade",
            "--install",
            Settings::RELEASE,
            &chart,
            "--namespace",
            ns,
            "--create-namespace",
            "--set-string",
            &repository,
            "--set-string",
            &tag,
            "--set-string",
            &stamp,
            "--set",
            "image.pullPolicy=IfNotPresent",
        ];
        args.extend(more);
        shell::run(LIMIT, None, "helm", &args).await?;
        self.operator_ready().await
    }

    /// Uninstalls the chart; the CRDs stay.
    ///
    /// # Errors
    /// When helm fails.
    pub async fn uninstall(&self) -> Result<()> {
        let ns = self.settings.operator_namespace.as_str();
        shell::run(
            LIMIT,
            None,
            "helm",
            &["uninstall", Settings::RELEASE, "--namespace", ns, "--wait"],
        )
        .await?;
        Ok(())
    }

    /// The operator's Deployment.
    pub fn operator(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.settings.operator_namespace)
    }

    /// Sets (`=value`) or takes away (`-`) the variable that arms failpoints, and waits until operators with it are ready.
    ///
    /// # Errors
    /// When they are not in time.
    pub async fn operator_failpoints(&self, to: &str) -> Result<()> {
        let deployment = format!("deployment/{}", Settings::RELEASE);
        let variable = format!("{}{to}", shardwright::act::failpoint::VARIABLE);
        let ns = self.settings.operator_namespace.as_str();
        shell::kubectl(&["set", "env", "-n", ns, &deployment, &variable]).await?;
        self.operator_ready().await
    }

    /// Waits until every replica of the operator's present template is ready and no other Pod is left.
    ///
    /// # Errors
    /// When they are not in time.
    pub async fn operator_ready(&self) -> Result<()> {
        wait::until("the operator to be ready", LIMIT, || async {
            let d = self.operator().get(Settings::RELEASE).await?;
            let wanted = d.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1);
            let s = d.status.clone().unwrap_or_default();
            let good = s.observed_generation == d.metadata.generation
                && s.updated_replicas.unwrap_or(0) == wanted
                && s.ready_replicas.unwrap_or(0) == wanted
                && s.replicas.unwrap_or(0) == wanted;
            Ok(Seen::when(good, || format!("{s:?}")))
        })
        .await
    }

    /// Sets the number of operators and waits until it is so.
    ///
    /// # Errors
    /// When it is not in time.
    pub async fn scale_operator(&self, replicas: i32) -> Result<()> {
        let patch = serde_json::json!({"spec": {"replicas": replicas}});
        self.operator()
            .patch(Settings::RELEASE, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        self.operator_ready().await?;
        wait::until("the operator's other Pods to be gone", LIMIT, || async {
            let n = self.operator_pods().await?.len();
            Ok(Seen::when(i32::try_from(n)? == replicas, || format!("{n} Pods")))
        })
        .await
    }
}
