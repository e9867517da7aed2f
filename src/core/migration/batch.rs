//! Which shards are cut over next, and how many at once.

use super::{
    fences,
    observed::{End, Observed},
};
use crate::{
    api::Move,
    core::{pair::observed::Tries, placement::moves, spans::SpanSet},
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// A batch should block its shards no longer than this.
pub const AIM: SignedDuration = SignedDuration::from_millis(100);
/// No batch is larger: what each further shard costs, all of the batch wait for.
pub const LARGEST: usize = 4;
/// So many shards are fenced at once on the passive server that they leave, ahead of their batch, and opened at once on the one that they come to: no batch
/// waits for that.
pub const AHEAD: usize = 16;
/// Before a batch the target has to have what the source has within this.
pub const CLOSE: SignedDuration = SignedDuration::from_millis(30);
/// On a target that never comes so close, the longest time that will do.
pub const CLOSE_LONGEST: SignedDuration = SignedDuration::from_millis(480);
/// A pass tries that anew for so long.
pub const APPROACH: SignedDuration = SignedDuration::from_millis(500);
/// After so many passes in vain, twice the time will do.
pub const PATIENT: u32 = 8;
/// A target that lacks more transactions than this need not be waited for yet.
pub const FAR: u64 = 1000;
/// Between two tries to fence a shard that has an open transaction, after the first one; twice as long after each further one.
pub const BLOCKED_RETRY: SignedDuration = SignedDuration::from_secs(1);
/// The longest time between two of them.
pub const BLOCKED_RETRY_LONGEST: SignedDuration = SignedDuration::from_secs(60);
/// The same for a batch that was undone.
pub const UNDONE_RETRY: SignedDuration = SignedDuration::from_millis(500);
/// The longest time between two of them.
pub const UNDONE_RETRY_LONGEST: SignedDuration = SignedDuration::from_secs(60);

/// What a batch has cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cost {
    /// Shards in it.
    pub shards: usize,
    /// From the first one's fence to its opening.
    pub blocked: SignedDuration,
}

/// How many shards the next batch has, by what the last one cost.
pub fn size(last: Option<Cost>) -> usize {
    let Some(Cost { shards, blocked }) = last else {
        return 1;
    };
    let next = if blocked > AIM {
        shards / 2
    } else if blocked.saturating_mul(2) <= AIM {
        shards.saturating_mul(2)
    } else {
        shards
    };
    next.clamp(1, LARGEST)
}

/// Within which time the target has to have what the source has, after so many passes in which it had not. No batch is begun before it does: its shards
/// would be blocked for what the target lacks.
pub fn close(waits: u32) -> SignedDuration {
    let wider = (0..waits / PATIENT)
        .take_while(|n| *n < 31)
        .fold(CLOSE, |d, _| d.saturating_mul(2));
    wider.min(CLOSE_LONGEST)
}

/// When whatever was tried may be tried again.
pub fn due(tries: Tries, first: SignedDuration, longest: SignedDuration) -> Option<Timestamp> {
    let last = tries.last?;
    last.checked_add(tries.patience(first, longest)).ok()
}

/// The next batch towards an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// These.
    Batch(SpanSet),
    /// Every one of them could not be fenced just now; the first is tried again then.
    Blocked(Timestamp),
}

/// Verified shards that are bound for `end`, in their order; those that cannot be fenced yet come later, each in a batch of its own.
pub fn next(o: &Observed, m: &Move, end: End, now: Timestamp) -> Next {
    let all = candidates(o, m, end);
    let again = |shard: &i32| {
        let tries = o.memory.blocked.get(shard)?;
        due(*tries, BLOCKED_RETRY, BLOCKED_RETRY_LONGEST)
    };
    let fresh: Vec<i32> = all
        .shards()
        .filter(|s| !o.memory.blocked.contains_key(s))
        .take(size(o.memory.cost))
        .collect();
    if !fresh.is_empty() {
        return Next::Batch(fresh.into_iter().collect());
    }
    let earliest = all.shards().map(|s| (again(&s).unwrap_or(now), s)).min();
    match earliest {
        Some((at, _)) if at > now => Next::Blocked(at),
        Some((_, shard)) => Next::Batch(std::iter::once(shard).collect()),
        None => Next::Batch(SpanSet::new()),
    }
}

/// Verified shards that are bound for `end`, and may go there now: whoever goes back waits for no approval and no window.
pub fn candidates(o: &Observed, m: &Move, end: End) -> SpanSet {
    let all = verified(o, m, end);
    if o.policy.window && (o.policy.approved || !o.policy.manual) {
        return all;
    }
    all.intersect(&moves::moved(&o.record, m))
}

/// Verified shards that are bound for `end`: they may be fenced ahead on the passive server that they leave.
pub fn verified(o: &Observed, m: &Move, end: End) -> SpanSet {
    ahead(o, m, end, usize::MAX)
}

/// Of these, those that are fenced ahead.
pub fn window(o: &Observed, m: &Move, end: End) -> SpanSet {
    ahead(o, m, end, AHEAD)
}

fn ahead(o: &Observed, m: &Move, end: End, window: usize) -> SpanSet {
    fences::may_be_shut_ahead(&o.record, o.name(end.other()), &o.bound_for(m, end), window)
}
