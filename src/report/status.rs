//! Status writes: always conditional on the resourceVersion that the decision was made upon, and only when something changed.

use crate::act::apply::{Error, Object, call, describe};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::Serialize;

/// Writes `status` of `seen` when it differs from `old`: a JSON merge patch with the resourceVersion of `seen`, which the API answers
/// with 409 when anyone wrote in between. `null` removes a field, so an absent field of `status` that `old` has is sent as `null`.
/// Returns the object after the write, or `None` when nothing was to be written.
///
/// # Errors
/// [`Error`]; [`Error::is_conflict`] means: observe again.
pub async fn write<K: Object, S: Serialize>(
    client: &Client,
    manager: &str,
    seen: &K,
    old: Option<&S>,
    status: &S,
) -> Result<Option<K>, Error> {
    let (old, new) = (to_value(old), to_value(Some(status)));
    let Some(diff) = merge_diff(&old, &new) else {
        return Ok(None);
    };
    let body = serde_json::json!({
        "metadata": { "resourceVersion": seen.resource_version() },
        "status": diff,
    });
    let pp = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    let api = Api::<K>::namespaced(client.clone(), &seen.namespace().unwrap_or_default());
    call(
        "patch the status of",
        describe(seen),
        api.patch_status(&seen.name_any(), &pp, &Patch::Merge(body)),
    )
    .await
    .map(Some)
}

fn to_value<S: Serialize>(s: Option<&S>) -> serde_json::Value {
    s.and_then(|s| serde_json::to_value(s).ok())
        .unwrap_or_else(|| serde_json::json!({}))
}

/// The JSON merge patch (RFC 7386) that makes `new` of `old`; `None` when they are equal.
fn merge_diff(old: &serde_json::Value, new: &serde_json::Value) -> Option<serde_json::Value> {
    use serde_json::Value::{Null, Object};
    match (old, new) {
        (Object(o), Object(n)) => {
            let mut out = serde_json::Map::new();
            for (k, v) in n {
                match o.get(k) {
                    Some(was) => {
                        if let Some(d) = merge_diff(was, v) {
                            out.insert(k.clone(), d);
                        }
                    }
                    None => {
                        out.insert(k.clone(), v.clone());
                    }
                }
            }
            for k in o.keys().filter(|k| !n.contains_key(*k)) {
                out.insert(k.clone(), Null);
            }
            (!out.is_empty()).then_some(Object(out))
        }
        (o, n) if o == n => None,
        (_, n) => Some(n.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_statuses_give_no_patch() {
        let s = json!({"a": [1, 2], "b": {"c": null}});
        assert_eq!(merge_diff(&s, &s), None);
    }

    #[test]
    fn only_what_changed_is_sent_and_what_is_gone_is_nulled() {
        let (old, new) = (
            json!({"a": 1, "b": {"c": 1, "d": 2}, "e": 5}),
            json!({"a": 1, "b": {"c": 3, "d": 2}}),
        );
        assert_eq!(merge_diff(&old, &new), Some(json!({"b": {"c": 3}, "e": null})));
        assert_eq!(
            merge_diff(&json!({"l": [1, 2]}), &json!({"l": [1]})),
            Some(json!({"l": [1]}))
        );
    }
}
