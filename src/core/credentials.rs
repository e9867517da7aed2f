//! The passwords and the certificate authority of a cluster, and which copy of them survives.
//!
//! There is one copy for the cluster and a full one for each pair. None is owned by anything, so they outlive the cluster as
//! the volumes do; whichever is left heals the others. Passwords never reach a log: `Debug` says nothing of them.

use k8s_openapi::ByteString;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// Key of the operator's password.
pub const OPERATOR_PASSWORD: &str = "operator-password";
/// Key of the password of the replication and clone accounts.
pub const REPLICATION_PASSWORD: &str = "replication-password";
/// Key of the application's password.
pub const APP_PASSWORD: &str = "app-password";
/// Key of the password of `root@localhost`, a person's last resort.
pub const ROOT_PASSWORD: &str = "root-password";
/// Key of the authority's certificate, PEM.
pub const CA_CRT: &str = "ca.crt";
/// Key of the authority's private key, PEM.
pub const CA_KEY: &str = "ca.key";

/// The account that the operator logs in as.
pub const OPERATOR_USER: &str = "shardwright_operator";
/// What the names of the accounts that servers replicate with begin with.
pub const REPLICATION_USER_PREFIX: &str = "shardwright_r_";
/// What the names of the accounts that other pairs take with begin with.
pub const CHANNEL_USER_PREFIX: &str = "shardwright_m_";
/// The account that a server is copied with.
pub const CLONE_USER: &str = "shardwright_clone";
/// The account of applications.
pub const APP_USER: &str = "app";

/// The account that the server with this `server_uuid` replicates with. Each incarnation has one of its own, so that a former self that
/// nobody can reach is kept from acknowledging for its successor (rule P3). 30 characters; MySQL allows 32.
pub fn replication_user(server_uuid: &str) -> String {
    hashed(REPLICATION_USER_PREFIX, server_uuid)
}

/// The account that the pair of this name takes from another one with, while shards move between them. It is made on the pair that it takes
/// from, one for each pair that does.
pub fn channel_user(pair: &str) -> String {
    hashed(CHANNEL_USER_PREFIX, pair)
}

fn hashed(prefix: &str, of: &str) -> String {
    let hash = Sha256::digest(of.as_bytes());
    let mut user = prefix.to_owned();
    for byte in hash.iter().take(8) {
        let _ = write!(user, "{byte:02x}");
    }
    user
}

/// Passwords of the accounts, and the authority that signs the servers' certificates.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Of [`OPERATOR_USER`].
    pub operator_password: String,
    /// Of the accounts of [`replication_user`], of [`channel_user`] and of [`CLONE_USER`].
    pub replication_password: String,
    /// Of [`APP_USER`].
    pub app_password: String,
    /// Of `root@localhost`.
    pub root_password: String,
    /// Certificate of the authority, PEM.
    pub ca_crt: String,
    /// Private key of the authority, PEM.
    pub ca_key: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(redacted)")
    }
}

/// What is wrong with one key of a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It is not there, or empty.
    Missing,
    /// It is no password that can be written into a statement safely.
    NotAPassword,
    /// It is not PEM of the kind that belongs there.
    NotPem,
}

/// A Secret that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub struct CredentialsError {
    /// Name of the Secret.
    pub secret: String,
    /// The keys that are wrong, and how; at least one.
    pub faults: Vec<(&'static str, Fault)>,
}

impl fmt::Display for CredentialsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret {}: ", self.secret)?;
        for (i, (key, fault)) in self.faults.iter().enumerate() {
            let what = match fault {
                Fault::Missing => "is missing",
                Fault::NotAPassword => {
                    "must be 8 to 64 printable ASCII characters without blanks, quotes and backslashes"
                }
                Fault::NotPem => "is not PEM",
            };
            write!(f, "{}`{key}` {what}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl Credentials {
    /// Reads the copy in the Secret called `secret`; keys that do not belong to it are not looked at.
    ///
    /// # Errors
    /// [`CredentialsError`] with every key that is missing or garbled.
    pub fn from_data(secret: &str, data: &BTreeMap<String, ByteString>) -> Result<Self, CredentialsError> {
        let mut faults = vec![];
        let mut take = |key: &'static str, fault: Fault, fits: fn(&str) -> bool| -> String {
            let bytes = data.get(key).map(|b| b.0.as_slice()).unwrap_or_default();
            match std::str::from_utf8(bytes) {
                Ok("") => faults.push((key, Fault::Missing)),
                Ok(text) if fits(text) => return text.to_owned(),
                _ => faults.push((key, fault)),
            }
            String::new()
        };
        let read = Self {
            operator_password: take(OPERATOR_PASSWORD, Fault::NotAPassword, is_password),
            replication_password: take(REPLICATION_PASSWORD, Fault::NotAPassword, is_password),
            app_password: take(APP_PASSWORD, Fault::NotAPassword, is_password),
            root_password: take(ROOT_PASSWORD, Fault::NotAPassword, is_password),
            ca_crt: take(CA_CRT, Fault::NotPem, is_certificate),
            ca_key: take(CA_KEY, Fault::NotPem, is_private_key),
        };
        if faults.is_empty() {
            Ok(read)
        } else {
            Err(CredentialsError {
                secret: secret.to_owned(),
                faults,
            })
        }
    }

    /// The keys and values of a Secret.
    pub fn to_data(&self) -> BTreeMap<String, ByteString> {
        let Self {
            operator_password,
            replication_password,
            app_password,
            root_password,
            ca_crt,
            ca_key,
        } = self;
        [
            (OPERATOR_PASSWORD, operator_password),
            (REPLICATION_PASSWORD, replication_password),
            (APP_PASSWORD, app_password),
            (ROOT_PASSWORD, root_password),
            (CA_CRT, ca_crt),
            (CA_KEY, ca_key),
        ]
        .into_iter()
        .map(|(k, v)| (k.to_owned(), ByteString(v.clone().into_bytes())))
        .collect()
    }
}

/// Nothing that a quoted string of SQL or a line of an init file could trip over, whatever `sql_mode` is.
fn is_password(text: &str) -> bool {
    (8..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_graphic() && !matches!(b, b'\'' | b'"' | b'`' | b'\\' | b';'))
}

fn is_certificate(text: &str) -> bool {
    text.contains("-----BEGIN CERTIFICATE-----") && text.contains("-----END CERTIFICATE-----")
}

fn is_private_key(text: &str) -> bool {
    text.contains("-----BEGIN PRIVATE KEY-----") && text.contains("-----END PRIVATE KEY-----")
}

/// One copy as it was found: `Ok(None)` when there is no such Secret.
pub type Copy = Result<Option<Credentials>, CredentialsError>;

/// What comes of the copies that were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Healed {
    /// These are the cluster's credentials.
    Survives(Box<Credentials>),
    /// There is no copy, not even a garbled one: new ones may be made.
    NoneYet,
    /// No copy can be used, and a garbled one is there, which is not overwritten: somebody has to mend or to delete it.
    Garbled(Vec<CredentialsError>),
}

/// Decides which copy survives: the cluster's; without a usable one the one that most pairs have, and of as many the one of
/// the pair that comes first by name.
pub fn heal(cluster: &Copy, pairs: &[(String, Copy)]) -> Healed {
    let usable = pairs.iter().filter_map(|(name, c)| match c {
        Ok(Some(c)) => Some((name, c)),
        _ => None,
    });
    let survivor = match cluster {
        Ok(Some(c)) => Some(c),
        _ => usable
            .clone()
            .max_by(|(a, x), (b, y)| {
                let votes = |z: &Credentials| usable.clone().filter(|(_, c)| *c == z).count();
                votes(x).cmp(&votes(y)).then_with(|| b.cmp(a))
            })
            .map(|(_, c)| c),
    };
    let Some(credentials) = survivor else {
        let errors: Vec<_> = std::iter::once(cluster)
            .chain(pairs.iter().map(|(_, c)| c))
            .filter_map(|c| c.as_ref().err().cloned())
            .collect();
        return if errors.is_empty() {
            Healed::NoneYet
        } else {
            Healed::Garbled(errors)
        };
    };
    Healed::Survives(Box::new(credentials.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(tag: &str) -> Credentials {
        Credentials {
            operator_password: format!("operator-{tag}"),
            replication_password: format!("replication-{tag}"),
            app_password: format!("application-{tag}"),
            root_password: format!("root-root-{tag}"),
            ca_crt: "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n".into(),
            ca_key: "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n".into(),
        }
    }
    #[allow(clippy::unnecessary_wraps)]
    fn has(tag: &str) -> Copy {
        Ok(Some(credentials(tag)))
    }
    fn garbled(name: &str) -> Copy {
        Err(CredentialsError {
            secret: name.into(),
            faults: vec![(CA_KEY, Fault::Missing)],
        })
    }
    fn pairs(list: &[(&str, Copy)]) -> Vec<(String, Copy)> {
        list.iter().map(|(n, c)| ((*n).to_owned(), c.clone())).collect()
    }
    fn survives(h: &Healed) -> &str {
        match h {
            Healed::Survives(credentials) => &credentials.operator_password,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_secret_goes_round() {
        let c = credentials("x");
        assert_eq!(Credentials::from_data("s", &c.to_data()), Ok(c));
    }

    #[test]
    fn debug_says_nothing() {
        assert_eq!(format!("{:?}", credentials("x")), "Credentials(redacted)");
    }

    #[test]
    fn every_wrong_key_is_named() {
        let mut data = credentials("x").to_data();
        data.remove(OPERATOR_PASSWORD);
        data.insert(APP_PASSWORD.into(), ByteString(b"it's unsafe".to_vec()));
        data.insert(ROOT_PASSWORD.into(), ByteString(vec![0xff; 12]));
        data.insert(CA_CRT.into(), ByteString(b"certificate".to_vec()));
        let e = Credentials::from_data("c-credentials", &data).unwrap_err();
        assert_eq!(
            e.faults,
            [
                (OPERATOR_PASSWORD, Fault::Missing),
                (APP_PASSWORD, Fault::NotAPassword),
                (ROOT_PASSWORD, Fault::NotAPassword),
                (CA_CRT, Fault::NotPem),
            ]
        );
        let text = e.to_string();
        assert!(
            text.starts_with("Secret c-credentials: `operator-password` is missing, "),
            "{text}"
        );
        assert!(!text.contains("unsafe"), "{text}");
    }

    #[test]
    fn nothing_at_all_is_a_new_cluster() {
        assert_eq!(heal(&Ok(None), &pairs(&[("p0", Ok(None))])), Healed::NoneYet);
        assert_eq!(heal(&Ok(None), &[]), Healed::NoneYet);
    }

    #[test]
    fn the_clusters_copy_wins() {
        let h = heal(
            &has("c"),
            &pairs(&[
                ("p0", has("c")),
                ("p1", Ok(None)),
                ("p2", has("other")),
                ("p3", garbled("p3-credentials")),
            ]),
        );
        assert_eq!(survives(&h), "operator-c");
    }

    #[test]
    fn a_pairs_copy_brings_the_clusters_back() {
        for lost in [Ok(None), garbled("c-credentials")] {
            let h = heal(&lost, &pairs(&[("p0", Ok(None)), ("p1", has("p"))]));
            assert_eq!(survives(&h), "operator-p");
        }
    }

    #[test]
    fn of_different_copies_the_commonest_and_then_the_first_survives() {
        let h = heal(
            &Ok(None),
            &pairs(&[("p0", has("a")), ("p1", has("b")), ("p2", has("b"))]),
        );
        assert_eq!(survives(&h), "operator-b");
        let h = heal(&Ok(None), &pairs(&[("p1", has("b")), ("p0", has("a"))]));
        assert_eq!(survives(&h), "operator-a");
    }

    #[test]
    fn a_garbled_copy_is_not_overwritten_by_new_passwords() {
        let h = heal(&garbled("c-credentials"), &pairs(&[("p0", Ok(None))]));
        assert_eq!(h, Healed::Garbled(vec![garbled("c-credentials").unwrap_err()]));
        let h = heal(&Ok(None), &pairs(&[("p0", garbled("p0-credentials"))]));
        assert!(matches!(h, Healed::Garbled(_)));
    }
}
