//! One pass over a pair: observe, decide, act, report. What is urgent is decided upon what watches have told, and done before anything else
//! is read; after something was done it goes round again at once, so that a failover is one go.

use super::{
    Error, Shared,
    memory::{AtLeisure, Changing},
    slices,
};
use crate::{
    act::{self, apply, children, pair::key, secrets},
    api::mysql_template::ReplacementMode,
    api::{
        MySQLPair,
        mysql_pair::{ActiveChange, ChangeStep, Place},
        names,
    },
    core::{
        credentials::{Credentials, OPERATOR_USER},
        note::Note,
        pair::{
            self, Action as Step, Children, Decision, Observed,
            observed::{Before, Desired, Record, Replacement, STRICT_TIMEOUT, Server, Side},
            reasons,
        },
    },
    metrics::pairs::Outcome,
    mysql::{Access, accounts},
    observe::{
        self,
        errant::Kept,
        pair::{self as api, Found},
        servers::{Seen, Target},
    },
    report,
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::{SignedDuration, Timestamp, TimestampRound, Unit},
};
use kube::{
    Client, Resource as _, ResourceExt as _,
    runtime::{controller::Action, reflector::ObjectRef},
};
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

/// What was looked at, and how.
struct Look {
    found: Found,
    credentials: api::FoundCopy,
    targets: [Option<Target>; 2],
    seen: [Seen; 2],
    began: Instant,
}

impl Look {
    fn usable(&self) -> Option<&Credentials> {
        self.credentials.copy.as_ref().ok().and_then(Option::as_ref)
    }
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

/// Looks at the servers by what is remembered and what watches have told.
async fn recall(pair: &MySQLPair, shared: &Shared, began: Instant) -> Option<Look> {
    let remembered = shared.memories.of(&pair.uid()?, |m| m.at_leisure.clone())?;
    let found = api::recall(&shared.caches, pair.clone(), remembered.volumes, Timestamp::now())?;
    Some(Box::pin(look(shared, found, remembered.credentials, began)).await)
}

/// The same look at the servers, of the pair as it was read meanwhile.
fn renew(look: Look, fresh: &MySQLPair, shared: &Shared) -> Option<Look> {
    let uid = fresh.uid()?;
    let remembered = shared.memories.of(&uid, |m| m.at_leisure.clone())?;
    let found = api::recall(
        &shared.caches,
        fresh.clone(),
        remembered.volumes,
        Timestamp::now(),
    );
    // Another pair of the name, or one that is not to be hurried.
    let Some(mut found) = found.filter(|_| look.found.pair.uid().as_ref() == Some(&uid)) else {
        hold(shared, look);
        return None;
    };
    if let Some((reason, message)) = remembered.refused {
        found.desired = Desired::Refused { reason, message };
    }
    Some(Look { found, ..look })
}

/// Reads everything by calls of the API and sees to the children before the servers are looked at.
async fn look_at_leisure(
    pair: MySQLPair,
    shared: &Shared,
    began: Instant,
    now: Timestamp,
) -> Result<Look, Error> {
    let client = &shared.ctx.client;
    let mut found = Box::pin(api::find(client, &shared.caches, pair, now)).await?;
    let mut refused = None;
    if found.children() == Children::Apply {
        refused = Box::pin(apply_children(shared, &found, now)).await?;
    }
    if let Some((reason, message)) = refused.clone() {
        found.desired = Desired::Refused { reason, message };
    }
    let secret = names::pair_credentials_secret(&found.name);
    let credentials = api::credentials(client, &found.namespace, &secret).await?;
    let mut storage = None;
    if let (Children::Apply, Some(template)) = (found.children(), found.template()) {
        let size = &template.storage.size;
        storage = Some(act::storage::of_pair(client, names::MANAGER_PAIR, size, &found.claims).await?);
    }
    let at_leisure = AtLeisure {
        storage,
        volumes: found.volumes.clone(),
        credentials: credentials.clone(),
        refused,
    };
    let uid = found.pair.uid().unwrap_or_default();
    shared.memories.of(&uid, |m| m.at_leisure = Some(at_leisure));
    Ok(Box::pin(look(shared, found, credentials, began)).await)
}

/// Looks at the servers.
async fn look(shared: &Shared, found: Found, credentials: api::FoundCopy, began: Instant) -> Look {
    let naming = found.naming();
    let usable = credentials.copy.as_ref().ok().and_then(Option::as_ref);
    let targets = names::ORDINALS.map(|i| target(&found, i, usable));
    let pair = ObjectRef::from_obj(&found.pair);
    let silent = names::ORDINALS.map(|i| {
        let key = key(&found.namespace, &names::pod(&found.name, i));
        shared
            .sentinels
            .watch(&pair, &key, targets.get(i).and_then(Option::as_ref));
        shared.sentinels.silent(&key)
    });
    let seen = shared
        .servers
        .look(targets.clone(), silent, naming.as_ref())
        .await;
    Look {
        found,
        credentials,
        targets,
        seen,
        began,
    }
}

fn hold(shared: &Shared, look: Look) {
    for (seen, target) in look.seen.into_iter().zip(look.targets) {
        if let (Some(session), Some(target)) = (seen.session, target) {
            shared.servers.hold(&target.key, &target.uid, session);
        }
    }
}

/// What has been saved of the transactions that the passive server has and the active one has not, when there are some.
async fn errant(client: &Client, look: &Look) -> Result<Kept, Error> {
    let found = &look.found;
    let record = pair::record(&found.name, &found.status());
    let up = |i: usize| match look.seen.get(i).map(|s| &s.server) {
        Some(Server::Up(s)) => Some(s),
        _ => None,
    };
    let there = record
        .as_ref()
        .and_then(|r| up(r.active).zip(up(r.passive())))
        .is_some_and(|(active, passive)| !passive.executed.is_subset_of(&active.executed_later));
    match record {
        Some(record) if there => {
            Ok(observe::errant::saved(client, &found.namespace, &found.name, record.epoch).await?)
        }
        _ => Ok(Kept::default()),
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
    let detected = detected(shared, &look);
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

/// How long ago the cause of this pass was seen.
fn detected(shared: &Shared, look: &Look) -> Duration {
    let key = |i| key(&look.found.namespace, &names::pod(&look.found.name, i));
    let noticed = names::ORDINALS
        .into_iter()
        .filter_map(|i| shared.sentinels.noticed(&key(i)))
        .min();
    noticed.map_or(look.began, |n| n.min(look.began)).elapsed()
}

/// Counts a change of the active server.
fn measure(
    shared: &Shared,
    decision: &Decision,
    done: &act::pair::Done,
    error: Option<&act::pair::Error>,
    detected: Duration,
) {
    let Some(change) = decision.change else { return };
    let outcome = match error {
        None => Outcome::Opened,
        Some(act::pair::Error::Aborted { .. }) => Outcome::Aborted,
        Some(_) if done.recorded => Outcome::Unfinished,
        // Nothing came of it; it is decided anew.
        Some(_) => return,
    };
    let took: Duration = done.steps.iter().map(|(_, d)| *d).sum();
    let gap = Some(detected + took).filter(|_| outcome == Outcome::Opened);
    let metrics = &shared.ctx.metrics.pairs;
    metrics.changed(change.kind.as_str(), change.cause, outcome, gap);
}

/// Keeps account of a change of the active server; gives it when it is over.
fn changed(
    shared: &Shared,
    found: &Found,
    decision: &Decision,
    done: &act::pair::Done,
    detected: Duration,
) -> Option<ActiveChange> {
    let uid = found.pair.uid().unwrap_or_default();
    let epoch = done
        .written
        .as_ref()
        .and_then(|p| p.status.as_ref())
        .map(|s| s.epoch);
    let took: Duration = done.steps.iter().map(|(_, d)| *d).sum();
    shared.memories.of(&uid, |m| {
        if let (Some(change), Some(epoch), true) = (decision.change, epoch, done.recorded) {
            let ago = SignedDuration::try_from(detected + took).unwrap_or_default();
            m.changing = Some(Changing {
                change,
                epoch,
                since: Timestamp::now() - ago,
                steps: vec![("detected", detected)],
            });
        }
        let changing = m.changing.as_mut()?;
        changing.steps.extend(done.steps.iter().copied());
        let opened = done.opened?;
        let changing = m.changing.take()?;
        Some(told(&found.name, changing, opened))
    })
}

fn told(pair: &str, it: Changing, opened: Timestamp) -> ActiveChange {
    let mut steps: Vec<ChangeStep> = vec![];
    for (name, took) in it.steps {
        let new = step(name, took);
        // One that was repeated counts once.
        match steps.iter_mut().find(|s| s.name == new.name) {
            Some(s) => s.duration_milliseconds += new.duration_milliseconds,
            None => steps.push(new),
        }
    }
    ActiveChange {
        kind: it.change.kind,
        cause: it.change.cause.to_owned(),
        from: Some(names::pod(pair, it.change.from)),
        to: names::pod(pair, it.change.to),
        epoch: it.epoch,
        start_time: micro(it.since),
        open_time: Some(micro(opened)),
        steps,
    }
}

fn step(name: &str, took: Duration) -> ChangeStep {
    ChangeStep {
        name: name.to_owned(),
        duration_milliseconds: i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
    }
}

/// The API keeps microseconds.
fn micro(t: Timestamp) -> MicroTime {
    MicroTime(
        t.round(TimestampRound::new().smallest(Unit::Microsecond))
            .unwrap_or(t),
    )
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
    if let act::pair::Error::Aborted { .. } = error {
        let uid = pair.uid().unwrap_or_default();
        shared
            .memories
            .of(&uid, |m| m.no_switchover_before = Some(now + AFTER_ABORT));
        notes.push(Note::warning(reasons::SWITCHOVER_ABORTED, error.to_string()));
    }
    let recorder = &shared.ctx.recorder;
    report::events::publish(recorder, &pair.object_ref(&()), "Reconcile", &notes).await;
}

/// Secrets first, they are mounted. What the API refuses is told as a condition, and the servers are looked after all the same.
async fn apply_children(
    shared: &Shared,
    found: &Found,
    now: Timestamp,
) -> Result<Option<(&'static str, String)>, Error> {
    let client = &shared.ctx.client;
    let cluster = found.pair.spec.cluster_ref.name.clone();
    let made = async {
        let credentials =
            secrets::of_cluster(client, names::MANAGER_PAIR, &found.namespace, &cluster, now).await?;
        secrets::of_pair(client, names::MANAGER_PAIR, &found.context, &credentials, now).await?;
        Box::pin(children::of_pair(client, names::MANAGER_PAIR, &found.context)).await?;
        Ok(())
    };
    let error = match made.await {
        Ok(()) => return Ok(None),
        Err(error) => error,
    };
    let reason = match &error {
        Error::Secrets(e) if e.is_unusable() => reasons::CREDENTIALS_UNUSABLE,
        Error::Secrets(e) if e.is_refused() => reasons::CHILD_REFUSED,
        Error::Api(e) if e.is_refused() => reasons::CHILD_REFUSED,
        _ => return Err(error),
    };
    Ok(Some((reason, error.to_string())))
}

/// How the server at `i` is reached, when it has an address and there are credentials.
fn target(found: &Found, i: usize, credentials: Option<&Credentials>) -> Option<Target> {
    let pod = found.pod_states.get(i)?.as_ref()?;
    let credentials = credentials?;
    let name = names::pod(&found.name, i);
    Some(Target {
        key: key(&found.namespace, &name),
        uid: pod.uid.clone(),
        access: Access {
            address: pod.ip.clone().filter(|_| pod.running)?,
            port: names::MYSQL_PORT,
            tls_name: names::host(&found.namespace, &found.name, i),
            user: OPERATOR_USER.to_owned(),
            password: credentials.operator_password.clone(),
            ca_pem: credentials.ca_crt.clone(),
        },
    })
}

fn observed(shared: &Shared, look: &Look, record: Option<Record>, kept: Kept) -> Observed {
    let found = &look.found;
    let status = found.status();
    let [seen_a, seen_b] = &look.seen;
    let [pod_a, pod_b] = found.pod_states.clone();
    let [volume_a, volume_b] = found.volumes.clone();
    let side = |pod, volume, seen: &Seen| Side {
        pod,
        volume,
        server: seen.server.clone(),
    };
    let sides = [side(pod_a, volume_a, seen_a), side(pod_b, volume_b, seen_b)];
    let acknowledgement_timeout = timeout(found, record.as_ref(), &sides);
    let uid = found.pair.uid().unwrap_or_default();
    shared.memories.of(&uid, |m| Observed {
        namespace: found.namespace.clone(),
        pair: found.name.clone(),
        finalizer: found.finalizer(),
        deletion: found.deletion,
        paused: found.paused(),
        desired: found.desired.clone(),
        epoch: status.epoch,
        hint: found.hint,
        account_mark: look
            .usable()
            .zip(found.naming().as_ref())
            .map(|(c, naming)| accounts::mark(c, naming)),
        credentials_since: look.credentials.since,
        adrift_since: m.adrift,
        unheard_since: m.unheard,
        no_switchover_before: m.no_switchover_before,
        acknowledgement_timeout,
        preferred: found.pair.spec.preferred_active.map(Place::ordinal),
        preferred_seen: status.observed_preferred_active.map(Place::ordinal),
        accepted_loss: found
            .pair
            .annotations()
            .get(names::ACCEPT_DATA_LOSS_ANNOTATION)
            .and_then(|e| e.trim().parse().ok()),
        saved: kept.complete,
        saved_by_name: kept.by_name,
        last_executed: m.last_executed.clone(),
        replacement: replacement(found),
        record,
        sides,
        before: Before::of(&found.name, &status),
    })
}

/// Milliseconds that a commit waits for its acknowledgement. While nobody knows what is wanted, it stays as it is.
fn timeout(found: &Found, record: Option<&Record>, sides: &[Side; 2]) -> u64 {
    let Some(template) = found.template() else {
        let active = record.and_then(|r| sides.get(r.active)?.up());
        return active
            .map(|s| s.source)
            .filter(|s| s.enabled)
            .map_or(STRICT_TIMEOUT, |s| s.timeout);
    };
    template.acknowledgement_timeout().map_or(STRICT_TIMEOUT, |d| {
        u64::try_from(d.as_millis()).unwrap_or(STRICT_TIMEOUT)
    })
}

fn replacement(found: &Found) -> Replacement {
    match found.template().map(|t| &t.replacement) {
        Some(r) if r.mode == ReplacementMode::Automatic => {
            Replacement::After(SignedDuration::from_secs(r.after_seconds.into()))
        }
        _ => Replacement::Manual,
    }
}
