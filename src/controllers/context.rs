//! What every controller is given.

use super::{busy::Busy, turns::Turns};
use crate::{metrics::Metrics, report::events::Recorder};
use kube::{Client, runtime::events::Reporter};
use std::sync::Arc;

/// What every controller is given. Nothing in it is needed for safety (rule O1).
pub struct Context {
    /// The API.
    pub client: Client,
    /// One recorder for the process: it counts repeats.
    pub recorder: Recorder,
    /// Counters and gauges.
    pub metrics: Arc<Metrics>,
    /// Namespaces that are watched; empty means all.
    pub namespaces: Vec<String>,
    /// Pairs that are acted upon: `namespace/pair`.
    pub acting: Busy,
    /// Pairs that copies are made at: `namespace/pair`. What takes the lock of one of their servers ends that.
    pub copying: Busy,
    /// Pairs whose servers a move takes steps on: moves take turns.
    pub turns: Turns,
}

impl Context {
    /// `instance` is the Pod's name, shown as the source of events.
    pub fn new(
        client: Client,
        instance: Option<String>,
        metrics: Arc<Metrics>,
        namespaces: Vec<String>,
    ) -> Self {
        let reporter = Reporter {
            controller: "shardwright".into(),
            instance,
        };
        Self {
            recorder: Recorder::new(client.clone(), reporter),
            client,
            metrics,
            namespaces,
            acting: Busy::default(),
            copying: Busy::default(),
            turns: Turns::default(),
        }
    }
}
