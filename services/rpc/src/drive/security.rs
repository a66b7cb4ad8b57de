//! Authentication of peers, and the credentials for it.

use super::wire::Wire;
use crate::engine::{SECRET_BYTES_MIN, Secret};
use crate::raw::peer_credentials;
use crate::{AccessConfig, Address, AuthenticationError, CloseReason, EndpointError, UdsPeers};
use handover_base::file;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Credentials of an endpoint: its shared secret and its TLS certificates.
#[derive(Debug, Default)]
pub(crate) struct Security {
    secret: Option<Secret>,
    #[cfg(feature = "tls")]
    pub(crate) tls: super::tls::TlsSetup,
}

impl Security {
    /// Reads the credentials from the files that the configuration names.
    pub(crate) fn new(access: &AccessConfig) -> Result<Self, EndpointError> {
        let mut new = Self::default();
        if let Some(path) = &access.secret_file {
            let bytes = file::read(path.as_ref(), file::LENGTH_MAX_BYTES)
                .map_err(|error| EndpointError::new_security(path, error.to_string()))?;
            new.set_secret(bytes.trim_ascii_end())
                .map_err(|why| EndpointError::new_security(path, why))?;
        }
        #[cfg(feature = "tls")]
        if let Some(files) = &access.tls {
            new.tls = super::tls::TlsSetup::from_files(files)?;
        }
        #[cfg(not(feature = "tls"))]
        if let Some(files) = &access.tls {
            return Err(EndpointError::new_security(&files.certificates, NO_TLS_FEATURE));
        }
        Ok(new)
    }

    pub(crate) fn set_secret(&mut self, bytes: &[u8]) -> Result<(), String> {
        let secret = Secret::new(bytes).ok_or_else(|| {
            let count = bytes.len();
            format!("the secret has {count} bytes, at least {SECRET_BYTES_MIN} are needed")
        });
        self.secret = Some(secret?);
        Ok(())
    }

    /// Returns the secret that both ends of a connection at `address` must know. Returns `None` if
    /// there is none.
    pub(crate) fn secret_for_address(&self, address: &Address) -> Option<&Secret> {
        match address {
            Address::Tcp(_) | Address::Ucx(_) => self.secret.as_ref(),
            Address::Sm(_) | Address::Uds(_) | Address::Tls(_) => None,
        }
    }

    /// Returns an error for a `tls://` address if this endpoint has no certificate or no TLS.
    pub(crate) fn check_listen_address(&self, address: &Address) -> Result<(), EndpointError> {
        match address {
            #[cfg(feature = "tls")]
            Address::Tls(_) if self.tls.server.is_none() => Err(EndpointError::new_security(
                &address.to_string(),
                "no certificate: set `access.tls` in the configuration",
            )),
            #[cfg(not(feature = "tls"))]
            Address::Tls(_) => {
                Err(EndpointError::new_security(&address.to_string(), NO_TLS_FEATURE))
            }
            _ => Ok(()),
        }
    }

    /// Returns the byte stream of an accepted connection: TLS for `tls://`, otherwise the socket
    /// itself.
    pub(crate) fn new_acceptor_wire(
        &self,
        fd: OwnedFd,
        address: &Address,
    ) -> Result<Wire, CloseReason> {
        match address {
            #[cfg(feature = "tls")]
            Address::Tls(_) => self.tls.new_server_session(fd).map(|tls| Wire::Tls(Box::new(tls))),
            _ => Ok(Wire::Socket(fd)),
        }
    }

    /// Returns the byte stream of an initiated connection: TLS for `tls://`, otherwise the socket
    /// itself.
    pub(crate) fn new_connector_wire(
        &self,
        fd: OwnedFd,
        address: &Address,
    ) -> Result<Wire, EndpointError> {
        match address {
            #[cfg(feature = "tls")]
            Address::Tls(host_port) => {
                let connected = self.tls.new_client_session(fd, host_port);
                connected
                    .map(|tls| Wire::Tls(Box::new(tls)))
                    .map_err(|why| EndpointError::new_security(&address.to_string(), why))
            }
            #[cfg(not(feature = "tls"))]
            Address::Tls(_) => {
                Err(EndpointError::new_security(&address.to_string(), NO_TLS_FEATURE))
            }
            _ => Ok(Wire::Socket(fd)),
        }
    }
}

#[cfg(not(feature = "tls"))]
const NO_TLS_FEATURE: &str = "this program was built without the feature `tls` of handover-rpc";

/// Checks that `uds_peers` allows connections with the user at the other end of a Unix socket. The
/// kernel reports the user.
pub(crate) fn check_peer_user(
    fd: BorrowedFd<'_>,
    address: &Address,
    uds_peers: &UdsPeers,
) -> Result<(), CloseReason> {
    if matches!(address, Address::Tcp(_) | Address::Tls(_) | Address::Ucx(_)) {
        return Ok(());
    }
    let (_, uid) = peer_credentials(fd).map_err(CloseReason::from_system_call("getsockopt"))?;
    match is_user_allowed(uid, rustix::process::geteuid().as_raw(), address, uds_peers) {
        true => Ok(()),
        false => Err(CloseReason::Authentication(AuthenticationError::User { uid })),
    }
}

fn is_user_allowed(uid: u32, own_uid: u32, address: &Address, uds_peers: &UdsPeers) -> bool {
    match address {
        Address::Uds(path) if !path.starts_with('@') => match uds_peers {
            UdsPeers::SameUserOrRoot => uid == own_uid || uid == 0,
            UdsPeers::Uids(uids) => uids.contains(&uid),
            UdsPeers::Any => true,
        },
        // These sockets have no file whose mode could keep other users out.
        Address::Sm(_) | Address::Uds(_) => uid == own_uid,
        Address::Tcp(_) | Address::Tls(_) | Address::Ucx(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_allowed_by_address_and_configuration() {
        let path = Address::Uds("/run/store".into());
        let allowed =
            |uid, address: &Address, uds_peers| is_user_allowed(uid, 1000, address, &uds_peers);
        for (uid, same_or_root) in [(1000, true), (0, true), (1001, false)] {
            assert_eq!(allowed(uid, &path, UdsPeers::SameUserOrRoot), same_or_root);
            assert_eq!(allowed(uid, &path, UdsPeers::Uids(vec![1001])), uid == 1001);
            assert!(allowed(uid, &path, UdsPeers::Any));
            for alone in [Address::Sm("name".into()), Address::Uds("@name".into())] {
                assert_eq!(allowed(uid, &alone, UdsPeers::Any), uid == 1000);
            }
        }
    }
}
