//! Why shards do not move, and why a move ends before its time.

use crate::{api::placement::MoveKey, core::placement::moves};

/// Why shards that are wished at another pair do not set out for it now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// A pair does not exist.
    PairNotFound {
        /// Its name.
        pair: String,
    },
    /// The pair where they are wished is being deleted.
    PairDeleting {
        /// Its name.
        pair: String,
    },
    /// A pair belongs to another cluster.
    PairOfOtherCluster {
        /// Its name.
        pair: String,
        /// The cluster it names.
        cluster: String,
    },
    /// The pair where they are wished has databases of them that no move made.
    UnknownCopies {
        /// Its name.
        pair: String,
    },
    /// A pair is not Ready.
    PairNotReady {
        /// Its name.
        pair: String,
        /// What is wrong with it.
        trouble: String,
    },
    /// A pair has not said yet which databases it has.
    AskingServers {
        /// Its name.
        pair: String,
    },
    /// They are in a move to or from a third pair.
    InOtherMove {
        /// That move.
        key: MoveKey,
    },
    /// There is a move between the two pairs that takes no more shards.
    LinkInUse {
        /// That move.
        key: MoveKey,
    },
    /// Moves connect the two pairs already, over others: another link would close a circle.
    ClosesCircle {
        /// Those moves, from one of the two pairs to the other.
        path: Vec<MoveKey>,
    },
    /// A pair is being cloned over.
    BeingCloned {
        /// Its name.
        pair: String,
    },
    /// A pair has as many moves under way as the policy allows.
    PairBusy {
        /// Its name.
        pair: String,
        /// The limit.
        limit: usize,
    },
    /// The cluster has as many moves under way as the policy allows.
    ClusterBusy {
        /// The limit.
        limit: usize,
    },
    /// They are more separate runs than a move takes; the others go first.
    TooManyRuns,
}

impl Why {
    /// It does not pass by itself: somebody has to change something.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::PairNotFound { .. }
                | Self::PairDeleting { .. }
                | Self::PairOfOtherCluster { .. }
                | Self::UnknownCopies { .. }
        )
    }
    /// The word for conditions and scripts.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::PairNotFound { .. } => "PairNotFound",
            Self::PairDeleting { .. } => "PairDeleting",
            Self::PairOfOtherCluster { .. } => "PairOfOtherCluster",
            Self::UnknownCopies { .. } => "UnknownCopies",
            Self::PairNotReady { .. } => "PairNotReady",
            Self::AskingServers { .. } => "AskingServers",
            Self::InOtherMove { .. } => "InOtherMove",
            Self::LinkInUse { .. } => "LinkInUse",
            Self::ClosesCircle { .. } => "ClosesCircle",
            Self::BeingCloned { .. } => "BeingCloned",
            Self::PairBusy { .. } => "PairBusy",
            Self::ClusterBusy { .. } => "ClusterBusy",
            Self::TooManyRuns => "TooManyRuns",
        }
    }
    /// The same for people.
    pub fn message(&self) -> String {
        match self {
            Self::PairNotFound { pair } => format!("there is no MySQLPair {pair} in this namespace"),
            Self::PairDeleting { pair } => {
                format!(
                    "MySQLPair {pair} is being deleted and takes no shards: name another pair in `pairRef`"
                )
            }
            Self::PairOfOtherCluster { pair, cluster } => {
                format!("MySQLPair {pair} belongs to ShardCluster {cluster}")
            }
            Self::UnknownCopies { pair } => format!(
                "{pair} has databases of them already, and no move made these: look what is in them, and drop them there"
            ),
            Self::PairNotReady { pair, trouble } => {
                format!("waits for MySQLPair {pair} to be Ready: {trouble}")
            }
            Self::AskingServers { pair } => format!("waits until {pair} has said which databases it has"),
            Self::InOtherMove { key } => {
                format!("waits until the move {key} has ended, and its copies are removed")
            }
            Self::LinkInUse { key } => {
                format!("waits until the move {key} has ended: between two pairs there is one at a time")
            }
            Self::ClosesCircle { path } => format!(
                "waits until one of the moves {} has ended: another link between the two pairs would close a circle",
                moves::listed(path)
            ),
            Self::BeingCloned { pair } => format!("waits until the cloning of {pair} is done"),
            Self::PairBusy { pair, limit } => {
                format!("waits: {pair} has {limit} moves under way, the limit for a pair")
            }
            Self::ClusterBusy { limit } => {
                format!("waits: the cluster has {limit} moves under way, the limit")
            }
            Self::TooManyRuns => {
                "waits until the other shards of this move are done: it would have too many separate runs"
                    .into()
            }
        }
    }
}

/// Why a move is cleaned up without the time of grace: no shard of it has a way to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Early {
    /// Every shard is where it was, and wished there: nothing is left of the move.
    NothingMoved,
    /// Some are wished at a third pair, where they can go only when this move has ended.
    WishedElsewhere,
    /// Other shards wait for a move between the two pairs.
    LinkWanted,
    /// One of its pairs is being deleted, or is gone.
    PairLeaves,
    /// Others wait for a move that would close a circle of links with it.
    MakesWay,
}

impl Early {
    /// The word for conditions and scripts.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NothingMoved => "NothingMoved",
            Self::WishedElsewhere => "WishedElsewhere",
            Self::LinkWanted => "LinkWanted",
            Self::PairLeaves => "PairLeaves",
            Self::MakesWay => "MakesWay",
        }
    }
}
