//! What holds for every field of the three kinds: limits, descriptions, and words that clients can rely on.

use super::crds;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// A field and the schema it has.
struct Seen<'a> {
    path: String,
    schema: &'a JSONSchemaProps,
    /// It is a property, and not the items of a list or the values of a map.
    property: bool,
    /// It is part of a type of Kubernetes' own, whose schema is not ours.
    foreign: bool,
}

fn walk<'a>(schema: &'a JSONSchemaProps, path: &str, foreign: bool, all: &mut Vec<Seen<'a>>) {
    for (name, child) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        all.push(Seen {
            path: path.clone(),
            schema: child,
            property: true,
            foreign,
        });
        walk(child, &path, foreign, all);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
        let (path, foreign) = (format!("{path}[]"), foreign || path.ends_with(".tolerations"));
        all.push(Seen {
            path: path.clone(),
            schema: item,
            property: false,
            foreign,
        });
        walk(item, &path, foreign, all);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &schema.additional_properties {
        let path = format!("{path}.*");
        all.push(Seen {
            path: path.clone(),
            schema: value,
            property: false,
            foreign,
        });
        walk(value, &path, foreign, all);
    }
}

/// Says of each field what `wrong` says is wrong with it, and fails if that is anything.
#[track_caller]
fn each(wrong: impl Fn(&Seen<'_>) -> Option<String>) {
    let mut complaints = Vec::new();
    for crd in crds() {
        let schema = crd.spec.versions[0]
            .schema
            .as_ref()
            .and_then(|s| s.open_api_v3_schema.as_ref())
            .unwrap();
        let mut all = Vec::new();
        walk(schema, &crd.spec.names.kind, false, &mut all);
        assert!(all.len() > 20);
        complaints.extend(
            all.iter()
                .filter_map(|s| wrong(s).map(|what| format!("{}: {what}", s.path))),
        );
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
}

fn ours(seen: &Seen<'_>, type_: &str) -> bool {
    !seen.foreign && seen.schema.type_.as_deref() == Some(type_)
}

#[test]
fn numbers_are_signed_whole_and_bounded() {
    each(|s| {
        let format = s.schema.format.as_deref().unwrap_or_default();
        if format.starts_with("uint") || s.schema.type_.as_deref() == Some("number") {
            return Some(format!("unsigned or floating-point ({format})"));
        }
        let spec = s.path.contains(".spec.");
        let bounded = s.schema.minimum.is_some() && (s.schema.maximum.is_some() || !spec);
        (ours(s, "integer") && !bounded).then(|| "no minimum, or no maximum in a spec".to_owned())
    });
}

#[test]
fn every_field_is_described() {
    each(|s| {
        let described = s.schema.description.as_deref().is_some_and(|d| d.ends_with('.'));
        (s.property && !described && !s.foreign).then(|| "no description that is a sentence".to_owned())
    });
}

#[test]
fn lists_and_maps_are_bounded_and_say_how_they_merge() {
    each(|s| {
        let x = s.schema;
        if ours(s, "array") && (x.max_items.is_none() || x.x_kubernetes_list_type.is_none()) {
            return Some("no maxItems or no list type".to_owned());
        }
        (x.additional_properties.is_some() && x.max_properties.is_none())
            .then(|| "no maxProperties".to_owned())
    });
}

#[test]
fn keys_of_lists_are_required() {
    each(|s| {
        let keys = s.schema.x_kubernetes_list_map_keys.as_ref()?;
        let Some(JSONSchemaPropsOrArray::Schema(item)) = &s.schema.items else {
            return Some("no items".to_owned());
        };
        let required = item.required.clone().unwrap_or_default();
        (!keys.iter().all(|k| required.contains(k))).then(|| "a key of the list is not required".to_owned())
    });
}

#[test]
fn strings_are_bounded() {
    each(|s| {
        let x = s.schema;
        let bounded = x.max_length.is_some() || x.enum_.is_some() || x.format.is_some();
        (ours(s, "string") && !bounded).then(|| "no maxLength, enum or format".to_owned())
    });
}

#[test]
fn words_are_camel_case_and_flags_are_words() {
    each(|s| {
        if ours(s, "boolean") {
            return Some("a bool that can never get a third value".to_owned());
        }
        let name = s.path.rsplit('.').next().unwrap_or_default();
        if s.property && (name.contains('_') || !name.starts_with(|c: char| c.is_ascii_lowercase())) {
            return Some("not camelCase".to_owned());
        }
        let values = s
            .schema
            .enum_
            .iter()
            .flatten()
            .map(|v| v.0.as_str().unwrap_or_default().to_owned());
        let bad: Vec<_> = values
            .filter(|v| !v.starts_with(|c: char| c.is_ascii_uppercase()))
            .collect();
        (!bad.is_empty() && !s.foreign).then(|| format!("values {bad:?} are not CamelCase"))
    });
}

#[test]
fn absent_is_the_one_way_to_say_nothing() {
    each(|s| s.schema.nullable.map(|_| "nullable".to_owned()));
    each(|s| {
        s.schema
            .x_kubernetes_preserve_unknown_fields
            .map(|_| "takes unknown fields".to_owned())
    });
}

#[test]
fn rules_say_what_must_or_may_not_be() {
    each(|s| {
        let bad = s.schema.x_kubernetes_validations.iter().flatten().find(|rule| {
            let message = rule.message.as_deref().unwrap_or_default();
            !["must ", "may not ", " is immutable"]
                .iter()
                .any(|voice| message.contains(voice))
        });
        bad.map(|rule| format!("`{}`", rule.rule))
    });
}

#[test]
fn the_kinds_have_what_clients_look_for() {
    for crd in crds() {
        let kind = crd.spec.names.kind.clone();
        let version = &crd.spec.versions[0];
        assert_eq!(
            (crd.spec.versions.len(), version.served, version.storage),
            (1, true, true),
            "{kind}"
        );
        assert!(
            version.subresources.as_ref().is_some_and(|s| s.status.is_some()),
            "{kind}: status is no subresource"
        );
        assert!(version.selectable_fields.iter().flatten().count() <= 8, "{kind}");
        assert_eq!(
            crd.spec.names.categories,
            Some(vec!["shards".to_owned()]),
            "{kind}"
        );
        assert!(crd.spec.names.short_names.is_some(), "{kind}");
        let columns: Vec<_> = version.additional_printer_columns.iter().flatten().collect();
        let narrow: Vec<_> = columns
            .iter()
            .filter(|c| c.priority.is_none())
            .map(|c| c.name.as_str())
            .collect();
        assert_eq!(narrow.last(), Some(&"Age"), "{kind}");
        assert!(narrow.contains(&"Ready"), "{kind}");
    }
}
