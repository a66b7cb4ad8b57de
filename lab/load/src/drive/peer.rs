//! One connection of a thread: its socket, and the incomplete data in both directions.

use crate::engine::Client;
use crate::error::Fault;
use crate::schedule::Schedule;
use crate::secure::Secure;
use crate::socket;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Buffers of a thread for reading and sending.
pub(crate) struct Buffers {
    /// The read buffer, and the number of its bytes to process.
    read: Vec<u8>,
    filled: usize,
    /// The decrypted content of the read buffer.
    plain: Vec<u8>,
    /// The messages of one send, and their encrypted form.
    pub(crate) chunk: Vec<u8>,
    sealed: Vec<u8>,
}

impl Buffers {
    pub(crate) fn new(read_bytes: usize, chunk_bytes: usize) -> Self {
        Self {
            read: vec![0; read_bytes],
            filled: 0,
            plain: Vec::new(),
            chunk: Vec::with_capacity(chunk_bytes),
            sealed: Vec::new(),
        }
    }

    /// Returns the bytes that the last read of `peer` has brought.
    pub(crate) fn came(&self, peer: &Peer) -> &[u8] {
        match peer.secure {
            Some(_) => &self.plain,
            None => &self.read[..self.filled],
        }
    }
}

/// A connection.
pub(crate) struct Peer {
    pub(crate) fd: OwnedFd,
    pub(crate) client: Client,
    pub(crate) secure: Option<Box<dyn Secure>>,
    /// Due times of its messages in an open loop.
    pub(crate) schedule: Option<Schedule>,
    /// Bytes that the kernel has not taken yet; the first `out_sent` of them have been sent.
    out: Vec<u8>,
    out_sent: usize,
    /// The incomplete message at the end of the bytes received.
    part: Vec<u8>,
    /// `true` once the kernel has connected it.
    pub(crate) is_made: bool,
    /// `true` once messages may be sent.
    pub(crate) is_connected: bool,
    pub(crate) is_readable: bool,
    /// `true` if the peer has closed or an error is pending: reading continues until the error is
    /// seen.
    pub(crate) is_hung_up: bool,
    /// `true` while the socket buffer is full; epoll reports when there is room.
    pub(crate) is_clogged: bool,
    pub(crate) is_listed: bool,
    /// `true` if its depth or the kernel kept it from sending a due message.
    pub(crate) is_held: bool,
    /// Time of the last received bytes.
    pub(crate) active_ns: u64,
}

impl Peer {
    pub(crate) fn new(
        fd: OwnedFd,
        client: Client,
        secure: Option<Box<dyn Secure>>,
        now_ns: u64,
    ) -> Self {
        Self {
            fd,
            client,
            secure,
            schedule: None,
            out: Vec::new(),
            out_sent: 0,
            part: Vec::new(),
            is_made: false,
            is_connected: false,
            is_readable: false,
            is_hung_up: false,
            is_clogged: false,
            is_listed: false,
            is_held: false,
            active_ns: now_ns,
        }
    }

    /// Returns `true` if the handshake or an echo is outstanding.
    pub(crate) fn waits(&self) -> bool {
        !self.is_connected || self.client.sent_count() > self.client.received_count()
    }

    /// Reads once, behind the bytes kept before, into the read buffer or, decrypted, into `plain`.
    /// Returns `true` if bytes came.
    pub(crate) fn read(&mut self, buffers: &mut Buffers) -> Result<bool, Fault> {
        let Buffers { read, plain, sealed, filled, .. } = buffers;
        // Encrypted bytes are decrypted behind the kept bytes in `plain`; plain bytes are read
        // behind them.
        let kept = if self.secure.is_some() { 0 } else { self.part.len() };
        read[..kept].copy_from_slice(&self.part[..kept]);
        let asked = read.len() - kept;
        let count = match socket::read(&self.fd, &mut read[kept..]) {
            Ok(0) => return Err(Fault::Ended),
            Ok(count) => count,
            Err(Errno::AGAIN) => {
                self.is_readable = false;
                return Ok(false);
            }
            Err(errno) => return Err(Fault::Broken(errno)),
        };
        // A short read has emptied the socket; later bytes cause a new edge event.
        self.is_readable = count == asked || self.is_hung_up;
        *filled = kept + count;
        if let Some(secure) = &mut self.secure {
            plain.clear();
            plain.extend_from_slice(&self.part);
            sealed.clear();
            let opened = secure.open(&mut read[..count], plain, sealed);
            self.answer(sealed)?;
            self.is_connected |= opened?;
        }
        self.part.clear();
        Ok(true)
    }

    /// Handles the kernel's connection: starts the handshake, or marks an unsecured connection as
    /// connected.
    pub(crate) fn begin(&mut self, buffers: &mut Buffers) -> Result<(), Fault> {
        self.is_made = true;
        let Some(secure) = &mut self.secure else {
            self.is_connected = true;
            return Ok(());
        };
        let Buffers { plain, sealed, .. } = buffers;
        plain.clear();
        sealed.clear();
        let opened = secure.open(&mut [], plain, sealed);
        self.answer(sealed)?;
        self.is_connected = opened?;
        Ok(())
    }

    /// Sends the bytes, or appends them to the unsent ones.
    fn answer(&mut self, sealed: &[u8]) -> Result<(), Fault> {
        if sealed.is_empty() {
            return Ok(());
        }
        if self.out.is_empty() {
            return self.push(sealed);
        }
        self.out.extend_from_slice(sealed);
        Ok(())
    }

    /// Sends a close notification on a secured connection.
    pub(crate) fn part(&mut self, buffers: &mut Buffers) {
        let Some(secure) = &mut self.secure else { return };
        buffers.sealed.clear();
        secure.part(&mut buffers.sealed);
        // The peer may have gone already.
        let _ = self.answer(&buffers.sealed);
    }

    /// Keeps the beginning of a message for the next read.
    pub(crate) fn keep(&mut self, part: &[u8]) {
        self.part.extend_from_slice(part);
    }

    /// Sends unsent bytes; returns `true` if none are left.
    pub(crate) fn flush(&mut self) -> Result<bool, Fault> {
        if self.out.is_empty() {
            return Ok(true);
        }
        let sent = socket::send(&self.fd, &self.out[self.out_sent..]).map_err(Fault::Broken)?;
        self.out_sent += sent;
        self.is_clogged = self.out_sent < self.out.len();
        if !self.is_clogged {
            self.out = Vec::new();
            self.out_sent = 0;
        }
        Ok(!self.is_clogged)
    }

    /// Sends the chunk, and keeps the bytes that the kernel does not take. Nothing is kept when
    /// this is called.
    pub(crate) fn send(&mut self, buffers: &mut Buffers) -> Result<(), Fault> {
        let Buffers { chunk, sealed, .. } = buffers;
        if let Some(secure) = &mut self.secure {
            sealed.clear();
            secure.seal(chunk, sealed)?;
            return self.push(sealed);
        }
        self.push(chunk)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let sent = socket::send(&self.fd, bytes).map_err(Fault::Broken)?;
        if sent < bytes.len() {
            self.is_clogged = true;
            self.out = bytes[sent..].to_vec();
            self.out_sent = 0;
        }
        Ok(())
    }
}
