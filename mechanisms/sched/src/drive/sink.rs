//! What transmitted packets leave by.

mod udp;

use super::word::{Departure, LENGTH_MAX_BYTES};
use std::hint::black_box;
use std::io;
pub use udp::{DATAGRAM_MAX_BYTES, Udp};

/// Nothing can leave by this any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// No socket to this address.
    #[error("no socket to {to}: {error}")]
    Connect {
        /// The address.
        to: std::net::SocketAddr,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The kernel takes no datagrams.
    #[error("sending datagrams: {error}")]
    Send {
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// Where a client's packets go when they are marked.
pub trait Sink {
    /// Transmits a packet, or keeps it until [`flush`](Self::flush).
    fn transmit(&mut self, packet: Departure);

    /// The end of a burst: what was kept goes now.
    ///
    /// # Errors
    /// [`SinkError`]: nothing goes any more. A single packet that is lost on its way is no error.
    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

impl<K: Sink + ?Sized> Sink for Box<K> {
    fn transmit(&mut self, packet: Departure) {
        (**self).transmit(packet);
    }
    fn flush(&mut self) -> Result<(), SinkError> {
        (**self).flush()
    }
}

/// Nowhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Null;

impl Sink for Null {
    #[inline(always)]
    fn transmit(&mut self, _: Departure) {}
}

/// Into memory: as many bytes as the packet has are copied, as a network card's ring would be filled.
#[derive(Debug)]
pub struct Copy {
    from: Vec<u8>,
    to: Vec<u8>,
    copied_bytes: u64,
}

impl Copy {
    /// With 64 KiB to copy from and to.
    pub fn new() -> Self {
        let bytes = LENGTH_MAX_BYTES as usize;
        Self { from: vec![0x5a; bytes], to: vec![0; bytes], copied_bytes: 0 }
    }

    /// How much was copied.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }
}

impl Default for Copy {
    fn default() -> Self {
        Self::new()
    }
}

impl Sink for Copy {
    fn transmit(&mut self, packet: Departure) {
        let bytes = packet.length_bytes.min(LENGTH_MAX_BYTES) as usize;
        self.to[..bytes].copy_from_slice(black_box(&self.from[..bytes]));
        black_box(&mut self.to);
        self.copied_bytes += bytes as u64;
    }
}

/// Two sinks, one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Both<A, B>(pub A, pub B);

impl<A: Sink, B: Sink> Sink for Both<A, B> {
    #[inline(always)]
    fn transmit(&mut self, packet: Departure) {
        self.0.transmit(packet);
        self.1.transmit(packet);
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        let first = self.0.flush();
        self.1.flush()?;
        first
    }
}

/// What a flow has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Packets transmitted.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Counts what each flow sends.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    flows: Vec<FlowCounts>,
}

impl Shares {
    /// Of so many flows; others are added as they come.
    pub fn new(flows_count: u32) -> Self {
        Self { flows: vec![FlowCounts::default(); flows_count as usize] }
    }

    /// The counts, by the flow's number.
    pub fn flows(&self) -> &[FlowCounts] {
        &self.flows
    }
}

impl Sink for Shares {
    #[inline]
    fn transmit(&mut self, packet: Departure) {
        let flow = packet.flow as usize;
        if flow >= self.flows.len() {
            self.flows.resize(flow + 1, FlowCounts::default());
        }
        self.flows[flow].packets += 1;
        self.flows[flow].bytes += u64::from(packet.length_bytes);
    }
}
