//! What the controllers watch, and in which namespaces.

use futures::{FutureExt as _, Stream};
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
use std::{fmt::Debug, hash::Hash, panic::AssertUnwindSafe, time::Duration};

/// Passes of one controller that run at the same time.
pub const CONCURRENCY: u16 = 32;
/// Until a healthy object is looked at again, whatever happened to it that no watch reports.
pub const HEALTHY: Duration = Duration::from_secs(60);
/// Until an object is looked at again that somebody else has written to in between.
pub const CONFLICT: Duration = Duration::from_millis(15);

/// The namespaces to run in: `None` is all of them.
pub fn scopes(namespaces: &[String]) -> Vec<Option<String>> {
    if namespaces.is_empty() {
        return vec![None];
    }
    namespaces.iter().cloned().map(Some).collect()
}

/// The API of a kind in a scope.
pub fn api<K>(client: &Client, scope: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope>,
    K::DynamicType: Default,
{
    match scope {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// All objects of a kind that `config` selects, kept in memory, and a stream of those that change, deletions included. The memory follows the stream: it is as
/// far as the last object that the stream gave.
pub fn reflected<K>(
    client: &Client,
    scope: Option<&str>,
    config: watcher::Config,
) -> (
    Store<K>,
    impl Stream<Item = Result<K, watcher::Error>> + Send + use<K>,
)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let (store, writer) = reflector::store::<K>();
    let events = watcher(api::<K>(client, scope), config)
        .default_backoff()
        .reflect(writer)
        .touched_objects();
    (store, events)
}

/// Runs a pass; `None` when it panicked. A bug in one pass must not end the process, which looks after other objects too.
pub async fn unwinding<T>(pass: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(pass).catch_unwind().await.ok()
}
