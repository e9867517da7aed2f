//! The steps.

use super::{Change, Error, Hands, comparing::CompareAsk, copying::SeedAsk};
use crate::{
    api::names,
    core::{
        credentials::channel_user,
        gtid::GtidSet,
        migration::{
            Action, Decision, batch,
            observed::{End, Place},
        },
        placement::moves,
        spans::SpanSet,
    },
    deadline,
    mysql::{
        accounts,
        channel::{self, Filter},
        replication::Source,
        seed, shard_drop, shard_fence, state,
    },
    resources::stateful_set::CONFIG_DIR,
};
use k8s_openapi::jiff::SignedDuration;
use std::time::{Duration, Instant};

/// How long a barrier waits for transactions that are under way.
const BARRIER: Duration = Duration::from_secs(1);
/// For dropping copies on one server in one pass.
const DROPS: Duration = Duration::from_secs(5);

impl Hands<'_> {
    pub(super) async fn step(&mut self, action: &Action, decision: &Decision) -> Result<(), Error> {
        match action {
            Action::Record(change) => {
                if let Change::BeginBatch(_) = change {
                    let limit = decision.deadline.and_then(|d| Duration::try_from(d).ok());
                    self.until = limit.map(|d| Instant::now() + d);
                }
                if let Change::EndMove = change {
                    self.forget().await?;
                }
                self.change(change).await?;
                if let Change::Follow = change {
                    self.release().await;
                }
                if let Change::CutOver { .. } = change {
                    self.until = None;
                }
                if let Change::EndMove = change {
                    self.tidy().await;
                }
                Ok(())
            }
            Action::Confirm(seen) => {
                if self.pairs().await? == *seen {
                    Ok(())
                } else {
                    Err(Error::Superseded)
                }
            }
            Action::Fence { at, shards } if self.batch => self.barrier(*at, shards).await,
            Action::Fence { at, shards } => {
                let naming = self.naming;
                let shut = shard_fence::shut(self.session(*at)?, naming, shards).await;
                match shut {
                    Err(e) if e.code().is_some_and(|code| shard_fence::HELD.contains(&code)) => {
                        self.nobody_holds(*at, shards).await?;
                        self.on(*at, "make databases READ ONLY", Err(e))
                    }
                    shut => self.on(*at, "make databases READ ONLY", shut),
                }
            }
            Action::Unfence { at, shards } => {
                let naming = self.naming;
                if *at == self.observed.active(at.end) {
                    let opened = shard_fence::open_served(self.session(*at)?, naming, shards).await;
                    for holder in self.on(*at, "open databases", opened)? {
                        tracing::warn!(r#move = %self.site.key, pod = self.site.pod(*at), %holder, "ended: a shard that is to be served was held up");
                    }
                } else {
                    let opened = shard_fence::open(self.session(*at)?, naming, shards).await;
                    self.on(*at, "open databases", opened)?;
                }
                if self.done.cut_over && self.done.blocked.is_none() {
                    self.done.blocked = self.fenced.map(|t| t.elapsed());
                }
                Ok(())
            }
            Action::Approach {
                server,
                of,
                batch,
                within,
            } => {
                self.approach(*server, *of, *within).await?;
                self.nobody_holds(*server, batch).await
            }
            Action::Reach {
                server,
                of,
                filter,
                within,
            } => self.reach(*server, *of, filter, *within).await,
            Action::Count { end, gtid } => self.count(*end, gtid).await,
            Action::Point { at, source, filter } => self.point(*at, *source, filter).await,
            Action::StartChannel { at, filter } => {
                let name = self.channel(at.end);
                let filter = Filter::new(self.naming, filter);
                let started = channel::start(self.session(*at)?, &name, &filter).await;
                self.on(*at, "start the channel", started)
            }
            Action::StopChannel(at) => {
                let name = self.channel(at.end);
                let stopped = channel::stop(self.session(*at)?, &name).await;
                self.on(*at, "stop the channel", stopped)
            }
            Action::RemoveChannel(at) => {
                let name = self.channel(at.end);
                let removed = channel::remove(self.session(*at)?, &name).await;
                self.on(*at, "take the channel away", removed)
            }
            Action::Seed { into, .. } => self.seed(*into),
            Action::Verify { at, shards } => self.verify(*at, shards, None),
            Action::Recheck { at, shards, since } => self.verify(*at, shards, Some(since)),
            Action::StopWork => {
                self.works.stop().await;
                Ok(())
            }
            Action::Unlinked(all) => {
                for at in all {
                    let name = self.channel(at.end);
                    let read = channel::read(self.session(*at)?).await;
                    let channels = self.on(*at, "look for channels", read)?;
                    if channels.iter().any(|c| c.name == name) {
                        return Err(Error::Linked(self.site.pod(*at)));
                    }
                }
                Ok(())
            }
            Action::Drop { at, shards } => {
                let naming = self.naming;
                let dropped = shard_drop::drop(self.session(*at)?, naming, shards, DROPS).await;
                self.on(*at, "drop copies", dropped).map(drop)
            }
            Action::EndTransaction { at, connection } => {
                let session = self.session(*at)?;
                let ended = session.end_connection(*connection, deadline::STEP).await;
                self.on(*at, "end a transaction", ended)
            }
        }
    }

    /// The channel on servers of this end.
    fn channel(&self, end: End) -> String {
        channel::name(self.site.pair(end.other()))
    }

    /// The fence of a batch where its shards are written.
    async fn barrier(&mut self, at: Place, shards: &SpanSet) -> Result<(), Error> {
        let limit = self.left()?.map_or(BARRIER, |left| left.min(BARRIER));
        let mut beside = self.beside.take().ok_or_else(|| self.no_connection(at))?;
        self.fenced = Some(Instant::now());
        let naming = self.naming;
        let patience = shard_fence::Patience {
            beside: &mut beside,
            limit,
        };
        let fenced = shard_fence::fence(self.session(at)?, naming, shards, patience).await;
        match self.on(at, "fence", fenced)? {
            shard_fence::Fenced::All(_) => Ok(()),
            shard_fence::Fenced::Held { shut, by } => Err(Error::Held {
                shards: shards.minus(&shut),
                by: by.first().map_or_else(
                    || "somebody held on to them for a moment".to_owned(),
                    ToString::to_string,
                ),
            }),
        }
    }

    /// Whether `server` executes within that time what `of` has now.
    async fn follows(&mut self, server: Place, of: Place, within: SignedDuration) -> Result<bool, Error> {
        let within = Duration::try_from(within).unwrap_or_default();
        let within = self.left()?.map_or(within, |left| left.min(within));
        let sampled = state::executed(self.session(of)?).await;
        let set = self.on(of, "sample its position", sampled)?;
        let reached = channel::reached(self.session(server)?, &set, within).await;
        self.on(server, "catch up", reached)
    }

    /// Clients that hold on to databases there: past the point of no return they would keep shards from being opened.
    async fn nobody_holds(&mut self, at: Place, shards: &SpanSet) -> Result<(), Error> {
        let naming = self.naming;
        let holders = shard_fence::holders(self.session(at)?, naming, shards).await;
        let mut holders = self.on(at, "look who holds on to databases", holders)?;
        holders.retain(|h| h.who != shard_fence::Who::Applier);
        // Left by an operator that died: whoever holds the lock of this server is the only one who works on these shards.
        for left in shard_fence::of_the_operator(&holders) {
            let ended = self.session(at)?.end_connection(left, deadline::STEP).await;
            self.on(at, "end what another operator has left", ended)?;
        }
        holders.retain(|h| !h.is_the_operators());
        match holders.first() {
            None => Ok(()),
            Some(first) => Err(Error::Held {
                shards: holders.iter().map(|h| h.shard).collect(),
                by: format!("{first}, on {}", self.site.pod(at)),
            }),
        }
    }

    async fn approach(&mut self, server: Place, of: Place, within: SignedDuration) -> Result<(), Error> {
        let begun = Instant::now();
        while !self.follows(server, of, within).await? {
            if begun.elapsed() >= batch::APPROACH.unsigned_abs() {
                return Err(Error::Behind(self.site.pod(server)));
            }
        }
        Ok(())
    }

    async fn reach(
        &mut self,
        server: Place,
        of: Place,
        filter: &SpanSet,
        within: SignedDuration,
    ) -> Result<(), Error> {
        if !self.follows(server, of, within).await? {
            return Err(Error::Behind(self.site.pod(server)));
        }
        let (name, naming) = (self.channel(server.end), self.naming);
        let read = channel::read(self.session(server)?).await;
        let channels = self.on(server, "look at the channel", read)?;
        let fits = channels.iter().any(|c| {
            c.name == name
                && c.applier
                && c.applier_error.is_none()
                && filter.is_subset(&c.filter.shards(naming))
        });
        if fits {
            Ok(())
        } else {
            Err(Error::Behind(self.site.pod(server)))
        }
    }

    /// On record before the servers: whoever compares the servers of this pair meanwhile finds there what one of them may have and the other not.
    async fn count(&mut self, end: End, gtid: &GtidSet) -> Result<(), Error> {
        let counted = Change::Counted {
            end,
            gtid: gtid.clone(),
        };
        self.change(&counted).await?;
        self.count_as_executed(end, gtid).await
    }

    async fn count_as_executed(&mut self, end: End, gtid: &GtidSet) -> Result<(), Error> {
        let active = self.observed.active(end);
        let mut targets = vec![];
        for at in [self.observed.passive(end), active] {
            targets.push(self.session(at)?.access().clone());
        }
        let counted = seed::count_as_executed(&targets, gtid).await;
        self.on(active, "count what the copies have as executed", counted)
    }

    async fn point(&mut self, at: Place, source: Place, filter: &SpanSet) -> Result<(), Error> {
        let taker = self.site.pair(at.end).to_owned();
        let password = self.credentials_of(source.end)?.replication_password.clone();
        // An operator that died may have recorded what the servers do not count yet.
        let recorded = moves::find(&self.record, &self.site.key).map(|m| {
            if at.end == End::To {
                m.seed_gtid.clone()
            } else {
                m.opposite_gtid.clone()
            }
        });
        let recorded: GtidSet = recorded.and_then(|g| g.parse().ok()).unwrap_or_default();
        let lacks = |server: usize| {
            let seen = self.observed.server(Place::new(at.end, server));
            seen.is_some_and(|s| !recorded.is_subset_of(&s.executed))
        };
        if lacks(0) || lacks(1) {
            self.count_as_executed(at.end, &recorded).await?;
        }
        // It reaches both servers of the source pair, and is let in on the passive one only (rules P3 and R7).
        let active = self.observed.active(source.end);
        let user = channel_user(&taker);
        let made = accounts::make_channel_account(self.session(active)?, &taker, &password).await;
        self.on(active, "make the channel's account", made)?;
        let barred = accounts::bar(self.session(active)?, std::slice::from_ref(&user)).await;
        self.on(active, "keep the channel's account out", barred)?;
        let (name, host) = (self.channel(at.end), self.site.host(source));
        let ca_file = format!("{CONFIG_DIR}/tls/ca.crt");
        let filter = Filter::new(self.naming, filter);
        let session = self.session(at)?;
        let source = Source {
            host: &host,
            port: names::MYSQL_PORT,
            user: &user,
            password: &password,
            ca_file: &ca_file,
        };
        let mut pointed = channel::point(session, &name, &source).await;
        if pointed.is_ok() {
            pointed = channel::start(session, &name, &filter).await;
        }
        self.on(at, "point the channel", pointed)
    }

    /// Copies that are on record lose their marks; one that is left says nothing of what is served.
    async fn release(&mut self) {
        let Some(m) = moves::find(&self.record, &self.site.key) else {
            return;
        };
        for end in End::BOTH {
            let copies = self.observed.copies(m, end);
            let databases: Vec<String> = copies.shards().map(|n| self.naming.name(n)).collect();
            let targets: Vec<_> = [0, 1]
                .into_iter()
                .filter_map(|i| Some(self.sessions.get(&Place::new(end, i))?.access().clone()))
                .collect();
            if let Err(error) = seed::release(&targets, &databases).await {
                tracing::debug!(r#move = %self.site.key, %error, "marks of copies are left");
            }
        }
    }

    /// Nothing is a copy of this move. On every server, before it is off the record: a grant that were left would keep clients from what is served
    /// there one day.
    async fn forget(&mut self) -> Result<(), Error> {
        let shards = moves::find(&self.observed.record, &self.site.key).map(|m| moves::set(&m.shards));
        let databases: Vec<String> = shards
            .iter()
            .flat_map(SpanSet::shards)
            .map(|n| self.naming.name(n))
            .collect();
        let places: Vec<Place> = self.sessions.keys().copied().collect();
        for at in places {
            let forgotten = seed::forget(self.session(at)?, &databases).await;
            self.on(at, "take away the marks of copies", forgotten)?;
        }
        self.even().await
    }

    /// What one server of a pair counts as executed for this move and the other one does not would be errant when the move is off the record.
    async fn even(&mut self) -> Result<(), Error> {
        let Some(m) = moves::find(&self.record, &self.site.key).cloned() else {
            return Ok(());
        };
        for (end, counted) in [(End::To, &m.seed_gtid), (End::From, &m.opposite_gtid)] {
            let counted: GtidSet = counted.parse().unwrap_or_default();
            let has = |i| {
                let seen = self.observed.server(Place::new(end, i));
                seen.map(|s| counted.minus(&s.executed))
            };
            if let (Some(one), Some(other)) = (has(0), has(1))
                && one != other
            {
                self.count_as_executed(end, &counted).await?;
            }
        }
        Ok(())
    }

    /// Nobody takes from the pairs over this move any more.
    async fn tidy(&mut self) {
        for end in End::BOTH {
            let (taker, active) = (self.site.pair(end.other()).to_owned(), self.observed.active(end));
            if let Some(session) = self.sessions.get_mut(&active)
                && let Err(error) = accounts::drop_channel_account(session, &taker).await
            {
                tracing::debug!(r#move = %self.site.key, %error, "the account of a channel is left");
            }
        }
    }

    fn access(&self, at: Place) -> Result<crate::mysql::Access, Error> {
        let session = self.sessions.get(&at).ok_or_else(|| self.no_connection(at))?;
        Ok(session.access().clone())
    }

    /// All copies of that end are made at one position: further ones at a later one would leave a gap in those that were made before.
    fn seed(&mut self, into: End) -> Result<(), Error> {
        let Some(m) = moves::find(&self.record, &self.site.key) else {
            return Ok(());
        };
        let source = self.observed.passive(into.other());
        let targets = [self.observed.passive(into), self.observed.active(into)];
        let ask = SeedAsk {
            client: self.client.clone(),
            site: self.site.clone(),
            uid: self.cluster.metadata.uid.clone().unwrap_or_default(),
            into,
            shards: self.observed.copies(m, into),
            source: self.access(source)?,
            targets: [self.access(targets[0])?, self.access(targets[1])?],
            naming: self.naming.clone(),
            pairs: self.observed.pairs(),
            move_seen: m.clone(),
        };
        self.works.seed(ask, self.position(source));
        Ok(())
    }

    fn verify(&mut self, at: End, shards: &SpanSet, since: Option<&GtidSet>) -> Result<(), Error> {
        let source = self.observed.passive(at.other());
        let copies = [self.observed.passive(at), self.observed.active(at)];
        let ask = CompareAsk {
            at,
            shards: shards.clone(),
            since: since.cloned(),
            source: self.access(source)?,
            copies: [self.access(copies[0])?, self.access(copies[1])?],
            naming: self.naming.clone(),
        };
        self.works.verify(ask, self.position(source));
        Ok(())
    }

    fn position(&self, at: Place) -> GtidSet {
        self.observed
            .server(at)
            .map_or_else(GtidSet::new, |s| s.executed.clone())
    }
}
