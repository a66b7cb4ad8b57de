//! TLS on both sides: the server's certificate, and the certificates that the client trusts.

use super::options::EvhPerf;
use crate::load::ClientTls;
use handover_net::tls::{
    ClientOptions, Identity, RootCertificates, ServerOptions, ServerVerification, TlsClientConfig,
    TlsServerConfig,
};
use handover_program::exit::to_usage_error;
use std::path::Path;
use std::sync::Arc;

/// Returns the TLS setup of the server; `None` without `--tls`.
///
/// # Errors
/// If a named file is missing or is not a certificate, or if the key does not match.
pub fn server_tls(args: &EvhPerf) -> anyhow::Result<Option<TlsServerConfig>> {
    if !args.tls {
        return Ok(None);
    }
    let identity = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => {
            check_regular_file(cert, "--cert")?;
            check_regular_file(key, "--key")?;
            Identity::from_files(cert, key).map_err(|refused| {
                to_usage_error(format!(
                    "--cert {} --key {}: {refused}",
                    cert.display(),
                    key.display()
                ))
            })?
        }
        _ => Identity::generate(&[&args.host, "localhost", "127.0.0.1", "::1"])?,
    };
    Ok(Some(TlsServerConfig::new(&identity, ServerOptions::default())?))
}

/// Returns the TLS setup of the client; `None` without `--tls`.
///
/// # Errors
/// If the named file is missing or has no certificate.
pub fn client_tls(args: &EvhPerf) -> anyhow::Result<Option<Arc<ClientTls>>> {
    if !args.tls {
        return Ok(None);
    }
    let verify = match &args.ca {
        Some(file) => ServerVerification::Roots(load_roots(file)?),
        None => ServerVerification::Nothing,
    };
    let client = TlsClientConfig::new(verify, ClientOptions::default())?;
    Ok(Some(Arc::new(ClientTls::new(client, args.host.clone()))))
}

/// Rejects a file that is not regular. A pipe may have no writer, and every process reads these
/// files.
fn check_regular_file(file: &Path, option: &str) -> anyhow::Result<()> {
    match std::fs::metadata(file) {
        Ok(found) if !found.is_file() => Err(to_usage_error(format!(
            "{option} {path}: not a regular file",
            path = file.display()
        ))),
        // Reading the file reports the error.
        _ => Ok(()),
    }
}

fn load_roots(file: &Path) -> anyhow::Result<RootCertificates> {
    check_regular_file(file, "--ca")?;
    // The error names the file.
    RootCertificates::from_file(file).map_err(|refused| to_usage_error(format!("--ca {refused}")))
}
