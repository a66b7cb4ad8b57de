//! Connections: messages to the event handler and their echoes, over loopback TCP, plain and with
//! TLS.

#[cfg(feature = "tls")]
mod buffered;
mod connect;
mod echo;
#[cfg(feature = "tls")]
mod handshake;
mod idle;
mod load;
#[cfg(feature = "tls")]
mod secured;
mod servers;
pub(crate) mod wait;

use crate::floor::connect::ConnectEcho;
use handover_harness::{Bench, benches};
#[doc(hidden)]
pub use idle::server_address;

/// All benchmarks of network connections.
pub const BENCHES: &[Bench] = benches! {
    many ours "handover" Sleep: echo::EchoRelay<echo::HandoverEcho<0>>;
    many ours "spin" SpinThenSleep: echo::EchoRelay<echo::HandoverEcho<50_000>>;
    many peer "epoll" Sleep: echo::EchoRelay<echo::EpollEcho<false>>;
    many peer "libuv" Sleep: echo::EchoRelay<servers::foreign::Uv>, if handover_libuv;
    many peer "boost-asio" Sleep: echo::EchoRelay<servers::foreign::Asio>, if handover_boost_asio;
    many floor "bare" SpinThenSleep: echo::EchoRelay<echo::BlockingEcho>;
    many ours "handover" SpinThenSleep: echo::SpinningRelay<echo::HandoverEcho<50_000>>;
    many peer "epoll" SpinThenSleep: echo::SpinningRelay<echo::EpollEcho<true>>;
    many floor "bare" SpinThenSleep: echo::SpinningRelay<echo::BlockingEcho>;
    many floor "unframed" Sleep: load::PlainLoad<servers::UnframedServer>;
    many ours "handover" Sleep: load::PlainLoad<servers::HandoverServer<false>>;
    many ours "own" Sleep: load::PlainLoad<servers::HandoverServer<true>>;
    many peer "epoll" Sleep: load::PlainLoad<servers::EpollServer>;
    many peer "mio" Sleep: load::PlainLoad<servers::MioServer>, if feature = "peers";
    many peer "tokio" Sleep: load::PlainLoad<servers::TokioServer>, if feature = "peers";
    many peer "libuv" Sleep: load::PlainLoad<servers::foreign::Uv>, if handover_libuv;
    many peer "boost-asio" Sleep: load::PlainLoad<servers::foreign::Asio>, if handover_boost_asio;
    many ours "handover" Sleep: ConnectEcho<connect::HandoverAccept>;
    many peer "epoll" Sleep: ConnectEcho<connect::EpollAccept>;
    many peer "tokio" Sleep: ConnectEcho<connect::TokioAccept>, if feature = "peers";
    many ours "handover" Sleep: idle::IdleConnections<idle::PlainLink>;
    many ours "tls" Sleep: idle::IdleConnections<secured::TlsLink>, if feature = "tls";
    many ours "handover" Sleep: secured::TlsLoad<secured::HandoverTlsServer<false>, false>, if feature = "tls";
    many ours "each" Sleep: secured::TlsLoad<secured::HandoverTlsServer<true>, true>, if feature = "tls";
    many peer "rustls" Sleep: secured::TlsLoad<buffered::EpollTls, false>, if feature = "tls";
    many peer "tokio-rustls" Sleep: secured::TlsLoad<buffered::TokioTls, false>,
        if all(feature = "peers", feature = "tls");
    many peer "openssl" Sleep: secured::TlsLoad<buffered::OpenSslTls, false>, if handover_openssl;
    one ours "handover": handshake::Handshake<handshake::HandoverTls>, if feature = "tls";
    one peer "rustls": handshake::Handshake<buffered::RustlsSides>, if feature = "tls";
};
