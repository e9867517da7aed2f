//! What is left out to see that the search notices: each safeguard is a switch of the model, not of the product.

use super::{
    observe::View,
    plans::{self, Step},
    world::{Mode, Receiver, Record},
};

/// A safeguard that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Without {
    Nothing,
    /// P2: the record is written whatever it is by then.
    Cas,
    /// P7: no lock is taken, and the record is not read again.
    Lock,
    /// P7: locks are taken, and the record is not read again after that.
    Confirm,
    /// P7: locks are taken where they are needed first, not before the first step.
    LocksFirst,
    /// P2: the server is opened before it is recorded.
    RecordFirst,
    /// P6: the receiver of the one that is promoted goes on.
    StopReceiver,
    /// P4: what it received is not applied first.
    Apply,
    /// P4: one that is no member is promoted.
    Membership,
    /// P3: `relay_log_recovery = ON`.
    RelayLogKept,
    /// P5: commits stop waiting before the one they wait for is out.
    LeaveFirst,
    /// P6: waiting commits are not ended before the source side goes off.
    OfflineMode,
    /// P8: what a server has of its own is not looked at.
    Comparing,
    /// P3: a pair of two members is opened without its source side.
    SourceOn,
    /// A member's channel is set up anew.
    KeepRelayLog,
    /// P3: former selves are not locked out.
    LockOut,
    /// P1: mysqld boots open.
    BootsClosed,
    /// P5: it joins without having reached what was committed before.
    Reach,
    /// P5: it joins without following at that moment.
    ReachFollows,
    /// P5: what lets the active server acknowledge alone, or throws something of the passive one away, is not preceded by a record.
    RecordAgain,
    /// P4: a planned switchover does not apply what arrived after it was reached.
    SwitchoverApplies,
    /// P6: a server that does not seem to receive is opened without stopping its receiver.
    OpeningStops,
    /// P8: a pass goes on after it has fenced a server, on what it saw of it before.
    FenceAlone,
    /// P3: one that joins goes on bringing what it receives to its disk once in a while.
    Synced,
    /// P5: commits that no longer wait, and are not executed yet, are not waited for.
    Barrier,
    /// P8: errant transactions are not saved before they are overwritten.
    SaveErrant,
    /// P3: mysqld is told to end while clients are connected.
    CutOffFirst,
    /// P8: an operator does not know that it has just begun to copy over a server.
    KnowsOfCopies,
    /// P3: other pairs may take from the active server.
    Bar,
    /// P4: a pair that is cloned over gives up an active server that has something of somebody's.
    GivesUpBlank,
    /// P8: what reached the passive server after it was seen empty is overwritten.
    OverwritesBlank,
}

impl Without {
    pub fn is(self, other: Self) -> bool {
        self == other
    }

    /// What an operator sees that lacks the safeguard.
    pub fn blind(self, mut v: View) -> View {
        let Some(Record {
            active,
            members,
            settled,
        }) = v.record
        else {
            return v;
        };
        let p = 1 - active;
        match self {
            Self::Membership => {
                // It takes whoever is there for a member when the active one is gone.
                if !v.answers[active] && v.answers[p] {
                    let mut members = members;
                    members[p] = Some(v.servers[p].me);
                    v.record = Some(Record {
                        active,
                        members,
                        settled,
                    });
                }
            }
            Self::Comparing if v.answers[active] && v.answers[p] => {
                let has = v.servers[active].executed;
                v.servers[p].executed &= has;
                v.servers[p].received &= has;
            }
            Self::SaveErrant if v.answers[active] && v.answers[p] => {
                v.saved |= v.servers[p].executed;
            }
            Self::LockOut => v.knows_no_strangers = true,
            Self::KnowsOfCopies => v.copying = [false; 2],
            Self::Bar => {
                for s in &mut v.servers {
                    (s.admits_others, s.outsider) = (false, false);
                }
            }
            _ => {}
        }
        v
    }

    /// What it would do.
    pub fn alter(self, v: &View, mut steps: Vec<Step>) -> Vec<Step> {
        match self {
            Self::RecordFirst => {
                let record = steps.iter().position(|s| matches!(s, Step::Record(_)));
                let open = steps.iter().position(|s| matches!(s, Step::Open(_)));
                if let (Some(r), Some(o)) = (record, open)
                    && r < o
                {
                    let record = steps.remove(r);
                    steps.push(record);
                }
            }
            Self::StopReceiver => steps.retain(|s| !matches!(s, Step::StopReceiver(_))),
            Self::Apply => steps.retain(|s| !matches!(s, Step::Apply(_))),
            Self::LeaveFirst => {
                if let [Step::Record(_), Step::SourceOff(_), ..] = steps[..] {
                    steps.swap(0, 1);
                }
            }
            Self::SourceOn => {
                if steps.iter().any(|s| matches!(s, Step::Open(_))) {
                    steps.retain(|s| !matches!(s, Step::SourceOn(_)));
                }
            }
            Self::KeepRelayLog => {
                for s in &mut steps {
                    if let (Step::Start(i), Some(r)) = (*s, v.record)
                        && r.active != i
                    {
                        *s = Step::Follow {
                            server: i,
                            source: r.active,
                        };
                    }
                }
            }
            Self::RecordAgain => {
                steps.retain(|s| !matches!((s, v.record), (Step::Record(new), Some(old)) if *new == old));
            }
            Self::Bar => steps.retain(|s| !matches!(s, Step::Bar(_))),
            Self::Synced => steps.retain(|s| !matches!(s, Step::SyncRelayLog { each: true, .. })),
            Self::SwitchoverApplies => {
                if steps.iter().any(|s| matches!(s, Step::Close(_))) {
                    steps.retain(|s| !matches!(s, Step::Apply(_)));
                }
            }
            Self::OpeningStops => {
                // A failover records another one first.
                let fails_over = matches!(steps.first(), Some(Step::Record(_) | Step::Close(_)));
                steps.retain(|s| match s {
                    Step::StopReceiver(i) => fails_over || v.servers[*i].receiver != Receiver::Off,
                    Step::Apply(i) => fails_over || v.servers[*i].unapplied() != 0,
                    _ => true,
                });
            }
            Self::FenceAlone => {
                // What would be done if it were closed already.
                if let [Step::Fence(i)] = steps[..]
                    && v.record.is_some_and(|r| r.active != i)
                {
                    let mut closed = *v;
                    let s = &mut closed.servers[i];
                    (s.mode, s.source_on, s.offline) = (Mode::Closed, false, false);
                    steps.extend(plans::steps(&closed));
                }
            }
            Self::Reach => {
                if steps.iter().any(|s| matches!(s, Step::SourceOn(_))) {
                    steps.retain(|s| !matches!(s, Step::Reach { .. }));
                }
            }
            _ => {}
        }
        steps
    }
}
