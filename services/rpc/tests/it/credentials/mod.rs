//! Certificates for the tests, made once in each process, in files without a name: statics are not
//! dropped, so nothing would remove a folder.

use base64::prelude::{BASE64_STANDARD, Engine};
use handover_rpc::{Config, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, OnceLock};

/// Adds certificates for `tls://127.0.0.1` to the configuration if the feature `tls` is on.
pub fn with_tls(mut config: Config) -> Config {
    static FILES: OnceLock<TlsFiles> = OnceLock::new();
    config.access.tls = cfg!(feature = "tls")
        .then(|| FILES.get_or_init(|| Authority::new("usual").issue(&["127.0.0.1"])).clone());
    config
}

/// Certificate authority that is trusted by the holders of its certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap();
        let roots = write("CERTIFICATE", root.der());
        Self { issuer: Issuer::new(params, key), roots }
    }

    /// Issues a certificate for these names or addresses, with its key and this authority as the
    /// only root.
    pub fn issue(&self, names: &[&str]) -> TlsFiles {
        let names: Vec<String> = names.iter().map(|&name| name.into()).collect();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        TlsFiles::default()
            .certificates(write("CERTIFICATE", certificate.der()))
            .private_key(write("PRIVATE KEY", &key.serialize_der()))
            .roots(self.roots.clone())
    }
}

/// Writes a file in PEM, which stays open until the process ends, and returns its path.
fn write(label: &str, der: &[u8]) -> String {
    static OPEN: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let mut file = tempfile::tempfile().unwrap();
    let letters = BASE64_STANDARD.encode(der);
    writeln!(file, "-----BEGIN {label}-----\n{letters}\n-----END {label}-----").unwrap();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OPEN.lock().unwrap().push(file);
    path
}
