//! Whether the volumes of a pair are as large as specified, and which claims are to ask for more. Claims grow where their StorageClass allows
//! it; nothing ever shrinks one. The template in the StatefulSet stays as it was made, the API lets nothing of it change: a claim that is made
//! anew from it is made to grow as well.

use crate::{
    api::conditions::{STORAGE_AS_SPECIFIED, Said},
    core::quantity,
};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

/// StorageAsSpecified: the volumes are as large as specified.
pub const LARGE_ENOUGH: &str = "LargeEnough";
/// Not: a claim has no volume yet.
pub const VOLUME_PENDING: &str = "VolumePending";
/// Not: the claims ask for it, and the volumes are about to grow.
pub const STORAGE_GROWING: &str = "StorageGrowing";
/// Not: the StorageClass does not allow it.
pub const STORAGE_NOT_EXPANDABLE: &str = "StorageNotExpandable";
/// Not: the API does not take the larger claim, because of a quota for instance.
pub const STORAGE_REFUSED: &str = "StorageRefused";

/// Whether a StorageClass lets claims grow (`allowVolumeExpansion`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expansion {
    /// It does.
    Allowed,
    /// It does not, or there is no such class.
    NotAllowed,
    /// The operator may not look at classes: it asks, and the API refuses what is not allowed.
    Unknown,
}

/// A claim in our own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// What it asks for, as a quantity.
    pub requested: String,
    /// How large its volume is, as a quantity; `None` while it has none.
    pub capacity: Option<String>,
    /// Its StorageClass.
    pub class: Option<String>,
    /// It is being deleted.
    pub deleting: bool,
    /// What whoever makes it grow says.
    pub resizing: Option<String>,
}

impl Claim {
    /// Reads it.
    pub fn of(claim: &PersistentVolumeClaim) -> Self {
        let spec = claim.spec.as_ref();
        let status = claim.status.as_ref();
        let requests = spec
            .and_then(|s| s.resources.as_ref())
            .and_then(|r| r.requests.as_ref());
        let storage = |m: &std::collections::BTreeMap<String, _>| {
            m.get("storage")
                .map(|q: &k8s_openapi::apimachinery::pkg::api::resource::Quantity| q.0.clone())
        };
        let conditions = status.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
        let said = conditions
            .iter()
            .filter(|c| c.status == "True")
            .filter_map(|c| Some((c.type_.as_str(), c.message.as_deref().filter(|m| !m.is_empty())?)))
            .map(|(type_, message)| format!("{type_}: {message}"));
        Self {
            name: claim.metadata.name.clone().unwrap_or_default(),
            uid: claim.metadata.uid.clone().unwrap_or_default(),
            requested: requests.and_then(storage).unwrap_or_default(),
            capacity: status.and_then(|s| s.capacity.as_ref()).and_then(storage),
            class: spec.and_then(|s| s.storage_class_name.clone()),
            deleting: claim.metadata.deletion_timestamp.is_some(),
            resizing: Some(said.collect::<Vec<_>>().join("; ")).filter(|s| !s.is_empty()),
        }
    }
    /// It has a volume and asks for less than `size`. (A claim that has none cannot be changed.)
    pub fn asks_for_less(&self, size: &str) -> bool {
        self.capacity.is_some() && !self.deleting && less(&self.requested, size)
    }
    fn is_smaller(&self, size: &str) -> bool {
        self.capacity.as_ref().is_some_and(|c| less(c, size))
    }
}

/// `a < b` as quantities; what is no quantity is not less.
fn less(a: &str, b: &str) -> bool {
    quantity::millis(a)
        .zip(quantity::millis(b))
        .is_some_and(|(a, b)| a < b)
}

/// What becomes of one claim that asks for less than specified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It is made to ask for more.
    Ask,
    /// Its class does not allow it.
    NotAllowed,
}

/// What is done about a claim, `None` when it asks for enough.
pub fn growth(size: &str, claim: &Claim, expansion: Expansion) -> Option<Growth> {
    claim.asks_for_less(size).then_some(match expansion {
        Expansion::NotAllowed => Growth::NotAllowed,
        Expansion::Allowed | Expansion::Unknown => Growth::Ask,
    })
}

/// How a claim was found, or left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As it is.
    Is(Claim),
    /// It was made to ask for more.
    Asked(Claim),
    /// Its class does not allow it.
    NotAllowed(Claim),
    /// The API did not take it, in its words.
    Refused(Claim, String),
}

/// The condition. The worst of both claims is told.
pub fn said(size: &str, outcomes: &[Option<Outcome>]) -> Said {
    let no = |reason, message: String| Said::no(STORAGE_AS_SPECIFIED, reason, message);
    let all = || outcomes.iter().flatten();
    let refused = all().find_map(|o| match o {
        Outcome::Refused(claim, why) => Some((claim, why)),
        _ => None,
    });
    if let Some((claim, why)) = refused {
        return no(
            STORAGE_REFUSED,
            format!("the claim {} cannot ask for {size}: {why}", claim.name),
        );
    }
    let not_allowed = all().find_map(|o| match o {
        Outcome::NotAllowed(claim) => Some(claim),
        _ => None,
    });
    if let Some(claim) = not_allowed {
        return no(
            STORAGE_NOT_EXPANDABLE,
            format!(
                "the claim {} has {}, {size} is specified, and its StorageClass {} does not allow it to grow: set `allowVolumeExpansion: true` there, if its provisioner can do it; or give the servers new claims, one after the other",
                claim.name,
                claim.capacity.as_deref().unwrap_or(&claim.requested),
                claim.class.as_deref().unwrap_or("(none)")
            ),
        );
    }
    let growing: Vec<_> = all()
        .filter_map(|o| match o {
            Outcome::Asked(claim) => Some(claim),
            Outcome::Is(claim) if claim.is_smaller(size) => Some(claim),
            _ => None,
        })
        .map(|claim| {
            let has = claim.capacity.as_deref().unwrap_or_default();
            let more = claim.resizing.as_ref().map(|r| format!(" ({r})"));
            format!("{} has {has}{}", claim.name, more.unwrap_or_default())
        })
        .collect();
    if !growing.is_empty() {
        return no(
            STORAGE_GROWING,
            format!("{size} is asked for: {}", growing.join(", ")),
        );
    }
    let pending = all().any(|o| matches!(o, Outcome::Is(claim) if claim.capacity.is_none()));
    if pending || all().count() < outcomes.len() {
        return Said {
            type_: STORAGE_AS_SPECIFIED,
            status: None,
            reason: VOLUME_PENDING,
            message: "a server has no volume yet".to_owned(),
        };
    }
    Said::yes(
        STORAGE_AS_SPECIFIED,
        LARGE_ENOUGH,
        format!("each server has {size} or more"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(requested: &str, capacity: Option<&str>) -> Claim {
        let capacity = capacity.map_or_else(|| json!({}), |c| json!({ "storage": c }));
        let claim = json!({
            "metadata": { "name": "data-p-0", "uid": "u" },
            "spec": { "storageClassName": "fast", "resources": { "requests": { "storage": requested } } },
            "status": { "capacity": capacity, "conditions": [{ "type": "FileSystemResizePending", "status": "True", "message": "waiting" }] },
        });
        Claim::of(&serde_json::from_value(claim).unwrap())
    }

    #[test]
    fn a_claim_that_asks_for_less_is_made_to_grow_where_that_is_allowed() {
        let small = claim("1Gi", Some("1Gi"));
        for (size, expansion, expected) in [
            ("2Gi", Expansion::Allowed, Some(Growth::Ask)),
            ("2Gi", Expansion::Unknown, Some(Growth::Ask)),
            ("2Gi", Expansion::NotAllowed, Some(Growth::NotAllowed)),
            ("1024Mi", Expansion::Allowed, None),
            ("1G", Expansion::Allowed, None),
        ] {
            assert_eq!(growth(size, &small, expansion), expected, "{size} {expansion:?}");
        }
        let unbound = claim("1Gi", None);
        assert_eq!(
            growth("2Gi", &unbound, Expansion::Allowed),
            None,
            "the API would refuse it"
        );
        let going = Claim {
            deleting: true,
            ..small
        };
        assert_eq!(growth("2Gi", &going, Expansion::Allowed), None);
    }

    #[test]
    fn the_worst_of_both_is_told() {
        let tell = |a: Outcome, b: Outcome| {
            let said = said("2Gi", &[Some(a), Some(b)]);
            (said.status, said.reason)
        };
        let (small, asked, large) = (
            claim("1Gi", Some("1Gi")),
            claim("2Gi", Some("1Gi")),
            claim("2Gi", Some("10Gi")),
        );
        let is = |c: &Claim| Outcome::Is(c.clone());
        assert_eq!(tell(is(&large), is(&large)), (Some(true), LARGE_ENOUGH));
        assert_eq!(tell(is(&large), is(&asked)), (Some(false), STORAGE_GROWING));
        assert_eq!(
            tell(Outcome::Asked(small.clone()), is(&large)),
            (Some(false), STORAGE_GROWING)
        );
        assert_eq!(
            tell(Outcome::Asked(small.clone()), Outcome::NotAllowed(small.clone())),
            (Some(false), STORAGE_NOT_EXPANDABLE)
        );
        assert_eq!(
            tell(
                Outcome::NotAllowed(small.clone()),
                Outcome::Refused(small, "quota".into())
            ),
            (Some(false), STORAGE_REFUSED)
        );
        assert_eq!(tell(is(&claim("1Gi", None)), is(&large)), (None, VOLUME_PENDING));
        assert_eq!(said("2Gi", &[None, Some(is(&large))]).reason, VOLUME_PENDING);
    }

    #[test]
    fn who_makes_it_grow_is_quoted() {
        let said = said("2Gi", &[Some(Outcome::Is(claim("2Gi", Some("1Gi"))))]);
        assert_eq!(
            said.message,
            "2Gi is asked for: data-p-0 has 1Gi (FileSystemResizePending: waiting)"
        );
    }
}
