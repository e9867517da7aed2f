//! The world of a move: two pairs, the record of two shards, two operators, clients. All of it is small numbers, so that a state costs little.

use super::{plans::PlanId, safeguards::Without};
use crate::api::MoveStage;

/// A set of the two shards.
pub type Shards = u8;
/// A set of commits, two for each shard; above them, a bit a shard for a row that no commit has made.
pub type Txs = u8;

/// Both shards.
pub const BOTH: Shards = 3;
/// All commits.
pub const COMMITS: Txs = 0x0f;

/// Everything of these shards.
pub fn of(shards: Shards) -> Txs {
    let each = |k: u8| {
        if shards & 1 << k == 0 {
            0
        } else {
            3 << (2 * k) | 1 << (4 + k)
        }
    };
    each(0) | each(1)
}

/// State of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Run {
    Off,
    On,
    /// Stopped with an error.
    Broken,
}

/// A channel from the other pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Channel {
    /// The server there that it leads to.
    pub to: u8,
    pub filter: Shards,
    pub run: Run,
}

/// A server and its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mysqld {
    pub up: bool,
    /// What it counts as executed.
    pub executed: Txs,
    /// Of that, what it can't send.
    pub purged: Txs,
    /// What its tables have.
    pub rows: Txs,
    /// Databases that it has.
    pub has: Shards,
    /// Of them, READ ONLY.
    pub shut: Shards,
    pub channel: Option<Channel>,
}

/// A pair and its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    pub active: u8,
    /// The passive one is a member.
    pub two: bool,
    /// The active one takes writes.
    pub open: bool,
    /// Its controller has read what it will open the active one with.
    pub read: Option<Shards>,
    pub servers: [Mysqld; 2],
}

impl Pair {
    pub fn active(&self) -> &Mysqld {
        &self.servers[usize::from(self.active)]
    }
    pub fn passive(&self) -> &Mysqld {
        &self.servers[1 - usize::from(self.active)]
    }
    /// A commit on the active one is acknowledged: whoever has to has it.
    pub fn acknowledges(&self) -> bool {
        self.active().up && (!self.two || self.passive().up)
    }
    /// Shards that a client can write.
    pub fn writable(&self) -> Shards {
        let s = self.active();
        if self.open && self.acknowledges() {
            s.has & !s.shut
        } else {
            0
        }
    }
}

/// `ShardCluster.status.placement`: of both shards, and of the move between the pairs 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Shards placed at pair 1.
    pub at_to: Shards,
    /// `None` when the move has ended.
    pub stage: Option<MoveStage>,
    pub seeded: Shards,
    pub verified: Shards,
    pub batch: Shards,
    pub seed_gtid: Option<Txs>,
    pub opposite_gtid: Option<Txs>,
}

impl Record {
    /// Shards placed at a pair.
    pub fn placed(&self, pair: usize) -> Shards {
        if pair == 1 { self.at_to } else { BOTH & !self.at_to }
    }
}

/// Copies that an operator makes in the background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Seeding {
    #[default]
    None,
    Running(Shards),
    Done(Shards, Txs),
}

/// A comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verifying {
    #[default]
    None,
    Running(Shards),
    Equal(Shards),
    /// What was changed is compared.
    Short(Shards),
    /// That was equal.
    Checked(Shards),
    /// Whichever of the two.
    Different(Shards),
}

impl Verifying {
    /// Shards that were found equal a moment ago.
    pub fn equal(self) -> Shards {
        match self {
            Self::Equal(s) | Self::Checked(s) => s,
            _ => 0,
        }
    }
}

/// An operator, in the middle of a pass or between two. One that is paused is one whose next step comes late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Op {
    pub plan: PlanId,
    /// The record has not changed since it was read, but by its own hand.
    pub fresh: bool,
    /// Nor have the records of the pairs.
    pub pairs: bool,
    /// The batch on record is the one that it means.
    pub batch: bool,
    /// The connections that observed the servers live, a bit each.
    pub connected: u8,
    /// It holds their locks.
    pub locked: u8,
    pub started: bool,
    pub seeding: Seeding,
    pub verifying: [Verifying; 2],
    /// Servers that it cannot reach, a bit each.
    pub cut: u8,
}

impl Op {
    /// Between two passes.
    pub fn idle(self) -> Self {
        Self {
            seeding: self.seeding,
            verifying: self.verifying,
            cut: self.cut,
            ..Self::default()
        }
    }
}

/// What may still happen in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    pub operators: u8,
    /// Of all that follows together, but for commits.
    pub faults: u8,
    pub crashes: u8,
    pub cuts: u8,
    pub failovers: u8,
    pub rebuilds: u8,
    pub wishes: u8,
    pub breaks: u8,
    pub narrowed: u8,
    pub strange_rows: u8,
    /// What was found equal a moment ago is so no more, for all that is known.
    pub moments: u8,
    pub lost_writes: u8,
    pub commits: u8,
    /// The old copies are kept for ever.
    pub keeps: bool,
}

/// Everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub pairs: [Pair; 2],
    pub record: Record,
    /// Shards wished at pair 1.
    pub wish: Shards,
    /// Shards in one batch.
    pub size: u8,
    pub ops: [Op; 2],
    /// What clients were told OK for.
    pub acked: Txs,
    pub left: Budget,
}

impl World {
    /// Both shards are served by pair 0 and wished at pair 1, which has nothing yet.
    pub fn begun(size: u8, left: Budget) -> Self {
        let server = |has| Mysqld {
            up: true,
            executed: 0,
            purged: 0,
            rows: 0,
            has,
            shut: 0,
            channel: None,
        };
        let pair = |has| Pair {
            active: 0,
            two: true,
            open: true,
            read: None,
            servers: [server(has); 2],
        };
        Self {
            pairs: [pair(BOTH), pair(0)],
            record: Record {
                at_to: 0,
                stage: Some(MoveStage::Seeding),
                seeded: 0,
                verified: 0,
                batch: 0,
                seed_gtid: None,
                opposite_gtid: None,
            },
            wish: BOTH,
            size,
            ops: [Op::default(); 2],
            acked: 0,
            left,
        }
    }

    /// Copies are made and verified, channels run, and nothing was cut over.
    pub fn verified(size: u8, left: Budget) -> Self {
        let mut w = Self::begun(size, left);
        w.checked(1);
        w.record = Record {
            stage: Some(MoveStage::Following),
            seeded: BOTH,
            verified: BOTH,
            seed_gtid: Some(0),
            opposite_gtid: Some(0),
            ..w.record
        };
        let channel = Channel {
            to: 1,
            filter: BOTH,
            run: Run::On,
        };
        for s in &mut w.pairs[1].servers {
            (s.has, s.shut) = (BOTH, BOTH);
        }
        w.pairs[0].servers[1].shut = BOTH;
        for p in &mut w.pairs {
            p.servers[0].channel = Some(channel);
        }
        w
    }

    /// The same before they were compared.
    pub fn seeded(size: u8, left: Budget) -> Self {
        let mut w = Self::verified(size, left);
        w.ops = [Op::default(); 2];
        w.record.verified = 0;
        w.pairs[0].servers[1].shut = 0;
        w
    }

    /// Everything was cut over, and the way back is open: it is taken.
    pub fn returning(size: u8, left: Budget) -> Self {
        let mut w = Self::arrived(left);
        (w.wish, w.size) = (0, size);
        w.checked(0);
        w
    }

    /// Whatever copies this pair has were compared a moment ago, by any operator.
    fn checked(&mut self, pair: usize) {
        for op in &mut self.ops {
            op.verifying[pair] = Verifying::Checked(BOTH);
        }
    }

    /// Everything was cut over, and the way back is open.
    pub fn arrived(left: Budget) -> Self {
        let mut w = Self::verified(2, left);
        w.ops = [Op::default(); 2];
        w.record.at_to = BOTH;
        w.record.stage = Some(MoveStage::Retaining);
        for (p, shut) in [(0, BOTH), (1, 0)] {
            for s in &mut w.pairs[p].servers {
                s.shut = shut;
            }
        }
        w
    }

    /// A server, by its place: two of each pair.
    pub fn server(&self, at: usize) -> &Mysqld {
        &self.pairs[at / 2].servers[at % 2]
    }
    pub fn server_mut(&mut self, at: usize) -> &mut Mysqld {
        &mut self.pairs[at / 2].servers[at % 2]
    }
    pub fn is_active(&self, at: usize) -> bool {
        usize::from(self.pairs[at / 2].active) == at % 2
    }

    /// Shards that the record wants READ ONLY on the servers of a pair.
    pub fn shut(&self, pair: usize) -> Shards {
        BOTH & !self.record.placed(pair) | self.record.batch & self.record.placed(pair)
    }

    /// Whether a channel takes from the active server of a pair with two members, which then may take it for one of them.
    pub fn acknowledges_for_another(&self, at: usize) -> bool {
        let (s, source) = (self.server(at), &self.pairs[1 - at / 2]);
        s.up && source.two
            && s.channel
                .is_some_and(|c| c.run == Run::On && c.to == source.active)
    }

    /// Whether an operator gets an answer from a server.
    pub fn reaches(&self, op: usize, at: usize) -> bool {
        self.server(at).up && self.ops[op].cut & 1 << at == 0
    }

    /// Everybody's connection to a server ends, but for that of `but`; with it go locks, and the work that needs them.
    pub fn disconnect(&mut self, at: usize, but: Option<usize>, without: Without) {
        for (i, op) in self.ops.iter_mut().enumerate() {
            if but == Some(i) {
                continue;
            }
            op.connected &= !(1 << at);
            op.locked &= !(1 << at);
            if at / 2 == 1 && !without.is(Without::SeedLocks) {
                op.seeding = Seeding::None;
            }
        }
    }

    /// The same world for worlds that cannot be told apart.
    pub fn canonical(mut self) -> Self {
        for op in &mut self.ops {
            if op.plan == 0 {
                *op = op.idle();
            }
        }
        for p in &mut self.pairs {
            for s in &mut p.servers {
                s.shut &= s.has;
            }
        }
        if self.left.operators == 2 && order(&self.ops[1]) < order(&self.ops[0]) {
            self.ops.swap(0, 1);
        }
        self
    }
}

/// Operators are alike: any order of them will do.
fn order(op: &Op) -> (u16, [u8; 6]) {
    let seeding = match op.seeding {
        Seeding::None => 0,
        Seeding::Running(s) => 1 + s,
        Seeding::Done(s, t) => 8 + s + 8 * t,
    };
    let verifying = |v| match v {
        Verifying::None => 0,
        Verifying::Running(s) => s,
        Verifying::Equal(s) => 3 + s,
        Verifying::Short(s) => 6 + s,
        Verifying::Checked(s) => 9 + s,
        Verifying::Different(s) => 12 + s,
    };
    let bits =
        u8::from(op.fresh) | u8::from(op.pairs) << 1 | u8::from(op.batch) << 2 | u8::from(op.started) << 3;
    let both = verifying(op.verifying[0]) << 4 | verifying(op.verifying[1]);
    (op.plan, [bits, op.connected, op.locked, seeding, both, op.cut])
}
