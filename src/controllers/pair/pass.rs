//! One pass over a pair: observe, decide, act, report. What is urgent is decided upon what watches have told, and done before anything else
//! is read; after something was done it goes round again at once, so that a failover is one go.

use super::{
    Error, Shared,
    change::{changed, detected, measure, step},
    look::{Look, errant, hold, look_at_leisure, recall, renew},
    seen::observed,
    slices,
};
use crate::{
    act::{self, apply, pair::key},
    api::{MySQLPair, conditions::Overall, names},
    core::{
        note::Note,
        pair::{self, Action as Step, Children, Decision, Observed, reasons},
    },
    observe::errant::Kept,
    report,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{Resource as _, ResourceExt as _, runtime::controller::Action};
use std::time::{Duration, Instant};

/// How often a pass goes round, at most: after something was done.
const ROUNDS: usize = 8;
/// Until the next pass after that.
const GO_ON: Duration = Duration::from_millis(50);
/// After a planned switchover that came to nothing, none is tried for so long.
const AFTER_ABORT: SignedDuration = SignedDuration::from_secs(5);
/// The same after one that only an edit of the pair stood in the way of: somebody who edits without end has the active server closed for a
/// moment each time.
const AFTER_VOID: SignedDuration = SignedDuration::from_secs(1);

/// What a round came to.
enum Round {
    /// Something was done.
    Again,
    /// Nothing more is to be done now.
    Rest(Action),
    /// The pair is gone.
    Gone,
}

/// Goes round until there is nothing to be done.
pub async fn pass(pair: &MySQLPair, shared: &Shared) -> Result<Action, Error> {
    for _ in 0..ROUNDS {
        match Box::pin(round(pair, shared)).await? {
            Round::Again => {}
            Round::Rest(action) => return Ok(action),
            Round::Gone => {
                forget(shared, pair);
                return Ok(Action::await_change());
            }
        }
    }
    Ok(Action::requeue(GO_ON))
}

fn forget(shared: &Shared, pair: &MySQLPair) {
    let (namespace, name) = (pair.namespace().unwrap_or_default(), pair.name_any());
    for i in names::ORDINALS {
        let key = key(&namespace, &names::pod(&name, i));
        shared.servers.forget(&key);
        shared.sentinels.forget(&key);
    }
    shared.memories.forget(&pair.uid().unwrap_or_default());
    shared.ctx.metrics.pairs.forget(&namespace, &name);
}

async fn round(pair: &MySQLPair, shared: &Shared) -> Result<Round, Error> {
    let client = &shared.ctx.client;
    let (namespace, name) = (pair.namespace().unwrap_or_default(), pair.name_any());
    let began = Instant::now();
    // The servers are asked while the pair is read: whoever is urgently needed is known before.
    let (fresh, looked) = futures::join!(
        apply::get::<MySQLPair>(client, &namespace, &name),
        recall(pair, shared, began),
    );
    let Some(fresh) = fresh? else {
        return Ok(Round::Gone);
    };
    let looked = looked.and_then(|look| renew(look, &fresh, shared));
    let now = Timestamp::now();
    if let Some(look) = looked {
        let (observed, decision) = decide(shared, &look, Kept::default(), now);
        if !decision.actions.is_empty() && decision.actions.iter().all(is_urgent) {
            return Box::pin(act(shared, look, observed, decision, now)).await;
        }
        hold(shared, look);
    }
    let look = Box::pin(look_at_leisure(fresh, shared, began, now)).await?;
    let kept = errant(client, &look).await?;
    let (observed, decision) = decide(shared, &look, kept, now);
    Box::pin(act(shared, look, observed, decision, now)).await
}

/// Whether a step is done before children are seen to, and needs nothing of them.
fn is_urgent(step: &Step) -> bool {
    match step {
        Step::Fence(_)
        | Step::Record(_)
        | Step::Open(_)
        | Step::Close(_)
        | Step::Reach { .. }
        | Step::StopReceiver(_)
        | Step::Apply(_)
        | Step::Discard(_)
        | Step::SyncRelayLog { .. }
        | Step::SourceOn { .. }
        | Step::SourceOff(_)
        | Step::Timeout { .. }
        | Step::LockOut { .. }
        | Step::Start(_)
        | Step::Stop(_)
        | Step::Shut(_)
        | Step::Unshut { .. }
        | Step::Bar(_)
        | Step::Admit(_)
        | Step::Quiet(_)
        | Step::Unlink(_)
        | Step::Mend(_) => true,
        Step::AddFinalizer
        | Step::RemoveFinalizer
        | Step::Accounts { .. }
        | Step::SaveErrant { .. }
        | Step::Replace { .. }
        | Step::Follow { .. }
        | Step::Rebuild { .. }
        | Step::CloneFrom { .. }
        | Step::EndClone(_)
        | Step::Adopt { .. }
        | Step::DeletePod { .. } => false,
    }
}

fn decide(shared: &Shared, look: &Look, kept: Kept, now: Timestamp) -> (Observed, Decision) {
    let found = &look.found;
    let record = pair::record(&found.name, &found.status());
    let uid = found.pair.uid().unwrap_or_default();
    shared.memories.of(&uid, |m| {
        m.saw(record.as_ref(), &look.seen, look.still.as_ref(), now);
    });
    let observed = observed(shared, look, record, kept);
    let decision = pair::decide(&observed, now);
    shared.memories.of(&uid, |m| m.decided(&decision, now));
    (observed, decision)
}

async fn act(
    shared: &Shared,
    mut look: Look,
    observed: Observed,
    decision: Decision,
    now: Timestamp,
) -> Result<Round, Error> {
    let client = &shared.ctx.client;
    let detected = detected(shared, &look, &observed, &decision);
    let credentials = look.usable().cloned();
    let naming = look.found.naming();
    let hands = act::pair::Hands::new(
        client,
        &look.found,
        &mut look.seen,
        &shared.servers,
        credentials.as_ref(),
        naming.as_ref(),
    );
    // A move begins no step meanwhile.
    let acting = (!decision.actions.is_empty()).then(|| {
        shared
            .ctx
            .acting
            .begin(key(&look.found.namespace, &look.found.name))
    });
    let (done, result) = hands.act(&decision).await;
    drop(acting);
    if result.is_ok() && decision.actions.contains(&Step::RemoveFinalizer) {
        return Ok(Round::Gone);
    }
    if result.is_ok() {
        let uid = look.found.pair.uid().unwrap_or_default();
        shared.memories.of(&uid, |m| m.did(&decision, now));
    }
    measure(shared, &decision, &done, result.as_ref().err());
    let mut change = changed(shared, &look.found, &decision, &done, detected);
    let upon = done.written.clone().unwrap_or_else(|| look.found.pair.clone());
    let record = pair::record(&look.found.name, &upon.status.clone().unwrap_or_default());
    let opened = done.opened.and(record.as_ref()).map(|r| r.active);
    let mut led = Ok(());
    if decision.children != Children::Leave {
        let began = Instant::now();
        led = slices::write(
            client,
            &look.found,
            record.as_ref(),
            &look.seen,
            opened,
            &shared.caches,
        )
        .await;
        if let Some(change) = &mut change {
            change.steps.push(step("endpoint", began.elapsed()));
        }
    }
    let pods = look.found.pods.clone();
    let uid = upon.uid().unwrap_or_default();
    let also = report::pair::Also {
        change,
        recorded: done.recorded,
        opened: done.opened.is_some(),
        storage: None,
        notes: came_out(&done),
    };
    hold(shared, look);
    if let Err(error) = result {
        failed(shared, &upon, &decision, &done, &error).await;
        if holds_all_the_same(&error) {
            let told = unfinished(decision, &observed, &done, &error);
            if let Err(error) = report::pair::report(&shared.ctx, &upon, &observed, &told, also, now).await {
                tracing::debug!(%error, "what holds of a pass that failed is not reported");
            } else {
                shared.memories.of(&uid, |m| m.told = None);
            }
        } else {
            let recorder = &shared.ctx.recorder;
            report::events::publish(recorder, &upon.object_ref(&()), "Reconcile", &also.notes).await;
        }
        return Err(error.into());
    }
    // Nothing of the operator's goes by it: it may come last.
    let gates = if decision.children == Children::Leave {
        Ok(())
    } else {
        act::readiness::of_pair(client, names::MANAGER_PAIR, &pods, record.as_ref(), now).await
    };
    let storage = shared
        .memories
        .of(&uid, |m| m.at_leisure.as_ref().and_then(|l| l.storage.clone()));
    let also = report::pair::Also { storage, ..also };
    report::pair::report(&shared.ctx, &upon, &observed, &decision, also, now).await?;
    shared.memories.of(&uid, |m| m.told = None);
    led?;
    gates?;
    Ok(
        if decision.actions.is_empty() || decision.actions.iter().any(takes_time) {
            Round::Rest(Action::requeue(rest(&observed, decision.requeue, now)))
        } else {
            Round::Again
        },
    )
}

/// Until the next pass: no longer than until a switchover may be tried again.
fn rest(observed: &Observed, requeue: Duration, now: Timestamp) -> Duration {
    let again = observed.no_switchover_before.map(|t| t.duration_since(now));
    match again.filter(SignedDuration::is_positive) {
        Some(again) => requeue.min(again.unsigned_abs() + GO_ON),
        None => requeue,
    }
}

/// What came out while steps were taken, whatever became of the others.
fn came_out(done: &act::pair::Done) -> Vec<Note> {
    let volume = done.kept.iter().map(|pv| {
        Note::normal(
            reasons::SERVER_REPLACED,
            format!("the old volume is kept: PersistentVolume {pv}"),
        )
    });
    let saved = done.saved.iter().filter_map(|(pod, written)| {
        let secret = written.secret.as_ref()?;
        let by_name = written.part.minus(&written.complete);
        let rest = if by_name.is_empty() {
            String::new()
        } else {
            format!("; by name alone: {by_name}")
        };
        Some(Note::warning(
            reasons::ERRANT_SAVED,
            format!(
                "{pod} has transactions that the active server lacks; these were saved in the Secret `{secret}`: {}{rest}",
                written.part.minus(&by_name)
            ),
        ))
    });
    volume.chain(saved).collect()
}

/// Whether nothing can be seen of a step at once.
fn takes_time(step: &Step) -> bool {
    matches!(
        step,
        Step::DeletePod { .. }
            | Step::Replace { .. }
            | Step::Rebuild { .. }
            | Step::CloneFrom { .. }
            | Step::EndClone(_)
            | Step::Follow { .. }
            | Step::Start(_)
            | Step::Mend(_)
    )
}

/// Whether what was decided upon is so, although a step failed: a server that cannot do it yet may take long, and an API that refuses it does
/// so until somebody changes something. People see why meanwhile.
fn holds_all_the_same(error: &act::pair::Error) -> bool {
    use act::{errant, pair::Error};
    match error {
        Error::Server(_)
        | Error::NoConnection(_)
        | Error::NoCredentials
        | Error::NoDonor(_)
        | Error::NotEmpty(_)
        | Error::Busy(_)
        | Error::Errant(errant::Error::Server(_) | errant::Error::Crowded(..)) => true,
        Error::Api(e) | Error::Errant(errant::Error::Api(e)) => {
            e.is_answered() && !e.is_conflict() && !e.is_already_exists()
        }
        Error::Superseded | Error::Aborted { .. } => false,
    }
}

/// What is told of a pass that failed: how things are, what the API or the saving of transactions failed at, and nothing of what was not
/// done.
fn unfinished(
    decision: Decision,
    observed: &Observed,
    done: &act::pair::Done,
    error: &act::pair::Error,
) -> Decision {
    let overall = with_error(&decision.overall, error);
    let (was, is) = (decision.overall.reason(), overall.reason());
    // With a new record all notes were published already.
    let mut notes: Vec<Note> = decision
        .notes
        .into_iter()
        .filter(|n| !done.recorded && n.reason == was && n.reason == is)
        .collect();
    if let Overall::Stalled { reason, message } = &overall
        && (*reason != was || !matches!(decision.overall, Overall::Stalled { .. }))
        && observed.before.stalled.as_deref() != Some(*reason)
    {
        notes.push(Note::warning(reason, message.clone()));
    }
    Decision {
        notes,
        change: None,
        overall,
        ..decision
    }
}

/// The pair as a whole, with what a step failed at: first, for what follows may be long. What only a person can change is Stalled.
fn with_error(overall: &Overall, error: &act::pair::Error) -> Overall {
    use act::{errant, pair::Error};
    let (reason, message) = (overall.reason(), format!("{error}; {}", overall.message()));
    match error {
        Error::Api(e) | Error::Errant(errant::Error::Api(e)) if e.is_refused() => Overall::Stalled {
            reason: reasons::CHILD_REFUSED,
            message,
        },
        Error::Errant(errant::Error::Crowded(..)) => Overall::Stalled {
            reason: reasons::ERRANT_TRANSACTIONS,
            message,
        },
        Error::Api(_) | Error::Errant(_) => match overall {
            Overall::Stalled { .. } => Overall::Stalled { reason, message },
            _ => Overall::Working { reason, message },
        },
        // What a server is not ready for changes with each pass, and is told by its state.
        _ => overall.clone(),
    }
}

/// What a pass that failed leaves behind for people and for the next one.
async fn failed(
    shared: &Shared,
    pair: &MySQLPair,
    decision: &Decision,
    done: &act::pair::Done,
    error: &act::pair::Error,
) {
    let mut notes = vec![];
    if done.recorded {
        // It is on record: what is told of it holds, and no later pass sees the transition.
        let came = |n: &&Note| match n.reason {
            reasons::ACTIVE_OPENED => done.opened.is_some(),
            // It is the last of its steps.
            reasons::REBUILD_STARTED => false,
            _ => true,
        };
        notes.extend(decision.notes.iter().filter(came).cloned());
    }
    if let act::pair::Error::Aborted { source, .. } = error {
        // A wish that only somebody's edit stood in the way of is not given up.
        let void = source.is_void();
        let wait = if void { AFTER_VOID } else { AFTER_ABORT };
        shared.memories.of(&pair.uid().unwrap_or_default(), |m| {
            m.no_switchover_before = Some(Timestamp::now() + wait);
            m.switchover_void = void;
        });
        notes.push(Note::warning(reasons::SWITCHOVER_ABORTED, error.to_string()));
    }
    let recorder = &shared.ctx.recorder;
    report::events::publish(recorder, &pair.object_ref(&()), "Reconcile", &notes).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::{errant, mock, pair::Error as Failed};

    async fn answered(code: u16, reason: &str) -> apply::Error {
        let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "reason": reason, "code": code, "message": "exceeded quota"});
        let api = mock::Api::new([(
            "GET /apis/shardwright.dev/v1alpha1/namespaces/shop/mysqlpairs/p0",
            code,
            status,
        )]);
        apply::get::<MySQLPair>(&api.client(), "shop", "p0")
            .await
            .unwrap_err()
    }

    #[tokio::test]
    async fn what_the_api_refuses_stalls_the_pair_and_is_told() {
        let working = Overall::Working {
            reason: reasons::SAVING_ERRANT,
            message: "they are saved".into(),
        };
        let refused = Failed::Errant(errant::Error::Api(answered(403, "Forbidden").await));
        assert!(holds_all_the_same(&refused));
        let Overall::Stalled { reason, message } = with_error(&working, &refused) else {
            panic!("a person has to mend it");
        };
        assert_eq!(reason, reasons::CHILD_REFUSED);
        assert!(message.contains("exceeded quota; they are saved"), "{message}");
        // It passes by itself, or is seen by the next pass.
        let busy = Failed::Api(answered(429, "TooManyRequests").await);
        assert!(holds_all_the_same(&busy));
        assert_eq!(with_error(&working, &busy).reason(), reasons::SAVING_ERRANT);
        assert!(!holds_all_the_same(&Failed::Api(answered(409, "Conflict").await)));
        assert!(!holds_all_the_same(&Failed::Api(
            answered(503, "ServiceUnavailable").await
        )));
        let crowded = Failed::Errant(errant::Error::Crowded(10, "u:1".parse().unwrap_or_default()));
        assert_eq!(
            with_error(&working, &crowded).reason(),
            reasons::ERRANT_TRANSACTIONS
        );
        assert_eq!(with_error(&working, &Failed::Busy("saving")), working);
    }

    #[test]
    fn the_event_names_the_secret_that_was_written_and_what_is_in_it() {
        let set = |s: &str| {
            format!("11111111-1111-1111-1111-111111111111:{s}")
                .parse::<crate::core::gtid::GtidSet>()
                .unwrap()
        };
        let written = errant::Written {
            secret: Some("p0-errant-7-2".into()),
            complete: set("1-8"),
            by_name: set("9"),
            part: set("5-9"),
        };
        let mut done = act::pair::Done {
            saved: Some(("p0-1".into(), written.clone())),
            ..Default::default()
        };
        let notes = came_out(&done);
        assert!(
            notes[0].note.contains("`p0-errant-7-2`") && notes[0].note.contains(":5-8; by name alone"),
            "{notes:?}"
        );
        // Nothing new was saved.
        done.saved = Some((
            "p0-1".into(),
            errant::Written {
                secret: None,
                ..written
            },
        ));
        assert!(came_out(&done).is_empty());
    }

    #[test]
    fn what_needs_children_or_takes_its_time_is_not_urgent() {
        assert!(is_urgent(&Step::Open(0)) && is_urgent(&Step::Close(1)));
        let delete = Step::DeletePod {
            place: 1,
            uid: "u".into(),
            down: false,
        };
        assert!(!is_urgent(&delete) && takes_time(&delete));
    }
}
