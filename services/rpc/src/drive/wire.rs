//! Byte stream of a connection: a socket, or TLS over a socket. Never blocks.

use super::bulk::BulkMemory;
use super::socket::{self, ReadResult};
use crate::CloseReason;
use crate::raw::{receive_into, send_from};
use rustix::net::{Shutdown, shutdown};
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum number of bytes of bulk memory copied at a time. It is the maximum content of a TLS
/// record.
#[cfg(any(feature = "tls", test))]
const PIECE_BYTES: usize = 1 << 14;

/// Maximum number of reads by which [`Wire::end`] discards bytes.
const DISCARDS_MAX: usize = 256;

/// Byte stream of a connection: a socket, with or without TLS.
#[derive(Debug)]
pub(crate) enum Wire {
    Socket(OwnedFd),
    #[cfg(feature = "tls")]
    Tls(Box<super::tls::TlsSession>),
    #[cfg(test)]
    Simulated(crate::simulation::SimulatedPort),
}

impl Wire {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Wire::Socket(fd) => fd.as_fd(),
            #[cfg(feature = "tls")]
            Wire::Tls(tls) => tls.fd(),
            #[cfg(test)]
            Wire::Simulated(port) => port.fd(),
        }
    }

    /// Returns the socket of a connection without TLS; `None` for TLS.
    pub(crate) fn into_socket(self) -> Option<OwnedFd> {
        match self {
            Wire::Socket(fd) => Some(fd),
            #[cfg(any(feature = "tls", test))]
            _ => None,
        }
    }

    /// Sends bytes; returns the number accepted, 0 if there is no space.
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, CloseReason> {
        match self {
            Wire::Socket(fd) => {
                socket::send(fd.as_fd(), bytes).map_err(CloseReason::from_system_call("send"))
            }
            #[cfg(feature = "tls")]
            Wire::Tls(tls) => tls.send(bytes),
            #[cfg(test)]
            Wire::Simulated(port) => port.send(bytes),
        }
    }

    /// Sends a head and a body; see [`send`](Self::send).
    pub(crate) fn send_two(&mut self, head: &[u8], body: &[u8]) -> Result<usize, CloseReason> {
        match self {
            Wire::Socket(fd) => {
                socket::send_vectored(fd.as_fd(), &[IoSlice::new(head), IoSlice::new(body)])
                    .map_err(CloseReason::from_system_call("sendmsg"))
            }
            #[cfg(any(feature = "tls", test))]
            _ => match self.send(head)? {
                sent if sent < head.len() => Ok(sent),
                sent => Ok(sent + self.send(body)?),
            },
        }
    }

    /// Sends a head and a range of memory, without a copy if possible; see [`send`](Self::send).
    pub(crate) fn send_memory(
        &mut self,
        head: &[u8],
        memory: &BulkMemory,
        offset: u64,
        bytes: u64,
    ) -> Result<usize, CloseReason> {
        match self {
            Wire::Socket(fd) => {
                send_from(fd.as_fd(), head, memory.contiguous_pieces(offset, bytes))
                    .map_err(CloseReason::from_system_call("sendmsg"))
            }
            #[cfg(any(feature = "tls", test))]
            _ => self.send_copied(head, memory, offset, bytes),
        }
    }

    /// Sends a head and a range of memory through a copy; see [`send_memory`](Self::send_memory).
    #[cfg(any(feature = "tls", test))]
    fn send_copied(
        &mut self,
        head: &[u8],
        memory: &BulkMemory,
        offset: u64,
        bytes: u64,
    ) -> Result<usize, CloseReason> {
        let mut sent = self.send(head)?;
        let (mut piece, mut done) = ([0; PIECE_BYTES], 0);
        while sent == head.len() + done && (done as u64) < bytes {
            // At most PIECE_BYTES.
            let count = (bytes - done as u64).min(PIECE_BYTES as u64) as usize;
            memory.read(offset + done as u64, &mut piece[..count]);
            sent += self.send(&piece[..count])?;
            done += count;
        }
        Ok(sent)
    }

    #[inline]
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> Result<ReadResult, CloseReason> {
        match self {
            Wire::Socket(fd) => {
                ReadResult::from_result(socket::receive(fd.as_fd(), into), into.len())
            }
            #[cfg(feature = "tls")]
            Wire::Tls(tls) => tls.receive(into),
            #[cfg(test)]
            Wire::Simulated(port) => port.receive(into),
        }
    }

    /// Receives into a range of memory, and then into `spare`. Returns `None`, and receives
    /// nothing, if this stream cannot do so without a copy.
    pub(crate) fn receive_memory(
        &mut self,
        memory: &BulkMemory,
        offset: u64,
        bytes: u64,
        spare: &mut [u8],
    ) -> Option<Result<ReadResult, CloseReason>> {
        match self {
            Wire::Socket(fd) => {
                let received =
                    receive_into(fd.as_fd(), memory.contiguous_pieces(offset, bytes), spare);
                Some(match received {
                    Ok((count, asked)) => ReadResult::from_result(Ok(count), asked),
                    Err(errno) => ReadResult::from_result(Err(errno), 0),
                })
            }
            #[cfg(any(feature = "tls", test))]
            _ => None,
        }
    }

    /// Sends bytes that TLS has accepted and buffered; returns `true` if any were sent.
    pub(crate) fn flush(&mut self) -> Result<bool, CloseReason> {
        match self {
            #[cfg(feature = "tls")]
            Wire::Tls(tls) => tls.flush(),
            _ => Ok(false),
        }
    }

    /// Ends the stream in the direction to the peer, after the bytes that the kernel has accepted.
    /// Discards what has arrived: the kernel would otherwise reset the connection when it is
    /// closed, and discard bytes that the peer has not read yet.
    pub(crate) fn end(&mut self) {
        #[cfg(test)]
        if let Wire::Simulated(_) = self {
            return;
        }
        #[cfg(feature = "tls")]
        if let Wire::Tls(tls) = self {
            tls.end();
        }
        // An error means that the peer has already closed the connection.
        let _ = shutdown(self.fd(), Shutdown::Write);
        let _ = socket::discard(self.fd(), DISCARDS_MAX);
    }

    /// Returns `true` while a part of a TLS record has arrived. The record cannot be decrypted
    /// before it is complete.
    pub(crate) fn is_within_record(&self) -> bool {
        match self {
            #[cfg(feature = "tls")]
            Wire::Tls(tls) => tls.is_within_record(),
            _ => false,
        }
    }

    /// Returns `true` while TLS buffers bytes for which the kernel has no space.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            #[cfg(feature = "tls")]
            Wire::Tls(tls) => tls.has_unsent(),
            _ => false,
        }
    }
}
