//! The steps that a pass may take.

use super::observed::{Ordinal, Record};
use crate::core::gtid::GtidSet;

/// One step. Each is safe to repeat; they are taken in order, and the first that fails ends the pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Puts the finalizer on.
    AddFinalizer,
    /// Takes the finalizer off.
    RemoveFinalizer,
    /// Closes a server that is not the recorded active one, and ends its source side (second half of rule P6). Statements that run on a
    /// closed one may end first, for a second at most. Then, in this order: `offline_mode = ON`, so that whoever waits for an
    /// acknowledgement gets an error, and KILL for those whom it lets in (neither on a closed one for which nobody waits); source side off; `super_read_only = ON`; `offline_mode = OFF`.
    Fence(Ordinal),
    /// Writes the record by compare-and-swap (rule P2).
    Record(Record),
    /// `read_only = OFF`, on the recorded active server alone (rule P1).
    Open(Ordinal),
    /// `super_read_only = ON` on the active server, for a planned switchover: within a second, or not at all. While no new record
    /// follows it, the server is opened again at once.
    Close(Ordinal),
    /// Samples `gtid_executed` of `of` and waits until `server` has executed it, for two seconds at most; fails when it has not.
    Reach {
        /// The one that follows.
        server: Ordinal,
        /// The one whose position it is.
        of: Ordinal,
    },
    /// Stops the receiver: from then on nobody gets an acknowledgement from this server (rule P6).
    StopReceiver(Ordinal),
    /// Starts the applier and waits until everything received is executed (rule P4), for a second at most; fails when it is not.
    Apply(Ordinal),
    /// Stops the channel and throws away what was received and not applied: a person has accepted that.
    Discard(Ordinal),
    /// Another `sync_relay_log`: 1 for whoever is, or is about to be, a member (rule P3).
    SyncRelayLog {
        /// The passive server.
        server: Ordinal,
        /// After so many events what was received is brought to the disk.
        every: u64,
    },
    /// Source side of semi-sync on, with this timeout.
    SourceOn {
        /// The active server.
        server: Ordinal,
        /// Milliseconds.
        timeout: u64,
    },
    /// Source side of semi-sync off: commits no longer wait.
    SourceOff(Ordinal),
    /// Another timeout of the source side.
    Timeout {
        /// The active server.
        server: Ordinal,
        /// Milliseconds.
        timeout: u64,
    },
    /// Sets up the accounts, in the binary log: clone, application, and replication for the servers with these `server_uuid`s.
    Accounts {
        /// The active server.
        server: Ordinal,
        /// Who may follow.
        followers: Vec<String>,
    },
    /// Locks these replication accounts, in the binary log, and ends their dump threads.
    LockOut {
        /// The active server.
        server: Ordinal,
        /// Names of accounts.
        users: Vec<String>,
    },
    /// Saves errant transactions of a server where they survive it.
    SaveErrant {
        /// Who has them.
        server: Ordinal,
        /// Which.
        set: GtidSet,
    },
    /// Replaces a server that is gone for good: its volume is kept and let go of, its Pod deleted by force; the StatefulSet makes both anew.
    Replace {
        /// Its place.
        place: Ordinal,
        /// UID of the Pod, if there is one.
        uid: Option<String>,
    },
    /// Points the channel of `server` at `source` anew and starts it.
    Follow {
        /// The one that follows.
        server: Ordinal,
        /// The one that is followed.
        source: Ordinal,
    },
    /// Starts the channel as it is.
    Start(Ordinal),
    /// Stops the channel.
    Stop(Ordinal),
    /// Copies `donor` over `server` by CLONE, whose mysqld starts anew afterwards.
    Rebuild {
        /// The one that is overwritten.
        server: Ordinal,
        /// The one that is copied.
        donor: Ordinal,
    },
    /// Copies the passive server of another pair over `server` by CLONE, when the record of the cluster still says so as it is read under the server's
    /// lock. Fails unless the server, whose channel is stopped, has nothing beyond what is `known` to be nobody's. mysqld starts anew afterwards.
    CloneFrom {
        /// The one that is overwritten.
        server: Ordinal,
        /// What had been executed when nothing was there.
        known: GtidSet,
        /// The other pair.
        from: String,
    },
    /// Ends a CLONE into this server that is wanted no more, by the same record.
    EndClone(Ordinal),
    /// Makes `server`, which was cloned from another pair, one of this pair's: without the donor's channels, accounts and marks; and it counts as executed
    /// what `of` has executed, so that no number of a transaction is given twice. Fails unless `of` is closed and has nothing of anyone's, and the
    /// record of the cluster, as it is read after that, still wants the pair cloned over.
    Adopt {
        /// The one that was cloned.
        server: Ordinal,
        /// The one that it takes over from.
        of: Ordinal,
        /// The other pair.
        from: String,
    },
    /// Makes databases READ ONLY that are to be, by the record of the cluster as it is read under the server's lock and after the pair's own was
    /// written; on this server alone (rule R3). Fails when one cannot be.
    Shut(Ordinal),
    /// By the same record, opens databases that this pair serves; on the passive server not those that a batch takes soon. One that somebody
    /// holds on to stays as it is: the moves open it later.
    Unshut {
        /// Which server.
        server: Ordinal,
        /// It is the one that takes writes.
        active: bool,
    },
    /// Locks the accounts that other pairs take with, on this server alone, and ends what runs with them: nobody but its passive server
    /// acknowledges for the active one (rule P3).
    Bar(Ordinal),
    /// Lets them in again: other pairs take from the passive server.
    Admit(Ordinal),
    /// Stops the channels that take from other pairs.
    Quiet(Ordinal),
    /// Takes them away.
    Unlink(Ordinal),
    /// Brings receivers back into step that ended because another one did.
    Mend(Ordinal),
    /// Deletes exactly this Pod; the StatefulSet makes it again, of the present specification.
    DeletePod {
        /// Its place.
        place: Ordinal,
        /// Its UID.
        uid: String,
        /// Nothing serves in it: it need not be given time for a clean shutdown, which one that starts over and over may never hear of.
        down: bool,
    },
}
