//! What the shipped core decides, as steps of the model. Decisions are kept: worlds that look the same get the same one.

use super::{
    acts,
    observe::{self, View},
    safeguards::Without,
    world::{Me, Record, SELVES, Txs},
};
use crate::core::{
    credentials::replication_user,
    pair::{
        Action, Observed, State, Wish, decide,
        observed::{Ordinal, Record as Recorded},
    },
};
use std::collections::HashMap;

/// A list of steps that an operator has still to take; the default is the empty one.
pub type PlanId = u16;

/// An [`Action`] in the model's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    Nothing,
    /// What is done for moves: it takes the server's lock, and changes nothing that is in the model.
    Aside(usize),
    /// Nobody of another pair takes from it any more.
    Bar(usize),
    Admit(usize),
    Fence(usize),
    Record(Record),
    Open(usize),
    Close(usize),
    Reach {
        server: usize,
        of: usize,
    },
    StopReceiver(usize),
    Apply(usize),
    Discard(usize),
    /// Each event to the disk, or many at once.
    SyncRelayLog {
        server: usize,
        each: bool,
    },
    SourceOn(usize),
    SourceOff(usize),
    /// Incarnations, a bit each.
    Accounts {
        server: usize,
        followers: u8,
    },
    LockOut {
        server: usize,
        users: u8,
    },
    SaveErrant {
        server: usize,
        set: Txs,
    },
    Replace(usize),
    Follow {
        server: usize,
        source: usize,
    },
    Start(usize),
    Stop(usize),
    Rebuild {
        server: usize,
        donor: usize,
    },
    CloneFrom {
        server: usize,
        known: Txs,
    },
    EndClone(usize),
    Adopt {
        server: usize,
        of: usize,
    },
    DeletePod(usize),
}

/// What an operator makes of what it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    pub plan: PlanId,
    pub healthy: bool,
    /// `spec.preferredActive` was acted upon, or will not be.
    pub wish_is_settled: bool,
}

/// Decisions and lists of steps that came up.
pub struct Plans {
    without: Without,
    lists: Vec<Vec<Step>>,
    ids: HashMap<Vec<Step>, PlanId>,
    decided: HashMap<View, Decided>,
}

impl Plans {
    pub fn new(without: Without) -> Self {
        Self {
            without,
            lists: vec![vec![]],
            ids: HashMap::from([(vec![], 0)]),
            decided: HashMap::new(),
        }
    }

    /// The next step, and what is left after it.
    pub fn next(&mut self, plan: PlanId) -> Option<(Step, PlanId)> {
        let list = self.lists[usize::from(plan)].clone();
        let (first, rest) = list.split_first()?;
        Some((*first, self.intern(rest.to_vec())))
    }

    /// The servers whose locks are taken before the first step: a fence takes its own when it comes to it, for it may have to wait.
    pub fn servers(&self, plan: PlanId) -> [bool; 2] {
        let mut all = [false; 2];
        if self.without.is(Without::LocksFirst) {
            return all;
        }
        for step in &self.lists[usize::from(plan)] {
            let more = match step {
                Step::Reach { of, .. } | Step::Adopt { of, .. } => Some(*of),
                _ => None,
            };
            let own = acts::server_of(*step).filter(|_| !matches!(step, Step::Fence(_)));
            for i in own.into_iter().chain(more) {
                all[i] = true;
            }
        }
        all
    }

    pub fn intern(&mut self, list: Vec<Step>) -> PlanId {
        if let Some(id) = self.ids.get(&list) {
            return *id;
        }
        let id = PlanId::try_from(self.lists.len()).expect("more lists of steps than numbers");
        self.lists.push(list.clone());
        self.ids.insert(list, id);
        id
    }

    /// What the core decides upon this view.
    pub fn decide(&mut self, view: View) -> Decided {
        if let Some(d) = self.decided.get(&view) {
            return *d;
        }
        let decision = decide(&observe::observed(&view), observe::now());
        let steps = self.without.alter(&view, steps(&view));
        let decided = Decided {
            plan: self.intern(steps),
            healthy: decision.state == State::Healthy,
            wish_is_settled: view.wish.is_some() && matches!(decision.wish, Wish::Done | Wish::Refused(_)),
        };
        self.decided.insert(view, decided);
        decided
    }

    /// In words, what the core says of this view.
    pub fn explain(view: &View) -> String {
        let d = decide(&observe::observed(view), observe::now());
        format!("{:?}: {:?}", d.state, d.actions)
    }

    /// Views that were decided upon.
    pub fn views(&self) -> usize {
        self.decided.len()
    }
}

/// The steps that the core decides upon.
pub fn steps(view: &View) -> Vec<Step> {
    let observed = observe::observed(view);
    let decision = decide(&observed, observe::now());
    decision.actions.iter().map(|a| step(&observed, a)).collect()
}

/// Every action has its step: a new one does not compile until it is here and in `acts.rs`.
fn step(o: &Observed, action: &Action) -> Step {
    match action {
        // The model's pair has its finalizer, and is not deleted.
        Action::AddFinalizer | Action::RemoveFinalizer => panic!("{action:?}"),
        // Commits wait for ever in the model.
        Action::Timeout { .. } => Step::Nothing,
        Action::Fence(i) => Step::Fence(*i),
        Action::Record(r) => {
            assert_eq!(r.epoch, o.epoch + 1, "each change raises the epoch by one");
            Step::Record(recorded(r))
        }
        Action::Open(i) => Step::Open(*i),
        Action::Close(i) => Step::Close(*i),
        Action::Reach { server, of } => Step::Reach {
            server: *server,
            of: *of,
        },
        Action::StopReceiver(i) => Step::StopReceiver(*i),
        Action::Apply(i) => Step::Apply(*i),
        Action::Discard(i) => Step::Discard(*i),
        Action::SyncRelayLog { server, every } => Step::SyncRelayLog {
            server: *server,
            each: *every == 1,
        },
        Action::SourceOn { server, .. } => Step::SourceOn(*server),
        Action::SourceOff(i) => Step::SourceOff(*i),
        Action::Accounts { server, followers } => Step::Accounts {
            server: *server,
            followers: selves(|me| followers.contains(&observe::uuid(me))),
        },
        Action::LockOut { server, users } => Step::LockOut {
            server: *server,
            users: selves(|me| users.contains(&replication_user(&observe::uuid(me)))),
        },
        Action::SaveErrant { server, set } => Step::SaveErrant {
            server: *server,
            set: observe::txs(set),
        },
        Action::Replace { place, .. } => Step::Replace(*place),
        Action::Follow { server, source } => Step::Follow {
            server: *server,
            source: *source,
        },
        Action::Start(i) => Step::Start(*i),
        Action::Stop(i) => Step::Stop(*i),
        Action::Rebuild { server, donor } => Step::Rebuild {
            server: *server,
            donor: *donor,
        },
        Action::CloneFrom { server, known, .. } => Step::CloneFrom {
            server: *server,
            known: observe::txs(known),
        },
        Action::EndClone(i) => Step::EndClone(*i),
        Action::Adopt { server, of, .. } => Step::Adopt {
            server: *server,
            of: *of,
        },
        Action::Shut(i)
        | Action::Unshut { server: i, .. }
        | Action::Quiet(i)
        | Action::Unlink(i)
        | Action::Mend(i) => Step::Aside(*i),
        Action::Bar(i) => Step::Bar(*i),
        Action::Admit(i) => Step::Admit(*i),
        Action::DeletePod { place, .. } => Step::DeletePod(*place),
    }
}

fn recorded(r: &Recorded) -> Record {
    let member = |place: Ordinal| {
        let uuid = r.member(place)?;
        (0..SELVES).find(|me| observe::uuid(*me) == uuid)
    };
    assert!(r.given_up.is_empty(), "nobody gives anything up in the model");
    Record {
        active: r.active,
        members: [member(0), member(1)],
        settled: observe::txs(&r.settled),
    }
}

fn selves(is: impl Fn(Me) -> bool) -> u8 {
    (0..SELVES).filter(|me| is(*me)).fold(0, |set, me| set | 1 << me)
}
