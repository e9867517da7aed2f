//! What moves of shards ask of a pair that they lead to or from: which databases are READ ONLY on its servers, who may take from them, and which
//! transactions one of them may have before the other one. It follows from the record of the cluster alone. A pair that is in no move, and has no
//! shards of others, has none of it.

use super::observed::ServerState;
use crate::{
    api::{PlacedSpan, Placement, SpanState},
    core::{
        credentials,
        gtid::GtidSet,
        migration::fences,
        placement::{self, moves},
        spans::SpanSet,
    },
};

/// What the record of the cluster says that concerns the servers of one pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moving {
    /// A move on record has this pair at an end.
    pub in_move: bool,
    /// Shards whose databases are READ ONLY on both servers (rule R3).
    pub shut: SpanSet,
    /// Of those that are placed here and open, those that may be READ ONLY on the passive server already: a batch takes them soon.
    pub ahead: SpanSet,
    /// Shards that this pair serves, and that are not being cut over.
    pub open: SpanSet,
    /// The accounts that the pairs at the other ends take from this one with.
    pub accounts: Vec<String>,
    /// What this pair counts as executed because copies were taken at it: it comes to one server after the other, and over no channel.
    pub counted: GtidSet,
    /// The pair whose passive server is to be cloned over this pair, which serves nothing.
    pub cloned_from: Option<String>,
}

impl Moving {
    /// What this record says of `pair`.
    pub fn of(p: &Placement, pair: &str) -> Self {
        let mut accounts = vec![];
        let mut counted = GtidSet::new();
        for m in moves::of_pair(p, pair) {
            accounts.extend(m.other_end(pair).map(credentials::channel_user));
            let gtid = if m.to == pair {
                &m.seed_gtid
            } else {
                &m.opposite_gtid
            };
            // What cannot be read is not counted: then a server may look errant, and nothing of it is lost.
            counted = counted.union(&gtid.parse().unwrap_or_default());
        }
        Self {
            in_move: moves::of_pair(p, pair).next().is_some(),
            shut: fences::shut(p, pair),
            ahead: fences::may_be_shut_ahead(p, pair, &placement::recorded(p), usize::MAX),
            open: fences::open(p, pair),
            accounts,
            counted,
            cloned_from: moves::cloned_from(p, pair).map(ToOwned::to_owned),
        }
    }

    /// Whether there is anything of it on a server that has the databases of these shards.
    pub fn concerns(&self, have: &SpanSet) -> bool {
        self.in_move || have.overlaps(&self.shut)
    }

    /// Of these databases, those that are to be made READ ONLY on a server that has them, `shut` of them being so. What is on record nowhere, or is
    /// being created, is none of it.
    pub fn missing(&self, have: &SpanSet, shut: &SpanSet) -> SpanSet {
        self.shut.intersect(have).minus(shut)
    }

    /// Of the databases that are READ ONLY, those that are to be opened.
    pub fn left(&self, shut: &SpanSet, active: bool) -> SpanSet {
        let mine = shut.intersect(&self.open);
        if active { mine } else { mine.minus(&self.ahead) }
    }
}

/// Whether the record keeps a pair: it places shards there, or a move leads to or from it. What was never served and belongs to no range any more
/// is empty, and keeps nobody.
pub fn holds(p: &Placement, pair: &str) -> bool {
    let placed = |s: &PlacedSpan| s.pair == pair && (s.state == SpanState::Serving || s.range.is_some());
    p.spans.iter().any(placed) || moves::of_pair(p, pair).next().is_some()
}

/// What a server has of other pairs. It is read only where [`Moving::concerns`] says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Channels that take from other pairs.
    pub channels: Vec<Link>,
    /// Accounts that other pairs take with.
    pub accounts: Vec<Outsider>,
}

/// A channel that takes from another pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its receiver has ended because another one did.
    pub out_of_step: bool,
    /// What it has received.
    pub received: GtidSet,
}

/// An account that another pair takes with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outsider {
    /// Its name.
    pub user: String,
    /// Nobody can log in with it.
    pub locked: bool,
    /// Dump threads that run with it now.
    pub dumps: u32,
}

/// The channels of a server that take from other pairs.
pub(super) fn channels(s: &ServerState) -> &[Link] {
    s.links.as_ref().map_or(&[], |l| &l.channels)
}

/// The accounts of other pairs that can take from this server, or do: on the active server there is none of it, for nobody but the passive one
/// acknowledges its commits (rule P3).
pub(super) fn admitted(s: &ServerState) -> Vec<String> {
    let accounts = s.links.as_ref().map_or(&[][..], |l| &l.accounts);
    let admitted = accounts.iter().filter(|a| !a.locked || a.dumps > 0);
    let mut users: Vec<String> = admitted.map(|a| a.user.clone()).chain(acknowledging(s)).collect();
    users.sort();
    users.dedup();
    users
}

/// The accounts of other pairs that acknowledge what they take from this server: that is seen of any server, also of one whose pair does not know of the
/// move yet.
pub fn acknowledging(s: &ServerState) -> impl Iterator<Item = String> + '_ {
    let others = |user: &&String| user.starts_with(credentials::CHANNEL_USER_PREFIX);
    s.foreign.iter().filter(others).cloned()
}

/// A move that copies into the pair, or takes from it: `super_read_only` of a passive server is off now and then, `read_only` stays on.
pub(super) fn works_aside(moving: Option<&Moving>) -> bool {
    moving.is_some_and(|m| m.in_move)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{MoveKey, Seed, ShardSpan},
        core::placement::{claim, serve},
    };

    fn span(first: i32, last: i32) -> SpanSet {
        SpanSet::of(ShardSpan::new(first, last))
    }
    const GTID: &str = "00000000-0000-0000-0000-0000000000cc:1-9";
    /// p0 serves 0 to 9, p1 20 to 29; 5 to 9 follow at p1, verified.
    fn following() -> (Placement, MoveKey) {
        let mut p = Placement::default();
        for (first, pair) in [(0, "p0"), (20, "p1")] {
            p = claim(&p, &span(first, first + 9), pair, Some("r")).unwrap();
            p = serve(&p, &span(first, first + 9), pair).unwrap();
        }
        let k = MoveKey::new("p0", "p1");
        let p = moves::begin_move(&p, "p0", "p1", &span(5, 9), Seed::PerDatabase).unwrap();
        let p = moves::seeded(&p, &k, &span(5, 9), GTID).unwrap();
        let p = moves::follow(&p, &k).unwrap();
        (moves::verified(&p, &k, &span(5, 9)).unwrap(), k)
    }

    #[test]
    fn what_is_to_be_shut_and_opened_follows_from_the_record() {
        let (p, k) = following();
        let p = moves::begin_batch(&p, &k, &span(5, 6)).unwrap();
        let at = |p: &Placement, have: &SpanSet, shut: &SpanSet, active: bool| {
            let moving = Moving::of(p, "p0");
            let (missing, left) = (moving.missing(have, shut), moving.left(shut, active));
            (missing.to_string(), left.to_string())
        };
        let all = span(0, 9);
        let none = SpanSet::new();
        // The batch is shut before anything is opened; the rest of the move may be, on the passive server.
        assert_eq!(at(&p, &all, &none, true), ("5-6".into(), String::new()));
        assert_eq!(at(&p, &all, &all, true), (String::new(), "0-4,7-9".into()));
        assert_eq!(at(&p, &all, &all, false), (String::new(), "0-4".into()));
        // Only what is there; and what is on record nowhere is left as it is.
        let more = all.union(&span(20, 21)).union(&span(100, 101));
        assert_eq!(at(&p, &span(6, 7), &none, true), ("6".into(), String::new()));
        assert_eq!(
            at(&p, &more, &span(100, 100), true),
            ("5-6,20-21".into(), String::new())
        );
        let p = moves::cut_over(&p, &k, 1).unwrap();
        assert_eq!(at(&p, &all, &none, false), ("5-6".into(), String::new()));
        let there = Moving::of(&p, "p1");
        assert!(there.missing(&span(5, 9), &span(5, 9)).is_empty());
        assert_eq!(there.left(&span(5, 9), true), span(5, 6));
    }

    #[test]
    fn only_the_ends_of_a_move_and_who_has_shards_of_others_are_concerned() {
        let (p, k) = following();
        let concerned = |pair: &str, have: &SpanSet| Moving::of(&p, pair).concerns(have);
        assert!(concerned("p0", &SpanSet::new()) && concerned("p1", &SpanSet::new()));
        assert!(!concerned("p2", &span(100, 101)) && concerned("p2", &span(9, 9)));
        let ended = moves::end_move(&moves::clean_up(&p, &k).unwrap(), &k).unwrap();
        assert!(!Moving::of(&ended, "p0").concerns(&span(0, 9)));
        assert!(Moving::of(&ended, "p1").concerns(&span(5, 5)));
    }

    #[test]
    fn who_takes_and_what_is_counted_at_each_end() {
        let (p, k) = following();
        let [from, to] = ["p0", "p1"].map(|pair| Moving::of(&p, pair));
        assert_eq!(from.accounts, [credentials::channel_user("p1")]);
        assert_eq!(to.accounts, [credentials::channel_user("p0")]);
        assert!(from.counted.is_empty() && to.cloned_from.is_none());
        assert_eq!(to.counted, GTID.parse().unwrap());
        let p = moves::counted(&p, &k, "p0", GTID).unwrap();
        assert_eq!(Moving::of(&p, "p0").counted, GTID.parse().unwrap());
    }

    #[test]
    fn a_pair_is_kept_by_its_shards_and_by_its_moves() {
        let (p, k) = following();
        let kept = |p: &Placement| ["p0", "p1", "p2"].map(|pair| holds(p, pair));
        assert_eq!(kept(&p), [true, true, false]);
        // All that p0 serves goes to p1: p0 has to wait until the move is over.
        let p = moves::begin_batch(&p, &k, &span(5, 9)).unwrap();
        let mut p = moves::cut_over(&p, &k, 1).unwrap();
        p.spans.retain(|s| s.pair != "p0");
        assert_eq!(kept(&p), [true, true, false]);
        let p = moves::end_move(&moves::clean_up(&p, &k).unwrap(), &k).unwrap();
        assert_eq!(kept(&p), [false, true, false]);
    }
}
