//! What can go wrong, and which of it is drawn when.

use crate::dice::Dice;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// A server by the role that it has when the fault is prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Side {
    /// The recorded active one.
    Active,
    /// The other one.
    Passive,
}

/// From what a server's node is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Cut {
    /// From the API server alone.
    Api,
    /// From the other server's node alone.
    Peer,
    /// From the API server and every other node. Clients still reach it.
    Both,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Fault {
    /// kill -9 of mysqld.
    KillMysqld(Side),
    /// The Pod is deleted, as `kubectl delete pod` does.
    DeletePod(Side),
    /// The Pod is deleted without grace.
    ForcePod(Side),
    /// mysqld is stopped (SIGSTOP) and goes on later (SIGCONT).
    FreezeMysqld(Side),
    /// The node loses its power, and has it again later.
    KillNode(Side),
    /// The node is cut off, and healed later.
    CutOff(Side, Cut),
    /// The node is drained, and takes Pods again later.
    Drain(Side),
    /// kill -9 of the operator that leads.
    KillOperator,
    /// The operator that leads is stopped, and wakes up late.
    FreezeOperator,
    /// The API server is killed, and back later.
    RestartApi,
    /// The server's volume is filled to the last block, and freed later.
    FillVolume(Side),
    /// The passive server's claim is deleted, with its Pod.
    LoseVolume,
}

use Fault::{
    CutOff, DeletePod, Drain, FillVolume, ForcePod, FreezeMysqld, FreezeOperator, KillMysqld, KillNode,
    KillOperator, LoseVolume, RestartApi,
};
use Side::{Active, Passive};

/// Every fault.
pub const ALL: [Fault; 24] = [
    KillMysqld(Active),
    KillMysqld(Passive),
    DeletePod(Active),
    DeletePod(Passive),
    ForcePod(Active),
    ForcePod(Passive),
    FreezeMysqld(Active),
    FreezeMysqld(Passive),
    KillNode(Active),
    KillNode(Passive),
    CutOff(Active, Cut::Api),
    CutOff(Active, Cut::Peer),
    CutOff(Active, Cut::Both),
    CutOff(Passive, Cut::Api),
    CutOff(Passive, Cut::Peer),
    CutOff(Passive, Cut::Both),
    Drain(Active),
    Drain(Passive),
    KillOperator,
    FreezeOperator,
    RestartApi,
    FillVolume(Active),
    FillVolume(Passive),
    LoseVolume,
];

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |s: &Side| match s {
            Active => "active",
            Passive => "passive",
        };
        match self {
            KillMysqld(s) => write!(f, "kill-mysqld-{}", side(s)),
            DeletePod(s) => write!(f, "delete-pod-{}", side(s)),
            ForcePod(s) => write!(f, "force-delete-pod-{}", side(s)),
            FreezeMysqld(s) => write!(f, "freeze-mysqld-{}", side(s)),
            KillNode(s) => write!(f, "kill-node-{}", side(s)),
            CutOff(s, Cut::Api) => write!(f, "cut-{}-from-api", side(s)),
            CutOff(s, Cut::Peer) => write!(f, "cut-{}-from-peer", side(s)),
            CutOff(s, Cut::Both) => write!(f, "cut-{}-from-all", side(s)),
            Drain(s) => write!(f, "drain-{}", side(s)),
            KillOperator => f.write_str("kill-operator"),
            FreezeOperator => f.write_str("freeze-operator"),
            RestartApi => f.write_str("restart-api"),
            FillVolume(s) => write!(f, "fill-volume-{}", side(s)),
            LoseVolume => f.write_str("lose-volume-passive"),
        }
    }
}

impl Fault {
    /// For how long it lasts, in seconds: at least, and less than. What is over at once has none.
    fn lasts(self) -> Option<(u64, u64)> {
        match self {
            KillMysqld(_) | DeletePod(_) | ForcePod(_) | KillOperator | LoseVolume => None,
            FreezeMysqld(_) | FreezeOperator => Some((3, 15)),
            KillNode(_) | CutOff(..) => Some((5, 20)),
            Drain(_) => Some((2, 5)),
            RestartApi => Some((1, 6)),
            FillVolume(_) => Some((8, 20)),
        }
    }

    /// What a server itself needs to notice that it is over, beside the patience that there is: with a full disk mysqld sleeps for a minute
    /// between two tries, whatever becomes free meanwhile.
    pub fn lingers(self) -> Duration {
        match self {
            FillVolume(_) => Duration::from_secs(60),
            _ => Duration::ZERO,
        }
    }

    /// The side whose node it takes or cuts off.
    fn node(self) -> Option<Side> {
        match self {
            KillNode(s) | CutOff(s, _) | Drain(s) => Some(s),
            _ => None,
        }
    }

    /// Whether it says anything to have both at once. A volume is lost beside a fault of the operator only: with both servers in
    /// doubt, the one whose volume goes may be the only good copy, and no rule promises anything then.
    fn goes_with(self, other: Self) -> bool {
        let of_operator = |f| matches!(f, KillOperator | FreezeOperator | RestartApi);
        if self == LoseVolume || other == LoseVolume {
            return self != other && (of_operator(self) || of_operator(other));
        }
        let twice_one_node = self.node().is_some() && self.node() == other.node();
        let twice_operator = matches!(
            (self, other),
            (KillOperator | FreezeOperator, KillOperator | FreezeOperator)
        );
        self != other && !twice_one_node && !twice_operator
    }

    /// Those that need the API server come before it is taken away. A Pod is deleted by force after its node was killed or cut off: then
    /// nobody ends its mysqld, and a former self is left.
    fn order(self) -> u8 {
        match self {
            LoseVolume | DeletePod(_) | Drain(_) | FillVolume(_) => 0,
            ForcePod(_) => 2,
            RestartApi => 3,
            _ => 1,
        }
    }
}

/// What is done at once, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blow {
    /// One fault or two.
    pub faults: Vec<Fault>,
    /// Between the first and the second.
    pub apart: Duration,
    /// From the last one until all is healed.
    pub hold: Duration,
    /// Afterwards, while all is well.
    pub rest: Duration,
}

impl fmt::Display for Blow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.faults.iter().map(ToString::to_string).collect();
        let apart = match names.len() {
            0 | 1 => String::new(),
            _ => format!(" ({:.1} s apart)", self.apart.as_secs_f64()),
        };
        write!(
            f,
            "{}{apart}, held {:.1} s",
            names.join(" + "),
            self.hold.as_secs_f64()
        )
    }
}

/// Blows from a seed, without end: every fault once in a random order, then all of them anew. The same seed gives the same blows.
pub struct Deck {
    dice: Dice,
    all: Vec<Fault>,
    pile: Vec<Fault>,
    together: bool,
}

impl Deck {
    /// From a seed and the faults that may be drawn.
    pub fn new(seed: u64, all: Vec<Fault>) -> Self {
        Self {
            dice: Dice::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            all,
            pile: vec![],
            together: false,
        }
    }

    /// Every blow has two faults, if there are two that go together.
    pub fn together(self, together: bool) -> Self {
        Self { together, ..self }
    }
}

impl Iterator for Deck {
    type Item = Blow;

    fn next(&mut self) -> Option<Blow> {
        if self.pile.is_empty() {
            self.pile.clone_from(&self.all);
            self.dice.shuffle(&mut self.pile);
        }
        let first = self.pile.pop()?;
        let mut faults = vec![first];
        // Drawn in any case, so that what follows is the same.
        let two = self.dice.below(3) == 0;
        if (two || self.together)
            && let Some(at) = self.pile.iter().rposition(|f| first.goes_with(*f))
        {
            faults.push(self.pile.remove(at));
        }
        faults.sort_by_key(|f| f.order());
        let mut millis = |from: u64, to: u64| Duration::from_millis(from + self.dice.below(to - from));
        let hold = faults
            .iter()
            .map(|f| f.lasts().unwrap_or((1, 3)))
            .map(|(from, to)| millis(from * 1000, to * 1000))
            .max()
            .unwrap_or_default();
        Some(Blow {
            faults,
            apart: millis(0, 2500),
            hold,
            rest: millis(1000, 4000),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn blows(seed: u64) -> Vec<Blow> {
        Deck::new(seed, ALL.to_vec()).take(100).collect()
    }

    #[test]
    fn a_seed_gives_the_same_blows_again() {
        assert_eq!(blows(7), blows(7));
        assert_ne!(blows(7), blows(8));
        assert_ne!(blows(1), blows(2));
    }

    #[test]
    fn every_fault_comes_before_any_comes_again() {
        let mut seen = vec![];
        for blow in Deck::new(3, ALL.to_vec()) {
            seen.extend(blow.faults);
            if seen.len() == ALL.len() {
                break;
            }
        }
        let names: BTreeSet<_> = seen.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn two_at_once_are_two_that_can_be() {
        let pairs: Vec<_> = (1..20).flat_map(blows).filter(|b| b.faults.len() > 1).collect();
        assert!(pairs.len() > 100);
        for blow in pairs {
            assert!(blow.faults[0].goes_with(blow.faults[1]), "{blow}");
            assert_ne!(blow.faults[0], RestartApi, "{blow}");
        }
        let mut forced = Deck::new(1, vec![ForcePod(Active), CutOff(Active, Cut::Both)]).together(true);
        for _ in 0..10 {
            let blow = forced.next().unwrap();
            assert_eq!(blow.faults, [CutOff(Active, Cut::Both), ForcePod(Active)]);
        }
        assert!(KillMysqld(Active).goes_with(KillMysqld(Passive)));
        assert!(!KillNode(Active).goes_with(Drain(Active)));
        assert!(!LoseVolume.goes_with(KillMysqld(Active)));
        assert!(LoseVolume.goes_with(FreezeOperator));
    }

    #[test]
    fn every_blow_is_bounded() {
        for blow in (1..20).flat_map(blows) {
            assert!(blow.hold < Duration::from_secs(20) && blow.rest < Duration::from_secs(4));
        }
    }
}
