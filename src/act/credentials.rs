//! New credentials: chance, which the pure rooms do not have.

use super::tls;
use crate::core::credentials::Credentials;
use k8s_openapi::jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};

const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const PASSWORD_LENGTH: usize = 32;

/// Credentials that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system gave no random numbers.
    #[error("the system gave no random numbers")]
    Random,
    /// The certificate authority could not be made.
    #[error(transparent)]
    Tls(#[from] tls::Error),
}

/// Makes the passwords and the authority of a new cluster.
///
/// # Errors
/// [`Error`].
pub fn generate(cluster: &str, now: Timestamp) -> Result<Credentials, Error> {
    let random = SystemRandom::new();
    let authority = tls::issue_authority(cluster, now)?;
    Ok(Credentials {
        operator_password: password(&random)?,
        replication_password: password(&random)?,
        app_password: password(&random)?,
        root_password: password(&random)?,
        ca_crt: authority.crt,
        ca_key: authority.key,
    })
}

/// 32 letters and digits, each as likely as any other: 190 bits.
fn password(random: &SystemRandom) -> Result<String, Error> {
    let mut out = String::with_capacity(PASSWORD_LENGTH);
    let mut bytes = [0u8; 64];
    while out.len() < PASSWORD_LENGTH {
        random.fill(&mut bytes).map_err(|_| Error::Random)?;
        // Six bits choose one of 64, of which the last two are thrown away: a remainder would favour the first letters.
        let letters = bytes.iter().filter_map(|b| ALPHABET.get(usize::from(b & 63)));
        out.extend(letters.map(|b| char::from(*b)).take(PASSWORD_LENGTH - out.len()));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_passes_the_check_of_what_is_read() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let c = generate("c", now).unwrap();
        assert_eq!(Credentials::from_data("s", &c.to_data()), Ok(c.clone()));
        let all = [
            &c.operator_password,
            &c.replication_password,
            &c.app_password,
            &c.root_password,
        ];
        for p in all {
            assert_eq!(p.len(), PASSWORD_LENGTH);
            assert_eq!(all.iter().filter(|q| **q == p).count(), 1);
        }
    }
}
