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
    api::{MySQLPair, names},
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
        | Step::Stop(_) => true,
        Step::AddFinalizer
        | Step::RemoveFinalizer
        | Step::Accounts { .. }
        | Step::SaveErrant { .. }
        | Step::Replace { .. }
        | Step::Follow { .. }
        | Step::Rebuild { .. }
        | Step::DeletePod { .. } => false,
    }
}

fn decide(shared: &Shared, look: &Look, kept: Kept, now: Timestamp) -> (Observed, Decision) {
    let found = &look.found;
    let record = pair::record(&found.name, &found.status());
    let uid = found.pair.uid().unwrap_or_default();
    shared
        .memories
        .of(&uid, |m| m.saw(record.as_ref(), &look.seen, now));
    let observed = observed(shared, look, record, kept);
    let decision = pair::decide(&observed, now);
    shared.memories.of(&uid, |m| m.follows(decision.following, now));
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
    let (done, result) = hands.act(&decision).await;
    if result.is_ok() && decision.actions.contains(&Step::RemoveFinalizer) {
        return Ok(Round::Gone);
    }
    measure(shared, &decision, &done, result.as_ref().err(), detected);
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
    let kept: Vec<Note> = done
        .kept
        .iter()
        .map(|pv| {
            Note::normal(
                reasons::SERVER_REPLACED,
                format!("the old volume is kept: PersistentVolume {pv}"),
            )
        })
        .collect();
    hold(shared, look);
    if let Err(error) = result {
        failed(shared, &upon, &decision, &done, &error, now).await;
        if holds_all_the_same(&error) {
            let told = unfinished(decision, &done);
            let also = report::pair::Also {
                notes: kept,
                ..Default::default()
            };
            if let Err(error) = report::pair::report(&shared.ctx, &upon, &observed, &told, also, now).await {
                tracing::debug!(%error, "what holds of a pass that failed is not reported");
            }
        }
        return Err(error.into());
    }
    // Nothing of the operator's goes by it: it may come last.
    let gates = if decision.children == Children::Leave {
        Ok(())
    } else {
        act::readiness::of_pair(client, names::MANAGER_PAIR, &pods, record.as_ref(), now).await
    };
    let uid = upon.uid().unwrap_or_default();
    let storage = shared
        .memories
        .of(&uid, |m| m.at_leisure.as_ref().and_then(|l| l.storage.clone()));
    let also = report::pair::Also {
        change,
        storage,
        notes: kept,
    };
    report::pair::report(&shared.ctx, &upon, &observed, &decision, also, now).await?;
    led?;
    gates?;
    Ok(
        if decision.actions.is_empty() || decision.actions.iter().any(takes_time) {
            Round::Rest(Action::requeue(decision.requeue))
        } else {
            Round::Again
        },
    )
}

/// Whether nothing can be seen of a step at once.
fn takes_time(step: &Step) -> bool {
    matches!(
        step,
        Step::DeletePod { .. }
            | Step::Replace { .. }
            | Step::Rebuild { .. }
            | Step::Follow { .. }
            | Step::Start(_)
    )
}

/// Whether what was decided upon is so, although a step failed: a server that cannot do it yet may take long, and people see why meanwhile.
fn holds_all_the_same(error: &act::pair::Error) -> bool {
    use act::pair::Error;
    matches!(
        error,
        Error::Server { .. } | Error::NoConnection(_) | Error::NoCredentials
    )
}

/// What is told of a pass that failed: how things are, and nothing of what was not done.
fn unfinished(decision: Decision, done: &act::pair::Done) -> Decision {
    let reason = decision.overall.reason();
    // With a new record all notes were published already.
    let notes = decision
        .notes
        .into_iter()
        .filter(|n| !done.recorded && n.reason == reason);
    Decision {
        notes: notes.collect(),
        change: None,
        ..decision
    }
}

/// What a pass that failed leaves behind for people and for the next one.
async fn failed(
    shared: &Shared,
    pair: &MySQLPair,
    decision: &Decision,
    done: &act::pair::Done,
    error: &act::pair::Error,
    now: Timestamp,
) {
    let mut notes = vec![];
    if done.recorded {
        // It is on record: what is told of it holds, and no later pass sees the transition.
        notes.extend(decision.notes.iter().cloned());
    }
    if let act::pair::Error::Aborted { source, .. } = error {
        // A wish that only somebody's edit stood in the way of is not given up.
        if !source.is_void() {
            let uid = pair.uid().unwrap_or_default();
            shared
                .memories
                .of(&uid, |m| m.no_switchover_before = Some(now + AFTER_ABORT));
        }
        notes.push(Note::warning(reasons::SWITCHOVER_ABORTED, error.to_string()));
    }
    let recorder = &shared.ctx.recorder;
    report::events::publish(recorder, &pair.object_ref(&()), "Reconcile", &notes).await;
}

#[cfg(test)]
mod tests {
    use super::*;

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
