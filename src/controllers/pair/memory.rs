//! What this process remembers of pairs between passes. Nothing in it is needed for safety (rule O1): without it things take longer.

use crate::{
    api::{conditions::Said, mysql_pair::ActiveChange},
    core::{
        gtid::GtidSet,
        pair::{
            Action, Change, Decision, GRACE, Lost, Record, State,
            observed::{Server, ServerState, Tries, Volume},
        },
    },
    observe::{pair::FoundCopy, sentinel::Still, servers::Seen},
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A passive server that was taken for gone and answers within this time was slow, or is started again.
const SOON: SignedDuration = SignedDuration::from_secs(10);
/// For so long then none is taken for gone as quickly: a server that stalls now and again is better waited for.
const SPARED: SignedDuration = SignedDuration::from_mins(1);

/// What is remembered of one pair.
#[derive(Default)]
pub struct Memory {
    /// Since when its passive server has not been following.
    pub adrift: Option<Timestamp>,
    /// Since when replication of its passive server stops with an error, and when it was last seen to have done so.
    pub broken: Option<(Timestamp, Timestamp)>,
    /// How often its passive server was made to follow since it last did.
    pub follows: Tries,
    /// How often its passive server was begun to be copied since it was last a member.
    pub copies: Tries,
    /// How often commits were let wait for its passive server, to record it in, since it was last a member.
    pub joins: Tries,
    /// When its passive server was last taken for gone.
    gone: Option<Timestamp>,
    /// A passive server that was taken for gone answered soon after: until then one is waited for as any server is.
    pub spared_until: Option<Timestamp>,
    /// Which passive server that is, by place and `server_uuid`.
    tried: Option<(usize, String)>,
    /// Since when its active server has had no acknowledgement.
    pub unheard: Option<Timestamp>,
    /// Whose acknowledged commits were counted last, how many there were, and since when others have waited without one more of them.
    acknowledged: Option<(String, u64, Option<Timestamp>)>,
    /// No planned switchover before this.
    pub no_switchover_before: Option<Timestamp>,
    /// The last one was given up for somebody's edit alone.
    pub switchover_void: bool,
    /// `gtid_executed` of each server when it was last seen.
    pub last_executed: [Option<GtidSet>; 2],
    /// What was read with calls of the API when the pair was last looked at at leisure.
    pub at_leisure: Option<AtLeisure>,
    /// Since when something has been amiss with the active server.
    pub noticed: Option<Instant>,
    /// A change of the active server that was recorded, and is not over.
    pub changing: Option<Changing>,
    /// The account of one that is over, until it is in the status.
    pub told: Option<ActiveChange>,
}

/// What is not watched, and read only when nothing is urgent.
#[derive(Clone)]
pub struct AtLeisure {
    /// The claims.
    pub volumes: [Volume; 2],
    /// The pair's copy of the credentials.
    pub credentials: FoundCopy,
    /// Whether the volumes are as large as they should be.
    pub storage: Option<Said>,
    /// Why the children could not be made.
    pub refused: Option<(&'static str, String)>,
}

/// A change of the active server under way.
#[derive(Clone, Debug)]
pub struct Changing {
    /// What was decided.
    pub change: Change,
    /// The epoch that it was recorded with.
    pub epoch: i64,
    /// When the cause was first seen.
    pub since: Timestamp,
    /// What was done, and how long it took.
    pub steps: Vec<(&'static str, Duration)>,
}

impl Memory {
    /// Takes note of what a look saw, before anything is decided upon it. `still` are commits that stood still on the active server before
    /// that.
    pub fn saw(&mut self, record: Option<&Record>, seen: &[Seen; 2], still: Option<&Still>, now: Timestamp) {
        for (last, seen) in self.last_executed.iter_mut().zip(seen) {
            if let Server::Up(s) = &seen.server {
                *last = Some(s.executed_later.clone());
            }
        }
        if let Some(r) = record {
            if let Some(Server::Up(s)) = seen.get(r.passive()).map(|s| &s.server) {
                let passive = Some((r.passive(), s.uuid.clone()));
                if self.tried != passive {
                    (self.follows, self.copies, self.broken) = (Tries::default(), Tries::default(), None);
                    self.joins = Tries::default();
                    self.tried = passive;
                }
                let soon = |gone: &Timestamp| now.duration_since(*gone) <= SOON;
                if self.gone.take().is_some_and(|gone| soon(&gone)) {
                    self.spared_until = Some(now + SPARED);
                }
            }
            if r.members() == 2 {
                (self.copies, self.joins) = (Tries::default(), Tries::default());
            }
        }
        let active = record.and_then(|r| match &seen.get(r.active)?.server {
            Server::Up(s) => Some(s.as_ref()),
            _ => None,
        });
        let waiting = active.and_then(|s| self.waiting(s, still, now));
        self.unheard = active
            .filter(|s| s.unheard())
            .and_then(|s| match s.source.clients {
                // Nobody is there to acknowledge anything.
                0 => Some(self.unheard.or(waiting).unwrap_or(now)),
                _ => waiting,
            });
        self.acknowledged = active.map(|s| {
            let since = (s.source.waiting > 0).then(|| waiting.unwrap_or(now));
            (s.uuid.clone(), s.source.acknowledged, since)
        });
    }

    /// Since when commits have waited while none has got through: `None` when that was not so at the last look already, nor by what stood
    /// still before this one.
    fn waiting(&self, s: &ServerState, still: Option<&Still>, now: Timestamp) -> Option<Timestamp> {
        let stands =
            |uuid: &str, n: u64| uuid == s.uuid && n == s.source.acknowledged && s.source.waiting > 0;
        let looked = self
            .acknowledged
            .as_ref()
            .filter(|(uuid, n, _)| stands(uuid, *n))
            .and_then(|(.., since)| *since);
        let told = still
            .filter(|it| stands(&it.uuid, it.acknowledged))
            .map(|it| now - SignedDuration::try_from(it.since.elapsed()).unwrap_or_default());
        [looked, told].into_iter().flatten().min()
    }

    /// Takes note of whether the passive server follows, and of whether its replication is broken.
    pub fn decided(&mut self, decision: &Decision, now: Timestamp) {
        self.follows(decision.following, decision.broken, now);
    }

    fn follows(&mut self, following: bool, broken: bool, now: Timestamp) {
        if following {
            (self.adrift, self.broken, self.follows) = (None, None, Tries::default());
            return;
        }
        self.adrift.get_or_insert(now);
        if broken {
            // It runs for a moment each time it is started. One that has run for long has another error.
            let lately = |(_, last): &(Timestamp, Timestamp)| now.duration_since(*last) <= GRACE;
            let since = self.broken.filter(lately).map_or(now, |(since, _)| since);
            self.broken = Some((since, now));
        }
    }

    /// Takes note of what was done about the passive server.
    pub fn did(&mut self, decision: &Decision, now: Timestamp) {
        for action in &decision.actions {
            match action {
                Action::Follow { .. } if matches!(decision.state, State::PassiveDetached { .. }) => {
                    self.follows = self.follows.again(now);
                }
                Action::SourceOn { .. } if matches!(decision.state, State::NotRecorded { .. }) => {
                    self.joins = self.joins.again(now);
                }
                Action::Record(_) if decision.state == State::MemberLost(Lost::Gone) => self.gone = Some(now),
                Action::Rebuild { .. } | Action::CloneFrom { .. } => {
                    self.copies = self.copies.again(now);
                    (self.follows, self.broken) = (Tries::default(), None);
                }
                _ => {}
            }
        }
    }
}

/// What is remembered, by the UID of the pair.
#[derive(Default)]
pub struct Memories(Mutex<HashMap<String, Memory>>);

impl Memories {
    /// Looks at, or changes, what is remembered of a pair.
    pub fn of<T>(&self, uid: &str, look: impl FnOnce(&mut Memory) -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        look(all.entry(uid.to_owned()).or_default())
    }
    /// Forgets a pair.
    pub fn forget(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{pair::observed::SourceSide, spans::SpanSet};

    const UUID: &str = "11111111-1111-1111-1111-111111111111";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }
    fn up(clients: u32, waiting: u32, acknowledged: u64) -> Seen {
        let server = ServerState {
            uuid: UUID.into(),
            version: "9.7.4".into(),
            read_only: false,
            super_read_only: false,
            offline: false,
            executed: GtidSet::new(),
            executed_later: format!("{UUID}:1-{acknowledged}").parse().unwrap(),
            purged: GtidSet::new(),
            channel: None,
            source: SourceSide {
                enabled: true,
                waits: true,
                clients,
                waiting,
                acknowledged,
                timeout: 1000,
            },
            semi_sync: true,
            acknowledges: true,
            sync_relay_log: 1,
            disk_full: false,
            account_marks: [None, None],
            followers: vec![],
            foreign: vec![],
            can_clone: true,
            shards: SpanSet::new(),
            databases: 0,
            clone: None,
            links: None,
        };
        Seen {
            server: Server::Up(Box::new(server)),
            session: None,
        }
    }
    fn record(members: usize) -> Record {
        let in_sync = [
            Some(UUID.to_owned()),
            Some("b".to_owned()).filter(|_| members == 2),
        ];
        Record {
            active: 0,
            epoch: 3,
            in_sync,
            settled: GtidSet::new(),
            given_up: GtidSet::new(),
        }
    }
    fn saw(m: &mut Memory, members: usize, active: Seen, second: i64) -> Option<Timestamp> {
        m.saw(
            Some(&record(members)),
            &[active, Seen::absent()],
            None,
            at(second),
        );
        m.unheard
    }

    #[test]
    fn without_a_client_nobody_is_heard_from_the_first_look_on() {
        let mut m = Memory::default();
        assert_eq!(saw(&mut m, 2, up(0, 0, 5), 1), Some(at(1)));
        assert_eq!(saw(&mut m, 2, up(0, 1, 5), 2), Some(at(1)));
        assert_eq!(saw(&mut m, 2, up(1, 0, 5), 3), None);
    }

    #[test]
    fn commits_that_wait_count_only_while_none_gets_through() {
        let mut m = Memory::default();
        assert_eq!(saw(&mut m, 2, up(1, 3, 5), 1), None);
        assert_eq!(saw(&mut m, 2, up(1, 3, 6), 2), None);
        assert_eq!(saw(&mut m, 2, up(1, 3, 6), 3), Some(at(2)));
        assert_eq!(saw(&mut m, 2, up(1, 3, 6), 4), Some(at(2)));
        assert_eq!(saw(&mut m, 2, up(1, 3, 7), 5), None);
        // Idle for long, and then one that waits for the moment that it takes.
        assert_eq!(saw(&mut m, 2, up(1, 0, 7), 6), None);
        assert_eq!(saw(&mut m, 2, up(1, 1, 7), 60), None);
        assert_eq!(saw(&mut m, 2, up(1, 0, 8), 61), None);
    }

    #[test]
    fn commits_that_stood_still_before_the_first_look_count_from_then_on() {
        let still = |n, uuid: &str| Still {
            uuid: uuid.to_owned(),
            acknowledged: n,
            since: Instant::now(),
        };
        let first = |still: Still, waiting| {
            let (mut m, active) = (Memory::default(), up(1, waiting, 6));
            m.saw(Some(&record(2)), &[active, Seen::absent()], Some(&still), at(9));
            m.unheard
        };
        assert!(first(still(6, UUID), 3).is_some_and(|since| since <= at(9)));
        // One got through meanwhile, none waits any more, or it is another server by now.
        assert_eq!(first(still(5, UUID), 3), None);
        assert_eq!(first(still(6, UUID), 0), None);
        assert_eq!(first(still(6, "another"), 3), None);
    }

    #[test]
    fn a_passive_server_that_is_back_soon_is_waited_for_longer_for_a_while() {
        let look = |m: &mut Memory, passive, second| {
            m.saw(Some(&record(2)), &[up(1, 0, 5), passive], None, at(second));
        };
        let mut m = Memory {
            gone: Some(at(1)),
            ..Memory::default()
        };
        look(&mut m, Seen::absent(), 5);
        assert_eq!((m.gone, m.spared_until), (Some(at(1)), None));
        look(&mut m, up(0, 0, 1), 9);
        assert_eq!((m.gone, m.spared_until), (None, Some(at(69))));
        // One that was away for long was no slow one.
        let mut m = Memory {
            gone: Some(at(1)),
            ..Memory::default()
        };
        look(&mut m, up(0, 0, 1), 12);
        assert_eq!((m.gone, m.spared_until), (None, None));
    }

    #[test]
    fn whoever_is_waited_for_is_unheard_and_nobody_is_that_is_not_seen() {
        let mut m = Memory::default();
        // It is about to be recorded in.
        assert_eq!(saw(&mut m, 1, up(0, 0, 5), 1), Some(at(1)));
        let mut off = up(0, 0, 5);
        if let Server::Up(s) = &mut off.server {
            s.source.enabled = false;
        }
        assert_eq!(saw(&mut m, 1, off, 1), None);
        assert_eq!(saw(&mut m, 2, up(0, 0, 5), 2), Some(at(2)));
        assert_eq!(saw(&mut m, 2, Seen::absent(), 3), None);
    }

    #[test]
    fn what_a_server_had_is_remembered_after_it_is_gone() {
        let mut m = Memory::default();
        saw(&mut m, 2, up(1, 0, 9), 1);
        saw(&mut m, 2, Seen::absent(), 2);
        let [a, b] = &m.last_executed;
        assert_eq!(a.as_ref().map(GtidSet::count), Some(9));
        assert_eq!(*b, None);
    }

    #[test]
    fn the_grace_of_a_passive_server_runs_from_when_it_ceased_to_follow() {
        let mut m = Memory::default();
        m.follows(false, false, at(1));
        m.follows(false, false, at(5));
        assert_eq!(m.adrift, Some(at(1)));
        m.follows(true, false, at(6));
        assert_eq!(m.adrift, None);
    }

    #[test]
    fn an_error_counts_from_when_it_came_up_and_while_it_comes_up_again_and_again() {
        let mut m = Memory::default();
        // It was copied and catches up for long.
        m.follows(false, false, at(1));
        for second in [100, 106, 125] {
            m.follows(false, true, at(second));
            m.follows(false, false, at(second + 1));
        }
        assert_eq!(m.broken, Some((at(100), at(125))));
        m.follows(false, true, at(200));
        assert_eq!(m.broken, Some((at(200), at(200))));
        m.follows(true, false, at(201));
        assert_eq!(m.broken, None);
    }

    #[test]
    fn what_was_tried_in_vain_counts_for_one_server_until_it_is_a_member() {
        let mut m = Memory::default();
        let look = |m: &mut Memory, members, second| {
            m.saw(
                Some(&record(members)),
                &[Seen::absent(), up(0, 0, 1)],
                None,
                at(second),
            );
        };
        look(&mut m, 1, 1);
        (m.copies, m.follows) = (Tries::default().again(at(1)), Tries::default().again(at(2)));
        look(&mut m, 1, 3);
        assert_eq!((m.copies.count, m.follows.count), (1, 1));
        look(&mut m, 2, 4);
        assert_eq!((m.copies.count, m.follows.count), (0, 1));
        // Another one at its place.
        m.tried = Some((1, "another".into()));
        look(&mut m, 1, 5);
        assert_eq!(m.follows.count, 0);
    }
}
