//! Observing a pair: the API and the servers, in a hurry by what is remembered and what watches have told, or at leisure.

use super::{
    Error, Shared,
    memory::{AtLeisure, Memory},
};
use crate::{
    act::{self, children, pair::key, secrets},
    api::{MySQLPair, names},
    core::{
        credentials::{Credentials, OPERATOR_USER},
        pair::{
            self, Children,
            observed::{Desired, Record, Server},
            reasons,
        },
    },
    mysql::Access,
    observe::{
        self,
        errant::Kept,
        pair::{self as api, Found},
        sentinel::Still,
        servers::{Asked, Patience, Seen, Target},
    },
};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, ResourceExt as _, runtime::reflector::ObjectRef};
use std::time::Instant;

/// What was looked at, and how.
pub struct Look {
    /// What the API says.
    pub found: Found,
    /// The pair's copy of the credentials.
    pub credentials: api::FoundCopy,
    /// The servers that were asked.
    pub targets: [Option<Target>; 2],
    /// What they answered.
    pub seen: [Seen; 2],
    /// Commits that stood still on the active one.
    pub still: Option<Still>,
    /// When this round began.
    pub began: Instant,
}

impl Look {
    /// The credentials, when they can be used.
    pub fn usable(&self) -> Option<&Credentials> {
        self.credentials.copy.as_ref().ok().and_then(Option::as_ref)
    }
}

/// Looks at the servers by what is remembered and what watches have told.
pub async fn recall(pair: &MySQLPair, shared: &Shared, began: Instant) -> Option<Look> {
    let remembered = shared.memories.of(&pair.uid()?, |m| m.at_leisure.clone())?;
    let found = api::recall(&shared.caches, pair.clone(), remembered.volumes, Timestamp::now())?;
    Some(Box::pin(look(shared, found, remembered.credentials, began)).await)
}

/// The same look at the servers, of the pair as it was read meanwhile.
pub fn renew(look: Look, fresh: &MySQLPair, shared: &Shared) -> Option<Look> {
    let uid = fresh.uid()?;
    let remembered = shared.memories.of(&uid, |m| m.at_leisure.clone())?;
    let found = api::recall(
        &shared.caches,
        fresh.clone(),
        remembered.volumes,
        Timestamp::now(),
    );
    // Another pair of the name, or one that is not to be hurried.
    let Some(mut found) = found.filter(|_| look.found.pair.uid().as_ref() == Some(&uid)) else {
        hold(shared, look);
        return None;
    };
    if let Some((reason, message)) = remembered.refused {
        found.desired = Desired::Refused { reason, message };
    }
    Some(Look { found, ..look })
}

/// Reads everything by calls of the API and sees to the children before the servers are looked at.
pub async fn look_at_leisure(
    pair: MySQLPair,
    shared: &Shared,
    began: Instant,
    now: Timestamp,
) -> Result<Look, Error> {
    let client = &shared.ctx.client;
    let mut found = Box::pin(api::find(client, &shared.caches, pair, now)).await?;
    let mut refused = None;
    if found.children() == Children::Apply {
        refused = Box::pin(apply_children(shared, &found, now)).await?;
    }
    if let Some((reason, message)) = refused.clone() {
        found.desired = Desired::Refused { reason, message };
    }
    let secret = names::pair_credentials_secret(&found.name);
    let mut credentials = api::credentials(client, &found.namespace, &secret).await?;
    let uid = found.pair.uid().unwrap_or_default();
    if found.deletion.is_some() && matches!(credentials.copy, Ok(None)) {
        // A namespace that goes may take the Secret along before the servers were closed, and their Pods wait for that.
        let known = |m: &mut Memory| m.at_leisure.as_ref().map(|l| l.credentials.clone());
        credentials = shared.memories.of(&uid, known).unwrap_or(credentials);
    }
    let mut storage = None;
    if let (Children::Apply, Some(template)) = (found.children(), found.template()) {
        let size = &template.storage.size;
        storage = Some(act::storage::of_pair(client, names::MANAGER_PAIR, size, &found.claims).await?);
    }
    let at_leisure = AtLeisure {
        storage,
        volumes: found.volumes.clone(),
        credentials: credentials.clone(),
        refused,
    };
    shared.memories.of(&uid, |m| m.at_leisure = Some(at_leisure));
    Ok(Box::pin(look(shared, found, credentials, began)).await)
}

/// Looks at the servers.
pub async fn look(shared: &Shared, found: Found, credentials: api::FoundCopy, began: Instant) -> Look {
    let naming = found.naming();
    let usable = credentials.copy.as_ref().ok().and_then(Option::as_ref);
    let targets = names::ORDINALS.map(|i| target(&found, i, usable));
    let pair = ObjectRef::from_obj(&found.pair);
    let record = pair::record(&found.name, &found.status());
    for i in names::ORDINALS {
        // Only when another one is on record: what the API says of a Pod closes no server that may serve.
        if record.as_ref().is_some_and(|r| r.active != i) {
            let pod = found.pod_states.get(i).and_then(Option::as_ref);
            let key = act::pair::key(&found.namespace, &names::pod(&found.name, i));
            shared.servers.fence_former(&key, pod.map(|p| p.uid.as_str()));
        }
    }
    let key = |i| key(&found.namespace, &names::pod(&found.name, i));
    for i in names::ORDINALS {
        let target = targets.get(i).and_then(Option::as_ref);
        shared.sentinels.watch(&pair, &key(i), target);
    }
    let keys = names::ORDINALS.map(key);
    let still = || {
        let active = record.as_ref().map(|r| r.active)?;
        shared.sentinels.still(keys.get(active)?)
    };
    let patient = shared
        .memories
        .of(&found.pair.uid().unwrap_or_default(), |m| m.spared_until)
        .is_some_and(|until| Timestamp::now() < until);
    let patience = |i: usize| {
        let passive = |r: &Record| r.passive() == i;
        if keys.get(i).is_some_and(|k| shared.sentinels.silent(k)) {
            Patience::Silent
        } else if !patient && record.as_ref().is_some_and(passive) && still().is_some() {
            Patience::Suspect
        } else {
            Patience::Usual
        }
    };
    let moving = found.moving();
    let asked = Asked {
        naming: naming.as_ref(),
        moving: moving.as_ref(),
    };
    let seen = shared.servers.look(targets.clone(), patience, asked).await;
    let still = still();
    Look {
        found,
        credentials,
        targets,
        seen,
        still,
        began,
    }
}

pub fn hold(shared: &Shared, look: Look) {
    for (seen, target) in look.seen.into_iter().zip(look.targets) {
        if let (Some(session), Some(target)) = (seen.session, target) {
            shared.servers.hold(&target.key, &target.uid, session);
        }
    }
}

/// What has been saved of the transactions that the passive server has and the active one has not, when there are some.
pub async fn errant(client: &Client, look: &Look) -> Result<Kept, Error> {
    let found = &look.found;
    let record = pair::record(&found.name, &found.status());
    let up = |i: usize| match look.seen.get(i).map(|s| &s.server) {
        Some(Server::Up(s)) => Some(s),
        _ => None,
    };
    let there = record
        .as_ref()
        .and_then(|r| up(r.active).zip(up(r.passive())))
        .is_some_and(|(active, passive)| !passive.executed.is_subset_of(&active.executed_later));
    match record {
        Some(record) if there => {
            Ok(observe::errant::saved(client, &found.namespace, &found.name, record.epoch).await?)
        }
        _ => Ok(Kept::default()),
    }
}

/// Secrets first, they are mounted. What the API refuses is told as a condition, and the servers are looked after all the same.
pub async fn apply_children(
    shared: &Shared,
    found: &Found,
    now: Timestamp,
) -> Result<Option<(&'static str, String)>, Error> {
    let client = &shared.ctx.client;
    let cluster = found.pair.spec.cluster_ref.name.clone();
    let made = async {
        let credentials =
            secrets::of_cluster(client, names::MANAGER_PAIR, &found.namespace, &cluster, now).await?;
        secrets::of_pair(client, names::MANAGER_PAIR, &found.context, &credentials, now).await?;
        Box::pin(children::of_pair(client, names::MANAGER_PAIR, &found.context)).await?;
        Ok(())
    };
    let error = match made.await {
        Ok(()) => return Ok(None),
        Err(error) => error,
    };
    let reason = match &error {
        Error::Secrets(e) if e.is_unusable() => reasons::CREDENTIALS_UNUSABLE,
        Error::Secrets(e) if e.is_refused() => reasons::CHILD_REFUSED,
        Error::Api(e) if e.is_refused() => reasons::CHILD_REFUSED,
        _ => return Err(error),
    };
    Ok(Some((reason, error.to_string())))
}

/// How the server at `i` is reached, when it has an address and there are credentials.
pub fn target(found: &Found, i: usize, credentials: Option<&Credentials>) -> Option<Target> {
    let pod = found.pod_states.get(i)?.as_ref()?;
    let credentials = credentials?;
    let name = names::pod(&found.name, i);
    Some(Target {
        key: key(&found.namespace, &name),
        uid: pod.uid.clone(),
        access: Access {
            address: pod.ip.clone().filter(|_| pod.running)?,
            port: names::MYSQL_PORT,
            tls_name: names::host(&found.namespace, &found.name, i),
            user: OPERATOR_USER.to_owned(),
            password: credentials.operator_password.clone(),
            ca_pem: credentials.ca_crt.clone(),
        },
    })
}
