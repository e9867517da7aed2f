//! The table of states, for people: `docs/split.md` has it as [`table`] makes it. The tests hold each row to what [`super::decide()`] does.

use std::fmt::Write as _;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the state.
    pub name: &'static str,
    /// Stages that it may hold in; none for whichever.
    pub stages: &'static [&'static str],
    /// When it holds, if no row above does.
    pub holds: &'static str,
    /// What is done.
    pub done: &'static str,
    /// Transitions of the record that it makes.
    pub records: &'static [&'static str],
    /// Reason of the condition.
    pub reason: &'static str,
}

const ANY: &[&str] = &[];
const SEEDING: &[&str] = &["Seeding"];
const FOLLOWING: &[&str] = &["Following"];
const RETAINING: &[&str] = &["Retaining"];
const LIVE: &[&str] = &["Seeding", "Following", "Retaining"];
const LINKED: &[&str] = &["Following", "Retaining"];
const CLEANING: &[&str] = &["CleaningUp"];

const fn row(
    name: &'static str,
    stages: &'static [&'static str],
    holds: &'static str,
    done: &'static str,
    records: &'static [&'static str],
    reason: &'static str,
) -> Row {
    Row {
        name,
        stages,
        holds,
        done,
        records,
        reason,
    }
}

/// The rows, in the order in which they are asked for.
pub const ROWS: &[Row] = &[
    row(
        "Gone",
        ANY,
        "the move is not on record",
        "nothing",
        &[],
        "`NotMoving`",
    ),
    row(
        "WorkLeft",
        ANY,
        "this operator copies in the background, and the stage is not Seeding; or it copies or compares, and the stage is CleaningUp or the move is not on record",
        "end that work, forget its outcome",
        &[],
        "`CleaningUp`",
    ),
    row(
        "BatchLeft",
        ANY,
        "a batch is on record",
        "record that it is undone; then open its shards on the active server where they are placed. It was begun by a pass that ended before the point of no return",
        &["UndoBatch"],
        "`UndoingBatch`",
    ),
    row(
        "FenceMissing",
        ANY,
        "a server that answers has a database open that is to be shut; copies of a move in stage Seeding are exempt until all of them are seeded: those of this move as long as this operator makes them",
        "make them READ ONLY, each server for itself",
        &[],
        "`Fencing`",
    ),
    row(
        "FenceLeft",
        ANY,
        "an active server has a shard of the move shut that is placed there and is not to be shut",
        "open it there",
        &[],
        "`OpeningShards`",
    ),
    row(
        "FenceAhead",
        ANY,
        "a passive server has, and it is neither one that is verified and bound for the other end in stage Following or Retaining, nor one of fewer than 16 at an end that another batch may go to",
        "open it there",
        &[],
        "`OpeningShards`",
    ),
    row(
        "OthersCopy",
        CLEANING,
        "this operator makes copies at one of the pairs for another move",
        "wait: whoever takes the lock of one of its servers ends that",
        &[],
        "`CleaningUp`",
    ),
    row(
        "ChannelLeft",
        CLEANING,
        "a server that answers has the channel of the move",
        "take the channels away, from all that have one",
        &[],
        "`CleaningUp`",
    ),
    row(
        "Unseen",
        CLEANING,
        "a server of a pair that is there does not answer",
        "wait: it may have a channel",
        &[],
        "`WaitingForServers`",
    ),
    row(
        "Dropping",
        CLEANING,
        "a server has a copy that is needless",
        "with the locks of all servers: look once more that none has a channel, then drop 4 copies on each (R6), once a second",
        &[],
        "`CleaningUp`",
    ),
    row(
        "PairOpening",
        CLEANING,
        "a pair that is there is not ready: it may yet be opened by what was on record before",
        "wait",
        &[],
        "`PairNotReady`",
    ),
    row(
        "Over",
        CLEANING,
        "nothing of this",
        "with the locks of all servers: look once more that none has a channel, then take the move off the record",
        &["EndMove"],
        "`CleaningUp`",
    ),
    row(
        "PairMissing",
        LIVE,
        "shards are placed at a pair that is not there",
        "nothing; a person has to",
        &[],
        "`PairNotFound`, `Stalled`",
    ),
    row(
        "Resuming",
        RETAINING,
        "a shard is bound for an end",
        "record Following: shards change sides again",
        &["Resume"],
        "`CuttingOver`",
    ),
    row(
        "NotWanted",
        LIVE,
        "no shard is bound for an end or undecided, and none is moved: the wish was taken back, or the pair that it names takes nothing more",
        "record CleaningUp",
        &["CleanUp"],
        "`CleaningUp`",
    ),
    row(
        "Superseded",
        LINKED,
        "no shard is bound for an end or undecided; and a shard is wished at a third pair, or others wait for a move between the two pairs, or one of these is being deleted or gone, or it makes way for a move that would close a circle of links",
        "record CleaningUp: another move is planned when this one is over",
        &["CleanUp"],
        "`CleaningUp`",
    ),
    row(
        "Arrived",
        FOLLOWING,
        "no shard is bound for an end or undecided: each is where it is wished",
        "record Retaining, for `retainSource` from now on",
        &["Retain"],
        "`CuttingOver`",
    ),
    row(
        "RetentionOver",
        RETAINING,
        "no shard is undecided; and `retainUntil` has passed, or a person does not want the way back any longer",
        "record CleaningUp",
        &["CleanUp"],
        "`CleaningUp`",
    ),
    row(
        "Cloned",
        SEEDING,
        "the move is physical, and a shard is not seeded; `to` is whole, and both its servers have all shards of the move",
        "record them, with what both have executed of what the source's passive server has",
        &["Seeded"],
        "`Seeding`",
    ),
    row(
        "Outgrown",
        SEEDING,
        "the same but for a shard that came into being after the clone",
        "record CleaningUp: another move is planned when this one is over",
        &["CleanUp"],
        "`CleaningUp`",
    ),
    row(
        "NotCloneable",
        SEEDING,
        "the move is physical, and a shard is not seeded; both servers of `to` answer, and have no shard; and one has databases that are no shards, or no clone plugin, or the last CLONE failed a moment ago with an error that does not pass by itself (no space, another version or configuration)",
        "with the locks of both: record that copies are made database by database",
        &["CopyRather"],
        "`Seeding`",
    ),
    row(
        "CloneFailed",
        SEEDING,
        "the same; the last CLONE failed a moment ago, and none runs",
        "wait: it is tried again, as any copy within a pair",
        &[],
        "`SeedingFailed`",
    ),
    row(
        "Cloning",
        SEEDING,
        "the move is physical, and a shard is not seeded",
        "wait: the controller of `to` [clones](#cloning-a-pair)",
        &[],
        "`Seeding`",
    ),
    row(
        "Seeded",
        SEEDING,
        "the work in the background has completed copies that are not recorded, and both servers of that end have the databases",
        "record them",
        &["Seeded"],
        "`Seeding`",
    ),
    row("Seeding", SEEDING, "it runs", "wait", &[], "`Seeding`"),
    row(
        "SeedRefused",
        SEEDING,
        "it can't be done as things are",
        "nothing; a person has to change what it names",
        &[],
        "`SeedingRefused`, `Stalled`",
    ),
    row(
        "SeedFailed",
        SEEDING,
        "it failed a moment ago",
        "wait: 5 s, twice that after the second time, and so on, 5 min at most",
        &[],
        "`SeedingFailed`",
    ),
    row(
        "AllSeeded",
        SEEDING,
        "every shard is seeded",
        "record Following",
        &["Follow"],
        "`Seeding`",
    ),
    row(
        "SeedWaits",
        SEEDING,
        "a pair is not whole",
        "wait",
        &[],
        "`PairNotReady`",
    ),
    row(
        "SeedDue",
        SEEDING,
        "a shard is not seeded",
        "begin to copy in the background, from the passive server to both servers of the other end, with the locks of these",
        &[],
        "`Seeding`",
    ),
    row(
        "ChannelMisplaced",
        LINKED,
        "a passive server has the channel",
        "take it away",
        &[],
        "`ConnectingPairs`",
    ),
    row(
        "ChannelAstray",
        LINKED,
        "the channel runs, and leads elsewhere than to the passive server of the other pair",
        "stop it: it must not acknowledge for a member (P3)",
        &[],
        "`ConnectingPairs`",
    ),
    row(
        "FilterLost",
        LINKED,
        "the channel runs with another filter than the shards of the move",
        "record the copies at this end as not verified; then stop it",
        &["Unverified"],
        "`ChannelBroken`",
    ),
    row(
        "LogsPurged",
        LINKED,
        "the channel does not run, or is not there and all counts; the other pair's passive server follows, and has purged transactions that this end's active server lacks; and there are copies at this end",
        "record CleaningUp: they can't follow any more. What still has to move is copied anew by another move",
        &["CleanUp"],
        "`LogsPurged`",
    ),
    row(
        "ChannelBroken",
        LINKED,
        "the channel leads there, and has stopped with an error",
        "record the copies at this end as not verified; set the filter, start it, each 5 s",
        &["Unverified"],
        "`ChannelBroken`; `Stalled` after 60 s",
    ),
    row(
        "ChannelStopped",
        LINKED,
        "the channel leads there, and is stopped without an error",
        "set the filter, start it",
        &[],
        "`ConnectingPairs`",
    ),
    row(
        "ChannelConnecting",
        LINKED,
        "the channel leads there, and a thread of it does not run yet",
        "wait",
        &[],
        "`ConnectingPairs`",
    ),
    row(
        "SourceMissing",
        LINKED,
        "there is no channel, or it is stopped and leads elsewhere; and the other pair's passive server does not follow",
        "wait",
        &[],
        "`PairNotReady`",
    ),
    row(
        "NotCounted",
        LINKED,
        "the same, it follows, nothing is moved, and no GTID set is on record that this end counts as executed; or as for LogsPurged, and there is no copy at this end",
        "let both servers of this end count what that one has executed; record it",
        &["Counted"],
        "`ConnectingPairs`",
    ),
    row(
        "ChannelMissing",
        LINKED,
        "the same, and one is",
        "point the channel of the active server at the passive one of the other pair, set its filter, start it",
        &[],
        "`ConnectingPairs`",
    ),
    row(
        "Retaining",
        RETAINING,
        "nothing of this",
        "nothing: `pairRef` may be set back",
        &[],
        "`Retaining`, Ready",
    ),
    row(
        "Undecided",
        FOLLOWING,
        "no shard is bound for an end",
        "wait: a range that is replaced by another one in the same commit ends nothing",
        &[],
        "`WishUndecided`",
    ),
    row(
        "PairNotReady",
        FOLLOWING,
        "a pair is not whole",
        "wait",
        &[],
        "`PairNotReady`",
    ),
    row(
        "Doubted",
        FOLLOWING,
        "shards are verified and bound for this end; what was changed in them was found different, or the binary logs do not have all of it any more",
        "record these as not verified",
        &["Unverified"],
        "`Verifying`",
    ),
    row(
        "Verifying",
        FOLLOWING,
        "a shard is bound for this end and not verified; copies of such are being compared",
        "wait",
        &[],
        "`Verifying`",
    ),
    row(
        "Equal",
        FOLLOWING,
        "the same; they were found equal at one position",
        "record them as verified",
        &["Verified"],
        "`Verifying`",
    ),
    row(
        "Different",
        FOLLOWING,
        "the same; they were found different, and no person has asked for another comparison since",
        "nothing is switched; a person has to find out why",
        &[],
        "`CopiesDiffer`, `Stalled`",
    ),
    row(
        "NotVerified",
        FOLLOWING,
        "the same; a moment ago the comparison came to no end, which proves nothing (R4)",
        "wait, as for SeedFailed",
        &[],
        "`VerificationUnknown`",
    ),
    row(
        "VerifyDue",
        FOLLOWING,
        "the same",
        "begin to compare in the background",
        &[],
        "`Verifying`",
    ),
    row(
        "WaitingForApproval",
        FOLLOWING,
        "`cutover: Manual`, no approval, and no shard that is bound for an end is going back",
        "wait",
        &[],
        "`WaitingForApproval`",
    ),
    row(
        "WaitingForWindow",
        FOLLOWING,
        "the same with the window closed",
        "wait",
        &[],
        "`WaitingForWindow`",
    ),
    row(
        "BackingOff",
        FOLLOWING,
        "a batch was undone a moment ago",
        "wait: 0.5 s, twice that after the second time in a row, and so on, 60 s at most",
        &[],
        "`BatchUndone`",
    ),
    row(
        "Ending",
        FOLLOWING,
        "a transaction keeps a shard from being fenced, that was tried in vain, and has been open for longer than the specification allows",
        "end it, and its connection",
        &[],
        "`OpenTransactions`",
    ),
    row(
        "Blocked",
        FOLLOWING,
        "every shard that is left could not be fenced a moment ago",
        "wait: 1 s, twice that after the second time, and so on, 60 s at most, each shard for itself",
        &[],
        "`OpenTransactions`",
    ),
    row(
        "CatchingUp",
        FOLLOWING,
        "the target lacks more than 1,000 transactions of the source",
        "wait",
        &[],
        "`CatchingUp`",
    ),
    row(
        "Rechecking",
        FOLLOWING,
        "what was changed in the shards that may go to this end was not compared within the last 60 s; such a comparison runs",
        "wait",
        &[],
        "`Verifying`",
    ),
    row(
        "NotRechecked",
        FOLLOWING,
        "the same; a moment ago it came to no end",
        "wait, as for SeedFailed",
        &[],
        "`VerificationUnknown`",
    ),
    row(
        "RecheckDue",
        FOLLOWING,
        "the same",
        "begin to compare, in the background, the rows that were changed since they were last found equal",
        &[],
        "`Verifying`",
    ),
    row(
        "FencingAhead",
        FOLLOWING,
        "a shard of the next batch is open on the source pair's passive server",
        "make the next 16 READ ONLY there",
        &[],
        "`CuttingOver`",
    ),
    row(
        "CuttingOver",
        FOLLOWING,
        "nothing of this",
        "cut the batch over, see below",
        &["BeginBatch", "CutOver"],
        "`CuttingOver`; `CatchingUp` when the target was not close enough just now",
    ),
];

/// The table as Markdown.
pub fn table() -> String {
    let mut out = String::from(
        "| State | Stage | Holds when (and no row above does) | What is done | Reason |\n|---|---|---|---|---|\n",
    );
    for r in ROWS {
        let stages = if r.stages.is_empty() {
            "any".to_owned()
        } else {
            r.stages.join(", ")
        };
        let _ = writeln!(
            out,
            "| {} | {stages} | {} | {} | {} |",
            r.name, r.holds, r.done, r.reason
        );
    }
    out
}
