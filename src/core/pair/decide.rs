//! What is done about a pair: pure and total.

use super::{
    observed::{Deletion, Desired, Observed, Ordinal, Record, other},
    reasons, roll,
    state::{self, Circle, Lost, Rebuild, State},
    verdict,
};
use crate::{api::conditions::Overall, core::note::Note};
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// One step. Each is safe to repeat; they are taken in order, and the first that fails ends the pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Puts the finalizer on.
    AddFinalizer,
    /// Takes the finalizer off.
    RemoveFinalizer,
    /// `super_read_only = ON`.
    Fence(Ordinal),
    /// Writes the record by compare-and-swap (rule P2). Always the last step of a pass: what follows from it is decided anew.
    Record(Record),
    /// `read_only = OFF`, on the recorded active server alone (rule P1).
    Open(Ordinal),
    /// Sets up the accounts, in the binary log.
    Accounts(Ordinal),
    /// Points the channel of `server` at `source` anew and starts it.
    Follow {
        /// The one that follows.
        server: Ordinal,
        /// The one that is followed.
        source: Ordinal,
    },
    /// Starts the channel as it is.
    Start(Ordinal),
    /// Stops the channel.
    Stop(Ordinal),
    /// Copies `donor` over `server` by CLONE, whose mysqld starts anew afterwards.
    Rebuild {
        /// The one that is overwritten.
        server: Ordinal,
        /// The one that is copied.
        donor: Ordinal,
    },
    /// Deletes exactly this Pod; the StatefulSet makes it again, of the present specification.
    DeletePod {
        /// Its place.
        place: Ordinal,
        /// Its UID.
        uid: String,
        /// Nothing serves in it: it need not be given time for a clean shutdown, which one that starts over and over may never hear of.
        down: bool,
    },
}

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
    /// When to look again.
    pub requeue: Duration,
}

/// After something was done.
const AT_ONCE: Duration = Duration::from_millis(50);
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
    let notes = notes(o, &state, &actions, &overall);
    let requeue = match &overall {
        Overall::Stalled { .. } => STALLED,
        _ if !actions.is_empty() => AT_ONCE,
        Overall::Ready { .. } => HEALTHY,
        Overall::Working { .. } => WORKING,
    };
    Decision {
        children,
        actions,
        overall,
        notes,
        following: state::passive_follows(o),
        requeue,
        state,
    }
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
        Some(d) if !d.holds_shards && o.finalizer => Some(vec![Action::RemoveFinalizer]),
        Some(d) if !d.holds_shards => Some(vec![]),
        None if !o.finalizer => Some(vec![Action::AddFinalizer]),
        _ => None,
    }
}

fn plan(o: &Observed, state: &State, now: Timestamp, actions: &mut Vec<Action>) {
    actions.extend(fences(o, state));
    // What a passive server is made of may be what ails it: it is replaced rather than mended.
    if let Some(step) = roll::outdated_passive(o, state) {
        actions.push(step);
        return;
    }
    actions.extend(steps(o, state));
    // A Pod goes only when there is nothing more urgent to be done in this pass.
    if actions.is_empty() {
        actions.extend(roll::next(o, state, now));
    }
}

/// Rule P1: whoever is not the recorded active server, with the recorded data, is closed before anything else. One that is
/// being copied over has `super_read_only` off so that CLONE may drop what it has; `read_only` keeps applications out.
fn fences<'a>(o: &'a Observed, state: &'a State) -> impl Iterator<Item = Action> + 'a {
    let copied = matches!(state, State::Rebuilding | State::RebuildNeeded(_));
    [0, 1].into_iter().filter_map(move |i| {
        let server = o.side(i).up()?;
        let may_be_open = o
            .record
            .as_ref()
            .is_some_and(|r| r.active == i && r.member(i) == Some(server.uuid.as_str()));
        let closed = server.read_only && (server.super_read_only || copied);
        (!may_be_open && !closed).then_some(Action::Fence(i))
    })
}

/// The second column of the table.
fn steps(o: &Observed, state: &State) -> Vec<Action> {
    let epoch = o.epoch + 1;
    let Some(record) = &o.record else {
        let State::Electing { active } = *state else {
            return vec![];
        };
        let uuid = o.side(active).up().map(|s| s.uuid.clone());
        let mut in_sync = [None, None];
        if let Some(member) = in_sync.get_mut(active) {
            *member = uuid;
        }
        return vec![Action::Record(Record {
            active,
            epoch,
            in_sync,
        })];
    };
    let (active, passive) = (record.active, record.passive());
    match state {
        State::ActiveClosed => vec![Action::Open(active)],
        State::AccountsMissing => vec![Action::Accounts(active)],
        State::MemberLost(_) => vec![Action::Record(with_member(record, epoch, passive, None))],
        State::ReverseChannelOpen => vec![Action::Stop(active)],
        State::RebuildNeeded(Rebuild::Now { .. }) => vec![Action::Rebuild {
            server: passive,
            donor: active,
        }],
        State::PassiveDetached => vec![Action::Follow {
            server: passive,
            source: active,
        }],
        State::PassiveStopped => vec![Action::Start(passive)],
        // What stopped it may be gone: it is tried again, and says so again if not.
        State::Broken { at, .. } => vec![Action::Start(*at)],
        State::CircleOpen(Circle::Detached) => vec![Action::Follow {
            server: active,
            source: passive,
        }],
        State::CircleOpen(Circle::Stopped) => vec![Action::Start(active)],
        State::NotRecorded => {
            let uuid = o.side(passive).up().map(|s| s.uuid.clone());
            vec![Action::Record(with_member(record, epoch, passive, uuid))]
        }
        State::WaitingForServers
        | State::SameServerUuid
        | State::Diverged { .. }
        | State::Electing { .. }
        | State::ActiveUnavailable
        | State::ActiveDataLost
        | State::PassiveUnavailable
        | State::Rebuilding
        | State::RebuildNeeded(Rebuild::Later { .. } | Rebuild::Impossible)
        | State::Errant(_)
        | State::CatchingUp
        | State::CircleOpen(Circle::Connecting)
        | State::Healthy => vec![],
    }
}

fn with_member(record: &Record, epoch: i64, place: Ordinal, uuid: Option<String>) -> Record {
    let mut new = Record {
        epoch,
        ..record.clone()
    };
    if let Some(member) = new.in_sync.get_mut(place) {
        *member = uuid;
    }
    new
}

/// What people are told: each once, at its transition.
fn notes(o: &Observed, state: &State, actions: &[Action], overall: &Overall) -> Vec<Note> {
    let mut notes = vec![];
    for action in actions {
        notes.extend(note(o, state, action));
    }
    for i in [0, 1] {
        let was = o.before.states.get(i).and_then(Option::as_deref);
        if was == Some(verdict::states::REBUILDING)
            && let Some(s) = o.side(i).up()
            && s.clone
                .as_ref()
                .is_some_and(|c| c.stage == super::observed::CloneStage::Completed)
        {
            notes.push(Note::normal(
                reasons::PASSIVE_REBUILT,
                format!("{} was copied from {}", o.pod_name(i), o.pod_name(other(i))),
            ));
        }
    }
    if overall.reason() == reasons::ROLLING && o.before.reason.as_deref() != Some(reasons::ROLLING) {
        notes.push(Note::normal(
            reasons::ROLL_STARTED,
            "the specification of the servers changed; they are replaced one at a time, the passive one first",
        ));
    }
    match overall {
        Overall::Ready { message, .. } if !o.before.ready => {
            notes.push(Note::normal(reasons::PAIR_READY, message.clone()));
        }
        Overall::Stalled { reason, message } if o.before.stalled.as_deref() != Some(*reason) => {
            notes.push(Note::warning(reason, message.clone()));
        }
        _ => {}
    }
    notes
}

fn note(o: &Observed, state: &State, action: &Action) -> Option<Note> {
    let name = |i| o.pod_name(i);
    Some(match action {
        Action::Fence(i) => Note::warning(
            reasons::SERVER_FENCED,
            format!(
                "{} was open and is not the recorded active server; it was closed",
                name(*i)
            ),
        ),
        Action::Record(r) => match state {
            State::MemberLost(why) => Note::warning(
                reasons::PASSIVE_LEFT,
                format!(
                    "{} is out (epoch {}): {}",
                    name(r.passive()),
                    r.epoch,
                    why.describe()
                ),
            ),
            State::NotRecorded => Note::normal(
                reasons::PASSIVE_JOINED,
                format!(
                    "{} follows and has everything (epoch {})",
                    name(r.passive()),
                    r.epoch
                ),
            ),
            _ => Note::normal(
                reasons::ACTIVE_RECORDED,
                format!("{} is the active server (epoch {})", name(r.active), r.epoch),
            ),
        },
        Action::Open(i) => Note::normal(reasons::ACTIVE_OPENED, format!("{} takes writes", name(*i))),
        Action::Rebuild { server, donor } => Note::normal(
            reasons::REBUILD_STARTED,
            format!("{} is being copied from {}", name(*server), name(*donor)),
        ),
        Action::DeletePod { place, .. } => Note::normal(
            reasons::POD_REPLACED,
            format!("{}: {}", name(*place), roll::why(o, *place)),
        ),
        Action::AddFinalizer
        | Action::RemoveFinalizer
        | Action::Accounts(_)
        | Action::Follow { .. }
        | Action::Start(_)
        | Action::Stop(_) => return None,
    })
}

impl Lost {
    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::OtherData => "it came back with another data folder",
            Self::Errant => "it has transactions that the active server lacks",
            Self::Behind => "the active server no longer has the binary logs that it would need",
            Self::Adrift => "it has not followed for 30 seconds",
        }
    }
}
