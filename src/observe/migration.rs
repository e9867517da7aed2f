//! Reads what a pass over a move needs: the record, both pairs, and their four servers over connections that are held between passes.

mod server;

use super::servers::Target;
use crate::{
    act::apply::{self, Error},
    api::{MoveKey, MySQLPair, Placement, ShardCluster, ShardRange, names},
    core::{
        cluster::observed::{active, claim},
        credentials::{Credentials, OPERATOR_USER},
        databases::Naming,
        migration::{
            intent,
            observed::{CloneSeen, End, PairSeen, Place, ServerSeen},
            policy::{self, Asked},
            wish::{Course, PairState},
        },
        placement::{self, moves},
        spans::SpanSet,
    },
    mysql::{Access, Session},
};
use futures::future;
use k8s_openapi::{
    api::core::v1::{Pod, Secret},
    jiff::Timestamp,
};
use kube::{
    Client, ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

/// Until the Secret of a pair is read again.
const SECRETS: Duration = Duration::from_secs(30);

/// What is kept in memory, and wakes moves when it changes.
#[derive(Clone)]
pub struct Stores {
    /// All clusters.
    pub clusters: Store<ShardCluster>,
    /// All ranges.
    pub ranges: Store<ShardRange>,
    /// All pairs.
    pub pairs: Store<MySQLPair>,
    /// The Pods of pairs.
    pub pods: Store<Pod>,
}

/// Where a move is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Namespace.
    pub namespace: String,
    /// Cluster.
    pub cluster: String,
    /// The ends.
    pub key: MoveKey,
}

impl Site {
    /// A pair's name.
    pub fn pair(&self, end: End) -> &str {
        if end == End::From {
            &self.key.from
        } else {
            &self.key.to
        }
    }
    /// A server's Pod.
    pub fn pod(&self, at: Place) -> String {
        names::pod(self.pair(at.end), at.server)
    }
    /// A server's name in the network.
    pub fn host(&self, at: Place) -> String {
        names::host(&self.namespace, self.pair(at.end), at.server)
    }
    /// As the controllers of a process call a server.
    pub fn server_key(&self, at: Place) -> String {
        format!("{}/{}", self.namespace, self.pod(at))
    }
}

/// Connections that are held between passes, and the passwords of both pairs. Nothing in it is needed for safety (rule O1).
#[derive(Default)]
pub struct Held {
    sessions: BTreeMap<Place, (String, Session)>,
    secrets: HashMap<String, (Instant, Credentials)>,
}

/// What the API says.
pub struct Found {
    /// The cluster, read afresh: its record is compared and swapped.
    pub cluster: ShardCluster,
    /// Both pairs, read afresh.
    pub pairs: [Option<MySQLPair>; 2],
    /// Ranges that have shards in the move, from memory.
    pub ranges: Vec<Arc<ShardRange>>,
    /// How databases are called.
    pub naming: Naming,
    /// Passwords, by pair.
    pub credentials: [Option<Credentials>; 2],
    /// Which way its shards go.
    pub course: Course,
}

impl Found {
    /// The record.
    pub fn record(&self) -> Placement {
        let status = self.cluster.status.as_ref();
        status.and_then(|s| s.placement.clone()).unwrap_or_default()
    }
    /// A pair.
    pub fn pair(&self, end: End) -> Option<&MySQLPair> {
        self.pairs.get(end as usize).and_then(Option::as_ref)
    }
    /// What the ranges ask for.
    pub fn policy(
        &self,
        key: &MoveKey,
        verify_again: bool,
        now: Timestamp,
    ) -> crate::core::migration::observed::Policy {
        let record = self.record();
        let names: Vec<String> = self.ranges.iter().map(|r| r.name_any()).collect();
        let shards = moves::find(&record, key)
            .map(|m| moves::set(&m.shards))
            .unwrap_or_default();
        let asked: Vec<Asked<'_>> = self
            .ranges
            .iter()
            .zip(&names)
            .map(|(r, name)| Asked {
                spec: &r.spec,
                generation: r.metadata.generation,
                approval: r
                    .annotations()
                    .get(names::APPROVE_CUTOVER_ANNOTATION)
                    .map(String::as_str),
                moves: intent::misplaced(&record, name, &r.spec.pair_ref.name).overlaps(&shards),
            })
            .collect();
        policy::together(&asked, verify_again, now)
    }
    /// What people have set to have copies compared again.
    pub fn verify_again(&self) -> BTreeMap<String, Option<String>> {
        let of = |r: &Arc<ShardRange>| r.annotations().get(names::VERIFY_AGAIN_ANNOTATION).cloned();
        self.ranges.iter().map(|r| (r.name_any(), of(r))).collect()
    }
}

/// Reads the cluster and both pairs afresh. `None` when there is no such cluster, or it is being deleted.
///
/// # Errors
/// [`Error`].
pub async fn find(
    client: &Client,
    stores: &Stores,
    held: &mut Held,
    site: &Site,
) -> Result<Option<Found>, Error> {
    let (ns, key) = (&site.namespace, &site.key);
    let (cluster, from, to) = futures::try_join!(
        apply::get::<ShardCluster>(client, ns, &site.cluster),
        apply::get::<MySQLPair>(client, ns, &key.from),
        apply::get::<MySQLPair>(client, ns, &key.to),
    )?;
    let Some(cluster) = cluster.filter(|c| c.metadata.deletion_timestamp.is_none()) else {
        return Ok(None);
    };
    let credentials = [
        credentials(client, held, ns, from.as_ref()).await?,
        credentials(client, held, ns, to.as_ref()).await?,
    ];
    let record = cluster
        .status
        .as_ref()
        .and_then(|s| s.placement.clone())
        .unwrap_or_default();
    let (course, ranges) = course(stores, &cluster, &record, site, [from.as_ref(), to.as_ref()]);
    Ok(Some(Found {
        naming: Naming::from(&cluster.spec.shards),
        cluster,
        pairs: [from, to],
        ranges,
        credentials,
        course,
    }))
}

async fn credentials(
    client: &Client,
    held: &mut Held,
    namespace: &str,
    pair: Option<&MySQLPair>,
) -> Result<Option<Credentials>, Error> {
    let Some(pair) = pair else {
        return Ok(None);
    };
    let name = names::pair_credentials_secret(&pair.name_any());
    if let Some((at, c)) = held.secrets.get(&name)
        && at.elapsed() < SECRETS
    {
        return Ok(Some(c.clone()));
    }
    let secret = apply::get::<Secret>(client, namespace, &name).await?;
    let read = secret
        .and_then(|s| s.data)
        .and_then(|d| Credentials::from_data(&name, &d).ok());
    if let Some(c) = &read {
        held.secrets.insert(name, (Instant::now(), c.clone()));
    }
    Ok(read)
}

/// Which way the shards go by the ranges as they are in memory, and the ranges that have shards in the move.
fn course(
    stores: &Stores,
    cluster: &ShardCluster,
    record: &Placement,
    site: &Site,
    fresh: [Option<&MySQLPair>; 2],
) -> (Course, Vec<Arc<ShardRange>>) {
    let here = |namespace: Option<String>| namespace.as_deref() == Some(site.namespace.as_str());
    let ranges: Vec<Arc<ShardRange>> = stores
        .ranges
        .state()
        .into_iter()
        .filter(|r| here(r.namespace()) && r.spec.cluster_ref.name == site.cluster)
        .collect();
    let mut pairs: BTreeMap<String, PairState> = stores
        .pairs
        .state()
        .iter()
        .filter(|p| here(p.namespace()))
        .map(|p| (p.name_any(), PairState::of(p)))
        .collect();
    for (end, pair) in End::BOTH.into_iter().zip(fresh) {
        match pair {
            Some(p) => pairs.insert(p.name_any(), PairState::of(p)),
            None => pairs.remove(site.pair(end)),
        };
    }
    let claims: Vec<_> = ranges.iter().map(|r| claim(r)).collect();
    let policy = (&cluster.spec.migration).into();
    let total = cluster.spec.shards.total;
    let mut plan = intent::now(record, total, &claims, &pairs, &site.cluster, policy);
    let shards = moves::find(record, &site.key)
        .map(|m| moves::set(&m.shards))
        .unwrap_or_default();
    let mine = ranges
        .into_iter()
        .filter(|r| placement::of_range(record, &r.name_any()).overlaps(&shards))
        .collect();
    (plan.courses.remove(&site.key).unwrap_or_default(), mine)
}

/// How the servers of both pairs are reached, as far as they have an address.
pub fn targets(stores: &Stores, found: &Found, site: &Site) -> BTreeMap<Place, Target> {
    let all = crate::core::migration::Observed::places();
    let target = |at: Place| {
        found.pair(at.end)?;
        let credentials = found.credentials.get(at.end as usize)?.as_ref()?;
        let pod = stores
            .pods
            .get(&ObjectRef::new(&site.pod(at)).within(&site.namespace))?;
        let address = pod.status.as_ref()?.pod_ip.clone()?;
        Some(Target {
            key: site.server_key(at),
            uid: pod.uid()?,
            access: Access {
                address,
                port: names::MYSQL_PORT,
                tls_name: site.host(at),
                user: OPERATOR_USER.to_owned(),
                password: credentials.operator_password.clone(),
                ca_pem: credentials.ca_crt.clone(),
            },
        })
    };
    all.into_iter().filter_map(|at| Some((at, target(at)?))).collect()
}

/// What the servers say, and the connections that said it: actions run there (rule P7).
pub struct Seen {
    /// By place.
    pub servers: BTreeMap<Place, ServerSeen>,
    /// The same.
    pub sessions: BTreeMap<Place, Session>,
    /// What is known of cloning over them.
    pub clones: BTreeMap<Place, CloneSeen>,
    uids: BTreeMap<Place, String>,
}

impl Held {
    /// Looks at all servers side by side. `blocked`: shards that could not be fenced where they are served, of which it is asked who holds them.
    pub async fn look(
        &mut self,
        targets: BTreeMap<Place, Target>,
        found: &Found,
        site: &Site,
        blocked: &SpanSet,
        now: Timestamp,
    ) -> Seen {
        let looks: Vec<_> = targets
            .into_iter()
            .map(|(at, target)| {
                let held = self
                    .sessions
                    .remove(&at)
                    .filter(|(uid, s)| *uid == target.uid && *s.access() == target.access && !s.is_broken())
                    .map(|(_, s)| s);
                async move {
                    let uid = target.uid.clone();
                    match server::ask(held, target, found, site, at, blocked, now).await {
                        Ok((session, answer)) => Some((at, uid, session, answer)),
                        Err(error) => {
                            tracing::debug!(server = site.server_key(at), %error, "a server of a move does not answer");
                            None
                        }
                    }
                }
            })
            .collect();
        let mut seen = Seen {
            servers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            clones: BTreeMap::new(),
            uids: BTreeMap::new(),
        };
        for (at, uid, session, answer) in future::join_all(looks).await.into_iter().flatten() {
            if let Some(server) = answer.server {
                seen.servers.insert(at, server);
            }
            seen.clones.insert(at, answer.clone);
            seen.uids.insert(at, uid);
            seen.sessions.insert(at, session);
        }
        seen
    }

    /// Holds the connections for the next pass, unless they are broken.
    pub fn hold(&mut self, seen: Seen) {
        let Seen { sessions, uids, .. } = seen;
        for (at, session) in sessions {
            if let (false, Some(uid)) = (session.is_broken(), uids.get(&at)) {
                self.sessions.insert(at, (uid.clone(), session));
            }
        }
    }
}

/// A pair in our own words.
pub fn pair_seen(pair: Option<&MySQLPair>, end: End, seen: &Seen) -> PairSeen {
    let status = pair.and_then(|p| p.status.clone()).unwrap_or_default();
    let recorded = pair.and_then(active);
    let server = |i| seen.servers.get(&Place::new(end, i)).cloned();
    let clones = || names::ORDINALS.map(|i| seen.clones.get(&Place::new(end, i)));
    let clone = CloneSeen {
        running: clones().into_iter().flatten().find_map(|c| c.running),
        failed: clones().into_iter().flatten().find_map(|c| c.failed.clone()),
        hindered: clones().into_iter().flatten().find_map(|c| c.hindered),
    };
    PairSeen {
        exists: pair.is_some(),
        ready: pair.is_some_and(|p| recorded.is_some() && PairState::of(p).trouble.is_none()),
        epoch: status.epoch,
        active: recorded.unwrap_or_default(),
        two_members: status.in_sync.len() == 2,
        servers: [server(0), server(1)],
        clone,
    }
}
