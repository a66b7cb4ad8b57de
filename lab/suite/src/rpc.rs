//! Calls of procedures in another process: through shared memory, and over sockets.

mod calls;
mod clients;
#[cfg(feature = "peers-iceoryx2")]
mod iceoryx;
#[cfg(feature = "peers-rpc")]
mod peers;
mod sockets;

use crate::common::ensure;
use crate::floor::relay::Relay;
use calls::{
    CallMedium, EchoCalls, ManyCalls, Noop, SharedPayload, SocketPayload, VIA_SM, VIA_TCP, VIA_UDS,
    WAITS_BY_DEFAULT, WAITS_SLEEPING, WAITS_SPINNING,
};
use handover_base::sync::shared::{AtomicU8, AtomicU64, Ordering};
use handover_harness::{Bench, Fault, benches};

use std::time::{Duration, Instant};
use zerocopy::FromZeros;

/// Maximum time for which a caller waits for the server's address.
const ADDRESS_WAIT_MAX: Duration = Duration::from_secs(10);
const ADDRESS_BYTES_MAX: usize = 64;

/// Address of a server, published to its callers in shared memory.
#[derive(FromZeros)]
#[repr(C)]
pub(crate) struct PublishedAddress {
    /// Length of the address in bytes; 0 until the server listens.
    length: AtomicU64,
    bytes: [AtomicU8; ADDRESS_BYTES_MAX],
}

impl PublishedAddress {
    /// Stores the address for the waiting callers. Called once.
    pub(crate) fn publish(&self, address: &str) -> Result<(), Fault> {
        ensure(address.len() <= ADDRESS_BYTES_MAX, || {
            format!("the address {address} is longer than {ADDRESS_BYTES_MAX} bytes")
        })?;
        for (slot, byte) in self.bytes.iter().zip(address.bytes()) {
            slot.store(byte, Ordering::Relaxed);
        }
        // Release: publishes the letters to the Acquire in wait().
        self.length.store(address.len() as u64, Ordering::Release);
        Ok(())
    }

    /// Waits until the address is published, and returns it; fails after [`ADDRESS_WAIT_MAX`].
    pub(crate) fn wait(&self) -> Result<String, Fault> {
        let began = Instant::now();
        loop {
            // Acquire: pairs with the Release in publish().
            let length = self.length.load(Ordering::Acquire) as usize;
            if length > 0 {
                let bytes = self.bytes.iter().take(length);
                let bytes = bytes.map(|byte| byte.load(Ordering::Relaxed)).collect();
                return String::from_utf8(bytes)
                    .map_err(|_| Fault::new("the published address is not UTF-8"));
            }
            ensure(began.elapsed() <= ADDRESS_WAIT_MAX, || {
                format!("the server published no address within {ADDRESS_WAIT_MAX:?}")
            })?;
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Declaration of the benchmark `rpc/noop`: a call without arguments through shared memory.
#[cfg(feature = "mpi")]
pub(crate) const NOOP_SPEC: handover_record::Spec =
    <CallMedium<Noop, VIA_SM, WAITS_BY_DEFAULT> as crate::floor::relay::RelayMedium>::SPEC;

/// Contenders of `rpc/noop`.
pub const NOOP_BENCHES: &[Bench] = benches! {
    many ours "handover" SpinThenSleep: Relay<CallMedium<Noop, VIA_SM, WAITS_BY_DEFAULT>>;
    many ours "spin" Spin: Relay<CallMedium<Noop, VIA_SM, WAITS_SPINNING>>;
    many peer "memory" SpinThenSleep: Relay<sockets::SharedSlots<true>>;
    many peer "memory-spin" Spin: Relay<sockets::SharedSlots<false>>;
    many peer "iceoryx2" Spin: Relay<iceoryx::IceoryxMedium>, if feature = "peers-iceoryx2";
    many peer "socket" Sleep: Relay<sockets::SocketPair<false>>;
    many peer "socket-spin" Spin: Relay<sockets::SocketPair<true>>;
};

/// All benchmarks of remote procedure calls but `rpc/noop`.
pub const BENCHES: &[Bench] = benches! {
    many ours "handover" Sleep: Relay<CallMedium<Noop, VIA_SM, WAITS_SLEEPING>>;
    many ours "handover" Sleep: Relay<CallMedium<Noop, VIA_TCP, WAITS_SLEEPING>>;
    many peer "tarpc" Sleep.allocates(): Relay<peers::LibraryMedium<peers::tarpc::Tarpc, peers::TcpSocket>>,
        if feature = "peers-rpc";
    many peer "tonic" Sleep.allocates(): Relay<peers::LibraryMedium<peers::tonic::Tonic, peers::TcpSocket>>,
        if feature = "peers-rpc";
    many ours "handover" Spin: Relay<CallMedium<Noop, VIA_TCP, WAITS_SPINNING>>;
    many ours "handover" Sleep: Relay<CallMedium<Noop, VIA_UDS, WAITS_SLEEPING>>;
    many peer "tarpc" Sleep.allocates(): Relay<peers::LibraryMedium<peers::tarpc::Tarpc, peers::UnixSocket>>,
        if feature = "peers-rpc";
    many peer "tonic" Sleep.allocates(): Relay<peers::LibraryMedium<peers::tonic::Tonic, peers::UnixSocket>>,
        if feature = "peers-rpc";
    many ours "handover" Spin: Relay<CallMedium<Noop, VIA_UDS, WAITS_SPINNING>>;
    many ours "handover" Spin: Relay<CallMedium<EchoCalls<SharedPayload>, VIA_SM, WAITS_SPINNING>>;
    many ours "handover" Spin: Relay<CallMedium<EchoCalls<SocketPayload>, VIA_TCP, WAITS_SPINNING>>;
    many ours "handover" Spin: Relay<CallMedium<EchoCalls<SocketPayload>, VIA_UDS, WAITS_SPINNING>>;
    many ours "handover" Spin: Relay<CallMedium<ManyCalls, VIA_SM, WAITS_SPINNING>>;
    many ours "handover" Spin: Relay<CallMedium<ManyCalls, VIA_TCP, WAITS_SPINNING>>;
    many ours "handover" SpinThenSleep: clients::RpcClients;
    many peer "socket" Sleep: clients::SocketClients;
};
