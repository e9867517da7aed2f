//! Schemas that cannot be derived: those of Kubernetes' own types lack their limits, and some have fields that do nothing here.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::Value;

/// What the API server's own parser of quantities takes, but for a minus.
const QUANTITY: &str = r"^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
/// Names of most objects: DNS subdomains.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// A quantity such as `500m` or `10Gi`.
pub fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 64,
        "pattern": QUANTITY,
    })
}

/// Requests and limits; `claims` is left out, the Pods have no claims of resources.
pub fn resources(generator: &mut SchemaGenerator) -> Schema {
    let amounts = |what: &str, generator: &mut SchemaGenerator| {
        json_schema!({
            "type": "object",
            "description": what,
            "maxProperties": 16,
            "additionalProperties": quantity(generator),
        })
    };
    json_schema!({
        "type": "object",
        "properties": {
            "requests": amounts("What a node must have left, by resource (`cpu`, `memory`), as quantities; as `limits` when absent.", generator),
            "limits": amounts("What may be used at most, by resource (`cpu`, `memory`), as quantities; no limit when absent.", generator),
        },
    })
}

/// Labels, or requirements of labels: the API server checks the keys once more where they are used.
pub fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {
            "type": "string",
            "maxLength": 63,
            "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
        },
    })
}

/// Annotations.
pub fn annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": { "type": "string", "maxLength": 16384 },
    })
}

/// The name of a ConfigMap or a Secret.
pub fn object_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 253, "pattern": SUBDOMAIN })
}

/// A [`super::LocalRef`] to a ConfigMap or a Secret, whose names may have dots.
pub fn object_ref(generator: &mut SchemaGenerator) -> Schema {
    let mut name = object_name(generator);
    name.insert(
        "description".to_owned(),
        "Name of the object, in the same namespace.".into(),
    );
    json_schema!({ "type": "object", "required": ["name"], "properties": { "name": name } })
}

/// A [`super::Place`], without a description of its own: an optional field would have it instead of its own one.
pub fn place(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["A", "B"] })
}

/// References to Secrets.
pub fn object_refs(generator: &mut SchemaGenerator) -> Schema {
    let mut item = object_ref(generator);
    item.insert(
        "description".to_owned(),
        "A reference to an object in the same namespace.".into(),
    );
    json_schema!({ "type": "array", "maxItems": 8, "items": item })
}

/// A CRD without `nullable`: the API server then drops a `null` as if the field were absent, where it would keep it and
/// hand it to rules that expect a value. Absent is the one way to say nothing.
pub(super) fn without_null(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|s| s.open_api_v3_schema.as_mut())
        {
            schema.title = None;
            strip(schema);
        }
    }
    crd
}

fn strip(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if let Some(values) = &mut schema.enum_ {
        values.retain(|v| v.0 != Value::Null);
    }
    schema
        .properties
        .iter_mut()
        .flat_map(|p| p.values_mut())
        .for_each(strip);
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => strip(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(strip),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        strip(values);
    }
}
