//! Finalizers, pauses, Pods and passwords: what stands beside the table.

use super::super::{
    action::Action,
    decide::{Children, Decision},
    observed::{CloneRun, CloneStage, Deletion, Desired, Observed, PodState, Server, Trouble, TroubleKind},
    reasons,
};
use super::{HASH, down, fresh, healthy, now, out, run, says, server, up};
use crate::api::conditions::Overall;
use k8s_openapi::jiff::SignedDuration;

#[test]
fn whoever_is_open_without_a_record_is_closed_first() {
    let mut o = fresh();
    up(&mut o, 1).read_only = false;
    assert_eq!(run(&o).actions.first(), Some(&Action::Fence(1)));
    let mut o = healthy();
    up(&mut o, 1).super_read_only = false;
    assert_eq!(run(&o).actions, [Action::Fence(1)]);
}

#[test]
fn a_new_pair_gets_its_finalizer_first_and_loses_it_when_it_holds_nothing() {
    let mut o = fresh();
    o.finalizer = false;
    let d = run(&o);
    assert_eq!(
        (d.actions.as_slice(), d.children),
        ([Action::AddFinalizer].as_slice(), Children::Leave)
    );
    let mut o = healthy();
    o.deletion = Some(Deletion { holds_shards: true });
    let d = run(&o);
    assert_eq!((d.actions.len(), d.children), (0, Children::Apply));
    says(&d, reasons::HOLDS_SHARDS, false);
    // Whoever is open is closed first.
    o.deletion = Some(Deletion { holds_shards: false });
    let d = run(&o);
    assert_eq!(
        (d.actions.as_slice(), d.children),
        (
            [Action::Fence(0), Action::RemoveFinalizer].as_slice(),
            Children::Leave
        )
    );
}

#[test]
fn a_paused_pair_is_only_looked_at() {
    let mut o = healthy();
    o.paused = true;
    says(&run(&o), reasons::PAUSED, false);
    up(&mut o, 1).read_only = false;
    up(&mut o, 0).read_only = true;
    let d = run(&o);
    assert_eq!((d.actions.len(), d.children), (0, Children::Leave));
    says(&d, reasons::PAUSED, true);
    o.deletion = Some(Deletion { holds_shards: false });
    assert_eq!(
        run(&o).actions,
        [Action::RemoveFinalizer],
        "its deletion is not held up"
    );
}

#[test]
fn without_a_cluster_or_with_a_refused_specification_the_servers_are_looked_after_all_the_same() {
    let missing = Desired::ClusterMissing { cluster: "c".into() };
    let refused = Desired::Refused {
        reason: reasons::CONFIG_KEY_NOT_ALLOWED,
        message: "no".into(),
    };
    for (desired, reason) in [
        (missing, reasons::CLUSTER_NOT_FOUND),
        (refused, reasons::CONFIG_KEY_NOT_ALLOWED),
    ] {
        let mut o = healthy();
        o.desired = desired;
        up(&mut o, 0).read_only = true;
        let d = run(&o);
        assert_eq!(
            (d.actions.last(), d.children),
            (Some(&Action::Open(0)), Children::Keep)
        );
        says(&d, reason, true);
    }
}

fn deleted(d: &Decision) -> Option<usize> {
    match d.actions.last() {
        Some(Action::DeletePod { place, .. }) => Some(*place),
        _ => None,
    }
}
fn outdated(o: &mut Observed, i: usize) -> &mut PodState {
    let pod = o.sides[i].pod.as_mut().unwrap();
    pod.spec_hash = Some("old".into());
    pod
}

#[test]
fn a_changed_specification_rolls_the_passive_server_first_and_only_beside_a_healthy_one() {
    let mut o = healthy();
    outdated(&mut o, 0);
    outdated(&mut o, 1);
    let d = run(&o);
    assert_eq!(deleted(&d), Some(1));
    says(&d, reasons::ROLLING, false);
    // The active one is handed over first, and only then replaced.
    o.sides[1].pod.as_mut().unwrap().spec_hash = Some(HASH.into());
    assert_eq!(deleted(&run(&o)), None);
    o.sides[1].pod.as_mut().unwrap().ready = false;
    assert_eq!(run(&o).actions, []);
    o.sides[1].pod.as_mut().unwrap().ready = true;
    up(&mut o, 1).channel = None;
    assert_eq!(deleted(&run(&o)), None);
    // The active server never while the other one is away, and never two at once.
    down(&mut o, 1);
    let d = run(&o);
    assert_eq!(deleted(&d), None);
    says(&d, reasons::ROLLING, false);
    let mut o = healthy();
    outdated(&mut o, 0);
    o.sides[1].pod.as_mut().unwrap().deleting = true;
    assert_eq!(deleted(&run(&o)), None);
}

#[test]
fn a_passive_server_that_an_old_specification_makes_unwell_is_replaced_and_an_active_one_is_not() {
    let broken = |o: &mut Observed| {
        let c = up(o, 1).channel.as_mut().unwrap();
        c.applier = false;
        c.applier_error = Some((1786, "statement violates GTID consistency".into()));
    };
    let mut o = healthy();
    broken(&mut o);
    outdated(&mut o, 1);
    assert_eq!(deleted(&run(&o)), Some(1));
    down(&mut o, 1);
    assert_eq!(deleted(&run(&o)), Some(1));
    // Nothing is gained by it when the active server does not take writes, or when it is the active one that is outdated.
    let mut closed = o.clone();
    down(&mut closed, 0);
    assert_eq!(deleted(&run(&closed)), None);
    let mut active = healthy();
    outdated(&mut active, 0);
    down(&mut active, 1);
    assert_eq!(deleted(&run(&active)), None);
}

#[test]
fn an_outdated_passive_server_is_replaced_rather_than_attached_but_not_in_the_middle_of_a_copy() {
    let mut o = healthy();
    out(&mut o);
    up(&mut o, 0).channel = None;
    up(&mut o, 1).channel = None;
    outdated(&mut o, 1);
    assert_eq!(deleted(&run(&o)), Some(1));
    let mut o = healthy();
    out(&mut o);
    up(&mut o, 0).channel = None;
    up(&mut o, 1).clone = Some(CloneRun {
        stage: CloneStage::Running,
        error: None,
        ended_ago: None,
        bytes: None,
        donor: crate::api::names::host("ns", "p", 0),
        brought: crate::core::gtid::GtidSet::new(),
    });
    outdated(&mut o, 1);
    assert_eq!(deleted(&run(&o)), None);
}

#[test]
fn a_pod_that_never_ran_is_replaced_at_once_when_it_is_outdated_and_told_when_it_is_not() {
    for (kind, reason) in [
        (TroubleKind::Image, reasons::IMAGE_PULL_FAILED),
        (TroubleKind::Start, reasons::SERVER_NOT_STARTING),
        (TroubleKind::Crash, reasons::SERVER_NOT_STARTING),
        (TroubleKind::Unschedulable, reasons::UNSCHEDULABLE),
        (TroubleKind::Volume, reasons::VOLUME_NOT_BOUND),
    ] {
        let mut o = healthy();
        down(&mut o, 1);
        let pod = o.sides[1].pod.as_mut().unwrap();
        (pod.ran, pod.running) = (false, false);
        pod.trouble = Some(Trouble {
            kind,
            message: "the words of the kubelet".into(),
        });
        let d = run(&o);
        assert_eq!(deleted(&d), None);
        says(&d, reason, true);
        assert!(d.overall.message().contains("the words of the kubelet"));
        outdated(&mut o, 1);
        assert_eq!(deleted(&run(&o)), Some(1), "{kind:?}");
        // A scheduler is given time.
        o.sides[1].pod.as_mut().unwrap().created = now();
        o.sides[1].pod.as_mut().unwrap().spec_hash = Some(HASH.into());
        assert_eq!(
            matches!(run(&o).overall, Overall::Stalled { .. }),
            kind == TroubleKind::Image,
            "{kind:?}"
        );
    }
}

#[test]
fn servers_with_other_passwords_are_restarted_one_after_the_other() {
    let mut o = healthy();
    for i in [0, 1] {
        o.sides[i].server = Server::AccessDenied("denied".into());
    }
    assert_eq!(deleted(&run(&o)), Some(1));
    // The Pod is younger than the Secret: not again at once.
    o.credentials_since = Some(now() - SignedDuration::from_secs(20));
    assert_eq!(deleted(&run(&o)), Some(1));
    o.sides[1].pod.as_mut().unwrap().created = now() - SignedDuration::from_secs(10);
    assert_eq!(deleted(&run(&o)), None);
    o.sides[1].server = Server::Up(Box::new(server(1)));
    assert_eq!(deleted(&run(&o)), Some(0));
}

#[test]
fn each_transition_is_told_once() {
    let mut o = healthy();
    let reasons_of = |o: &Observed| run(o).notes.iter().map(|n| n.reason).collect::<Vec<_>>();
    assert_eq!(reasons_of(&o), [reasons::PAIR_READY]);
    o.before.ready = true;
    assert!(reasons_of(&o).is_empty());
    out(&mut o);
    up(&mut o, 0).uuid = "00000000-0000-0000-0000-0000000000cc".into();
    up(&mut o, 0).read_only = true;
    up(&mut o, 0).super_read_only = true;
    assert_eq!(reasons_of(&o), [reasons::ACTIVE_DATA_LOST]);
    o.before.stalled = Some(reasons::ACTIVE_DATA_LOST.into());
    assert!(reasons_of(&o).is_empty());
}
