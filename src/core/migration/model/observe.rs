//! What an operator sees of a world, as the core wants it.

use super::{
    plans::Edit,
    world::{COMMITS, Pair, Record, Run, Seeding, Shards, Txs, Verifying, World},
};
use crate::{
    api::{Move, MoveKey, MoveStage, PlacedSpan, Placement, Seed, SpanState},
    core::{
        gtid::GtidSet,
        migration::{
            action::Change,
            batch::Cost,
            observed::{
                ChannelSeen, CloneSeen, End, Memory, Observed, PairSeen, Policy, SeedOutcome, SeedRun,
                ServerSeen, VerifyOutcome, VerifyRun,
            },
            wish::{Course, Early},
        },
        placement::moves,
        spans::SpanSet,
    },
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};

/// What an operator goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    pub record: Record,
    pub wish: Shards,
    pub size: u8,
    pub pairs: [Pair; 2],
    pub seeding: Seeding,
    pub verifying: [Verifying; 2],
    /// The old copies were kept for long enough.
    pub long: bool,
}

impl View {
    pub fn of(w: &World, op: usize, long: bool) -> Self {
        let mut pairs = w.pairs;
        // What it cannot see, and what makes no difference: nothing lags by much in the model.
        let counted = w.record.stage.is_none() || w.record.opposite_gtid.is_some();
        for (i, p) in pairs.iter_mut().enumerate() {
            p.read = None;
            let taker = w.pairs[1 - i].active().executed;
            for (k, s) in p.servers.iter_mut().enumerate() {
                s.up = w.reaches(op, 2 * i + k);
                s.rows = 0;
                if counted {
                    // All that matters of it is whether the other pair can still take from it.
                    s.purged = if s.purged & !taker == 0 { 0 } else { COMMITS };
                    s.executed = 0;
                }
            }
        }
        Self {
            record: w.record,
            wish: w.wish,
            size: w.size,
            pairs,
            seeding: w.ops[op].seeding,
            verifying: w.ops[op].verifying,
            long,
        }
    }
}

const RETAIN: SignedDuration = SignedDuration::from_hours(24);
const SERVER: &str = "00000000-0000-0000-0000-00000000000a";
const BASE: &str = "00000000-0000-0000-0000-00000000000b:1";

fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// The time of a view.
pub fn now(v: &View) -> Timestamp {
    if v.long { start() + RETAIN } else { start() }
}

fn key() -> MoveKey {
    MoveKey::new("from", "to")
}

/// Shards as the core has them.
fn set(shards: Shards) -> SpanSet {
    (0..2).filter(|k| shards & 1 << k != 0).collect()
}

/// And back.
pub fn shards(set: &SpanSet) -> Shards {
    set.shards().fold(0, |all, k| all | 1 << k)
}

fn gtids(txs: Txs) -> GtidSet {
    let numbers = (0..4)
        .filter(|n| txs & 1 << n != 0)
        .map(|n| format!(",{SERVER}:{}", n + 1));
    format!("{BASE}{}", numbers.collect::<String>()).parse().unwrap()
}

/// Commits in a GTID set.
pub fn txs(set: &GtidSet) -> Txs {
    let has = |n: &u8| set.contains(&format!("{SERVER}:{}", n + 1).parse().unwrap());
    (0..4).filter(has).fold(0, |all, n| all | 1 << n)
}

/// The record as the API has it.
fn placement(r: &Record) -> Placement {
    let spans = (0..2).map(|k| PlacedSpan {
        first: k,
        last: k,
        pair: if r.at_to & 1 << k == 0 { "from" } else { "to" }.into(),
        state: SpanState::Serving,
        range: Some(format!("r{k}")),
    });
    let gtid = |g: Option<Txs>| g.map_or_else(String::new, |t| gtids(t).to_string());
    let m = r.stage.map(|stage| Move {
        from: "from".into(),
        to: "to".into(),
        shards: set(3).to_vec(),
        opposite: vec![],
        seed: Seed::PerDatabase,
        stage,
        seeded: set(r.seeded).to_vec(),
        seed_gtid: gtid(r.seed_gtid),
        opposite_gtid: gtid(r.opposite_gtid),
        verified: set(r.verified).to_vec(),
        batch: set(r.batch).to_vec(),
        batch_number: 1,
        retain_until: (stage == MoveStage::Retaining).then(|| Time(start() + RETAIN)),
    });
    Placement {
        spans: spans.collect(),
        moves: m.into_iter().collect(),
        batches: 1,
        ..Placement::default()
    }
}

/// And back.
fn record(p: &Placement) -> Record {
    let at_to = shards(&crate::core::placement::shards(p, |s| s.pair == "to"));
    let m = moves::find(p, &key());
    let part = |f: fn(&Move) -> &Vec<crate::api::ShardSpan>| m.map_or(0, |m| shards(&moves::set(f(m))));
    let gtid = |s: &str| (!s.is_empty()).then(|| txs(&s.parse().unwrap()));
    Record {
        at_to,
        stage: m.map(|m| m.stage),
        seeded: part(|m| &m.seeded),
        verified: part(|m| &m.verified),
        batch: part(|m| &m.batch),
        seed_gtid: m.and_then(|m| gtid(&m.seed_gtid)),
        opposite_gtid: m.and_then(|m| gtid(&m.opposite_gtid)),
    }
}

/// The record after a transition; `None` when it is refused.
pub fn edited(r: &Record, edit: Edit) -> Option<Record> {
    let change = match edit {
        Edit::Seeded(s, t) => Change::Seeded {
            shards: set(s),
            gtid: gtids(t),
        },
        Edit::Counted(end, t) => Change::Counted {
            end: End::BOTH[end],
            gtid: gtids(t),
        },
        Edit::Follow => Change::Follow,
        Edit::Verified(s) => Change::Verified(set(s)),
        Edit::Unverified(s) => Change::Unverified(set(s)),
        Edit::Begin(s) => Change::BeginBatch(set(s)),
        Edit::Undo => Change::UndoBatch { number: 1 },
        Edit::CutOver => Change::CutOver { number: 1 },
        Edit::Retain => Change::Retain {
            until: start() + RETAIN,
        },
        Edit::Resume => Change::Resume,
        Edit::CleanUp => Change::CleanUp,
        Edit::End => Change::EndMove,
    };
    change.apply(&placement(r), &key()).ok().map(|p| record(&p))
}

/// What the core is asked.
pub fn observed(v: &View) -> Observed {
    let r = &v.record;
    let going = |shards| match r.stage {
        None | Some(MoveStage::CleaningUp) => SpanSet::new(),
        _ => set(shards),
    };
    let course = Course {
        forward: going(v.wish & !r.at_to),
        back: going(r.at_to & !v.wish),
        undecided: SpanSet::new(),
        early: (r.at_to == 0 && v.wish == 0).then_some(Early::NothingMoved),
    };
    Observed {
        record: placement(&v.record),
        key: key(),
        course,
        ends: [pair(v, 0), pair(v, 1)],
        seeding: [None, seeding(v.seeding)],
        verifying: v.verifying.map(|run| verifying(run, now(v))),
        policy: Policy {
            manual: false,
            approved: false,
            window: true,
            deadline: SignedDuration::from_secs(1),
            end_transactions_after: None,
            retain: RETAIN,
            retain_no_longer: false,
            verify_again: false,
        },
        memory: Memory {
            cost: (v.size > 1).then_some(Cost {
                shards: 1,
                blocked: SignedDuration::from_millis(1),
            }),
            ..Memory::default()
        },
    }
}

fn pair(v: &View, i: usize) -> PairSeen {
    let p = &v.pairs[i];
    let server = |at: usize| {
        let s = &p.servers[at];
        let active = usize::from(p.active) == at;
        s.up.then(|| ServerSeen {
            executed: gtids(s.executed),
            purged: gtids(s.purged),
            has: set(s.has),
            shut: set(s.shut),
            follows: !active && p.active().up,
            channel: s.channel.map(|c| ChannelSeen {
                leads_to: Some(c.to.into()),
                filter: Some(set(c.filter)),
                started: c.run == Run::On,
                runs: c.run == Run::On,
                error: (c.run == Run::Broken).then(|| (1032, "a row is missing".into())),
            }),
            blockers: vec![],
        })
    };
    PairSeen {
        exists: true,
        ready: p.open,
        epoch: 7,
        active: p.active.into(),
        two_members: p.two,
        servers: [server(0), server(1)],
        clone: CloneSeen::default(),
    }
}

fn seeding(s: Seeding) -> Option<SeedRun> {
    let (shards, outcome) = match s {
        Seeding::None => return None,
        Seeding::Running(s) => (s, SeedOutcome::Running { bytes: 0, of: 0 }),
        Seeding::Done(s, t) => (s, SeedOutcome::Done { gtid: gtids(t) }),
    };
    Some(SeedRun {
        shards: set(shards),
        outcome,
    })
}

/// Whatever an operator remembers of it, it was a moment ago.
fn verifying(s: Verifying, when: Timestamp) -> Option<VerifyRun> {
    let (shards, outcome) = match s {
        Verifying::None => return None,
        Verifying::Running(s) | Verifying::Short(s) => (s, VerifyOutcome::Running { tables: 0, of: 0 }),
        Verifying::Equal(s) | Verifying::Checked(s) => (s, VerifyOutcome::Equal),
        Verifying::Different(s) => {
            let tables = vec!["db00000.t".to_owned()];
            let shards = set(s);
            (s, VerifyOutcome::Different { shards, tables })
        }
    };
    Some(VerifyRun {
        shards: set(shards),
        // What is different is so, whichever of them has found it.
        since: (!matches!(s, Verifying::Running(_) | Verifying::Equal(_))).then(|| gtids(0)),
        position: gtids(COMMITS),
        when,
        outcome,
    })
}
