//! JSON as one text, whatever the order in which a map was built (serde_json keeps that order under a feature that any crate
//! may switch on): what hashes are made of.

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// Compact JSON, keys sorted at every level.
pub fn to_string(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value);
    out
}

/// The first 32 hexadecimal digits of the SHA-256 of [`to_string`].
pub fn hash(value: &Value) -> String {
    let mut hex = String::new();
    for b in Sha256::digest(to_string(value)).iter().take(16) {
        let _ = write!(hex, "{b:02x}");
    }
    hex
}

/// Drops what is null or an empty map or list, at every level: absent and empty mean the same.
pub fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(drop_empty);
            map.retain(|_, v| !is_empty(v));
        }
        Value::Array(list) => list.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

fn is_empty(v: &Value) -> bool {
    match v {
        Value::Null => true,
        Value::Object(o) => o.is_empty(),
        Value::Array(a) => a.is_empty(),
        _ => false,
    }
}

fn write(out: &mut String, value: &Value) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(k, _)| *k);
            out.push('{');
            for (i, (k, v)) in entries.into_iter().enumerate() {
                let _ = write!(
                    out,
                    "{}{}:",
                    if i == 0 { "" } else { "," },
                    Value::from(k.as_str())
                );
                write(out, v);
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for (i, v) in list.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(out, v);
            }
            out.push(']');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_order_of_keys_does_not_count() {
        let a: Value = serde_json::from_str(r#"{"b":[{"y":1,"x":"\""}],"a":null}"#).unwrap();
        let b: Value = serde_json::from_str(r#"{"a":null,"b":[{"x":"\"","y":1}]}"#).unwrap();
        assert_eq!(to_string(&a), r#"{"a":null,"b":[{"x":"\"","y":1}]}"#);
        assert_eq!(hash(&a), hash(&b));
    }

    #[test]
    fn empty_is_absent() {
        let mut v = json!({"a": null, "b": {"c": []}, "d": 0, "e": "", "f": [{"g": null}]});
        drop_empty(&mut v);
        assert_eq!(to_string(&v), r#"{"d":0,"e":"","f":[{}]}"#);
    }
}
