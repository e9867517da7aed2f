//! Shardwright: a Kubernetes operator that runs a horizontally sharded MySQL fleet.
//!
//! Four rooms, the same for each of the three controllers: *observe* (reads the API and the servers) → *decide* (pure: what to
//! do, from what was seen and the time) → *act* (does it, each step with a deadline) → *report* (status by compare-and-swap,
//! events, metrics). See `docs/architecture.md`.

pub mod act;
pub mod api;
pub mod cli;
pub mod controllers;
pub mod core;
pub mod deadline;
pub mod http;
pub mod leader;
pub mod maps;
pub mod metrics;
pub mod mysql;
pub mod observe;
pub mod report;
pub mod resources;
pub mod run;
pub mod shutdown;
pub mod telemetry;
