//! Leader election on a `coordination.k8s.io/v1` Lease.
//!
//! Every write is conditional on the resourceVersion that was read, and another's lease counts as expired only after it stood still for
//! its whole duration on the local monotonic clock, so that the clocks of other machines do not matter. The lease keeps two replicas
//! from doing the same work; what is safe rests on the compare-and-swaps of the records (rules P2 and O1), never on the lease.

use crate::deadline;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use std::time::Duration;
use tokio::time::{Instant, interval};

/// Who contends for which lease, and how patiently.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the Lease.
    pub name: String,
    /// Name of this process: the Pod's.
    pub identity: String,
    /// How long others wait after the last renewal that they saw.
    pub lease: Duration,
    /// The leader gives up when it could not renew for this long; less than `lease`.
    pub renew_deadline: Duration,
    /// Time between two tries.
    pub retry: Duration,
}

impl Config {
    /// 5 s, 3.5 s and 1 s: a third of client-go's, for a failover waits for the next leader when the node of this one dies together with that of
    /// an active server. Two leaders at once are harmless here (rules P2 and P7), so patience buys nothing but quiet.
    pub fn new(name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            identity: identity.into(),
            lease: Duration::from_secs(5),
            renew_deadline: Duration::from_millis(3500),
            retry: Duration::from_secs(1),
        }
    }
}

/// What to do about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Renew,
    Take,
    Wait,
}

/// `unchanged_for`: how long the lease was seen in its present form.
fn evaluate(me: &str, spec: Option<&LeaseSpec>, unchanged_for: Duration) -> Step {
    let Some(spec) = spec else { return Step::Create };
    match spec.holder_identity.as_deref() {
        Some(holder) if holder == me => Step::Renew,
        None | Some("") => Step::Take,
        Some(_) => {
            let seconds = spec.lease_duration_seconds.unwrap_or(0).max(0).unsigned_abs();
            if unchanged_for >= Duration::from_secs(seconds.into()) {
                Step::Take
            } else {
                Step::Wait
            }
        }
    }
}

fn next_spec(me: &str, old: Option<&LeaseSpec>, step: Step, lease: Duration, now: Timestamp) -> LeaseSpec {
    let renewing = step == Step::Renew;
    LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: Some(i32::try_from(lease.as_secs()).unwrap_or(i32::MAX)),
        acquire_time: old
            .filter(|_| renewing)
            .and_then(|o| o.acquire_time.clone())
            .or(Some(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(old.and_then(|o| o.lease_transitions).unwrap_or(0) + i32::from(!renewing)),
        ..old.cloned().unwrap_or_default()
    }
}

/// One contender.
pub struct Elector {
    api: Api<Lease>,
    config: Config,
    /// The resourceVersion last seen, and when it was first seen.
    seen: Option<(String, Instant)>,
}

impl Elector {
    /// A contender for the lease of that name in the namespace of `api`.
    pub fn new(api: Api<Lease>, config: Config) -> Self {
        Self {
            api,
            config,
            seen: None,
        }
    }

    /// One attempt; true when the lease is ours after it.
    async fn attempt(&mut self) -> kube::Result<bool> {
        let now = Instant::now();
        let lease = self.api.get_opt(&self.config.name).await?;
        let version = lease.as_ref().and_then(ResourceExt::resource_version);
        let since = match (&self.seen, version) {
            (Some((v, at)), Some(new)) if *v == new => *at,
            (_, Some(new)) => self.seen.insert((new, now)).1,
            (_, None) => now,
        };
        let spec = lease.as_ref().and_then(|l| l.spec.as_ref());
        let step = evaluate(&self.config.identity, spec, now.duration_since(since));
        let next = next_spec(
            &self.config.identity,
            spec,
            step,
            self.config.lease,
            Timestamp::now(),
        );
        let pp = PostParams::default();
        let written = match (step, lease) {
            (Step::Wait, _) => return Ok(false),
            (_, Some(mut lease)) => {
                // It still carries the resourceVersion that was read: this PUT is a compare-and-swap.
                lease.spec = Some(next);
                self.api.replace(&self.config.name, &pp, &lease).await
            }
            (_, None) => {
                let metadata = ObjectMeta {
                    name: Some(self.config.name.clone()),
                    ..ObjectMeta::default()
                };
                self.api
                    .create(
                        &pp,
                        &Lease {
                            metadata,
                            spec: Some(next),
                        },
                    )
                    .await
            }
        };
        match written {
            Ok(lease) => {
                self.seen = lease.resource_version().map(|v| (v, now));
                Ok(true)
            }
            // Another one was faster.
            Err(kube::Error::Api(s)) if s.is_conflict() || s.is_already_exists() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits until this process leads.
    pub async fn acquire(&mut self) {
        let mut tick = interval(self.config.retry);
        loop {
            tick.tick().await;
            match deadline::within(self.config.renew_deadline, self.attempt()).await {
                Ok(Ok(true)) => return,
                Ok(Ok(false)) => {}
                Ok(Err(error)) => tracing::warn!(%error, "lease not acquired"),
                Err(error) => tracing::warn!(%error, "lease not acquired"),
            }
        }
    }

    /// Renews until that fails for `renew_deadline`, or another one has the lease. The process has to stop working then.
    pub async fn hold(&mut self) {
        let mut renewed = Instant::now();
        let mut tick = interval(self.config.retry);
        loop {
            tick.tick().await;
            let left = self.config.renew_deadline.saturating_sub(renewed.elapsed());
            let began = Instant::now();
            match deadline::within(left, self.attempt()).await {
                Ok(Ok(true)) => renewed = began,
                Ok(Ok(false)) | Err(_) => return,
                Ok(Err(error)) => tracing::warn!(%error, "lease not renewed"),
            }
            if renewed.elapsed() >= self.config.renew_deadline {
                return;
            }
        }
    }

    /// Hands the lease back, after everything that needed it has stopped.
    ///
    /// # Errors
    /// Those of the API; the lease then runs out by itself.
    pub async fn release(&self) -> kube::Result<()> {
        let Some(mut lease) = self.api.get_opt(&self.config.name).await? else {
            return Ok(());
        };
        let ours = lease
            .spec
            .as_mut()
            .filter(|s| s.holder_identity.as_deref() == Some(&self.config.identity));
        if let Some(spec) = ours {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            self.api
                .replace(&self.config.name, &PostParams::default(), &lease)
                .await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_of_another_is_taken_only_after_it_stood_still_for_its_duration() {
        let spec = held_by("b");
        let after = |s| evaluate("a", Some(&spec), Duration::from_secs(s));
        assert_eq!(
            (after(0), after(14), after(15)),
            (Step::Wait, Step::Wait, Step::Take)
        );
        assert_eq!(evaluate("b", Some(&spec), Duration::ZERO), Step::Renew);
        assert_eq!(evaluate("a", None, Duration::ZERO), Step::Create);
        assert_eq!(evaluate("a", Some(&held_by("")), Duration::ZERO), Step::Take);
    }

    #[test]
    fn transitions_count_changes_of_holder_only() {
        let old = held_by("a");
        let spec = |step| {
            next_spec(
                "a",
                Some(&old),
                step,
                Duration::from_secs(15),
                Timestamp::UNIX_EPOCH,
            )
        };
        assert_eq!(spec(Step::Renew).lease_transitions, Some(3));
        assert_eq!(spec(Step::Take).lease_transitions, Some(4));
    }
}
