//! Before, after, and the ends of it.

use super::{retaining as retained, *};

#[test]
fn gone() {
    let mut o = following();
    o.record.moves.clear();
    does(&o, "Gone", &[]);
}

#[test]
fn work_left() {
    let seeding = [
        None,
        Some(SeedRun {
            shards: moving(),
            outcome: SeedOutcome::Running { bytes: 0, of: 0 },
        }),
    ];
    let verifying = [None, Some(compared(VerifyOutcome::Equal, 0))];
    let mut o = verified();
    o.seeding = seeding;
    does(&o, "WorkLeft", &[Action::StopWork]);
    o.record.moves.clear();
    does(&o, "WorkLeft", &[Action::StopWork]);
    let mut o = cleaning();
    o.verifying = verifying;
    does(&o, "WorkLeft", &[Action::StopWork]);
}

/// Abort, in each stage.
#[test]
fn not_wanted() {
    for mut o in [begun(), following(), verified()] {
        wish(&mut o, &moving(), &SpanSet::new());
        at(&mut o, b(FROM)).shut = SpanSet::new();
        does(&o, "NotWanted", &record(Change::CleanUp));
        // Nor is it when it is wished at a third pair, or at one that is being deleted.
        wish(&mut o, &SpanSet::new(), &SpanSet::new());
        does(&o, "NotWanted", &record(Change::CleanUp));
    }
    // With a shard over there, it first goes back.
    let mut o = moved(&[(4, 4)]);
    wish(&mut o, &moving(), &SpanSet::new());
    at(&mut o, b(TO)).shut = moving();
    at(&mut o, b(FROM)).shut = set(&[(4, 4)]);
    row(&o, "CuttingOver");
}

#[test]
fn superseded() {
    let mut o = moved(&[MOVING]);
    wish(&mut o, &SpanSet::new(), &set(&[(4, 6)]));
    does(&o, "Superseded", &record(Change::CleanUp));
    turn(&mut o, &Change::Retain { until: now() });
    o.course.early = Some(Early::PairLeaves);
    does(&o, "Superseded", &record(Change::CleanUp));
    // What goes over this link goes first.
    let mut o = moved(&[(4, 4)]);
    wish(&mut o, &SpanSet::new(), &set(&[(5, 7)]));
    row(&o, "CuttingOver");
}

/// A range is replaced by another one in one commit.
#[test]
fn undecided() {
    let mut o = moved(&[MOVING]);
    o.course.undecided = set(&[(6, 7)]);
    let d = row(&o, "Undecided");
    assert!(d.actions.is_empty() && d.overall.message().contains("6-7"));
    // The way back stays open for longer than it had to.
    let mut o = retained();
    o.record.moves[0].retain_until.as_mut().unwrap().0 = now();
    o.course.undecided = set(&[(6, 7)]);
    row(&o, "Retaining");
    // What is decided goes.
    let mut o = verified();
    o.course.forward = set(&[(4, 5)]);
    o.course.undecided = set(&[(6, 7)]);
    at(&mut o, b(FROM)).shut = set(&[(4, 5)]);
    row(&o, "CuttingOver");
}

#[test]
fn pair_missing() {
    let mut o = moved(&[(4, 4)]);
    o.ends[1].exists = false;
    at(&mut o, b(FROM)).shut = set(&[(4, 4)]);
    does(&o, "PairMissing", &[]);
}

#[test]
fn arrived() {
    let mut o = moved(&[MOVING]);
    let until = now() + SignedDuration::from_hours(24);
    does(&o, "Arrived", &record(Change::Retain { until }));
    // Half of it was called back before it went.
    o = moved(&[(4, 5)]);
    wish(&mut o, &set(&[(6, 7)]), &set(&[(4, 5)]));
    at(&mut o, b(FROM)).shut = set(&[(4, 5)]);
    row(&o, "Arrived");
}

#[test]
fn resuming() {
    let mut o = retained();
    wish(&mut o, &moving(), &SpanSet::new());
    does(&o, "Resuming", &record(Change::Resume));
}

#[test]
fn retention_over() {
    let mut o = retained();
    o.record.moves[0].retain_until.as_mut().unwrap().0 = now();
    does(&o, "RetentionOver", &record(Change::CleanUp));
    let mut o = retained();
    o.policy.retain_no_longer = true;
    does(&o, "RetentionOver", &record(Change::CleanUp));
}

#[test]
fn retaining() {
    let o = retained();
    let d = row(&o, "Retaining");
    assert!(d.overall.is_ready() && d.actions.is_empty());
    // The old copies go on following.
    let mut o = retained();
    at(&mut o, a(FROM)).channel = None;
    row(&o, "ChannelMissing");
}

#[test]
fn others_copy() {
    // Whatever is left to do would take a lock that is held for those copies.
    for end in [FROM, TO] {
        let mut o = cleaning();
        o.memory.others_copy = Some(end);
        does(&o, "OthersCopy", &[]);
        // But nothing that is served stays shut for that.
        at(&mut o, a(TO)).shut = moving();
        row(&o, "FenceLeft");
        let mut o = super::retaining();
        o.memory.others_copy = Some(end);
        row(&o, "Retaining");
    }
}

#[test]
fn channel_left() {
    let mut o = cleaning();
    at(&mut o, a(FROM)).channel = Some(channel());
    at(&mut o, b(TO)).channel = Some(channel());
    let steps = [Action::RemoveChannel(a(FROM)), Action::RemoveChannel(b(TO))];
    does(&o, "ChannelLeft", &steps);
}

#[test]
fn unseen() {
    for place in Observed::places() {
        let mut o = cleaning();
        end(&mut o, place.end).servers[place.server] = None;
        let d = row(&o, "Unseen");
        assert!(d.actions.is_empty() && d.overall.message().contains(&o.pod(place)));
    }
}

fn unlinked(places: &[Place]) -> Action {
    Action::Unlinked(places.to_vec())
}

#[test]
fn dropping() {
    let drop = |at, shards: &[(i32, i32)]| Action::Drop {
        at,
        shards: set(shards),
    };
    let all = unlinked(&Observed::places());
    let steps = [all.clone(), drop(a(FROM), &[MOVING]), drop(b(FROM), &[MOVING])];
    does(&cleaning(), "Dropping", &steps);
    // A physically seeded pair has what did not move, too; a few at a time.
    let mut o = cleaning();
    o.record.moves[0].seed = Seed::Physical;
    (at(&mut o, a(TO)).has, at(&mut o, a(TO)).shut) = (set(&[(0, 9)]), set(&[(0, 3)]));
    for place in [a(FROM), b(FROM)] {
        at(&mut o, place).has = set(&[(0, 3)]);
    }
    does(&o, "Dropping", &[all, drop(a(TO), &[(0, 3)])]);
    // What another move has brought there is none of this one's business.
    let other = moves::begin_move(&o.record, "p0", "p1", &set(&[(0, 1)]), Seed::PerDatabase);
    assert!(other.is_err(), "there is one move between two pairs");
    at(&mut o, a(TO)).has = set(&[(4, 9)]);
    row(&o, "Over");
    // One pair is not there any more.
    let mut o = cleaning();
    o.ends[0].exists = false;
    row(&o, "Over");
}

#[test]
fn pair_opening() {
    let mut o = cleaning();
    for place in [a(FROM), b(FROM)] {
        at(&mut o, place).has = set(&[(0, 3)]);
    }
    end(&mut o, TO).ready = false;
    does(&o, "PairOpening", &[]);
}

#[test]
fn over() {
    let mut o = cleaning();
    for place in [a(FROM), b(FROM)] {
        at(&mut o, place).has = set(&[(0, 3)]);
    }
    let steps = [unlinked(&Observed::places()), Action::Record(Change::EndMove)];
    does(&o, "Over", &steps);
}

/// A transition that is decided upon is always one that the record allows.
#[test]
fn what_is_decided_can_be_recorded() {
    let all = [
        begun(),
        following(),
        verified(),
        moved(&[(4, 5)]),
        retained(),
        cleaning(),
    ];
    for mut o in all {
        for _ in 0..4 {
            let d = decide(&o, now());
            for action in &d.actions {
                if let Action::Record(change) = action {
                    turn(&mut o, change);
                }
            }
        }
    }
}
