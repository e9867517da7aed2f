//! Which errant transactions of a pair have been saved. Asked for only while there are some.

use crate::{
    act::apply::{self, Error},
    api::names,
    core::gtid::GtidSet,
    resources::errant::{PARTS, saved_in},
};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;

/// What the Secrets of one epoch have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Transactions that are saved whole.
    pub complete: GtidSet,
    /// Transactions of which only the name is saved.
    pub by_name: GtidSet,
    /// The first part that is not there yet.
    pub free: Option<usize>,
}

/// What has been saved of `pair` in this epoch. Its Secrets are read by their names, one after the other until one is not there: the
/// operator has no right to look through those of others.
///
/// # Errors
/// [`Error`].
pub async fn saved(client: &Client, namespace: &str, pair: &str, epoch: i64) -> Result<Kept, Error> {
    let mut kept = Kept::default();
    for part in 1..=PARTS {
        let name = names::errant_secret(pair, epoch, part);
        let Some(secret) = apply::get::<Secret>(client, namespace, &name).await? else {
            kept.free = Some(part);
            break;
        };
        let (complete, by_name) = saved_in(&secret, pair);
        kept.complete = kept.complete.union(&complete);
        kept.by_name = kept.by_name.union(&by_name);
    }
    // What another one has whole need not be named.
    kept.by_name = kept.by_name.minus(&kept.complete);
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        core::errant::Saved,
        resources::errant::{Origin, secret},
    };
    use kube::client::Body;

    type Request = http::Request<Body>;
    type Response = http::Response<Body>;

    fn set(text: &str) -> GtidSet {
        format!("3e11fa47-71ca-11e1-9e33-c80aa9429562:{text}")
            .parse()
            .unwrap()
    }
    fn json(status: u16, body: &impl serde::Serialize) -> Response {
        http::Response::builder()
            .status(status)
            .body(Body::from(serde_json::to_vec(body).unwrap()))
            .unwrap()
    }

    #[tokio::test]
    async fn secrets_are_read_by_name_until_one_is_not_there() {
        let origin = Origin {
            namespace: "shop",
            cluster: "main",
            pair: "web",
            epoch: 7,
            pod: "web-1",
        };
        let first = Saved {
            complete: set("1-3"),
            by_name: set("4-5"),
            ..Saved::default()
        };
        let second = Saved {
            complete: set("5-6"),
            ..Saved::default()
        };
        let foreign = {
            let mut s = secret(&origin, 3, &first);
            s.metadata.labels = None;
            s
        };
        let there = [secret(&origin, 1, &first), secret(&origin, 2, &second), foreign];
        let (service, mut handle) = tower_test::mock::pair::<Request, Response>();
        let client = Client::new(service, "default");
        let server = tokio::spawn(async move {
            for (name, found) in ["web-errant-7", "web-errant-7-2", "web-errant-7-3"]
                .into_iter()
                .zip(&there)
            {
                let (get, send) = handle.next_request().await.unwrap();
                assert_eq!(
                    (get.method(), get.uri().path()),
                    (
                        &http::Method::GET,
                        &*format!("/api/v1/namespaces/shop/secrets/{name}")
                    )
                );
                send.send_response(json(200, found));
            }
            let (_, send) = handle.next_request().await.unwrap();
            send.send_response(json(
                404,
                &serde_json::json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "m", "status": "Failure"}),
            ));
        });
        let kept = saved(&client, "shop", "web", 7).await.unwrap();
        assert_eq!(
            kept,
            Kept {
                complete: set("1-3:5-6"),
                by_name: set("4"),
                free: Some(4)
            }
        );
        server.await.unwrap();
    }
}
