//! The world of a pair: two servers and the former self of one of them, the record, two operators, clients. All of it is small
//! numbers, so that a state costs little.

use super::plans::PlanId;

/// A set of transactions: eight for each incarnation of a server that may commit them first, and [`BROUGHT`].
pub type Txs = u64;
/// An incarnation of a server, by its `server_uuid`: A and B are born as 0 and 2, and 1 and 3 after they lost their volumes.
pub type Me = u8;

/// Number of incarnations.
pub const SELVES: u8 = 4;
/// Place in [`World::servers`] of a former self that nobody can reach but its peer.
pub const GHOST: usize = 2;
/// Transactions of clients, whoever committed them.
pub const CLIENTS: Txs = 0x0e0e_0e0e;
/// What another pair had executed when it was cloned.
pub const BROUGHT: Txs = 1 << 32;
/// The passive server of that pair, as a donor.
pub const OTHER_PAIR: usize = 3;

/// What a transaction is: which of the eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Accounts, those of the first incarnations among them.
    Base,
    /// The n-th of a client, 0 to 2.
    Client(u8),
    /// Makes the account of this second incarnation, by place.
    Admit(usize),
    /// Locks the account of this first incarnation, by place.
    LockOut(usize),
}

/// The transaction of this kind that `me` commits first.
pub fn tx(me: Me, kind: Kind) -> Txs {
    let slot = match kind {
        Kind::Base => 0,
        Kind::Client(n) => 1 + u32::from(n),
        Kind::Admit(place) => 4 + place as u32,
        Kind::LockOut(place) => 6 + place as u32,
    };
    1 << (u32::from(me) * 8 + slot)
}

/// Transactions of this kind, whoever committed them first.
pub fn all(kind: Kind) -> Txs {
    (0..SELVES).fold(0, |set, me| set | tx(me, kind))
}

/// The place of an incarnation.
pub fn place(me: Me) -> usize {
    usize::from(me / 2)
}

/// Whether mysqld runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Run {
    Up,
    /// SIGSTOP, or a disk that does not answer.
    Paused,
    Down,
}

/// Who may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// `super_read_only`.
    Closed,
    /// `read_only` alone, while it is copied over.
    Copied,
    Open,
}

/// State of the receiver thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Receiver {
    Off,
    Connecting,
    On,
}

/// Why a receiver was sent away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    None,
    /// The account is locked or missing.
    Denied,
    /// The source has purged what it lacks.
    Purged,
}

/// A CLONE into a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Copy {
    None,
    /// The statement was sent on a connection of this operator, and nothing can be seen of it yet.
    Begun {
        donor: usize,
        op: usize,
    },
    Running {
        donor: usize,
    },
    Completed,
    /// The same, from the other pair.
    Cloned,
    Failed,
}

/// The channel without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Channel {
    /// The place that it leads to.
    pub to: usize,
    /// Whose account it uses.
    pub user: Me,
}

/// A server, its disk and its Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mysqld {
    pub me: Me,
    pub run: Run,
    pub mode: Mode,
    pub offline: bool,
    /// Source side of semi-sync.
    pub source_on: bool,
    pub executed: Txs,
    /// In the binary log, past the point where they would have waited, not yet executed.
    pub passing: Txs,
    /// In the binary log, waiting for an acknowledgement.
    pub waiting: Txs,
    /// Of those that wait: an acknowledgement is on its way.
    pub heard: Txs,
    /// `received_transaction_set`: what is not executed of it is in the relay log.
    pub received: Txs,
    pub purged: Txs,
    /// `sync_relay_log = 1`: what it received survives the loss of its node's power.
    pub synced: bool,
    pub channel: Option<Channel>,
    pub receiver: Receiver,
    /// With whom the receiver believes to be connected.
    pub peer: u8,
    pub refusal: Refusal,
    pub applier: bool,
    /// Servers that have a dump thread here, a bit each; one may be dead without this server knowing.
    pub dumps: u8,
    pub copy: Copy,
    /// The accounts that other pairs take with are not locked here.
    pub admits_others: bool,
    /// Another pair takes from it, and acknowledges.
    pub outsider: bool,
    /// Its Pod is being deleted.
    pub leaving: bool,
    /// Its node does not answer Kubernetes.
    pub node_gone: bool,
}

impl Mysqld {
    /// A server with an empty volume, not started yet.
    pub fn empty(me: Me) -> Self {
        Self {
            me,
            run: Run::Down,
            mode: Mode::Closed,
            offline: false,
            source_on: false,
            executed: 0,
            passing: 0,
            waiting: 0,
            heard: 0,
            received: 0,
            purged: 0,
            synced: true,
            channel: None,
            receiver: Receiver::Off,
            peer: 0,
            refusal: Refusal::None,
            applier: false,
            dumps: 0,
            copy: Copy::None,
            admits_others: false,
            outsider: false,
            leaving: false,
            node_gone: false,
        }
    }
    /// What its binary log has.
    pub fn logged(&self) -> Txs {
        self.executed | self.passing | self.waiting
    }
    /// Nothing of anyone's is on it, but of those who set the pair up.
    pub fn blank(&self) -> bool {
        self.logged() & (CLIENTS | BROUGHT) == 0
    }
    /// What it has in a form that survives its restart.
    pub fn has(&self) -> Txs {
        self.logged() | self.received
    }
    /// What its relay log has that is not applied.
    pub fn unapplied(&self) -> Txs {
        self.received & !self.executed
    }
    pub fn up(&self) -> bool {
        self.run == Run::Up
    }
    /// A client that reaches it can begin to commit.
    pub fn takes_writes(&self) -> bool {
        self.up() && self.mode == Mode::Open && !self.offline
    }
    /// Whether this incarnation may take from it.
    pub fn admits(&self, me: Me) -> bool {
        self.has_account(me) && !self.locks(me)
    }
    pub fn has_account(&self, me: Me) -> bool {
        let made = if me.is_multiple_of(2) {
            all(Kind::Base)
        } else {
            all(Kind::Admit(place(me)))
        };
        self.executed & made != 0
    }
    pub fn locks(&self, me: Me) -> bool {
        me.is_multiple_of(2) && self.executed & all(Kind::LockOut(place(me))) != 0
    }
    /// It ends at once, or in order: what its binary log has is committed when it starts, nobody is told.
    pub fn stop(&mut self) {
        *self = Self {
            run: Run::Down,
            mode: Mode::Closed,
            offline: false,
            source_on: false,
            executed: self.logged(),
            passing: 0,
            waiting: 0,
            heard: 0,
            received: if self.synced {
                self.received
            } else {
                self.received & self.logged()
            },
            synced: true,
            receiver: Receiver::Off,
            peer: 0,
            refusal: Refusal::None,
            applier: false,
            dumps: 0,
            outsider: false,
            copy: match self.copy {
                Copy::Begun { .. } => Copy::None,
                Copy::Running { .. } => Copy::Failed,
                ended => ended,
            },
            leaving: false,
            ..*self
        };
    }
}

/// `MySQLPair.status`. Its epoch is counted from wherever it is now; see [`Op::fresh`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub active: usize,
    pub members: [Option<Me>; 2],
    /// Errant transactions that need not be kept where they are.
    pub settled: Txs,
}

/// An operator, in the middle of a pass or between two. One that is paused is one whose next step comes late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Op {
    /// What it has still to do.
    pub plan: PlanId,
    /// The record has not changed since it was read, but by its own hand: the CAS will pass.
    pub fresh: bool,
    /// The connection that observed the server lives.
    pub connected: [bool; 2],
    /// It has the locks that it needs.
    pub started: bool,
    /// It has taken the server's lock, and has read the record again after that.
    pub locked: [bool; 2],
    /// It has closed the active server for a switchover that is not recorded yet.
    pub closed: Option<usize>,
    /// It has stopped the receiver of the other one.
    pub stopped: Option<usize>,
    /// Cannot reach the server.
    pub cut: [bool; 2],
    /// Cannot reach the API.
    pub cut_api: bool,
}

impl Op {
    /// Between two passes.
    pub fn idle(self) -> Self {
        Self {
            cut: self.cut,
            cut_api: self.cut_api,
            ..Self::default()
        }
    }
}

/// What may still happen in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Operators that there are: one or two.
    pub operators: u8,
    /// Of all that follows together, but for commits.
    pub faults: u8,
    pub crashes: u8,
    pub pauses: u8,
    pub cuts: u8,
    pub disk_losses: u8,
    pub node_losses: u8,
    pub pod_deletions: u8,
    pub wishes: u8,
    pub purges: u8,
    pub kills: u8,
    pub commits: u8,
    /// Shards move to or from the pair: it has further steps, and another pair takes from whichever server lets it.
    pub moving: bool,
    /// The pair serves nothing at first: what a client commits makes a database.
    pub blank: bool,
    /// The move by which another pair is cloned over it may be given up.
    pub aborts: u8,
}

/// Everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub servers: [Mysqld; 3],
    pub record: Option<Record>,
    pub ops: [Op; 2],
    /// The servers cannot reach each other.
    pub cut: bool,
    /// The record of the cluster says that another pair is to be cloned over this one.
    pub clone_wanted: bool,
    /// `spec.preferredActive`, while it has not been acted upon.
    pub wish: Option<usize>,
    /// What clients were told OK for.
    pub acked: Txs,
    /// Errant transactions that were saved.
    pub saved: Txs,
    /// Those that were saved in the present epoch: where the others are is not looked for.
    pub kept: Txs,
    pub left: Budget,
}

impl World {
    /// A healthy pair: A takes writes, B follows and is a member, the circle is closed.
    pub fn healthy(left: Budget) -> Self {
        let base = tx(0, Kind::Base);
        let server = |i: usize| Mysqld {
            run: Run::Up,
            executed: base,
            received: if i == 1 { base } else { 0 },
            channel: Some(Channel {
                to: 1 - i,
                user: 2 * i as Me,
            }),
            receiver: Receiver::On,
            peer: 1 - i as u8,
            applier: true,
            dumps: 1 << (1 - i),
            ..Mysqld::empty(2 * i as Me)
        };
        let mut a = server(0);
        (a.mode, a.source_on) = (Mode::Open, true);
        let mut b = server(1);
        b.admits_others = left.moving;
        let record = Record {
            active: 0,
            members: [Some(0), Some(2)],
            settled: 0,
        };
        Self {
            servers: [a, b, Mysqld::empty(0)],
            record: Some(record),
            ..Self::fresh(left)
        }
    }

    /// Two servers that have never run, without a record.
    pub fn fresh(left: Budget) -> Self {
        let start = |me| Mysqld {
            run: Run::Up,
            ..Mysqld::empty(me)
        };
        Self {
            servers: [start(0), start(2), Mysqld::empty(0)],
            record: None,
            ops: [Op::default(); 2],
            cut: false,
            clone_wanted: left.blank,
            wish: None,
            acked: 0,
            saved: 0,
            kept: 0,
            left,
        }
    }

    /// Whether the packets of two servers reach each other. A former self reaches everybody that is up.
    pub fn linked(&self, a: usize, b: usize) -> bool {
        a == GHOST || b == GHOST || !self.cut
    }

    /// Whether `follower` receives from its peer: both believe so, and packets get through.
    pub fn streams(&self, follower: usize) -> bool {
        let f = &self.servers[follower];
        let s = &self.servers[usize::from(f.peer)];
        f.receiver == Receiver::On
            && f.up()
            && s.up()
            && s.dumps & 1 << follower != 0
            && self.linked(follower, usize::from(f.peer))
    }

    /// Whether a commit on this server could be acknowledged to its client, now or when packets get through again.
    pub fn can_acknowledge(&self, i: usize) -> bool {
        let s = &self.servers[i];
        let heard = |j: usize| {
            let f = &self.servers[j];
            j != i
                && f.run != Run::Down
                && f.receiver == Receiver::On
                && usize::from(f.peer) == i
                && s.dumps & 1 << j != 0
        };
        s.run != Run::Down
            && s.mode == Mode::Open
            && !s.offline
            && (!s.source_on || s.outsider || (0..3).any(heard))
    }

    /// The recorded member at `place`, when its volume is still there.
    pub fn member(&self, place: usize) -> Option<&Mysqld> {
        let me = self.record?.members[place]?;
        let s = &self.servers[place];
        (s.me == me).then_some(s)
    }

    /// The recorded active server, when its volume is still there.
    pub fn active(&self) -> Option<&Mysqld> {
        self.member(self.record?.active)
    }

    /// Everybody's connection to a server ends, and with it the locks.
    pub fn disconnect(&mut self, i: usize) {
        for op in &mut self.ops {
            op.connected[i] = false;
            op.locked[i] = false;
        }
    }

    /// mysqld ends.
    pub fn stop(&mut self, i: usize) {
        self.servers[i].stop();
        if i < GHOST {
            self.disconnect(i);
        }
    }

    /// The same world for worlds that cannot be told apart.
    pub fn canonical(mut self) -> Self {
        for s in &mut self.servers {
            s.heard &= s.waiting;
            if s.receiver != Receiver::On {
                s.peer = 0;
            }
            if s.channel.is_none() {
                s.received = 0;
            }
        }
        if self.servers[GHOST].run == Run::Down {
            self.servers[GHOST] = Mysqld::empty(0);
            for i in 0..GHOST {
                // A dump thread of one that is no more is only a number.
                if self.servers[i].receiver == Receiver::On && usize::from(self.servers[i].peer) == GHOST {
                    self.servers[i].receiver = Receiver::Connecting;
                    self.servers[i].peer = 0;
                }
            }
        }
        if self.left.operators == 2 && self.ops[1] < self.ops[0] {
            self.ops.swap(0, 1);
            for s in &mut self.servers {
                if let Copy::Begun { op, .. } = &mut s.copy {
                    *op = 1 - *op;
                }
            }
        }
        self
    }
}
