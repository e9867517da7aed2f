//! What is to be copied yet, and how each database stands.

use super::{copy::Failure, layout::Database, rows::Range};
use crate::mysql::Error;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A piece of work.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    Begin(usize),
    Part(usize, usize, Range),
    Finish(usize),
}

impl Task {
    pub(super) fn database(self) -> usize {
        match self {
            Self::Begin(d) | Self::Part(d, ..) | Self::Finish(d) => d,
        }
    }
}

/// One database's state.
#[derive(Debug, Default)]
pub(super) struct Item {
    /// Parts that are left of each table.
    pub(super) left: Vec<usize>,
    /// Tasks under way.
    pub(super) running: usize,
    /// Tables with values to ask about.
    pub(super) doubtful: BTreeSet<usize>,
    pub(super) tries: u32,
    /// This try has failed.
    pub(super) broken: bool,
    pub(super) complete: bool,
    pub(super) given_up: bool,
}

impl Item {
    pub(super) fn is_settled(&self) -> bool {
        self.complete || self.given_up
    }
}

pub(super) struct State {
    pub(super) databases: Vec<Item>,
    pub(super) begin: VecDeque<usize>,
    pub(super) tasks: VecDeque<Task>,
    pub(super) failed: BTreeMap<String, Failure>,
    pub(super) ended: Option<Error>,
    pub(super) over: bool,
}

impl State {
    pub(super) fn new(databases: &[Database], missing: Vec<String>) -> Self {
        let mut state = Self {
            databases: databases.iter().map(|_| Item::default()).collect(),
            begin: VecDeque::new(),
            tasks: VecDeque::new(),
            failed: missing
                .into_iter()
                .map(|d| (d, Failure::Refused("it is not on the source".to_owned())))
                .collect(),
            ended: None,
            over: false,
        };
        for (i, d) in databases.iter().enumerate() {
            if d.refused.is_empty() {
                state.begin.push_back(i);
            } else {
                state.databases[i].given_up = true;
                state.failed.insert(
                    d.name.clone(),
                    Failure::Refused(format!("cannot be copied: {}", d.refused.join("; "))),
                );
            }
        }
        state
    }
}
