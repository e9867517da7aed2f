//! Certificates: a cluster's authority (ten years) and its servers' (five years), made with chance and the clock that the pure
//! rooms do not have.
//!
//! Elliptic curve P-256, which ring, rustls and every OpenSSL that MySQL is built with speak.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use std::collections::BTreeSet;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// How long an authority is valid.
pub const AUTHORITY_DAYS: i32 = 3650;
/// How long a server's certificate is valid.
pub const SERVER_DAYS: i32 = 5 * 365;
/// A server's certificate is renewed when less than this is left of it.
pub const RENEW_BEFORE_DAYS: i32 = 365;
/// Certificates are valid from this long ago on, for clocks that go wrong.
const BACKDATE: SignedDuration = SignedDuration::from_hours(1);

/// A certificate and its private key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub crt: String,
    /// Its private key, PKCS #8.
    pub key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pair(redacted)")
    }
}

/// A certificate that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The authority's certificate or key cannot be read.
    #[error("the certificate authority cannot be used")]
    Authority(#[source] rcgen::Error),
    /// The authority's key is not that of its certificate, or the certificate is none of an authority.
    #[error("the authority's certificate and key (`ca.crt`, `ca.key`) do not belong together: {0:?}")]
    Mismatch(Renewal),
    /// Making it failed.
    #[error("make a certificate")]
    Issue(#[source] rcgen::Error),
}

/// Makes the authority of a cluster.
///
/// # Errors
/// [`Error::Issue`].
pub fn issue_authority(cluster: &str, now: Timestamp) -> Result<Pair, Error> {
    let mut params = params(vec![], &format!("Shardwright {cluster}"), now, AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().map_err(Error::Issue)?;
    let crt = params.self_signed(&key).map_err(Error::Issue)?.pem();
    Ok(Pair {
        crt,
        key: key.serialize_pem(),
    })
}

/// Makes a certificate for servers that are called `names`, signed by the authority.
///
/// # Errors
/// [`Error`].
pub fn issue_server(ca_crt: &str, ca_key: &str, names: &[String], now: Timestamp) -> Result<Pair, Error> {
    let ca_key = KeyPair::from_pem(ca_key).map_err(Error::Authority)?;
    let issuer = Issuer::from_ca_cert_pem(ca_crt, ca_key).map_err(Error::Authority)?;
    let mut params = params(names.to_vec(), "mysql", now, SERVER_DAYS)?;
    params.use_authority_key_identifier_extension = true;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // A server is also the client of the other one.
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let key = KeyPair::generate().map_err(Error::Issue)?;
    let crt = params.signed_by(&key, &issuer).map_err(Error::Issue)?.pem();
    Ok(Pair {
        crt,
        key: key.serialize_pem(),
    })
}

fn params(
    names: Vec<String>,
    common_name: &str,
    now: Timestamp,
    days: i32,
) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(names).map_err(Error::Issue)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let since = |t: SignedDuration| std::time::Duration::try_from(t).unwrap_or_default();
    let now = now.duration_since(Timestamp::UNIX_EPOCH);
    params.not_before = epoch + since(now - BACKDATE);
    params.not_after = epoch + since(now + DAY * days);
    Ok(params)
}

/// Why a server's certificate has to be made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// It, or its key, is missing or cannot be read.
    Unreadable,
    /// Its key belongs to another certificate.
    OtherKey,
    /// It was signed by another authority.
    OtherAuthority,
    /// It says other names.
    OtherNames,
    /// Less than [`RENEW_BEFORE_DAYS`] are left of it, or it is not valid yet.
    Age,
}

/// Whether the certificate that is there will do, and if not, why. A function of its arguments alone.
pub fn renewal(ca_crt: &str, server: Option<&Pair>, names: &[String], now: Timestamp) -> Option<Renewal> {
    let Some(server) = server else {
        return Some(Renewal::Unreadable);
    };
    judge(ca_crt, server, names, now).unwrap_or_else(Some)
}

fn judge(ca_crt: &str, server: &Pair, names: &[String], now: Timestamp) -> Result<Option<Renewal>, Renewal> {
    let unreadable = Renewal::Unreadable;
    let (_, ca) = parse_x509_pem(ca_crt.as_bytes()).map_err(|_| unreadable)?;
    let ca = ca.parse_x509().map_err(|_| unreadable)?;
    let (_, crt) = parse_x509_pem(server.crt.as_bytes()).map_err(|_| unreadable)?;
    let crt = crt.parse_x509().map_err(|_| unreadable)?;
    let key = KeyPair::from_pem(&server.key).map_err(|_| unreadable)?;
    let left = crt.validity().not_after.timestamp() - now.as_second();
    let verdict = if key.public_key_raw() != crt.public_key().subject_public_key.data.as_ref() {
        Some(Renewal::OtherKey)
    } else if crt.issuer() != ca.subject() || crt.verify_signature(Some(ca.public_key())).is_err() {
        Some(Renewal::OtherAuthority)
    } else if names_of(&crt) != names.iter().map(String::as_str).collect() {
        Some(Renewal::OtherNames)
    } else if left < (DAY * RENEW_BEFORE_DAYS).as_secs()
        || crt.validity().not_before.timestamp() > now.as_second()
    {
        Some(Renewal::Age)
    } else {
        None
    };
    Ok(verdict)
}

fn names_of<'a>(crt: &'a X509Certificate<'_>) -> BTreeSet<&'a str> {
    let Ok(Some(san)) = crt.subject_alternative_name() else {
        return BTreeSet::new();
    };
    let dns = san.value.general_names.iter().filter_map(|n| match n {
        GeneralName::DNSName(name) => Some(*name),
        _ => None,
    });
    dns.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::secrets::server_names;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }
    fn names() -> Vec<String> {
        server_names("ns", "p")
    }

    #[test]
    fn what_was_just_made_will_do_and_does_not_for_ever() {
        let ca = issue_authority("c", now()).unwrap();
        let crt = issue_server(&ca.crt, &ca.key, &names(), now()).unwrap();
        let at = |days: i32| renewal(&ca.crt, Some(&crt), &names(), now() + DAY * days);
        assert_eq!(at(0), None);
        assert_eq!(at(SERVER_DAYS - RENEW_BEFORE_DAYS), None);
        assert_eq!(at(SERVER_DAYS - RENEW_BEFORE_DAYS + 1), Some(Renewal::Age));
        assert_eq!(at(-1), Some(Renewal::Age));
    }

    #[test]
    fn another_authority_key_or_name_is_noticed() {
        let ca = issue_authority("c", now()).unwrap();
        let other = issue_authority("c", now()).unwrap();
        let crt = issue_server(&ca.crt, &ca.key, &names(), now()).unwrap();
        let second = issue_server(&ca.crt, &ca.key, &names(), now()).unwrap();
        let why = |ca: &Pair, crt: &Pair, names: &[String]| renewal(&ca.crt, Some(crt), names, now());
        assert_eq!(why(&other, &crt, &names()), Some(Renewal::OtherAuthority));
        let mixed = Pair {
            crt: crt.crt.clone(),
            key: second.key,
        };
        assert_eq!(why(&ca, &mixed, &names()), Some(Renewal::OtherKey));
        assert_eq!(
            why(&ca, &crt, &server_names("ns", "q")),
            Some(Renewal::OtherNames)
        );
        let garbled = Pair {
            crt: "x".into(),
            key: crt.key.clone(),
        };
        assert_eq!(why(&ca, &garbled, &names()), Some(Renewal::Unreadable));
        assert_eq!(renewal(&ca.crt, None, &names(), now()), Some(Renewal::Unreadable));
    }

    #[test]
    fn a_garbled_authority_is_an_error_and_tells_no_secret() {
        let ca = issue_authority("c", now()).unwrap();
        assert!(matches!(
            issue_server("x", &ca.key, &names(), now()),
            Err(Error::Authority(_))
        ));
        assert!(matches!(
            issue_server(&ca.crt, "x", &names(), now()),
            Err(Error::Authority(_))
        ));
        assert_eq!(format!("{ca:?}"), "Pair(redacted)");
    }
}
