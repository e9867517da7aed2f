//! Why a step was not done.

use crate::act::{apply::Error as ApiError, errant, server_error::ServerError};

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Somebody else changed the record, or the pair, in between: what was decided is void.
    #[error("the record changed since it was read")]
    Superseded,
    /// The connection that observed the server is gone.
    #[error("{0}: the connection is gone")]
    NoConnection(String),
    /// There are no credentials to do it with.
    #[error("there are no credentials")]
    NoCredentials,
    /// A planned switchover was given up before it was recorded.
    #[error("the switchover was given up, {}: {source}", if *.reopened { "the server is open again" } else { "the server is still closed" })]
    Aborted {
        /// Whether the active server was opened again at once; if not, the next pass does.
        reopened: bool,
        /// Why.
        #[source]
        source: Box<Error>,
    },
    /// Errant transactions could not be saved.
    #[error(transparent)]
    Errant(#[from] errant::Error),
    /// The pair to clone is not as it has to be.
    #[error(
        "{0} is not cloned before it has two members, and one of them to copy from that is not the active one"
    )]
    NoDonor(String),
    /// Somebody has written to a server that is to be overwritten, or given up.
    #[error("{0} is not empty any more, and another pair was to be cloned over its own")]
    NotEmpty(String),
    /// It goes on after the pass.
    #[error("{0} takes a while")]
    Busy(&'static str),
}

impl Error {
    /// A server answered well but was not as far as it should be: the next pass sees how far it is.
    pub fn is_not_reached(&self) -> bool {
        matches!(self, Self::Server(e) if e.is_not_reached())
    }
    /// Somebody wrote in between: what was decided is void, and nothing stands in the way of deciding anew.
    pub fn is_void(&self) -> bool {
        match self {
            Self::Superseded => true,
            Self::Api(e) => e.is_conflict(),
            _ => false,
        }
    }
    /// Nobody can say whether the API did what it was asked to do.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Api(e) if !e.is_answered())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mysql;

    fn failed(source: mysql::Error) -> Error {
        Error::Server(ServerError {
            pod: "p-0".into(),
            step: "apply",
            source,
        })
    }

    #[test]
    fn what_was_not_reached_is_told_from_what_failed() {
        assert!(failed(mysql::Error::NotReached("behind".into())).is_not_reached());
        assert!(!failed(mysql::Error::Protocol("broken".into())).is_not_reached());
        assert!(Error::Superseded.is_void() && !failed(mysql::Error::NotReached("behind".into())).is_void());
    }

    #[test]
    fn an_aborted_switchover_says_whether_writes_go_on() {
        let aborted = |reopened| Error::Aborted {
            reopened,
            source: Box::new(failed(mysql::Error::NotReached("behind".into()))),
        };
        assert_eq!(
            aborted(true).to_string(),
            "the switchover was given up, the server is open again: p-0: apply: behind"
        );
        assert!(aborted(false).to_string().contains("still closed"));
    }
}
