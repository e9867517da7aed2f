//! Copying one server over another one by CLONE. The one that is overwritten must not be a member of anything any more.

use super::{Error, conn::literal, replication, session::Session, shard_fence};
use crate::{core::credentials::CLONE_USER, deadline};
use std::time::Duration;

/// The longest copy: about 2 TB at the speed of a slow disk. It has no deadline of seconds because the statement is the copy.
pub const LIMIT: Duration = Duration::from_secs(6 * 3600);

/// Which server is copied.
pub struct Donor {
    /// DNS name.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Password of the clone account.
    pub password: String,
    /// File on the recipient with the authority that signed the donor's certificate.
    pub ca_file: String,
}

/// Makes the recipient ready: no channel, and open to the operator so that CLONE may drop what it has, which it cannot do to a fenced database
/// (error 3989). `read_only` stays ON. Fences are as the donor's afterwards, and so are channels with a name, stopped and without a filter.
///
/// # Errors
/// As [`Error`].
pub async fn prepare(s: &mut Session, donor: &Donor) -> Result<(), Error> {
    replication::forget(s).await?;
    s.run(
        deadline::CHANGE,
        format!(
            "SET GLOBAL clone_valid_donor_list = {}, GLOBAL clone_ssl_ca = {}",
            literal(&format!("{}:{}", donor.host, donor.port)),
            literal(&donor.ca_file)
        ),
    )
    .await?;
    s.run(deadline::CHANGE, "SET GLOBAL super_read_only = OFF")
        .await?;
    shard_fence::open_all(s).await
}

/// Copies. When it went well mysqld ends and is started anew by the kubelet, so a broken connection says nothing; what became of
/// it is in `clone_status`.
///
/// # Errors
/// As [`Error`]; the server's own number when it refused or failed.
pub async fn run(s: &mut Session, donor: &Donor) -> Result<(), Error> {
    let sql = format!(
        "CLONE INSTANCE FROM {}@{}:{} IDENTIFIED BY {} REQUIRE SSL",
        literal(CLONE_USER),
        literal(&donor.host),
        donor.port,
        literal(&donor.password)
    );
    s.run(LIMIT, sql).await
}
