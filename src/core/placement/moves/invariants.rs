//! What holds of the moves of every record.

use super::{links, one_end, set, shards};
use crate::{
    api::placement::{
        MAX_MOVE_GTID, MAX_MOVE_SPANS, MAX_MOVES, MAX_MOVES_GTID, MAX_MOVES_SPANS, MoveStage, Placement,
        SpanState,
    },
    core::{placement::Error, spans::SpanSet},
};

/// I4 to I7 and the limits: what [`check`] says of the moves.
pub(in crate::core::placement) fn check_moves(p: &Placement) -> Result<(), Error> {
    if p.moves.is_empty() {
        return Ok(());
    }
    if p.moves.len() > MAX_MOVES {
        return Err(Error::MovesTooLarge(format!(
            "{} moves, the limit is {MAX_MOVES}",
            p.moves.len()
        )));
    }
    let (mut seen, mut spans, mut gtid) = (SpanSet::new(), 0, 0);
    for (i, m) in p.moves.iter().enumerate() {
        let bad = |why: &str| Error::MalformedMove {
            key: m.key(),
            why: why.to_owned(),
        };
        let lists = [&m.shards, &m.opposite, &m.seeded, &m.verified, &m.batch];
        let [all, opposite, seeded, verified, batch] = lists.map(|l| set(l));
        if lists.into_iter().any(|l| set(l).to_vec() != *l) {
            return Err(bad("its lists must be sorted and apart"));
        }
        if p.moves
            .get(i + 1)
            .is_some_and(|n| (&n.from, &n.to) <= (&m.from, &m.to))
        {
            return Err(bad("the moves must be sorted by `from` and `to`"));
        }
        if m.from == m.to
            || p.moves
                .iter()
                .skip(i + 1)
                .any(|n| n.other_end(&m.from) == Some(&m.to))
        {
            return Err(bad("it must be the only one between two pairs"));
        }
        if all.is_empty() || seen.overlaps(&all) {
            return Err(bad("it must have shards, and no shard may be in two moves"));
        }
        let at = |pair: &str| shards(p, |s| s.pair == pair && s.state == SpanState::Serving);
        if !all.is_subset(&at(&m.from).union(&at(&m.to))) {
            return Err(bad("its shards must be served by one of its pairs"));
        }
        if ![
            (&opposite, &all),
            (&seeded, &all),
            (&verified, &seeded),
            (&batch, &verified),
        ]
        .iter()
        .all(|(a, b)| a.is_subset(b))
        {
            return Err(bad(
                "what is cut over must be verified, that seeded, and that of its shards",
            ));
        }
        if one_end(p, m, &batch).is_err()
            || m.batch_number > p.batches
            || (!batch.is_empty() && m.batch_number < 1)
        {
            return Err(bad("its batch must be placed at one end, and be counted"));
        }
        let (fed, cut) = match m.stage {
            MoveStage::Seeding => (true, verified.is_empty()),
            MoveStage::Following | MoveStage::Retaining => (seeded == all, true),
            MoveStage::CleaningUp => (true, batch.is_empty()),
        };
        if !fed || !cut || (m.stage == MoveStage::Retaining) != m.retain_until.is_some() {
            return Err(bad("it has what another stage has"));
        }
        spans += lists.iter().map(|l| l.len()).sum::<usize>();
        gtid += m.seed_gtid.len() + m.opposite_gtid.len();
        let (list, text) = (
            lists.iter().map(|l| l.len()).max().unwrap_or(0),
            m.seed_gtid.len().max(m.opposite_gtid.len()),
        );
        if list > MAX_MOVE_SPANS || spans > MAX_MOVES_SPANS || text > MAX_MOVE_GTID || gtid > MAX_MOVES_GTID {
            return Err(Error::MovesTooLarge(format!(
                "a list of {list} runs and a GTID set of {text} characters in the move {}, up to there {spans} runs and {gtid} characters; the limits are {MAX_MOVE_SPANS}, {MAX_MOVE_GTID}, {MAX_MOVES_SPANS} and {MAX_MOVES_GTID}",
                m.key()
            )));
        }
        seen = seen.union(&all);
    }
    if let Some(m) = links::circle(&p.moves) {
        return Err(Error::MalformedMove {
            key: m.key(),
            why: "its pairs must not be connected by other moves".to_owned(),
        });
    }
    Ok(())
}
