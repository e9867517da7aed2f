//! The searches: with everything in place nothing is found; with one safeguard out, always.

use super::{
    broken::Broken,
    explore::{Report, explore},
    safeguards::Without,
    world::{Budget, World},
};

/// No search is larger.
const LIMIT: usize = 30_000_000;

/// One operator, one commit, and so many faults of all kinds but those that it does not name.
fn one_operator(faults: u8) -> Budget {
    Budget {
        operators: 1,
        faults,
        commits: 1,
        ..Budget::default()
    }
}

/// As many of each kind as there may be at all.
fn all_kinds(b: Budget) -> Budget {
    Budget {
        crashes: 2,
        pauses: 1,
        cuts: 1,
        disk_losses: 1,
        node_losses: 1,
        pod_deletions: 1,
        wishes: 1,
        purges: 1,
        kills: 1,
        ..b
    }
}

/// Shards move to or from the pair.
fn moving(b: Budget) -> Budget {
    Budget { moving: true, ..b }
}

/// It serves nothing, and another pair is to be cloned over it, until the move is given up.
fn cloned_over(b: Budget) -> Budget {
    Budget {
        blank: true,
        aborts: 1,
        ..moving(b)
    }
}

fn two_operators(faults: u8) -> Budget {
    Budget {
        operators: 2,
        ..one_operator(faults)
    }
}

fn search(name: &str, start: World, without: Without) -> Report {
    let r = explore(start, without, LIMIT);
    println!(
        "{name}: {} states, {} transitions, {} moves deep, {} situations decided upon",
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

#[test]
fn one_operator_and_any_fault() {
    holds("any fault", World::healthy(all_kinds(one_operator(1))));
    let crashes = Budget {
        crashes: 2,
        ..one_operator(2)
    };
    holds("two crashes", World::healthy(crashes));
    let cut = Budget {
        crashes: 1,
        cuts: 1,
        ..one_operator(2)
    };
    holds("a crash and a partition", World::healthy(cut));
    let disk = Budget {
        crashes: 1,
        disk_losses: 1,
        ..one_operator(2)
    };
    holds("a crash and a lost volume", World::healthy(disk));
}

/// The steps that moves add lie between the others, each may be the last one of an operator, and another pair takes from whoever lets it.
#[test]
fn a_pair_that_shards_move_to_or_from() {
    let any = all_kinds(one_operator(1));
    holds("shards move, any fault", World::healthy(moving(any)));
}

/// Its passive server is overwritten, and takes over from the active one, which has nothing of anyone's; then that one is copied.
#[test]
fn a_pair_that_another_one_is_cloned_over() {
    let b = Budget {
        crashes: 1,
        cuts: 1,
        ..one_operator(1)
    };
    holds("cloned over", World::healthy(cloned_over(b)));
    holds(
        "cloned over, two operators",
        World::healthy(cloned_over(two_operators(0))),
    );
}

#[test]
fn from_the_first_start_on() {
    let b = Budget {
        crashes: 1,
        disk_losses: 1,
        cuts: 1,
        ..one_operator(1)
    };
    holds("first start", World::fresh(b));
}

#[test]
fn two_operators_one_of_them_late() {
    let cut = Budget {
        cuts: 1,
        ..two_operators(1)
    };
    holds("two operators, a partition", World::healthy(cut));
    let wish = Budget {
        wishes: 1,
        ..two_operators(1)
    };
    holds("two operators, a switchover", World::healthy(wish));
}

/// Minutes, and a few GB: with `SHARDWRIGHT_EXPLORE_FURTHER=1`, as `make test-full` has it.
#[test]
fn further() {
    // Asked for when this is compiled: the rooms of the core read no environment.
    if option_env!("SHARDWRIGHT_EXPLORE_FURTHER").is_none() {
        return;
    }
    let any = cloned_over(all_kinds(one_operator(1)));
    holds("cloned over, any fault", World::healthy(any));
    let two = cloned_over(two_operators(0));
    holds("cloned over, two operators and a client", World::healthy(two));
    holds("any two faults", World::healthy(all_kinds(one_operator(2))));
    let three = Budget {
        crashes: 2,
        cuts: 1,
        disk_losses: 1,
        ..one_operator(3)
    };
    holds("three faults", World::healthy(three));
    holds("first start, any fault", World::fresh(all_kinds(one_operator(1))));
    let two = two_operators(1);
    let wish = moving(Budget { wishes: 1, ..two });
    holds("shards move, two operators, a switchover", World::healthy(wish));
    for (name, b) in [
        ("a crash", Budget { crashes: 1, ..two }),
        ("a pause", Budget { pauses: 1, ..two }),
        (
            "a lost volume",
            Budget {
                disk_losses: 1,
                ..two
            },
        ),
        (
            "a deleted Pod",
            Budget {
                pod_deletions: 1,
                ..two
            },
        ),
        (
            "a lost node",
            Budget {
                node_losses: 1,
                ..two
            },
        ),
    ] {
        holds(&format!("two operators, {name}"), World::healthy(b));
    }
    let first = Budget { crashes: 1, ..two };
    holds("two operators, first start, a crash", World::fresh(first));
}

/// Without this safeguard the search finds that broken.
#[track_caller]
fn needs(without: Without, start: World, rule: Broken) {
    let r = search(&format!("without {without:?}"), start, without);
    let (found, path) = r.broken.unwrap_or_else(|| panic!("nobody misses {without:?}"));
    assert_eq!(found, rule, "without {without:?}: {path:#?}");
}

fn crash_or_cut(faults: u8) -> Budget {
    Budget {
        crashes: 2,
        cuts: 1,
        ..one_operator(faults)
    }
}

#[test]
fn the_record_comes_first_and_is_compared() {
    let two = Budget {
        cuts: 1,
        ..two_operators(1)
    };
    needs(Without::Cas, World::healthy(two), Broken::EpochFell);
    needs(
        Without::RecordFirst,
        World::healthy(crash_or_cut(1)),
        Broken::MemberLacks,
    );
    needs(
        Without::LeaveFirst,
        World::healthy(crash_or_cut(1)),
        Broken::MemberLacks,
    );
    needs(Without::RecordAgain, World::healthy(two), Broken::MemberLacks);
}

#[test]
fn a_late_operator_is_kept_out() {
    let two = Budget {
        cuts: 1,
        ..two_operators(1)
    };
    needs(Without::Lock, World::healthy(two), Broken::MemberLacks);
    needs(Without::LocksFirst, World::healthy(two), Broken::MemberLacks);
    let both = Budget {
        crashes: 1,
        ..two_operators(2)
    };
    needs(
        Without::Confirm,
        World::healthy(Budget { cuts: 1, ..both }),
        Broken::TwoAcknowledge,
    );
    let wish = Budget {
        wishes: 1,
        ..two_operators(1)
    };
    needs(Without::SwitchoverApplies, World::healthy(wish), Broken::Lost);
    needs(
        Without::OpeningStops,
        World::healthy(wish),
        Broken::TwoAcknowledge,
    );
}

#[test]
fn a_promotion_loses_nothing() {
    let start = World::healthy(crash_or_cut(1));
    needs(Without::StopReceiver, start, Broken::TwoAcknowledge);
    needs(Without::Apply, start, Broken::Lost);
    needs(Without::Membership, start, Broken::MemberLacks);
    needs(Without::OfflineMode, start, Broken::MemberLacks);
    needs(Without::RelayLogKept, start, Broken::MemberLacks);
    needs(Without::KeepRelayLog, start, Broken::Reset);
    needs(Without::BootsClosed, start, Broken::MemberLacks);
    needs(Without::SourceOn, start, Broken::MemberLacks);
}

#[test]
fn nobody_of_another_pair_acknowledges() {
    let start = World::healthy(moving(crash_or_cut(1)));
    needs(Without::Bar, start, Broken::MemberLacks);
}

#[test]
fn nobody_who_has_something_is_given_up_for_a_clone() {
    let start = World::healthy(cloned_over(one_operator(0)));
    needs(Without::GivesUpBlank, start, Broken::MemberLacks);
    let lost = Budget {
        disk_losses: 1,
        ..one_operator(1)
    };
    needs(
        Without::OverwritesBlank,
        World::healthy(cloned_over(lost)),
        Broken::NotSaved,
    );
}

#[test]
fn a_member_keeps_what_it_acknowledged() {
    let crash = Budget {
        crashes: 1,
        commits: 2,
        ..one_operator(1)
    };
    needs(Without::Synced, World::healthy(crash), Broken::MemberLacks);
}

#[test]
fn who_comes_back_is_compared_and_who_joins_has_everything() {
    let start = World::healthy(crash_or_cut(1));
    needs(Without::Comparing, start, Broken::Swallowed);
    needs(Without::FenceAlone, start, Broken::Swallowed);
    needs(Without::SaveErrant, start, Broken::NotSaved);
    let ends = Budget {
        pod_deletions: 1,
        ..crash_or_cut(2)
    };
    needs(Without::CutOffFirst, World::healthy(ends), Broken::MemberLacks);
    needs(Without::KnowsOfCopies, start, Broken::NeverHealthy);
    needs(Without::Reach, start, Broken::MemberLacks);
    needs(Without::Barrier, start, Broken::MemberLacks);
    let node = Budget {
        node_losses: 1,
        commits: 2,
        ..one_operator(1)
    };
    needs(Without::LockOut, World::healthy(node), Broken::MemberLacks);
}

/// No fault is needed for that, only a second operator.
#[test]
fn who_joins_follows_at_that_moment() {
    needs(
        Without::ReachFollows,
        World::fresh(two_operators(0)),
        Broken::MemberLacks,
    );
}
