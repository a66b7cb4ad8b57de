//! Sink that sends UDP datagrams, many with one system call.

use anyhow::Context;
use handover_sched::drive::{Departure, Sink, SinkError};
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Maximum payload of a UDP datagram over IPv4. Longer packets are truncated to this length.
const DATAGRAM_MAX_BYTES: u32 = 65_507;

/// Maximum number of datagrams sent with one system call.
const BURST_MAX: usize = 64;

/// Size of the header in a datagram's payload. It has the flow and the number, eight bytes each in
/// network order, and is truncated to the datagram's length.
const HEADER_BYTES: usize = 16;

/// Sink that sends each packet as a UDP datagram of the packet's length. Sends bursts by
/// `sendmmsg(2)`.
///
/// The first 16 bytes of a datagram are the packet's flow and its number in this sink, each as
/// eight bytes in network order, truncated if the packet is shorter; the rest is zeros.
///
/// # Blocking
/// Blocks while the socket's buffer is full.
#[derive(Debug)]
pub(super) struct UdpSink {
    socket: UdpSocket,
    /// Length and header of each buffered datagram.
    buffered: Vec<(usize, [u8; HEADER_BYTES])>,
    /// Zeros that follow the header of each datagram.
    zeros: Box<[u8]>,
    /// Number of the next packet, from 0.
    next_number: u64,
    /// First error of sending, which is not reported yet.
    error: Option<io::Error>,
}

impl UdpSink {
    /// Creates a sink that sends to `address`, from any free port.
    ///
    /// # Errors
    /// If no socket can be connected to the address.
    pub(super) fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let from: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let refused = || format!("cannot connect a UDP socket to {address}");
        let socket = UdpSocket::bind(from).with_context(refused)?;
        socket.connect(address).with_context(refused)?;
        Ok(Self {
            socket,
            buffered: Vec::with_capacity(BURST_MAX),
            zeros: vec![0; DATAGRAM_MAX_BYTES as usize].into(),
            next_number: 0,
            error: None,
        })
    }

    /// Sends the buffered datagrams, and stores the first error.
    fn send_buffered(&mut self) {
        let mut sent = 0;
        while sent < self.buffered.len() && self.error.is_none() {
            match send(&self.socket, &self.buffered[sent..], &self.zeros) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                // An error of the next datagram, or a pending error of an earlier one, which was
                // refused. It is not sent again, as on a wire.
                Err(Errno::CONNREFUSED | Errno::NOBUFS | Errno::AGAIN | Errno::HOSTUNREACH) => {
                    sent += 1;
                }
                Err(errno) => self.error = Some(errno.into()),
            }
        }
        self.buffered.clear();
    }
}

/// Sends datagrams with one system call; returns the number that was sent. It may be lower than
/// requested.
fn send(
    socket: &UdpSocket,
    buffered: &[(usize, [u8; HEADER_BYTES])],
    zeros: &[u8],
) -> Result<usize, Errno> {
    let parts = buffered.iter().map(|(length, header)| {
        let (head, rest) = ((*length).min(HEADER_BYTES), length.saturating_sub(HEADER_BYTES));
        [IoSlice::new(&header[..head]), IoSlice::new(&zeros[..rest])]
    });
    let parts: Vec<_> = parts.collect();
    let mut no_ancillary: Vec<_> = parts.iter().map(|_| SendAncillaryBuffer::default()).collect();
    let headers =
        parts.iter().zip(&mut no_ancillary).map(|(parts, none)| MMsgHdr::new(parts, none));
    sendmmsg(socket, &mut headers.collect::<Vec<_>>(), SendFlags::empty())
}

impl Sink for UdpSink {
    fn transmit(&mut self, packet: Departure) {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&u64::from(packet.flow).to_be_bytes());
        header[8..].copy_from_slice(&self.next_number.to_be_bytes());
        self.next_number += 1;
        self.buffered.push((packet.length_bytes.min(DATAGRAM_MAX_BYTES) as usize, header));
        if self.buffered.len() == BURST_MAX {
            self.send_buffered();
        }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.send_buffered();
        self.error.take().map_or(Ok(()), |error| Err(SinkError::Send { error }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn datagrams_have_the_lengths_and_flows_of_the_packets() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut udp = UdpSink::connect(receiver.local_addr().unwrap()).unwrap();
        let lengths = [1u32, 8, 16, 17, 1400];
        let mut buffer = [0; 2048];
        let mut number = 0u64;
        // Bursts that fit into the receiver's buffer, and more than one system call sends.
        for burst in [5, BURST_MAX as u32 + 6, 15] {
            for tag in 0..burst {
                let length_bytes = lengths[tag as usize % lengths.len()];
                udp.transmit(Departure { flow: tag % 3, length_bytes, tag });
            }
            udp.flush().unwrap();
            for tag in 0..burst {
                let length = receiver.recv(&mut buffer).unwrap();
                assert_eq!(length as u32, lengths[tag as usize % lengths.len()]);
                if length >= HEADER_BYTES {
                    let word =
                        |at: usize| u64::from_be_bytes(buffer[at..at + 8].try_into().unwrap());
                    assert_eq!((word(0), word(8)), (u64::from(tag % 3), number));
                }
                number += 1;
            }
        }
    }

    #[test]
    fn refused_datagrams_do_not_end_sending() {
        let closed_port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut udp = UdpSink::connect(closed_port).unwrap();
        for tag in 0..10 {
            udp.transmit(Departure { flow: 0, length_bytes: 64, tag });
            udp.flush().unwrap();
        }
    }
}
