//! The rows of a pair of which both servers answer and the active one takes writes: the passive one is made a member, and the circle is closed.

use super::{
    cloned,
    compare::{Both, Threads, broken_for_long, idle, threads},
    moving,
    observed::Ordinal,
    state::{
        Circle, EACH_EVENT, FOLLOW_RETRY, FOLLOW_RETRY_LONGEST, JOIN_RETRY, JOIN_RETRY_LONGEST, LAGS_MUCH,
        State, Why, deleting, may_switch_over,
    },
};
use k8s_openapi::jiff::Timestamp;

/// The first row that holds when both servers answer, and the active one takes writes.
pub(super) fn both_up(b: Both<'_>, now: Timestamp) -> State {
    let (o, p) = (b.o, b.record.passive());
    let errant = b.errant();
    let out = b.record.member(p).is_none();
    if out && (!b.follows() || b.clone_wanted()) && !idle(b.active.channel.as_ref()) {
        return State::ReverseChannelOpen;
    }
    if b.clone_unwanted() {
        return State::CloneUnwanted;
    }
    if o.copied_over(p) {
        return State::Rebuilding;
    }
    if !moving::channels(b.passive).is_empty() {
        return State::ChannelsLeft;
    }
    if out && let Some(state) = cloned::due(b, now) {
        return state;
    }
    if b.rebuild_needed(&errant) {
        return State::RebuildNeeded(b.rebuild(now));
    }
    if !errant.is_empty() {
        return State::Errant {
            too_many: errant.is_subset_of(&b.settled().union(&o.saved_by_name)),
            set: errant,
        };
    }
    let without = |i: &Ordinal| o.side(*i).up().is_some_and(|s| !s.semi_sync);
    if out && let Some(at) = [p, b.record.active].into_iter().find(without) {
        return State::NoSemiSync { at };
    }
    let detached = State::PassiveDetached {
        waits: o.follows.too_soon(now, FOLLOW_RETRY, FOLLOW_RETRY_LONGEST),
    };
    let stray = !b.stray().is_empty();
    let Some(channel) = b.channel().filter(|_| b.passive.acknowledges && !stray) else {
        return detached;
    };
    match threads(o, channel) {
        Threads::Refetch => return detached,
        Threads::Stopped => return State::PassiveStopped,
        Threads::Broken(_) if out && broken_for_long(o, now) => {
            return State::RebuildNeeded(b.rebuild(now));
        }
        Threads::Broken(error) => return State::Broken { at: p, error },
        Threads::Connecting => return State::CatchingUp { slowly: false },
        Threads::Run => {}
    }
    if out && !b.active.executed.is_subset_of(&b.passive.executed_later) {
        return State::CatchingUp {
            slowly: b.lag() > LAGS_MUCH && b.passive.sync_relay_log == EACH_EVENT,
        };
    }
    circle(b, now)
}

/// What comes once the passive server follows.
fn circle(b: Both<'_>, now: Timestamp) -> State {
    let (a, p) = (b.record.active, b.record.passive());
    let host = b.o.host(p);
    let channel = b.active.channel.as_ref();
    let Some(channel) = channel.filter(|c| c.leads_to(&host, &b.active.uuid)) else {
        return State::CircleOpen(Circle::Detached);
    };
    match threads(b.o, channel) {
        Threads::Refetch => State::CircleOpen(Circle::Detached),
        Threads::Stopped => State::CircleOpen(Circle::Stopped),
        Threads::Connecting => State::CircleOpen(Circle::Connecting),
        Threads::Broken(error) => State::Broken { at: a, error },
        // One that is about to end would leave again at once.
        Threads::Run if b.record.member(p).is_none() && deleting(b.o, p) => {
            State::CatchingUp { slowly: false }
        }
        Threads::Run if b.record.member(p).is_none() => State::NotRecorded {
            waits: !b.active.source.enabled && b.o.joins.too_soon(now, JOIN_RETRY, JOIN_RETRY_LONGEST),
        },
        Threads::Run => match wished(b, now) {
            Some(why) => State::SwitchOver(why),
            None if moving::channels(b.active).iter().any(|c| c.out_of_step) => State::OutOfStep,
            None => State::Healthy,
        },
    }
}

/// All is well, and somebody wants the other one to be active.
fn wished(b: Both<'_>, now: Timestamp) -> Option<Why> {
    let (o, record) = (b.o, b.record);
    let (a, p) = (record.active, record.passive());
    let ready = |i: Ordinal| o.side(i).pod.as_ref().is_some_and(|p| p.ready && !p.deleting);
    let why = if o.preferred == Some(p) && o.preferred != o.preferred_seen {
        Why::Preferred
    } else if o.outdated(a) && !o.outdated(p) && ready(a) && ready(p) {
        Why::Roll
    } else {
        return None;
    };
    may_switch_over(o, record, now).then_some(why)
}
