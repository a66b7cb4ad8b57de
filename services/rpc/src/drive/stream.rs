//! Streams: TCP connections and Unix sockets.

use super::bulk::BulkMemory;
use super::link::{Link, Queue};
use super::socket;
use crate::Gone;
use crate::engine::{HEADER_BYTES, Header, Inbound, Kind};
use crate::raw::{receive_into, send_from};
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A frame of at most so many bytes is put together and sent in one piece.
const TOGETHER_BYTES: usize = 4096;
/// Behind data there is read as much as finds the next frame, and little of the data that may follow it.
const SPARE_BYTES: usize = 256;

#[derive(Debug)]
pub(crate) struct Stream {
    fd: OwnedFd,
    inbound: Inbound,
    queue: Queue,
    /// There may be something to read.
    readable: bool,
    /// It can be waited for in the call that reads.
    waits: bool,
    together: Vec<u8>,
    /// Data under way, of which the kernel has not taken all. What is queued comes behind it.
    outgoing: Option<Outgoing>,
    incoming: Option<Incoming>,
}

#[derive(Debug)]
struct Outgoing {
    head: [u8; HEADER_BYTES],
    head_sent: usize,
    memory: BulkMemory,
    offset: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Incoming {
    header: Header,
    into: Option<(BulkMemory, u64)>,
    /// How much is still to come.
    bytes: u64,
}

impl Incoming {
    fn skip(&mut self, bytes: u64) {
        self.bytes -= bytes;
        if let Some((_, offset)) = &mut self.into {
            *offset += bytes;
        }
    }
}

impl Stream {
    pub(crate) fn new(fd: OwnedFd, body_bytes_max: u32) -> Self {
        let inbound = Inbound::new(body_bytes_max);
        let waits = socket::blocks(fd.as_fd()).is_ok();
        // It may have come while greeting.
        Self {
            fd,
            inbound,
            queue: Queue::default(),
            readable: true,
            waits,
            together: Vec::new(),
            outgoing: None,
            incoming: None,
        }
    }
}

impl Link for Stream {
    fn send(&mut self, header: Header, body: &[u8]) -> Result<(), Gone> {
        let head = header.encode();
        let mut sent = 0;
        if self.queue.is_empty() && self.outgoing.is_none() {
            sent = if body.len() <= TOGETHER_BYTES {
                self.together.clear();
                self.together.extend_from_slice(&head);
                self.together.extend_from_slice(body);
                socket::send(self.fd.as_fd(), &self.together)
            } else {
                socket::send_parts(self.fd.as_fd(), &[IoSlice::new(&head), IoSlice::new(body)])
            }
            .map_err(Gone::of("sendmsg"))?;
        }
        self.queue.push(&head[sent.min(head.len())..]);
        self.queue.push(&body[sent.saturating_sub(head.len())..]);
        Ok(())
    }

    fn receive(&mut self, body: &mut Vec<u8>, eager: bool) -> Result<Option<Header>, Gone> {
        let mut tried = !(eager || self.readable);
        loop {
            if let Some(header) = self.take_data() {
                body.clear();
                return Ok(Some(header));
            }
            if self.incoming.is_none()
                && let Some((header, came)) = self.inbound.frame()?
            {
                body.clear();
                body.extend_from_slice(came);
                if header.kind == Kind::Data {
                    let bytes = header.body_bytes.into();
                    self.incoming = Some(Incoming { header, into: None, bytes });
                }
                return Ok(Some(header));
            }
            if tried {
                return Ok(None);
            }
            match self.fill() {
                Ok((0, _)) => return Err(Gone::HungUp),
                Ok((count, room_bytes)) => {
                    // Less than there was room for: there is no more, and the kernel tells of what comes.
                    self.readable = count == room_bytes;
                    tried = !self.readable;
                }
                Err(Errno::AGAIN) => {
                    self.readable = false;
                    return Ok(None);
                }
                Err(errno) => return Err(Gone::of("recv")(errno)),
            }
        }
    }

    fn flush(&mut self) -> Result<bool, Gone> {
        let mut went = self.outgoing.is_some() && self.flush_data()?;
        while self.outgoing.is_none() && !self.queue.is_empty() {
            let sent = socket::send(self.fd.as_fd(), self.queue.waiting());
            match sent.map_err(Gone::of("send"))? {
                0 => break,
                count => self.queue.gone(count),
            }
            went = true;
        }
        Ok(went)
    }

    fn queued_bytes(&self) -> usize {
        self.queue.len_bytes() + usize::from(self.outgoing.is_some())
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn told(&mut self) {
        self.readable = true;
    }

    fn in_memory(&self) -> bool {
        false
    }

    fn wait_in_read(&mut self) -> bool {
        if !self.waits || self.incoming.is_some() {
            return false;
        }
        let room = self.inbound.room();
        let room_bytes = room.len();
        match socket::wait(self.fd.as_fd(), room) {
            Ok(count @ 1..) => {
                self.inbound.filled(count);
                self.readable = count == room_bytes;
            }
            // The end, which receive() is told again.
            Ok(0) | Err(_) => self.readable = true,
        }
        true
    }

    fn declare_sleep(&mut self) {}

    fn withdraw(&mut self) {}

    fn close(&mut self) {
        // Refused where the other side is gone already.
        let _ = self.flush();
    }

    fn send_data(
        &mut self,
        header: Header,
        memory: &BulkMemory,
        offset: u64,
    ) -> Result<bool, Gone> {
        if self.outgoing.is_some() || !self.queue.is_empty() {
            return Ok(false);
        }
        let (head, bytes) = (header.encode(), header.body_bytes.into());
        self.outgoing =
            Some(Outgoing { head, head_sent: 0, memory: memory.clone(), offset, bytes });
        self.flush_data()?;
        Ok(true)
    }

    fn receive_data(&mut self, into: Option<(BulkMemory, u64)>) {
        if let Some(incoming) = &mut self.incoming {
            incoming.into = into;
        }
    }

    fn drop_data(&mut self, call: u64) {
        if let Some(incoming) = self.incoming.as_mut().filter(|it| it.header.call == call) {
            incoming.into = None;
        }
    }

    fn let_go(&mut self, memory: &BulkMemory) {
        // Its header has promised so many bytes: what the peer is told of them comes behind.
        if let Some(outgoing) = self.outgoing.as_mut().filter(|it| it.memory.is(memory)) {
            let mut rest = vec![0; outgoing.bytes as usize]; // At most a frame.
            outgoing.memory.read(outgoing.offset, &mut rest);
            (outgoing.memory, outgoing.offset) = (BulkMemory::plain(rest), 0);
        }
    }
}

impl Stream {
    /// Reads what there is to where it belongs: how much came, and for how much there was room.
    fn fill(&mut self) -> Result<(usize, usize), Errno> {
        let incoming = self.incoming.as_mut();
        let Some((incoming, (memory, offset))) =
            incoming.and_then(|it| it.into.clone().map(|into| (it, into)))
        else {
            let room = self.inbound.room();
            let room_bytes = room.len();
            let count = socket::receive(self.fd.as_fd(), room)?;
            self.inbound.filled(count);
            return Ok((count, room_bytes));
        };
        let spare = self.inbound.room();
        let spare_bytes = spare.len().min(SPARE_BYTES);
        let runs = memory.runs(offset, incoming.bytes);
        let (count, asked) = receive_into(self.fd.as_fd(), runs, &mut spare[..spare_bytes])?;
        let direct = incoming.bytes.min(count as u64);
        incoming.skip(direct);
        let more = count - direct as usize; // No more than count.
        self.inbound.filled(more);
        Ok((count, asked))
    }

    /// Moves on with data that is coming: its header, when there is nothing more to come of it.
    fn take_data(&mut self) -> Option<Header> {
        let incoming = self.incoming.as_mut()?;
        while incoming.bytes > 0 {
            let came = self.inbound.take(incoming.bytes);
            if came.is_empty() {
                return None;
            }
            let count = came.len() as u64;
            if let Some((memory, offset)) = &incoming.into {
                memory.write(*offset, came);
            }
            incoming.skip(count);
        }
        let header = incoming.header;
        self.incoming = None;
        Some(Header { body_bytes: 0, ..header })
    }

    /// Whether some of it went.
    fn flush_data(&mut self) -> Result<bool, Gone> {
        let mut went = false;
        while let Some(outgoing) = &mut self.outgoing {
            let head = &outgoing.head[outgoing.head_sent..];
            let runs = outgoing.memory.runs(outgoing.offset, outgoing.bytes);
            let sent = send_from(self.fd.as_fd(), head, runs).map_err(Gone::of("sendmsg"))?;
            if sent == 0 {
                break;
            }
            went = true;
            let of_head = sent.min(head.len());
            outgoing.head_sent += of_head;
            let of_body = (sent - of_head) as u64;
            outgoing.offset += of_body;
            outgoing.bytes -= of_body;
            if outgoing.bytes == 0 {
                self.outgoing = None;
            }
        }
        Ok(went)
    }
}
