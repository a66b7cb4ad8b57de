//! Streams: TCP connections and Unix sockets.

use super::link::{Link, Queue};
use super::socket;
use crate::Gone;
use crate::engine::{Header, Inbound};
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};

/// A frame of at most so many bytes is put together and sent in one piece.
const TOGETHER_BYTES: usize = 4096;

#[derive(Debug)]
pub(crate) struct Stream {
    fd: OwnedFd,
    inbound: Inbound,
    queue: Queue,
    /// There may be something to read.
    readable: bool,
    together: Vec<u8>,
}

impl Stream {
    pub(crate) fn new(fd: OwnedFd, body_bytes_max: u32) -> Self {
        let inbound = Inbound::new(body_bytes_max);
        // It may have come while greeting.
        Self { fd, inbound, queue: Queue::default(), readable: true, together: Vec::new() }
    }
}

fn broken(call: &'static str) -> impl Fn(Errno) -> Gone {
    move |errno| match errno {
        Errno::PIPE | Errno::CONNRESET => Gone::HungUp,
        errno => Gone::Broken { call, errno },
    }
}

impl Link for Stream {
    fn send(&mut self, header: Header, body: &[u8]) -> Result<(), Gone> {
        let head = header.encode();
        let mut sent = 0;
        if self.queue.is_empty() {
            sent = if body.len() <= TOGETHER_BYTES {
                self.together.clear();
                self.together.extend_from_slice(&head);
                self.together.extend_from_slice(body);
                socket::send(self.fd.as_fd(), &self.together)
            } else {
                socket::send_parts(self.fd.as_fd(), &[IoSlice::new(&head), IoSlice::new(body)])
            }
            .map_err(broken("sendmsg"))?;
        }
        self.queue.push(&head[sent.min(head.len())..]);
        self.queue.push(&body[sent.saturating_sub(head.len())..]);
        Ok(())
    }

    fn receive(&mut self, body: &mut Vec<u8>, eager: bool) -> Result<Option<Header>, Gone> {
        let mut tried = !(eager || self.readable);
        loop {
            if let Some((header, came)) = self.inbound.frame()? {
                body.clear();
                body.extend_from_slice(came);
                return Ok(Some(header));
            }
            if tried {
                return Ok(None);
            }
            let room = self.inbound.room();
            let room_bytes = room.len();
            match socket::receive(self.fd.as_fd(), room) {
                Ok(0) => return Err(Gone::HungUp),
                Ok(count) => {
                    // Less than there was room for: there is no more, and the kernel tells of what comes.
                    self.readable = count == room_bytes;
                    tried = !self.readable;
                    self.inbound.filled(count);
                }
                Err(Errno::AGAIN) => {
                    self.readable = false;
                    return Ok(None);
                }
                Err(errno) => return Err(broken("recv")(errno)),
            }
        }
    }

    fn flush(&mut self) -> Result<bool, Gone> {
        let mut went = false;
        while !self.queue.is_empty() {
            let sent = socket::send(self.fd.as_fd(), self.queue.waiting());
            match sent.map_err(broken("send"))? {
                0 => break,
                count => self.queue.gone(count),
            }
            went = true;
        }
        Ok(went)
    }

    fn queued_bytes(&self) -> usize {
        self.queue.len_bytes()
    }

    fn told(&mut self) {
        self.readable = true;
    }

    fn in_memory(&self) -> bool {
        false
    }

    fn declare_sleep(&mut self) {}

    fn withdraw(&mut self) {}

    fn close(&mut self) {
        // Refused where the other side is gone already.
        let _ = self.flush();
    }
}
