//! Events for what a person wants to know. Reasons are constants, so that they cannot drift from the docs.

use crate::core::note::Note;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder};

/// The longest note that the API takes is 1 kB.
const MAX_NOTE: usize = 1000;

/// Publishes the notes. An event is a courtesy: a failure to write one never fails a pass.
pub async fn publish(recorder: &Recorder, about: &ObjectReference, action: &str, notes: &[Note]) {
    for n in notes {
        let event = Event {
            type_: if n.warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: n.reason.to_owned(),
            note: Some(shortened(&n.note)),
            action: action.to_owned(),
            secondary: None,
        };
        match crate::deadline::within(crate::deadline::API, recorder.publish(&event, about)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, reason = n.reason, "event not published"),
            Err(error) => tracing::debug!(%error, reason = n.reason, "event not published"),
        }
    }
}

/// As much of it as the API takes, and a mark where it was cut.
fn shortened(note: &str) -> String {
    const MARK: &str = "…";
    if note.len() <= MAX_NOTE {
        return note.to_owned();
    }
    let most = MAX_NOTE - MARK.len();
    let end = (0..=most).rev().find(|i| note.is_char_boundary(*i));
    let (kept, _) = note.split_at(end.unwrap_or(0));
    format!("{kept}{MARK}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_is_too_long_ends_with_a_mark() {
        assert_eq!(shortened(&"a".repeat(MAX_NOTE)), "a".repeat(MAX_NOTE));
        let cut = shortened(&"ä".repeat(MAX_NOTE));
        assert!(
            cut.len() <= MAX_NOTE && cut.starts_with("ää") && cut.ends_with("ä…"),
            "{cut}"
        );
        assert!(cut.len() > MAX_NOTE - 4, "{}", cut.len());
    }
}
