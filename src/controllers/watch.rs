//! What the controllers watch, and in which namespaces.

use super::Context;
use futures::{FutureExt as _, Stream, future};
use kube::{
    Api, Client, Resource,
    core::NamespaceResourceScope,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, Store},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use std::{fmt::Debug, panic::AssertUnwindSafe, sync::Arc, time::Duration};

/// Passes of one controller that run at the same time.
pub const CONCURRENCY: u16 = 32;
/// Until a healthy object is looked at again, whatever happened to it that no watch reports.
pub const HEALTHY: Duration = Duration::from_secs(60);
/// Until an object is looked at again that somebody else has written to in between.
pub const CONFLICT: Duration = Duration::from_millis(15);

/// Where a controller watches: in one namespace, or in all.
pub struct Scope {
    client: Client,
    namespace: Option<String>,
}

/// Runs a controller in each of its scopes, until it has ended in all of them.
pub async fn in_each_scope<F>(ctx: &Arc<Context>, run: impl Fn(Arc<Context>, Scope) -> F)
where
    F: Future<Output = ()>,
{
    let all = namespaces(&ctx.namespaces).into_iter().map(|namespace| {
        let client = ctx.client.clone();
        run(Arc::clone(ctx), Scope { client, namespace })
    });
    future::join_all(all).await;
}

/// The namespaces to run in: `None` is all of them.
fn namespaces(namespaces: &[String]) -> Vec<Option<String>> {
    if namespaces.is_empty() {
        return vec![None];
    }
    namespaces.iter().cloned().map(Some).collect()
}

/// What can be watched: objects in namespaces.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

impl Scope {
    /// The API of a kind.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    /// All objects of a kind, as [`Scope::selected`] gives them.
    pub fn all<K: Kind>(
        &self,
    ) -> (
        Store<K>,
        impl Stream<Item = Result<K, watcher::Error>> + Send + use<K>,
    ) {
        self.selected(watcher::Config::default())
    }

    /// All objects of a kind that `config` selects, kept in memory, and a stream of those that change, deletions included. The memory follows the
    /// stream: it is as far as the last object that the stream gave.
    pub fn selected<K: Kind>(
        &self,
        config: watcher::Config,
    ) -> (
        Store<K>,
        impl Stream<Item = Result<K, watcher::Error>> + Send + use<K>,
    ) {
        let (store, writer) = reflector::store::<K>();
        let events = watcher(self.api::<K>(), config)
            .default_backoff()
            .reflect(writer)
            .touched_objects();
        (store, events)
    }
}

/// Runs a pass; `None` when it panicked. A bug in one pass must not end the process, which looks after other objects too.
pub async fn unwinding<T>(pass: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(pass).catch_unwind().await.ok()
}
