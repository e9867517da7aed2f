//! Reasons of conditions and events of a move: one list, which `docs/conditions-and-events.md` explains.

/// Nothing is on record.
pub const NOT_MOVING: &str = "NotMoving";
/// A batch is undone.
pub const UNDOING: &str = "UndoingBatch";
/// Databases are made READ ONLY where they are not served.
pub const FENCING: &str = "Fencing";
/// Databases are opened where they are served.
pub const OPENING: &str = "OpeningShards";
/// Copies are being made.
pub const SEEDING: &str = "Seeding";
/// That failed, and is tried again.
pub const SEEDING_FAILED: &str = "SeedingFailed";
/// Copies can't be made as things are.
pub const SEEDING_REFUSED: &str = "SeedingRefused";
/// A pair is not there.
pub const PAIR_NOT_FOUND: &str = "PairNotFound";
/// Nobody knows where some shards are wished.
pub const UNDECIDED: &str = "WishUndecided";
/// A pair has no two members, or is not ready.
pub const PAIR_NOT_READY: &str = "PairNotReady";
/// Channels are being set up.
pub const CONNECTING: &str = "ConnectingPairs";
/// A channel has stopped with an error.
pub const CHANNEL_BROKEN: &str = "ChannelBroken";
/// Copies lack what can't be had any more from the server that they take from.
pub const LOGS_PURGED: &str = "LogsPurged";
/// Copies are being compared.
pub const VERIFYING: &str = "Verifying";
/// The comparison came to no end, and is tried again.
pub const VERIFICATION_UNKNOWN: &str = "VerificationUnknown";
/// Copies are different.
pub const COPIES_DIFFER: &str = "CopiesDiffer";
/// A person has to approve.
pub const WAITING_FOR_APPROVAL: &str = "WaitingForApproval";
/// The window is closed.
pub const WAITING_FOR_WINDOW: &str = "WaitingForWindow";
/// The target lacks much.
pub const CATCHING_UP: &str = "CatchingUp";
/// Shards are being cut over.
pub const CUTTING_OVER: &str = "CuttingOver";
/// A batch was undone a moment ago.
pub const BATCH_UNDONE: &str = "BatchUndone";
/// Open transactions keep shards from being fenced.
pub const OPEN_TRANSACTIONS: &str = "OpenTransactions";
/// Every shard is where it is wished, and the way back is open.
pub const RETAINING: &str = "Retaining";
/// Channels and copies are being taken away.
pub const CLEANING_UP: &str = "CleaningUp";
/// All four servers have to answer.
pub const WAITING_FOR_SERVERS: &str = "WaitingForServers";

/// Event: copies are being made.
pub const SEEDING_STARTED: &str = "SeedingStarted";
/// Event: every copy is complete.
pub const SEEDED: &str = "Seeded";
/// Event: copies were found equal.
pub const VERIFIED: &str = "Verified";
/// Event: it is not known any more whether copies are equal.
pub const UNVERIFIED: &str = "Unverified";
/// Event: every shard is where it is wished.
pub const ARRIVED: &str = "ShardsArrived";
/// Event: a client's transaction was ended.
pub const TRANSACTION_ENDED: &str = "TransactionEnded";
/// Event: the move ends, and there is no way back over it.
pub const WAY_BACK_ENDED: &str = "WayBackEnded";
/// Event: nothing is left of the move.
pub const MOVE_ENDED: &str = "MoveEnded";

/// Those of conditions.
const ALL: [&str; 25] = [
    NOT_MOVING,
    UNDOING,
    FENCING,
    OPENING,
    SEEDING,
    SEEDING_FAILED,
    SEEDING_REFUSED,
    PAIR_NOT_FOUND,
    UNDECIDED,
    PAIR_NOT_READY,
    CONNECTING,
    CHANNEL_BROKEN,
    LOGS_PURGED,
    VERIFYING,
    VERIFICATION_UNKNOWN,
    COPIES_DIFFER,
    WAITING_FOR_APPROVAL,
    WAITING_FOR_WINDOW,
    CATCHING_UP,
    CUTTING_OVER,
    BATCH_UNDONE,
    OPEN_TRANSACTIONS,
    RETAINING,
    CLEANING_UP,
    WAITING_FOR_SERVERS,
];

/// The reason of a condition that is written like this.
pub fn known(text: &str) -> Option<&'static str> {
    ALL.into_iter().find(|reason| *reason == text)
}
