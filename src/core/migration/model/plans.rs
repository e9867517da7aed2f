//! What the shipped core decides, as steps of the model. Decisions are kept: worlds that look the same get the same one.

use super::{
    observe::{self, View},
    safeguards::Without,
    world::{Record, Shards, Txs},
};
use crate::{
    api::conditions::Overall,
    core::migration::{Action, Change, Observed, Place, State, decide},
};
use std::collections::HashMap;

/// A list of steps that an operator has still to take; the default is the empty one.
pub type PlanId = u16;

/// A [`Change`] in the model's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edit {
    Seeded(Shards, Txs),
    Counted(usize, Txs),
    Follow,
    Verified(Shards),
    Unverified(Shards),
    Begin(Shards),
    Undo,
    CutOver,
    Retain,
    Resume,
    CleanUp,
    End,
}

/// An [`Action`] in the model's numbers. Servers are numbered 0 to 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    Record(Edit),
    Confirm,
    Fence(usize, Shards),
    Unfence(usize, Shards),
    Reach {
        server: usize,
        of: usize,
        filter: Shards,
    },
    Count(usize, Txs),
    Point {
        at: usize,
        to: u8,
        filter: Shards,
    },
    Start(usize, Shards),
    Stop(usize),
    Remove(usize),
    Seed(Shards),
    Verify(usize, Shards),
    Recheck(usize, Shards),
    StopWork,
    /// None of these has a channel.
    Unlinked(u8),
    Drop(usize, Shards),
}

/// What an operator makes of what it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    pub plan: PlanId,
    /// A person is waited for.
    pub differs: bool,
    /// All is kept as it is, or nothing is left to be kept.
    pub rests: bool,
}

/// Decisions and lists of steps that came up.
pub struct Plans {
    without: Without,
    lists: Vec<Vec<Step>>,
    ids: HashMap<Vec<Step>, PlanId>,
    decided: HashMap<View, Decided>,
    edited: HashMap<(Record, Edit), Option<Record>>,
}

impl Plans {
    pub fn new(without: Without) -> Self {
        Self {
            without,
            lists: vec![vec![]],
            ids: HashMap::from([(vec![], 0)]),
            decided: HashMap::new(),
            edited: HashMap::new(),
        }
    }

    /// The next step, and what is left after it.
    pub fn next(&mut self, plan: PlanId) -> Option<(Step, PlanId)> {
        let (first, rest) = self.lists[usize::from(plan)].split_first()?;
        let (first, rest) = (*first, rest.to_vec());
        Some((first, self.intern(rest)))
    }

    /// The servers whose locks are taken before the first step.
    pub fn locks(&self, plan: PlanId) -> u8 {
        self.lists[usize::from(plan)]
            .iter()
            .fold(0, |all, step| all | locks(*step))
    }

    fn intern(&mut self, list: Vec<Step>) -> PlanId {
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
        let observed = observe::observed(&view);
        let decision = decide(&observed, observe::now(&view));
        let steps = decision
            .actions
            .iter()
            .filter_map(|a| step(&observed, a))
            .collect();
        let steps = self.without.alter(&view, steps);
        let decided = Decided {
            plan: self.intern(steps),
            differs: matches!(decision.state, State::Different { .. })
                && matches!(decision.overall, Overall::Stalled { .. }),
            rests: matches!(decision.state, State::Retaining | State::Gone),
        };
        self.decided.insert(view, decided);
        decided
    }

    /// The record after a transition: the shipped one.
    pub fn edit(&mut self, record: Record, edit: Edit) -> Option<Record> {
        *self
            .edited
            .entry((record, edit))
            .or_insert_with(|| observe::edited(&record, edit))
    }

    /// In words, what the core says of this view.
    pub fn explain(view: &View) -> String {
        let d = decide(&observe::observed(view), observe::now(view));
        format!("{:?}: {:?}", d.state, d.actions)
    }

    /// Views that were decided upon.
    pub fn views(&self) -> usize {
        self.decided.len()
    }
}

/// The servers that a step needs the locks of.
pub fn locks(step: Step) -> u8 {
    match step {
        Step::Record(_) | Step::Confirm | Step::Verify(..) | Step::Recheck(..) | Step::StopWork => 0,
        Step::Fence(at, _)
        | Step::Unfence(at, _)
        | Step::Point { at, .. }
        | Step::Start(at, _)
        | Step::Stop(at)
        | Step::Remove(at)
        | Step::Drop(at, _) => 1 << at,
        Step::Reach { server, of, .. } => 1 << server | 1 << of,
        Step::Count(end, _) => 3 << (2 * end),
        Step::Seed(_) => 0b1100,
        Step::Unlinked(all) => all,
    }
}

/// Every action has its step: a new one does not compile until it is here and in `acts.rs`. But for the one that only waits, before anything is
/// blocked: nothing safe depends on it.
fn step(o: &Observed, action: &Action) -> Option<Step> {
    let at = |p: &Place| p.end as usize * 2 + p.server;
    let set = observe::shards;
    let step = match action {
        Action::Record(change) => Step::Record(edit(o, change)),
        Action::Confirm(pairs) => {
            assert_eq!(*pairs, o.pairs());
            Step::Confirm
        }
        Action::Fence { at: p, shards } => Step::Fence(at(p), set(shards)),
        Action::Unfence { at: p, shards } => Step::Unfence(at(p), set(shards)),
        Action::Reach {
            server, of, filter, ..
        } => Step::Reach {
            server: at(server),
            of: at(of),
            filter: set(filter),
        },
        Action::Count { end, gtid } => Step::Count(*end as usize, observe::txs(gtid)),
        Action::Point {
            at: p,
            source,
            filter,
        } => Step::Point {
            at: at(p),
            to: source.server as u8,
            filter: set(filter),
        },
        Action::StartChannel { at: p, filter } => Step::Start(at(p), set(filter)),
        Action::StopChannel(p) => Step::Stop(at(p)),
        Action::RemoveChannel(p) => Step::Remove(at(p)),
        Action::Seed { into, shards } => {
            assert_eq!(*into as usize, 1, "no shard of the model goes the opposite way");
            Step::Seed(set(shards))
        }
        Action::Verify { at, shards } => Step::Verify(*at as usize, set(shards)),
        Action::Recheck { at, shards, .. } => Step::Recheck(*at as usize, set(shards)),
        Action::StopWork => Step::StopWork,
        Action::Unlinked(all) => Step::Unlinked(all.iter().fold(0, |all, p| all | 1 << at(p))),
        Action::Drop { at: p, shards } => Step::Drop(at(p), set(shards)),
        // The model's clients end their transactions.
        Action::EndTransaction { .. } => panic!("{action:?}"),
        Action::Approach { .. } => return None,
    };
    let needed = action.locks().iter().fold(0, |all, p| all | 1 << at(p));
    assert_eq!(locks(step), needed, "{action:?}");
    Some(step)
}

fn edit(o: &Observed, change: &Change) -> Edit {
    let set = observe::shards;
    match change {
        Change::Seeded { shards, gtid } => Edit::Seeded(set(shards), observe::txs(gtid)),
        Change::Counted { end, gtid } => Edit::Counted(*end as usize, observe::txs(gtid)),
        // Whole pairs are cloned in the model of a pair.
        Change::CopyRather => panic!("{change:?}"),
        Change::Follow => Edit::Follow,
        Change::Verified(shards) => Edit::Verified(set(shards)),
        Change::Unverified(shards) => Edit::Unverified(set(shards)),
        Change::BeginBatch(batch) => Edit::Begin(set(batch)),
        // Numbers are not counted in the model: an operator either means the batch on record, or not.
        Change::UndoBatch { number } => {
            assert_eq!(o.mv().map(|m| m.batch_number), Some(*number));
            Edit::Undo
        }
        Change::CutOver { number } => {
            assert_eq!(o.record.batches + 1, *number);
            Edit::CutOver
        }
        Change::Retain { .. } => Edit::Retain,
        Change::Resume => Edit::Resume,
        Change::CleanUp => Edit::CleanUp,
        Change::EndMove => Edit::End,
    }
}
