//! The Secrets that errant transactions are saved in (rule P8). They may hold anything that a table or a statement does, hashes of
//! passwords included, so they are no ConfigMaps.

use super::labels;
use crate::{
    api::names,
    core::{errant::Saved, gtid::GtidSet},
};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use std::{collections::BTreeMap, fmt::Write as _};

/// Key: all transactions that the Secret is about, as a GTID set.
pub const GTIDS: &str = "gtids";
/// Key: those of them that are not, or not wholly, in [`SCRIPT`]. Not there when there are none.
pub const BY_NAME: &str = "by-name";
/// Key: the transactions as SQL.
pub const SCRIPT: &str = "transactions.sql";
/// Key: what this is.
pub const ABOUT: &str = "about";
/// Key: `true` or `false`: whether all of them are wholly in [`SCRIPT`].
pub const COMPLETE: &str = "complete";

/// Most Secrets of one pair and epoch.
pub const PARTS: usize = 10;

/// Where transactions were saved from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Namespace of the pair.
    pub namespace: &'a str,
    /// Name of its ShardCluster.
    pub cluster: &'a str,
    /// Name of the MySQLPair.
    pub pair: &'a str,
    /// Its epoch.
    pub epoch: i64,
    /// The Pod that had them.
    pub pod: &'a str,
}

/// The Secret, the `part`-th of its pair and epoch. Nothing owns it and nothing may change it: it outlives the server, the pair
/// and the cluster, until a person deletes it.
pub fn secret(origin: &Origin<'_>, part: usize, saved: &Saved) -> Secret {
    let mut labels = labels::of_pair(origin.cluster, origin.pair);
    labels.insert(names::ERRANT_LABEL.to_owned(), origin.epoch.to_string());
    let name = names::errant_secret(origin.pair, origin.epoch, part);
    let mut data = vec![
        (GTIDS, saved.all().to_string()),
        (SCRIPT, saved.text.clone()),
        (ABOUT, about(origin, saved)),
        (COMPLETE, saved.by_name.is_empty().to_string()),
    ];
    if !saved.by_name.is_empty() {
        data.push((BY_NAME, saved.by_name.to_string()));
    }
    let data = data
        .into_iter()
        .map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())))
        .collect();
    Secret {
        metadata: labels::metadata(origin.namespace, name, labels, None),
        type_: Some("Opaque".to_owned()),
        immutable: Some(true),
        data: Some(data),
        ..Secret::default()
    }
}

fn about(origin: &Origin<'_>, saved: &Saved) -> String {
    let Origin { pod, pair, epoch, .. } = origin;
    let mut text = format!(
        "{pod} had {} transactions that the active server of {pair} did not have (epoch {epoch}). They are not part of the pair's data: \
         {pod} was made anew as a copy of the active server after they had been written down here.\n\
         {SCRIPT} has them as SQL, each under its name. Read it, and apply to the active server what is wanted of it.\n\
         A row that may have been changed since should be compared first; a value of a generated column has to be left out.\n\
         It is written for a connection with utf8mb4 and without NO_BACKSLASH_ESCAPES.\n",
        saved.all().count()
    );
    if !saved.by_name.is_empty() {
        let _ = writeln!(
            text,
            "{} of them are not, or not wholly, there; {BY_NAME} has their names. The reason: {}.",
            saved.by_name.count(),
            saved.why.join("; ")
        );
    }
    text
}

/// What such a Secret says is saved: whole, and by name only. Nothing when it is none of this pair's.
pub fn saved_in(secret: &Secret, pair: &str) -> (GtidSet, GtidSet) {
    let none = BTreeMap::new();
    let labels = secret.metadata.labels.as_ref().unwrap_or(&none);
    let has = |key: &str, value: Option<&str>| {
        let found = labels.get(key).map(String::as_str);
        found.is_some() && (value.is_none() || found == value)
    };
    let ours = has("app.kubernetes.io/managed-by", Some(names::MANAGED_BY))
        && has(names::PAIR_LABEL, Some(pair))
        && has(names::ERRANT_LABEL, None);
    let set = |key: &str| -> Option<GtidSet> {
        let bytes = &secret.data.as_ref()?.get(key)?.0;
        std::str::from_utf8(bytes).ok()?.parse().ok()
    };
    let nothing = (GtidSet::new(), GtidSet::new());
    let Some(all) = set(GTIDS).filter(|_| ours) else {
        return nothing;
    };
    let complete = secret
        .data
        .as_ref()
        .and_then(|d| d.get(COMPLETE))
        .is_some_and(|v| v.0 == b"true");
    match set(BY_NAME) {
        _ if complete => (all, GtidSet::new()),
        Some(by_name) => (all.minus(&by_name), by_name),
        None => (GtidSet::new(), all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const ORIGIN: Origin<'static> = Origin {
        namespace: "shop",
        cluster: "main",
        pair: "main-p0",
        epoch: 7,
        pod: "main-p0-1",
    };

    fn set(text: &str) -> GtidSet {
        format!("{A}:{text}").parse().unwrap()
    }
    fn saved() -> Saved {
        Saved {
            text: format!("-- {A}:1\nBEGIN;\nCOMMIT;\n\n"),
            complete: set("1"),
            ..Saved::default()
        }
    }
    fn readable(mut s: Secret) -> Secret {
        let data = s.data.take().unwrap_or_default();
        let text = |b: ByteString| String::from_utf8(b.0).unwrap();
        s.string_data = Some(data.into_iter().map(|(k, v)| (k, text(v))).collect());
        s
    }

    #[test]
    fn the_secret() {
        let mut saved = saved();
        let whole = secret(&ORIGIN, 1, &saved);
        assert_eq!(whole.metadata.owner_references, None, "outlives everything");
        assert_eq!(saved_in(&whole, "main-p0"), (set("1"), GtidSet::new()));
        insta::assert_yaml_snapshot!("whole", readable(whole));

        saved.name_only(&set("2-9"), "there is more than is kept");
        let part = secret(&ORIGIN, 2, &saved);
        assert_eq!(saved_in(&part, "main-p0"), (set("1"), set("2-9")));
        insta::assert_yaml_snapshot!("by_name", readable(part));
    }

    #[test]
    fn a_secret_of_somebody_else_saves_nothing() {
        let nothing = (GtidSet::new(), GtidSet::new());
        let ours = secret(&ORIGIN, 1, &saved());
        assert_eq!(saved_in(&ours, "other"), nothing);
        let mut unlabelled = ours.clone();
        unlabelled.metadata.labels = None;
        assert_eq!(saved_in(&unlabelled, "main-p0"), nothing);
        let mut garbled = ours.clone();
        garbled
            .data
            .as_mut()
            .unwrap()
            .insert(GTIDS.into(), ByteString(b"?".to_vec()));
        assert_eq!(saved_in(&garbled, "main-p0"), nothing);
        let mut doubtful = ours;
        doubtful.data.as_mut().unwrap().remove(COMPLETE);
        assert_eq!(saved_in(&doubtful, "main-p0"), (GtidSet::new(), set("1")));
    }

    #[test]
    fn a_full_one_fits_the_api() {
        let mut saved = saved();
        saved.text = "x".repeat(crate::core::errant::LIMIT);
        // A set of many holes is long itself.
        let holes: Vec<String> = (1..5000).map(|n| (2 * n).to_string()).collect();
        saved.name_only(&set(&holes.join(":")), "why");
        let secret = secret(&ORIGIN, 1, &saved);
        let size: usize = secret.data.unwrap().values().map(|v| v.0.len()).sum();
        assert!(size < 1 << 20, "{size}");
    }
}
