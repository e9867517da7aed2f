//! What was seen of a ShardCluster and of all that names it: plain data.

use crate::{
    api::{
        MySQLPair, Placement, ShardCluster, ShardClusterSpec, ShardClusterStatus, ShardRange, conditions,
        names,
    },
    core::{
        claims::{PairFacts, RangeClaim},
        migration::wish::PairState,
        shard_map::ShardMap,
        spans::SpanSet,
        tables::{DdlError, TableSet},
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that a pass saw.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Namespace of the cluster.
    pub namespace: String,
    /// Name of the cluster.
    pub name: String,
    /// UID of the cluster.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// The specification.
    pub spec: ShardClusterSpec,
    /// The status before this pass.
    pub before: ShardClusterStatus,
    /// Its ranges.
    pub ranges: Vec<RangeSeen>,
    /// All pairs of the namespace: a range may name one of another cluster.
    pub pairs: BTreeMap<String, PairSeen>,
    /// Pairs of which the namespace has volumes for this cluster, whether they are there or not. Looked for only without a record.
    pub volumes: BTreeSet<String>,
    /// The ConfigMap that the map is published in.
    pub map: MapSeen,
    /// The tables that the spec and the ConfigMap of DDL ask for.
    pub tables: TablesSeen,
    /// What is wrong with the Secrets, if anything.
    pub credentials: Option<String>,
    /// What the API refused of what the cluster is given: an object and why.
    pub refused: Option<String>,
    /// The time of the pass, seconds since 1970.
    pub now: i64,
}

/// How far an object is, in the words of kstatus.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// Ready at its present generation.
    Ready,
    /// Being worked on, and on what.
    Working(String),
    /// It needs help, and which.
    Stalled(String),
}

impl Progress {
    /// Reads the conditions of an object; what speaks of an earlier generation does not count.
    pub fn of(conditions: &[Condition], generation: Option<i64>) -> Self {
        let says = |type_: &str| {
            conditions
                .iter()
                .find(|c| c.type_ == type_ && c.status == "True" && c.observed_generation == generation)
        };
        let text = |c: &Condition| format!("{}: {}", c.reason, c.message);
        if says(conditions::READY).is_some() {
            return Self::Ready;
        }
        // The condition that is true carries the reason, `Ready` the message.
        let message = || {
            conditions
                .iter()
                .find(|c| c.type_ == conditions::READY)
                .map_or_else(String::new, text)
        };
        if says(conditions::STALLED).is_some() {
            return Self::Stalled(message());
        }
        Self::Working(message())
    }
}

/// A ShardRange of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeSeen {
    /// What it asks for.
    pub claim: RangeClaim,
    /// How far it is.
    pub progress: Progress,
    /// Hash of the tables that its shards have.
    pub tables_hash: Option<String>,
    /// UID of the cluster whose layout made it.
    pub seeded_by: Option<String>,
}

impl From<&ShardRange> for RangeSeen {
    fn from(r: &ShardRange) -> Self {
        let status = r.status.clone().unwrap_or_default();
        Self {
            claim: claim(r),
            progress: Progress::of(&status.conditions, r.metadata.generation),
            tables_hash: status.tables_hash,
            seeded_by: r.labels().get(names::SEEDED_BY_LABEL).cloned(),
        }
    }
}

/// What a ShardRange asks for.
pub fn claim(r: &ShardRange) -> RangeClaim {
    RangeClaim {
        name: r.name_any(),
        created: r
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(0, |t| t.0.as_second()),
        span: r.spec.span(),
        pair: r.spec.pair_ref.name.clone(),
        deleting: r.metadata.deletion_timestamp.is_some(),
    }
}

/// A MySQLPair of the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairSeen {
    /// What a claim has to know of it.
    pub facts: PairFacts,
    /// Place of the active server, by the pair's record.
    pub active: Option<usize>,
    /// How far it is.
    pub progress: Progress,
    /// UID of the cluster whose layout made it.
    pub seeded_by: Option<String>,
    /// Why no shard sets out to or from it now; `None` when they may.
    pub trouble: Option<String>,
}

impl From<&MySQLPair> for PairSeen {
    fn from(p: &MySQLPair) -> Self {
        let status = p.status.clone().unwrap_or_default();
        Self {
            facts: facts(p),
            active: active(p),
            progress: Progress::of(&status.conditions, p.metadata.generation),
            seeded_by: p.labels().get(names::SEEDED_BY_LABEL).cloned(),
            trouble: PairState::of(p).trouble,
        }
    }
}

/// What a claim has to know of a MySQLPair.
pub fn facts(p: &MySQLPair) -> PairFacts {
    PairFacts {
        cluster: p.spec.cluster_ref.name.clone(),
        deleting: p.metadata.deletion_timestamp.is_some(),
        held: p
            .status
            .as_ref()
            .and_then(|s| s.shards.as_ref())
            .map(|spans| spans.iter().copied().collect::<SpanSet>()),
    }
}

/// Place of the active server, by the pair's record.
pub fn active(p: &MySQLPair) -> Option<usize> {
    let active = p.status.as_ref()?.active.as_deref()?;
    names::ORDINALS
        .into_iter()
        .find(|o| names::pod(&p.name_any(), *o) == active)
}

/// The ConfigMap that the map is published in.
#[derive(Clone, Debug, PartialEq)]
pub enum MapSeen {
    /// There is none.
    Absent,
    /// There is one, and it is no map of this cluster.
    Foreign {
        /// Why it is not.
        why: String,
    },
    /// The last one that was published, by this cluster or by an earlier one of its name.
    Ours {
        /// Its version; 0 when it cannot be read any more.
        version: i64,
        /// Its content, when it can be read.
        map: Option<Box<ShardMap>>,
    },
}

impl MapSeen {
    /// The last version that was published, 0 without one.
    pub fn version(&self) -> i64 {
        match self {
            Self::Ours { version, .. } => *version,
            _ => 0,
        }
    }
    /// The last content that was published.
    pub fn content(&self) -> Option<&ShardMap> {
        match self {
            Self::Ours { map, .. } => map.as_deref(),
            _ => None,
        }
    }
}

/// The tables that every shard is to have.
#[derive(Clone, Debug, PartialEq)]
pub enum TablesSeen {
    /// `ddlFrom` names a ConfigMap that is not there.
    ConfigMapMissing {
        /// Its name.
        name: String,
    },
    /// A statement that is not admitted.
    NotAdmitted(DdlError),
    /// The set, and what a server said of it.
    Set {
        /// The tables.
        set: TableSet,
        /// Whether they can be created.
        checked: Checked,
    },
}

/// Whether the tables can be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// They can.
    Good,
    /// They cannot: the statement and what the server said.
    Refused(String),
    /// No server could be asked yet, and why.
    NotYet(String),
}

impl Observed {
    /// Facts that claims are judged by.
    pub fn pair_facts(&self) -> BTreeMap<String, PairFacts> {
        self.pairs
            .iter()
            .map(|(n, p)| (n.clone(), p.facts.clone()))
            .collect()
    }
    /// What moves are planned by.
    pub fn pair_states(&self) -> BTreeMap<String, PairState> {
        let state = |p: &PairSeen| PairState {
            facts: p.facts.clone(),
            trouble: p.trouble.clone(),
        };
        self.pairs.iter().map(|(n, p)| (n.clone(), state(p))).collect()
    }
    /// The pairs that name this cluster.
    pub fn own_pairs(&self) -> impl Iterator<Item = (&String, &PairSeen)> {
        self.pairs.iter().filter(|(_, p)| p.facts.cluster == self.name)
    }
    /// The claims of all its ranges.
    pub fn claims(&self) -> Vec<RangeClaim> {
        self.ranges.iter().map(|r| r.claim.clone()).collect()
    }
    /// Place of the active server of each pair that has one.
    pub fn actives(&self) -> BTreeMap<String, usize> {
        self.own_pairs()
            .filter_map(|(n, p)| Some((n.clone(), p.active?)))
            .collect()
    }

    /// What the API says of `cluster`, before anything else was read.
    pub fn new(cluster: &ShardCluster) -> Self {
        Self {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            uid: cluster.uid().unwrap_or_default(),
            generation: cluster.metadata.generation,
            spec: cluster.spec.clone(),
            before: cluster.status.clone().unwrap_or_default(),
            ranges: vec![],
            pairs: BTreeMap::new(),
            volumes: BTreeSet::new(),
            map: MapSeen::Absent,
            tables: TablesSeen::NotAdmitted(DdlError {
                place: crate::core::tables::Place::Spec,
                what: "not read".into(),
            }),
            credentials: None,
            refused: None,
            now: 0,
        }
    }
    /// The record before this pass.
    pub fn placement(&self) -> Option<&Placement> {
        self.before.placement.as_ref()
    }
}
