//! What must never be, looked for in every state.

use super::world::{CLIENTS, GHOST, Mode, World};

/// A rule that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// P1: two servers can acknowledge.
    TwoAcknowledge,
    /// P1: a server is open and nothing is recorded.
    OpenUnrecorded,
    /// P3: a commit was acknowledged that a member does not have.
    MemberLacks,
    /// P4: a commit was acknowledged that the open server does not have.
    Lost,
    /// P2: the epoch fell.
    EpochFell,
    /// A member was overwritten, or replaced.
    Overwritten,
    /// What a member received was thrown away.
    Reset,
    /// P8: the open server took in what was never acknowledged.
    Swallowed,
    /// P8: errant transactions were overwritten that nobody had saved.
    NotSaved,
    /// Left alone with one operator, the pair does not become healthy.
    NeverHealthy,
}

/// The first rule that does not hold.
pub fn broken(w: &World) -> Option<Broken> {
    let can: Vec<usize> = (0..3).filter(|i| w.can_acknowledge(*i)).collect();
    if can.len() > 1 {
        return Some(Broken::TwoAcknowledge);
    }
    if w.record.is_none() && !can.is_empty() {
        return Some(Broken::OpenUnrecorded);
    }
    for place in 0..GHOST {
        if let Some(member) = w.member(place)
            && w.acked & CLIENTS & !member.has() != 0
        {
            return Some(Broken::MemberLacks);
        }
    }
    if let Some(active) = w.active()
        && active.mode == Mode::Open
        && w.acked & !active.logged() != 0
    {
        return Some(Broken::Lost);
    }
    None
}
