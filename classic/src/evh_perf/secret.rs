//! TLS on both sides: the server's certificate, and the certificates that the client trusts.

use super::options::EvhPerf;
use crate::load::{Encryption, EncryptionError, EncryptionFactory};
use handover_base::clock;
use handover_net::engine::Tls;
use handover_net::tls::{
    Client, ClientOptions, Identity, Roots, Server, ServerOptions, SetupError, Verify,
};
use handover_program::exit::usage;
use std::path::Path;

/// Returns the TLS setup of the server; `None` without `--tls`.
///
/// # Errors
/// If a named file is missing or is not a certificate, or if the key does not match.
pub fn server(args: &EvhPerf) -> anyhow::Result<Option<Server>> {
    if !args.tls {
        return Ok(None);
    }
    let identity = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => {
            regular(cert, "--cert")?;
            regular(key, "--key")?;
            Identity::from_files(cert, key).map_err(|refused| {
                usage(format!("--cert {} --key {}: {refused}", cert.display(), key.display()))
            })?
        }
        _ => Identity::generate(&[&args.host, "localhost", "127.0.0.1", "::1"])?,
    };
    Ok(Some(Server::new(&identity, ServerOptions::default())?))
}

/// The client's TLS setup.
struct Trust {
    client: Client,
    name: String,
}

/// Returns the TLS setup of the client; `None` without `--tls`.
///
/// # Errors
/// If the named file is missing or has no certificate.
pub fn client(args: &EvhPerf) -> anyhow::Result<Option<std::sync::Arc<dyn EncryptionFactory>>> {
    if !args.tls {
        return Ok(None);
    }
    let verify = match &args.ca {
        Some(file) => Verify::Roots(roots(file)?),
        None => Verify::Nothing,
    };
    let client = Client::new(verify, ClientOptions::default())?;
    Ok(Some(std::sync::Arc::new(Trust { client, name: args.host.clone() })))
}

/// Rejects a file that is not regular: a pipe may have no writer, and every process reads these
/// files.
fn regular(file: &Path, option: &str) -> anyhow::Result<()> {
    match std::fs::metadata(file) {
        Ok(found) if !found.is_file() => {
            Err(usage(format!("{option} {}: not a regular file", file.display())))
        }
        // Reading the file reports the error.
        _ => Ok(()),
    }
}

fn roots(file: &Path) -> anyhow::Result<Roots> {
    regular(file, "--ca")?;
    // The error names the file.
    Roots::from_file(file).map_err(|refused| usage(format!("--ca {refused}")))
}

fn insecure(why: impl ToString) -> EncryptionError {
    EncryptionError(why.to_string())
}

impl EncryptionFactory for Trust {
    fn begin(&self) -> Result<Box<dyn Encryption>, EncryptionError> {
        let begun: Result<Tls, SetupError> = Tls::client(&self.client, &self.name, clock::now_ns());
        Ok(Box::new(Connection(begun.map_err(insecure)?)))
    }
}

/// TLS state of one connection of the client.
struct Connection(Tls);

impl Encryption for Connection {
    fn open(
        &mut self,
        sealed: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<bool, EncryptionError> {
        self.0.open(sealed, plain, out).map_err(insecure)?;
        Ok(self.0.is_ready())
    }

    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), EncryptionError> {
        self.0.seal(plain, &[], out).map_err(insecure)
    }

    fn part(&mut self, out: &mut Vec<u8>) {
        self.0.part(out);
    }
}
