//! One connection of a thread: its socket, and the incomplete data in both directions.

use crate::load::engine::Client;
use crate::load::error::Fault;
use crate::load::schedule::Schedule;
use crate::load::socket;
use handover_net::engine::TlsState;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Buffers of a thread for reading and sending.
pub(crate) struct Buffers {
    read: Vec<u8>,
    /// Number of bytes in `read` that are to be processed.
    filled_bytes: usize,
    /// Decrypted bytes that are to be processed.
    decrypted: Vec<u8>,
    /// Messages of the next send, not encrypted.
    pub(crate) chunk: Vec<u8>,
    encrypted: Vec<u8>,
}

impl Buffers {
    pub(crate) fn new(read_bytes: usize, chunk_bytes: usize) -> Self {
        Self {
            read: vec![0; read_bytes],
            filled_bytes: 0,
            decrypted: Vec::new(),
            chunk: Vec::with_capacity(chunk_bytes),
            encrypted: Vec::new(),
        }
    }

    /// Returns the bytes to process after a read, decrypted. They begin with the incomplete message
    /// of the previous read.
    pub(crate) fn received(&self, connection: &LoadConnection) -> &[u8] {
        match connection.secure {
            Some(_) => &self.decrypted,
            None => &self.read[..self.filled_bytes],
        }
    }
}

/// Connection of a load thread.
pub(crate) struct LoadConnection {
    pub(crate) fd: OwnedFd,
    pub(crate) client: Client,
    /// TLS state; `None` without TLS.
    pub(crate) secure: Option<Box<TlsState>>,
    /// Due times of the connection's messages, in an open loop.
    pub(crate) schedule: Option<Schedule>,
    /// Bytes that did not fit in the socket buffer. The first [`unsent_start`](Self::unsent_start)
    /// bytes have been sent since.
    unsent: Vec<u8>,
    /// Index of the first byte in `unsent` that is still to be sent.
    unsent_start: usize,
    /// Received part of an incomplete message.
    incomplete: Vec<u8>,
    /// `true` once the TCP connection is established.
    pub(crate) is_tcp_connected: bool,
    /// `true` once messages may be sent: after connecting and, with TLS, after the handshake.
    pub(crate) is_connected: bool,
    /// `true` if the socket may contain bytes to read.
    pub(crate) is_readable: bool,
    /// `true` if the peer has closed the connection or an error is pending. Reading continues until
    /// the error is seen.
    pub(crate) is_hung_up: bool,
    /// `true` while the socket buffer is full. Epoll reports when it has space again.
    pub(crate) is_blocked: bool,
    /// `true` while the connection is in the queue of connections to serve.
    pub(crate) is_queued: bool,
    /// `true` while the depth limit or a full socket buffer delays a due message.
    pub(crate) is_delayed: bool,
    /// Start of the current wait for bytes from the server. The wait may last as long as the plan's
    /// time-out.
    pub(crate) wait_start_ns: u64,
}

impl LoadConnection {
    pub(crate) fn new(
        fd: OwnedFd,
        client: Client,
        secure: Option<Box<TlsState>>,
        now_ns: u64,
    ) -> Self {
        Self {
            fd,
            client,
            secure,
            schedule: None,
            unsent: Vec::new(),
            unsent_start: 0,
            incomplete: Vec::new(),
            is_tcp_connected: false,
            is_connected: false,
            is_readable: false,
            is_hung_up: false,
            is_blocked: false,
            is_queued: false,
            is_delayed: false,
            wait_start_ns: now_ns,
        }
    }

    /// Returns `true` if the handshake or an echo is outstanding.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.is_connected || self.client.sent_count() > self.client.received_count()
    }

    /// Reads once from the connection; returns `true` if bytes were received. They are behind the
    /// incomplete message in the read buffer or, decrypted, in `decrypted`.
    pub(crate) fn read(&mut self, buffers: &mut Buffers) -> Result<bool, Fault> {
        let Buffers { read, decrypted, encrypted, filled_bytes: filled, .. } = buffers;
        // Encrypted bytes are decrypted behind the kept bytes in `decrypted`; plain bytes are read
        // behind them.
        let kept = if self.secure.is_some() { 0 } else { self.incomplete.len() };
        read[..kept].copy_from_slice(&self.incomplete[..kept]);
        let asked = read.len() - kept;
        let count = match socket::read(&self.fd, &mut read[kept..]) {
            Ok(0) => return Err(Fault::Closed),
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
            decrypted.clear();
            decrypted.extend_from_slice(&self.incomplete);
            encrypted.clear();
            let opened = secure.open_records(&mut read[..count], decrypted, encrypted);
            let is_ready = secure.is_handshake_complete();
            self.send_encrypted(encrypted)?;
            opened.map_err(Fault::Tls)?;
            self.is_connected |= is_ready;
        }
        self.incomplete.clear();
        Ok(true)
    }

    /// Handles the establishment of the TCP connection. Starts the TLS handshake or, without TLS,
    /// marks the connection as connected.
    pub(crate) fn handle_tcp_connected(&mut self, buffers: &mut Buffers) -> Result<(), Fault> {
        self.is_tcp_connected = true;
        let Some(secure) = &mut self.secure else {
            self.is_connected = true;
            return Ok(());
        };
        let Buffers { decrypted, encrypted, .. } = buffers;
        decrypted.clear();
        encrypted.clear();
        let opened = secure.open_records(&mut [], decrypted, encrypted);
        self.send_encrypted(encrypted)?;
        opened.map_err(Fault::Tls)?;
        Ok(())
    }

    /// Sends the encrypted bytes, or appends them to the unsent bytes.
    fn send_encrypted(&mut self, encrypted: &[u8]) -> Result<(), Fault> {
        if encrypted.is_empty() {
            return Ok(());
        }
        if self.unsent.is_empty() {
            return self.send_or_store(encrypted);
        }
        self.unsent.extend_from_slice(encrypted);
        Ok(())
    }

    /// Sends a TLS close notification; without TLS, does nothing.
    pub(crate) fn send_close_notify(&mut self, buffers: &mut Buffers) {
        let Some(secure) = &mut self.secure else { return };
        buffers.encrypted.clear();
        secure.append_close_notify(&mut buffers.encrypted);
        // The peer may have closed already.
        let _ = self.send_encrypted(&buffers.encrypted);
    }

    /// Stores the beginning of an incomplete message for the next read.
    pub(crate) fn keep_incomplete(&mut self, part: &[u8]) {
        self.incomplete.extend_from_slice(part);
    }

    /// Sends the unsent bytes; returns `true` if none are left.
    pub(crate) fn flush(&mut self) -> Result<bool, Fault> {
        if self.unsent.is_empty() {
            return Ok(true);
        }
        let sent =
            socket::send(&self.fd, &self.unsent[self.unsent_start..]).map_err(Fault::Broken)?;
        self.unsent_start += sent;
        self.is_blocked = self.unsent_start < self.unsent.len();
        if !self.is_blocked {
            self.unsent = Vec::new();
            self.unsent_start = 0;
        }
        Ok(!self.is_blocked)
    }

    /// Sends the messages in `buffers.chunk`, and stores the bytes that the kernel does not accept.
    /// There must be no unsent bytes.
    pub(crate) fn send(&mut self, buffers: &mut Buffers) -> Result<(), Fault> {
        let Buffers { chunk, encrypted, .. } = buffers;
        if let Some(secure) = &mut self.secure {
            encrypted.clear();
            secure.seal_messages(chunk, &[], encrypted).map_err(Fault::Tls)?;
            return self.send_or_store(encrypted);
        }
        self.send_or_store(chunk)
    }

    /// Sends bytes, and stores those that the kernel does not accept.
    fn send_or_store(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let sent = socket::send(&self.fd, bytes).map_err(Fault::Broken)?;
        if sent < bytes.len() {
            self.is_blocked = true;
            self.unsent = bytes[sent..].to_vec();
            self.unsent_start = 0;
        }
        Ok(())
    }
}
