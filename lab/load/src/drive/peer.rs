//! One connection of a thread: its socket, and what of it is not whole yet.

use crate::engine::Client;
use crate::error::Fault;
use crate::schedule::Schedule;
use crate::secure::Secure;
use crate::socket;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// What a thread reads into and sends from.
pub(crate) struct Buffers {
    /// The one read buffer, and how much of it is to be looked at.
    read: Vec<u8>,
    filled: usize,
    /// What was in it, opened.
    plain: Vec<u8>,
    /// What is built for one send, and what it is when sealed.
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

    /// What that connection's read has brought.
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
    /// When its messages are due, in an open loop.
    pub(crate) schedule: Option<Schedule>,
    /// What the kernel has not taken; so much of it is sent.
    out: Vec<u8>,
    out_sent: usize,
    /// The beginning of a message that has come.
    part: Vec<u8>,
    /// The kernel has connected it.
    pub(crate) is_made: bool,
    /// And messages may be sent.
    pub(crate) is_connected: bool,
    pub(crate) is_readable: bool,
    /// The other side has ended, or something is wrong: it is read until that is seen.
    pub(crate) is_hung_up: bool,
    /// The kernel has no room: it will say when it has.
    pub(crate) is_clogged: bool,
    pub(crate) is_listed: bool,
    /// Its depth, or the kernel, kept it from sending what was due.
    pub(crate) is_held: bool,
    /// When something last came of it.
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

    /// Whether something is to come back.
    pub(crate) fn waits(&self) -> bool {
        !self.is_connected || self.client.sent_count() > self.client.received_count()
    }

    /// One read, behind what has come already, into the room's buffer or, opened, into its `plain`; whether
    /// anything came.
    pub(crate) fn read(&mut self, buffers: &mut Buffers) -> Result<bool, Fault> {
        let Buffers { read, plain, sealed, filled, .. } = buffers;
        // What is sealed is opened behind what was kept; what is not is read there.
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
        // Less than was asked for is all there was; what comes later makes an edge of its own.
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

    /// Begins to secure a connection that the kernel has made; whether messages may be sent.
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

    /// Sends, or keeps behind what is kept.
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

    /// Says good-bye, if there is a way to.
    pub(crate) fn part(&mut self, buffers: &mut Buffers) {
        let Some(secure) = &mut self.secure else { return };
        buffers.sealed.clear();
        secure.part(&mut buffers.sealed);
        // Nobody listens any more at worst.
        let _ = self.answer(&buffers.sealed);
    }

    /// Keeps the beginning of a message for the next read.
    pub(crate) fn keep(&mut self, part: &[u8]) {
        self.part.extend_from_slice(part);
    }

    /// Sends what the kernel had no room for; whether all of it went.
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

    /// Sends the room's chunk, or keeps what the kernel has no room for. Nothing is kept yet.
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
