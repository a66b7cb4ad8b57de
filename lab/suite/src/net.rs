//! Connections: messages to the event handler and their echoes, over loopback TCP, plain and with
//! TLS.

mod buffered;
mod connect;
mod echo;
mod handshake;
mod idle;
mod load;
mod secured;
mod servers;
mod wait;

use crate::floor::connect::Connect;
use handover_harness::{Bench, benches};

/// The benchmarks of connections.
pub const ALL: &[Bench] = benches! {
    many ours "handover" Sleep: echo::EchoRelay<echo::Ours<0>>;
    many ours "spin" SpinThenSleep: echo::EchoRelay<echo::Ours<50_000>>;
    many peer "epoll" Sleep: echo::EchoRelay<echo::Epoll<false>>;
    many peer "libuv" Sleep: echo::EchoRelay<servers::foreign::Uv>, if handover_libuv;
    many peer "boost-asio" Sleep: echo::EchoRelay<servers::foreign::Asio>, if handover_boost_asio;
    many floor "bare" SpinThenSleep: echo::EchoRelay<echo::Bare>;
    many ours "handover" SpinThenSleep: echo::Spinning<echo::Ours<50_000>>;
    many peer "epoll" SpinThenSleep: echo::Spinning<echo::Epoll<true>>;
    many floor "bare" SpinThenSleep: echo::Spinning<echo::Bare>;
    many floor "unframed" Sleep: load::Load<servers::Bare>;
    many ours "handover" Sleep: load::Load<servers::Ours<false>>;
    many ours "own" Sleep: load::Load<servers::Ours<true>>;
    many peer "epoll" Sleep: load::Load<servers::Epoll>;
    many peer "mio" Sleep: load::Load<servers::Mio>, if feature = "peers";
    many peer "tokio" Sleep: load::Load<servers::Tokio>, if feature = "peers";
    many peer "libuv" Sleep: load::Load<servers::foreign::Uv>, if handover_libuv;
    many peer "boost-asio" Sleep: load::Load<servers::foreign::Asio>, if handover_boost_asio;
    many ours "handover" Sleep: Connect<connect::Ours>;
    many peer "epoll" Sleep: Connect<connect::Epoll>;
    many peer "tokio" Sleep: Connect<connect::Tokio>, if feature = "peers";
    many ours "handover" Sleep: idle::Idle<false>;
    many ours "tls" Sleep: idle::Idle<true>;
    many ours "handover" Sleep: secured::Load<secured::Ours<false>, false>;
    many ours "each" Sleep: secured::Load<secured::Ours<true>, true>;
    many peer "rustls" Sleep: secured::Load<buffered::Epoll, false>;
    one ours "handover": handshake::Handshake<handshake::Ours>;
    one peer "rustls": handshake::Handshake<buffered::Sides>;
};
