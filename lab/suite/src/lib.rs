#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod bulk;
pub mod call;
pub mod capi;
mod channels;
pub mod clock;
mod common;
pub mod event;
pub mod fiber;
pub mod floor;
pub mod lock;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod net;
pub mod notify;
pub mod null;
pub mod probe;
pub mod proof;
#[allow(unsafe_code)]
mod raw;
pub mod ring;
pub mod rpc;
pub mod sched;
pub mod timer;

use handover_harness::Bench;

/// Optimisation level of this crate, which contains the measured code.
pub const OPT_LEVEL: &str = env!("HANDOVER_OPT_LEVEL");

/// All benchmarks, mechanism by mechanism, in the order of the output table.
///
/// A static, so that the workloads are compiled once, here: those that a constant names would be
/// compiled again in each program that uses it.
pub static SUITES: &[&[Bench]] = &[
    floor::BENCHES,
    clock::BENCHES,
    call::BENCHES,
    lock::BENCHES,
    lock::contended::BENCHES,
    notify::BENCHES,
    ring::BENCHES,
    timer::BENCHES,
    event::BENCHES,
    fiber::BENCHES,
    sched::engine::BENCHES,
    sched::fairness::BENCHES,
    sched::drive::BENCHES,
    sched::trip::BENCHES,
    net::BENCHES,
    rpc::NOOP_BENCHES,
    #[cfg(feature = "peers-mpi")]
    mpi::NOOP_BENCHES,
    rpc::BENCHES,
    bulk::PULL_BENCHES,
    #[cfg(feature = "peers-mpi")]
    mpi::PULL_BENCHES,
    bulk::PUSH_BENCHES,
    #[cfg(feature = "peers-mpi")]
    mpi::PUSH_BENCHES,
    bulk::BENCHES,
    capi::BENCHES,
    probe::BENCHES,
    null::BENCHES,
];

/// Names of the peers that the feature `peers` adds, without those of C and C++.
#[doc(hidden)]
pub const PEERS: &str = "crossbeam, disruptor, event-listener, flume, generator, hashed-wheel, kanal, mio, \
    parking_lot (except its try-locks), rtrb, tokio, tokio-rustls, tokio-util, tracing (feature peers)";

/// Returns a line that names the peers missing from this binary; `None` if none is missing. Each
/// name is followed by the feature or library that adds the peer.
pub fn peers_not_built() -> Option<String> {
    let (peers, tls) = (cfg!(feature = "peers"), cfg!(feature = "tls"));
    let all: [(bool, &str); 12] = [
        (peers, PEERS),
        (tls, "rustls, tokio-rustls, OpenSSL (feature tls)"),
        (cfg!(feature = "peers-rpc"), "tarpc, tonic (feature peers-rpc)"),
        (cfg!(feature = "peers-may"), "may (feature peers-may)"),
        (cfg!(feature = "peers-iceoryx2"), "iceoryx2 (feature peers-iceoryx2)"),
        (cfg!(feature = "peers-mpi"), "Open MPI, MPICH (feature peers-mpi)"),
        (cfg!(feature = "fastrace"), "fastrace (feature fastrace)"),
        (
            cfg!(handover_moodycamel) || !peers,
            "moodycamel (needs g++, libreaderwriterqueue-dev, libconcurrentqueue-dev)",
        ),
        (cfg!(handover_boost_lockfree) || !peers, "boost.lockfree (needs g++, libboost-dev)"),
        (cfg!(handover_boost_asio) || !peers, "boost.asio (needs g++, libboost-dev)"),
        (cfg!(handover_libuv) || !peers, "libuv (needs g++, libuv1-dev)"),
        (cfg!(handover_openssl) || !peers || !tls, "OpenSSL 3 (needs g++, libssl-dev)"),
    ];
    let missing: Vec<&str> = all.iter().filter(|it| !it.0).map(|it| it.1).collect();
    (!missing.is_empty())
        .then(|| format!("not built into this binary: {peers}", peers = missing.join("; ")))
}
