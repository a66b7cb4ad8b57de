//! Calls of procedures in another process: through shared memory, and over sockets.

mod calls;
mod clients;
#[cfg(feature = "peers-rpc")]
mod peers;
mod sockets;

use crate::floor::relay::Relay;
use calls::{Called, Copied, Echoed, Many, Noop, SLEEPS, SM, SPINS, Sent, TCP, UDS, USUAL};
use handover_base::sync::shared::{AtomicU8, AtomicU64, Ordering};
use handover_harness::{Bench, Fault};
use handover_record::{Contender, Wait};
use std::time::{Duration, Instant};
use zerocopy::FromZeros;

/// Maximum time that the participants wait for each other.
const MEETING: Duration = Duration::from_secs(10);
/// Maximum length of a server's address.
const NAME_BYTES: usize = 64;

/// Address of the server, published to the caller.
#[derive(FromZeros)]
#[repr(C)]
pub(crate) struct Place {
    /// Length of the address; 0 until the server listens.
    length: AtomicU64,
    letters: [AtomicU8; NAME_BYTES],
}

impl Place {
    pub(crate) fn tell(&self, name: &str) -> Result<(), Fault> {
        if name.len() > NAME_BYTES {
            return Err(Fault::new(format!("a name too long to tell: {name}")));
        }
        for (slot, letter) in self.letters.iter().zip(name.bytes()) {
            slot.store(letter, Ordering::Relaxed);
        }
        // Release: publishes the letters to the Acquire in hear().
        self.length.store(name.len() as u64, Ordering::Release);
        Ok(())
    }

    pub(crate) fn hear(&self) -> Result<String, Fault> {
        let began = Instant::now();
        loop {
            // Acquire: pairs with the Release in tell().
            let length = self.length.load(Ordering::Acquire) as usize;
            if length > 0 {
                let letters = self.letters.iter().take(length);
                let bytes = letters.map(|letter| letter.load(Ordering::Relaxed)).collect();
                return String::from_utf8(bytes).map_err(|_| Fault::new("no name was told"));
            }
            if began.elapsed() > MEETING {
                return Err(Fault::new("the server does not listen"));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

pub(crate) fn fault(error: impl std::fmt::Display) -> Fault {
    Fault::new(error.to_string())
}

/// Declaration of a call through shared memory.
#[cfg(feature = "mpi")]
pub(crate) const NOOP_SPEC: handover_record::Spec =
    <Called<Noop, SM, USUAL> as crate::floor::relay::Medium>::SPEC;

/// The benchmarks of calls.
pub const ALL: &[Bench] = &[
    Bench::many::<Relay<Called<Noop, SM, USUAL>>>(
        Contender::ours("handover").waits(Wait::SpinThenSleep),
    ),
    Bench::many::<Relay<Called<Noop, SM, SPINS>>>(Contender::ours("spin").waits(Wait::Spin)),
    Bench::many::<Relay<sockets::Memory<true>>>(
        Contender::peer("memory").waits(Wait::SpinThenSleep),
    ),
    Bench::many::<Relay<sockets::Memory<false>>>(Contender::peer("memory-spin").waits(Wait::Spin)),
    Bench::many::<Relay<sockets::Sockets<false>>>(Contender::peer("socket").waits(Wait::Sleep)),
    Bench::many::<Relay<sockets::Sockets<true>>>(Contender::peer("socket-spin").waits(Wait::Spin)),
    Bench::many::<Relay<Called<Noop, SM, SLEEPS>>>(Contender::ours("handover").waits(Wait::Sleep)),
    Bench::many::<Relay<Called<Noop, TCP, SLEEPS>>>(Contender::ours("handover").waits(Wait::Sleep)),
    #[cfg(feature = "peers-rpc")]
    Bench::many::<Relay<peers::Instead<peers::Tarpc, peers::Tcp>>>(
        Contender::peer("tarpc").waits(Wait::Sleep).allocates(),
    ),
    #[cfg(feature = "peers-rpc")]
    Bench::many::<Relay<peers::Instead<peers::Tonic, peers::Tcp>>>(
        Contender::peer("tonic").waits(Wait::Sleep).allocates(),
    ),
    Bench::many::<Relay<Called<Noop, TCP, SPINS>>>(Contender::ours("handover").waits(Wait::Spin)),
    Bench::many::<Relay<Called<Noop, UDS, SLEEPS>>>(Contender::ours("handover").waits(Wait::Sleep)),
    #[cfg(feature = "peers-rpc")]
    Bench::many::<Relay<peers::Instead<peers::Tarpc, peers::Unix>>>(
        Contender::peer("tarpc").waits(Wait::Sleep).allocates(),
    ),
    #[cfg(feature = "peers-rpc")]
    Bench::many::<Relay<peers::Instead<peers::Tonic, peers::Unix>>>(
        Contender::peer("tonic").waits(Wait::Sleep).allocates(),
    ),
    Bench::many::<Relay<Called<Noop, UDS, SPINS>>>(Contender::ours("handover").waits(Wait::Spin)),
    Bench::many::<Relay<Called<Echoed<Copied>, SM, SPINS>>>(
        Contender::ours("handover").waits(Wait::Spin),
    ),
    Bench::many::<Relay<Called<Echoed<Sent>, TCP, SPINS>>>(
        Contender::ours("handover").waits(Wait::Spin),
    ),
    Bench::many::<Relay<Called<Echoed<Sent>, UDS, SPINS>>>(
        Contender::ours("handover").waits(Wait::Spin),
    ),
    Bench::many::<Relay<Called<Many, SM, SPINS>>>(Contender::ours("handover").waits(Wait::Spin)),
    Bench::many::<Relay<Called<Many, TCP, SPINS>>>(Contender::ours("handover").waits(Wait::Spin)),
    Bench::many::<clients::Clients>(Contender::ours("handover").waits(Wait::SpinThenSleep)),
];
