//! Every object in `config/samples` is valid by our own schemas and CEL rules. (What only an API server can say, it says in
//! the end-to-end scenarios, which apply these files.)

use super::{GROUP, MySQLPair, ShardCluster, ShardRange};
use kube::CustomResourceExt as _;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn yaml_files(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            yaml_files(&path, into);
        } else if path.extension().is_some_and(|e| e == "yaml") && !path.ends_with("kustomization.yaml") {
            into.push(path);
        }
    }
}

/// The documents of one file.
fn documents(text: &str) -> Vec<Value> {
    text.split("\n---\n")
        .map(|d| serde_saphyr::from_str(d).unwrap())
        .collect()
}

/// What of `value` the schema does not allow; patterns are left to the API server.
fn complaints(at: &str, value: &Value, schema: &Value, out: &mut Vec<String>) {
    let mut say = |what: String| out.push(format!("{at}: {what}"));
    if schema["x-kubernetes-int-or-string"] == true {
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        say(format!("{value} is none of {allowed:?}"));
    }
    let fits = match schema["type"].as_str() {
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    if !fits {
        say(format!("{value} is not of type {}", schema["type"]));
    }
    let size = match value {
        Value::String(s) => Some((s.chars().count(), "minLength", "maxLength")),
        Value::Array(a) => Some((a.len(), "minItems", "maxItems")),
        Value::Object(o) => Some((o.len(), "minProperties", "maxProperties")),
        _ => None,
    };
    if let Some((size, min, max)) = size {
        let limit = |key: &str| schema[key].as_u64().and_then(|n| usize::try_from(n).ok());
        if limit(min).is_some_and(|n| size < n) || limit(max).is_some_and(|n| size > n) {
            say(format!(
                "has {size}, {min} {} and {max} {}",
                schema[min], schema[max]
            ));
        }
    }
    if let Some(n) = value.as_f64()
        && (schema["minimum"].as_f64().is_some_and(|m| n < m)
            || schema["maximum"].as_f64().is_some_and(|m| n > m))
    {
        say(format!(
            "{n} is not between {} and {}",
            schema["minimum"], schema["maximum"]
        ));
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        if value.get(required.as_str().unwrap()).is_none() {
            say(format!("{required} is missing"));
        }
    }
    if let Value::Array(items) = value {
        for (i, item) in items.iter().enumerate() {
            complaints(&format!("{at}[{i}]"), item, &schema["items"], out);
        }
    }
    if let Value::Object(fields) = value {
        for (key, field) in fields {
            match (schema["properties"].get(key), &schema["additionalProperties"]) {
                (Some(s), _) => complaints(&format!("{at}.{key}"), field, s, out),
                (None, Value::Object(_)) => {}
                (None, _) => out.push(format!("{at}: unknown field {key}")),
            }
        }
    }
}

fn check<K>(name: &str, object: &Value) -> K
where
    K: kube::CustomResourceExt + serde::de::DeserializeOwned,
{
    let crd = serde_json::to_value(K::crd()).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert!(schema.is_object());
    let mut out = vec![];
    complaints("spec", &object["spec"], schema, &mut out);
    assert_eq!(out, Vec::<String>::new(), "{name}");
    serde_json::from_value(object.clone()).unwrap()
}

#[test]
fn every_sample_is_valid() {
    let mut files = vec![];
    yaml_files(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples"),
        &mut files,
    );
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        for object in documents(&std::fs::read_to_string(&file).unwrap()) {
            let kind = object["kind"].as_str().unwrap();
            let name = format!("{}: {kind} {}", file.display(), object["metadata"]["name"]);
            if object["apiVersion"] == format!("{GROUP}/v1alpha1") {
                let cel = match kind {
                    "ShardCluster" => check::<ShardCluster>(&name, &object).validate_cel(),
                    "ShardRange" => check::<ShardRange>(&name, &object).validate_cel(),
                    "MySQLPair" => check::<MySQLPair>(&name, &object).validate_cel(),
                    _ => panic!("{name}: unknown kind"),
                };
                cel.unwrap_or_else(|e| panic!("{name}: {e}"));
            } else {
                assert_eq!(kind, "ConfigMap", "{name}");
            }
        }
    }
}

#[test]
fn the_check_sees_what_is_wrong() {
    let crd = serde_json::to_value(ShardCluster::crd()).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let spec = serde_json::json!({
        "shards": { "total": 65537, "digits": "5" },
        "routing": { "mode": "Id" },
        "mysql": { "image": "" },
        "layuot": {}
    });
    let mut out = vec![];
    complaints("spec", &spec, schema, &mut out);
    for what in [
        "total: 65537",
        "digits: \"5\"",
        "routing.mode",
        "image: has 0",
        "storage\" is missing",
        "unknown field layuot",
    ] {
        assert!(out.iter().any(|o| o.contains(what)), "{what}: {out:?}");
    }
}
