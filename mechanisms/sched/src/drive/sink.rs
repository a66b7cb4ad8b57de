//! Sinks: destinations of transmitted packets.

use super::word::{Departure, LENGTH_MAX_BYTES};
use std::hint::black_box;
use std::io;

/// Error after which a [`Sink`] transmits no more packets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The operating system could not send the packets.
    #[error("cannot send datagrams: {error}")]
    Send {
        /// Error of the operating system.
        error: io::Error,
    },
}

/// Destination to which a client transmits packets.
pub trait Sink {
    /// Transmits a packet, or buffers it until [`flush`](Self::flush).
    fn transmit(&mut self, packet: Departure);

    /// Completes a burst: transmits the buffered packets.
    ///
    /// # Errors
    /// [`SinkError`] when no more packets can be sent. A single packet that is lost on its way is
    /// no error.
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

/// Sink that discards packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl Sink for NullSink {
    #[inline(always)]
    fn transmit(&mut self, _: Departure) {}
}

/// Sink that copies bytes between two buffers, as many as each packet has. A driver that fills a
/// network card's ring does the same.
#[derive(Debug)]
pub struct CopySink {
    from: Vec<u8>,
    to: Vec<u8>,
    copied_bytes: u64,
}

impl CopySink {
    /// Creates a sink with a source and a destination buffer of 65,535 bytes each.
    pub fn new() -> Self {
        let bytes = LENGTH_MAX_BYTES as usize;
        Self { from: vec![0x5a; bytes], to: vec![0; bytes], copied_bytes: 0 }
    }

    /// Returns the number of bytes copied.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }
}

impl Default for CopySink {
    fn default() -> Self {
        Self::new()
    }
}

impl Sink for CopySink {
    fn transmit(&mut self, packet: Departure) {
        let bytes = packet.length_bytes.min(LENGTH_MAX_BYTES) as usize;
        self.to[..bytes].copy_from_slice(black_box(&self.from[..bytes]));
        black_box(&mut self.to);
        self.copied_bytes += bytes as u64;
    }
}

/// Numbers of packets and bytes transmitted of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Packets transmitted.
    pub packets: u64,
    /// Bytes of the packets transmitted.
    pub bytes: u64,
}

/// Sink that counts the packets and bytes of each flow.
#[derive(Clone, Debug, Default)]
pub struct FlowCounter {
    flows: Vec<FlowCounts>,
}

impl FlowCounter {
    /// Creates a sink for `flows_count` flows; counters of further flows are added when needed.
    pub fn new(flows_count: u32) -> Self {
        Self { flows: vec![FlowCounts::default(); flows_count as usize] }
    }

    /// Returns the counters of all flows, indexed by flow number.
    pub fn flows(&self) -> &[FlowCounts] {
        &self.flows
    }
}

impl Sink for FlowCounter {
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
