//! What is measured of pairs. Of each pair there is one series of each gauge, named by namespace and pair, which goes with the pair.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use std::time::Duration;

/// Names a pair.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PairLabels {
    namespace: String,
    pair: String,
}

/// A change of the active server: all from fixed lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChangeLabels {
    kind: &'static str,
    cause: &'static str,
    outcome: &'static str,
}

/// How it was.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// What became of a change of the active server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The new active server takes writes.
    Opened,
    /// It was given up before it was recorded; the old one goes on.
    Aborted,
    /// It is recorded, and a step after that failed: the next passes go on with it.
    Unfinished,
}

impl Outcome {
    /// The word in the metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "Opened",
            Self::Aborted => "Aborted",
            Self::Unfinished => "Unfinished",
        }
    }
}

/// What a pass saw of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a gauge of its own")]
pub struct PairSeen {
    /// The epoch on record.
    pub epoch: i64,
    /// Members of `inSync`, of two.
    pub in_sync: usize,
    /// Transactions of the active server that the passive one has not applied; `None` when that is not known.
    pub lag: Option<u64>,
    /// Its active server answers and takes writes.
    pub serving: bool,
    /// Condition `Ready`.
    pub ready: bool,
    /// Condition `Stalled`.
    pub stalled: bool,
    /// Condition `Durable`.
    pub durable: bool,
}

/// Gauges of each pair, and counters of all of them.
pub struct Pairs {
    epoch: Family<PairLabels, Gauge>,
    in_sync: Family<PairLabels, Gauge>,
    lag: Family<PairLabels, Gauge>,
    serving: Family<PairLabels, Gauge>,
    ready: Family<PairLabels, Gauge>,
    stalled: Family<PairLabels, Gauge>,
    durable: Family<PairLabels, Gauge>,
    changes: Family<ChangeLabels, Counter>,
    gap: Family<KindLabel, Histogram>,
}

/// From a hand-over (15 ms) to a server that had much to apply (a minute).
fn gap_buckets() -> Histogram {
    Histogram::new([0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 4.0, 8.0, 30.0, 120.0])
}

impl Pairs {
    /// All of them, registered.
    pub fn new(registry: &mut Registry) -> Self {
        let p = Self {
            epoch: Family::default(),
            in_sync: Family::default(),
            lag: Family::default(),
            serving: Family::default(),
            ready: Family::default(),
            stalled: Family::default(),
            durable: Family::default(),
            changes: Family::default(),
            gap: Family::new_with_constructor(gap_buckets),
        };
        registry.register("pair_epoch", "Epoch of the pair's record", p.epoch.clone());
        registry.register(
            "pair_in_sync_servers",
            "Servers of the pair that may be active, of two",
            p.in_sync.clone(),
        );
        registry.register(
            "pair_lag_transactions",
            "Transactions that the passive server has not applied",
            p.lag.clone(),
        );
        registry.register(
            "pair_serving",
            "1 when the pair's active server takes writes",
            p.serving.clone(),
        );
        registry.register("pair_ready", "1 when the pair is Ready", p.ready.clone());
        registry.register(
            "pair_stalled",
            "1 when the pair needs a person",
            p.stalled.clone(),
        );
        registry.register(
            "pair_durable",
            "1 when each commit is on two servers before it is acknowledged",
            p.durable.clone(),
        );
        registry.register(
            "active_changes",
            "Changes of a pair's active server, by kind, cause and outcome",
            p.changes.clone(),
        );
        registry.register(
            "active_change_gap_seconds",
            "Time from when the cause was seen until the new active server took writes",
            p.gap.clone(),
        );
        p
    }

    /// Sets the gauges of a pair.
    pub fn seen(&self, namespace: &str, pair: &str, seen: PairSeen) {
        let labels = PairLabels {
            namespace: namespace.to_owned(),
            pair: pair.to_owned(),
        };
        let set = |gauge: &Family<PairLabels, Gauge>, value: i64| {
            gauge.get_or_create(&labels).set(value);
        };
        set(&self.epoch, seen.epoch);
        set(&self.in_sync, i64::try_from(seen.in_sync).unwrap_or(i64::MAX));
        set(&self.serving, seen.serving.into());
        set(&self.ready, seen.ready.into());
        set(&self.stalled, seen.stalled.into());
        set(&self.durable, seen.durable.into());
        match seen.lag {
            Some(lag) => set(&self.lag, i64::try_from(lag).unwrap_or(i64::MAX)),
            None => drop(self.lag.remove(&labels)),
        }
    }

    /// Takes the series of a pair that is no more away.
    pub fn forget(&self, namespace: &str, pair: &str) {
        let labels = PairLabels {
            namespace: namespace.to_owned(),
            pair: pair.to_owned(),
        };
        for gauge in [
            &self.epoch,
            &self.in_sync,
            &self.lag,
            &self.serving,
            &self.ready,
            &self.stalled,
            &self.durable,
        ] {
            gauge.remove(&labels);
        }
    }

    /// Counts a change of the active server: `kind` and `cause` as `status.lastChange` has them.
    pub fn changed(&self, kind: &'static str, cause: &'static str, outcome: Outcome) {
        let labels = ChangeLabels {
            kind,
            cause,
            outcome: outcome.as_str(),
        };
        self.changes.get_or_create(&labels).inc();
    }

    /// The new active server takes writes, `gap` after its cause was first seen, be it in the pass that recorded it or in a later one.
    pub fn opened(&self, kind: &'static str, gap: Duration) {
        self.gap
            .get_or_create(&KindLabel { kind })
            .observe(gap.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn the_series_of_a_pair_go_with_it() {
        let m = Metrics::default();
        let seen = PairSeen {
            epoch: 7,
            in_sync: 2,
            lag: Some(3),
            serving: true,
            ready: true,
            durable: true,
            stalled: false,
        };
        m.pairs.seen("shop", "p0", seen);
        let text = m.text();
        for line in [
            r#"shardwright_pair_epoch{namespace="shop",pair="p0"} 7"#,
            r#"shardwright_pair_in_sync_servers{namespace="shop",pair="p0"} 2"#,
            r#"shardwright_pair_lag_transactions{namespace="shop",pair="p0"} 3"#,
            r#"shardwright_pair_serving{namespace="shop",pair="p0"} 1"#,
            r#"shardwright_pair_stalled{namespace="shop",pair="p0"} 0"#,
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        m.pairs.seen("shop", "p0", PairSeen { lag: None, ..seen });
        assert!(
            !m.text().contains("pair_lag_transactions{"),
            "what is not known is not told"
        );
        m.pairs.forget("shop", "p0");
        assert!(!m.text().contains(r#"pair="p0""#));
    }

    #[test]
    fn a_change_is_counted_by_kind_cause_and_outcome() {
        let m = Metrics::default();
        m.pairs.changed("Failover", "ActiveUnreachable", Outcome::Opened);
        m.pairs.opened("Failover", Duration::from_millis(180));
        m.pairs.changed("Switchover", "PreferredActive", Outcome::Aborted);
        let text = m.text();
        for line in [
            r#"shardwright_active_changes_total{kind="Failover",cause="ActiveUnreachable",outcome="Opened"} 1"#,
            r#"shardwright_active_changes_total{kind="Switchover",cause="PreferredActive",outcome="Aborted"} 1"#,
            r#"shardwright_active_change_gap_seconds_bucket{le="0.2",kind="Failover"} 1"#,
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
