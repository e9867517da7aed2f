//! Moves that would close a circle of links wait, and one of those on it makes way.

use super::{Begin, Course, Early, Plan, Why};
use crate::{
    api::placement::{Move, MoveKey, MoveStage, Placement},
    core::placement::moves,
};
use std::collections::BTreeMap;

/// The moves that connect two pairs, on record or about to be begun; `None` when none do.
pub(super) fn path(p: &Placement, begun: &[Begin], a: &str, b: &str) -> Option<Vec<MoveKey>> {
    let mut links = moves::keys(p);
    links.extend(begun.iter().map(|b| b.key.clone()));
    moves::path(&links, a, b)
}

/// For every move that would close a circle, one of those on it ends early, unless one ends anyway: of those that have nothing left to do, the one
/// whose way back would end first. While none has, the new one waits.
pub(super) fn make_way(p: &Placement, plan: &mut Plan) {
    for h in &plan.held_back {
        let Why::ClosesCircle { path } = &h.why else {
            continue;
        };
        if path.iter().any(|key| ends(p, &plan.courses, key)) {
            continue;
        }
        let settled = |m: &&Move| plan.courses.get(&m.key()).is_some_and(Course::is_settled);
        // The time of one that has just arrived has not begun.
        let until = |m: &&Move| {
            let until = m.retain_until.as_ref().map(|t| t.0);
            (until.is_none(), until, m.key())
        };
        let on_record = path.iter().filter_map(|key| moves::find(p, key));
        let first = on_record.filter(settled).min_by_key(until).map(Move::key);
        if let Some(key) = first
            && let Some(course) = plan.courses.get_mut(&key)
        {
            course.early = Some(Early::MakesWay);
        }
    }
}

/// Whether a move is being cleaned up, or will be without waiting for `retainUntil`.
pub(in crate::core::migration) fn ends(
    p: &Placement,
    courses: &BTreeMap<MoveKey, Course>,
    key: &MoveKey,
) -> bool {
    moves::find(p, key).is_some_and(|m| m.stage == MoveStage::CleaningUp)
        || courses.get(key).is_some_and(|c| c.early.is_some())
}
