//! Seeding, channels, verification.

use super::*;

fn seeds(outcome: SeedOutcome) -> Observed {
    let mut o = begun();
    o.seeding[1] = Some(SeedRun {
        shards: moving(),
        outcome,
    });
    o
}

#[test]
fn seed_due() {
    let seed = Action::Seed {
        into: TO,
        shards: moving(),
    };
    does(&begun(), "SeedDue", std::slice::from_ref(&seed));
    // A try that failed long ago.
    let failed = SeedOutcome::Failed {
        error: "gone".into(),
        tries: tried(1, 6),
    };
    does(&seeds(failed), "SeedDue", &[seed]);
    // Part of it is there already.
    let mut o = begun();
    turn(
        &mut o,
        &Change::Seeded {
            shards: set(&[(4, 5)]),
            gtid: gtids(5),
        },
    );
    let rest = set(&[(6, 7)]);
    for place in [a(TO), b(TO)] {
        (at(&mut o, place).has, at(&mut o, place).shut) = (set(&[(4, 5), (8, 9)]), set(&[(4, 5)]));
    }
    does(
        &o,
        "SeedDue",
        &[Action::Seed {
            into: TO,
            shards: rest,
        }],
    );
}

/// Two ranges change places: each copy is made at the end where it is not.
#[test]
fn shards_that_go_the_opposite_way_are_copied_there() {
    let mut o = begun();
    o.record.moves.clear();
    let both = set(&[MOVING, (8, 9)]);
    o.record = moves::begin_move(&o.record, "p0", "p1", &both, Seed::PerDatabase).unwrap();
    (o.course.forward, o.course.back) = (moving(), set(&[(8, 9)]));
    let into = |into, shards| Action::Seed { into, shards };
    does(&o, "SeedDue", &[into(TO, moving())]);
    turn(
        &mut o,
        &Change::Seeded {
            shards: moving(),
            gtid: gtids(5),
        },
    );
    for place in [a(TO), b(TO)] {
        (at(&mut o, place).has, at(&mut o, place).shut) = (both.clone(), moving());
    }
    does(&o, "SeedDue", &[into(FROM, set(&[(8, 9)]))]);
}

#[test]
fn seed_waits() {
    for end_ in [FROM, TO] {
        let mut o = begun();
        end(&mut o, end_).two_members = false;
        does(&o, "SeedWaits", &[]);
        let mut o = begun();
        end(&mut o, end_).servers[1] = None;
        does(&o, "SeedWaits", &[]);
        let mut o = begun();
        end(&mut o, end_).ready = false;
        does(&o, "SeedWaits", &[]);
    }
}

#[test]
fn seeding() {
    let d = row(&seeds(SeedOutcome::Running { bytes: 5, of: 9 }), "Seeding");
    assert!(d.actions.is_empty() && d.overall.message().contains("5 of 9 bytes"));
}

#[test]
fn seeded() {
    let mut o = seeds(SeedOutcome::Done { gtid: gtids(9) });
    // One of the two has nothing: it was made anew meanwhile.
    row(&o, "SeedDue");
    for place in [a(TO), b(TO)] {
        at(&mut o, place).has = set(&[(4, 9)]);
    }
    let shards = moving();
    does(
        &o,
        "Seeded",
        &record(Change::Seeded {
            shards,
            gtid: gtids(9),
        }),
    );
}

#[test]
fn seed_failed() {
    let error = "connection lost".to_owned();
    let tries = tried(1, 3);
    does(&seeds(SeedOutcome::Failed { error, tries }), "SeedFailed", &[]);
}

#[test]
fn seed_refused() {
    let why = "table t has no primary key".to_owned();
    let d = row(&seeds(SeedOutcome::Refused { why }), "SeedRefused");
    assert!(d.overall.message().contains("no primary key"));
}

#[test]
fn all_seeded() {
    let mut o = following();
    o.record.moves[0].stage = MoveStage::Seeding;
    does(&o, "AllSeeded", &record(Change::Follow));
}

#[test]
fn channel_missing() {
    for into in [TO, FROM] {
        let mut o = following();
        at(&mut o, a(into)).channel = None;
        let point = Action::Point {
            at: a(into),
            source: b(into.other()),
            filter: moving(),
        };
        does(&o, "ChannelMissing", std::slice::from_ref(&point));
        // One that was stopped because it led elsewhere.
        for leads_to in [Some(0), None] {
            at(&mut o, a(into)).channel = Some(ChannelSeen {
                leads_to,
                started: false,
                runs: false,
                ..channel()
            });
            does(&o, "ChannelMissing", std::slice::from_ref(&point));
        }
    }
}

/// After a failover of the source the channel leads to the active server, and is pointed at the other one when that follows.
#[test]
fn channel_astray() {
    let mut o = following();
    end(&mut o, FROM).active = 1;
    at(&mut o, a(FROM)).channel = None;
    does(&o, "ChannelAstray", &[Action::StopChannel(a(TO))]);
    let c = at(&mut o, a(TO)).channel.as_mut().unwrap();
    (c.started, c.runs) = (false, false);
    row(&o, "SourceMissing");
    (at(&mut o, a(FROM)).follows, at(&mut o, b(FROM)).follows) = (true, false);
    let point = Action::Point {
        at: a(TO),
        source: a(FROM),
        filter: moving(),
    };
    does(&o, "ChannelMissing", &[point]);
}

/// After a failover of the target the channel is on what is the passive server now.
#[test]
fn channel_misplaced() {
    let mut o = following();
    end(&mut o, TO).active = 1;
    does(&o, "ChannelMisplaced", &[Action::RemoveChannel(a(TO))]);
}

#[test]
fn channel_stopped() {
    let mut o = following();
    let c = at(&mut o, a(TO)).channel.as_mut().unwrap();
    // As a restart leaves it: without a filter.
    (c.started, c.runs, c.filter) = (false, false, None);
    let start = Action::StartChannel {
        at: a(TO),
        filter: moving(),
    };
    does(&o, "ChannelStopped", &[start]);
}

#[test]
fn channel_connecting() {
    let mut o = following();
    at(&mut o, a(FROM)).channel.as_mut().unwrap().runs = false;
    does(&o, "ChannelConnecting", &[]);
}

#[test]
fn filter_lost() {
    for filter in [None, Some(set(&[(4, 6)])), Some(set(&[(4, 8)]))] {
        let mut o = following();
        at(&mut o, a(TO)).channel.as_mut().unwrap().filter = filter.clone();
        does(&o, "FilterLost", &[Action::StopChannel(a(TO))]);
        let mut o = verified();
        at(&mut o, a(TO)).channel.as_mut().unwrap().filter = filter;
        let unverified = Action::Record(Change::Unverified(moving()));
        let steps = [Action::StopWork, unverified, Action::StopChannel(a(TO))];
        does(&o, "FilterLost", &steps);
    }
}

#[test]
fn channel_broken() {
    let mut o = verified();
    o.verifying[0] = Some(compared(VerifyOutcome::Equal, 0));
    let c = at(&mut o, a(TO)).channel.as_mut().unwrap();
    (c.started, c.runs, c.error) = (false, false, Some((1032, "no such row".into())));
    let start = Action::StartChannel {
        at: a(TO),
        filter: moving(),
    };
    let unverified = Action::Record(Change::Unverified(moving()));
    does(
        &o,
        "ChannelBroken",
        &[Action::StopWork, unverified, start.clone()],
    );
    turn(&mut o, &Change::Unverified(moving()));
    (o.verifying, at(&mut o, b(FROM)).shut) = ([None, None], SpanSet::new());
    o.memory.broken_since[1] = Some(ago(60));
    does(&o, "ChannelBroken", &[start]);
    o.memory.broken_since[1] = Some(ago(61));
    assert!(matches!(decide(&o, now()).overall, Overall::Stalled { .. }));
}

#[test]
fn logs_purged() {
    let mut o = following();
    let c = at(&mut o, a(TO)).channel.as_mut().unwrap();
    (c.started, c.runs, c.error) = (false, false, Some((13114, "purged".into())));
    at(&mut o, b(FROM)).purged = gtids(10);
    row(&o, "ChannelBroken");
    // It was made anew from the active one, which has written meanwhile.
    at(&mut o, b(FROM)).purged = gtids(11);
    does(&o, "LogsPurged", &record(Change::CleanUp));
    at(&mut o, a(TO)).channel = None;
    does(&o, "LogsPurged", &record(Change::CleanUp));
    at(&mut o, b(FROM)).follows = false;
    row(&o, "SourceMissing");
    // Nothing at the source has come from the target yet.
    let mut o = following();
    at(&mut o, a(FROM)).channel = None;
    at(&mut o, b(TO)).purged = gtids(11);
    row(&o, "NotCounted");
    let mut o = moved(&[(4, 4)]);
    at(&mut o, a(FROM)).channel = None;
    at(&mut o, b(TO)).purged = gtids(11);
    row(&o, "LogsPurged");
}

#[test]
fn source_missing() {
    let mut o = following();
    at(&mut o, a(TO)).channel = None;
    at(&mut o, b(FROM)).follows = false;
    does(&o, "SourceMissing", &[]);
    end(&mut o, FROM).servers[1] = None;
    does(&o, "SourceMissing", &[]);
}

#[test]
fn not_counted() {
    let mut o = following();
    at(&mut o, a(FROM)).channel = None;
    o.record.moves[0].opposite_gtid = String::new();
    let gtid = gtids(10);
    let count = Action::Count {
        end: FROM,
        gtid: gtid.clone(),
    };
    let counted = Action::Record(Change::Counted { end: FROM, gtid });
    does(&o, "NotCounted", &[count, counted]);
    // With a shard over there it may have what nobody else has.
    let mut o = moved(&[(4, 4)]);
    at(&mut o, a(FROM)).channel = None;
    o.record.moves[0].opposite_gtid = String::new();
    row(&o, "ChannelMissing");
    // What the old home has from others, and has no longer, is in no copy over here: all shards of the move are served here.
    let mut o = retaining();
    at(&mut o, a(TO)).channel = None;
    let old = at(&mut o, b(FROM));
    (old.executed, old.purged) = (gtids(12), gtids(12));
    row(&o, "NotCounted");
}

fn compares(outcome: VerifyOutcome) -> Observed {
    let mut o = following();
    o.verifying[1] = Some(compared(outcome, 0));
    o
}

#[test]
fn verify_due() {
    let verify = |at, shards| Action::Verify { at, shards };
    does(&following(), "VerifyDue", &[verify(TO, moving())]);
    // One that was made of the copies of an earlier move proves nothing of these.
    let mut o = compares(VerifyOutcome::Equal);
    o.verifying[1].as_mut().unwrap().position = gtids(4);
    does(&o, "VerifyDue", &[verify(TO, moving())]);
    // Nor does one of a part of the rows, nor one that the binary logs do not tell it to.
    for outcome in [
        VerifyOutcome::Equal,
        VerifyOutcome::Untold { why: "purged".into() },
    ] {
        o.verifying[1] = Some(short(outcome, 0));
        does(&o, "VerifyDue", &[verify(TO, moving())]);
    }
    // The way back, after the channel there was broken.
    let mut o = moved(&[MOVING]);
    turn(&mut o, &Change::Unverified(set(&[(6, 6)])));
    o.verifying = [None, None];
    wish(&mut o, &moving(), &SpanSet::new());
    at(&mut o, b(TO)).shut = set(&[(4, 5), (7, 7)]);
    does(&o, "VerifyDue", &[verify(FROM, set(&[(6, 6)]))]);
}

/// Nothing is cut over that was found different by now, or can't be told any more: on record first, then a person is told, or all is compared.
#[test]
fn doubted() {
    let different = || VerifyOutcome::Different {
        shards: set(&[(5, 5)]),
        tables: vec!["db00005.pins".into()],
    };
    let mut o = verified();
    o.verifying[1] = Some(short(different(), 0));
    // Whatever is waited for.
    o.policy.window = false;
    does(&o, "Doubted", &record(Change::Unverified(set(&[(5, 5)]))));
    turn(&mut o, &Change::Unverified(set(&[(5, 5)])));
    at(&mut o, b(FROM)).shut = SpanSet::new();
    let d = row(&o, "Different");
    assert!(d.overall.message().contains("shards 5 differ in db00005.pins"));
    o.policy.verify_again = true;
    row(&o, "VerifyDue");
    let mut o = verified();
    let why = "purged".to_owned();
    o.verifying[1] = Some(short(VerifyOutcome::Untold { why }, 0));
    does(&o, "Doubted", &record(Change::Unverified(moving())));
    turn(&mut o, &Change::Unverified(moving()));
    at(&mut o, b(FROM)).shut = SpanSet::new();
    row(&o, "VerifyDue");
    // What goes nowhere is in nobody's way.
    let mut o = moved(&[(4, 5)]);
    o.verifying[1] = Some(short(different(), 0));
    row(&o, "RecheckDue");
}

#[test]
fn verifying() {
    let d = row(
        &compares(VerifyOutcome::Running { tables: 3, of: 12 }),
        "Verifying",
    );
    assert!(d.actions.is_empty() && d.overall.message().contains("3 of 12 tables"));
}

#[test]
fn equal() {
    let o = compares(VerifyOutcome::Equal);
    does(&o, "Equal", &record(Change::Verified(moving())));
}

#[test]
fn different() {
    let mut o = compares(VerifyOutcome::Different {
        shards: set(&[(5, 5)]),
        tables: vec!["db00005.pins".into()],
    });
    let d = row(&o, "Different");
    assert!(d.actions.is_empty() && d.overall.message().contains("shards 5 differ in db00005.pins"));
    o.policy.verify_again = true;
    row(&o, "VerifyDue");
}

/// R4: a lost connection is "unknown", never "equal".
#[test]
fn not_verified() {
    let unknown = |tries| VerifyOutcome::Unknown {
        error: "connection lost".into(),
        tries,
    };
    does(&compares(unknown(tried(1, 4))), "NotVerified", &[]);
    row(&compares(unknown(tried(1, 5))), "VerifyDue");
    does(&compares(unknown(tried(2, 9))), "NotVerified", &[]);
}

#[test]
fn pair_not_ready() {
    for end_ in [FROM, TO] {
        let mut o = verified();
        end(&mut o, end_).ready = false;
        does(&o, "PairNotReady", &[]);
        let mut o = verified();
        end(&mut o, end_).two_members = false;
        does(&o, "PairNotReady", &[]);
    }
    // A passive server that is away keeps its channel's place.
    let mut o = verified();
    end(&mut o, TO).servers[1] = None;
    does(&o, "PairNotReady", &[]);
}
