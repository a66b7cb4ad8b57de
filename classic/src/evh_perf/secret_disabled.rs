//! Stand-in for `secret.rs` if the feature `tls` is off: `--tls` is an error.

use super::options::EvhPerf;
use crate::load::ClientTls;
use handover_net::tls::TlsServerConfig;
use handover_program::exit::to_usage_error;
use std::sync::Arc;

/// Returns `None`: connections have no TLS.
///
/// # Errors
/// If `--tls` is given.
pub fn server_tls(args: &EvhPerf) -> anyhow::Result<Option<TlsServerConfig>> {
    refuse_tls(args).map(|()| None)
}

/// Returns `None`: connections have no TLS.
///
/// # Errors
/// If `--tls` is given.
pub fn client_tls(args: &EvhPerf) -> anyhow::Result<Option<Arc<ClientTls>>> {
    refuse_tls(args).map(|()| None)
}

fn refuse_tls(args: &EvhPerf) -> anyhow::Result<()> {
    match args.tls {
        true => Err(to_usage_error("--tls: this program was built without the feature `tls`")),
        false => Ok(()),
    }
}
