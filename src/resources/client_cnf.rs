//! The options with which the Pod's own client reaches its server: preStop asks it whether it still takes writes, and the
//! container's first process ends it.

use crate::core::credentials::Credentials;

/// The file's name.
pub const FILE: &str = "client.cnf";

/// Where the server listens for it, as my.cnf says.
const SOCKET: &str = "/run/mysqld/mysqld.sock";

/// The text of the file: root, through the socket. A password holds no quote and no backslash
/// ([`Credentials::from_data`] sees to it).
pub fn client_cnf(credentials: &Credentials) -> String {
    format!(
        "[client]\nuser = root\npassword = \"{}\"\nsocket = {SOCKET}\nconnect_timeout = 2\n",
        credentials.root_password,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::{pair::tests::context, pair_children};

    #[test]
    fn the_socket_is_that_of_my_cnf() {
        let files = pair_children(&context()).config_map.data.unwrap();
        for file in files.values() {
            assert!(file.contains(&format!("\nsocket = {SOCKET}\n")), "{file}");
        }
    }
}
