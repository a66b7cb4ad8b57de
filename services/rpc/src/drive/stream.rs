//! Streams: TCP connections and Unix sockets.

use super::bulk::BulkMemory;
use super::link::{Link, Queue};
use super::socket;
use super::wire::{Received, Wire};
use crate::Gone;
use crate::engine::{HEADER_BYTES, Header, Inbound, Kind};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A frame of at most so many bytes is put together and sent in one piece.
const TOGETHER_BYTES: usize = 4096;
/// Behind data there is read as much as finds the next frame, and little of the data that may follow it.
const SPARE_BYTES: usize = 256;

/// The longest wait in the call that reads, where the kernel can tell of the peer's end in another way too: after
/// that, everything is waited for together.
const WAIT_MAX: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Stream {
    wire: Wire,
    inbound: Inbound,
    queue: Queue,
    /// There may be something to read.
    readable: bool,
    /// There may be room in the socket. Of what waits, the kernel tells when there is again.
    writable: bool,
    /// It can be waited for in the call that reads.
    waits: bool,
    together: Vec<u8>,
    /// Data under way, of which the kernel has not taken all. What is queued comes behind it.
    outgoing: Option<Outgoing>,
    incoming: Option<Incoming>,
    /// Frames that have come whole, the header of data counted apart from the data.
    frames_count: u64,
    /// As many as there had been at the last sweep.
    swept_frames_count: u64,
    /// Sweeps without a pause that have found the same frame begun.
    sweeps_count: u32,
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
    pub(crate) fn new(wire: Wire, body_bytes_max: u32) -> Self {
        let inbound = Inbound::new(body_bytes_max);
        let waits = matches!(wire, Wire::Socket(_)) && socket::blocks(wire.fd()).is_ok();
        // It may have come while greeting.
        Self {
            wire,
            inbound,
            queue: Queue::default(),
            readable: true,
            writable: true,
            waits,
            together: Vec::new(),
            outgoing: None,
            incoming: None,
            frames_count: 0,
            swept_frames_count: 0,
            sweeps_count: 0,
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
                self.wire.send(&self.together)?
            } else {
                self.wire.send_two(&head, body)?
            };
        }
        self.queue.push(&head[sent.min(head.len())..]);
        self.queue.push(&body[sent.saturating_sub(head.len())..]);
        Ok(())
    }

    fn receive(&mut self, body: &mut Vec<u8>, eager: bool) -> Result<Option<Header>, Gone> {
        let mut tried = !(eager || self.readable);
        loop {
            if let Some(header) = self.take_data() {
                self.frames_count += 1;
                body.clear();
                return Ok(Some(header));
            }
            if self.incoming.is_none()
                && let Some((header, came)) = self.inbound.frame()?
            {
                body.clear();
                body.extend_from_slice(came);
                self.frames_count += 1;
                if header.kind == Kind::Data {
                    let bytes = header.body_bytes.into();
                    self.incoming = Some(Incoming { header, into: None, bytes });
                }
                return Ok(Some(header));
            }
            if tried {
                return Ok(None);
            }
            match self.fill()? {
                Received::End => return Err(Gone::HungUp),
                Received::Bytes { drained, .. } => {
                    self.readable = !drained;
                    tried = drained;
                }
                Received::Nothing => {
                    self.readable = false;
                    return Ok(None);
                }
            }
        }
    }

    fn flush(&mut self) -> Result<bool, Gone> {
        if !self.writable {
            return Ok(false);
        }
        let mut went = self.wire.flush()?;
        went |= self.outgoing.is_some() && self.flush_data()?;
        while self.outgoing.is_none() && !self.queue.is_empty() {
            match self.wire.send(self.queue.waiting())? {
                0 => {
                    self.writable = false;
                    break;
                }
                count => self.queue.gone(count),
            }
            went = true;
        }
        // Of what TLS has kept, too, the kernel tells when there is room.
        self.writable &= !self.wire.has_unsent();
        Ok(went)
    }

    fn queued_bytes(&self) -> usize {
        self.queue.len_bytes() + usize::from(self.outgoing.is_some() || self.wire.has_unsent())
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.wire.fd()
    }

    fn told(&mut self) {
        self.readable = true;
        self.writable = true;
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
        match socket::wait(self.wire.fd(), room) {
            Ok(count @ 1..) => {
                self.inbound.filled(count);
                self.readable = count == room_bytes;
            }
            // Nothing for a while.
            Err(Errno::AGAIN) => return false,
            // The end, which receive() is told again.
            Ok(0) | Err(_) => self.readable = true,
        }
        true
    }

    fn bound_wait_in_read(&mut self) {
        self.waits &= socket::bound_wait(self.wire.fd(), WAIT_MAX).is_ok();
    }

    fn declare_sleep(&mut self) {}

    fn withdraw(&mut self) {}

    fn wants_sweep(&self) -> bool {
        self.is_within_frame() || self.inbound.is_grown()
    }

    fn sweep(&mut self) -> u32 {
        self.inbound.shrink();
        let is_same = self.swept_frames_count == self.frames_count && self.is_within_frame();
        self.sweeps_count = if is_same { self.sweeps_count + 1 } else { 0 };
        self.swept_frames_count = self.frames_count;
        self.sweeps_count
    }

    fn receive_buffer_bytes(&self) -> usize {
        self.inbound.capacity_bytes()
    }

    fn close(&mut self) {
        self.writable = true;
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
    fn is_within_frame(&self) -> bool {
        self.incoming.is_some() || self.inbound.pending_bytes() > 0 || self.wire.is_within_record()
    }

    /// Reads what there is to where it belongs.
    fn fill(&mut self) -> Result<Received, Gone> {
        let room = self.inbound.room();
        if let Some(incoming) = self.incoming.as_mut()
            && let Some((memory, offset)) = &incoming.into
        {
            let spare_bytes = room.len().min(SPARE_BYTES);
            let spare = &mut room[..spare_bytes];
            if let Some(received) = self.wire.receive_memory(memory, *offset, incoming.bytes, spare)
            {
                let received = received?;
                if let Received::Bytes { count, .. } = received {
                    let direct = incoming.bytes.min(count as u64);
                    incoming.skip(direct);
                    self.inbound.filled(count - direct as usize); // No more than count.
                }
                return Ok(received);
            }
        }
        let received = self.wire.receive(room)?;
        if let Received::Bytes { count, .. } = received {
            self.inbound.filled(count);
        }
        Ok(received)
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
            let Outgoing { memory, offset, bytes, .. } = outgoing;
            let sent = self.wire.send_memory(head, memory, *offset, *bytes)?;
            if sent == 0 {
                self.writable = false;
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
