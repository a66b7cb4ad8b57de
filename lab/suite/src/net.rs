//! Connections: messages to the event handler and their echoes back, over loopback TCP, plain and by TLS.

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
use handover_record::Contender;

/// The benchmarks of this file.
pub const ALL: &[Bench] = &[
    Bench::many::<echo::Relayed<echo::Ours<0>>>(Contender::ours("handover")),
    Bench::many::<echo::Relayed<echo::Ours<50_000>>>(Contender::ours("spin")),
    Bench::many::<echo::Relayed<echo::Epoll<false>>>(Contender::peer("epoll")),
    Bench::many::<echo::Spinning<echo::Ours<50_000>>>(Contender::ours("handover")),
    Bench::many::<echo::Spinning<echo::Epoll<true>>>(Contender::peer("epoll")),
    Bench::many::<load::Load<servers::Ours<false>>>(Contender::ours("handover")),
    Bench::many::<load::Load<servers::Ours<true>>>(Contender::ours("own")),
    #[cfg(feature = "io-uring")]
    Bench::many::<load::Load<servers::Uring>>(Contender::ours("uring")),
    Bench::many::<load::Load<servers::Epoll>>(Contender::peer("epoll")),
    #[cfg(feature = "peers")]
    Bench::many::<load::Load<servers::Mio>>(Contender::peer("mio")),
    #[cfg(feature = "peers")]
    Bench::many::<load::Load<servers::Tokio>>(Contender::peer("tokio")),
    Bench::many::<Connect<connect::Ours>>(Contender::ours("handover")),
    Bench::many::<Connect<connect::Epoll>>(Contender::peer("epoll")),
    #[cfg(feature = "peers")]
    Bench::many::<Connect<connect::Tokio>>(Contender::peer("tokio")),
    Bench::many::<idle::Idle<false>>(Contender::ours("handover")),
    Bench::many::<idle::Idle<true>>(Contender::ours("tls")),
    Bench::many::<secured::Load<secured::Ours<false>, false>>(Contender::ours("handover")),
    Bench::many::<secured::Load<secured::Ours<true>, true>>(Contender::ours("each")),
    Bench::many::<secured::Load<buffered::Epoll, false>>(Contender::peer("rustls")),
    Bench::one::<handshake::Handshake<handshake::Ours>>(Contender::ours("handover")),
    Bench::one::<handshake::Handshake<buffered::Sides>>(Contender::peer("rustls")),
];
