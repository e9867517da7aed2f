//! What is said of a ShardCluster.

use super::{
    decide::{Recorded, Stop},
    observed::{Checked, Observed, Progress, TablesSeen},
    reasons,
};
use crate::{
    api::{
        ShardClusterStatus, SpanState,
        conditions::{self, Overall, Said as Condition},
        placement::MAX_SPANS,
        shard_cluster::LayoutState,
    },
    core::{note::Note, placement},
};
use k8s_openapi::jiff::Timestamp;

/// The status to write, and what to tell people of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The status, with the record as it is.
    pub status: ShardClusterStatus,
    /// Events.
    pub notes: Vec<Note>,
}

/// What is said of the cluster after the record was decided upon (and written). `seeded` says that the layout is done with.
pub fn say(o: &Observed, r: &Recorded, seeded: bool, now: Timestamp) -> Said {
    let mut status = o.before.clone();
    status.observed_generation = o.generation;
    status.placement.clone_from(&r.placement);
    if seeded {
        status.layout = Some(LayoutState::Seeded);
    }
    if let TablesSeen::Set {
        set,
        checked: Checked::Good,
    } = &o.tables
    {
        status.tables_hash = Some(set.hash().to_owned());
    }
    let serving = r.placement.as_ref().map(placement::serving).unwrap_or_default();
    status.open_shards = i32::try_from(serving.len()).unwrap_or(i32::MAX);
    status.ranges = i32::try_from(o.ranges.len()).unwrap_or(i32::MAX);
    let pairs: Vec<_> = o.own_pairs().collect();
    let ready = pairs
        .iter()
        .filter(|(_, p)| p.progress == Progress::Ready)
        .count();
    status.pairs = i32::try_from(pairs.len()).unwrap_or(i32::MAX);
    status.pairs_ready = format!("{ready}/{}", pairs.len());

    let overall = overall(o, r, &status);
    let covered = covered(r);
    let notes = notes(o, &overall, &covered);
    let mut said = overall.said().to_vec();
    said.push(covered);
    conditions::set(&mut status.conditions, &said, o.generation, now);
    Said { status, notes }
}

fn stalled(reason: &'static str, message: impl Into<String>) -> Overall {
    Overall::Stalled {
        reason,
        message: message.into(),
    }
}
fn working(reason: &'static str, message: impl Into<String>) -> Overall {
    Overall::Working {
        reason,
        message: message.into(),
    }
}

fn overall(o: &Observed, r: &Recorded, status: &ShardClusterStatus) -> Overall {
    if let Some(what) = &o.credentials {
        return stalled(reasons::CREDENTIALS_UNUSABLE, what.clone());
    }
    if let Some(grave) = r.stops.iter().find_map(grave) {
        return grave;
    }
    if let Some(what) = &o.refused {
        return stalled(reasons::CHILD_REFUSED, what.clone());
    }
    match &o.tables {
        TablesSeen::ConfigMapMissing { name } => {
            return stalled(
                reasons::DDL_CONFIG_MAP_NOT_FOUND,
                format!(
                    "`spec.tables.ddlFrom` names the ConfigMap {name}, which is not there; shards that are served stay as they are, new ones wait"
                ),
            );
        }
        TablesSeen::NotAdmitted(e) => return ddl_invalid(&e.to_string()),
        TablesSeen::Set {
            checked: Checked::Refused(what),
            ..
        } => return ddl_invalid(what),
        TablesSeen::Set { .. } => {}
    }
    let pairs: Vec<_> = o.own_pairs().map(|(n, p)| (n.as_str(), &p.progress)).collect();
    let ranges: Vec<_> = o
        .ranges
        .iter()
        .map(|r| (r.claim.name.as_str(), &r.progress))
        .collect();
    let lists = [
        (
            "MySQLPair",
            &pairs,
            reasons::PAIR_STALLED,
            reasons::PAIRS_NOT_READY,
        ),
        (
            "ShardRange",
            &ranges,
            reasons::RANGE_STALLED,
            reasons::RANGES_NOT_READY,
        ),
    ];
    for (kind, list, reason, _) in &lists {
        if let Some(message) = first(kind, list, |p| match p {
            Progress::Stalled(m) => Some(m),
            _ => None,
        }) {
            return stalled(reason, message);
        }
    }
    for stop in &r.stops {
        match stop {
            Stop::Seeding => return working(reasons::SEEDING_LAYOUT, "pairs and ranges are being made"),
            Stop::Asking(pairs) => {
                return working(
                    reasons::ASKING_SERVERS,
                    format!(
                        "before the first shard is placed, {} must say which databases they have",
                        some(pairs)
                    ),
                );
            }
            Stop::Volumes(pairs) => {
                return working(
                    reasons::ASKING_SERVERS,
                    format!(
                        "the record is lost, and there are volumes of {}, whose MySQLPair is not there: apply it, so that its servers say what is on them, or delete its PersistentVolumeClaims if the data are not wanted any more",
                        some(pairs)
                    ),
                );
            }
            _ => {}
        }
    }
    for (kind, list, _, reason) in &lists {
        if let Some(message) = first(kind, list, |p| match p {
            Progress::Working(m) => Some(m),
            _ => None,
        }) {
            return working(reason, message);
        }
    }
    if let TablesSeen::Set {
        checked: Checked::NotYet(why),
        ..
    } = &o.tables
    {
        // With no shard there is no server to try them on, and nobody waits for it.
        if !o.ranges.is_empty() {
            return working(reasons::CHECKING_TABLES, why.clone());
        }
    }
    let behind: Vec<String> = o
        .ranges
        .iter()
        .filter(|r| r.tables_hash != status.tables_hash)
        .map(|r| r.claim.name.clone())
        .collect();
    if !behind.is_empty() {
        return working(
            reasons::ROLLING_OUT_TABLES,
            format!("tables are being created in the shards of {}", some(&behind)),
        );
    }
    if o.ranges.is_empty() && status.open_shards == 0 {
        return Overall::Ready {
            reason: reasons::EMPTY,
            message: "no ShardRange names this cluster yet".into(),
        };
    }
    Overall::Ready {
        reason: reasons::SERVING,
        message: format!(
            "{} of {} shards are open, on {} pairs",
            status.open_shards, o.spec.shards.total, status.pairs
        ),
    }
}

fn ddl_invalid(what: &str) -> Overall {
    stalled(
        reasons::DDL_INVALID,
        format!("{what}; shards that are served stay as they are, new ones wait"),
    )
}

fn grave(stop: &Stop) -> Option<Overall> {
    Some(match stop {
        Stop::NameTaken(why) => stalled(
            reasons::SHARD_MAP_NAME_TAKEN,
            format!(
                "the map is not published: {why}; give it another name with `spec.shardMap.configMapName`"
            ),
        ),
        Stop::Ambiguous { shards, pairs } => stalled(
            reasons::AMBIGUOUS_COPIES,
            format!(
                "databases of the shards {shards} are on {}, and no record or map says which pair serves them; drop the copies that are not wanted (with sql_log_bin=0 on both servers of that pair), or restore the map's ConfigMap",
                if pairs.is_empty() {
                    "several pairs".to_owned()
                } else {
                    pairs.join(" and on ")
                }
            ),
        ),
        Stop::OtherKeySpace(what) => stalled(
            reasons::KEY_SPACE_DIFFERS,
            format!(
                "the published map serves databases of a cluster with {what}: delete this cluster and make it again with that, or delete the map's ConfigMap if the data are not wanted any more; until then nothing is created and the map stays as it is"
            ),
        ),
        Stop::Record(e @ placement::Error::TooManySpans(_)) => stalled(
            reasons::TOO_MANY_SPANS,
            format!(
                "{e}; until then no claim and no hand-over is recorded, and what is served stays served (limit {MAX_SPANS})"
            ),
        ),
        Stop::Record(e) => stalled(
            reasons::RECORD_MALFORMED,
            format!(
                "{e}; take `status.placement` away (kubectl edit --subresource=status) to have it made again from the map and the servers"
            ),
        ),
        Stop::Seeding | Stop::Asking(_) | Stop::Volumes(_) => return None,
    })
}

/// The first of a list that is in some state, and how many more are.
fn first(
    kind: &str,
    list: &[(&str, &Progress)],
    pick: impl Fn(&Progress) -> Option<&String>,
) -> Option<String> {
    let mut picked = list.iter().filter_map(|(n, p)| Some((n, pick(p)?)));
    let (name, message) = picked.next()?;
    let more = picked.count();
    let tail = if more > 0 {
        format!(" (and {more} more)")
    } else {
        String::new()
    };
    let what = if message.is_empty() {
        "not looked at yet"
    } else {
        message
    };
    Some(format!("{kind} {name}: {what}{tail}"))
}

fn some(names: &[String]) -> String {
    let shown = names.iter().take(4).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(4) {
        0 => shown,
        n => format!("{shown} and {n} more"),
    }
}

fn covered(r: &Recorded) -> Condition {
    let bare = r
        .placement
        .as_ref()
        .map(|p| placement::shards(p, |s| s.state == SpanState::Serving && s.range.is_none()));
    match bare {
        Some(shards) if !shards.is_empty() => Condition::no(
            conditions::SHARDS_COVERED,
            reasons::SHARDS_NOT_COVERED,
            format!(
                "no ShardRange covers the shards {shards}; they stay where they are, in the map and served"
            ),
        ),
        _ => Condition::yes(
            conditions::SHARDS_COVERED,
            reasons::COVERED,
            "every shard in the map is covered by a ShardRange",
        ),
    }
}

fn notes(o: &Observed, overall: &Overall, covered: &Condition) -> Vec<Note> {
    let mut notes = vec![];
    let was = |type_: &str| conditions::is_true(&o.before.conditions, type_, None);
    if covered.status == Some(false) && (was(conditions::SHARDS_COVERED) || o.before.conditions.is_empty()) {
        notes.push(Note::warning(covered.reason, covered.message.clone()));
    }
    match overall {
        Overall::Ready { message, reason } if !was(conditions::READY) && *reason == reasons::SERVING => {
            notes.push(Note::normal(reasons::CLUSTER_READY, message.clone()));
        }
        Overall::Stalled { reason, message } => {
            let said = o
                .before
                .conditions
                .iter()
                .any(|c| c.type_ == conditions::STALLED && c.status == "True" && c.reason == *reason);
            if !said {
                notes.push(Note::warning(reason, message.clone()));
            }
        }
        _ => {}
    }
    notes
}
