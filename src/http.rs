//! The one HTTP server: `/livez`, `/readyz`, `/metrics` and the shard maps.

use crate::{maps, metrics::Metrics};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Whether this process can answer for the shard maps, which every replica serves: its gates are the first listings of the watches
/// behind them, each opened once, so the CRDs are there as well. Who leads is not asked: a standby that could not become ready before it
/// leads would keep a rolling update from ending. The controllers of a leader wait for their own caches.
#[derive(Clone)]
pub struct Readiness(Arc<AtomicUsize>);

impl Readiness {
    /// Ready after `gates` calls of [`Readiness::open`].
    pub fn new(gates: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(gates)))
    }
    /// One of the gates is open.
    pub fn open(&self) {
        // Never below zero: an extra call is harmless.
        let _previous = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| Some(n.saturating_sub(1)));
    }
    fn is_ready(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

/// Serves for as long as it is polled; dropping it closes the open long polls, and their clients ask the other replica.
///
/// # Errors
/// When the address cannot be listened on, or the listener breaks.
pub async fn serve(
    listen: SocketAddr,
    readiness: Readiness,
    metrics: Arc<Metrics>,
    maps: Arc<maps::Maps>,
) -> std::io::Result<()> {
    let app = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz).with_state(readiness))
        .route("/metrics", get(scrape).with_state(Arc::clone(&metrics)))
        .merge(maps::router(maps, metrics));
    let listener = tokio::net::TcpListener::bind(listen).await?;
    axum::serve(listener, app).await
}

async fn readyz(State(readiness): State<Readiness>) -> impl IntoResponse {
    if readiness.is_ready() {
        (StatusCode::OK, "ok\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the custom resources were not read yet; are the CRDs installed?\n",
        )
    }
}

async fn scrape(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    (
        [(
            header::CONTENT_TYPE,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        )],
        metrics.text(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_when_every_gate_is_open() {
        let r = Readiness::new(2);
        r.open();
        assert!(!r.is_ready());
        r.open();
        r.open();
        assert!(r.is_ready());
    }
}
