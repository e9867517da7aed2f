//! What a pass over a pair is reported as: status by compare-and-swap, and events.

use super::{events, status};
use crate::{
    act::apply::{self, Error},
    api::{
        MySQLPair, MySQLPairStatus,
        conditions::{self, Said},
        mysql_pair::ActiveChange,
        names,
    },
    controllers::Context,
    core::{
        note::Note,
        pair::{
            self, Decision, Observed,
            observed::{Server, Side},
        },
    },
    metrics::pairs::PairSeen,
};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Resource};

/// What is reported beside what was decided.
#[derive(Debug, Default)]
pub struct Also {
    /// A change of the active server that is over.
    pub change: Option<ActiveChange>,
    /// A new record was written: what was decided to be told of it holds, whatever comes after.
    pub recorded: bool,
    /// Whether the volumes are as large as they should be.
    pub storage: Option<Said>,
    /// The active server was opened.
    pub opened: bool,
    /// What came out while it was done.
    pub notes: Vec<Note>,
}

/// What is measured of a pair: as its status says it.
fn measured(observed: &Observed, opened: bool, status: &MySQLPairStatus) -> PairSeen {
    let holds = |type_: &str| {
        status
            .conditions
            .iter()
            .any(|c| c.type_ == type_ && c.status == "True")
    };
    let record = observed.record.as_ref();
    let both = record.and_then(|r| observed.side(r.active).up().zip(observed.side(r.passive()).up()));
    // One that refuses the operator's password, or one more connection, serves its clients.
    let serving = record.is_some_and(|r| match observed.side(r.active) {
        Side {
            server: Server::Up(s),
            ..
        } => s.writable() && r.member(r.active) == Some(&s.uuid),
        Side {
            server: Server::AccessDenied(_) | Server::Full(_),
            pod: Some(pod),
            ..
        } => pod.ready,
        _ => false,
    });
    PairSeen {
        epoch: status.epoch,
        in_sync: status.in_sync.len(),
        lag: both.map(|(active, passive)| active.executed.minus(&passive.executed_later).count()),
        serving: opened || serving,
        ready: holds(conditions::READY),
        stalled: holds(conditions::STALLED),
        durable: holds(conditions::DURABLE),
    }
}

/// Writes the status when it says something new, upon `seen`, the pair as it was read or last written; then the events.
///
/// # Errors
/// [`Error`]; what the next pass will see as well is not published then.
pub async fn report(
    ctx: &Context,
    seen: &MySQLPair,
    observed: &Observed,
    decision: &Decision,
    also: Also,
    now: Timestamp,
) -> Result<(), Error> {
    let old = seen.status.clone().unwrap_or_default();
    let mut new = pair::status(observed, decision, &old, seen.metadata.generation, now);
    let earlier = old.last_change.as_ref().map_or(0, |c| c.epoch);
    if let Some(change) = also.change.filter(|c| c.epoch >= earlier) {
        new.last_change = Some(change);
    }
    if let Some(storage) = also.storage {
        let generation = seen.metadata.generation;
        conditions::set(&mut new.conditions, &[storage], generation, now);
    }
    let measured = measured(observed, also.opened, &new);
    ctx.metrics
        .pairs
        .seen(&observed.namespace, &observed.pair, measured);
    let written = write(&ctx.client, seen, &new).await;
    let notes = published(written.is_ok(), &decision.notes, also.recorded, &also.notes);
    events::publish(&ctx.recorder, &seen.object_ref(&()), "Reconcile", &notes).await;
    written.map(drop)
}

/// What is told of a pass. Of one whose status was not written, what was done: the rest is seen by the next pass once more.
fn published(written: bool, decided: &[Note], recorded: bool, done: &[Note]) -> Vec<Note> {
    let decided = if written || recorded { decided } else { &[] };
    [decided, done].concat()
}

/// How often a write is tried while somebody edits labels and annotations at the same time: each try takes some milliseconds, on a busy
/// machine as long as there is between two edits of one that edits without end.
const TRIES: usize = 20;

/// Writes the status of `seen` by compare-and-swap on what decisions are made upon: status, specification, deletion, and what a person has
/// accepted. Whoever edits other metadata meanwhile holds nothing up, however often: a switchover that is not recorded for that
/// reason alone would be taken back, and a failover put off. Gives the pair after the write, or `None` when nothing was to be written.
///
/// # Errors
/// [`Error`]; [`Error::is_conflict`] means: observe again.
pub async fn write(
    client: &Client,
    seen: &MySQLPair,
    new: &MySQLPairStatus,
) -> Result<Option<MySQLPair>, Error> {
    let mut upon = seen.clone();
    for _ in 1..TRIES {
        let written = status::write(client, names::MANAGER_PAIR, &upon, upon.status.as_ref(), new).await;
        match written {
            Err(e) if e.is_conflict() => {
                let namespace = seen.metadata.namespace.as_deref().unwrap_or_default();
                let name = seen.metadata.name.as_deref().unwrap_or_default();
                match apply::get::<MySQLPair>(client, namespace, name).await? {
                    Some(now) if same(seen, &now) => upon = now,
                    _ => return Err(e),
                }
            }
            other => return other,
        }
    }
    status::write(client, names::MANAGER_PAIR, &upon, upon.status.as_ref(), new).await
}

/// Whether a decision upon one of them is one upon the other.
fn same(seen: &MySQLPair, now: &MySQLPair) -> bool {
    let accepted = |p: &MySQLPair| {
        let annotations = p.metadata.annotations.as_ref();
        annotations
            .and_then(|a| a.get(names::ACCEPT_DATA_LOSS_ANNOTATION))
            .cloned()
    };
    seen.metadata.uid == now.metadata.uid
        && seen.metadata.generation == now.metadata.generation
        && seen.metadata.deletion_timestamp == now.metadata.deletion_timestamp
        && seen.metadata.finalizers == now.metadata.finalizers
        && seen.status == now.status
        && accepted(seen) == accepted(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::mock::Api;
    use serde_json::{Value, json};

    fn pair(version: &str, epoch: i64, annotations: &Value) -> Value {
        json!({
            "apiVersion": "shardwright.dev/v1alpha1", "kind": "MySQLPair",
            "metadata": {"name": "p0", "namespace": "shop", "uid": "u", "generation": 1,
                         "resourceVersion": version, "annotations": annotations},
            "spec": {"clusterRef": {"name": "main"}},
            "status": {"active": "p0-0", "epoch": epoch},
        })
    }

    const GET: &str = "GET /apis/shardwright.dev/v1alpha1/namespaces/shop/mysqlpairs/p0";
    const PATCH: &str = "PATCH /apis/shardwright.dev/v1alpha1/namespaces/shop/mysqlpairs/p0/status";

    fn conflict() -> Value {
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409, "message": "modified"})
    }

    fn next(epoch: i64) -> (MySQLPair, MySQLPairStatus) {
        let seen: MySQLPair = serde_json::from_value(pair("1", epoch, &json!({}))).unwrap();
        let mut new = seen.status.clone().unwrap();
        new.epoch += 1;
        (seen, new)
    }

    #[tokio::test]
    async fn an_edit_of_annotations_holds_no_record_up() {
        let api = Api::new([
            (PATCH, 409, conflict()),
            (GET, 200, pair("2", 4, &json!({"note": "a"}))),
            (PATCH, 409, conflict()),
            (GET, 200, pair("3", 4, &json!({"note": "b"}))),
            (PATCH, 200, pair("4", 5, &json!({"note": "b"}))),
        ]);
        let (seen, new) = next(4);
        let written = write(&api.client(), &seen, &new).await.unwrap().unwrap();
        assert_eq!(written.status.unwrap().epoch, 5);
        let sent = api.done();
        assert_eq!(sent.last().unwrap()["metadata"]["resourceVersion"], "3");
        assert_eq!(sent.last().unwrap()["status"], json!({"epoch": 5}));
    }

    #[test]
    fn a_record_is_told_of_though_the_status_after_it_is_not_written() {
        let (decided, done) = (
            [Note::warning("Failover", "a")],
            [Note::normal("ErrantSaved", "b")],
        );
        let reasons = |written, recorded| {
            let notes = published(written, &decided, recorded, &done);
            notes.iter().map(|n| n.reason).collect::<Vec<_>>()
        };
        assert_eq!(reasons(true, false), ["Failover", "ErrantSaved"]);
        assert_eq!(reasons(false, true), ["Failover", "ErrantSaved"]);
        assert_eq!(reasons(false, false), ["ErrantSaved"]);
    }

    #[tokio::test]
    async fn another_record_or_another_acceptance_is_a_conflict() {
        for now in [
            pair("2", 5, &json!({})),
            pair("2", 4, &json!({names::ACCEPT_DATA_LOSS_ANNOTATION: "4"})),
        ] {
            let api = Api::new([(PATCH, 409, conflict()), (GET, 200, now)]);
            let (seen, new) = next(4);
            assert!(write(&api.client(), &seen, &new).await.unwrap_err().is_conflict());
            api.done();
        }
    }
}
