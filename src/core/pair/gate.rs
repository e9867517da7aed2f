//! The readiness gate of a Pod: what the record says of its server. Services do not go by it (the operator writes their EndpointSlices
//! itself), the PodDisruptionBudget does: a drain leaves the active server alone while there is no other that could take over.

use super::observed::{Ordinal, Record};

/// The server takes the writes.
const ACTIVE: &str = "Active";
/// The server has everything, and may become active.
const IN_SYNC: &str = "InSync";
/// The server is not in the record.
const NOT_IN_SYNC: &str = "NotInSync";

/// What a Pod's condition should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// `True` or `False`.
    pub open: bool,
    /// One word.
    pub reason: &'static str,
}

/// The condition of the Pod at `place`. Before the first record no Pod is ready.
pub fn gate(record: Option<&Record>, place: Ordinal) -> Gate {
    let is_active = record.is_some_and(|r| r.active == place);
    let is_member = record.is_some_and(|r| r.member(place).is_some());
    let reason = match (is_active, is_member) {
        (true, _) => ACTIVE,
        (false, true) => IN_SYNC,
        (false, false) => NOT_IN_SYNC,
    };
    Gate {
        open: is_active || is_member,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::gtid::GtidSet;

    #[test]
    fn the_active_server_and_members_are_ready() {
        let both = Record {
            active: 1,
            epoch: 7,
            in_sync: [Some("a".into()), Some("b".into())],
            settled: GtidSet::new(),
            given_up: GtidSet::new(),
        };
        let alone = Record {
            in_sync: [None, Some("b".into())],
            ..both.clone()
        };
        let word = |r: Option<&Record>, i| (gate(r, i).open, gate(r, i).reason);
        assert_eq!(word(Some(&both), 0), (true, "InSync"));
        assert_eq!(word(Some(&both), 1), (true, "Active"));
        assert_eq!(word(Some(&alone), 0), (false, "NotInSync"));
        assert_eq!(word(Some(&alone), 1), (true, "Active"));
        assert_eq!(word(None, 0), (false, "NotInSync"));
    }
}
