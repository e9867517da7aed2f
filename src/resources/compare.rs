//! Whether an object in the API says already what is wanted, so that a pass over a healthy fleet writes nothing (rule O2).
//!
//! Two halves: [`stamp`] writes a hash of what is wanted into the object, which tells of a field that is wanted no longer;
//! [`is_covered_by`] compares what is wanted field by field with what is there, which tells of a change by somebody else.

use crate::core::{canonical_json, quantity};
use serde_json::Value;

/// Annotation: hash of the object as the operator last wanted it.
pub const DESIRED_HASH_ANNOTATION: &str = "shardwright.dev/desired-hash";

/// Under these keys values are quantities.
const QUANTITY_MAPS: &[&str] = &["limits", "requests", "capacity"];

/// Annotates `desired` with its own hash. Not for Secrets: nothing made from a password leaves its place.
pub fn stamp(desired: &mut Value) {
    if desired.get("kind").and_then(Value::as_str) == Some("Secret") {
        return;
    }
    let mut bare = desired.clone();
    canonical_json::drop_empty(&mut bare);
    let hash = canonical_json::hash(&bare);
    if let Some(Value::Object(metadata)) = desired.get_mut("metadata") {
        let annotations = metadata
            .entry("annotations")
            .or_insert_with(|| Value::Object(serde_json::Map::new()));
        if annotations.is_null() {
            *annotations = Value::Object(serde_json::Map::new());
        }
        if let Value::Object(map) = annotations {
            map.insert(DESIRED_HASH_ANNOTATION.to_owned(), Value::String(hash));
        }
    }
}

/// Whether every field of `desired` is there in `live` with the same value.
///
/// Absent, null and empty are the same. What `live` has besides (defaults of the API server, labels and list entries of others)
/// does not count. Lists whose entries have a name are compared entry by entry, as the API merges them; other lists as a whole.
/// Quantities are compared by value.
pub fn is_covered_by(desired: &Value, live: &Value) -> bool {
    covered(desired, live, false)
}

fn covered(desired: &Value, live: &Value, quantities: bool) -> bool {
    match (desired, live) {
        (d, l) if is_empty(d) => is_empty(l) || matches!(d, Value::Object(_) | Value::Null),
        (Value::Object(d), Value::Object(l)) => d.iter().all(|(key, d)| {
            let quantities = quantities || QUANTITY_MAPS.contains(&key.as_str());
            covered(d, l.get(key).unwrap_or(&Value::Null), quantities)
        }),
        (Value::Array(d), Value::Array(l)) => match merge_key(d, l) {
            Some(key) => d.iter().all(|d| {
                l.iter()
                    .find(|l| l.get(key) == d.get(key))
                    .is_some_and(|l| covered(d, l, quantities))
            }),
            None => d.len() == l.len() && d.iter().zip(l).all(|(d, l)| covered(d, l, quantities)),
        },
        (Value::Object(_), Value::Null) => {
            covered(desired, &Value::Object(serde_json::Map::new()), quantities)
        }
        (Value::String(d), Value::String(l)) if quantities && d != l => {
            quantity::millis(d).is_some_and(|v| Some(v) == quantity::millis(l))
        }
        (d, l) => d == l,
    }
}

fn is_empty(v: &Value) -> bool {
    match v {
        Value::Null => true,
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        _ => false,
    }
}

/// The field by which the entries of both lists are told apart.
fn merge_key(a: &[Value], b: &[Value]) -> Option<&'static str> {
    ["uid", "mountPath", "name"].into_iter().find(|key| {
        [a, b].iter().all(|list| {
            let values: Vec<_> = list.iter().map(|v| v.get(key).and_then(Value::as_str)).collect();
            let mut seen = std::collections::BTreeSet::new();
            values.iter().all(|v| v.is_some_and(|v| seen.insert(v)))
        })
    })
}

#[cfg(test)]
mod tests;
