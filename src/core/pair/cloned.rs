//! A pair that has nothing, and that another pair is cloned over: its passive server first, which takes over then; the other one is copied as any that
//! has nothing.

use super::{
    action::Action,
    compare::Both,
    observed::{CloneRun, CloneStage, ServerState},
    state::{State, Why},
};
use crate::{api::names, core::gtid::GtidSet};
use k8s_openapi::jiff::Timestamp;

/// Of a passive server that is no member: whether it is to be cloned over, or was.
pub(super) fn due(b: Both<'_>, now: Timestamp) -> Option<State> {
    if b.clone_wanted() {
        return Some(State::CloneDue(b.rebuild(now)));
    }
    b.cloned()?;
    let waits = b.o.no_switchover_before.is_some_and(|t| t > now);
    Some(if waits {
        State::Rebuilding
    } else {
        State::SwitchOver(Why::Cloned)
    })
}

impl<'a> Both<'a> {
    /// Another pair is to be cloned over this one, which has nothing of anyone's.
    pub fn clone_wanted(self) -> bool {
        let ready = |s: &ServerState| s.blank() && s.can_clone;
        self.o.cloned_from().is_some() && ready(self.active) && ready(self.passive)
    }

    /// What had been executed when there was nothing of anyone's: it is read before the databases are.
    pub fn nobodys(self) -> GtidSet {
        self.active.executed.union(&self.passive.executed)
    }

    /// The pair that the passive server was cloned from, as it is to be; the active one has nothing of anyone's, and nobody needs what it counts as
    /// executed.
    pub fn cloned(self) -> Option<&'a str> {
        let from = self.o.cloned_from()?;
        let run = self.passive.clone.as_ref()?;
        let theirs = names::ORDINALS.map(|i| names::host(&self.o.namespace, from, i));
        let whole = run.stage == CloneStage::Completed
            && theirs.contains(&run.donor)
            && !run.brought.is_empty()
            && run.brought.is_subset_of(&self.passive.executed);
        (whole && self.active.blank() && !self.passive.blank()).then_some(from)
    }

    /// A CLONE of another pair runs into the passive server, and nobody wants it any more.
    pub fn clone_unwanted(self) -> bool {
        let runs = |c: &CloneRun| c.stage == CloneStage::Running && self.o.is_from_elsewhere(c);
        self.o.cloned_from().is_none() && self.passive.clone.as_ref().is_some_and(runs)
    }

    /// What the passive server has got by a CLONE of another pair. That pair has it as well.
    pub fn brought(self) -> GtidSet {
        let elsewhere = |c: &&CloneRun| c.stage == CloneStage::Completed && self.o.is_from_elsewhere(c);
        let run = self.passive.clone.as_ref().filter(elsewhere);
        run.map_or_else(GtidSet::new, |c| c.brought.clone())
    }

    /// Copies the other pair over the passive server.
    pub fn clone_from(self) -> Option<Action> {
        Some(Action::CloneFrom {
            server: self.record.passive(),
            known: self.nobodys(),
            from: self.o.cloned_from()?.to_owned(),
        })
    }

    /// Makes the one that was cloned one of this pair.
    pub fn adopt(self) -> Option<Action> {
        Some(Action::Adopt {
            server: self.record.passive(),
            of: self.record.active,
            from: self.cloned()?.to_owned(),
        })
    }
}
