//! What failed on a server.

use crate::mysql;

/// A step that failed on a server.
#[derive(Debug, thiserror::Error)]
#[error("{pod}: {step}: {source}")]
pub struct ServerError {
    /// Its Pod.
    pub pod: String,
    /// What was tried.
    pub step: &'static str,
    /// Why it failed.
    #[source]
    pub source: mysql::Error,
}

impl ServerError {
    /// The server answered well but was not as far as it should be.
    pub fn is_not_reached(&self) -> bool {
        matches!(self.source, mysql::Error::NotReached(_))
    }
}

/// The result of a step on the server of this Pod.
///
/// # Errors
/// When it failed.
pub fn on<T, E: From<ServerError>>(
    pod: impl FnOnce() -> String,
    step: &'static str,
    result: Result<T, mysql::Error>,
) -> Result<T, E> {
    result.map_err(|source| {
        let pod = pod();
        ServerError { pod, step, source }.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(source: mysql::Error) -> ServerError {
        let failed: Result<(), _> = on(|| "p-0".into(), "apply", Err(source));
        failed.unwrap_err()
    }

    #[test]
    fn what_was_not_reached_is_told_from_what_failed() {
        assert!(failed(mysql::Error::NotReached("behind".into())).is_not_reached());
        assert!(!failed(mysql::Error::Protocol("broken".into())).is_not_reached());
    }

    #[test]
    fn it_says_where_and_what() {
        let error = failed(mysql::Error::NotReached("behind".into()));
        assert_eq!(error.to_string(), "p-0: apply: behind");
    }
}
