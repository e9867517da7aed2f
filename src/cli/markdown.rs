//! The reference of the API, made from the CustomResourceDefinitions.

use crate::api::names;
use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use std::{collections::BTreeMap, fmt::Write as _};

/// Field paths and the end-to-end scenario that sees the effect of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scenarios(BTreeMap<String, String>);

impl Scenarios {
    /// Reads lines of `Kind.spec.path<TAB>scenario`; empty ones and those that begin with `#` are passed over.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        for (i, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (path, scenario) = line
                .split_once('\t')
                .ok_or_else(|| format!("line {}: no tab", i + 1))?;
            if all
                .insert(path.trim().to_owned(), scenario.trim().to_owned())
                .is_some()
            {
                return Err(format!("line {}: `{path}` stands there twice", i + 1));
            }
        }
        Ok(Self(all))
    }

    /// The scenario of a field.
    pub fn of(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Paths and scenarios, in the order of the paths.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(path, scenario)| (path.as_str(), scenario.as_str()))
    }
}

/// One field of a resource.
#[derive(Clone, Debug)]
pub struct Field<'a> {
    /// From the top of the object: `spec.tables.objects[].name`.
    pub path: String,
    schema: &'a JSONSchemaProps,
    required: bool,
    immutable: bool,
}

impl Field<'_> {
    /// Whether it holds a value itself; otherwise it only holds other fields.
    pub fn is_leaf(&self) -> bool {
        children(self.schema).is_none()
    }
}

/// All fields below `spec` or `status` of a CRD, parents before children, in alphabetical order.
pub fn fields<'a>(crd: &'a CustomResourceDefinition, part: &str) -> anyhow::Result<Vec<Field<'a>>> {
    let schema = part_schema(crd, part)?;
    let mut all = Vec::new();
    collect(schema, part, false, &mut all);
    Ok(all)
}

fn part_schema<'a>(crd: &'a CustomResourceDefinition, part: &str) -> anyhow::Result<&'a JSONSchemaProps> {
    let top = root(crd)?;
    let found = top.properties.as_ref().and_then(|p| p.get(part));
    found.with_context(|| format!("{} has no {part}", crd.spec.names.kind))
}

fn root(crd: &CustomResourceDefinition) -> anyhow::Result<&JSONSchemaProps> {
    let version = crd.spec.versions.first();
    let schema = version
        .and_then(|v| v.schema.as_ref())
        .and_then(|s| s.open_api_v3_schema.as_ref());
    schema.with_context(|| format!("{} has no schema", crd.spec.names.kind))
}

fn collect<'a>(schema: &'a JSONSchemaProps, path: &str, immutable: bool, all: &mut Vec<Field<'a>>) {
    let required = schema.required.as_deref().unwrap_or_default();
    for (name, child) in schema.properties.iter().flatten() {
        let immutable = immutable || rules(child).iter().any(|r| r.rule == "self == oldSelf");
        let path = format!("{path}.{name}");
        all.push(Field {
            path: path.clone(),
            schema: child,
            required: required.contains(name),
            immutable,
        });
        match children(child) {
            Some((inner, true)) => collect(inner, &format!("{path}[]"), immutable, all),
            Some((inner, false)) => collect(inner, &path, immutable, all),
            None => {}
        }
    }
}

/// The schema that has a field's own fields, and whether it is that of a list's items.
fn children(schema: &JSONSchemaProps) -> Option<(&JSONSchemaProps, bool)> {
    // Tolerations are documented by Kubernetes.
    if foreign(schema).is_some() {
        return None;
    }
    match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) if item.properties.is_some() => Some((item, true)),
        _ if schema.properties.is_some() => Some((schema, false)),
        _ => None,
    }
}

/// The name of a type of Kubernetes' own, when the field is a list of those.
fn foreign(schema: &JSONSchemaProps) -> Option<&'static str> {
    let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items else {
        return None;
    };
    let has = |name: &str| item.properties.as_ref().is_some_and(|p| p.contains_key(name));
    if has("tolerationSeconds") {
        Some("Toleration (core/v1)")
    } else if has("lastTransitionTime") {
        Some("Condition (meta/v1)")
    } else {
        None
    }
}

fn rules(schema: &JSONSchemaProps) -> &[ValidationRule] {
    schema.x_kubernetes_validations.as_deref().unwrap_or_default()
}

/// The reference of `crds` as Markdown; with a column of the end-to-end scenarios when these are given.
pub fn markdown(crds: &[CustomResourceDefinition], scenarios: Option<&Scenarios>) -> anyhow::Result<String> {
    let mut out = String::from(HEAD);
    if scenarios.is_some() {
        out.push_str(HEAD_SCENARIOS);
    }
    for crd in crds {
        let names = &crd.spec.names;
        let root = root(crd)?;
        let version = crd.spec.versions.first().map_or("", |v| v.name.as_str());
        writeln!(out, "\n## {}\n", names.kind)?;
        writeln!(out, "{}\n", cell(root.description.as_deref().unwrap_or_default()))?;
        let short = names
            .short_names
            .iter()
            .flatten()
            .map(|s| format!("`{s}`"))
            .collect::<Vec<_>>()
            .join(", ");
        writeln!(
            out,
            "`apiVersion: {}/{version}`, `kind: {}`; resource `{}`, short {short}; {}.\n",
            crd.spec.group,
            names.kind,
            names.plural,
            crd.spec.scope.to_lowercase()
        )?;
        let columns = crd
            .spec
            .versions
            .iter()
            .flat_map(|v| v.additional_printer_columns.iter().flatten());
        let columns = columns.map(|c| {
            let wide = if c.priority.unwrap_or(0) > 0 {
                " (with `-o wide`)"
            } else {
                ""
            };
            let what = c
                .description
                .as_deref()
                .map_or(String::new(), |d| format!(": {d}"));
            format!("**{}**{wide}{what}", c.name.to_uppercase())
        });
        writeln!(
            out,
            "Columns of `kubectl get`: {}.\n",
            columns.collect::<Vec<_>>().join("; ")
        )?;
        rule_list(&mut out, root, crd)?;
        writeln!(out, "### {}.spec\n", names.kind)?;
        table(&mut out, crd, "spec", scenarios)?;
        writeln!(out, "\n### {}.status\n", names.kind)?;
        table(&mut out, crd, "status", None)?;
    }
    annotations(&mut out)?;
    Ok(out)
}

const HEAD: &str = "# API reference

<!-- Generated by `shardwright crds --format markdown`: change the types in src/api and run `make generate`. -->

The three kinds of `shardwright.dev/v1alpha1`. All are namespaced, refer only to objects of their own namespace, and are in the
category `shards` (`kubectl get shards`). A field may be changed at any time unless *Change* says *immutable*. A field that is absent
and one that is `null` are the same. What a spec asks for beyond what the API server can check is answered by a condition.
";
const HEAD_SCENARIOS: &str = "
*Scenario* names the end-to-end scenario that sees the effect of the field on a server or on a child object.
";

/// What people ask for once, beside the specification.
fn annotations(out: &mut String) -> anyhow::Result<()> {
    writeln!(
        out,
        "\n## Annotations\n\n| Annotation | On | Value | What it asks for |\n|---|---|---|---|"
    )?;
    for (name, kind, value, what) in [
        (
            names::APPROVE_CUTOVER_ANNOTATION,
            "ShardRange",
            "the present `metadata.generation`",
            "That its shards are cut over, with `cutover: Manual`. `shardwright cutover RANGE` sets it. After a change of the specification it counts for nothing.",
        ),
        (
            names::VERIFY_AGAIN_ANNOTATION,
            "ShardRange",
            "any other than before",
            "That copies that were found different are compared once more: [CopiesDiffer](runbook.md#copiesdiffer).",
        ),
        (
            names::ACCEPT_DATA_LOSS_ANNOTATION,
            "MySQLPair",
            "the present `status.epoch`",
            "That the pair goes on without what only the lost server had: [by hand](failover.md#by-hand).",
        ),
    ] {
        writeln!(out, "| `{name}` | {kind} | {value} | {what} |")?;
    }
    Ok(())
}

fn table(
    out: &mut String,
    crd: &CustomResourceDefinition,
    part: &str,
    scenarios: Option<&Scenarios>,
) -> anyhow::Result<()> {
    let kind = &crd.spec.names.kind;
    let spec = part == "spec";
    let mut head = vec!["Field", "Type"];
    if spec {
        head.extend(["Default", "Limits", "Change"]);
    }
    if scenarios.is_some() {
        head.push("Scenario");
    }
    head.push("Description");
    writeln!(out, "| {} |", head.join(" | "))?;
    writeln!(out, "|{}", "---|".repeat(head.len()))?;
    for field in fields(crd, part)? {
        let schema = field.schema;
        let mut row = vec![format!("`{}`", field.path), type_of(schema)];
        if spec {
            row.push(default_of(&field));
            row.push(limits(schema));
            row.push(if field.immutable { "immutable" } else { "any time" }.to_owned());
        }
        if let Some(scenarios) = scenarios {
            let path = format!("{kind}.{}", field.path);
            let named = scenarios.of(&path).map(|s| format!("`{s}`"));
            row.push(named.unwrap_or_default());
        }
        row.push(cell(schema.description.as_deref().unwrap_or_default()));
        writeln!(out, "| {} |", row.join(" | "))?;
    }
    Ok(())
}

/// The rules that hold between fields, or of the name.
fn rule_list(out: &mut String, root: &JSONSchemaProps, crd: &CustomResourceDefinition) -> anyhow::Result<()> {
    let spec = part_schema(crd, "spec")?;
    let mut all: Vec<(String, &ValidationRule)> = Vec::new();
    all.extend(rules(root).iter().chain(rules(spec)).map(|r| (String::new(), r)));
    for field in fields(crd, "spec")? {
        let own = rules(field.schema).iter().filter(|r| r.rule != "self == oldSelf");
        all.extend(own.map(|r| (format!("`{}`: ", field.path), r)));
    }
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "The API server refuses what breaks one of these rules:\n")?;
    for (place, rule) in all {
        writeln!(
            out,
            "- {place}{}",
            cell(rule.message.as_deref().unwrap_or(&rule.rule))
        )?;
    }
    writeln!(out)?;
    Ok(())
}

fn type_of(schema: &JSONSchemaProps) -> String {
    if schema.x_kubernetes_int_or_string == Some(true) {
        return "quantity".to_owned();
    }
    if let Some(name) = foreign(schema) {
        return format!("list of {name}");
    }
    match (
        schema.type_.as_deref(),
        &schema.items,
        &schema.additional_properties,
    ) {
        (Some("array"), Some(JSONSchemaPropsOrArray::Schema(item)), _) => {
            let keys = schema
                .x_kubernetes_list_map_keys
                .iter()
                .flatten()
                .cloned()
                .collect::<Vec<_>>()
                .join(", ");
            let by = if keys.is_empty() {
                String::new()
            } else {
                format!(", one per `{keys}`")
            };
            format!("list of {}{by}", type_of(item))
        }
        (Some("object"), _, Some(JSONSchemaPropsOrBool::Schema(value))) => {
            format!("map to {}", type_of(value))
        }
        (Some("integer"), ..) => schema.format.clone().unwrap_or_else(|| "integer".to_owned()),
        (Some("string"), ..) if schema.enum_.is_some() => "enum".to_owned(),
        (Some(other), ..) => other.to_owned(),
        (None, ..) => "any".to_owned(),
    }
}

fn default_of(field: &Field<'_>) -> String {
    match &field.schema.default {
        Some(value) => format!(
            "`{}`",
            value
                .0
                .as_str()
                .map_or_else(|| value.0.to_string(), str::to_owned)
        ),
        None if field.required => "required".to_owned(),
        None => "absent".to_owned(),
    }
}

fn limits(schema: &JSONSchemaProps) -> String {
    let mut all = Vec::new();
    if let Some(values) = &schema.enum_ {
        let values = values
            .iter()
            .map(|v| format!("`{}`", v.0.as_str().unwrap_or_default()));
        all.push(values.collect::<Vec<_>>().join(", "));
    }
    match (schema.minimum, schema.maximum) {
        (Some(min), Some(max)) => all.push(format!("{min} to {max}")),
        (Some(min), None) => all.push(format!("at least {min}")),
        (None, Some(max)) => all.push(format!("at most {max}")),
        (None, None) => {}
    }
    match (schema.min_length, schema.max_length) {
        (Some(min), Some(max)) => all.push(format!("{min} to {max} characters")),
        (None, Some(max)) => all.push(format!("at most {max} characters")),
        _ => {}
    }
    if let Some(pattern) = &schema.pattern
        && schema.x_kubernetes_int_or_string.is_none()
    {
        all.push(format!("`{}`", pattern.replace('|', "\\|")));
    }
    if let Some(max) = schema.max_items {
        all.push(format!("at most {max} items"));
    }
    if let Some(max) = schema.max_properties {
        all.push(format!("at most {max} keys"));
    }
    all.join("; ")
}

/// Text that can stand in a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_lists_and_maps_have_paths() {
        let crds = crate::api::crds();
        let all = fields(&crds[0], "spec").unwrap();
        let field = |path: &str| {
            all.iter()
                .find(|f| f.path == path)
                .unwrap_or_else(|| panic!("no {path}"))
        };
        assert!(field("spec.shards.total").immutable && field("spec.shards.total").is_leaf());
        assert!(!field("spec.shards").is_leaf() && !field("spec.tables.objects[].name").immutable);
        assert!(
            field("spec.mysql.scheduling.tolerations").is_leaf() && field("spec.mysql.podLabels").is_leaf()
        );
        assert_eq!(default_of(field("spec.shards.digits")), "`5`");
        assert_eq!(limits(field("spec.shards.total").schema), "1 to 65536");
    }

    #[test]
    fn scenarios_are_lines_with_a_tab() {
        let read = Scenarios::parse("# path\tscenario\n\nA.spec.b\tserving\n").unwrap();
        assert_eq!(
            (read.of("A.spec.b"), read.of("A.spec.c")),
            (Some("serving"), None)
        );
        assert!(
            Scenarios::parse("A.spec.b serving")
                .unwrap_err()
                .contains("line 1")
        );
        assert!(Scenarios::parse("a\tb\na\tc").unwrap_err().contains("twice"));
    }
}
