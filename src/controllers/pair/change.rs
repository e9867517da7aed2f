//! The account of a change of the active server: where its time went, for `status.lastChange` and metrics.

use super::{Shared, look::Look, memory::Changing};
use crate::{
    act::{self, pair::key},
    api::{
        conditions::Overall,
        mysql_pair::{ActiveChange, ChangeStep},
        names,
    },
    core::pair::{Decision, Observed},
    metrics::pairs::Outcome,
    observe::pair::Found,
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::{RoundMode, SignedDuration, Timestamp, TimestampRound, Unit},
};
use kube::ResourceExt as _;
use std::time::Duration;

/// How long ago the cause of this pass was seen: what is noticed of the active server stands until all is well again.
pub fn detected(shared: &Shared, look: &Look, observed: &Observed, decision: &Decision) -> Duration {
    let noticed = observed.record.as_ref().and_then(|r| {
        let key = key(&observed.namespace, &observed.pod_name(r.active));
        shared.sentinels.noticed(&key)
    });
    let uid = look.found.pair.uid().unwrap_or_default();
    let since = shared.memories.of(&uid, |m| {
        if matches!(decision.overall, Overall::Ready { .. }) && decision.actions.is_empty() {
            m.noticed = None;
        } else if let Some(noticed) = noticed {
            m.noticed.get_or_insert(noticed);
        }
        m.noticed
    });
    since.map_or(look.began, |n| n.min(look.began)).elapsed()
}

/// Counts a change of the active server.
pub fn measure(
    shared: &Shared,
    decision: &Decision,
    done: &act::pair::Done,
    error: Option<&act::pair::Error>,
) {
    let Some(change) = decision.change else { return };
    let outcome = match error {
        None => Outcome::Opened,
        Some(act::pair::Error::Aborted { .. }) => Outcome::Aborted,
        Some(_) if done.recorded => Outcome::Unfinished,
        // Nothing came of it; it is decided anew.
        Some(_) => return,
    };
    let metrics = &shared.ctx.metrics.pairs;
    metrics.changed(change.kind.as_str(), change.cause, outcome);
}

/// Keeps account of a change of the active server, over as many passes as it takes; gives it when it is over, and then until it is in the status.
pub fn changed(
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
        if let Some(changing) = m.changing.as_mut() {
            changing.steps.extend(done.steps.iter().copied());
        }
        if let Some((changing, opened)) = m.changing.take_if(|_| done.opened.is_some()).zip(done.opened) {
            m.noticed = None;
            let gap = opened.duration_since(changing.since).unsigned_abs();
            let metrics = &shared.ctx.metrics.pairs;
            metrics.opened(changing.change.kind.as_str(), gap);
            m.told = Some(told(&found.name, changing, opened));
        }
        m.told.clone()
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

pub fn step(name: &str, took: Duration) -> ChangeStep {
    ChangeStep {
        name: name.to_owned(),
        duration_milliseconds: i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
    }
}

/// The API keeps microseconds.
fn micro(t: Timestamp) -> MicroTime {
    MicroTime(
        t.round(
            TimestampRound::new()
                .smallest(Unit::Microsecond)
                .mode(RoundMode::Trunc),
        )
        .unwrap_or(t),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::mysql_pair::ChangeKind, core::pair::Change};

    #[test]
    fn the_last_change_tells_each_step_once_and_in_order() {
        let changing = Changing {
            change: Change {
                kind: ChangeKind::Failover,
                cause: "ActiveUnreachable",
                from: 0,
                to: 1,
            },
            epoch: 7,
            since: "2026-01-02T03:04:05.123456789Z".parse().unwrap(),
            steps: [
                ("detected", 4),
                ("recorded", 9),
                ("applied", 1000),
                ("applied", 20),
                ("opened", 1),
            ]
            .map(|(name, ms)| (name, Duration::from_millis(ms)))
            .into(),
        };
        let change = told("web", changing, "2026-01-02T03:04:06Z".parse().unwrap());
        assert_eq!(
            (change.from.as_deref(), change.to.as_str(), change.epoch),
            (Some("web-0"), "web-1", 7)
        );
        let steps: Vec<_> = change
            .steps
            .iter()
            .map(|s| (s.name.as_str(), s.duration_milliseconds))
            .collect();
        assert_eq!(
            steps,
            [("detected", 4), ("recorded", 9), ("applied", 1020), ("opened", 1)]
        );
        // What the API server gives back has to be the same.
        let json = serde_json::to_string(&change).unwrap();
        assert!(json.contains("2026-01-02T03:04:05.123456Z"), "{json}");
        assert_eq!(serde_json::from_str::<ActiveChange>(&json).unwrap(), change);
    }
}
