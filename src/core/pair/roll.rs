//! Which Pod is deleted next, so that its StatefulSet makes it anew: for a changed specification, or because its server knows
//! other passwords than the Secrets do. The passive side first, one at a time.

use super::{
    action::Action,
    observed::{Observed, Ordinal, PodState, Record, Server, ServerState, TroubleKind, other},
    state::{Rebuild, State},
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// A server that refuses the operator although its Pod is younger than the Secret is restarted this often at most.
const RESTART_EVERY: SignedDuration = SignedDuration::from_secs(120);

/// What replaces the next Pod, if any has to be.
pub fn next(o: &Observed, state: &State, now: Timestamp) -> Vec<Action> {
    let active = o.record.as_ref().map_or(0, |r| r.active);
    let order = [other(active), active];
    order
        .into_iter()
        .find(|i| o.outdated(*i) && o.side(*i).pod.as_ref().is_some_and(never_got_up))
        .or_else(|| healthy_roll(o, state))
        .or_else(|| order.into_iter().find(|i| locked_out(o, *i, active, now)))
        .and_then(|place| delete_passive(o, place))
        .unwrap_or_default()
}

/// The passive server's Pod, when it is outdated and does not follow as it should beside an active one that is open: so that a
/// specification that keeps it from following can be corrected. Not while it is being copied.
pub fn outdated_passive(o: &Observed, state: &State) -> Option<Vec<Action>> {
    let may = matches!(
        state,
        State::PassiveUnavailable
            | State::Errant { .. }
            | State::PassiveDetached { .. }
            | State::NoSemiSync { .. }
            | State::PassiveStopped
            | State::Broken { .. }
            | State::CatchingUp { .. }
            | State::CircleOpen(_)
            | State::NotRecorded { .. }
            | State::RebuildNeeded(Rebuild::Later { .. } | Rebuild::Impossible)
            | State::CloneDue(Rebuild::Later { .. } | Rebuild::Impossible)
    );
    let passive = o.record.as_ref()?.passive();
    (may && o.outdated(passive))
        .then(|| delete_passive(o, passive))
        .flatten()
}

/// A member leaves the record first, so that no commit waits for it (rule P5).
fn delete_passive(o: &Observed, place: Ordinal) -> Option<Vec<Action>> {
    let delete = delete(o, place)?;
    let record = o.record.as_ref().filter(|r| r.passive() == place);
    let Some(record) = record.filter(|r| r.member(place).is_some()) else {
        return Some(vec![delete]);
    };
    if !o.side(record.active).up().is_some_and(ServerState::writable) {
        return Some(vec![delete]);
    }
    let mut alone = Record {
        epoch: o.epoch + 1,
        ..record.clone()
    };
    if let Some(member) = alone.in_sync.get_mut(place) {
        *member = None;
    }
    Some(vec![
        Action::Record(alone),
        Action::SourceOff(record.active),
        delete,
    ])
}

/// Never two at once.
fn delete(o: &Observed, place: Ordinal) -> Option<Action> {
    if o.sides.iter().any(|s| s.pod.as_ref().is_some_and(|p| p.deleting)) {
        return None;
    }
    let pod = o.side(place).pod.as_ref()?;
    Some(Action::DeletePod {
        place,
        uid: pod.uid.clone(),
        down: never_got_up(pod),
    })
}

/// It does not run and will not by itself: deleting it takes nothing away.
fn never_got_up(p: &PodState) -> bool {
    !p.running
        && (!p.ran
            || p.trouble.as_ref().is_some_and(|t| {
                matches!(
                    t.kind,
                    TroubleKind::Image | TroubleKind::Start | TroubleKind::Crash
                )
            }))
}

/// Of two healthy servers the passive one, when its specification is an old one. An active one is handed over first
/// ([`state::Why::Roll`](super::state::Why::Roll)).
fn healthy_roll(o: &Observed, state: &State) -> Option<Ordinal> {
    let ready = |i: Ordinal| o.side(i).pod.as_ref().is_some_and(|p| p.ready);
    let passive = o.record.as_ref()?.passive();
    (*state == State::Healthy && ready(0) && ready(1) && o.outdated(passive)).then_some(passive)
}

/// Its server knows other passwords, or shows a certificate of another authority, than the Secrets say; it takes those over
/// when it starts. The active one only once the other one has.
fn locked_out(o: &Observed, place: Ordinal, active: Ordinal, now: Timestamp) -> bool {
    let side = o.side(place);
    let (Server::AccessDenied(_), Some(pod)) = (&side.server, &side.pod) else {
        return false;
    };
    let older = o.credentials_since.is_some_and(|t| pod.created < t);
    (older || now.duration_since(pod.created) > RESTART_EVERY)
        && (place != active || o.side(other(place)).up().is_some())
}

/// Why a Pod is deleted, for people.
pub fn why(o: &Observed, place: Ordinal) -> &'static str {
    match (&o.side(place).server, o.outdated(place)) {
        (_, true) => "replaced, its specification changed",
        (Server::AccessDenied(_), _) => "restarted, its server knows other passwords than the Secrets",
        _ => "replaced",
    }
}
