//! What a scenario is, and the groups that they run in.

use crate::fleet::Fleet;
use anyhow::Result;
use futures::future::BoxFuture;
use std::sync::Arc;

/// The future of a scenario or fixture.
pub type Run = BoxFuture<'static, Result<()>>;
/// A scenario's body.
pub type Body = fn(Arc<Fleet>) -> Run;

/// When a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Always.
    Short,
    /// With `--full` only.
    Full,
}

/// What a scenario needs that not every cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The project's own test bed: processes of nodes can be killed.
    TestBed,
    /// The operator is installed by this run, so that it may be changed and killed.
    Operator,
    /// The operator under a second tag.
    SecondOperatorImage,
}

/// One scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name, unique; docs and the list of skips refer to it.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// When it runs.
    pub set: Set,
    /// What it needs.
    pub needs: &'static [Need],
    /// Its body.
    pub body: Body,
}

/// Where the scenarios of a group run.
#[derive(Clone, Copy)]
pub enum Fixture {
    /// Each in an empty namespace of its own, beside others.
    Empty,
    /// One after the other on the same fleet, made once. After a failure the fleet is thrown away and the next scenario gets
    /// a new one.
    Shared(Body),
}

/// Scenarios that belong together.
pub struct Group {
    /// Part of the namespaces' names.
    pub name: &'static str,
    /// Runs alone, after all others: it kills or changes the operator, or moves shards under load, which keeps six servers busy.
    pub alone: bool,
    /// What its scenarios begin with.
    pub fixture: Fixture,
    /// In their order.
    pub scenarios: Vec<Scenario>,
}

/// A scenario from its name, set, one line and body.
#[macro_export]
macro_rules! scenario {
    ($set:ident, $name:literal, $body:path, $about:literal $(, $need:ident)*) => {
        $crate::scenario::Scenario {
            name: $name,
            about: $about,
            set: $crate::scenario::Set::$set,
            needs: &[$($crate::scenario::Need::$need),*],
            body: |fleet| Box::pin(async move { $body(&fleet).await }),
        }
    };
}

/// A fixture that is shared, from its body.
#[macro_export]
macro_rules! shared {
    ($body:path) => {
        $crate::scenario::Fixture::Shared(|fleet| Box::pin(async move { $body(&fleet).await }))
    };
}
