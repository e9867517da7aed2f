//! The cluster under test: a client for its API, and what the run was told.

use crate::reach::Forwards;
use crate::settings::Settings;
use anyhow::{Context as _, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Shared by everything in a run.
#[derive(Clone)]
pub struct World {
    /// For the Kubernetes API, with an administrator's rights.
    pub client: Client,
    /// What the run was told.
    pub settings: Arc<Settings>,
    /// Different in each run.
    pub stamp: u64,
    /// Ways to Pods.
    pub forwards: Forwards,
}

/// Label on every namespace that a run makes.
pub const MADE_BY: &str = "shardwright-e2e";

impl World {
    /// Connects by KUBECONFIG.
    ///
    /// # Errors
    /// When there is no kubeconfig or the API server does not answer.
    pub async fn connect(settings: Settings) -> Result<Self> {
        let config = kube::Config::infer().await.context("find a kubeconfig")?;
        let client = Client::try_from(config)?;
        let version = client.apiserver_version().await.context("reach the API server")?;
        eprintln!("Kubernetes {}", version.git_version);
        Ok(Self {
            client,
            settings: Arc::new(settings),
            stamp: crate::dice::Dice::seed_now(),
            forwards: Forwards::default(),
        })
    }

    /// Makes a namespace that enforces the restricted Pod Security Standard.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn make_namespace(&self, name: &str) -> Result<()> {
        let labels = BTreeMap::from([
            (
                "pod-security.kubernetes.io/enforce".to_owned(),
                "restricted".to_owned(),
            ),
            ("app.kubernetes.io/managed-by".to_owned(), MADE_BY.to_owned()),
        ]);
        let ns = Namespace {
            metadata: ObjectMeta {
                name: Some(name.into()),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        self.namespaces()
            .create(&PostParams::default(), &ns)
            .await
            .with_context(|| format!("make namespace {name}"))?;
        Ok(())
    }

    /// Starts the deletion of a namespace; it ends by itself.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn delete_namespace(&self, name: &str) -> Result<()> {
        match self.namespaces().delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(s)) if s.is_not_found() => Ok(()),
            other => Ok(other.map(|_| ())?),
        }
    }

    /// A client that gives the first answer, whatever it is.
    ///
    /// # Errors
    /// When there is no kubeconfig.
    pub async fn client_without_retries(&self) -> Result<Client> {
        let mut config = kube::Config::infer().await?;
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    /// All namespaces.
    pub fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    /// The operator's Pods.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn operator_pods(&self) -> Result<Vec<Pod>> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.settings.operator_namespace);
        let selector = "app.kubernetes.io/name=shardwright,app.kubernetes.io/component=operator";
        Ok(api.list(&ListParams::default().labels(selector)).await?.items)
    }

    /// The operator's Pod that leads, by the Lease.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn leader(&self) -> Result<Option<Pod>> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.settings.operator_namespace);
        let lease = leases.get(Settings::RELEASE).await?;
        let holder = lease.spec.and_then(|s| s.holder_identity).unwrap_or_default();
        let pods = self.operator_pods().await?;
        Ok(pods
            .into_iter()
            .find(|p| !holder.is_empty() && holder.contains(&p.name_any())))
    }

    /// `address:port` of the HTTP server of each operator that is ready, as it is reached from here.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn operator_addresses(&self) -> Result<Vec<String>> {
        let mut all = vec![];
        for pod in self.operator_pods().await? {
            if pod.metadata.deletion_timestamp.is_none() {
                let (address, port) = self.reach(&pod, 8080).await?;
                all.push(format!("{address}:{port}"));
            }
        }
        Ok(all)
    }
}
