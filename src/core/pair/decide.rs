//! What is done about a pair: pure and total.

use super::{
    action::Action,
    compare, moving,
    notes::notes,
    observed::{Deletion, Desired, Observed, Ordinal, STRICT_TIMEOUT},
    roll,
    state::{self, Rebuild, State, Why},
    steps::steps,
    verdict,
    wish::{Wish, wish},
};
use crate::{
    api::{conditions::Overall, mysql_pair::ChangeKind},
    core::note::Note,
};
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// What happens to the children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Children {
    /// They are made as specified.
    Apply,
    /// They are left as they are, but for the EndpointSlices, which follow the record and the Pods.
    Keep,
    /// They are left as they are.
    Leave,
}

/// A change of the active server, for `status.lastChange` and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    /// How.
    pub kind: ChangeKind,
    /// Why: a fixed set of words.
    pub cause: &'static str,
    /// Who was active.
    pub from: Ordinal,
    /// Who is.
    pub to: Ordinal,
}

/// What comes of a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The row of the table.
    pub state: State,
    /// What happens to the children.
    pub children: Children,
    /// What is done, in this order.
    pub actions: Vec<Action>,
    /// The pair as a whole.
    pub overall: Overall,
    /// What people are told, in events, once the actions are done.
    pub notes: Vec<Note>,
    /// Whether the passive server follows: while it does not, the grace period runs.
    pub following: bool,
    /// Its replication stopped with an error.
    pub broken: bool,
    /// The actions make another server active.
    pub change: Option<Change>,
    /// What becomes of `spec.preferredActive`.
    pub wish: Wish,
    /// When to look again.
    pub requeue: Duration,
}

/// After something was done.
const AT_ONCE: Duration = Duration::from_millis(50);
/// While a member does not answer: whether commits wait for it is asked often.
const WATCHING: Duration = Duration::from_millis(250);
/// While something is waited for.
const WORKING: Duration = Duration::from_secs(1);
/// While a person is waited for.
const STALLED: Duration = Duration::from_secs(5);
/// While all is well.
const HEALTHY: Duration = Duration::from_secs(10);

/// Decides what is done about a pair.
pub fn decide(o: &Observed, now: Timestamp) -> Decision {
    let state = state::state(o, now);
    let children = children(o.paused, &o.desired, o.deletion, o.finalizer);
    let mut actions = vec![];
    match lifecycle(o) {
        Some(steps) => actions = steps,
        None if o.paused => {}
        None => plan(o, &state, now, &mut actions),
    }
    let overall = verdict::overall(o, &state, &actions, now);
    let wish = wish(o, &state, now);
    let notes = notes(o, &state, &actions, &overall, &wish);
    let member_away = || {
        let record = o.record.as_ref();
        record.is_some_and(|r| r.members() == 2 && o.side(r.passive()).up().is_none())
    };
    let requeue = match &overall {
        // Its steps are repeated until what ails it is gone.
        Overall::Stalled { .. } => STALLED,
        // It may end again and again, and somebody else says why.
        _ if state == State::OutOfStep => WORKING,
        // It takes some seconds to end.
        _ if state == State::CloneUnwanted => WORKING,
        _ if !actions.is_empty() => AT_ONCE,
        Overall::Ready { .. } => HEALTHY,
        Overall::Working { .. } if member_away() || o.unheard_since.is_some() => WATCHING,
        Overall::Working { .. } => WORKING,
    };
    Decision {
        children,
        change: change(o, &state).filter(|_| !actions.is_empty()),
        actions,
        overall,
        notes,
        following: compare::passive_follows(o),
        broken: compare::passive_broken(o),
        wish,
        requeue,
        state,
    }
}

fn change(o: &Observed, state: &State) -> Option<Change> {
    let record = o.record.as_ref()?;
    let (kind, cause) = match state {
        State::Failover(cause) => (ChangeKind::Failover, cause.as_str()),
        State::AcceptingLoss(cause, _) => (ChangeKind::AcceptedLoss, cause.as_str()),
        State::SwitchOver(Why::Leaving) => (ChangeKind::Switchover, "PodLeaving"),
        State::SwitchOver(Why::Preferred) => (ChangeKind::Switchover, "PreferredActive"),
        State::SwitchOver(Why::Roll) => (ChangeKind::Switchover, "Roll"),
        State::SwitchOver(Why::Cloned) => (ChangeKind::Switchover, "Cloned"),
        _ => return None,
    };
    Some(Change {
        kind,
        cause,
        from: record.active,
        to: record.passive(),
    })
}

/// What happens to the children; known before any server was asked.
pub fn children(paused: bool, desired: &Desired, deletion: Option<Deletion>, finalizer: bool) -> Children {
    match (desired, deletion) {
        _ if paused => Children::Leave,
        (_, Some(d)) if !d.holds_shards => Children::Leave,
        // The finalizer goes on first.
        (_, None) if !finalizer => Children::Leave,
        (Desired::Spec { .. }, _) => Children::Apply,
        _ => Children::Keep,
    }
}

/// The pair's own beginning and end, which no pause holds up; `None` when it is in between.
fn lifecycle(o: &Observed) -> Option<Vec<Action>> {
    match o.deletion {
        // Closed first: whoever deletes the pair must not find writes in it afterwards, and its Pods then end without waiting.
        Some(d) if !d.holds_shards && o.finalizer => {
            let open = [0, 1]
                .into_iter()
                .filter(|i| !o.paused && o.side(*i).up().is_some_and(|s| !s.read_only));
            let mut steps: Vec<_> = open.map(Action::Fence).collect();
            steps.push(Action::RemoveFinalizer);
            Some(steps)
        }
        Some(d) if !d.holds_shards => Some(vec![]),
        None if !o.finalizer => Some(vec![Action::AddFinalizer]),
        _ => None,
    }
}

fn plan(o: &Observed, state: &State, now: Timestamp, actions: &mut Vec<Action>) {
    let (later, first): (Vec<_>, Vec<_>) =
        fences(o, state).partition(|(_, may_wait)| comes_last(state, *may_wait));
    // What waited on a server that is fenced counts as executed there only afterwards: until then nobody can say whether it is errant.
    let alone = !first.is_empty() && !serves_first(state);
    actions.extend(first.into_iter().map(|(i, _)| Action::Fence(i)));
    if alone {
        return;
    }
    // What a passive server is made of may be what ails it: it is replaced rather than mended.
    if let Some(steps) = roll::outdated_passive(o, state) {
        actions.extend(steps);
        return;
    }
    actions.extend(steps(o, state));
    actions.extend(later.into_iter().map(|(i, _)| Action::Fence(i)));
    // A Pod goes only when there is nothing more urgent to be done in this pass.
    if actions.is_empty() {
        actions.extend(roll::next(o, state, now));
    }
}

/// Nobody takes writes until its steps are done.
fn serves_first(state: &State) -> bool {
    matches!(
        state,
        State::Failover(_) | State::AcceptingLoss(..) | State::Discarding | State::ActiveClosed { .. }
    )
}

/// Whether a fence comes after the steps. Those that let the active server go on without the passive one touch it alone, and go by nothing
/// that only the passive one knows: no fence that cannot be done holds them up.
fn comes_last(state: &State, may_wait: bool) -> bool {
    matches!(state, State::MemberLost(_) | State::WaitingForNobody) || serves_first(state) && may_wait
}

/// Rule P1: whoever is not the recorded active server, with the recorded data, is closed before anything else, and waits for nobody.
/// One that is being copied over has `super_read_only` off so that CLONE may drop what it has; `read_only` keeps applications out.
/// With each: whether it may be done after another one was opened, for it cannot acknowledge anything while nobody receives from it
/// (rule P6).
fn fences<'a>(o: &'a Observed, state: &'a State) -> impl Iterator<Item = (Ordinal, bool)> + 'a {
    let needed = matches!(
        state,
        State::RebuildNeeded(Rebuild::Now { .. }) | State::CloneDue(Rebuild::Now { .. })
    );
    [0, 1].into_iter().filter_map(move |i| {
        let server = o.side(i).up()?;
        // Work of moves turns it off on a passive server now and then.
        let aside = moving::works_aside(o.moving.as_ref());
        let copied = needed || o.copied_over(i) || aside;
        let may_be_open = o
            .record
            .as_ref()
            .is_some_and(|r| r.active == i && r.member(i) == Some(server.uuid.as_str()));
        let closed = server.read_only
            && (server.super_read_only || copied)
            && !server.source.enabled
            && !server.offline;
        let waits = server.source.waits && server.source.timeout == STRICT_TIMEOUT;
        (!may_be_open && !closed).then_some((i, waits || server.disk_full))
    })
}
