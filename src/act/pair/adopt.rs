//! The steps by which another pair is cloned over this one. The record of the cluster is read under the locks of the servers: it alone says that
//! the pair is to be cloned over.

use super::{Error, Hands};
use crate::{
    act::apply,
    api::{MySQLPair, names},
    core::{
        gtid::GtidSet,
        pair::{self, observed::Ordinal},
    },
    mysql::{clone, replication, state},
};

impl Hands<'_> {
    /// Starts a copy of the other pair's passive server: never of its active one, whose clients would notice.
    pub(super) async fn clone_from(
        &mut self,
        server: Ordinal,
        known: &GtidSet,
        from: &str,
    ) -> Result<(), Error> {
        let has = replication::stop_for_good(self.session(server).await?).await;
        if !self.done(server, "stop replication", has)?.is_subset_of(known) {
            return Err(Error::NotEmpty(self.pod(server)));
        }
        self.wanted(Some(from)).await?;
        let source = apply::get::<MySQLPair>(self.client, &self.found.namespace, from).await?;
        let status = source.and_then(|p| p.status).unwrap_or_default();
        let donor = pair::record(from, &status)
            .filter(|r| r.members() == 2)
            .map(|r| names::host(&self.found.namespace, from, r.passive()))
            .ok_or_else(|| Error::NoDonor(from.to_owned()))?;
        self.copy_over(server, donor).await
    }

    /// Whoever holds the lock of the server copies, and has lost its connection by now.
    pub(super) async fn end_clone(&mut self, server: Ordinal) -> Result<(), Error> {
        self.session(server).await?;
        self.wanted(None).await?;
        let ended = clone::end(self.session(server).await?).await;
        self.done(server, "end a copy", ended)
    }

    /// The one that is given up is closed by now: nothing can be created there any more.
    pub(super) async fn adopt(&mut self, server: Ordinal, of: Ordinal, from: &str) -> Result<(), Error> {
        let closed = state::closed_and_blank(self.session(of).await?).await;
        if !self.done(of, "look whether it is empty", closed)? {
            return Err(Error::NotEmpty(self.pod(of)));
        }
        self.wanted(Some(from)).await?;
        let executed = state::executed(self.session(of).await?).await;
        let counted = self.done(of, "ask what it has executed", executed)?;
        let adopted = clone::adopt(self.session(server).await?, &counted).await;
        self.done(server, "make it one of this pair", adopted)
    }

    /// Whether this pair is still to be cloned over by that one, or by none: by the record as it is now.
    async fn wanted(&mut self, from: Option<&str>) -> Result<(), Error> {
        self.moving = None;
        if self.moving().await?.cloned_from.as_deref() == from {
            Ok(())
        } else {
            Err(Error::Superseded)
        }
    }
}
