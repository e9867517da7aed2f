//! Why a command did not do what it was asked for.

use std::process::ExitCode;

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub enum Failure {
    /// What was asked for makes no sense; each text says what is wrong with one part of it.
    BadInput(Vec<String>),
    /// It makes sense, but could not be done.
    Failed(anyhow::Error),
}

impl Failure {
    /// One thing that makes no sense.
    pub fn bad_input(what: impl std::fmt::Display) -> Self {
        Self::BadInput(vec![what.to_string()])
    }

    /// Says it on standard error, and with what code to end.
    pub fn report(&self) -> ExitCode {
        match self {
            Self::BadInput(all) => {
                for what in all {
                    eprintln!("error: {what}");
                }
                ExitCode::from(2)
            }
            Self::Failed(error) => {
                eprintln!("error: {error:#}");
                ExitCode::from(1)
            }
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}
