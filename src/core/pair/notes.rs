//! What people are told in events: each transition once.

use super::{
    action::Action,
    consent,
    durable::durable,
    observed::{CloneStage, Observed, Record, other},
    promotion::{self, Cause},
    reasons, roll,
    state::{Lost, State, Why},
    wish::Wish,
};
use crate::{api::conditions::Overall, core::note::Note};

/// What people are told: each once, at its transition.
pub(super) fn notes(
    o: &Observed,
    state: &State,
    actions: &[Action],
    overall: &Overall,
    wish: &Wish,
) -> Vec<Note> {
    let mut notes = vec![];
    for action in actions {
        notes.extend(note(o, state, action));
    }
    for i in [0, 1] {
        let was = o.before.states.get(i).and_then(Option::as_deref);
        if was == Some(reasons::states::REBUILDING)
            && let Some(s) = o.side(i).up()
            && s.clone.as_ref().is_some_and(|c| c.stage == CloneStage::Completed)
        {
            let donor = s.clone.as_ref().filter(|c| o.is_from_elsewhere(c));
            let donor = donor.map_or_else(|| o.pod_name(other(i)), |c| c.donor.clone());
            notes.push(Note::normal(
                reasons::PASSIVE_REBUILT,
                format!("{} was copied from {donor}", o.pod_name(i)),
            ));
        }
    }
    if let Wish::Refused(why) = wish {
        notes.push(Note::warning(
            reasons::SWITCHOVER_REFUSED,
            format!("`spec.preferredActive` is not acted upon: {why}; change it again to try once more"),
        ));
    }
    if overall.reason() == reasons::ROLLING && o.before.reason.as_deref() != Some(reasons::ROLLING) {
        notes.push(Note::normal(
            reasons::ROLL_STARTED,
            "the specification of the servers changed; they are replaced one at a time, the passive one first",
        ));
    }
    let durable = durable(o);
    if durable.reason == reasons::FOREIGN_ACKNOWLEDGER
        && o.before.durable.as_deref() != Some(reasons::FOREIGN_ACKNOWLEDGER)
    {
        notes.push(Note::warning(reasons::FOREIGN_ACKNOWLEDGER, durable.message));
    }
    match overall {
        Overall::Ready { message, .. } if !o.before.ready => {
            notes.push(Note::normal(reasons::PAIR_READY, message.clone()));
        }
        Overall::Stalled { reason, message } if o.before.stalled.as_deref() != Some(*reason) => {
            notes.push(Note::warning(reason, message.clone()));
        }
        _ => {}
    }
    notes
}

fn note(o: &Observed, state: &State, action: &Action) -> Option<Note> {
    let name = |i| o.pod_name(i);
    Some(match action {
        Action::Fence(i) => {
            // One that was handed over is closed already: nothing to tell.
            let open = o.side(*i).up().is_some_and(|s| !s.read_only);
            return (open && o.deletion.is_none()).then(|| {
                Note::warning(
                    reasons::SERVER_FENCED,
                    format!(
                        "{} was open and is not the recorded active server; it was closed",
                        name(*i)
                    ),
                )
            });
        }
        Action::Record(r) if consent::settles(o) => {
            let lost = r.settled.minus(&o.record.as_ref()?.settled).minus(&o.saved);
            Note::warning(
                reasons::DATA_LOSS_ACCEPTED,
                format!(
                    "{} may be copied over with transactions that could be saved by name only: {lost}",
                    name(r.passive())
                ),
            )
        }
        // The same once more is nothing to tell.
        Action::Record(r)
            if o.record
                .as_ref()
                .is_some_and(|old| old.active == r.active && old.in_sync == r.in_sync) =>
        {
            return None;
        }
        Action::Record(r) => recorded(o, state, r),
        Action::Open(i) => Note::normal(reasons::ACTIVE_OPENED, format!("{} takes writes", name(*i))),
        Action::Rebuild { server, donor } => Note::normal(
            reasons::REBUILD_STARTED,
            format!("{} is being copied from {}", name(*server), name(*donor)),
        ),
        Action::CloneFrom { server, from, .. } => Note::normal(
            reasons::REBUILD_STARTED,
            format!("{} is being copied from the passive server of {from}", name(*server)),
        ),
        Action::DeletePod { place, .. } => Note::normal(
            reasons::POD_REPLACED,
            format!("{}: {}", name(*place), roll::why(o, *place)),
        ),
        Action::LockOut { users, .. } => Note::warning(
            reasons::FORMER_SELF_LOCKED_OUT,
            format!(
                "accounts of servers that are no more were locked, so that none of them can acknowledge: {}",
                users.join(", ")
            ),
        ),
        Action::Replace { place, .. } => Note::warning(
            reasons::SERVER_REPLACED,
            format!(
                "{} has been gone for too long; it is made anew with a new volume, the old one is kept",
                name(*place)
            ),
        ),
        Action::Discard(i) => Note::warning(
            reasons::RELAY_LOG_DISCARDED,
            format!(
                "what {} received and could not apply was thrown away, as a person accepted: {}",
                name(*i),
                o.side(*i)
                    .up()
                    .map_or_else(String::new, |s| promotion::unapplied(s).to_string())
            ),
        ),
        Action::AddFinalizer
        | Action::RemoveFinalizer
        | Action::Accounts { .. }
        // What was saved, and where, is known when it was done.
        | Action::SaveErrant { .. }
        | Action::Close(_)
        | Action::Reach { .. }
        | Action::StopReceiver(_)
        | Action::Apply(_)
        | Action::SyncRelayLog { .. }
        | Action::SourceOn { .. }
        | Action::SourceOff(_)
        | Action::Timeout { .. }
        | Action::Follow { .. }
        | Action::Start(_)
        | Action::Stop(_)
        | Action::Shut(_)
        | Action::Unshut { .. }
        | Action::Bar(_)
        | Action::Admit(_)
        | Action::Quiet(_)
        | Action::Unlink(_)
        | Action::Mend(_)
        | Action::EndClone(_)
        | Action::Adopt { .. } => return None,
    })
}

fn recorded(o: &Observed, state: &State, r: &Record) -> Note {
    let name = |i| o.pod_name(i);
    let change = |what: &str| {
        format!(
            "{} takes over from {} (epoch {}): {what}",
            name(r.active),
            name(r.passive()),
            r.epoch
        )
    };
    match state {
        State::MemberLost(why) => Note::warning(
            reasons::PASSIVE_LEFT,
            format!(
                "{} is out (epoch {}): {}",
                name(r.passive()),
                r.epoch,
                why.describe()
            ),
        ),
        State::NotRecorded { .. } => Note::normal(
            reasons::PASSIVE_JOINED,
            format!(
                "{} follows and has everything (epoch {})",
                name(r.passive()),
                r.epoch
            ),
        ),
        State::Failover(cause) => Note::warning(reasons::FAILOVER, change(cause.describe())),
        State::AcceptingLoss(cause, _) => {
            let lost = promotion::given_up(o, r.passive(), r.active, &r.given_up);
            let lost = lost.map_or_else(|| "not known".to_owned(), |set| set.to_string());
            Note::warning(
                reasons::DATA_LOSS_ACCEPTED,
                change(&format!(
                    "{}; transactions given up, as far as known: {lost}",
                    cause.describe()
                )),
            )
        }
        State::Electing { active } if o.side(other(*active)).up().is_none() => Note::warning(
            reasons::DATA_LOSS_ACCEPTED,
            format!(
                "{} is the active server (epoch {}), without what only {} has; that is not known",
                name(r.active),
                r.epoch,
                name(r.passive())
            ),
        ),
        State::SwitchOver(why) => Note::normal(reasons::SWITCHOVER, change(why.describe())),
        _ => Note::normal(
            reasons::ACTIVE_RECORDED,
            format!("{} is the active server (epoch {})", name(r.active), r.epoch),
        ),
    }
}

impl Cause {
    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Unreachable => "it does not answer",
            Self::DataLost => "it came back with another data folder",
            Self::DiskFull => "its volume is full",
        }
    }
}

impl Why {
    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Leaving => "its Pod is being deleted",
            Self::Preferred => "`spec.preferredActive` was changed",
            Self::Roll => "its Pod is to be replaced",
            Self::Cloned => "it is empty, and the other one was cloned from another pair",
        }
    }
}

impl Lost {
    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::OtherData => "it came back with another data folder",
            Self::Errant => "it has transactions that the active server lacks",
            Self::Behind => "the active server no longer has the binary logs that it would need",
            Self::Adrift => "its replication has been broken for 30 seconds",
            Self::Gone => "it does not answer, and acknowledges nothing",
            Self::Unheard => "it has acknowledged nothing for 3 seconds while commits waited for it",
            Self::Leaving => "its Pod is being deleted",
            Self::NotWaitedFor => "commits did not wait for it",
            Self::Detached => "its channel has to be set up anew",
            Self::Unsynced => "it does not bring what it acknowledges to its disk (`sync_relay_log`)",
            Self::ClonedOver => "another pair is to be cloned over it",
        }
    }
}
