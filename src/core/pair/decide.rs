//! What is done about a pair: pure and total.

use super::{
    action::Action,
    compare::{self, Both},
    consent, moving,
    notes::notes,
    observed::{Deletion, Desired, Observed, Ordinal, Record, STRICT_TIMEOUT},
    promotion::{self, Unfit},
    roll,
    state::{self, Circle, EACH_EVENT, MANY_EVENTS, Rebuild, State, Why},
    verdict,
    wish::{Wish, wish},
};
use crate::{
    api::{conditions::Overall, mysql_pair::ChangeKind},
    core::{gtid::GtidSet, note::Note},
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

/// The second column of the table.
fn steps(o: &Observed, state: &State) -> Vec<Action> {
    let epoch = o.epoch + 1;
    let without = |active: Ordinal, given_up: GtidSet| {
        let uuid = o.side(active).up().map(|s| s.uuid.clone());
        let mut in_sync = [None, None];
        if let Some(member) = in_sync.get_mut(active) {
            *member = uuid;
        }
        Action::Record(Record {
            active,
            epoch,
            in_sync,
            settled: GtidSet::new(),
            given_up,
        })
    };
    let alone = |active: Ordinal| without(active, GtidSet::new());
    let Some(record) = &o.record else {
        return match *state {
            State::Electing { active } => vec![alone(active)],
            _ => vec![],
        };
    };
    let (active, passive) = (record.active, record.passive());
    let timeout = o.acknowledgement_timeout;
    let unapplied = |i| o.side(i).up().map_or_else(GtidSet::new, promotion::unapplied);
    let with = |uuid| Action::Record(with_member(record, epoch, passive, uuid));
    match state {
        // The order of P2, P6, P4.
        State::Failover(_) | State::AcceptingLoss(_, Unfit::NotMember) => opened(
            o,
            passive,
            vec![
                alone(passive),
                Action::StopReceiver(passive),
                Action::Apply(passive),
            ],
        ),
        // What was received is not known, or cannot be applied.
        State::AcceptingLoss(..) => opened(
            o,
            passive,
            vec![without(passive, unapplied(passive)), Action::Discard(passive)],
        ),
        State::ActiveUnfit { .. } => vec![Action::StopReceiver(active), Action::Apply(active)],
        State::Discarding => vec![
            Action::Record(Record {
                epoch,
                given_up: record.given_up.union(&unapplied(active)),
                ..record.clone()
            }),
            Action::Discard(active),
        ],
        State::ActiveClosed { .. } => opening(o, record),
        State::SwitchOver(Why::Cloned) => {
            let adopt = Both::of(o, record).and_then(Both::adopt);
            let steps = |adopt| vec![Action::Close(active), adopt, alone(passive)];
            adopt.map_or_else(Vec::new, |adopt| opened(o, passive, steps(adopt)))
        }
        State::SwitchOver(_) => {
            // What it takes from other pairs would go on after it was closed.
            let mut steps: Vec<_> = o.moving.iter().map(|_| Action::Quiet(active)).collect();
            steps.extend([
                Action::Close(active),
                Action::Reach {
                    server: passive,
                    of: active,
                },
                Action::StopReceiver(passive),
                // For what another operator let through, that opened the active one again in between.
                Action::Apply(passive),
                alone(passive),
            ]);
            opened(o, passive, steps)
        }
        // The order of P5.
        State::MemberLost(_) => vec![with(None), Action::SourceOff(active)],
        State::WaitingForNobody => vec![again(record, epoch), Action::SourceOff(active)],
        State::OtherTimeout => vec![Action::Timeout {
            server: active,
            timeout,
        }],
        State::AccountsMissing => {
            let uuids = [active, passive].map(|i| o.side(i).up().map(|s| s.uuid.clone()));
            vec![Action::Accounts {
                server: active,
                followers: uuids.into_iter().flatten().collect(),
            }]
        }
        State::Strangers(users) => vec![Action::LockOut {
            server: active,
            users: users.clone(),
        }],
        State::Outsiders(_) => vec![Action::Bar(active)],
        State::ReverseChannelOpen => vec![Action::Stop(active)],
        State::ChannelsLeft => vec![Action::Unlink(passive)],
        State::Replacing => vec![Action::Replace {
            place: passive,
            uid: o.side(passive).pod.as_ref().map(|p| p.uid.clone()),
        }],
        State::RebuildNeeded(Rebuild::Now { .. }) => vec![
            settled(o, record, epoch),
            Action::Rebuild {
                server: passive,
                donor: active,
            },
        ],
        State::CloneDue(Rebuild::Now { .. }) => std::iter::once(settled(o, record, epoch))
            .chain(Both::of(o, record).and_then(Both::clone_from))
            .collect(),
        State::CloneUnwanted => vec![Action::EndClone(passive)],
        // The consent holds at this epoch only, and must not be there any more when something else asks for one.
        State::RebuildNeeded(Rebuild::Later { .. } | Rebuild::Impossible) if consent::settles(o) => {
            vec![settled(o, record, epoch)]
        }
        State::Errant { set, too_many: false } => vec![Action::SaveErrant {
            server: passive,
            set: set.clone(),
        }],
        State::CatchingUp { slowly: true } => vec![
            again(record, epoch),
            Action::SyncRelayLog {
                server: passive,
                every: MANY_EVENTS,
            },
        ],
        State::PassiveDetached { waits: false } => vec![
            again(record, epoch),
            Action::Follow {
                server: passive,
                source: active,
            },
        ],
        // What ails the applier of one that should take over may be gone.
        State::PassiveStopped | State::NoFailover(_, Unfit::Applier(_)) => vec![Action::Start(passive)],
        // What stopped it may be gone: it is tried again, and says so again if not.
        State::Broken { at, .. } => vec![Action::Start(*at)],
        State::CircleOpen(Circle::Detached) => vec![Action::Follow {
            server: active,
            source: passive,
        }],
        // One that has ended because another one did would end that one, too.
        State::CircleOpen(Circle::Stopped) if takes_from_others(o, active) => {
            vec![Action::Mend(active), Action::Start(active)]
        }
        State::CircleOpen(Circle::Stopped) => vec![Action::Start(active)],
        State::OutOfStep => vec![Action::Mend(active)],
        // What is received from now on is on the disk when it is acknowledged. Commits wait, then a position is reached that was sampled after that: so nothing is acknowledged that it lacks.
        State::NotRecorded { waits: false } => {
            let mut steps = vec![Action::SyncRelayLog {
                server: passive,
                every: EACH_EVENT,
            }];
            if o.moving.is_some() {
                // It may take over from now on; and it is taken from, not the active one.
                steps.extend([
                    Action::Shut(passive),
                    Action::Unshut {
                        server: passive,
                        active: false,
                    },
                    Action::Admit(passive),
                    Action::Bar(active),
                ]);
            }
            steps.extend([
                Action::SourceOn {
                    server: active,
                    timeout,
                },
                Action::Reach {
                    server: passive,
                    of: active,
                },
                with(o.side(passive).up().map(|s| s.uuid.clone())),
            ]);
            steps
        }
        State::WaitingForServers
        | State::SameServerUuid
        | State::Diverged { .. }
        | State::Electing { .. }
        | State::NoFailover(..)
        | State::ActiveDenied
        | State::PassiveUnavailable
        | State::Rebuilding
        | State::NoSemiSync { .. }
        | State::PassiveDetached { waits: true }
        | State::NotRecorded { waits: true }
        | State::RebuildNeeded(Rebuild::Later { .. } | Rebuild::Impossible)
        | State::CloneDue(Rebuild::Later { .. } | Rebuild::Impossible)
        | State::Errant { too_many: true, .. }
        | State::CatchingUp { slowly: false }
        | State::CircleOpen(Circle::Connecting)
        | State::Healthy => vec![],
    }
}

/// These steps, and then the server is opened: by then it is on record, so the record of the cluster is read after that (`docs/split.md`). With what is
/// to be READ ONLY before, for nobody may write that; with what is to be open after it, for nobody else need wait for that.
fn opened(o: &Observed, server: Ordinal, mut steps: Vec<Action>) -> Vec<Action> {
    if o.moving.is_some() {
        steps.push(Action::Shut(server));
    }
    open(o, server, &mut steps);
    steps
}

fn open(o: &Observed, server: Ordinal, steps: &mut Vec<Action>) {
    steps.push(Action::Open(server));
    if o.moving.is_some() {
        steps.push(Action::Unshut { server, active: true });
    }
}

/// Whether the server has channels that take from other pairs.
fn takes_from_others(o: &Observed, place: Ordinal) -> bool {
    o.side(place)
        .up()
        .is_some_and(|s| !moving::channels(s).is_empty())
}

/// What it received is applied before it is opened, and from then on it receives nothing (rules P4 and P6); with two members commits wait
/// from the first one on (P3).
fn opening(o: &Observed, record: &Record) -> Vec<Action> {
    let active = record.active;
    let Some(server) = o.side(active).up() else {
        return vec![];
    };
    // Also when it seems to receive nothing: another operator may have just started it.
    let mut steps = vec![Action::StopReceiver(active), Action::Apply(active)];
    if record.members() == 2 {
        if o.moving.is_some() {
            // Nobody of another pair acknowledges once commits wait.
            steps.extend([Action::Shut(active), Action::Bar(active)]);
        }
        steps.push(Action::SourceOn {
            server: active,
            timeout: o.acknowledgement_timeout,
        });
        open(o, active, &mut steps);
        return steps;
    }
    steps.push(again(record, o.epoch + 1));
    if server.source.enabled {
        steps.push(Action::SourceOff(active));
    }
    opened(o, active, steps)
}

/// The same once more, under another epoch. Whatever lets the active server acknowledge alone again, or takes something from the passive one
/// that a member needs, is preceded by it: another operator may be about to record the passive one in, on what it saw before, and must find that void.
fn again(record: &Record, epoch: i64) -> Action {
    Action::Record(Record {
        epoch,
        ..record.clone()
    })
}

/// The same once more, with what a copy may overwrite.
fn settled(o: &Observed, record: &Record, epoch: i64) -> Action {
    Action::Record(Record {
        epoch,
        settled: Both::of(o, record).map_or_else(|| record.settled.clone(), Both::overwritable),
        ..record.clone()
    })
}

fn with_member(record: &Record, epoch: i64, place: Ordinal, uuid: Option<String>) -> Record {
    let mut new = Record {
        epoch,
        ..record.clone()
    };
    if uuid.is_some() {
        (new.settled, new.given_up) = (GtidSet::new(), GtidSet::new());
    }
    if let Some(member) = new.in_sync.get_mut(place) {
        *member = uuid;
    }
    new
}
