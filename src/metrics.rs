//! Counters and gauges, served at `/metrics` in OpenMetrics form. See `docs/metrics.md`.

pub mod moves;
pub mod pairs;

pub use moves::Moves;
pub use pairs::Pairs;

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use std::time::Duration;

/// Labels of a pass, from fixed lists. Nowhere is the text of an error a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PassLabels {
    /// `cluster`, `range`, `pair` or `move`.
    pub controller: &'static str,
    /// `ok`, or the label of the error.
    pub outcome: &'static str,
}

/// Label of a controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ControllerLabel {
    /// `cluster`, `range`, `pair` or `move`.
    pub controller: &'static str,
}

/// Everything that is measured.
pub struct Metrics {
    registry: Registry,
    passes: Family<PassLabels, Counter>,
    seconds: Family<ControllerLabel, Histogram>,
    /// 1 on the replica that reconciles.
    pub leader: Gauge,
    /// Databases created since the start.
    pub databases_created: Counter,
    /// Shard maps published since the start.
    pub maps_published: Counter,
    /// Clients that wait for a newer map.
    pub map_waiters: Gauge,
    /// Of moves of shards.
    pub moves: Moves,
    /// Of pairs.
    pub pairs: Pairs,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("shardwright");
        let passes = Family::default();
        registry.register(
            "reconciliations",
            "Passes, by controller and outcome",
            passes.clone(),
        );
        // From a pass that reads a cache (1 ms) to one that creates a thousand databases (a minute).
        let seconds = Family::<ControllerLabel, Histogram>::new_with_constructor(|| {
            Histogram::new([0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0])
        });
        registry.register_with_unit(
            "reconciliation",
            "Length of a pass",
            Unit::Seconds,
            seconds.clone(),
        );
        let leader = Gauge::default();
        registry.register("leader", "1 on the replica that reconciles", leader.clone());
        let databases_created = Counter::default();
        registry.register(
            "databases_created",
            "Databases created",
            databases_created.clone(),
        );
        let maps_published = Counter::default();
        registry.register("maps_published", "Shard maps published", maps_published.clone());
        let map_waiters = Gauge::default();
        registry.register(
            "map_waiters",
            "Clients that wait for a newer map",
            map_waiters.clone(),
        );
        let moves = Moves::new(&mut registry);
        let pairs = Pairs::new(&mut registry);
        Self {
            registry,
            passes,
            seconds,
            leader,
            databases_created,
            maps_published,
            map_waiters,
            moves,
            pairs,
        }
    }
}

impl Metrics {
    /// Counts one pass.
    pub fn pass(&self, controller: &'static str, outcome: &'static str, took: Duration) {
        self.passes
            .get_or_create(&PassLabels { controller, outcome })
            .inc();
        self.seconds
            .get_or_create(&ControllerLabel { controller })
            .observe(took.as_secs_f64());
    }

    /// The text that a scrape is answered with.
    pub fn text(&self) -> String {
        let mut out = String::new();
        if let Err(error) = encode(&mut out, &self.registry) {
            tracing::warn!(%error, "metrics not encoded");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_counted_by_controller_and_outcome() {
        let m = Metrics::default();
        m.pass("pair", "ok", Duration::from_millis(3));
        let text = m.text();
        assert!(
            text.contains(r#"shardwright_reconciliations_total{controller="pair",outcome="ok"} 1"#),
            "{text}"
        );
        assert!(
            text.contains("shardwright_reconciliation_seconds_bucket"),
            "{text}"
        );
    }
}
