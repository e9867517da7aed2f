//! The transitions of the record (`ShardCluster.status.placement`).
//!
//! Every change of the record is one of these functions, applied by compare-and-swap. Each keeps what `docs/placement.md` numbers:
//! spans are sorted, apart, merged where they are equal, and at most [`MAX_SPANS`] (I1); no function takes a shard out of `Serving`,
//! and none but [`moves::cut_over`] changes the pair of one that is (I2); the version of the map never falls (I3).

use super::spans::SpanSet;
use crate::api::placement::{MAX_SPANS, MoveKey, MoveStage, PlacedSpan, Placement, ShardSpan, SpanState};
use std::collections::BTreeMap;

pub mod moves;
#[cfg(test)]
mod tests;

/// Why a transition is not made; the record is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The shards are on record already.
    #[error("shards {0} are on record already")]
    Taken(SpanSet),
    /// The shards are not on record as the transition needs them.
    #[error("shards {shards} are not on record as {wanted}")]
    NotAs {
        /// Those that are not.
        shards: SpanSet,
        /// What they would have to be.
        wanted: String,
    },
    /// The record would have more spans than fit an object.
    #[error(
        "the record would have {0} spans, the limit is {MAX_SPANS}: let neighbouring shards be on the same pair and in the same range"
    )]
    TooManySpans(usize),
    /// The record that was read breaks its own rules.
    #[error("the record is malformed at shard {0}: spans must be sorted and apart")]
    Malformed(i32),
    /// A move that was read breaks the rules of moves.
    #[error("the move {key} on record is malformed: {why}")]
    MalformedMove {
        /// That move.
        key: MoveKey,
        /// The rule.
        why: String,
    },
    /// The moves would not fit the object.
    #[error(
        "the record would have {0}: let the moves that are under way end first, or let neighbouring shards move together"
    )]
    MovesTooLarge(String),
    /// There is no such move.
    #[error("there is no move {0} on record")]
    NoMove(MoveKey),
    /// There is a move between these pairs already.
    #[error("the move {0} is on record; between two pairs there is one at a time")]
    MoveExists(MoveKey),
    /// The pairs are connected by other moves: another link would close a circle.
    #[error(
        "the move {key} would close a circle of links with {}: one of these has to end first",
        moves::listed(.path)
    )]
    ClosesCircle {
        /// The move that would be begun.
        key: MoveKey,
        /// Those that lead from one of its ends to the other.
        path: Vec<MoveKey>,
    },
    /// No shards, or the two ends are one.
    #[error("the move {0} has nothing to do here")]
    NothingToDo(MoveKey),
    /// The shards are in a move already.
    #[error("shards {shards} are in the move {key}, which has to end first")]
    InMove {
        /// Those shards.
        shards: SpanSet,
        /// That move.
        key: MoveKey,
    },
    /// The move is at another stage than the transition needs.
    #[error("the move {key} is at stage {stage:?}, where this is not done")]
    WrongStage {
        /// That move.
        key: MoveKey,
        /// Where it is.
        stage: MoveStage,
    },
    /// Shards are being cut over.
    #[error("shards {shards} of the move {key} are being cut over: that is ended first")]
    BatchOpen {
        /// That move.
        key: MoveKey,
        /// Those shards.
        shards: SpanSet,
    },
    /// The batch is not the one on record any more.
    #[error("batch {number} of the move {key} is not on record any more: it was ended by another hand")]
    OtherBatch {
        /// That move.
        key: MoveKey,
        /// The batch that was meant.
        number: i64,
    },
    /// Shards that must be placed at one end are at both.
    #[error("shards {shards} are placed at both ends of the move {key}; they go one way at a time")]
    TwoEnds {
        /// Those shards.
        shards: SpanSet,
        /// That move.
        key: MoveKey,
    },
    /// The pair is at no end of the move.
    #[error("{pair} is at no end of the move {key}")]
    NotAnEnd {
        /// That move.
        key: MoveKey,
        /// That pair.
        pair: String,
    },
    /// A pair that is to be cloned over has shards, or is in a move.
    #[error("{0} has shards on record, or is in a move: it can't be cloned over")]
    NotEmpty(String),
    /// A pair is being cloned over.
    #[error("{0} is being cloned over: what is put there now would be lost")]
    BeingCloned(String),
    /// No GTID set.
    #[error("not a GTID set: {0}")]
    BadGtid(String),
}

impl Error {
    /// Whether it is the record that was read that breaks the rules, so that nothing can be done with it.
    pub fn is_malformed(&self) -> bool {
        matches!(self, Self::Malformed(_) | Self::MalformedMove { .. })
    }
}

/// Checks I1, and the rules of moves.
///
/// # Errors
/// [`Error::Malformed`] with the first shard of the span that is out of order, [`Error::TooManySpans`], [`Error::MalformedMove`],
/// [`Error::MovesTooLarge`].
pub fn check(p: &Placement) -> Result<(), Error> {
    let mut next = 0;
    for s in &p.spans {
        if s.first < next || s.last < s.first {
            return Err(Error::Malformed(s.first));
        }
        next = s.last.saturating_add(1);
    }
    if p.spans.len() > MAX_SPANS {
        return Err(Error::TooManySpans(p.spans.len()));
    }
    moves::check_moves(p)
}

/// The shards of the spans that `keep` chooses.
pub fn shards(p: &Placement, keep: impl Fn(&PlacedSpan) -> bool) -> SpanSet {
    p.spans
        .iter()
        .filter(|s| keep(s))
        .map(|s| ShardSpan::new(s.first, s.last))
        .collect()
}

/// Every shard on record.
pub fn recorded(p: &Placement) -> SpanSet {
    shards(p, |_| true)
}

/// The shards that are in the map.
pub fn serving(p: &Placement) -> SpanSet {
    shards(p, |s| s.state == SpanState::Serving)
}

/// The shards that are assigned to `range`, in any state.
pub fn of_range(p: &Placement, range: &str) -> SpanSet {
    shards(p, |s| s.range.as_deref() == Some(range))
}

/// The record cut down to `within`: the pieces of its spans that lie in there.
pub fn pieces(p: &Placement, within: &SpanSet) -> Vec<PlacedSpan> {
    p.spans
        .iter()
        .flat_map(|s| {
            SpanSet::of(ShardSpan::new(s.first, s.last))
                .intersect(within)
                .to_vec()
                .into_iter()
                .map(|piece| PlacedSpan {
                    first: piece.first,
                    last: piece.last,
                    ..s.clone()
                })
        })
        .collect()
}

/// Puts shards on record that are not on it yet: `Creating` on `pair`, assigned to `range`.
///
/// # Errors
/// [`Error::Taken`], [`Error::BeingCloned`], [`Error::TooManySpans`], [`Error::Malformed`].
pub fn claim(p: &Placement, set: &SpanSet, pair: &str, range: Option<&str>) -> Result<Placement, Error> {
    check(p)?;
    let taken = recorded(p).intersect(set);
    if !taken.is_empty() {
        return Err(Error::Taken(taken));
    }
    if moves::cloned_over(p, pair) {
        return Err(Error::BeingCloned(pair.to_owned()));
    }
    let mut out = p.clone();
    out.spans.extend(placed(set, pair, SpanState::Creating, range));
    normal(out)
}

/// Assigns shards to `range` where they lie: neither the pair nor the state changes.
///
/// # Errors
/// [`Error::NotAs`] when one is not on record, [`Error::TooManySpans`], [`Error::Malformed`].
pub fn hand_over(p: &Placement, set: &SpanSet, range: &str) -> Result<Placement, Error> {
    change(p, set, "claimed", |_| true, |s| s.range = Some(range.to_owned()))
}

/// Takes the assignment to any range from shards: they stay where they are, served if they were.
///
/// # Errors
/// [`Error::NotAs`] when one is not on record, [`Error::TooManySpans`], [`Error::Malformed`].
pub fn release(p: &Placement, set: &SpanSet) -> Result<Placement, Error> {
    change(p, set, "claimed", |_| true, |s| s.range = None)
}

/// Claims shards for another pair that are still `Creating`: they were never in the map, so nothing is lost.
///
/// # Errors
/// [`Error::NotAs`] when one is not `Creating`, [`Error::BeingCloned`], [`Error::TooManySpans`], [`Error::Malformed`].
pub fn reclaim(p: &Placement, set: &SpanSet, pair: &str, range: &str) -> Result<Placement, Error> {
    if moves::cloned_over(p, pair) {
        return Err(Error::BeingCloned(pair.to_owned()));
    }
    change(
        p,
        set,
        "Creating",
        |s| s.state == SpanState::Creating,
        |s| {
            pair.clone_into(&mut s.pair);
            s.range = Some(range.to_owned());
        },
    )
}

/// Puts shards into the map: `Creating` → `Serving` on `pair`. Those that serve there already stay as they are, so it may be repeated.
///
/// # Errors
/// [`Error::NotAs`] when one is not on record or on another pair, [`Error::TooManySpans`], [`Error::Malformed`].
pub fn serve(p: &Placement, set: &SpanSet, pair: &str) -> Result<Placement, Error> {
    change(
        p,
        set,
        &format!("claimed for {pair}"),
        |s| s.pair == pair,
        |s| s.state = SpanState::Serving,
    )
}

/// Decides the next version of the map: one more than the record's or than `published` (what the ConfigMap said, 0 without one),
/// whichever is greater. The same content keeps its version, unless a later one was published.
pub fn publish(p: &Placement, hash: &str, published: i64) -> Placement {
    if p.map_hash == hash && p.map_version > 0 && p.map_version >= published {
        return p.clone();
    }
    Placement {
        map_version: p.map_version.max(published).saturating_add(1),
        map_hash: hash.to_owned(),
        ..p.clone()
    }
}

/// Shards whose databases are on several pairs, and no map that says which pair serves them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("databases of the shards {shards} are on {}", .pairs.join(" and "))]
pub struct Ambiguous {
    /// Those shards.
    pub shards: SpanSet,
    /// The pairs that have databases of them.
    pub pairs: Vec<String>,
}

/// Makes the record again after it was lost: from the published map, and from the databases that the pairs hold (`None` for a pair that
/// was not asked). Where the two differ, the map decides, unless the pair it names was asked and has nothing while exactly one other
/// has the database. What one server has and the map does not, serves as well: nobody knows any more what is in it. What several have and
/// the map does not is left to the claims.
///
/// # Errors
/// [`Ambiguous`].
pub fn seed(
    map: Option<&[(ShardSpan, String)]>,
    held: &BTreeMap<String, Option<SpanSet>>,
    published: i64,
) -> Result<Placement, Ambiguous> {
    let mut spans = Vec::new();
    let mut mapped = SpanSet::new();
    for (span, pair) in map.unwrap_or_default() {
        let set = SpanSet::of(*span).minus(&mapped);
        mapped = mapped.union(&set);
        let missing = match held.get(pair) {
            Some(Some(has)) => set.minus(has),
            _ => SpanSet::new(),
        };
        let (elsewhere, several) = holders(&missing, held);
        ambiguous(&several, held)?;
        for (other, there) in &elsewhere {
            spans.extend(placed(there, other, SpanState::Serving, None));
        }
        let moved = elsewhere.values().fold(SpanSet::new(), |a, b| a.union(b));
        spans.extend(placed(&set.minus(&moved), pair, SpanState::Serving, None));
    }
    let everything = held
        .values()
        .flatten()
        .fold(SpanSet::new(), |a, b| a.union(b))
        .minus(&mapped);
    let (one, several) = holders(&everything, held);
    if map.is_none() {
        ambiguous(&several, held)?;
    }
    for (pair, set) in &one {
        spans.extend(placed(set, pair, SpanState::Serving, None));
    }
    let mut p = Placement {
        map_version: published,
        spans,
        ..Placement::default()
    };
    p.spans = merged(p.spans);
    Ok(p)
}

/// Of the shards `set`: those that exactly one pair holds, by that pair, and those that several hold.
pub fn holders(
    set: &SpanSet,
    held: &BTreeMap<String, Option<SpanSet>>,
) -> (BTreeMap<String, SpanSet>, SpanSet) {
    let (mut seen, mut several) = (SpanSet::new(), SpanSet::new());
    for has in held.values().flatten() {
        let has = has.intersect(set);
        several = several.union(&seen.intersect(&has));
        seen = seen.union(&has);
    }
    let one = held
        .iter()
        .filter_map(|(pair, has)| {
            let only = has.as_ref()?.intersect(set).minus(&several);
            (!only.is_empty()).then(|| (pair.clone(), only))
        })
        .collect();
    (one, several)
}

fn ambiguous(several: &SpanSet, held: &BTreeMap<String, Option<SpanSet>>) -> Result<(), Ambiguous> {
    if several.is_empty() {
        return Ok(());
    }
    let pairs = held
        .iter()
        .filter(|(_, has)| has.as_ref().is_some_and(|h| h.overlaps(several)))
        .map(|(pair, _)| pair.clone())
        .collect();
    Err(Ambiguous {
        shards: several.clone(),
        pairs,
    })
}

fn placed(set: &SpanSet, pair: &str, state: SpanState, range: Option<&str>) -> Vec<PlacedSpan> {
    set.spans()
        .map(|s| PlacedSpan {
            first: s.first,
            last: s.last,
            pair: pair.to_owned(),
            state,
            range: range.map(ToOwned::to_owned),
        })
        .collect()
}

fn change(
    p: &Placement,
    set: &SpanSet,
    wanted: &str,
    fits: impl Fn(&PlacedSpan) -> bool,
    edit: impl Fn(&mut PlacedSpan),
) -> Result<Placement, Error> {
    check(p)?;
    let wrong = set.minus(&shards(p, &fits));
    if !wrong.is_empty() {
        return Err(Error::NotAs {
            shards: wrong,
            wanted: wanted.to_owned(),
        });
    }
    let mut spans = pieces(p, &recorded(p).minus(set));
    let mut changed = pieces(p, set);
    changed.iter_mut().for_each(edit);
    spans.append(&mut changed);
    normal(Placement { spans, ..p.clone() })
}

fn normal(mut p: Placement) -> Result<Placement, Error> {
    p.spans = merged(p.spans);
    check(&p)?;
    Ok(p)
}

/// Sorted, with neighbours that say the same joined.
fn merged(mut spans: Vec<PlacedSpan>) -> Vec<PlacedSpan> {
    spans.sort_by_key(|s| s.first);
    let mut out: Vec<PlacedSpan> = Vec::with_capacity(spans.len());
    for s in spans {
        match out.last_mut() {
            Some(o)
                if o.last.checked_add(1) == Some(s.first)
                    && o.pair == s.pair
                    && o.state == s.state
                    && o.range == s.range =>
            {
                o.last = s.last;
            }
            _ => out.push(s),
        }
    }
    out
}
