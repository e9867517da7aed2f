//! The readiness gate of the Pods, which the operator sets: [`crate::core::pair::gate`] says what it should be.

use super::apply::{self, Error};
use crate::{
    api::names,
    core::pair::{
        Record,
        gate::{Gate, gate},
    },
};
use k8s_openapi::{
    api::core::v1::{Pod, PodCondition},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};

/// Sets the conditions of a pair's Pods.
///
/// # Errors
/// [`Error`].
pub async fn of_pair(
    client: &Client,
    manager: &str,
    pods: &[Option<Pod>; 2],
    record: Option<&Record>,
    now: Timestamp,
) -> Result<(), Error> {
    for (place, pod) in pods.iter().enumerate() {
        if let Some(pod) = pod {
            set(client, manager, pod, gate(record, place), now).await?;
        }
    }
    Ok(())
}

/// Sets the condition of `pod` where it differs from `gate`; says whether it did. A Pod without the gate (one that an earlier operator
/// made), and one that was replaced meanwhile, are left alone.
///
/// # Errors
/// [`Error`].
pub async fn set(
    client: &Client,
    manager: &str,
    pod: &Pod,
    gate: Gate,
    now: Timestamp,
) -> Result<bool, Error> {
    let Some(condition) = change(pod, gate, now) else {
        return Ok(false);
    };
    let patch = serde_json::json!({
        "metadata": { "uid": pod.uid() },
        "status": { "conditions": [condition] },
    });
    let pp = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    let api = Api::<Pod>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    // Conditions merge by their type; those of the kubelet stay.
    let (name, patch) = (pod.name_any(), Patch::Strategic(patch));
    let call = api.patch_status(&name, &pp, &patch);
    match apply::call("patch the status of", apply::describe(pod), call).await {
        Ok(_) => Ok(true),
        // Gone, or another one of the name: the next pass sees that one.
        Err(e) if e.is_not_found() || e.is_conflict() => Ok(false),
        Err(e) => Err(e),
    }
}

/// The condition to write, when there is something to write.
fn change(pod: &Pod, gate: Gate, now: Timestamp) -> Option<PodCondition> {
    let gates = pod.spec.as_ref()?.readiness_gates.iter().flatten();
    gates
        .into_iter()
        .find(|g| g.condition_type == names::IN_SYNC_GATE)?;
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let there = conditions.into_iter().find(|c| c.type_ == names::IN_SYNC_GATE);
    let status = if gate.open { "True" } else { "False" };
    let same_status = there.filter(|c| c.status == status);
    if same_status.is_some_and(|c| c.reason.as_deref() == Some(gate.reason)) {
        return None;
    }
    Some(PodCondition {
        type_: names::IN_SYNC_GATE.to_owned(),
        status: status.to_owned(),
        reason: Some(gate.reason.to_owned()),
        last_transition_time: same_status
            .and_then(|c| c.last_transition_time.clone())
            .or(Some(Time(now))),
        ..PodCondition::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const OPEN: Gate = Gate {
        open: true,
        reason: "InSync",
    };

    fn pod(gates: &Value, conditions: &Value) -> Pod {
        let pod = json!({
            "metadata": { "name": "p-0", "namespace": "n", "uid": "u" },
            "spec": { "containers": [], "readinessGates": gates },
            "status": { "conditions": conditions },
        });
        serde_json::from_value(pod).unwrap()
    }
    fn gated(conditions: &Value) -> Pod {
        pod(&json!([{ "conditionType": names::IN_SYNC_GATE }]), conditions)
    }
    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn what_is_so_already_is_not_written() {
        let open = json!([{ "type": names::IN_SYNC_GATE, "status": "True", "reason": "InSync" }]);
        assert_eq!(change(&gated(&open), OPEN, at(0)), None);
        let closed = Gate {
            open: false,
            reason: "NotInSync",
        };
        let written = change(&gated(&open), closed, at(5)).unwrap();
        assert_eq!(
            (written.status.as_str(), written.last_transition_time),
            ("False", Some(Time(at(5))))
        );
        assert!(change(&gated(&json!([])), OPEN, at(0)).is_some());
    }

    #[test]
    fn another_reason_is_no_transition() {
        let open = json!([{ "type": names::IN_SYNC_GATE, "status": "True", "reason": "Active", "lastTransitionTime": at(0).to_string() }]);
        let written = change(&gated(&open), OPEN, at(5)).unwrap();
        assert_eq!(written.last_transition_time, Some(Time(at(0))));
    }

    #[test]
    fn a_pod_without_the_gate_is_left_alone() {
        assert_eq!(change(&pod(&json!([]), &json!([])), OPEN, at(0)), None);
    }
}
