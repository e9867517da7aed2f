//! Whole pairs: their own controller clones them, and the move waits for it.

use super::*;

/// p0 serves 0 to 7; 4 to 7 are wished at p1, which serves nothing.
fn physical() -> Observed {
    let mut o = begun();
    let p = placement::claim(&Placement::default(), &set(&[(0, 7)]), "p0", Some("r")).unwrap();
    let p = placement::serve(&p, &set(&[(0, 7)]), "p0").unwrap();
    o.record = moves::begin_move(&p, "p0", "p1", &moving(), Seed::Physical).unwrap();
    o.ends[1] = pair([server(&[], &[]), server(&[], &[])]);
    wish(&mut o, &SpanSet::new(), &moving());
    o
}
fn has(o: &mut Observed, all: &[(i32, i32)]) {
    for place in [a(TO), b(TO)] {
        let s = at(o, place);
        (s.has, s.shut) = (set(all), set(all));
    }
}

#[test]
fn cloning() {
    let mut o = physical();
    does(&o, "Cloning", &[]);
    end(&mut o, TO).two_members = false;
    end(&mut o, TO).ready = false;
    end(&mut o, TO).servers[1] = None;
    end(&mut o, TO).clone.running = Some((5, 12));
    let d = row(&o, "Cloning");
    assert!(
        d.actions.is_empty() && d.overall.message().contains("5 of 12 bytes"),
        "{d:?}"
    );
    // One server has everything, open as it was where it comes from: its own pair shuts it before it is opened.
    let mut o = physical();
    end(&mut o, TO).ready = false;
    at(&mut o, a(TO)).has = set(&[(0, 7)]);
    does(&o, "Cloning", &[]);
    // What is being cloned over one pair is no reason to leave another one open.
    at(&mut o, a(FROM)).has = set(&[(0, 9)]);
    let p = placement::claim(&o.record, &set(&[(8, 9)]), "p2", Some("r")).unwrap();
    o.record = placement::serve(&p, &set(&[(8, 9)]), "p2").unwrap();
    row(&o, "FenceMissing");
    // The wish is taken back.
    let mut o = physical();
    wish(&mut o, &moving(), &SpanSet::new());
    does(&o, "NotWanted", &record(Change::CleanUp));
}

#[test]
fn cloned() {
    let mut o = physical();
    has(&mut o, &[(0, 7)]);
    // Of what they have executed themselves the source knows nothing, and a comparison is of what the source has.
    let own: GtidSet = "00000000-0000-0000-0000-00000000000c:1-3".parse().unwrap();
    at(&mut o, a(TO)).executed = gtids(9).union(&own);
    at(&mut o, b(TO)).executed = gtids(8).union(&own);
    let seeded = Change::Seeded {
        shards: moving(),
        gtid: gtids(8),
    };
    does(&o, "Cloned", &record(seeded.clone()));
    turn(&mut o, &seeded);
    does(&o, "AllSeeded", &record(Change::Follow));
    // What it executes from now on is not counted once more: that would leave out what was written since.
    turn(&mut o, &Change::Follow);
    row(&o, "ChannelMissing");
    // Not before both are members.
    let mut o = physical();
    has(&mut o, &[(0, 7)]);
    end(&mut o, TO).two_members = false;
    does(&o, "Cloning", &[]);
}

#[test]
fn outgrown() {
    let mut o = physical();
    has(&mut o, &[(0, 6)]);
    does(&o, "Outgrown", &record(Change::CleanUp));
}

#[test]
fn not_cloneable() {
    let steps = [
        Action::Unlinked(vec![a(TO), b(TO)]),
        Action::Record(Change::CopyRather),
    ];
    let mut o = physical();
    end(&mut o, TO).clone.hindered = Some("a server has databases that are no shards");
    does(&o, "NotCloneable", &steps);
    let mut o = physical();
    end(&mut o, TO).clone.failed = Some((3873, "Clone estimated database size is 12 GiB".into()));
    // It may be one of an earlier move.
    row(&o, "CloneFailed");
    end(&mut o, TO).two_members = false;
    let d = row(&o, "NotCloneable");
    assert_eq!(d.actions, steps);
    assert!(
        d.notes.iter().any(|n| n.warning && n.note.contains("12 GiB")),
        "{d:?}"
    );
    turn(&mut o, &Change::CopyRather);
    row(&o, "SeedWaits");
    assert!(moves::copy_rather(&o.record, &key()).is_err(), "it is so already");
    let seeded = moves::seeded(&physical().record, &key(), &moving(), "").unwrap();
    assert!(moves::copy_rather(&seeded, &key()).is_err(), "copies are there");
    // It has begun to come.
    let mut o = physical();
    end(&mut o, TO).clone.hindered = Some("a server has databases that are no shards");
    at(&mut o, a(TO)).has = set(&[(0, 7)]);
    does(&o, "Cloning", &[]);
}

#[test]
fn clone_failed() {
    let mut o = physical();
    end(&mut o, TO).two_members = false;
    end(&mut o, TO).clone.failed = Some((3862, "Clone Donor Error".into()));
    let d = row(&o, "CloneFailed");
    assert!(
        d.actions.is_empty() && d.overall.message().contains("3862"),
        "{d:?}"
    );
    end(&mut o, TO).clone.running = Some((0, 0));
    does(&o, "Cloning", &[]);
}
