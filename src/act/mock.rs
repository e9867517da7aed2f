//! An API server for tests that expects certain requests in their order, and answers each as told.

use kube::{Client, client::Body};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};

type Request = http::Request<Body>;
type Response = http::Response<Body>;

/// What is expected: `METHOD /path`, and the status and the body that are answered.
pub type Expected = (&'static str, u16, Value);

/// The server. [`Api::done`] fails when something that was expected was not asked.
pub struct Api {
    client: Client,
    expected: usize,
    sent: Arc<Mutex<Vec<Value>>>,
}

impl Api {
    /// One that expects these requests, and no others.
    pub fn new<const N: usize>(expected: [Expected; N]) -> Self {
        let (service, mut handle) = tower_test::mock::pair::<Request, Response>();
        let bodies = Arc::new(Mutex::new(vec![]));
        let taken = bodies.clone();
        tokio::spawn(async move {
            for (request, status, answer) in expected {
                let Some((asked, answering)) = handle.next_request().await else {
                    return;
                };
                assert_eq!(format!("{} {}", asked.method(), asked.uri().path()), request);
                let body = asked.into_body().collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                taken.lock().unwrap_or_else(PoisonError::into_inner).push(body);
                let answer = serde_json::to_vec(&answer).unwrap();
                let answer = http::Response::builder().status(status).body(Body::from(answer));
                answering.send_response(answer.unwrap());
            }
        });
        Self {
            client: Client::new(service, "default"),
            expected: N,
            sent: bodies,
        }
    }
    /// A client of it.
    pub fn client(&self) -> Client {
        self.client.clone()
    }
    /// The bodies of all requests, `null` for none; all that were expected have come.
    pub fn done(&self) -> Vec<Value> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(sent.len(), self.expected, "requests that came: {sent:#?}");
        sent.clone()
    }
}
