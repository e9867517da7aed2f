//! What follows for the layout, the record and the map. Pure: it is asked again with the record as it is, until the write goes through.

use super::{
    observed::{Checked, MapSeen, Observed, TablesSeen},
    reasons,
};
use crate::{
    api::{Placement, ShardSpan, SpanState, shard_cluster::RoutingMode},
    core::{
        claims::{self, Claims},
        migration::intent,
        note::Note,
        placement,
        shard_map::{self, ShardMap},
        spans::SpanSet,
    },
};
use std::collections::BTreeMap;

/// What is done about `spec.layout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Nothing: there is none, or it was carried out.
    Done,
    /// Its pairs and ranges are made; those that a pass before this one made are there already.
    Seed,
    /// The cluster has pairs or ranges that no layout of it made: it is passed over for good.
    Skip,
}

/// What is done about `spec.layout`: it is carried out once, on a cluster that nothing names yet.
pub fn layout(o: &Observed) -> Layout {
    if o.spec.layout.is_none() || o.before.layout.is_some() {
        return Layout::Done;
    }
    let mut seeded_by = o
        .own_pairs()
        .map(|(_, p)| &p.seeded_by)
        .chain(o.ranges.iter().map(|r| &r.seeded_by))
        .peekable();
    if seeded_by.peek().is_none() || seeded_by.any(|uid| uid.as_deref() == Some(o.uid.as_str())) {
        Layout::Seed
    } else {
        Layout::Skip
    }
}

/// Why the record or the map is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The layout is not carried out yet.
    Seeding,
    /// These pairs were not asked yet which databases they have.
    Asking(Vec<String>),
    /// These pairs have volumes and are not there: nobody can be asked what is on them.
    Volumes(Vec<String>),
    /// Databases of these shards are on several pairs.
    Ambiguous {
        /// The shards.
        shards: SpanSet,
        /// The pairs, where they are known.
        pairs: Vec<String>,
    },
    /// The published map is of a cluster with other databases, and there is no record: this one would not find its data.
    OtherKeySpace(String),
    /// The transitions refused.
    Record(placement::Error),
    /// The map's ConfigMap is somebody else's.
    NameTaken(String),
}

/// What follows for the record and the map.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The record as it has to be; `None` while there can be none.
    pub placement: Option<Placement>,
    /// The map that the record makes; `None` when none is to be published.
    pub map: Option<ShardMap>,
    /// The verdicts.
    pub claims: Option<Claims>,
    /// What stands in the way, the gravest first.
    pub stops: Vec<Stop>,
    /// The record was made again from the map and the servers.
    pub restored: bool,
}

/// What follows from what was seen, for a cluster whose record is `current` at this moment.
pub fn record(o: &Observed, current: Option<&Placement>) -> Recorded {
    let mut out = Recorded {
        placement: current.cloned(),
        map: None,
        claims: None,
        stops: vec![],
        restored: false,
    };
    if layout(o) == Layout::Seed {
        out.stops.push(Stop::Seeding);
    }
    if let MapSeen::Foreign { why } = &o.map {
        out.stops.push(Stop::NameTaken(why.clone()));
    }
    let base = match current {
        Some(p) => p.clone(),
        None => match seed(o) {
            Ok(Some(p)) => {
                out.restored = !p.spans.is_empty();
                p
            }
            Ok(None) => return out,
            Err(stop) => {
                out.stops.push(stop);
                return out;
            }
        },
    };
    let claims = claims::evaluate(o.spec.shards.total, &o.claims(), &o.pair_facts(), &o.name, &base);
    if !claims.ambiguous.is_empty() {
        out.stops.push(Stop::Ambiguous {
            shards: claims.ambiguous.clone(),
            pairs: vec![],
        });
    }
    let next = match &claims.wanted {
        Ok(p) => {
            let policy = (&o.spec.migration).into();
            let pairs = o.pair_states();
            let plan = intent::plan(p, &o.claims(), &claims.verdicts, &pairs, &o.name, policy);
            intent::set_out(p, &plan)
        }
        // Nothing is claimed or handed over, but what is served stays in the map, and the map follows its pairs.
        Err(e) => {
            out.stops.push(Stop::Record(e.clone()));
            base
        }
    };
    out.claims = Some(claims);
    if matches!(out.stops.last(), Some(Stop::Record(e)) if e.is_malformed()) {
        return out;
    }
    let mut map = shard_map::build(
        &o.namespace,
        &o.name,
        &o.uid,
        &o.spec,
        &next,
        &hosts(o, &next),
        o.map.content(),
    );
    // A service that follows the map writes into a table as soon as it is named: it is, when every shard has it.
    if let Some(before) = o.map.content()
        && !rolled_out(o, &next)
    {
        map.types.clone_from(&before.types);
    }
    let next = placement::publish(&next, &map.content_hash(), o.map.version());
    map.version = next.map_version;
    out.placement = Some(next);
    if !matches!(o.map, MapSeen::Foreign { .. }) {
        out.map = Some(map);
    }
    out
}

/// Place of the active server of each pair. What is served stays in the map: of a pair that neither its status nor the last map knows
/// (both were lost), the first server is named. If it is the passive one it refuses writes, until the pair says better.
fn hosts(o: &Observed, p: &Placement) -> BTreeMap<String, usize> {
    let mut hosts = o.actives();
    let mapped = |pair: &str| {
        o.map
            .content()
            .is_some_and(|m| m.entries.iter().any(|e| e.pair == pair))
    };
    for s in p.spans.iter().filter(|s| s.state == SpanState::Serving) {
        if !hosts.contains_key(&s.pair) && !mapped(&s.pair) {
            hosts.insert(s.pair.clone(), 0);
        }
    }
    hosts
}

/// Whether every range that serves has the tables that are asked for now.
fn rolled_out(o: &Observed, p: &Placement) -> bool {
    let TablesSeen::Set { set, checked } = &o.tables else {
        return false;
    };
    let good = *checked == Checked::Good || o.before.tables_hash.as_deref() == Some(set.hash());
    let serving = placement::serving(p);
    good && o
        .ranges
        .iter()
        .filter(|r| placement::of_range(p, &r.claim.name).overlaps(&serving))
        .all(|r| r.tables_hash.as_deref() == Some(set.hash()))
}

/// The first record of a cluster, or the one that replaces a lost one. `None` while it is not needed.
fn seed(o: &Observed) -> Result<Option<Placement>, Stop> {
    let wanted = claims::evaluate(
        o.spec.shards.total,
        &o.claims(),
        &o.pair_facts(),
        &o.name,
        &Placement::default(),
    )
    .verdicts
    .values()
    .any(claims::Verdict::is_accepted);
    if !wanted && !matches!(o.map, MapSeen::Ours { .. }) {
        return Ok(None);
    }
    if let Some(what) = o.map.content().and_then(|m| other_key_space(m, o)) {
        return Err(Stop::OtherKeySpace(what));
    }
    let asking: Vec<String> = o
        .own_pairs()
        .filter(|(_, p)| p.facts.held.is_none())
        .map(|(n, _)| n.clone())
        .collect();
    if !asking.is_empty() {
        return Err(Stop::Asking(asking));
    }
    // The map says where everything is. Without it, only the servers can.
    let volumes: Vec<String> = o
        .volumes
        .iter()
        .filter(|v| o.map.content().is_none() && !o.own_pairs().any(|(n, _)| n == *v))
        .cloned()
        .collect();
    if !volumes.is_empty() {
        return Err(Stop::Volumes(volumes));
    }
    let held: BTreeMap<String, Option<SpanSet>> = o
        .own_pairs()
        .map(|(n, p)| (n.clone(), p.facts.held.clone()))
        .collect();
    let entries: Option<Vec<(ShardSpan, String)>> = o.map.content().map(|m| {
        m.entries
            .iter()
            .map(|e| (ShardSpan::new(e.first, e.last), e.pair.clone()))
            .collect()
    });
    placement::seed(entries.as_deref(), &held, o.map.version())
        .map(|mut p| {
            // Shards were served, and nobody knows under which version: clients that hold an unknown one have to see a greater one. No
            // map ever changed once a second for all its life.
            if !p.spans.is_empty() && p.map_version == 0 {
                p.map_version = o.now;
            }
            Some(p)
        })
        .map_err(|a| Stop::Ambiguous {
            shards: a.shards,
            pairs: a.pairs,
        })
}

/// In what the key space of a map that serves shards is another one than the cluster's.
fn other_key_space(map: &ShardMap, o: &Observed) -> Option<String> {
    let (last, shards) = (map.entries.last()?.last, &o.spec.shards);
    let (prefix, digits) = (&map.databases.prefix, map.databases.digits);
    let hashed = |r: &shard_map::Routing| matches!(r, shard_map::Routing::KeyHash { .. });
    if *prefix != shards.database_prefix || digits != shards.digits {
        return Some(format!("`databasePrefix` {prefix} and `digits` {digits}"));
    }
    if last >= shards.total {
        return Some(format!("shards up to {last}, so that `total` has to be greater"));
    }
    let was = hashed(&map.routing);
    if was != (o.spec.routing_mode() == RoutingMode::KeyHash) || (was && map.databases.total != shards.total)
    {
        return Some(format!(
            "routing by {} over {} shards",
            if was { "KeyHash" } else { "ID" },
            map.databases.total
        ));
    }
    None
}

/// What people are told of a record that was written in the place of `before`.
pub fn changes(before: Option<&Placement>, r: &Recorded) -> Vec<Note> {
    let mut notes = vec![];
    if let (true, Some(p)) = (r.restored, &r.placement) {
        notes.push(Note::warning(
            reasons::RECORD_RESTORED,
            format!(
                "the record was made again from the published map and the servers: {} shards",
                placement::serving(p).len()
            ),
        ));
    }
    if let (Some(before), Some(after)) = (before, &r.placement) {
        notes.extend(handed_over(before, after));
        notes.extend(intent::begun(before, after));
    }
    notes
}

/// The served shards that were assigned to another range, for people.
fn handed_over(before: &Placement, after: &Placement) -> Vec<Note> {
    let mut moved: BTreeMap<(String, String, String), SpanSet> = BTreeMap::new();
    for old in before.spans.iter().filter(|s| s.state == SpanState::Serving) {
        let set = SpanSet::of(ShardSpan::new(old.first, old.last));
        for new in placement::pieces(after, &set) {
            if new.range == old.range || new.pair != old.pair {
                continue;
            }
            let name = |r: &Option<String>| r.clone().unwrap_or_else(|| "no range".into());
            moved
                .entry((name(&old.range), name(&new.range), old.pair.clone()))
                .or_default()
                .extend([ShardSpan::new(new.first, new.last)]);
        }
    }
    moved
        .into_iter()
        .take(8)
        .map(|((from, to, pair), shards)| {
            Note::normal(
                reasons::SHARDS_HANDED_OVER,
                format!("shards {shards} on {pair}: {from} → {to}; no data moved"),
            )
        })
        .collect()
}
