//! Addresses to listen at or to connect to, and their textual form.

#[cfg(feature = "ucx")]
use crate::raw::ucx::library;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Maximum length of the name in an `sm://` or `uds://` address, in bytes. The kernel's own limit
/// for the name of a Unix socket is 107, and that of an `sm://` address begins with `handover/`.
pub const ADDRESS_NAME_BYTES_MAX: usize = 98;

/// Error of parsing an [`Address`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The text before `://` is not a known transport.
    #[error("`{0}`: unknown transport; use sm, tcp, tls, ucx or uds")]
    Scheme(String),
    /// The part after `://` has no valid port.
    #[error("`{0}`: not HOST:PORT with a port in 0..=65535")]
    Port(String),
    /// The address contains a character that is not allowed. These are control characters, and a
    /// slash in the name of shared memory.
    #[error("the address contains a control character, or a slash after sm://")]
    Character,
    /// The name is too long for a Unix socket.
    #[error("the name in the address has {bytes} bytes, the maximum is {max}", max = ADDRESS_NAME_BYTES_MAX)]
    TooLong {
        /// Length of the name, in bytes.
        bytes: usize,
    },
}

/// Transport of a connection: shared memory, TCP, TLS, a Unix socket, or UCX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Shared memory, between two processes of one user on one machine.
    Sm,
    /// TCP connection without encryption. Only a shared secret authenticates its ends.
    Tcp,
    /// TCP connection with mutual TLS, which encrypts and authenticates both ends.
    Tls,
    /// UCX, which chooses among its own transports: shared memory, TCP, InfiniBand and others.
    Ucx,
    /// Unix stream socket, which connects processes of one machine.
    Uds,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Sm => "sm",
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
            Transport::Ucx => "ucx",
            Transport::Uds => "uds",
        })
    }
}

/// Address of an endpoint: `sm://NAME`, `tcp://HOST:PORT`, `tls://HOST:PORT`, `ucx://HOST:PORT` or
/// `uds://PATH`.
///
/// margo's spellings are parsed too, and printed in the form of the right-hand column:
///
/// | written | stands for |
/// |---|---|
/// | `na+sm://`, `sm://` | `sm://` |
/// | `ofi+tcp://`, `ofi+tcp;ofi_rxm://`, `ofi+sockets://`, `bmi+tcp://`, `na+tcp://`, `tcp://` | `tcp://` |
/// | `ucx+tcp://` | `ucx://` if UCX's library can be loaded, otherwise `tcp://` |
/// | `ucx+rc://`, `ucx+ud://`, `ucx+dc://`, `ucx+all://`, `ofi+verbs://`, `ofi+verbs;ofi_rxm://` | `ucx://`; listening and connecting fail without UCX's library |
/// | `uds://`, `unix://` | `uds://` |
///
/// The `://` may be left out if nothing follows it, as in `na+sm`.
///
/// ```
/// use handover_rpc::{Address, Transport};
/// let address: Address = "ofi+tcp;ofi_rxm://localhost:7000".parse()?;
/// assert_eq!(address, Address::Tcp("localhost:7000".into()));
/// assert_eq!(address.to_string(), "tcp://localhost:7000");
/// assert_eq!("na+sm://".parse::<Address>()?.transport(), Transport::Sm);
/// # Ok::<(), handover_rpc::AddressError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    /// Shared memory, set up over an abstract Unix socket of this name. The socket disappears with
    /// the listening process. When listening, an empty name stands for a new one that cannot be
    /// guessed.
    Sm(String),
    /// TCP at `HOST:PORT`. When listening, an empty string stands for `127.0.0.1:0`, and the kernel
    /// chooses the port if it is 0.
    ///
    /// **Without a shared secret ([`secret_file`](crate::AccessConfig#structfield.secret_file))
    /// anybody who can reach the port can call, and with or without one anybody on the network path
    /// can read the traffic.** Between hosts that do not trust their network, use
    /// [`Tls`](Self::Tls).
    Tcp(String),
    /// TCP with mutual TLS at `HOST:PORT`. An empty string and port 0 mean the same as for
    /// [`Tcp`](Self::Tcp). Needs the feature `tls` and certificates
    /// ([`tls`](crate::AccessConfig#structfield.tls)). The acceptor's certificate must name HOST.
    Tls(String),
    /// UCX, whose connections are set up over TCP at `HOST:PORT`. An empty string and port 0 mean
    /// the same as for [`Tcp`](Self::Tcp). Needs the feature `ucx`, and UCX's library, which is
    /// loaded when the address is used. UCX's own environment variables choose its transports and
    /// devices (`UCX_TLS`, `UCX_NET_DEVICES`).
    ///
    /// **UCX trusts every process that can reach its ports and its shared memory: use it only where
    /// all of them are trusted.** The shared secret says who may call, and does not protect UCX
    /// itself.
    Ucx(String),
    /// Unix stream socket: the path of its file, or `@NAME` for a socket without a file. An empty
    /// string stands for a new name when listening, and cannot be connected to. A server at a path
    /// holds a lock on `PATH.lock` while it listens.
    Uds(String),
}

impl Address {
    /// Returns the transport of this address.
    #[must_use]
    pub fn transport(&self) -> Transport {
        match self {
            Address::Sm(_) => Transport::Sm,
            Address::Tcp(_) => Transport::Tcp,
            Address::Tls(_) => Transport::Tls,
            Address::Ucx(_) => Transport::Ucx,
            Address::Uds(_) => Transport::Uds,
        }
    }

    /// Returns the part after `://`: the name, path, or host and port.
    #[must_use]
    pub fn without_scheme(&self) -> &str {
        match self {
            Address::Sm(rest)
            | Address::Tcp(rest)
            | Address::Tls(rest)
            | Address::Ucx(rest)
            | Address::Uds(rest) => rest,
        }
    }

    /// Returns `true` if the part after `://` is not empty.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.without_scheme().is_empty()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.transport(), self.without_scheme())
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
        let make = match scheme {
            "sm" | "na+sm" => Address::Sm,
            "tcp" | "na+tcp" | "bmi+tcp" | "ofi+tcp" | "ofi+sockets" | "ofi+tcp;ofi_rxm" => {
                Address::Tcp
            }
            "tls" => Address::Tls,
            "ucx" => Address::Ucx,
            // Without UCX, TCP replaces this transport only.
            "ucx+tcp" if !is_ucx_available() => Address::Tcp,
            "ucx+tcp" | "ucx+rc" | "ucx+ud" | "ucx+dc" | "ucx+all" | "ofi+verbs"
            | "ofi+verbs;ofi_rxm" => Address::Ucx,
            "uds" | "unix" => Address::Uds,
            _ => return Err(AddressError::Scheme(printable_prefix(scheme))),
        };
        if rest.chars().any(char::is_control) {
            return Err(AddressError::Character);
        }
        let address = make(rest.into());
        match &address {
            Address::Tcp(rest) | Address::Tls(rest) | Address::Ucx(rest) if !rest.is_empty() => {
                check_host_port(rest)?;
            }
            Address::Sm(name) if name.contains('/') => return Err(AddressError::Character),
            Address::Sm(name) | Address::Uds(name) if name.len() > ADDRESS_NAME_BYTES_MAX => {
                return Err(AddressError::TooLong { bytes: name.len() });
            }
            _ => {}
        }
        Ok(address)
    }
}

/// Returns `true` if UCX's library can be loaded.
fn is_ucx_available() -> bool {
    #[cfg(feature = "ucx")]
    return library::is_available();
    #[cfg(not(feature = "ucx"))]
    return false;
}

/// Returns at most 40 characters of `text`, without control characters, for an error message.
fn printable_prefix(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(40).collect()
}

fn check_host_port(host_port: &str) -> Result<(), AddressError> {
    // Split at the last colon: an IPv6 host, in brackets, contains others.
    let port =
        host_port.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    match port.map(str::parse::<u16>) {
        Some(Ok(_)) => Ok(()),
        Some(Err(_)) | None => Err(AddressError::Port(printable_prefix(host_port))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margos_spellings_are_parsed() {
        for (written, meant) in [
            ("sm://", "sm://"),
            ("na+sm", "sm://"),
            ("na+sm://here", "sm://here"),
            ("ofi+tcp://", "tcp://"),
            ("ofi+tcp;ofi_rxm://h:1", "tcp://h:1"),
            ("ofi+sockets://h:1", "tcp://h:1"),
            ("na+tcp://[::1]:65535", "tcp://[::1]:65535"),
            ("unix:///tmp/x", "uds:///tmp/x"),
            ("tls://h:1", "tls://h:1"),
            ("ucx://h:1", "ucx://h:1"),
        ] {
            let address: Address = written.parse().expect(written);
            assert_eq!(address.to_string(), meant);
            assert_eq!(meant.parse(), Ok(address));
        }
    }

    #[test]
    fn margos_spellings_of_ucx_stand_for_it_and_tcp_replaces_one_of_them() {
        let parsed = |written: &str| written.parse().map(|it: Address| it.to_string());
        let is_available = is_ucx_available();
        println!("UCX can be loaded: {is_available}");
        let meant = if is_available { "ucx://h:1" } else { "tcp://h:1" };
        assert_eq!(parsed("ucx+tcp://h:1").as_deref(), Ok(meant));
        for scheme in ["ucx+rc", "ucx+all", "ofi+verbs;ofi_rxm"] {
            assert_eq!(parsed(&format!("{scheme}://h:1")).as_deref(), Ok("ucx://h:1"));
        }
    }

    #[test]
    fn invalid_address_is_refused_with_a_remedy() {
        for (written, said) in [
            ("verbs://x", "`verbs`: unknown transport; use sm, tcp, tls, ucx or uds"),
            ("tcp://host", "`host`: not HOST:PORT with a port in 0..=65535"),
            ("tls://host", "`host`: not HOST:PORT with a port in 0..=65535"),
            ("tcp://:80", "`:80`: not HOST:PORT with a port in 0..=65535"),
            ("tcp://h:65536", "`h:65536`: not HOST:PORT with a port in 0..=65535"),
            ("sm://a/b", "the address contains a control character, or a slash after sm://"),
            ("uds://a\nb", "the address contains a control character, or a slash after sm://"),
        ] {
            let refused = written.parse::<Address>().expect_err(written);
            assert_eq!(refused.to_string(), said);
        }
        let long = format!("uds:///{}", "x".repeat(ADDRESS_NAME_BYTES_MAX));
        assert_eq!(long.parse::<Address>(), Err(AddressError::TooLong { bytes: 99 }));
    }
}
