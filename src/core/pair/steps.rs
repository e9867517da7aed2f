//! What is done in each state: the second column of the table in `docs/failover.md`.

use super::{
    action::Action,
    compare::Both,
    consent, moving,
    observed::{Observed, Ordinal, Record},
    promotion::{self, Unfit},
    state::{Circle, EACH_EVENT, MANY_EVENTS, Rebuild, State, Why},
};
use crate::core::gtid::GtidSet;

/// The steps, in this order.
pub(super) fn steps(o: &Observed, state: &State) -> Vec<Action> {
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
