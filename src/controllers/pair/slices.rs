//! The EndpointSlices of a pair follow the record and the Pods.

use crate::{
    act::{apply, children},
    api::names,
    core::pair::{
        Record,
        observed::{Ordinal, PodState, Server},
    },
    observe::{caches::Caches, pair::Found, servers::Seen},
    resources::endpoint_slice,
};
use kube::{Client, ResourceExt as _};

/// Writes what is not yet so: the active one's first.
///
/// # Errors
/// [`apply::Error`].
pub async fn write(
    client: &Client,
    found: &Found,
    record: Option<&Record>,
    seen: &[Seen; 2],
    opened: Option<Ordinal>,
    caches: &Caches,
) -> Result<(), apply::Error> {
    let pod = |i: Ordinal| found.pod_states.get(i).and_then(Option::as_ref);
    let active = record.map(|r| r.active).filter(|i| {
        let server = seen.get(*i).map(|s| &s.server);
        server.is_some_and(|server| serves(server, pod(*i), opened == Some(*i)))
    });
    let passive = record.map(Record::passive).filter(|i| reads(pod(*i)));
    let slice = |service: &str, place: Option<Ordinal>| {
        let target = place.and_then(|i| target(found, i));
        endpoint_slice::endpoint_slice(&found.context, service, target.as_ref())
    };
    let active = slice(&names::active_service(&found.name), active);
    let passive = slice(&names::passive_service(&found.name), passive);
    let manager = names::MANAGER_PAIR;
    if opened.is_some() {
        let live = caches.slice(&found.namespace, &active.name_any());
        children::apply_at_once(client, manager, &active, live.as_deref()).await?;
    } else {
        children::ensure(client, manager, &active).await?;
    }
    children::ensure(client, manager, &passive).await
}

/// Whether the active Service leads to the recorded active server: one that is open, also while its Pod is being deleted, as long as it serves; of one
/// that does not answer the operator its Pod's readiness decides.
fn serves(server: &Server, pod: Option<&PodState>, opened: bool) -> bool {
    match server {
        Server::Up(s) => opened || s.writable(),
        _ => reads(pod),
    }
}

fn reads(pod: Option<&PodState>) -> bool {
    pod.is_some_and(|p| p.ready && !p.deleting)
}

fn target(found: &Found, i: Ordinal) -> Option<endpoint_slice::Target> {
    let pod = found.pod_states.get(i)?.as_ref()?;
    Some(endpoint_slice::Target {
        pod: names::pod(&found.name, i),
        uid: pod.uid.clone(),
        ip: pod.ip.as_ref()?.parse().ok()?,
        node: found.pods.get(i)?.as_ref()?.spec.as_ref()?.node_name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn pod(ready: bool, deleting: bool) -> PodState {
        PodState {
            uid: "u".into(),
            ip: Some("10.0.0.1".into()),
            ready,
            deleting,
            created: Timestamp::UNIX_EPOCH,
            spec_hash: None,
            ran: true,
            running: true,
            trouble: None,
            node_gone: None,
        }
    }

    #[test]
    fn of_a_server_that_does_not_answer_its_pod_decides() {
        let silent = Server::Unreachable("silence".into());
        assert!(serves(&silent, Some(&pod(true, false)), false));
        assert!(!serves(&silent, Some(&pod(false, false)), false));
        assert!(!serves(&silent, Some(&pod(true, true)), false));
        assert!(!serves(&silent, None, true));
    }

    #[test]
    fn a_passive_one_is_read_from_while_its_pod_is_ready_and_stays() {
        assert!(reads(Some(&pod(true, false))));
        assert!(!reads(Some(&pod(true, true))));
    }
}
