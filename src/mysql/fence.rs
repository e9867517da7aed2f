//! Opening and closing a server. Nothing else in the operator writes `read_only`.

use super::{Error, session::Session};
use crate::deadline;

/// Closes a server for everybody, the operator included; `read_only` goes on with it. Commits that are under way get error 1290.
///
/// # Errors
/// As [`Error`]; 1205 when a session holds LOCK TABLES for longer than the session waits.
pub async fn close(s: &mut Session) -> Result<(), Error> {
    s.run(deadline::CHANGE, "SET GLOBAL super_read_only = ON").await
}

/// Opens a server for everybody.
///
/// # Errors
/// As [`Error`].
pub async fn open(s: &mut Session) -> Result<(), Error> {
    s.run(deadline::CHANGE, "SET GLOBAL read_only = OFF").await
}
