//! A fleet in a namespace of its own: applying, editing, waiting, and asking its servers.

use crate::published::Map;
use crate::server::{Login, Server};
use crate::wait::{self, Seen};
use crate::world::World;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy, ValidationDirective};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt as _};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use shardwright::api::{MySQLPair, ShardCluster, ShardRange, names};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What the scenarios write as.
const MANAGER: &str = "e2e";

/// Anything namespaced that scenarios handle.
pub trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
{
}
impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
{
}

/// One namespace and the cluster in it.
pub struct Fleet {
    /// The cluster under test.
    pub world: World,
    /// Namespace.
    pub ns: String,
    /// Name of the ShardCluster.
    pub cluster: String,
    /// Rows that were acknowledged.
    pub(crate) ledger: Mutex<Vec<crate::ledger::Entry>>,
    /// What the sampler saw.
    pub sights: crate::sampler::Sights,
    /// Name of the map's ConfigMap, when it is not the default.
    map_name: Mutex<Option<String>>,
    /// What was found out on the way, printed when the scenario fails.
    notes: Mutex<Vec<String>>,
}

/// One condition of an object's status.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Said {
    /// Type.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// CamelCase.
    pub reason: String,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// The generation that it speaks of.
    pub observed_generation: Option<i64>,
}

impl Fleet {
    /// A fleet in the namespace `ns`, which exists.
    pub fn new(world: World, ns: String, cluster: &str) -> Self {
        Self {
            world,
            ns,
            cluster: cluster.into(),
            ledger: Mutex::default(),
            sights: crate::sampler::Sights::default(),
            map_name: Mutex::default(),
            notes: Mutex::default(),
        }
    }

    /// Remembers something for the report of a failure.
    pub fn note(&self, text: impl Into<String>) {
        if let Ok(mut notes) = self.notes.lock() {
            notes.push(text.into());
        }
    }
    /// What was remembered.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().map(|n| n.clone()).unwrap_or_default()
    }

    /// The API for one kind in this namespace.
    pub fn api<K: Object>(&self) -> Api<K> {
        Api::namespaced(self.world.client.clone(), &self.ns)
    }

    /// Applies an object as `kubectl apply --server-side` does.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn apply<K: Object>(&self, object: &K) -> Result<K> {
        let mut params = PatchParams::apply(MANAGER).force();
        params.field_validation = Some(ValidationDirective::Strict);
        let name = object.name_any();
        self.api::<K>()
            .patch(&name, &params, &Patch::Apply(object))
            .await
            .with_context(|| format!("apply {} {name}", K::kind(&())))
    }

    /// Applies what the API has to refuse, as a dry run, and gives its words.
    ///
    /// # Errors
    /// When it was accepted, or the API does not answer.
    pub async fn refused<K: Object>(&self, object: &K) -> Result<String> {
        let mut params = PatchParams::apply(MANAGER).force().dry_run();
        params.field_validation = Some(ValidationDirective::Strict);
        let name = object.name_any();
        match self.api::<K>().patch(&name, &params, &Patch::Apply(object)).await {
            Ok(_) => bail!("{} {name} was accepted and should not have been", K::kind(&())),
            Err(kube::Error::Api(s)) if s.is_invalid() || s.code == 400 => Ok(s.message.clone()),
            Err(e) => Err(e.into()),
        }
    }

    /// Merges `patch` into an object.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn edit<K: Object>(&self, name: &str, patch: Value) -> Result<K> {
        self.api::<K>()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch.clone()))
            .await
            .with_context(|| format!("patch {} {name} by {patch}", K::kind(&())))
    }

    /// Tries an edit that the API has to refuse, and gives its words.
    ///
    /// # Errors
    /// When it was accepted, or the API does not answer.
    pub async fn edit_refused<K: Object>(&self, name: &str, patch: Value) -> Result<String> {
        let params = PatchParams::default().dry_run();
        match self
            .api::<K>()
            .patch(name, &params, &Patch::Merge(patch.clone()))
            .await
        {
            Ok(_) => bail!(
                "{} {name}: {patch} was accepted and should not have been",
                K::kind(&())
            ),
            Err(kube::Error::Api(s)) if s.is_invalid() => Ok(s.message.clone()),
            Err(e) => Err(e.into()),
        }
    }

    /// Reads an object.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn get<K: Object>(&self, name: &str) -> Result<K> {
        self.api::<K>()
            .get(name)
            .await
            .with_context(|| format!("get {} {name}", K::kind(&())))
    }

    /// Reads an object that may not be there.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn get_opt<K: Object>(&self, name: &str) -> Result<Option<K>> {
        Ok(self.api::<K>().get_opt(name).await?)
    }

    /// Starts a deletion; one that is not there counts as deleted.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn delete<K: Object>(&self, name: &str) -> Result<()> {
        self.delete_with::<K>(name, &DeleteParams::background()).await
    }

    /// Starts a deletion that leaves what the object owns.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn delete_orphaning<K: Object>(&self, name: &str) -> Result<()> {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Orphan),
            ..DeleteParams::default()
        };
        self.delete_with::<K>(name, &params).await
    }

    async fn delete_with<K: Object>(&self, name: &str, params: &DeleteParams) -> Result<()> {
        match self.api::<K>().delete(name, params).await {
            Err(kube::Error::Api(s)) if s.is_not_found() => Ok(()),
            other => other
                .map(|_| ())
                .with_context(|| format!("delete {} {name}", K::kind(&()))),
        }
    }

    /// Waits until an object is gone.
    ///
    /// # Errors
    /// When it is still there after `limit`.
    pub async fn gone<K: Object>(&self, name: &str, limit: Duration) -> Result<()> {
        wait::until(&format!("{} {name} to be gone", K::kind(&())), limit, || async {
            let there = self.get_opt::<K>(name).await?;
            Ok(Seen::when(there.is_none(), || {
                let meta = there.as_ref().map(Resource::meta);
                format!(
                    "there, finalizers {:?}, deletion since {:?}, conditions {:?}",
                    meta.and_then(|m| m.finalizers.clone()),
                    meta.and_then(|m| m.deletion_timestamp.clone())
                        .map(|t| t.0.to_string()),
                    there.as_ref().map(conditions)
                )
            }))
        })
        .await
    }

    /// Waits until an object is there again with another UID than `old`.
    ///
    /// # Errors
    /// When it is not after `limit`.
    pub async fn again<K: Object>(&self, name: &str, old: Option<&str>, limit: Duration) -> Result<K> {
        wait::until(
            &format!("{} {name} to be made again", K::kind(&())),
            limit,
            || async {
                let there = self.get_opt::<K>(name).await?;
                Ok(match there {
                    Some(o) if o.meta().uid.as_deref() != old && o.meta().deletion_timestamp.is_none() => {
                        Seen::Yes(o)
                    }
                    Some(_) => Seen::NotYet("the old one is still there".into()),
                    None => Seen::NotYet("not there".into()),
                })
            },
        )
        .await
    }

    /// Waits for a condition with a reason (any, when empty), spoken of the present generation.
    ///
    /// # Errors
    /// When it is not so after `limit`, with the conditions that there were.
    pub async fn condition<K: Object>(
        &self,
        name: &str,
        type_: &str,
        status: &str,
        reason: &str,
        limit: Duration,
    ) -> Result<Said> {
        let what = format!("{} {name} to say {type_}={status} {reason}", K::kind(&()));
        wait::until(&what, limit, || async {
            let o = self.get::<K>(name).await?;
            let all = conditions(&o);
            let found = all.iter().find(|c| {
                c.type_ == type_
                    && c.status == status
                    && (reason.is_empty() || c.reason == reason)
                    && c.observed_generation == o.meta().generation
            });
            Ok(match found {
                Some(c) => Seen::Yes(c.clone()),
                None => Seen::NotYet(format!("generation {:?}: {all:?}", o.meta().generation)),
            })
        })
        .await
    }

    /// Waits for `Ready=True` of the present generation.
    ///
    /// # Errors
    /// When it is not so after `limit`.
    pub async fn ready<K: Object>(&self, name: &str, limit: Duration) -> Result<()> {
        self.condition::<K>(name, "Ready", "True", "", limit)
            .await
            .map(|_| ())
    }

    /// Waits until the cluster and every pair and range of the namespace is Ready for its present generation.
    ///
    /// # Errors
    /// When they are not after `limit`.
    pub async fn all_ready(&self, limit: Duration) -> Result<()> {
        wait::until("everything to be Ready", limit, || async {
            let mut waiting = vec![];
            waiting.extend(not_ready(&self.api::<ShardCluster>()).await?);
            waiting.extend(not_ready(&self.api::<MySQLPair>()).await?);
            waiting.extend(not_ready(&self.api::<ShardRange>()).await?);
            Ok(Seen::when(waiting.is_empty(), || waiting.join("; ")))
        })
        .await
    }

    /// Name of the cluster's shard map's ConfigMap.
    pub fn map_name(&self) -> String {
        let other = self.map_name.lock().ok().and_then(|n| n.clone());
        other.unwrap_or_else(|| names::shard_map(&self.cluster))
    }
    /// The map is published under another name from now on.
    pub fn map_is_called(&self, name: &str) {
        if let Ok(mut n) = self.map_name.lock() {
            *n = Some(name.to_owned());
        }
    }

    /// The published map, `shardmap.json`.
    ///
    /// # Errors
    /// When there is none, or it is no JSON.
    pub async fn map(&self) -> Result<Map> {
        let cm: ConfigMap = self.get(&self.map_name()).await?;
        Map::of(&cm)
    }

    /// Waits until the published map fits.
    ///
    /// # Errors
    /// When it does not after `limit`.
    pub async fn map_when(
        &self,
        what: &str,
        limit: Duration,
        fits: impl Fn(&Map) -> bool + Send + Sync,
    ) -> Result<Map> {
        wait::until(&format!("the map: {what}"), limit, || async {
            let map = self.map().await?;
            Ok(if fits(&map) {
                Seen::Yes(map)
            } else {
                Seen::NotYet(map.text)
            })
        })
        .await
    }

    /// One key of a Secret, as text.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn secret(&self, name: &str, key: &str) -> Result<String> {
        let secret: Secret = self.get(name).await?;
        let data = secret.data.unwrap_or_default();
        let bytes = data
            .get(key)
            .ok_or_else(|| anyhow!("Secret {name} has no key {key}"))?;
        Ok(String::from_utf8(bytes.0.clone())?)
    }

    /// How one server of a pair is reached with an account.
    ///
    /// # Errors
    /// When the Pod has no address.
    pub async fn login(
        &self,
        pair: &str,
        ordinal: usize,
        user: &str,
        password: &str,
        ca: &str,
    ) -> Result<Login> {
        let pod: Pod = self.get(&names::pod(pair, ordinal)).await?;
        let tls_name = names::host(&self.ns, pair, ordinal);
        self.login_to(&pod, tls_name, user, password, ca).await
    }

    async fn login_to(
        &self,
        pod: &Pod,
        tls_name: String,
        user: &str,
        password: &str,
        ca: &str,
    ) -> Result<Login> {
        let (address, port) = self.world.reach(pod, names::MYSQL_PORT).await?;
        Ok(Login {
            address,
            port,
            tls_name,
            user: user.into(),
            password: password.into(),
            ca: Some(ca.into()),
        })
    }

    /// One server, asked with the operator's account.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn server(&self, pair: &str, ordinal: usize) -> Result<Server> {
        self.operator_login(pair, ordinal).await?.connect().await
    }

    /// How one server is asked with the operator's account.
    ///
    /// # Errors
    /// When its Pod has no address, or the Secret cannot be read.
    pub async fn operator_login(&self, pair: &str, ordinal: usize) -> Result<Login> {
        let secret = names::credentials_secret(&self.cluster);
        let password = self.secret(&secret, "operator-password").await?;
        let ca = self.secret(&secret, "ca.crt").await?;
        self.login(pair, ordinal, "shardwright_operator", &password, &ca)
            .await
    }

    /// How the server in this very Pod is asked with the operator's account, and not one that has come in its place.
    ///
    /// # Errors
    /// When the Pod has no address, or the Secret cannot be read.
    pub async fn operator_login_to(&self, pod: &Pod, tls_name: String) -> Result<Login> {
        let secret = names::credentials_secret(&self.cluster);
        let password = self.secret(&secret, "operator-password").await?;
        let ca = self.secret(&secret, "ca.crt").await?;
        self.login_to(pod, tls_name, "shardwright_operator", &password, &ca)
            .await
    }

    /// One server, asked as an application does.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn app(&self, pair: &str, ordinal: usize) -> Result<Server> {
        let secret = names::app_secret(&self.cluster);
        let (user, password, ca) = (
            self.secret(&secret, "username").await?,
            self.secret(&secret, "password").await?,
            self.secret(&secret, "ca.crt").await?,
        );
        self.login(pair, ordinal, &user, &password, &ca)
            .await?
            .connect()
            .await
    }

    /// The ordinal of the active server, by the pair's record.
    ///
    /// # Errors
    /// When nothing is on record.
    pub async fn active(&self, pair: &str) -> Result<usize> {
        let p: MySQLPair = self.get(pair).await?;
        let active = p
            .status
            .and_then(|s| s.active)
            .ok_or_else(|| anyhow!("{pair} has no active server on record"))?;
        if active == names::pod(pair, 0) {
            Ok(0)
        } else if active == names::pod(pair, 1) {
            Ok(1)
        } else {
            bail!("{pair}: active is {active}, which is no Pod of it")
        }
    }

    /// The same as [`Self::versions`], once nothing of it has changed for `span`: Ready comes a moment before the last probe, endpoint
    /// and count of what was just made are told.
    ///
    /// # Errors
    /// When it does not come to rest within a minute, with what changed last.
    pub async fn versions_at_rest(&self, span: Duration) -> Result<BTreeMap<String, String>> {
        let mut last = (Instant::now(), self.versions().await?);
        let begun = Instant::now();
        while last.0.elapsed() < span {
            tokio::time::sleep(wait::POLL).await;
            let now = self.versions().await?;
            if now != last.1 {
                let changed: Vec<_> = now.iter().filter(|(k, v)| last.1.get(*k) != Some(v)).collect();
                ensure!(
                    begun.elapsed() < wait::SOON,
                    "it does not come to rest; changed last: {changed:?}"
                );
                last = (Instant::now(), now);
            }
        }
        Ok(last.1)
    }

    /// UID and resourceVersion of every object of the namespace but events, by kind and name.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn versions(&self) -> Result<BTreeMap<String, String>> {
        let kinds = "shardclusters,mysqlpairs,shardranges,statefulsets,services,endpointslices,configmaps,secrets,\
                     poddisruptionbudgets,networkpolicies,pods,persistentvolumeclaims";
        let text = crate::shell::kubectl(&["get", kinds, "-n", &self.ns, "-o", "json"]).await?;
        let list: Value = serde_json::from_str(&text)?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        Ok(items
            .iter()
            .map(|o| {
                let key = format!("{} {}", word(&o["kind"]), word(&o["metadata"]["name"]));
                let version = format!(
                    "{} {}",
                    word(&o["metadata"]["uid"]),
                    word(&o["metadata"]["resourceVersion"])
                );
                (key, version)
            })
            .collect())
    }
}

fn word(v: &Value) -> &str {
    v.as_str().unwrap_or_default()
}

/// The conditions in an object's status.
pub fn conditions<K: Serialize>(object: &K) -> Vec<Said> {
    serde_json::to_value(object)
        .ok()
        .and_then(|v| serde_json::from_value(v["status"]["conditions"].clone()).ok())
        .unwrap_or_default()
}

async fn not_ready<K: Object>(api: &Api<K>) -> Result<Vec<String>> {
    let list = api.list(&kube::api::ListParams::default()).await?;
    Ok(list
        .items
        .iter()
        .filter_map(|o| {
            let all = conditions(o);
            let ready = all.iter().find(|c| c.type_ == "Ready");
            let good =
                ready.is_some_and(|c| c.status == "True" && c.observed_generation == o.meta().generation);
            (!good).then(|| {
                let said = ready.map_or_else(
                    || "says nothing".to_owned(),
                    |c| format!("Ready={} {} {}", c.status, c.reason, c.message),
                );
                format!("{} {}: {said}", K::kind(&()), o.name_any())
            })
        })
        .collect())
}
