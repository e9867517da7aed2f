//! `GET /maps/<namespace>/<cluster>?version=N&wait=30s`.

use super::{Answer, Key, Maps};
use crate::metrics::Metrics;
use axum::{
    Router,
    extract::{Path, Query, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Deserialize;
use std::{sync::Arc, time::Duration};

/// Longest wait of one request; proxies on the way often cut at 60 s.
const MAX_WAIT: Duration = Duration::from_secs(55);

#[derive(Clone)]
struct Maproom {
    maps: Arc<Maps>,
    metrics: Arc<Metrics>,
}

#[derive(Deserialize)]
struct Ask {
    /// The version that the client has; 0 when absent: any map is newer.
    #[serde(default)]
    version: i64,
    /// `30s`, `500ms` or a number of seconds; no waiting when absent.
    wait: Option<String>,
}

/// The routes under `/maps`.
pub fn router(maps: Arc<Maps>, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/maps/{namespace}/{cluster}", get(answer))
        .with_state(Maproom { maps, metrics })
}

async fn answer(
    State(room): State<Maproom>,
    Path((namespace, cluster)): Path<(String, String)>,
    Query(ask): Query<Ask>,
) -> Response {
    let wait = match ask.wait.as_deref().map(parse_wait) {
        None => Duration::ZERO,
        Some(Some(wait)) => wait.min(MAX_WAIT),
        Some(None) => {
            return (
                StatusCode::BAD_REQUEST,
                "`wait` must be a duration such as 30s, 500ms or 30\n",
            )
                .into_response();
        }
    };
    let key = Key { namespace, cluster };
    let waiting = Waiting::new(&room.metrics);
    let found = room.maps.newer_than(&key, ask.version, wait).await;
    drop(waiting);
    match found {
        Answer::Newer(map) => {
            let mut response = (StatusCode::OK, map.body.clone()).into_response();
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", map.version)) {
                headers.insert(header::ETAG, tag);
            }
            response
        }
        Answer::Unchanged => StatusCode::NOT_MODIFIED.into_response(),
        Answer::OutOfTouch => {
            let text = "the API server does not answer this replica: another one may know more\n";
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
        Answer::Unknown => {
            let text = format!(
                "no shard map of ShardCluster {}/{} is published\n",
                key.namespace, key.cluster
            );
            (StatusCode::NOT_FOUND, text).into_response()
        }
    }
}

/// Counts a client that waits, also when it hangs up before it is answered.
struct Waiting<'a>(&'a Metrics);

impl<'a> Waiting<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        metrics.map_waiters.inc();
        Self(metrics)
    }
}
impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.map_waiters.dec();
    }
}

fn parse_wait(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().ok()?;
    match unit {
        "" | "s" => Some(Duration::from_secs(number)),
        "ms" => Some(Duration::from_millis(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_durations() {
        assert_eq!(parse_wait("30s"), Some(Duration::from_secs(30)));
        assert_eq!(parse_wait("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_wait("7"), Some(Duration::from_secs(7)));
        assert_eq!(parse_wait("1m"), Some(Duration::from_secs(60)));
        for bad in ["", "s", "-1", "1h", "1.5s", "99999999999999999999"] {
            assert_eq!(parse_wait(bad), None, "{bad}");
        }
    }
}
