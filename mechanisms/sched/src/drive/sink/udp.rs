//! Sink that sends UDP datagrams, many with one system call.

use super::{Sink, SinkError};
use crate::drive::word::Departure;
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Longest datagram that IPv4 carries; longer packets are truncated to it.
pub const DATAGRAM_MAX_BYTES: u32 = 65_507;

/// Maximum number of datagrams sent with one system call.
const BURST_MAX: usize = 64;

/// Size of a datagram's header: flow and number, eight bytes each, in network order, truncated to
/// the datagram's length.
const HEADER_BYTES: usize = 16;

/// Sink that sends each packet as a UDP datagram of its length, in bursts by `sendmmsg(2)`.
///
/// The first 16 bytes of a datagram are the packet's flow and its number in this sink, each as
/// eight bytes in network order, truncated if the packet is shorter; the rest is zeros.
///
/// # Blocking
/// Blocks while the socket's buffer is full.
#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    /// Length and header of each buffered datagram.
    buffered: Vec<(usize, [u8; HEADER_BYTES])>,
    zeros: Box<[u8]>,
    number: u64,
    datagrams: u64,
    bytes: u64,
    lost: u64,
    failed: Option<io::Error>,
}

impl Udp {
    /// Makes a sink that sends to this address, from any port.
    ///
    /// # Errors
    /// [`SinkError::Connect`].
    pub fn connect(to: SocketAddr) -> Result<Self, SinkError> {
        let from: SocketAddr = match to {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let connect = || {
            let socket = UdpSocket::bind(from)?;
            socket.connect(to)?;
            Ok(socket)
        };
        let socket = connect().map_err(|error| SinkError::Connect { to, error })?;
        Ok(Self {
            socket,
            buffered: Vec::with_capacity(BURST_MAX),
            zeros: vec![0; DATAGRAM_MAX_BYTES as usize].into(),
            number: 0,
            datagrams: 0,
            bytes: 0,
            lost: 0,
            failed: None,
        })
    }

    /// Returns the number of datagrams that the kernel accepted.
    pub fn datagrams(&self) -> u64 {
        self.datagrams
    }

    /// Returns their bytes, without network headers.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of datagrams that the kernel did not accept: no receiver at the peer, or
    /// no buffer. They are not sent again, as on a wire.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn send_buffered(&mut self) {
        let mut sent = 0;
        while sent < self.buffered.len() && self.failed.is_none() {
            match send(&self.socket, &self.buffered[sent..], &self.zeros) {
                Ok(count) => {
                    self.datagrams += count as u64;
                    let lengths = self.buffered[sent..sent + count].iter().map(|it| it.0 as u64);
                    self.bytes += lengths.sum::<u64>();
                    sent += count;
                }
                Err(Errno::INTR) => {}
                // An error of the next datagram, or a pending error of an earlier one, which was
                // refused.
                Err(Errno::CONNREFUSED | Errno::NOBUFS | Errno::AGAIN | Errno::HOSTUNREACH) => {
                    self.lost += 1;
                    sent += 1;
                }
                Err(errno) => self.failed = Some(errno.into()),
            }
        }
        self.lost += (self.buffered.len() - sent) as u64;
        self.buffered.clear();
    }
}

/// Sends as many datagrams as possible; returns their number.
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

impl Sink for Udp {
    fn transmit(&mut self, packet: Departure) {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&u64::from(packet.flow).to_be_bytes());
        header[8..].copy_from_slice(&self.number.to_be_bytes());
        self.number += 1;
        self.buffered.push((packet.length_bytes.min(DATAGRAM_MAX_BYTES) as usize, header));
        if self.buffered.len() == BURST_MAX {
            self.send_buffered();
        }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.send_buffered();
        self.failed.take().map_or(Ok(()), |error| Err(SinkError::Send { error }))
    }
}
