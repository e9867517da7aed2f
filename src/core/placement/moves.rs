//! The transitions of the moves on record: links between two pairs over which shards change places.
//!
//! They keep what `docs/placement.md` numbers: there is one move at most between two pairs and no shard is in two (I4); what is being cut over
//! was verified, what is verified is seeded (I5); the pair of a served shard changes in [`cut_over`] alone, for the shards of the batch on record
//! and none else (I2); a batch on record is undone or cut over by its number, so that none is taken for another (I6); the links close no circle (I7).
//! The other transitions of the record leave the moves alone: a shard whose range is deleted or hands it over stays in its move.

use super::{Error, change, check, shards};
use crate::{
    api::placement::{Move, MoveStage, Placement, Seed, ShardSpan, SpanState},
    core::{gtid::GtidSet, spans::SpanSet},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub use crate::api::placement::MoveKey;

mod invariants;
mod links;
#[cfg(test)]
mod tests;

pub(super) use invariants::check_moves;
pub use links::{between, keys, listed, of_pair, path};

/// A list of spans as a set.
pub fn set(spans: &[ShardSpan]) -> SpanSet {
    spans.iter().copied().collect()
}

/// The move with these ends, in this order.
pub fn find<'a>(p: &'a Placement, key: &MoveKey) -> Option<&'a Move> {
    p.moves.iter().find(|m| m.from == key.from && m.to == key.to)
}

/// The shards of a move that are placed at `pair` at the moment.
pub fn placed_at(p: &Placement, m: &Move, pair: &str) -> SpanSet {
    set(&m.shards).intersect(&shards(p, |s| s.pair == pair))
}

/// The shards of a move that are not where they were when they came into it.
pub fn moved(p: &Placement, m: &Move) -> SpanSet {
    let opposite = set(&m.opposite);
    let gone = placed_at(p, m, &m.to).minus(&opposite);
    gone.union(&placed_at(p, m, &m.from).intersect(&opposite))
}

/// The pair that is being cloned over `pair`, if one is.
pub fn cloned_from<'a>(p: &'a Placement, pair: &str) -> Option<&'a str> {
    let clone = |m: &&Move| m.to == pair && m.seed == Seed::Physical && m.stage == MoveStage::Seeding;
    p.moves.iter().find(clone).map(|m| m.from.as_str())
}

/// Whether `pair` is being cloned over: whatever is created there now would be lost.
pub fn cloned_over(p: &Placement, pair: &str) -> bool {
    cloned_from(p, pair).is_some()
}

/// What of `held`, the databases on a server of `pair`, the clean-up of a move drops there (rule R6): its own copies, and at a pair that it
/// cloned over everything that came along. Nothing that is placed there, nor what another move has copied there by now. None before the clean-up.
pub fn droppable(p: &Placement, m: &Move, pair: &str, held: &SpanSet) -> SpanSet {
    if m.stage != MoveStage::CleaningUp || m.other_end(pair).is_none() {
        return SpanSet::new();
    }
    let cloned = m.seed == Seed::Physical && pair == m.to;
    let ours = if cloned {
        held.clone()
    } else {
        held.intersect(&set(&m.shards))
    };
    of_pair(p, pair)
        .filter(|other| other.key() != m.key())
        .fold(ours.minus(&shards(p, |s| s.pair == pair)), |left, other| {
            left.minus(&set(&other.shards))
        })
}

/// Puts a move on record: copies of `set` are made at the other end. Shards may be served at either end; those at `to` go the opposite way.
/// With [`Seed::Physical`], all are at `from`, and nothing whatever is at `to`.
///
/// # Errors
/// [`Error::NotAs`] when one is not served at an end; [`Error::MoveExists`], [`Error::ClosesCircle`], [`Error::InMove`], [`Error::NotEmpty`],
/// [`Error::BeingCloned`], [`Error::MovesTooLarge`], [`Error::NothingToDo`]; those of [`check`].
pub fn begin_move(
    p: &Placement,
    from: &str,
    to: &str,
    wanted: &SpanSet,
    seed: Seed,
) -> Result<Placement, Error> {
    check(p)?;
    let key = MoveKey::new(from, to);
    if from == to || wanted.is_empty() {
        return Err(Error::NothingToDo(key));
    }
    if let Some(other) = between(p, from, to) {
        return Err(Error::MoveExists(other.key()));
    }
    if let Some(path) = path(&keys(p), from, to) {
        return Err(Error::ClosesCircle { key, path });
    }
    for pair in [from, to] {
        if cloned_over(p, pair) {
            return Err(Error::BeingCloned(pair.to_owned()));
        }
    }
    if seed == Seed::Physical && !(shards(p, |s| s.pair == to).is_empty() && of_pair(p, to).next().is_none())
    {
        return Err(Error::NotEmpty(to.to_owned()));
    }
    let opposite = free(p, &key, wanted)?;
    let mut out = p.clone();
    out.moves.push(Move {
        from: key.from,
        to: key.to,
        shards: wanted.to_vec(),
        opposite: opposite.to_vec(),
        seed,
        stage: MoveStage::Seeding,
        seeded: vec![],
        seed_gtid: String::new(),
        opposite_gtid: String::new(),
        verified: vec![],
        batch: vec![],
        batch_number: 0,
        retain_until: None,
    });
    normal(out)
}

/// More shards come into a move that is still being seeded.
///
/// # Errors
/// As [`begin_move`]; [`Error::NoMove`], [`Error::WrongStage`].
pub fn widen(p: &Placement, key: &MoveKey, more: &SpanSet) -> Result<Placement, Error> {
    edit(p, key, &[MoveStage::Seeding], |m| {
        let opposite = free(p, key, more)?;
        if m.seed == Seed::Physical && !opposite.is_empty() {
            return Err(Error::NotEmpty(key.to.clone()));
        }
        m.shards = set(&m.shards).union(more).to_vec();
        m.opposite = set(&m.opposite).union(&opposite).to_vec();
        Ok(())
    })
}

/// Copies of these shards are complete on both servers of the end where they are not placed, taken at `gtid`, which that end counts as
/// executed. They are all placed at one end.
///
/// # Errors
/// [`Error::NotAs`] when one is not in the move, [`Error::TwoEnds`], [`Error::BadGtid`], [`Error::NoMove`], [`Error::WrongStage`]; those of [`check`].
pub fn seeded(p: &Placement, key: &MoveKey, done: &SpanSet, gtid: &str) -> Result<Placement, Error> {
    edit(p, key, &[MoveStage::Seeding], |m| {
        within(done, &set(&m.shards), || format!("shards of the move {key}"))?;
        if let Some(at) = one_end(p, m, done)? {
            let copies = if at == m.from {
                m.to.clone()
            } else {
                m.from.clone()
            };
            count(m, &copies, gtid)?;
        }
        m.seeded = set(&m.seeded).union(done).to_vec();
        Ok(())
    })
}

/// Copies are made database by database after all: the pair that they go to can't be cloned over. Nothing was brought there.
///
/// # Errors
/// [`Error::NothingToDo`] when it is not being cloned over, or copies are on record; [`Error::NoMove`], [`Error::WrongStage`]; those of [`check`].
pub fn copy_rather(p: &Placement, key: &MoveKey) -> Result<Placement, Error> {
    edit(p, key, &[MoveStage::Seeding], |m| {
        if m.seed != Seed::Physical || !m.seeded.is_empty() {
            return Err(Error::NothingToDo(key.clone()));
        }
        m.seed = Seed::PerDatabase;
        Ok(())
    })
}

/// The servers of `pair`, an end of the move, count `gtid` as executed.
///
/// # Errors
/// [`Error::BadGtid`], [`Error::NotAnEnd`], [`Error::NoMove`], [`Error::WrongStage`]; those of [`check`].
pub fn counted(p: &Placement, key: &MoveKey, pair: &str, gtid: &str) -> Result<Placement, Error> {
    let stages = [MoveStage::Seeding, MoveStage::Following, MoveStage::Retaining];
    edit(p, key, &stages, |m| count(m, pair, gtid))
}

/// Seeding → Following, when every shard is seeded.
///
/// # Errors
/// [`Error::NotAs`] when one is not seeded, [`Error::NoMove`], [`Error::WrongStage`]; those of [`check`].
pub fn follow(p: &Placement, key: &MoveKey) -> Result<Placement, Error> {
    edit(p, key, &[MoveStage::Seeding], |m| {
        within(&set(&m.shards), &set(&m.seeded), || {
            format!("seeded by the move {key}")
        })?;
        m.stage = MoveStage::Following;
        Ok(())
    })
}

/// The copies of these shards were found equal, and followed without a break since.
///
/// # Errors
/// [`Error::NotAs`] when one is not seeded, [`Error::NoMove`], [`Error::WrongStage`]; those of [`check`].
pub fn verified(p: &Placement, key: &MoveKey, equal: &SpanSet) -> Result<Placement, Error> {
    edit(p, key, &[MoveStage::Following, MoveStage::Retaining], |m| {
        within(equal, &set(&m.seeded), || format!("seeded by the move {key}"))?;
        m.verified = set(&m.verified).union(equal).to_vec();
        Ok(())
    })
}

/// Nobody knows any more whether the copies of these shards are equal: a channel broke, or lost its filter.
///
/// # Errors
/// [`Error::BatchOpen`] when one is being cut over: that is undone first. [`Error::NoMove`]; those of [`check`].
pub fn unverified(p: &Placement, key: &MoveKey, unknown: &SpanSet) -> Result<Placement, Error> {
    edit(p, key, &ALL, |m| {
        no_batch(key, &set(&m.batch).intersect(unknown))?;
        m.verified = set(&m.verified).minus(unknown).to_vec();
        Ok(())
    })
}

/// These shards are cut over now. It is recorded before the first of them is fenced.
///
/// # Errors
/// [`Error::NotAs`] when one is not verified, [`Error::TwoEnds`], [`Error::BatchOpen`] when there is a batch, [`Error::NothingToDo`],
/// [`Error::NoMove`], [`Error::WrongStage`]; those of [`check`].
pub fn begin_batch(p: &Placement, key: &MoveKey, batch: &SpanSet) -> Result<Placement, Error> {
    let number = p.batches.saturating_add(1);
    let counted = Placement {
        batches: number,
        ..p.clone()
    };
    edit(
        &counted,
        key,
        &[MoveStage::Following, MoveStage::Retaining],
        |m| {
            no_batch(key, &set(&m.batch))?;
            within(batch, &set(&m.verified), || format!("verified by the move {key}"))?;
            one_end(p, m, batch)?.ok_or_else(|| Error::NothingToDo(key.clone()))?;
            m.batch = batch.to_vec();
            m.batch_number = number;
            Ok(())
        },
    )
}

/// The batch is given up. Only when this is on record may anything be opened again where it is placed.
///
/// # Errors
/// [`Error::OtherBatch`] when the batch on record has another number, or there is none; [`Error::NoMove`]; those of [`check`].
pub fn undo_batch(p: &Placement, key: &MoveKey, number: i64) -> Result<Placement, Error> {
    edit(p, key, &ALL, |m| take_batch(m, number).map(|_| ()))
}

/// The point of no return: the shards of the batch are placed at the other end from now on. The map changes with it.
///
/// # Errors
/// [`Error::OtherBatch`] when the batch on record has another number, or there is none; [`Error::NoMove`], [`Error::TooManySpans`]; those of
/// [`check`].
pub fn cut_over(p: &Placement, key: &MoveKey, number: i64) -> Result<Placement, Error> {
    let mut batch = SpanSet::new();
    let mut goal = String::new();
    let without = edit(p, key, &ALL, |m| {
        batch = take_batch(m, number)?;
        let at = one_end(p, m, &batch)?.ok_or_else(|| Error::NothingToDo(key.clone()))?;
        m.other_end(&at).unwrap_or_default().clone_into(&mut goal);
        Ok(())
    })?;
    change(
        &without,
        &batch,
        "served",
        |s| s.state == SpanState::Serving,
        |s| goal.clone_into(&mut s.pair),
    )
}

/// Following → Retaining: every shard is where it is wished. In stage Retaining it sets the time anew.
///
/// # Errors
/// [`Error::BatchOpen`], [`Error::NoMove`], [`Error::WrongStage`]; those of [`check`].
pub fn retain(p: &Placement, key: &MoveKey, until: Time) -> Result<Placement, Error> {
    edit(p, key, &[MoveStage::Following, MoveStage::Retaining], |m| {
        no_batch(key, &set(&m.batch))?;
        m.stage = MoveStage::Retaining;
        m.retain_until = Some(until);
        Ok(())
    })
}

/// Retaining → Following: the wish has changed, and shards change sides again.
///
/// # Errors
/// [`Error::BatchOpen`], [`Error::NoMove`], [`Error::WrongStage`]; those of [`check`].
pub fn resume(p: &Placement, key: &MoveKey) -> Result<Placement, Error> {
    edit(p, key, &[MoveStage::Retaining], |m| {
        no_batch(key, &set(&m.batch))?;
        m.stage = MoveStage::Following;
        m.retain_until = None;
        Ok(())
    })
}

/// No shard changes sides any more: from now on the channels are removed, then the copies.
///
/// # Errors
/// [`Error::BatchOpen`], [`Error::NoMove`], [`Error::WrongStage`]; those of [`check`].
pub fn clean_up(p: &Placement, key: &MoveKey) -> Result<Placement, Error> {
    edit(p, key, &ALL[..3], |m| {
        no_batch(key, &set(&m.batch))?;
        m.stage = MoveStage::CleaningUp;
        m.retain_until = None;
        Ok(())
    })
}

/// Takes a move off the record: its channels and copies are gone.
///
/// # Errors
/// [`Error::NoMove`], [`Error::WrongStage`]; those of [`check`].
pub fn end_move(p: &Placement, key: &MoveKey) -> Result<Placement, Error> {
    let mut out = edit(p, key, &[MoveStage::CleaningUp], |_| Ok(()))?;
    out.moves.retain(|m| m.key() != *key);
    Ok(out)
}

const ALL: [MoveStage; 4] = [
    MoveStage::Seeding,
    MoveStage::Following,
    MoveStage::Retaining,
    MoveStage::CleaningUp,
];

fn edit(
    p: &Placement,
    key: &MoveKey,
    stages: &[MoveStage],
    change: impl FnOnce(&mut Move) -> Result<(), Error>,
) -> Result<Placement, Error> {
    check(p)?;
    let mut out = p.clone();
    let m = out
        .moves
        .iter_mut()
        .find(|m| m.from == key.from && m.to == key.to);
    let m = m.ok_or_else(|| Error::NoMove(key.clone()))?;
    if !stages.contains(&m.stage) {
        return Err(Error::WrongStage {
            key: key.clone(),
            stage: m.stage,
        });
    }
    change(m)?;
    normal(out)
}

fn normal(mut p: Placement) -> Result<Placement, Error> {
    p.moves.sort_by(|a, b| (&a.from, &a.to).cmp(&(&b.from, &b.to)));
    check(&p)?;
    Ok(p)
}

/// Which of `wanted` are at `to`, when all are served at an end and in no move.
fn free(p: &Placement, key: &MoveKey, wanted: &SpanSet) -> Result<SpanSet, Error> {
    let at = |pair: &str| shards(p, |s| s.pair == pair && s.state == SpanState::Serving);
    let (here, there) = (at(&key.from), at(&key.to));
    within(wanted, &here.union(&there), || {
        format!("served by {} or {}", key.from, key.to)
    })?;
    for m in &p.moves {
        let both = set(&m.shards).intersect(wanted);
        if !both.is_empty() {
            return Err(Error::InMove {
                shards: both,
                key: m.key(),
            });
        }
    }
    Ok(wanted.intersect(&there))
}

fn within(some: &SpanSet, all: &SpanSet, wanted: impl Fn() -> String) -> Result<(), Error> {
    let wrong = some.minus(all);
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Error::NotAs {
        shards: wrong,
        wanted: wanted(),
    })
}

/// The end where all of `some` are placed; `None` when there are none.
fn one_end(p: &Placement, m: &Move, some: &SpanSet) -> Result<Option<String>, Error> {
    let at = |pair: &str| some.intersect(&placed_at(p, m, pair));
    match (at(&m.from).is_empty(), at(&m.to).is_empty()) {
        (true, true) => Ok(None),
        (false, true) => Ok(Some(m.from.clone())),
        (true, false) => Ok(Some(m.to.clone())),
        (false, false) => Err(Error::TwoEnds {
            shards: some.clone(),
            key: m.key(),
        }),
    }
}

fn no_batch(key: &MoveKey, batch: &SpanSet) -> Result<(), Error> {
    if batch.is_empty() {
        return Ok(());
    }
    Err(Error::BatchOpen {
        key: key.clone(),
        shards: batch.clone(),
    })
}

fn take_batch(m: &mut Move, number: i64) -> Result<SpanSet, Error> {
    if m.batch.is_empty() || m.batch_number != number {
        return Err(Error::OtherBatch { key: m.key(), number });
    }
    Ok(set(&std::mem::take(&mut m.batch)))
}

fn count(m: &mut Move, pair: &str, gtid: &str) -> Result<(), Error> {
    let key = m.key();
    let at = match pair {
        p if p == m.to => &mut m.seed_gtid,
        p if p == m.from => &mut m.opposite_gtid,
        _ => {
            return Err(Error::NotAnEnd {
                key,
                pair: pair.to_owned(),
            });
        }
    };
    let bad = |e: crate::core::gtid::ParseError| Error::BadGtid(e.to_string());
    let both = at
        .parse::<GtidSet>()
        .map_err(bad)?
        .union(&gtid.parse().map_err(bad)?);
    *at = both.to_string();
    Ok(())
}
