//! Which databases are read-only on the servers of a pair (rule R3): closed by default. It follows from the record alone, so that a server which
//! comes up, or is promoted, in the middle of a cutover opens nothing that is not its pair's.

use crate::{
    api::placement::{MoveStage, Placement, SpanState},
    core::{
        placement::{self, moves},
        spans::SpanSet,
    },
};

/// The shards whose databases must be read-only on every server of `pair`: those that another pair serves, and those that are being cut over
/// away from here. Databases that are still being created are in nobody's map, and are not fenced. A server that has no such database has
/// nothing to fence.
pub fn shut(p: &Placement, pair: &str) -> SpanSet {
    let elsewhere = placement::shards(p, |s| s.pair != pair && s.state == SpanState::Serving);
    p.moves
        .iter()
        .map(|m| moves::set(&m.batch).intersect(&moves::placed_at(p, m, pair)))
        .fold(elsewhere, |a, b| a.union(&b))
}

/// The shards that may be read-only on the *passive* server of `pair` before they must: the next `window` of those that are about to leave, so
/// that a batch finds them fenced there. `going` is what the wish sends away from here; [`placement::recorded`] with the greatest
/// window gives all that may ever be fenced early, to those who do not know the wish.
pub fn may_be_shut_ahead(p: &Placement, pair: &str, going: &SpanSet, window: usize) -> SpanSet {
    let ready = p
        .moves
        .iter()
        .filter(|m| matches!(m.stage, MoveStage::Following | MoveStage::Retaining))
        .map(|m| moves::set(&m.verified).intersect(&moves::placed_at(p, m, pair)))
        .fold(SpanSet::new(), |a, b| a.union(&b));
    ready
        .intersect(going)
        .minus(&shut(p, pair))
        .shards()
        .take(window)
        .collect()
}

/// The shards that must be writable on the active server of `pair`: those that it serves and that are not being cut over.
pub fn open(p: &Placement, pair: &str) -> SpanSet {
    placement::shards(p, |s| s.pair == pair && s.state == SpanState::Serving).minus(&shut(p, pair))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::placement::{MoveKey, Seed, ShardSpan},
        core::placement::{claim, serve},
    };
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

    fn span(first: i32, last: i32) -> SpanSet {
        SpanSet::of(ShardSpan::new(first, last))
    }
    /// p0 serves 0 to 99; 50 to 99 follow at p1, verified; p1 is creating 200 to 209.
    fn following() -> (Placement, MoveKey) {
        let p = claim(&Placement::default(), &span(0, 99), "p0", Some("r0")).unwrap();
        let p = serve(&p, &span(0, 99), "p0").unwrap();
        let k = MoveKey::new("p0", "p1");
        let p = moves::begin_move(&p, "p0", "p1", &span(50, 99), Seed::Physical).unwrap();
        let p = moves::seeded(&p, &k, &span(50, 99), "").unwrap();
        let p = moves::follow(&p, &k).unwrap();
        let p = claim(&p, &span(200, 209), "p1", Some("r1")).unwrap();
        (moves::verified(&p, &k, &span(50, 99)).unwrap(), k)
    }
    #[track_caller]
    fn is_shut(p: &Placement, pairs: [&str; 3]) {
        assert_eq!(["p0", "p1", "p2"].map(|pair| shut(p, pair).to_string()), pairs);
    }

    #[test]
    fn what_another_pair_serves_is_closed_and_what_is_cut_over_is_closed_on_both() {
        let (p, k) = following();
        // All of it on a physically seeded pair, not only what moves; and on a pair that has nothing to do with it.
        is_shut(&p, ["", "0-99", "0-99"]);
        let p = moves::begin_batch(&p, &k, &span(50, 53)).unwrap();
        is_shut(&p, ["50-53", "0-99", "0-99"]);
        assert_eq!(open(&p, "p0"), span(0, 49).union(&span(54, 99)));
        let undone = moves::undo_batch(&p, &k, 1).unwrap();
        is_shut(&undone, ["", "0-99", "0-99"]);
        let p = moves::cut_over(&p, &k, 1).unwrap();
        is_shut(&p, ["50-53", "0-49,54-99", "0-99"]);
        assert_eq!(open(&p, "p1"), span(50, 53));
        // And back.
        let p = moves::begin_batch(&p, &k, &span(51, 51)).unwrap();
        is_shut(&p, ["50-53", "0-49,51,54-99", "0-99"]);
        let p = moves::cut_over(&p, &k, 2).unwrap();
        is_shut(&p, ["50,52-53", "0-49,51,54-99", "0-99"]);
    }

    #[test]
    fn what_is_being_created_is_not_closed_anywhere() {
        let (p, _) = following();
        for pair in ["p0", "p1", "p2"] {
            assert!(!shut(&p, pair).overlaps(&span(200, 209)));
            assert!(!open(&p, pair).overlaps(&span(200, 209)));
        }
        let p = serve(&p, &span(200, 209), "p1").unwrap();
        is_shut(&p, ["200-209", "0-99", "0-99,200-209"]);
    }

    #[test]
    fn a_window_ahead_of_the_cutover_may_be_closed_on_the_passive_server() {
        let (p, k) = following();
        let all = placement::recorded(&p);
        let ahead =
            |p: &Placement, pair: &str, going: &SpanSet| may_be_shut_ahead(p, pair, going, 8).to_string();
        assert_eq!(ahead(&p, "p0", &span(60, 99)), "60-67");
        assert_eq!(may_be_shut_ahead(&p, "p0", &all, usize::MAX), span(50, 99));
        assert_eq!(ahead(&p, "p1", &all), "", "nothing is placed there yet");
        assert_eq!(ahead(&p, "p0", &span(0, 49)), "", "they are in no move");
        let p = moves::unverified(&p, &k, &span(60, 61)).unwrap();
        assert_eq!(ahead(&p, "p0", &span(60, 99)), "62-69");
        let p = moves::begin_batch(&p, &k, &span(62, 65)).unwrap();
        assert_eq!(
            ahead(&p, "p0", &span(60, 99)),
            "66-73",
            "what must be closed is not ahead"
        );
        let p = moves::cut_over(&p, &k, 1).unwrap();
        assert_eq!(ahead(&p, "p1", &all), "62-65", "the way back");
        let p = moves::retain(&p, &k, Time(Timestamp::UNIX_EPOCH)).unwrap();
        assert_eq!(ahead(&p, "p1", &all), "62-65");
        let p = moves::clean_up(&p, &k).unwrap();
        assert_eq!(ahead(&p, "p1", &all), "", "no shard changes sides any more");
    }

    /// Whatever is served is open on one pair at most, and on none while it is being cut over (R1).
    #[test]
    fn a_shard_is_open_on_one_pair_at_most() {
        let (p, k) = following();
        let begun = moves::begin_batch(&p, &k, &span(50, 53)).unwrap();
        let done = moves::cut_over(&begun, &k, 1).unwrap();
        for p in [p, begun, done] {
            let [a, b] = ["p0", "p1"].map(|pair| open(&p, pair));
            let batch = moves::set(&p.moves[0].batch);
            assert!(!a.overlaps(&b) && !a.union(&b).overlaps(&batch));
            assert_eq!(a.union(&b).union(&batch), placement::serving(&p));
        }
    }
}
