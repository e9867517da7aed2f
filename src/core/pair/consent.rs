//! A person's consent to a loss: the annotation `shardwright.dev/accept-data-loss`. It counts for the loss that was asked about, and for
//! no other one that comes up while it is still there.

use super::{
    compare::Both,
    observed::{Observed, Ordinal, Server},
    promotion::Unfit,
    reasons,
    state::{Rebuild, State},
};
use crate::api::conditions::Overall;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// Reasons of `Stalled` that ask for it.
const ASKING: [&str; 5] = [
    reasons::NOT_IN_SYNC,
    reasons::ACTIVE_DATA_LOST,
    reasons::PROMOTION_UNFIT,
    reasons::ERRANT_TRANSACTIONS,
    reasons::WAITING_FOR_SERVERS,
];
/// One server alone is there, and nothing is recorded: the other one is waited for so long before a person is asked.
pub const WAITING_PATIENCE: SignedDuration = SignedDuration::from_mins(5);

impl Observed {
    /// A person has accepted the loss that the pair has been `Stalled` for, with one of these reasons, at this very epoch: so it holds once.
    /// What was there before anything asked for it counts for nothing.
    pub(super) fn loss_accepted(&self, reasons: &[&str]) -> bool {
        self.accepted_loss == Some(self.epoch)
            && self.ignored_loss != self.accepted_loss
            && self
                .before
                .stalled
                .as_deref()
                .is_some_and(|r| reasons.contains(&r))
    }

    /// The same for the promotion of a server that is not fit. One whose volume is full loses nothing: it waits for space.
    pub(super) fn promotion_accepted(&self, unfit: &Unfit) -> bool {
        match unfit {
            Unfit::NotMember => self.loss_accepted(&[reasons::NOT_IN_SYNC, reasons::ACTIVE_DATA_LOST]),
            Unfit::Detached | Unfit::Applier(_) => self.loss_accepted(&[reasons::PROMOTION_UNFIT]),
            Unfit::Unreachable | Unfit::Leaving | Unfit::DiskFull => false,
        }
    }

    /// Nothing is recorded, and the only server that answers has been there for long, as has the Pod of the other one, if it has any: that
    /// server.
    pub(super) fn waits_in_vain(&self, now: Timestamp) -> Option<Ordinal> {
        let old = |i: Ordinal| {
            let pod = self.side(i).pod.as_ref();
            pod.is_none_or(|p| now.duration_since(p.created) >= WAITING_PATIENCE)
        };
        let (a, b) = (&self.side(0).server, &self.side(1).server);
        let alone = match (a, b) {
            (Server::Up(_), Server::Absent | Server::Unreachable(_)) => 0,
            (Server::Absent | Server::Unreachable(_), Server::Up(_)) => 1,
            _ => return None,
        };
        (self.record.is_none() && old(0) && old(1)).then_some(alone)
    }
}

/// Whether the message of this state asks for it.
pub(super) fn asks(o: &Observed, state: &State, now: Timestamp) -> bool {
    match state {
        State::WaitingForServers => o.waits_in_vain(now).is_some(),
        State::NoFailover(_, Unfit::NotMember | Unfit::Detached | Unfit::Applier(_))
        | State::ActiveUnfit { .. }
        | State::Errant { too_many: true, .. } => true,
        _ => false,
    }
}

/// The reason that asked for the consent that this state goes by, and that is not on record yet: until it is, that is what is said.
pub(super) fn used(o: &Observed, state: &State) -> Option<&'static str> {
    let uses = match state {
        State::AcceptingLoss(..) => true,
        State::Discarding => o.loss_accepted(&[reasons::PROMOTION_UNFIT]),
        State::Electing { .. } => [0, 1].into_iter().any(|i| o.side(i).up().is_none()),
        State::RebuildNeeded(Rebuild::Now { .. } | Rebuild::Later { .. } | Rebuild::Impossible) => settles(o),
        _ => false,
    };
    let asked = |r: &&str| o.before.stalled.as_deref() == Some(*r);
    ASKING.into_iter().find(asked).filter(|_| uses)
}

/// A person gives up errant transactions, which is not on record yet.
pub(super) fn settles(o: &Observed) -> bool {
    let both = o.record.as_ref().and_then(|r| Both::of(o, r));
    o.loss_accepted(&[reasons::ERRANT_TRANSACTIONS])
        && both.is_some_and(|b| !b.overwritable().is_subset_of(&b.record.settled))
}

/// What of the annotation counts for nothing from now on: whatever it says while nothing asks for it, or while something else begins to.
pub(super) fn ignored(o: &Observed, overall: &Overall) -> Option<i64> {
    let goes_on = match overall {
        Overall::Stalled { reason, .. } => {
            ASKING.contains(reason) && o.before.stalled.as_deref() == Some(*reason)
        }
        _ => false,
    };
    // No epoch is below 0.
    let early = |n: &i64| *n >= 0 && (!goes_on || o.ignored_loss == Some(*n));
    o.accepted_loss.filter(early)
}
