//! What is said of a pair as a whole.

use super::{
    action::Action,
    consent,
    messages::{of_state, stalled, working},
    observed::{Desired, Observed, Ordinal, Trouble, TroubleKind, Volume},
    reasons,
    state::State,
};
use crate::api::conditions::Overall;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// A Pod without a node may wait for one so long before a person is called.
const SCHEDULING_PATIENCE: SignedDuration = SignedDuration::from_secs(20);
/// A container that cannot be made yet may wait so long, for a Secret for instance that is being made.
const START_PATIENCE: SignedDuration = SignedDuration::from_secs(20);

/// The pair as a whole.
pub fn overall(o: &Observed, state: &State, actions: &[Action], now: Timestamp) -> Overall {
    let found = found(o, state, actions, now);
    if !o.paused {
        return found;
    }
    let message = "reconciliation is paused (`spec.reconciliation`)";
    match found {
        Overall::Ready { .. } => Overall::Ready {
            reason: reasons::PAUSED,
            message: message.into(),
        },
        other => stalled(
            reasons::PAUSED,
            format!("{message}; without it: {}: {}", other.reason(), other.message()),
        ),
    }
}

fn found(o: &Observed, state: &State, actions: &[Action], now: Timestamp) -> Overall {
    match o.deletion {
        Some(d) if d.holds_shards => {
            return working(
                reasons::HOLDS_SHARDS,
                "deletion waits: the cluster's record still places shards here, or a move to or from here is not over; hand them to ranges of other pairs, or delete the cluster",
            );
        }
        Some(_) => {
            return working(
                reasons::DELETING,
                "the volumes and the Secret with the passwords stay",
            );
        }
        None if !o.finalizer => return working(reasons::CREATING, "the pair is new"),
        None => {}
    }
    // What only a person can decide comes before what else is amiss: nobody takes writes, or nothing goes on, until it is.
    if consent::asks(o, state, now) {
        let asks = of_state(o, state, now);
        let more = [0, 1].into_iter().find_map(|i| Some((i, trouble(o, i, now)?)));
        let more = more.map(|(i, t)| format!(". {}: {}", o.pod_name(i), t.message));
        return match (asks, more) {
            (Overall::Stalled { reason, message }, Some(more)) => stalled(reason, message + &more),
            (asks, _) => asks,
        };
    }
    if let Some(reason) = consent::used(o, state) {
        let what = of_state(o, state, now);
        return stalled(reason, format!("the loss is accepted: {}", what.message()));
    }
    match &o.desired {
        Desired::Refused { reason, message } => return stalled(reason, message.clone()),
        Desired::ClusterMissing { cluster } => {
            return stalled(
                reasons::CLUSTER_NOT_FOUND,
                format!("ShardCluster `{cluster}` is not there; the servers are kept as they are"),
            );
        }
        Desired::Spec { .. } => {}
    }
    if !matches!(state, State::Healthy | State::OutOfStep)
        && let Some((place, trouble)) = [0, 1].into_iter().find_map(|i| Some((i, trouble(o, i, now)?)))
    {
        let claim = match (trouble.kind, &o.side(place).volume) {
            (TroubleKind::Volume, Volume::Missing) => " (there is no claim)".to_owned(),
            (TroubleKind::Volume, Volume::Pending { class }) => match class {
                Some(class) => format!(" (the claim asks for StorageClass `{class}` and is Pending)"),
                None => " (the claim names no StorageClass and is Pending)".to_owned(),
            },
            (TroubleKind::Volume, Volume::Lost) => " (the claim has lost its volume)".to_owned(),
            _ => String::new(),
        };
        return stalled(
            trouble.kind.reason(),
            format!("{}: {}{claim}", o.pod_name(place), trouble.message),
        );
    }
    if !matches!(
        state,
        State::Healthy | State::OutOfStep | State::Failover(_) | State::ActiveClosed { .. }
    ) && let Some(i) = disk_full(o)
    {
        let what = of_state(o, state, now);
        return stalled(
            reasons::DISK_FULL,
            format!(
                "the volume of {} is full: what it is told to write waits. Free space, or let `mysql.storage.size` grow. {}",
                o.pod_name(i),
                what.message()
            ),
        );
    }
    let base = of_state(o, state, now);
    let rolling = [0, 1].into_iter().any(|i| o.outdated(i))
        || actions.iter().any(|a| matches!(a, Action::DeletePod { .. }));
    match (base, rolling) {
        (Overall::Ready { .. }, true) => working(
            reasons::ROLLING,
            "servers are being replaced, the passive one first",
        ),
        (Overall::Working { message, .. }, true) => working(reasons::ROLLING, message),
        (base, _) => base,
    }
}

/// A volume that is full.
fn disk_full(o: &Observed) -> Option<Ordinal> {
    [0, 1]
        .into_iter()
        .find(|i| o.side(*i).up().is_some_and(|s| s.disk_full))
}

/// What keeps a Pod from running for longer than it may take.
fn trouble(o: &Observed, place: Ordinal, now: Timestamp) -> Option<Trouble> {
    let side = o.side(place);
    if side.up().is_some() {
        return None;
    }
    let pod = side.pod.as_ref().filter(|p| !p.deleting)?;
    let trouble = pod.trouble.as_ref()?;
    let patience = match trouble.kind {
        TroubleKind::Image => SignedDuration::ZERO,
        TroubleKind::Start | TroubleKind::Crash => START_PATIENCE,
        TroubleKind::Unschedulable | TroubleKind::Volume => SCHEDULING_PATIENCE,
    };
    (now.duration_since(pod.created) >= patience).then(|| trouble.clone())
}
