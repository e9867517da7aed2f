//! When a server that is gone for good is replaced: made anew, on another node, with a new volume.

use super::observed::{Observed, Replacement, TroubleKind, Volume, other};
use k8s_openapi::jiff::Timestamp;

/// Whether the passive server has been gone for so long that it is replaced. It must be no member, so that nothing that was
/// acknowledged is only on it, and the active one must be open: the only good copy is never touched.
pub fn due(o: &Observed, now: Timestamp) -> bool {
    let (Some(record), Replacement::After(patience)) = (&o.record, o.replacement) else {
        return false;
    };
    let place = other(record.active);
    let active = o.side(record.active).up();
    let serves =
        active.is_some_and(|s| s.writable() && record.member(record.active) == Some(s.uuid.as_str()));
    if !serves || record.member(place).is_some() || o.side(place).up().is_some() {
        return false;
    }
    let side = o.side(place);
    let node = side
        .pod
        .as_ref()
        .and_then(|p| p.node_gone.as_ref())
        .map(|n| n.since);
    let long = |since: Timestamp| now.duration_since(since) > patience;
    // What makes it crash is not what both are made of: the active one is made of the same.
    let crashes = side
        .pod
        .as_ref()
        .and_then(|p| p.trouble.as_ref())
        .is_some_and(|t| t.kind == TroubleKind::Crash)
        && ![place, record.active].into_iter().any(|i| o.outdated(i));
    // The kubelet may have been away for long while the server was there all the time, or came back a moment ago. Of a volume that is lost
    // the API does not say since when.
    o.adrift_since.is_some_and(long) && (node.is_some_and(long) || side.volume == Volume::Lost || crashes)
}
