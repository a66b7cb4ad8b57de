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
use handover_harness::Bench;
use handover_record::{Contender, Wait};

/// The benchmarks of connections.
pub const ALL: &[Bench] = &[
    Bench::many::<echo::Relayed<echo::Ours<0>>>(Contender::ours("handover").waits(Wait::Sleep)),
    Bench::many::<echo::Relayed<echo::Ours<50_000>>>(
        Contender::ours("spin").waits(Wait::SpinThenSleep),
    ),
    Bench::many::<echo::Relayed<echo::Epoll<false>>>(Contender::peer("epoll").waits(Wait::Sleep)),
    #[cfg(all(feature = "peers", handover_libuv))]
    Bench::many::<echo::Relayed<servers::foreign::Uv>>(Contender::peer("libuv").waits(Wait::Sleep)),
    #[cfg(all(feature = "peers", handover_boost_asio))]
    Bench::many::<echo::Relayed<servers::foreign::Asio>>(
        Contender::peer("boost-asio").waits(Wait::Sleep),
    ),
    Bench::many::<echo::Relayed<echo::Bare>>(Contender::floor("bare").waits(Wait::SpinThenSleep)),
    Bench::many::<echo::Spinning<echo::Ours<50_000>>>(
        Contender::ours("handover").waits(Wait::SpinThenSleep),
    ),
    Bench::many::<echo::Spinning<echo::Epoll<true>>>(
        Contender::peer("epoll").waits(Wait::SpinThenSleep),
    ),
    Bench::many::<echo::Spinning<echo::Bare>>(Contender::floor("bare").waits(Wait::SpinThenSleep)),
    Bench::many::<load::Load<servers::Bare>>(Contender::floor("unframed").waits(Wait::Sleep)),
    Bench::many::<load::Load<servers::Ours<false>>>(Contender::ours("handover").waits(Wait::Sleep)),
    Bench::many::<load::Load<servers::Ours<true>>>(Contender::ours("own").waits(Wait::Sleep)),
    #[cfg(feature = "io-uring")]
    Bench::many::<load::Load<servers::Uring>>(Contender::ours("uring").waits(Wait::Sleep)),
    Bench::many::<load::Load<servers::Epoll>>(Contender::peer("epoll").waits(Wait::Sleep)),
    #[cfg(feature = "peers")]
    Bench::many::<load::Load<servers::Mio>>(Contender::peer("mio").waits(Wait::Sleep)),
    #[cfg(feature = "peers")]
    Bench::many::<load::Load<servers::Tokio>>(Contender::peer("tokio").waits(Wait::Sleep)),
    #[cfg(all(feature = "peers", handover_libuv))]
    Bench::many::<load::Load<servers::foreign::Uv>>(Contender::peer("libuv").waits(Wait::Sleep)),
    #[cfg(all(feature = "peers", handover_boost_asio))]
    Bench::many::<load::Load<servers::foreign::Asio>>(
        Contender::peer("boost-asio").waits(Wait::Sleep),
    ),
    Bench::many::<Connect<connect::Ours>>(Contender::ours("handover").waits(Wait::Sleep)),
    Bench::many::<Connect<connect::Epoll>>(Contender::peer("epoll").waits(Wait::Sleep)),
    #[cfg(feature = "peers")]
    Bench::many::<Connect<connect::Tokio>>(Contender::peer("tokio").waits(Wait::Sleep)),
    Bench::many::<idle::Idle<false>>(Contender::ours("handover").waits(Wait::Sleep)),
    Bench::many::<idle::Idle<true>>(Contender::ours("tls").waits(Wait::Sleep)),
    Bench::many::<secured::Load<secured::Ours<false>, false>>(
        Contender::ours("handover").waits(Wait::Sleep),
    ),
    Bench::many::<secured::Load<secured::Ours<true>, true>>(
        Contender::ours("each").waits(Wait::Sleep),
    ),
    Bench::many::<secured::Load<buffered::Epoll, false>>(
        Contender::peer("rustls").waits(Wait::Sleep),
    ),
    Bench::one::<handshake::Handshake<handshake::Ours>>(Contender::ours("handover")),
    Bench::one::<handshake::Handshake<buffered::Sides>>(Contender::peer("rustls")),
];
