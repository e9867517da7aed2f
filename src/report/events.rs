//! Events for what a person wants to know. Reasons are constants, so that they cannot drift from the docs.

use crate::core::note::Note;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder};

/// The longest note that the API takes is 1 kB.
const MAX_NOTE: usize = 1000;

/// Publishes the notes. An event is a courtesy: a failure to write one never fails a pass.
pub async fn publish(recorder: &Recorder, about: &ObjectReference, action: &str, notes: &[Note]) {
    for n in notes {
        let mut note = n.note.clone();
        if note.len() > MAX_NOTE {
            let end = (0..MAX_NOTE)
                .rev()
                .find(|i| note.is_char_boundary(*i))
                .unwrap_or(0);
            note.truncate(end);
        }
        let event = Event {
            type_: if n.warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: n.reason.to_owned(),
            note: Some(note),
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
