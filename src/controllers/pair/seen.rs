//! What was seen of a pair, and what is remembered of it, as plain data for the core.

use super::{Shared, look::Look};
use crate::{
    act::pair::key,
    api::{mysql_pair::Place, mysql_template::ReplacementMode, names},
    core::pair::{
        Observed,
        moving::Moving,
        observed::{Before, Record, Replacement, STRICT_TIMEOUT, Side},
    },
    mysql::accounts,
    observe::{errant::Kept, pair::Found, servers::Seen},
};
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt as _;

/// Everything that is decided upon.
pub fn observed(shared: &Shared, look: &Look, record: Option<Record>, kept: Kept) -> Observed {
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
    let concerned = |m: &Moving| {
        let has = |s: &Side| s.up().is_some_and(|s| m.concerns(&s.shards));
        m.in_move || sides.iter().any(has)
    };
    let moving = found.moving().filter(concerned);
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
        broken_since: m.broken.map(|(since, _)| since),
        follows: m.follows,
        copies: m.copies,
        joins: m.joins,
        unheard_since: m.unheard,
        no_switchover_before: m.no_switchover_before,
        switchover_void: m.switchover_void,
        acknowledgement_timeout,
        preferred: found.pair.spec.preferred_active.map(Place::ordinal),
        preferred_seen: status.observed_preferred_active.map(Place::ordinal),
        accepted_loss: found
            .pair
            .annotations()
            .get(names::ACCEPT_DATA_LOSS_ANNOTATION)
            .and_then(|e| e.trim().parse().ok()),
        ignored_loss: status.ignored_accept_data_loss,
        copying: names::ORDINALS.map(|i| {
            let key = key(&found.namespace, &names::pod(&found.name, i));
            shared.servers.copying(&key)
        }),
        saved: kept.complete,
        saved_by_name: kept.by_name,
        last_executed: m.last_executed.clone(),
        replacement: replacement(found),
        moving: moving.clone(),
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
