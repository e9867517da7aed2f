//! `spec.preferredActive`: a changed value is one planned switchover, acted upon once, and never a reason to undo a failover.

use super::{
    compare::Both,
    observed::{Observed, Ordinal},
    promotion,
    state::State,
};
use k8s_openapi::jiff::Timestamp;

/// What became of a wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// There is none, or it was acted upon before.
    None,
    /// It is about to be acted upon.
    Pending,
    /// It holds now.
    Done,
    /// It is not acted upon, and why.
    Refused(String),
}

/// The last epoch of a pair that comes up and has not had two members: one is elected and opened, the other one is made to follow, or copied
/// and made to follow.
const FIRST_EPOCH: i64 = 4;

/// What becomes of the wish in this state.
pub fn wish(o: &Observed, state: &State, now: Timestamp) -> Wish {
    let Some(preferred) = o.preferred else {
        return if o.preferred_seen.is_some() {
            Wish::Done
        } else {
            Wish::None
        };
    };
    if o.preferred_seen == Some(preferred) {
        return Wish::None;
    }
    let Some(record) = &o.record else {
        return Wish::Pending;
    };
    if record.active == preferred {
        return Wish::Done;
    }
    if o.paused || *state == State::SwitchOver(super::state::Why::Preferred) {
        return Wish::Pending;
    }
    if let Some(why) = refusal(o, state, preferred, now) {
        return Wish::Refused(why);
    }
    Wish::Pending
}

fn refusal(o: &Observed, state: &State, preferred: Ordinal, now: Timestamp) -> Option<String> {
    let record = o.record.as_ref()?;
    let name = o.pod_name(preferred);
    if !o.switchover_void && o.no_switchover_before.is_some_and(|t| t > now) {
        return Some(format!("{name} did not catch up in time"));
    }
    match state {
        State::Broken { error: (n, text), .. } => Some(format!("replication is broken: {text} ({n})")),
        State::MemberLost(_) | State::PassiveUnavailable => Some(format!("{name} does not follow")),
        _ if record.members() < 2 && o.epoch > FIRST_EPOCH => Some(format!("{name} is not in sync")),
        State::Healthy if !promotion::close_behind(o, record) => {
            let lag = Both::of(o, record).map_or(0, Both::lag);
            Some(format!("{name} is {lag} transactions behind"))
        }
        _ => None,
    }
}
