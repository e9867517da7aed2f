//! Batches, and what is READ ONLY where.

use super::*;
use crate::core::migration::{
    batch::{self, Cost},
    observed::Blocker,
    reasons,
};

fn batch_of(o: &Observed) -> SpanSet {
    let d = row(o, "CuttingOver");
    let begun = d.actions.iter().find_map(|a| match a {
        Action::Record(Change::BeginBatch(batch)) => Some(batch.clone()),
        _ => None,
    });
    begun.unwrap()
}

/// The order of R2, either way.
fn steps(to: End, shards: &SpanSet, number: i64) -> Vec<Action> {
    let (server, of) = (a(to), a(to.other()));
    vec![
        Action::Approach {
            server,
            of,
            batch: shards.clone(),
            within: batch::CLOSE,
        },
        Action::Record(Change::BeginBatch(shards.clone())),
        Action::Fence {
            at: of,
            shards: shards.clone(),
        },
        Action::Reach {
            server,
            of,
            filter: moving(),
            within: SignedDuration::from_secs(1),
        },
        Action::Confirm([(0, 7), (0, 7)]),
        Action::Record(Change::CutOver { number }),
        Action::Unfence {
            at: server,
            shards: shards.clone(),
        },
    ]
}

#[test]
fn cutting_over() {
    does(&verified(), "CuttingOver", &steps(TO, &set(&[(4, 4)]), 1));
    // The way back is the same with the ends exchanged, and comes first.
    let mut o = moved(&[(4, 5)]);
    wish(&mut o, &set(&[(4, 4)]), &set(&[(5, 7)]));
    at(&mut o, b(TO)).shut = set(&[(4, 4), (6, 7)]);
    does(&o, "CuttingOver", &steps(FROM, &set(&[(4, 4)]), 2));
}

/// A target that never comes close is waited for, and people are told.
#[test]
fn no_batch_is_begun_before_the_target_is_close() {
    let mut o = verified();
    for (waits, within) in [(0, 30), (7, 30), (8, 60), (31, 240), (32, 480), (u32::MAX, 480)] {
        (o.memory.waits, o.memory.behind) = (waits, waits > 0);
        let d = row(&o, "CuttingOver");
        assert!(
            matches!(&d.actions[0], Action::Approach { within: w, .. } if *w == SignedDuration::from_millis(within)),
            "{waits}: {d:?}"
        );
        let reason = if waits == 0 {
            reasons::CUTTING_OVER
        } else {
            reasons::CATCHING_UP
        };
        assert_eq!(d.overall.reason(), reason);
    }
    // A deadline that is shorter than the wait is kept.
    o.policy.deadline = SignedDuration::from_millis(300);
    let within = decide(&o, now()).actions.into_iter().find_map(|a| match a {
        Action::Reach { within, .. } => Some(within),
        _ => None,
    });
    assert_eq!(within, Some(SignedDuration::from_millis(300)));
    assert_eq!(row(&o, "CuttingOver").deadline, within);
    assert_eq!(row(&following(), "VerifyDue").deadline, None);
}

#[test]
fn the_size_of_a_batch_follows_what_the_last_one_cost() {
    let cost = |shards, ms| {
        batch::size(Some(Cost {
            shards,
            blocked: SignedDuration::from_millis(ms),
        }))
    };
    assert_eq!(batch::size(None), 1);
    assert_eq!([cost(1, 50), cost(2, 50), cost(4, 50)], [2, 4, 4]);
    assert_eq!([cost(1, 51), cost(2, 100), cost(4, 100)], [1, 2, 4]);
    assert_eq!([cost(4, 101), cost(2, 101), cost(1, 900)], [2, 1, 1]);
    let mut o = verified();
    o.memory.cost = Some(Cost {
        shards: 4,
        blocked: SignedDuration::from_millis(80),
    });
    assert_eq!(batch_of(&o), moving());
}

#[test]
fn a_shard_that_cannot_be_fenced_comes_later_and_alone() {
    let mut o = verified();
    o.memory.cost = Some(Cost {
        shards: 4,
        blocked: SignedDuration::from_millis(80),
    });
    o.memory.blocked.insert(4, tried(1, 9));
    assert_eq!(batch_of(&o), set(&[(5, 7)]));
    o.memory
        .blocked
        .extend([(5, tried(1, 9)), (6, tried(1, 9)), (7, tried(1, 20))]);
    assert_eq!(batch_of(&o), set(&[(7, 7)]), "the one that is due for longest");
}

#[test]
fn blocked() {
    let mut o = verified();
    for shard in 4..=7 {
        o.memory.blocked.insert(shard, tried(3, i64::from(shard) - 4));
    }
    let d = row(&o, "Blocked");
    assert!(d.actions.is_empty() && d.overall.message().contains("4-7"));
    assert_eq!(
        d.requeue,
        std::time::Duration::from_secs(1),
        "four seconds after the third try"
    );
}

#[test]
fn ending() {
    let mut o = verified();
    at(&mut o, a(FROM)).blockers = vec![
        Blocker {
            shard: 5,
            connection: None,
            since: ago(900),
        },
        Blocker {
            shard: 4,
            connection: Some(77),
            since: ago(61),
        },
    ];
    o.memory.blocked.insert(4, tried(1, 0));
    o.memory.blocked.insert(5, tried(1, 0));
    assert_eq!(batch_of(&o), set(&[(6, 6)]), "nobody asked for that");
    o.policy.end_transactions_after = Some(SignedDuration::from_secs(60));
    let connection = 77;
    let end = Action::EndTransaction {
        at: a(FROM),
        connection,
    };
    does(&o, "Ending", &[end]);
    // It is not in the way before the shard was tried.
    o.memory.blocked.remove(&4);
    assert_eq!(batch_of(&o), set(&[(4, 4)]));
}

#[test]
fn backing_off() {
    let mut o = verified();
    o.memory.undone = tried(3, 1);
    does(&o, "BackingOff", &[]);
    o.memory.undone = tried(3, 2);
    row(&o, "CuttingOver");
}

#[test]
fn waiting_for_approval() {
    let mut o = verified();
    o.policy.manual = true;
    does(&o, "WaitingForApproval", &[]);
    o.policy.approved = true;
    row(&o, "CuttingOver");
}

#[test]
fn waiting_for_window() {
    let mut o = verified();
    o.policy.window = false;
    does(&o, "WaitingForWindow", &[]);
    // Whoever goes back waits for neither.
    let mut o = moved(&[(4, 5)]);
    (o.policy.window, o.policy.manual) = (false, true);
    wish(&mut o, &set(&[(4, 4)]), &set(&[(5, 7)]));
    at(&mut o, b(TO)).shut = set(&[(4, 4), (6, 7)]);
    assert_eq!(batch_of(&o), set(&[(4, 4)]));
}

#[test]
fn catching_up() {
    let mut o = verified();
    at(&mut o, a(FROM)).executed = gtids(1011);
    does(&o, "CatchingUp", &[]);
    at(&mut o, a(FROM)).executed = gtids(1010);
    row(&o, "CuttingOver");
}

#[test]
fn recheck_due() {
    let recheck = |at, shards: &[(i32, i32)], since| Action::Recheck {
        at,
        shards: set(shards),
        since,
    };
    // One of all rows counts from when it began, a short one from when it ended; the next one looks at what was changed since either.
    for run in [compared, short] {
        let mut o = verified();
        o.verifying[1] = Some(run(VerifyOutcome::Equal, 59));
        row(&o, "CuttingOver");
        o.verifying[1] = Some(run(VerifyOutcome::Equal, 60));
        does(&o, "RecheckDue", &[recheck(TO, &[MOVING], gtids(9))]);
        // Nobody works while anything else is waited for.
        let waits = [
            |o: &mut Observed| o.policy.manual = true,
            |o: &mut Observed| o.policy.window = false,
            |o: &mut Observed| o.memory.undone = tried(3, 1),
            |o: &mut Observed| at(o, a(FROM)).executed = gtids(1011),
        ];
        for wait in waits {
            let mut o = o.clone();
            wait(&mut o);
            assert!(decide(&o, now()).actions.is_empty());
        }
    }
    // An operator that was started anew knows what is on record only, and so does one that has compared a part.
    let mut o = verified();
    o.record.moves[0].opposite_gtid = gtids(6).to_string();
    o.verifying = [None, None];
    does(&o, "RecheckDue", &[recheck(TO, &[MOVING], gtids(6))]);
    o.verifying[1] = Some(VerifyRun {
        shards: set(&[(4, 6)]),
        ..compared(VerifyOutcome::Equal, 0)
    });
    does(&o, "RecheckDue", &[recheck(TO, &[MOVING], gtids(6))]);
    // One of the copies of an earlier move is none.
    o.verifying[1] = Some(compared(VerifyOutcome::Equal, 0));
    o.verifying[1].as_mut().unwrap().position = gtids(4);
    does(&o, "RecheckDue", &[recheck(TO, &[MOVING], gtids(6))]);
    // On the way back, what was equal over there was equal here.
    let mut o = moved(&[(4, 5)]);
    (o.policy.window, o.verifying[0]) = (false, None);
    wish(&mut o, &set(&[(4, 4)]), &set(&[(5, 7)]));
    at(&mut o, b(TO)).shut = set(&[(4, 4), (6, 7)]);
    does(&o, "RecheckDue", &[recheck(FROM, &[(4, 4)], gtids(9))]);
}

#[test]
fn rechecking() {
    let mut o = verified();
    let runs = VerifyOutcome::Running { tables: 3, of: 12 };
    o.verifying[1] = Some(short(runs.clone(), 0));
    does(&o, "Rechecking", &[]);
    // One of all rows that is left over from before they were on record is not waited for.
    o.verifying = [None, Some(compared(runs, 0))];
    row(&o, "RecheckDue");
}

/// R4 again; and it is tried again since where they were equal.
#[test]
fn not_rechecked() {
    let unknown = |tries| VerifyOutcome::Unknown {
        error: "connection lost".into(),
        tries,
    };
    let mut o = verified();
    o.verifying[1] = Some(short(unknown(tried(1, 4)), 0));
    does(&o, "NotRechecked", &[]);
    o.verifying[1] = Some(short(unknown(tried(1, 5)), 0));
    let again = Action::Recheck {
        at: TO,
        shards: moving(),
        since: gtids(7),
    };
    does(&o, "RecheckDue", &[again]);
}

#[test]
fn fencing_ahead() {
    let mut o = verified();
    at(&mut o, b(FROM)).shut = SpanSet::new();
    let fence = Action::Fence {
        at: b(FROM),
        shards: moving(),
    };
    does(&o, "FencingAhead", &[fence]);
    // The window slides when the next batch is not in it any more.
    at(&mut o, b(FROM)).shut = set(&[(4, 4)]);
    row(&o, "CuttingOver");
    // One that somebody reads there holds up no other one, and is tried again by itself.
    at(&mut o, b(FROM)).shut = SpanSet::new();
    o.memory.blocked.insert(4, tried(1, 0));
    let fence = |shards| Action::Fence { at: b(FROM), shards };
    does(&o, "FencingAhead", &[fence(set(&[(5, 7)]))]);
    for shard in 5..=7 {
        o.memory.blocked.insert(shard, tried(1, 0));
    }
    row(&o, "Blocked");
    o.memory.blocked.insert(6, tried(1, 1));
    does(&o, "FencingAhead", &[fence(set(&[(6, 6)]))]);
}

/// Whatever a pass has left between `BeginBatch` and `CutOver` goes back, whichever way it went.
#[test]
fn batch_left() {
    let undo = |number, at, shards: &[(i32, i32)]| {
        let shards = set(shards);
        [
            Action::Record(Change::UndoBatch { number }),
            Action::Unfence { at, shards },
        ]
    };
    let mut o = verified();
    turn(&mut o, &Change::BeginBatch(set(&[(4, 5)])));
    does(&o, "BatchLeft", &undo(1, a(FROM), &[(4, 5)]));
    // After a failover, on the server that is active then.
    end(&mut o, FROM).active = 1;
    does(&o, "BatchLeft", &undo(1, b(FROM), &[(4, 5)]));
    // It answers later: then it is opened as one that is shut for no reason, or by its own controller.
    end(&mut o, FROM).servers[1] = None;
    does(&o, "BatchLeft", &undo(1, b(FROM), &[(4, 5)])[..1]);
    let mut o = moved(&[(4, 5)]);
    turn(&mut o, &Change::BeginBatch(set(&[(5, 5)])));
    does(&o, "BatchLeft", &undo(2, a(TO), &[(5, 5)]));
}

#[test]
fn fence_missing() {
    for place in [a(TO), b(TO)] {
        let mut o = verified();
        at(&mut o, place).shut = set(&[(4, 6)]);
        let shards = set(&[(7, 7)]);
        does(&o, "FenceMissing", &[Action::Fence { at: place, shards }]);
    }
    // What does not move is shut there all the same, when there is a copy of it.
    let mut o = verified();
    at(&mut o, b(TO)).has = set(&[(0, 9)]);
    let shards = set(&[(0, 3)]);
    does(&o, "FenceMissing", &[Action::Fence { at: b(TO), shards }]);
    // A former active server that comes back after its shards have gone.
    let mut o = moved(&[(4, 4)]);
    at(&mut o, a(FROM)).shut = SpanSet::new();
    let shards = set(&[(4, 4)]);
    does(&o, "FenceMissing", &[Action::Fence { at: a(FROM), shards }]);
    // Copies that are being made are not touched; what is left of them is.
    let mut o = begun();
    at(&mut o, a(TO)).has = set(&[(4, 9)]);
    let shards = moving();
    does(&o, "FenceMissing", &[Action::Fence { at: a(TO), shards }]);
    o.seeding[1] = Some(SeedRun {
        shards: moving(),
        outcome: SeedOutcome::Running { bytes: 1, of: 2 },
    });
    row(&o, "Seeding");
}

#[test]
fn fence_left() {
    let mut o = verified();
    at(&mut o, a(FROM)).shut = set(&[(5, 5)]);
    let shards = set(&[(5, 5)]);
    does(&o, "FenceLeft", &[Action::Unfence { at: a(FROM), shards }]);
    // A pass has ended between the point of no return and the opening; or the target's pair has failed over just then.
    for active in [0, 1] {
        let mut o = moved(&[(4, 5)]);
        end(&mut o, TO).active = active;
        let place = Place::new(TO, active);
        at(&mut o, place).shut = moving();
        let shards = set(&[(4, 5)]);
        does(&o, "FenceLeft", &[Action::Unfence { at: place, shards }]);
    }
}

#[test]
fn fence_ahead() {
    let mut o = moved(&[(4, 5)]);
    at(&mut o, b(TO)).shut = moving();
    // Others are to come: what has arrived is opened there when it is more, or when no batch may follow.
    row(&o, "CuttingOver");
    let opens = [Action::Unfence {
        at: b(TO),
        shards: set(&[(4, 5)]),
    }];
    o.policy.window = false;
    does(&o, "FenceAhead", &opens);
    o.policy.window = true;
    at(&mut o, b(TO)).shut = o.placed(&o.record.moves[0], End::From);
    row(&o, "CuttingOver");
    at(&mut o, b(TO)).shut = moving();
    wish(&mut o, &set(&[(6, 7)]), &set(&[(4, 5)]));
    let d = row(&o, "FenceAhead");
    assert!(d.actions.contains(&opens[0]), "{d:?}");
    // The wish was taken back, and what is left stays.
    let mut o = moved(&[(4, 5)]);
    wish(&mut o, &set(&[(6, 7)]), &set(&[(4, 5)]));
    let shards = set(&[(6, 7)]);
    does(&o, "FenceAhead", &[Action::Unfence { at: b(FROM), shards }]);
}
