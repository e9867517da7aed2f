//! Pods and claims as the API has them, in our own words.

use super::observed::{NodeGone, PodState, Trouble, TroubleKind, Volume};
use crate::api::names;
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Node, PersistentVolumeClaim, Pod},
    jiff::{SignedDuration, Timestamp},
};

/// The container that mysqld runs in.
const SERVER: &str = "mysqld";
/// The status with which mysqld ends when it wants to be started anew, after a CLONE for instance.
const RESTART_STATUS: i32 = 16;
/// The status of one that was ended by SIGKILL.
const KILLED_STATUS: i32 = 137;
/// The status of a mysqld whose handler of fatal signals has ended it, and those of SIGABRT, SIGBUS and SIGSEGV without that.
const CRASHED: [i32; 4] = [2, 134, 135, 139];
/// A container that ended this often is in trouble; once or twice may be chance.
const RESTARTS: i32 = 3;

/// A server that runs, or ran, for as long as this was started well, seconds.
const STEADY: i64 = 30;

/// What is known of the node that a Pod was given to.
#[derive(Clone, Copy, Debug)]
pub enum NodeSeen<'a> {
    /// Nothing: the operator may not look at nodes, has not yet, or the Pod has none.
    Unknown,
    /// There is no such node.
    Missing,
    /// It is there.
    There(&'a Node),
}

/// What a Pod says of itself, and its node of it.
pub fn pod_state(pod: &Pod, node: NodeSeen<'_>, now: Timestamp) -> PodState {
    let status = pod.status.as_ref();
    let containers = status
        .and_then(|s| s.container_statuses.as_deref())
        .unwrap_or_default();
    let server = containers.iter().find(|c| c.name == SERVER);
    let state = server.and_then(|c| c.state.as_ref());
    let running = state.is_some_and(|s| s.running.is_some());
    let ready = status
        .and_then(|s| s.conditions.as_deref())
        .unwrap_or_default()
        .iter()
        .any(|c| c.type_ == "ContainersReady" && c.status == "True");
    PodState {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        ip: status.and_then(|s| s.pod_ip.clone()).filter(|ip| !ip.is_empty()),
        ready,
        deleting: pod.metadata.deletion_timestamp.is_some(),
        created: pod
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |t| t.0),
        spec_hash: pod
            .metadata
            .annotations
            .as_ref()
            .and_then(|a| a.get(names::SPEC_HASH_ANNOTATION).cloned()),
        ran: server.is_some_and(|c| {
            c.restart_count > 0
                || running
                || state.is_some_and(|s| s.terminated.is_some())
                || c.last_state.as_ref().is_some_and(|s| s.terminated.is_some())
        }),
        running,
        trouble: trouble(pod, now),
        node_gone: node_gone(pod, node),
    }
}

fn node_gone(pod: &Pod, node: NodeSeen<'_>) -> Option<NodeGone> {
    let name = pod.spec.as_ref()?.node_name.clone().filter(|n| !n.is_empty())?;
    let since = match node {
        NodeSeen::Unknown => return None,
        NodeSeen::There(node) => {
            let conditions = node.status.as_ref()?.conditions.as_deref().unwrap_or_default();
            let ready = conditions.iter().find(|c| c.type_ == "Ready")?;
            ready
                .last_transition_time
                .as_ref()
                .filter(|_| ready.status != "True")?
                .0
        }
        // The time of a deletion is when its grace is over.
        NodeSeen::Missing => {
            let meta = &pod.metadata;
            let grace = SignedDuration::from_secs(meta.deletion_grace_period_seconds.unwrap_or(0));
            meta.deletion_timestamp.as_ref()?.0 - grace
        }
    };
    Some(NodeGone { node: name, since })
}

fn trouble(pod: &Pod, now: Timestamp) -> Option<Trouble> {
    let status = pod.status.as_ref()?;
    let unscheduled = status.conditions.iter().flatten().find(|c| {
        c.type_ == "PodScheduled" && c.status == "False" && c.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(c) = unscheduled {
        let message = c.message.clone().unwrap_or_default();
        let lower = message.to_ascii_lowercase();
        // The scheduler has one reason for both; what it lacks is in its words only.
        let volume = ["persistentvolume", "persistent volume", "storageclass"]
            .iter()
            .any(|w| lower.contains(w));
        let kind = if volume {
            TroubleKind::Volume
        } else {
            TroubleKind::Unschedulable
        };
        return Some(Trouble { kind, message });
    }
    let init = status.init_container_statuses.iter().flatten();
    let main = status.container_statuses.iter().flatten();
    init.chain(main)
        .find_map(|c| waits(c).or_else(|| ends_again_and_again(c, now)))
}

fn waits(c: &ContainerStatus) -> Option<Trouble> {
    let waiting = c.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().unwrap_or_default();
    let kind = match reason {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "ImageInspectError"
        | "RegistryUnavailable" => TroubleKind::Image,
        "CreateContainerError" | "CreateContainerConfigError" | "RunContainerError" | "StartError" => {
            TroubleKind::Start
        }
        _ => return None,
    };
    let said = waiting.message.as_deref().unwrap_or("no message");
    Some(Trouble {
        kind,
        message: format!("container {}: {reason}: {said}", c.name),
    })
}

/// Between two ends such a container waits, or runs for a moment: that is no cure.
fn ends_again_and_again(c: &ContainerStatus, now: Timestamp) -> Option<Trouble> {
    let state = c.state.as_ref()?;
    let ended = state
        .terminated
        .as_ref()
        .or_else(|| c.last_state.as_ref()?.terminated.as_ref())?;
    let steady = state
        .running
        .as_ref()
        .and_then(|r| r.started_at.as_ref())
        .is_some_and(|t| now.duration_since(t.0).as_secs() >= STEADY);
    let lasted = ended
        .started_at
        .as_ref()
        .zip(ended.finished_at.as_ref())
        .is_some_and(|(from, to)| to.0.duration_since(from.0).as_secs() >= STEADY);
    // Somebody killed it; the kernel, for want of memory, says so.
    let killed = ended.exit_code == KILLED_STATUS && ended.reason.as_deref() != Some("OOMKilled");
    let wanted = [0, RESTART_STATUS].contains(&ended.exit_code);
    if c.restart_count < RESTARTS || c.ready || steady || lasted || killed || wanted {
        return None;
    }
    let said = ended.message.as_deref().unwrap_or_default().trim();
    let said = if said.is_empty() {
        ended.reason.as_deref().unwrap_or_default()
    } else {
        said
    };
    let crashes = c.name == SERVER && CRASHED.contains(&ended.exit_code);
    Some(Trouble {
        kind: if crashes {
            TroubleKind::Crash
        } else {
            TroubleKind::Start
        },
        message: format!(
            "container {} ends again and again, last with status {}: {said}",
            c.name, ended.exit_code
        ),
    })
}

/// What a claim says of itself.
pub fn volume(claim: Option<&PersistentVolumeClaim>) -> Volume {
    let Some(claim) = claim else {
        return Volume::Missing;
    };
    match claim.status.as_ref().and_then(|s| s.phase.as_deref()) {
        Some("Bound") => Volume::Bound,
        Some("Lost") => Volume::Lost,
        _ => Volume::Pending {
            class: claim.spec.as_ref().and_then(|s| s.storage_class_name.clone()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }
    fn seen(status: &Value, second: i64) -> PodState {
        let pod = json!({
            "metadata": { "name": "p-0", "uid": "u", "creationTimestamp": at(0).to_string(), "annotations": { "shardwright.dev/spec-hash": "h" } },
            "status": status,
        });
        pod_state(
            &serde_json::from_value(pod).unwrap(),
            NodeSeen::Unknown,
            at(second),
        )
    }
    fn container(name: &str, restarts: i32, state: &Value, last: &Value) -> Value {
        json!({ "name": name, "image": "i", "imageID": "", "ready": false, "restartCount": restarts, "state": state, "lastState": last })
    }
    fn kind(p: &PodState) -> Option<TroubleKind> {
        p.trouble.as_ref().map(|t| t.kind)
    }

    #[test]
    fn a_running_server() {
        let running = json!({ "running": { "startedAt": at(1).to_string() } });
        let status = json!({
            "podIP": "10.0.0.7",
            "conditions": [{ "type": "ContainersReady", "status": "True" }, { "type": "Ready", "status": "False" }],
            "containerStatuses": [container("mysqld", 0, &running, &json!({}))],
        });
        let p = seen(&status, 5);
        assert_eq!(
            (
                p.ready,
                p.running,
                p.ran,
                p.ip.as_deref(),
                p.spec_hash.as_deref(),
                p.trouble
            ),
            (true, true, true, Some("10.0.0.7"), Some("h"), None)
        );
        assert!(!seen(&json!({}), 0).ran);
    }

    #[test]
    fn the_scheduler_has_one_reason_for_nodes_and_for_volumes() {
        let with = |message: &str| {
            let c = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message });
            kind(&seen(&json!({ "conditions": [c] }), 0))
        };
        assert_eq!(
            with("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."),
            Some(TroubleKind::Unschedulable)
        );
        for volume in [
            "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind.",
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
            "storageclass.storage.k8s.io \"nope\" not found",
        ] {
            assert_eq!(with(volume), Some(TroubleKind::Volume), "{volume}");
        }
    }

    #[test]
    fn an_image_that_cannot_be_had_is_told_in_the_words_of_the_kubelet() {
        let waiting = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } });
        let p = seen(
            &json!({ "initContainerStatuses": [container("init", 0, &waiting, &json!({}))] }),
            0,
        );
        assert_eq!(kind(&p), Some(TroubleKind::Image));
        assert_eq!(
            p.trouble.unwrap().message,
            "container init: ImagePullBackOff: no such image"
        );
    }

    #[test]
    fn a_server_that_ends_again_and_again_is_in_trouble_also_while_it_runs_for_a_moment() {
        let ended = |code: i32| json!({ "terminated": { "exitCode": code, "message": "unknown variable" } });
        let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off" } });
        let running = json!({ "running": { "startedAt": at(100).to_string() } });
        let at_second = |restarts, state: &Value, code, second| {
            let c = container("mysqld", restarts, state, &ended(code));
            seen(&json!({ "containerStatuses": [c] }), second)
        };
        let p = at_second(3, &waiting, 1, 100);
        assert_eq!(kind(&p), Some(TroubleKind::Start));
        assert!(p.trouble.unwrap().message.ends_with("status 1: unknown variable"));
        assert_eq!(kind(&at_second(3, &running, 1, 110)), Some(TroubleKind::Start));
        assert_eq!(kind(&at_second(3, &running, 1, 140)), None, "it has got over it");
        assert_eq!(kind(&at_second(2, &waiting, 1, 100)), None, "that may be chance");
        assert_eq!(kind(&at_second(9, &waiting, 16, 100)), None, "a copy ends so");
        assert_eq!(kind(&at_second(9, &waiting, 137, 100)), None, "it was killed");
    }

    #[test]
    fn claims() {
        let claim = |phase: &str| serde_json::from_value(json!({ "status": { "phase": phase } })).unwrap();
        assert_eq!(volume(None), Volume::Missing);
        assert_eq!(volume(Some(&claim("Bound"))), Volume::Bound);
        assert_eq!(volume(Some(&claim("Lost"))), Volume::Lost);
        let pending = volume(Some(&PersistentVolumeClaim::default()));
        assert_eq!(pending, Volume::Pending { class: None });
    }

    fn gone(pod: &Value, node: NodeSeen<'_>) -> Option<NodeGone> {
        pod_state(&serde_json::from_value(pod.clone()).unwrap(), node, at(100)).node_gone
    }
    fn node(ready: &str) -> Node {
        let conditions = json!([
            { "type": "MemoryPressure", "status": "False", "lastTransitionTime": at(1).to_string() },
            { "type": "Ready", "status": ready, "lastTransitionTime": at(7).to_string() },
        ]);
        serde_json::from_value(json!({ "status": { "conditions": conditions } })).unwrap()
    }

    #[test]
    fn a_node_that_is_not_ready_is_gone_since_then() {
        let pod = json!({ "metadata": { "name": "p-0" }, "spec": { "nodeName": "n1", "containers": [] } });
        for (ready, since) in [("True", None), ("False", Some(7)), ("Unknown", Some(7))] {
            let node = node(ready);
            let expected = since.map(|s| NodeGone {
                node: "n1".into(),
                since: at(s),
            });
            assert_eq!(gone(&pod, NodeSeen::There(&node)), expected, "{ready}");
        }
        assert_eq!(gone(&pod, NodeSeen::Unknown), None);
    }

    #[test]
    fn a_node_that_is_not_there_is_gone_since_the_pod_is_being_deleted() {
        let mut pod =
            json!({ "metadata": { "name": "p-0" }, "spec": { "nodeName": "n1", "containers": [] } });
        assert_eq!(gone(&pod, NodeSeen::Missing), None);
        pod["metadata"]["deletionTimestamp"] = json!(at(60).to_string());
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        let expected = NodeGone {
            node: "n1".into(),
            since: at(30),
        };
        assert_eq!(gone(&pod, NodeSeen::Missing), Some(expected));
        pod["spec"] = json!({ "containers": [] });
        assert_eq!(gone(&pod, NodeSeen::Missing), None);
    }
}
