//! What is said of a pair in each state: the third column of the table in `docs/failover.md`.

use super::{
    observed::{CloneStage, Observed, Ordinal, Server},
    promotion::{self, Cause, Unfit},
    reasons,
    state::{Circle, Rebuild, State},
    words::{last_error, word},
};
use crate::{
    api::{conditions::Overall, names},
    core::gtid::GtidSet,
};
use k8s_openapi::jiff::Timestamp;

/// So many copies may be made in a row before a person is called.
const COPIES: u32 = 3;

/// It goes on by itself.
pub(super) fn working(reason: &'static str, message: impl Into<String>) -> Overall {
    Overall::Working {
        reason,
        message: message.into(),
    }
}
/// A person is needed.
pub(super) fn stalled(reason: &'static str, message: impl Into<String>) -> Overall {
    Overall::Stalled {
        reason,
        message: message.into(),
    }
}

/// What is said in this state.
pub(super) fn of_state(o: &Observed, state: &State, now: Timestamp) -> Overall {
    let name = |i: Ordinal| o.pod_name(i);
    let (active, passive) = o.record.as_ref().map_or((0, 1), |r| (r.active, r.passive()));
    let (a, p) = (name(active), name(passive));
    match state {
        State::WaitingForServers => {
            let waiting: Vec<_> = [0, 1]
                .into_iter()
                .filter(|i| o.side(*i).up().is_none())
                .map(|i| format!("{} ({})", name(i), word(o, i)))
                .collect();
            let waiting = format!(
                "both servers are needed before the first decision; waiting for {}",
                waiting.join(", ")
            );
            match o.waits_in_vain(now) {
                Some(there) => stalled(
                    reasons::WAITING_FOR_SERVERS,
                    format!(
                        "{waiting}. Bring it back. To go on with {} alone, and without what only the other one has, {}",
                        name(there),
                        annotate(o)
                    ),
                ),
                None => working(reasons::WAITING_FOR_SERVERS, waiting),
            }
        }
        State::SameServerUuid => stalled(
            reasons::SAME_SERVER_UUID,
            "both servers have the same server_uuid, so one volume is a copy of the other; empty the one that is not wanted",
        ),
        State::Diverged {
            only: [only_a, only_b],
        } => stalled(
            reasons::DIVERGED_SERVERS,
            format!(
                "each server has transactions that the other one lacks; neither is opened. Empty the volume of the one that is not wanted. Only {}: {only_a}. Only {}: {only_b}",
                name(0),
                name(1),
            ),
        ),
        State::Electing { active } => working(
            reasons::ELECTING,
            format!(
                "{} has everything and is recorded as the active server",
                name(*active)
            ),
        ),
        State::Failover(cause) => working(
            reasons::FAILING_OVER,
            format!("{a} ({}): {}; {p} takes over", word(o, active), cause.describe()),
        ),
        State::AcceptingLoss(cause, _) => working(
            reasons::FAILING_OVER,
            format!(
                "{a} ({}): {}; {p} takes over without what it may lack, as a person accepted",
                word(o, active),
                cause.describe()
            ),
        ),
        State::NoFailover(cause, unfit) => no_failover(o, *cause, unfit),
        State::ActiveDenied => working(
            reasons::ACTIVE_UNAVAILABLE,
            match &o.side(active).server {
                Server::Full(_) => format!(
                    "{a} is the active server and has no connection left for the operator: raise `max_connections`, or let clients have fewer"
                ),
                _ => format!("{a} is the active server and refuses the operator's password; it is restarted"),
            },
        ),
        State::ActiveUnfit {
            error: (number, text),
        } => stalled(
            reasons::PROMOTION_UNFIT,
            format!(
                "{a} is the active server and cannot be opened: what it received cannot be applied: {text} ({number}). {}",
                accept(o)
            ),
        ),
        State::Discarding => working(
            reasons::OPENING,
            format!("{a} throws away what it received and a person has given up, and is opened"),
        ),
        State::ActiveClosed { unapplied: 0 } => working(reasons::OPENING, format!("{a} is being opened")),
        State::ActiveClosed { unapplied } => working(
            reasons::APPLYING,
            format!("{a} is opened as soon as it has applied {unapplied} transactions that it received"),
        ),
        State::SwitchOver(why) => working(
            reasons::SWITCHING_OVER,
            format!("{a} is handed over to {p}: {}", why.describe()),
        ),
        State::WaitingForNobody | State::OtherTimeout => working(
            reasons::SETTING_DURABILITY,
            format!("{a} takes writes; how long its commits wait for {p} is being set"),
        ),
        State::Strangers(users) => working(
            reasons::LOCKING_OUT,
            format!(
                "{a} takes writes; accounts of former servers are locked: {}",
                users.join(", ")
            ),
        ),
        State::Outsiders(users) => working(
            reasons::LOCKING_OUT,
            format!(
                "{a} takes writes; accounts that other pairs take from {p} with are locked there: {}",
                users.join(", ")
            ),
        ),
        State::ChannelsLeft => working(
            reasons::SEPARATING,
            format!("{a} takes writes; {p} stops taking from other pairs"),
        ),
        State::Replacing => working(
            reasons::REPLACING,
            format!("{a} takes writes; {p} has been gone for too long and is made anew"),
        ),
        State::AccountsMissing => working(
            reasons::CREATING_ACCOUNTS,
            format!("accounts are being set up on {a}"),
        ),
        State::MemberLost(why) => working(
            reasons::LEAVING,
            format!("{p} is taken out of the record: {}", why.describe()),
        ),
        State::ReverseChannelOpen => working(
            reasons::SEPARATING,
            format!("{a} stops following {p}, which is out"),
        ),
        State::PassiveUnavailable => working(
            reasons::PASSIVE_UNAVAILABLE,
            format!("{a} takes writes; {p} ({}) does not answer", word(o, passive)),
        ),
        State::Rebuilding if o.copies.count > COPIES => stalled(
            reasons::REBUILD_FAILED,
            format!(
                "{a} takes writes; {p} is being copied from {} once more, {} times have not made it a member",
                source(o, passive),
                o.copies.count - 1
            ),
        ),
        State::Rebuilding | State::RebuildNeeded(Rebuild::Now { failed: None }) => working(
            reasons::REBUILDING_PASSIVE,
            format!(
                "{a} takes writes; {p} is being copied from {}{}",
                source(o, passive),
                copied(o, passive).unwrap_or_default()
            ),
        ),
        State::CloneDue(Rebuild::Now { failed: None }) => working(
            reasons::REBUILDING_PASSIVE,
            format!(
                "{a} serves nothing; {} is cloned over the pair, over {p} first",
                o.cloned_from().unwrap_or_default()
            ),
        ),
        State::CloneDue(Rebuild::Now { failed: Some(e) } | Rebuild::Later { failed: e }) => stalled(
            reasons::REBUILD_FAILED,
            format!(
                "{a} serves nothing; cloning {} over {p} failed and is tried again, each time later: {e}",
                o.cloned_from().unwrap_or_default()
            ),
        ),
        State::CloneUnwanted => working(
            reasons::SEPARATING,
            format!(
                "{a} takes writes; {p} is being copied from another pair, which nobody wants any more, and that is ended"
            ),
        ),
        State::RebuildNeeded(Rebuild::Now { failed: Some(e) } | Rebuild::Later { failed: e }) => stalled(
            reasons::REBUILD_FAILED,
            format!("{a} takes writes; copying it to {p} failed and is tried again, each time later: {e}"),
        ),
        State::RebuildNeeded(Rebuild::Impossible) | State::CloneDue(Rebuild::Impossible) => stalled(
            reasons::CLONE_UNAVAILABLE,
            format!(
                "{a} takes writes; {p} has to be copied from it, but the clone plugin is not active on both"
            ),
        ),
        State::Errant { set, too_many: false } => working(
            reasons::SAVING_ERRANT,
            format!(
                "{a} takes writes; {p} has transactions that {a} lacks; they are saved, then it is copied anew: {set}"
            ),
        ),
        State::Errant { set, too_many: true } => stalled(
            reasons::ERRANT_TRANSACTIONS,
            format!(
                "{a} takes writes; {p} has transactions that {a} lacks and that could be saved by name only, nothing is taken from it. Save what is wanted of them, then {}: {set}",
                annotate(o)
            ),
        ),
        State::NoSemiSync { at } => stalled(
            reasons::SEMI_SYNC_UNAVAILABLE,
            format!(
                "{a} takes writes, alone: {} has not got the plugins of semi-synchronous replication; use an image that has them{}",
                name(*at),
                if *at == active {
                    ", then delete its Pod: it is not replaced while it serves alone"
                } else {
                    ""
                }
            ),
        ),
        State::PassiveDetached { .. } => working(
            reasons::ATTACHING,
            format!(
                "{a} takes writes; {p} is made to follow it{}",
                in_vain(o, passive)
            ),
        ),
        State::PassiveStopped => working(
            reasons::ATTACHING,
            format!("{a} takes writes; {p} is made to follow it"),
        ),
        State::Broken {
            at,
            error: (number, text),
        } => stalled(
            reasons::REPLICATION_BROKEN,
            format!(
                "{a} takes writes; replication on {} stopped: {text} ({number})",
                name(*at)
            ),
        ),
        State::CatchingUp { .. } => working(
            reasons::CATCHING_UP,
            format!("{a} takes writes; {p} is catching up"),
        ),
        State::CircleOpen(Circle::Detached | Circle::Stopped | Circle::Connecting) => working(
            reasons::CLOSING_CIRCLE,
            format!("{a} takes writes and is made to follow {p}"),
        ),
        State::NotRecorded { waits: false } => working(
            reasons::JOINING,
            format!("{a} takes writes; {p} follows and is being recorded"),
        ),
        State::NotRecorded { waits: true } => working(
            reasons::JOINING,
            format!(
                "{a} takes writes; {p} follows, but acknowledged nothing when commits waited for it ({} times so far), and is tried again",
                o.joins.count
            ),
        ),
        // What moves make of a channel that ends again and again, they say themselves.
        State::OutOfStep | State::Healthy => Overall::Ready {
            reason: reasons::SERVING,
            message: format!("{a} takes writes, {p} follows"),
        },
    }
}

/// What the server at this place is being copied from, when the other one takes writes.
fn source(o: &Observed, place: Ordinal) -> String {
    let run = o.side(place).up().and_then(|s| s.clone.as_ref());
    let run = run.filter(|c| c.stage == CloneStage::Running && o.is_from_elsewhere(c));
    run.map_or_else(|| "it".to_owned(), |c| c.donor.clone())
}

/// How far a copy is, in whole tenths: the status is not written anew for each megabyte.
fn copied(o: &Observed, place: Ordinal) -> Option<String> {
    let (done, of) = o.side(place).up()?.clone.as_ref()?.bytes?;
    let tenths = done.saturating_mul(10).checked_div(of)?.min(10);
    // As much as ten megabytes, or a tenth of a gigabyte.
    let size = match of >> 20 {
        mib @ 0..1000 => format!("{} MiB", mib.div_ceil(10) * 10),
        mib => format!("{}.{} GiB", mib >> 10, ((mib & 1023) * 10) >> 10),
    };
    Some(format!(", {tenths}0% of about {size}").replace(", 00%", ", 0%"))
}

/// What it says of itself that was made to follow and does not.
fn in_vain(o: &Observed, passive: Ordinal) -> String {
    let why = last_error(o, passive).or_else(|| {
        let mute = o.side(passive).up().is_some_and(|s| !s.acknowledges);
        mute.then(|| "it does not acknowledge".to_owned())
    });
    match (o.follows.count, why) {
        (0, _) | (_, None) => String::new(),
        (n, Some(why)) => format!(", {n} times so far: {why}"),
    }
}

/// The way out that only a person can choose.
fn annotate(o: &Observed) -> String {
    let early = o.accepted_loss == Some(o.epoch) && o.ignored_loss == o.accepted_loss;
    format!(
        "set the annotation `{}: \"{}\"`{}",
        names::ACCEPT_DATA_LOSS_ANNOTATION,
        o.epoch,
        if early {
            " (take away the one that is there: it was before this was asked)"
        } else {
            ""
        }
    )
}

fn accept(o: &Observed) -> String {
    format!("To go on without what is missing, {}", annotate(o))
}

/// The active server cannot serve, and the passive one must not take over.
fn no_failover(o: &Observed, cause: Cause, unfit: &Unfit) -> Overall {
    let (active, passive) = o.record.as_ref().map_or((0, 1), |r| (r.active, r.passive()));
    let (a, p) = (o.pod_name(active), o.pod_name(passive));
    let gone = format!(
        "{a} is the active server ({}): {}",
        word(o, active),
        cause.describe()
    );
    let lost = cause == Cause::DataLost;
    match unfit {
        Unfit::Unreachable | Unfit::Leaving if lost => stalled(
            reasons::ACTIVE_DATA_LOST,
            format!(
                "{gone}; it is kept closed, and {p} ({}) is waited for",
                word(o, passive)
            ),
        ),
        Unfit::Unreachable | Unfit::Leaving => working(
            reasons::ACTIVE_UNAVAILABLE,
            format!(
                "{gone}; {p} ({}) cannot take over; whichever comes back first serves",
                word(o, passive)
            ),
        ),
        Unfit::NotMember => {
            let missing = promotion::given_up(o, active, passive, &GtidSet::new())
                .filter(|set| !set.is_empty())
                .map_or_else(String::new, |set| format!(". It is known to lack {set}"));
            stalled(
                if lost {
                    reasons::ACTIVE_DATA_LOST
                } else {
                    reasons::NOT_IN_SYNC
                },
                format!(
                    "{gone}; {p} is not in sync and may lack transactions that were acknowledged. Bring {a} back. {}{missing}",
                    accept(o)
                ),
            )
        }
        Unfit::Detached => stalled(
            reasons::PROMOTION_UNFIT,
            format!(
                "{gone}; {p} does not follow it, so what it received is not known. Bring {a} back. {}",
                accept(o)
            ),
        ),
        Unfit::Applier((number, text)) => stalled(
            reasons::PROMOTION_UNFIT,
            format!(
                "{gone}; {p} cannot apply what it received: {text} ({number}). Mend it, or bring {a} back. {}",
                accept(o)
            ),
        ),
        Unfit::DiskFull => stalled(
            reasons::DISK_FULL,
            format!(
                "{gone}; the volume of {p} is full as well. Free space, or let `mysql.storage.size` grow: it takes over as soon as it has room"
            ),
        ),
    }
}
