//! Events for what a person wants to know. Reasons are constants, so that they cannot drift from the docs.

use crate::core::note::Note;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder as Series, Reporter},
};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// The longest note that the API takes is 1 kB.
const MAX_NOTE: usize = 1000;

/// Objects and reasons that are remembered, at most.
const REMEMBERED: usize = 4096;

/// UID of an object, and a reason.
type Subject = (String, &'static str);

/// Records events. The same one again is counted, and another note of the same reason is another event: kube's recorder by itself counts
/// what has the same reason, and the first note stands for all of them.
pub struct Recorder {
    client: Client,
    reporter: Reporter,
    last: Mutex<HashMap<Subject, (String, Series)>>,
}

impl Recorder {
    /// `reporter` is shown as the source.
    pub fn new(client: Client, reporter: Reporter) -> Self {
        Self {
            client,
            reporter,
            last: Mutex::default(),
        }
    }

    /// What counts this note about this object.
    fn series(&self, about: &ObjectReference, reason: &'static str, note: &str) -> Series {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let subject = (about.uid.clone().unwrap_or_default(), reason);
        if let Some((told, series)) = last.get(&subject)
            && told == note
        {
            return series.clone();
        }
        if last.len() >= REMEMBERED {
            last.clear();
        }
        let series = Series::new(self.client.clone(), self.reporter.clone());
        last.insert(subject, (note.to_owned(), series.clone()));
        series
    }
}

/// Publishes the notes. An event is a courtesy: a failure to write one never fails a pass.
pub async fn publish(recorder: &Recorder, about: &ObjectReference, action: &str, notes: &[Note]) {
    for n in notes {
        let note = shortened(&n.note);
        let series = recorder.series(about, n.reason, &note);
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
        match crate::deadline::within(crate::deadline::API, series.publish(&event, about)).await {
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
    use crate::act::mock::Api as Mock;
    use serde_json::json;

    const CREATE: &str = "POST /apis/events.k8s.io/v1/namespaces/n/events";

    #[tokio::test]
    async fn another_note_of_the_same_reason_is_another_event() {
        let note = |text: &str| Note::warning("Failover", text.to_owned());
        let about = ObjectReference {
            name: Some("p".into()),
            namespace: Some("n".into()),
            uid: Some("u".into()),
            ..ObjectReference::default()
        };
        let event = json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "e" }, "eventTime": null });
        let mock = Mock::new([(CREATE, 201, event.clone()), (CREATE, 201, event)]);
        let recorder = Recorder::new(mock.client(), Reporter::from("shardwright"));
        publish(&recorder, &about, "Reconcile", &["epoch 7", "epoch 9"].map(note)).await;
        let sent = mock.done();
        assert_eq!(
            (&sent[0]["note"], &sent[1]["note"]),
            (&json!("epoch 7"), &json!("epoch 9"))
        );
    }

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
