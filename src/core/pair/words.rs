//! What is said of each server: its state in one word, and its last error.

use super::{
    observed::{CloneStage, Observed, Ordinal, PodState, Receiver, Server},
    reasons::states,
};

/// The state of one server in one word.
pub fn word(o: &Observed, place: Ordinal) -> &'static str {
    let side = o.side(place);
    let active = o.record.as_ref().is_some_and(|r| r.active == place);
    match (&side.server, &side.pod) {
        (Server::Up(s), _) => {
            if s.writable() {
                return if active { states::SERVING } else { states::OPEN };
            }
            if s.clone.as_ref().is_some_and(|c| c.stage == CloneStage::Running) {
                return states::REBUILDING;
            }
            match &s.channel {
                None => states::CLOSED,
                Some(c) if c.runs() => states::FOLLOWING,
                Some(c) if c.applier_error.is_some() && !c.applier => states::BROKEN,
                Some(c) if c.receiver_error.is_some() && c.receiver == Receiver::Off => states::BROKEN,
                Some(c) if c.stopped() => states::CLOSED,
                Some(_) => states::CONNECTING,
            }
        }
        (Server::AccessDenied(_), _) => states::ACCESS_DENIED,
        (Server::Full(_), _) => states::FULL,
        (_, None) => states::MISSING,
        (_, Some(PodState { deleting: true, .. })) => states::STOPPING,
        (_, Some(PodState { trouble: Some(_), .. })) => states::FAILING,
        // After a copy mysqld is started anew: it is still that.
        _ if o.before.states.get(place).and_then(Option::as_deref) == Some(states::REBUILDING) => {
            states::REBUILDING
        }
        (Server::Unreachable(_), Some(p)) if p.ready => states::UNREACHABLE,
        _ => states::STARTING,
    }
}

/// The last error of one server's Pod, volume or replication.
pub fn last_error(o: &Observed, place: Ordinal) -> Option<String> {
    let side = o.side(place);
    if let Server::Up(s) = &side.server {
        let c = s.channel.as_ref()?;
        let (number, text) = c.applier_error.as_ref().or(c.receiver_error.as_ref())?;
        return Some(format!("{text} ({number})"));
    }
    if let Some(t) = side.pod.as_ref().and_then(|p| p.trouble.as_ref()) {
        return Some(t.message.clone());
    }
    match &side.server {
        Server::Unreachable(e) | Server::AccessDenied(e) | Server::Full(e) => Some(e.clone()),
        Server::Absent | Server::Up(_) => None,
    }
}
