//! What is measured of moves of shards between pairs.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use std::time::Duration;

/// A move.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct MoveLabels {
    /// Namespace.
    pub namespace: String,
    /// Cluster.
    pub cluster: String,
    /// Pair at one end.
    pub from: String,
    /// Pair at the other end.
    pub to: String,
}

/// What is seen of a move in a pass over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveSeen {
    /// Transactions that its copies lack; that of earlier passes stays while it is not known.
    pub lag: Option<u64>,
    /// It needs a person.
    pub stalled: bool,
    /// Shards that were found equal and wait for their batch.
    pub waiting: usize,
    /// Since when it has come no further, or need not; seconds since 1970.
    pub since: i64,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BatchLabels {
    /// `cut_over`, `held`, `late`, `behind` or `failed`.
    pub outcome: &'static str,
}

/// What became of a move.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EndLabels {
    /// `moved`, or `not_moved` when every shard was where it had been.
    pub outcome: &'static str,
}

/// Of moves.
pub struct Moves {
    lag: Family<MoveLabels, Gauge>,
    stalled: Family<MoveLabels, Gauge>,
    waiting: Family<MoveLabels, Gauge>,
    since: Family<MoveLabels, Gauge>,
    /// Batches of shards.
    pub batches: Family<BatchLabels, Counter>,
    /// Moves that are over.
    pub ended: Family<EndLabels, Counter>,
    /// Bytes copied from pair to pair.
    pub copied_bytes: Counter,
    write_block: Histogram,
}

impl Moves {
    /// Registers them.
    pub fn new(registry: &mut Registry) -> Self {
        let lag = Family::default();
        registry.register(
            "move_lag_transactions",
            "Transactions that the copies of a move lack",
            lag.clone(),
        );
        let (stalled, waiting, since) = (Family::default(), Family::default(), Family::default());
        registry.register("move_stalled", "1 when the move needs a person", stalled.clone());
        registry.register(
            "move_waiting_shards",
            "Shards that were found equal and wait for their batch",
            waiting.clone(),
        );
        registry.register_with_unit(
            "move_progress_timestamp",
            "When the move last came further, or waited for what was asked for",
            Unit::Seconds,
            since.clone(),
        );
        let batches = Family::default();
        registry.register(
            "move_batches",
            "Batches of shards that were begun, by what became of them",
            batches.clone(),
        );
        let ended = Family::default();
        registry.register("moves_ended", "Moves that are over, by outcome", ended.clone());
        let copied_bytes = Counter::default();
        registry.register_with_unit(
            "move_copied",
            "Bytes copied from pair to pair",
            Unit::Bytes,
            copied_bytes.clone(),
        );
        let write_block = Histogram::new([0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0]);
        registry.register_with_unit(
            "shard_write_block",
            "How long a shard could not be written while it was cut over",
            Unit::Seconds,
            write_block.clone(),
        );
        Self {
            lag,
            stalled,
            waiting,
            since,
            batches,
            ended,
            copied_bytes,
            write_block,
        }
    }
    /// Sets the gauges of a move.
    pub fn seen(&self, labels: &MoveLabels, seen: MoveSeen) {
        let set = |gauge: &Family<MoveLabels, Gauge>, value: i64| {
            gauge.get_or_create(labels).set(value);
        };
        if let Some(lag) = seen.lag {
            set(&self.lag, i64::try_from(lag).unwrap_or(i64::MAX));
        }
        set(&self.stalled, seen.stalled.into());
        set(&self.waiting, i64::try_from(seen.waiting).unwrap_or(i64::MAX));
        set(&self.since, seen.since);
    }
    /// A move is over: its series go with it.
    pub fn forget(&self, labels: &MoveLabels) {
        for gauge in [&self.lag, &self.stalled, &self.waiting, &self.since] {
            gauge.remove(labels);
        }
    }
    /// A shard was blocked for so long.
    pub fn blocked(&self, shards: usize, time: Duration) {
        for _ in 0..shards {
            self.write_block.observe(time.as_secs_f64());
        }
    }
    /// A batch came to an end.
    pub fn batch(&self, outcome: &'static str) {
        self.batches.get_or_create(&BatchLabels { outcome }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn the_series_of_a_move_go_with_it() {
        let m = Metrics::default();
        let labels = MoveLabels {
            namespace: "shop".into(),
            cluster: "main".into(),
            from: "p0".into(),
            to: "p1".into(),
        };
        let seen = MoveSeen {
            lag: Some(3),
            stalled: true,
            waiting: 4,
            since: 1_800_000_000,
        };
        m.moves.seen(&labels, seen);
        let of = r#"{namespace="shop",cluster="main",from="p0",to="p1"}"#;
        let has = |name: &str, value: i64| {
            let line = format!("shardwright_move_{name}{of} {value}\n");
            assert!(m.text().contains(&line), "{line}: {}", m.text());
        };
        has("lag_transactions", 3);
        has("stalled", 1);
        has("waiting_shards", 4);
        has("progress_timestamp_seconds", 1_800_000_000);
        let later = MoveSeen {
            lag: None,
            stalled: false,
            waiting: 0,
            since: 1_800_000_060,
        };
        m.moves.seen(&labels, later);
        has("lag_transactions", 3);
        has("stalled", 0);
        m.moves.forget(&labels);
        assert!(!m.text().contains(of), "{}", m.text());
    }
}
