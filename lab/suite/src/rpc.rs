//! Calls of procedures in another process: through shared memory, and over sockets.

mod calls;
mod clients;
#[cfg(feature = "peers-iceoryx2")]
mod iceoryx;
#[cfg(feature = "peers-rpc")]
mod peers;
mod sockets;

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
const MEETING: Duration = Duration::from_secs(10);
/// Maximum length of a server's address, in bytes.
const NAME_BYTES: usize = 64;

/// Address of the server in shared memory, for the caller.
#[derive(FromZeros)]
#[repr(C)]
pub(crate) struct PublishedAddress {
    /// Length of the address in bytes; 0 until the server listens.
    length: AtomicU64,
    letters: [AtomicU8; NAME_BYTES],
}

impl PublishedAddress {
    pub(crate) fn publish(&self, name: &str) -> Result<(), Fault> {
        if name.len() > NAME_BYTES {
            return Err(Fault::new(format!(
                "the address {name} is longer than {NAME_BYTES} bytes"
            )));
        }
        for (slot, letter) in self.letters.iter().zip(name.bytes()) {
            slot.store(letter, Ordering::Relaxed);
        }
        // Release: publishes the letters to the Acquire in wait().
        self.length.store(name.len() as u64, Ordering::Release);
        Ok(())
    }

    pub(crate) fn wait(&self) -> Result<String, Fault> {
        let began = Instant::now();
        loop {
            // Acquire: pairs with the Release in publish().
            let length = self.length.load(Ordering::Acquire) as usize;
            if length > 0 {
                let letters = self.letters.iter().take(length);
                let bytes = letters.map(|letter| letter.load(Ordering::Relaxed)).collect();
                return String::from_utf8(bytes)
                    .map_err(|_| Fault::new("the published address is not UTF-8"));
            }
            if began.elapsed() > MEETING {
                return Err(Fault::new(format!(
                    "the server published no address within {MEETING:?}"
                )));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Declaration of the benchmark of a call through shared memory.
#[cfg(feature = "mpi")]
pub(crate) const NOOP_SPEC: handover_record::Spec =
    <CallMedium<Noop, VIA_SM, WAITS_BY_DEFAULT> as crate::floor::relay::RelayMedium>::SPEC;

/// All benchmarks of remote procedure calls.
pub const BENCHES: &[Bench] = benches! {
    many ours "handover" SpinThenSleep: Relay<CallMedium<Noop, VIA_SM, WAITS_BY_DEFAULT>>;
    many ours "spin" Spin: Relay<CallMedium<Noop, VIA_SM, WAITS_SPINNING>>;
    many peer "memory" SpinThenSleep: Relay<sockets::SharedSlots<true>>;
    many peer "memory-spin" Spin: Relay<sockets::SharedSlots<false>>;
    many peer "iceoryx2" Spin: Relay<iceoryx::IceoryxMedium>, if feature = "peers-iceoryx2";
    many peer "socket" Sleep: Relay<sockets::SocketPair<false>>;
    many peer "socket-spin" Spin: Relay<sockets::SocketPair<true>>;
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
};
