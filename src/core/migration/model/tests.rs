//! The searches: with everything in place nothing is found; with one safeguard out, always.

use super::{
    broken::Broken,
    explore::{Report, explore},
    safeguards::Without,
    world::{Budget, Op, World},
};

/// No search is larger.
const LIMIT: usize = 8_000_000;

/// One operator, one commit, and so many faults of all kinds that are named.
fn one(faults: u8) -> Budget {
    Budget {
        operators: 1,
        faults,
        commits: 1,
        ..Budget::default()
    }
}

fn two(faults: u8) -> Budget {
    Budget {
        operators: 2,
        ..one(faults)
    }
}

/// Some of each kind.
fn all_kinds(b: Budget) -> Budget {
    Budget {
        crashes: b.faults,
        cuts: b.faults,
        failovers: b.faults,
        wishes: b.faults,
        breaks: b.faults,
        narrowed: b.faults,
        strange_rows: b.faults,
        moments: b.faults,
        lost_writes: b.faults,
        ..b
    }
}

fn search(name: &str, start: World, without: Without) -> Report {
    let r = explore(start, without, LIMIT);
    println!(
        "{name}: {} worlds, {} transitions, {} moves deep, {} situations decided upon",
        r.states, r.transitions, r.depth, r.views
    );
    if let Some((b, path)) = &r.broken {
        println!("  {b:?}:\n    {}", path.join("\n    "));
    }
    assert!(r.states < LIMIT, "{name}: the search was cut short");
    r
}

#[track_caller]
fn holds(name: &str, start: World) {
    let r = search(name, start, Without::Nothing);
    assert_eq!(r.broken.map(|(b, _)| b), None, "{name}");
}

/// Without commits, and with the old copies kept for ever.
fn short(b: Budget) -> Budget {
    Budget {
        commits: 0,
        keeps: true,
        ..b
    }
}

fn crash(b: Budget) -> Budget {
    Budget {
        crashes: b.faults,
        ..b
    }
}

fn failover(b: Budget) -> Budget {
    Budget {
        failovers: b.faults,
        ..b
    }
}

/// A failover, after which the former active server is made anew from the new one.
fn rebuild(b: Budget) -> Budget {
    Budget {
        rebuilds: 1,
        ..failover(b)
    }
}

fn wish(b: Budget) -> Budget {
    Budget {
        wishes: b.faults,
        ..b
    }
}

#[test]
fn one_operator_and_any_fault() {
    holds("from the beginning", World::begun(2, all_kinds(one(1))));
    holds("copies are compared", World::seeded(1, all_kinds(one(1))));
}

#[test]
fn one_operator_and_any_fault_afterwards() {
    holds("the way back", World::returning(1, all_kinds(one(1))));
    holds("the end", World::arrived(all_kinds(one(1))));
}

#[test]
fn one_operator_and_two_faults() {
    holds("two crashes", World::verified(2, short(crash(one(2)))));
    holds("two failovers", World::verified(2, short(failover(one(2)))));
    let start = World::verified(2, short(crash(failover(one(2)))));
    holds("a crash and a failover", start);
    holds("the wish goes back and forth", World::verified(1, wish(one(2))));
    holds("a server is made anew", World::verified(1, rebuild(one(1))));
    holds(
        "a server is made anew, afterwards",
        World::arrived(rebuild(one(1))),
    );
}

#[test]
fn two_operators_one_of_them_late() {
    holds(
        "two operators, a failover",
        World::verified(2, short(failover(two(1)))),
    );
    holds("two operators, a crash", World::verified(2, short(crash(two(1)))));
    holds(
        "two operators, another wish",
        World::verified(2, short(wish(two(1)))),
    );
    let cut = Budget { cuts: 1, ..two(1) };
    holds("two operators, a partition", World::verified(2, short(cut)));
    let lost = Budget {
        lost_writes: 1,
        ..two(1)
    };
    holds("two operators, a lost answer", World::verified(2, short(lost)));
    let commit = Budget {
        keeps: true,
        ..two(0)
    };
    holds("two operators, a commit", World::verified(1, commit));
    holds(
        "two operators, from the beginning",
        World::begun(2, short(two(0))),
    );
    let end = |b| Budget { commits: 0, ..b };
    holds("two operators, the end, a partition", World::arrived(end(cut)));
    holds(
        "two operators, the end, a failover",
        World::arrived(end(failover(two(1)))),
    );
    holds(
        "two operators, the end, another wish",
        World::arrived(end(wish(two(1)))),
    );
}

/// Many minutes, and a few GB: with `SHARDWRIGHT_EXPLORE_FURTHER=1`, as `make test-full` has it.
#[test]
fn further() {
    // Asked for when this is compiled: the rooms of the core read no environment.
    if option_env!("SHARDWRIGHT_EXPLORE_FURTHER").is_none() {
        return;
    }
    let both = |b: Budget| crash(failover(b));
    holds("a crash, a failover, a commit", World::verified(2, both(one(2))));
    holds(
        "the way back, a crash and a failover",
        World::returning(1, both(one(2))),
    );
    holds("wishes and failovers", World::verified(2, wish(failover(one(2)))));
    holds("any two faults", World::verified(2, all_kinds(short(one(2)))));
    holds(
        "two operators, any fault",
        World::verified(2, all_kinds(short(two(1)))),
    );
    let commit = Budget {
        keeps: true,
        ..two(1)
    };
    holds(
        "two operators, a failover, a commit",
        World::verified(2, failover(commit)),
    );
    holds(
        "two operators, from the beginning, a failover",
        World::begun(2, short(failover(two(1)))),
    );
}

/// Without this safeguard the search finds that broken.
#[track_caller]
fn needs(without: Without, start: World, rule: Broken) {
    let r = search(&format!("without {without:?}"), start, without);
    let (found, path) = r.broken.unwrap_or_else(|| panic!("nobody misses {without:?}"));
    assert_eq!(found, rule, "without {without:?}: {path:#?}");
}

#[test]
fn a_batch_goes_over_whole_or_not_at_all() {
    let start = World::verified(1, one(0));
    needs(Without::Fence, start, Broken::WritableElsewhere);
    needs(Without::Reach, start, Broken::Unequal);
    needs(Without::CutOverFirst, start, Broken::WritableElsewhere);
    let start = World::verified(2, failover(one(1)));
    needs(Without::ConfirmPairs, start, Broken::WritableElsewhere);
    needs(Without::ConfirmEarly, start, Broken::Unequal);
    needs(Without::ReadAfterRecord, start, Broken::WritableElsewhere);
    let mut start = start;
    start.pairs[0].servers[1].shut = 0;
    needs(Without::DefaultClosed, start, Broken::WritableElsewhere);
}

#[test]
fn a_late_operator_is_kept_out() {
    let start = World::verified(2, two(0));
    needs(Without::Cas, start, Broken::WritableElsewhere);
    needs(Without::Number, start, Broken::WritableElsewhere);
    needs(Without::Lock, start, Broken::WritableElsewhere);
    needs(Without::Confirm, start, Broken::WritableElsewhere);
    needs(Without::UndoFirst, start, Broken::WritableElsewhere);
    let start = World::begun(2, short(two(0)));
    needs(Without::SeedLocks, start, Broken::SeededServed);
}

#[test]
fn what_differs_is_not_cut_over() {
    let strange = Budget {
        strange_rows: 1,
        ..one(1)
    };
    let start = World::seeded(2, strange);
    needs(Without::Verification, start, Broken::Unequal);
    needs(Without::Unknown, start, Broken::Unequal);
    let mut later = World::verified(2, strange);
    later.ops = [Op::default(); 2];
    holds("copies are changed later", later);
    needs(Without::Recheck, later, Broken::Unequal);
    let moment = Budget {
        moments: 1,
        faults: 2,
        ..strange
    };
    holds("a moment passes", World::verified(1, moment));
    let narrowed = Budget {
        narrowed: 1,
        ..one(1)
    };
    let start = World::verified(2, narrowed);
    needs(Without::FilterChecked, start, Broken::Unequal);
    needs(Without::Unverified, start, Broken::Unequal);
}

#[test]
fn nothing_is_dropped_that_is_needed() {
    let start = World::verified(2, wish(one(2)));
    needs(Without::Unserved, start, Broken::DroppedServed);
    needs(
        Without::ChannelsFirst,
        World::arrived(one(0)),
        Broken::DroppedWithChannel,
    );
    let start = World::arrived(crash(one(1)));
    needs(Without::Seen, start, Broken::DroppedWithChannel);
    let late = Budget { commits: 0, ..two(1) };
    let start = World::arrived(failover(late));
    needs(Without::Unlinked, start, Broken::DroppedWithChannel);
}

#[test]
fn everything_comes_to_rest_and_no_channel_acknowledges() {
    let start = World::verified(2, failover(one(1)));
    needs(Without::LockedOut, start, Broken::AcknowledgesForAnother);
    needs(Without::Repointed, start, Broken::NeverSettles);
    needs(Without::Opens, start, Broken::NeverSettles);
    needs(Without::PairsOpen, start, Broken::NeverSettles);
    let start = World::verified(1, rebuild(one(1)));
    needs(Without::Purged, start, Broken::NeverSettles);
    needs(Without::Passive, World::begun(2, one(0)), Broken::NeverSettles);
}
