//! Certificates for the tests, made once in each process.

use base64::prelude::{BASE64_STANDARD, Engine};
use handover_rpc::{Config, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Adds certificates for `tls://127.0.0.1` to the configuration if the feature `tls` is on.
pub fn with_tls(config: Config) -> Config {
    static FILES: OnceLock<TlsFiles> = OnceLock::new();
    let tls = cfg!(feature = "tls").then(|| {
        FILES.get_or_init(|| Authority::new("usual").issue("usual", &["127.0.0.1"])).clone()
    });
    Config { tls, ..config }
}

/// Returns this process's own folder.
fn folder() -> PathBuf {
    let name = format!("handover-rpc-credentials-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
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
        let roots = write(&format!("{name}.roots.pem"), "CERTIFICATE", root.der());
        Self { issuer: Issuer::new(params, key), roots }
    }

    /// Issues a certificate for these names or addresses, with its key and this authority as the
    /// only root.
    pub fn issue(&self, file: &str, names: &[&str]) -> TlsFiles {
        let names: Vec<String> = names.iter().map(|&name| name.into()).collect();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        TlsFiles {
            certificates: write(&format!("{file}.pem"), "CERTIFICATE", certificate.der()),
            private_key: write(&format!("{file}.key.pem"), "PRIVATE KEY", &key.serialize_der()),
            roots: self.roots.clone(),
        }
    }
}

fn write(name: &str, label: &str, der: &[u8]) -> String {
    let path = folder().join(name);
    let letters = BASE64_STANDARD.encode(der);
    std::fs::write(&path, format!("-----BEGIN {label}-----\n{letters}\n-----END {label}-----\n"))
        .unwrap();
    path.to_str().unwrap().into()
}
