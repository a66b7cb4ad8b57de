//! Identities (certificate and key) and trusted roots.

use super::error::SetupError;
use base64::prelude::{BASE64_STANDARD, Engine};
use handover_base::file;
use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, RootCertStore};
use std::path::Path;
use std::sync::Arc;

/// Certificate chain of a server or client, and its private key. The key belongs to the first
/// certificate of the chain.
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Loads an identity from two PEM files, with the certificate chain and the private key. The
    /// chain begins with the identity's certificate.
    ///
    /// # Errors
    /// [`SetupError`] if a file cannot be read, is longer than 16 MiB or holds no such item, or the
    /// key does not match.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, SetupError> {
        let chain = certificates_from_pem(&read_file(certificate)?)
            .map_err(|error| add_path_to_error(error, certificate))?;
        let private_key = private_key_from_pem(&read_file(key)?)
            .map_err(|error| add_path_to_error(error, key))?;
        Self::new(chain, private_key)
    }

    /// Creates an identity from the contents of two PEM files; see
    /// [`from_files`](Self::from_files).
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, SetupError> {
        Self::new(certificates_from_pem(certificate)?, private_key_from_pem(key)?)
    }

    /// Generates a self-signed identity for `names`, DNS names or addresses, valid until 2120.
    /// Peers that should trust it need [`certificate_pem`](Self::certificate_pem).
    ///
    /// # Errors
    /// [`SetupError::Generate`] if a name is invalid.
    pub fn generate(names: &[&str]) -> Result<Self, SetupError> {
        let generate_error = |error: rcgen::Error| SetupError::Generate(error.to_string());
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).map_err(generate_error)?;
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2120, 1, 1);
        let pair = KeyPair::generate().map_err(generate_error)?;
        // Gives each certificate an issuer name of its own: one for the same names is reported as
        // unknown.
        let unique_suffix: String =
            pair.public_key_raw().iter().rev().take(6).map(|it| format!("{it:02x}")).collect();
        params.distinguished_name.push(DnType::CommonName, format!("self-signed {unique_suffix}"));
        let certificate = params.self_signed(&pair).map_err(generate_error)?;
        let key = PrivateKeyDer::try_from(pair.serialize_der())
            .map_err(|why| SetupError::Generate(why.to_owned()))?;
        Self::new(vec![certificate.der().clone()], key)
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, SetupError> {
        // Checks that the key matches the certificate.
        CertifiedKey::from_der(chain.clone(), key.clone_key(), &crypto_provider())
            .map_err(SetupError::from_rustls)?;
        Ok(Self { chain, key })
    }

    /// Returns the certificate chain in PEM, for peers that should trust it.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        self.chain.iter().map(|it| encode_pem("CERTIFICATE", it)).collect()
    }

    /// Returns the private key in PEM. Keep it secret: whoever has it can impersonate the identity.
    #[must_use]
    pub fn key_pem(&self) -> String {
        let label = match &self.key {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        encode_pem(label, self.key.secret_der())
    }

    pub(super) fn certificate_chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    pub(super) fn private_key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

// Omits the private key.
handover_base::debug_struct!(Identity as it { certificates: it.chain.len() });

/// Set of trusted root certificates.
#[derive(Debug, Clone)]
pub struct RootCertificates(Arc<RootCertStore>);

impl RootCertificates {
    /// Loads root certificates from a PEM file with one or more of them.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn from_file(ca: &Path) -> Result<Self, SetupError> {
        Self::from_pem(&read_file(ca)?).map_err(|error| add_path_to_error(error, ca))
    }

    /// Creates root certificates from the contents of a PEM file.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn from_pem(ca: &[u8]) -> Result<Self, SetupError> {
        Self::new(&certificates_from_pem(ca)?)
    }

    /// Creates a set of root certificates that contains only those of `identity`.
    ///
    /// # Errors
    /// [`SetupError::Refused`] if its certificate cannot be a root.
    pub fn from_identity(identity: &Identity) -> Result<Self, SetupError> {
        Self::new(&identity.chain)
    }

    fn new(certificates_from_pem: &[CertificateDer<'static>]) -> Result<Self, SetupError> {
        let mut store = RootCertStore::empty();
        for certificate in certificates_from_pem {
            store.add(certificate.clone()).map_err(SetupError::from_rustls)?;
        }
        Ok(Self(Arc::new(store)))
    }

    pub(super) fn rustls_store(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.0)
    }
}

/// Returns the cryptography provider that is passed to rustls. It replaces the default, which other
/// libraries can set.
///
/// AES-128 with SHA-256 comes first, which RFC 8446 (9.1) makes mandatory: a handshake hashes some
/// hundred times, and processors have instructions for SHA-256 that they lack for SHA-384.
pub(super) fn crypto_provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    // A stable sort: the others keep their order.
    provider.cipher_suites.sort_by_key(|it| it.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

fn read_file(path: &Path) -> Result<Vec<u8>, SetupError> {
    file::read(path, file::LENGTH_MAX_BYTES)
        .map_err(|error| SetupError::File { path: path.into(), why: error.to_string() })
}

fn add_path_to_error(error: SetupError, path: &Path) -> SetupError {
    SetupError::File { path: path.into(), why: error.to_string() }
}

fn certificates_from_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let pem_error = |why: String| SetupError::Pem { what: "certificate", why };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| pem_error(error.to_string()))?;
    match found.is_empty() {
        true => Err(pem_error("found no CERTIFICATE section".into())),
        false => Ok(found),
    }
}

fn private_key_from_pem(pem: &[u8]) -> Result<PrivateKeyDer<'static>, SetupError> {
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|error| SetupError::Pem { what: "private key", why: error.to_string() })
}

/// Encodes `der` in PEM (RFC 7468). It is base64 in lines of 64 characters, between a BEGIN and an
/// END line with `label`.
fn encode_pem(label: &str, der: &[u8]) -> String {
    let lines: String = BASE64_STANDARD
        .encode(der)
        .as_bytes()
        .chunks(64)
        .flat_map(|line| line.iter().map(|&it| char::from(it)).chain(['\n']))
        .collect();
    format!("-----BEGIN {label}-----\n{lines}-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_survives_pem_round_trip() {
        let identity = Identity::generate(&["localhost", "127.0.0.1"]).unwrap();
        let pem = identity.certificate_pem();
        assert_eq!(certificates_from_pem(pem.as_bytes()).unwrap(), identity.chain);
        for length in 0..70 {
            let der: Vec<u8> = (0..length).collect();
            let back = certificates_from_pem(encode_pem("CERTIFICATE", &der).as_bytes()).unwrap();
            assert_eq!(back, [CertificateDer::from(der)]);
        }
        assert!(!format!("{identity:?}").contains("key"));
        let again = Identity::from_pem(pem.as_bytes(), identity.key_pem().as_bytes()).unwrap();
        assert_eq!(again.certificate_pem(), pem);
    }

    #[test]
    fn mismatched_key_and_missing_file_are_refused() {
        let (one, other) = (Identity::generate(&["a.test"]), Identity::generate(&["a.test"]));
        let mixed = Identity::new(one.unwrap().chain, other.unwrap().key);
        assert_eq!(mixed.unwrap_err(), SetupError::KeyMismatch);
        let nowhere = Path::new("/nowhere/at/all.pem");
        let verifier_error = Identity::from_files(nowhere, nowhere).unwrap_err();
        assert!(
            verifier_error.to_string().starts_with("/nowhere/at/all.pem: "),
            "{verifier_error}"
        );
        let verifier_error = RootCertificates::from_pem(b"nothing of the kind").unwrap_err();
        assert_eq!(
            verifier_error.to_string(),
            "no certificate in the PEM data: found no CERTIFICATE section"
        );
        assert!(Identity::generate(&["not a name\u{e9}"]).is_err());
    }
}
