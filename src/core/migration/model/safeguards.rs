//! What is left out to see that the search notices: each safeguard is a switch of the model, not of the product.

use super::{
    observe::View,
    plans::{Edit, Step},
    world::{BOTH, Shards},
};
use crate::api::MoveStage;

/// A safeguard that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Without {
    Nothing,
    /// P2: the record is written whatever it is by then.
    Cas,
    /// The batch that is cut over is whichever is on record.
    Number,
    /// P7: no lock is taken, and the records are not read again.
    Lock,
    /// P7: locks are taken, and the records are not read again after that.
    Confirm,
    /// R2: the pairs are not asked for once more when the batch is on record.
    ConfirmPairs,
    /// R2: they are, before the target is waited for.
    ConfirmEarly,
    /// R3: the controller of a pair reads what it keeps READ ONLY before the new active server is on record.
    ReadAfterRecord,
    /// R3: nothing is fenced ahead, and a promoted server is opened as it is.
    DefaultClosed,
    /// R2: something is opened again before it is on record that the batch is undone.
    UndoFirst,
    /// R2: nothing is fenced before the shards are recorded elsewhere.
    Fence,
    /// R4: the target is not waited for.
    Reach,
    /// R2: the target is opened before it is on record.
    CutOverFirst,
    /// R4: copies are taken for equal.
    Verification,
    /// R4: copies that were equal once are taken for equal.
    Recheck,
    /// R4: a comparison that came to no end counts as equal.
    Unknown,
    /// R4: the wait does not look at the filter.
    FilterChecked,
    /// R4: copies stay verified when a filter was lost.
    Unverified,
    /// P3: channels of moves are not locked out of active servers.
    LockedOut,
    /// P3: channels are pointed at the active server.
    Passive,
    /// R6: copies are dropped while there are channels.
    ChannelsFirst,
    /// R6: a server that does not answer is taken for one without a channel.
    Seen,
    /// R6: what is dropped is not compared with what is served.
    Unserved,
    /// R6: whether there are channels is not looked at again with all locks.
    Unlinked,
    /// Copies are made without the locks of the servers that get them.
    SeedLocks,
    /// Databases that are served, and READ ONLY, are left so.
    Opens,
    /// Channels stay where they were after a failover.
    Repointed,
    /// The move ends while a pair is being opened by an earlier record.
    PairsOpen,
    /// Copies wait for what their source can't send any more.
    Purged,
}

impl Without {
    pub fn is(self, other: Self) -> bool {
        self == other
    }

    /// Whether each world is asked for how it ends when it is left alone.
    pub fn asks_for_rest(self) -> bool {
        matches!(
            self,
            Self::Nothing | Self::Passive | Self::Opens | Self::Repointed | Self::PairsOpen | Self::Purged
        )
    }

    /// What an operator sees that lacks the safeguard.
    pub fn blind(self, mut v: View) -> View {
        let cleaning = v.record.stage == Some(MoveStage::CleaningUp);
        let exact = |v: &View, p: usize| -> Shards {
            BOTH & !v.record.placed(p) | v.record.batch & v.record.placed(p)
        };
        for p in 0..2 {
            v.pairs[p].open |= cleaning && self == Self::PairsOpen;
            let shut = exact(&v, p);
            let active = v.pairs[p].active;
            for (i, s) in v.pairs[p].servers.iter_mut().enumerate() {
                match self {
                    Self::ChannelsFirst if cleaning => s.channel = None,
                    Self::Seen if cleaning && !s.up => (s.up, s.channel) = (true, None),
                    Self::Opens => s.shut &= shut,
                    Self::Purged => s.purged = 0,
                    Self::DefaultClosed if usize::from(active) != i => s.shut |= s.has & v.record.verified,
                    Self::Repointed if usize::from(active) != i => s.channel = None,
                    _ => {}
                }
            }
        }
        if self == Self::Repointed {
            for p in 0..2 {
                let passive = 1 - v.pairs[1 - p].active;
                let active = usize::from(v.pairs[p].active);
                if let Some(c) = &mut v.pairs[p].servers[active].channel {
                    c.to = passive;
                }
            }
        }
        if self == Self::Recheck && v.record.verified != 0 {
            v.verifying = [super::world::Verifying::Checked(v.record.verified); 2];
        }
        if self == Self::Verification && v.record.stage == Some(MoveStage::Following) {
            for (end, run) in v.verifying.iter_mut().enumerate() {
                *run = super::world::Verifying::Equal(BOTH & !v.record.placed(end));
            }
        }
        v
    }

    /// What it would do.
    pub fn alter(self, v: &View, mut steps: Vec<Step>) -> Vec<Step> {
        let at = |steps: &[Step], edit: Edit| steps.iter().position(|s| *s == Step::Record(edit));
        match self {
            Self::Unlinked | Self::ChannelsFirst | Self::Seen => {
                steps.retain(|s| !matches!(s, Step::Unlinked(_)));
            }
            Self::ConfirmPairs => steps.retain(|s| *s != Step::Confirm),
            Self::ConfirmEarly => {
                if let Some(i) = steps.iter().position(|s| *s == Step::Confirm) {
                    steps.remove(i);
                    steps.insert(1, Step::Confirm);
                }
            }
            Self::UndoFirst => {
                if let [Step::Record(Edit::Undo), Step::Unfence(..)] = steps[..] {
                    steps.swap(0, 1);
                }
            }
            Self::Fence if at(&steps, Edit::CutOver).is_some() => {
                steps.retain(|s| !matches!(s, Step::Fence(..)));
            }
            Self::Reach => steps.retain(|s| !matches!(s, Step::Reach { .. })),
            Self::CutOverFirst => {
                if let Some(i) = at(&steps, Edit::CutOver)
                    && i + 1 < steps.len()
                {
                    steps.swap(i, i + 1);
                }
            }
            Self::Unverified => {
                steps.retain(|s| !matches!(s, Step::Record(Edit::Unverified(_)) | Step::StopWork));
            }
            Self::Passive => {
                for s in &mut steps {
                    if let Step::Point { to, .. } = s {
                        *to = 1 - *to;
                    }
                }
            }
            Self::Unserved => {
                for s in &mut steps {
                    if let Step::Drop(place, shards) = s {
                        *shards = v.pairs[*place / 2].servers[*place % 2].has;
                    }
                }
            }
            _ => {}
        }
        steps
    }
}
