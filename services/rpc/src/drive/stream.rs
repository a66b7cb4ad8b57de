//! Stream transport: TCP connections, Unix sockets and TLS.

use super::bulk::BulkMemory;
use super::link::{Link, SendQueue};
use super::socket::{self, ReadResult};
use super::wire::Wire;
use crate::CloseReason;
use crate::engine::{FrameHeader, FrameKind, ReceiveBuffer};
use crate::raw::reserve_apart;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Maximum length, in bytes, of a body that is copied behind its header. Both are then sent as one
/// buffer.
const COMBINED_BODY_BYTES_MAX: usize = 4096;
/// Minimum amount of bulk data still to arrive, in bytes, that is read directly into its memory.
/// Less is read together with what follows it, in one system call, and copied.
const DIRECT_READ_BYTES_MIN: u64 = 1 << 14;
/// Maximum number of bytes that a direct read receives beyond the bulk data. They suffice to find
/// the next frame, but contain little of the data that may follow.
const SPARE_BYTES: usize = 256;

/// Maximum time of a blocking read if a process descriptor may report the peer's exit. Afterwards
/// the thread waits in epoll for all events.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// One end of a connection over a byte stream.
#[derive(Debug)]
pub(crate) struct StreamLink {
    wire: Wire,
    inbound: ReceiveBuffer,
    queue: SendQueue,
    /// `true` if the socket may have bytes to read. If not, epoll reports when it has.
    is_readable: bool,
    /// `true` if the socket is read until it has no bytes or returns the end or an error, although
    /// a read was short. Epoll has then reported the end already, or a mark at which a read stops.
    reads_until_empty: bool,
    /// `true` if the socket may have space to send. If not, epoll reports when it has.
    is_writable: bool,
    /// `true` if sending has failed because the peer closed the connection. Frames are then
    /// discarded, and `receive` returns the frames that had arrived before it returns the error.
    has_hung_up: bool,
    /// `true` if this thread can wait in the system call that reads.
    can_wait_in_read: bool,
    /// Bytes that are sent as one buffer. They are a header and its body, or queued frames and the
    /// header of bulk data.
    combined: Vec<u8>,
    /// Bulk data that the kernel has not accepted completely. Queued frames are sent after it.
    outgoing: Option<UnsentData>,
    /// Bulk data that is being received.
    incoming: Option<ArrivingData>,
    /// Number of frames received. The header and the end of bulk data count as one each.
    frames_count: u64,
    /// Value of `frames_count` at the last sweep.
    swept_frames_count: u64,
    /// Number of consecutive sweeps that have found the same frame incomplete.
    sweeps_count: u32,
}

/// Bulk data that the kernel has not accepted completely.
#[derive(Debug)]
struct UnsentData {
    /// Number of bytes of [`StreamLink::combined`] that were sent; they precede the bulk data.
    head_sent_bytes: usize,
    memory: BulkMemory,
    /// Offset in the memory of the next byte to send.
    offset: u64,
    /// Number of bytes of bulk data that are still to be sent.
    bytes: u64,
}

/// Bulk data that is being received.
#[derive(Debug)]
struct ArrivingData {
    header: FrameHeader,
    /// Memory, and the offset in it, for the next bytes; `None` discards them.
    into: Option<(BulkMemory, u64)>,
    /// Number of bytes that are still to arrive.
    bytes: u64,
}

impl ArrivingData {
    /// Counts `bytes` more bytes as arrived.
    fn count_arrived(&mut self, bytes: u64) {
        self.bytes -= bytes;
        if let Some((_, offset)) = &mut self.into {
            *offset += bytes;
        }
    }
}

impl StreamLink {
    pub(crate) fn new(wire: Wire, body_bytes_max: u32) -> Self {
        let inbound = ReceiveBuffer::new(body_bytes_max);
        let can_wait_in_read =
            matches!(wire, Wire::Socket(_)) && socket::set_blocking(wire.fd()).is_ok();
        // The first frame may have arrived during the handshake.
        Self {
            wire,
            inbound,
            queue: SendQueue::default(),
            is_readable: true,
            reads_until_empty: false,
            is_writable: true,
            has_hung_up: false,
            can_wait_in_read,
            combined: Vec::new(),
            outgoing: None,
            incoming: None,
            frames_count: 0,
            swept_frames_count: 0,
            sweeps_count: 0,
        }
    }
}

impl Link for StreamLink {
    fn send(&mut self, header: FrameHeader, body: &[u8]) -> Result<(), CloseReason> {
        let sent = self.try_send(header, body);
        self.discard_unsent_if_closed(sent)
    }

    fn queue(&mut self, header: FrameHeader, body: &[u8]) -> Result<(), CloseReason> {
        if !self.has_hung_up {
            self.queue.push_bytes(&header.encode());
            self.queue.push_bytes(body);
        }
        Ok(())
    }

    fn receive(
        &mut self,
        body: &mut Vec<u8>,
        eager: bool,
    ) -> Result<Option<FrameHeader>, CloseReason> {
        let mut tried = !(eager || self.is_readable);
        loop {
            if let Some(header) = self.take_data() {
                self.frames_count += 1;
                body.clear();
                return Ok(Some(header));
            }
            if self.incoming.is_none()
                && let Some((header, received)) = self.inbound.next_frame()?
            {
                body.clear();
                reserve_apart(body, received.len());
                body.extend_from_slice(received);
                self.frames_count += 1;
                if header.kind == FrameKind::Data {
                    let bytes = header.body_bytes.into();
                    self.incoming = Some(ArrivingData { header, into: None, bytes });
                }
                return Ok(Some(header));
            }
            if tried {
                return self.nothing_received();
            }
            match self.fill()? {
                ReadResult::End => return Err(CloseReason::ClosedByPeer),
                ReadResult::Bytes { drained, .. } => {
                    self.is_readable = !drained || self.reads_until_empty;
                    tried = !self.is_readable;
                }
                ReadResult::Nothing => {
                    self.is_readable = false;
                    self.reads_until_empty = false;
                    return self.nothing_received();
                }
            }
        }
    }

    fn flush(&mut self) -> Result<bool, CloseReason> {
        let flushed = self.try_flush();
        self.discard_unsent_if_closed(flushed)
    }

    fn queued_bytes(&self) -> usize {
        let has_rest = self.outgoing.is_some() || self.wire.has_unsent() || self.has_hung_up;
        self.queue.len_bytes() + usize::from(has_rest)
    }

    fn has_hung_up(&self) -> bool {
        self.has_hung_up
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.wire.fd()
    }

    fn on_ready(&mut self, reads_until_empty: bool) {
        self.is_readable = true;
        self.reads_until_empty |= reads_until_empty;
        self.is_writable = true;
    }

    fn is_in_shared_memory(&self) -> bool {
        false
    }

    fn wait_in_read(&mut self) -> bool {
        if !self.can_wait_in_read || self.incoming.is_some() || self.has_hung_up {
            return false;
        }
        let free = self.inbound.free_space();
        let room_bytes = free.len();
        match socket::receive_blocking(self.wire.fd(), free) {
            Ok(count @ 1..) => {
                self.inbound.mark_received(count);
                self.is_readable = count == room_bytes;
            }
            // No data within the time limit.
            Err(Errno::AGAIN) => return false,
            // receive() gets the end or the error again.
            Ok(0) | Err(_) => self.is_readable = true,
        }
        true
    }

    fn limit_wait_in_read(&mut self) {
        self.can_wait_in_read &= socket::set_receive_timeout(self.wire.fd(), WAIT_MAX).is_ok();
    }

    fn needs_sweep(&self) -> bool {
        self.is_within_frame() || self.inbound.is_larger_than_usual()
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
        self.is_writable = true;
        // An error means that the peer has already closed the connection.
        let _ = self.flush();
        self.wire.end();
    }

    fn send_data(
        &mut self,
        header: FrameHeader,
        memory: &BulkMemory,
        offset: u64,
    ) -> Result<bool, CloseReason> {
        if self.has_hung_up {
            return Ok(true);
        }
        if self.outgoing.is_some() || !self.queue.is_empty() && !self.is_writable {
            return Ok(false);
        }
        let (head, bytes) = (header.encode(), header.body_bytes as usize);
        if bytes <= COMBINED_BODY_BYTES_MAX {
            self.queue.push_bytes(&head);
            memory.read(offset, self.queue.push_zeros(bytes));
            return Ok(true);
        }
        self.combined.clear();
        self.combined.extend_from_slice(self.queue.unsent_bytes());
        self.queue.remove_sent(self.combined.len());
        self.combined.extend_from_slice(&head);
        let (memory, bytes) = (memory.clone(), bytes as u64);
        self.outgoing = Some(UnsentData { head_sent_bytes: 0, memory, offset, bytes });
        let flushed = self.flush_data();
        self.discard_unsent_if_closed(flushed)?;
        Ok(true)
    }

    fn set_data_target(&mut self, into: Option<(BulkMemory, u64)>) {
        if let Some(incoming) = &mut self.incoming {
            incoming.into = into;
        }
    }

    fn drop_data(&mut self, call: u64) {
        if let Some(incoming) = self.incoming.as_mut().filter(|it| it.header.call == call) {
            incoming.into = None;
        }
    }

    fn release_memory(&mut self, memory: &BulkMemory) {
        // The header has announced this number of bytes, so they must be sent. The peer learns of
        // the end of the transfer after them.
        if let Some(outgoing) = self.outgoing.as_mut().filter(|it| it.memory.is_same_memory(memory))
        {
            let mut rest = vec![0; outgoing.bytes as usize]; // At most a frame.
            outgoing.memory.read(outgoing.offset, &mut rest);
            (outgoing.memory, outgoing.offset) = (BulkMemory::plain(rest), 0);
        }
    }
}

impl StreamLink {
    /// Sends a frame, or queues it until there is space.
    fn try_send(&mut self, header: FrameHeader, body: &[u8]) -> Result<(), CloseReason> {
        if self.has_hung_up {
            return Ok(());
        }
        let head = header.encode();
        let mut sent = 0;
        if self.queue.is_empty() && self.outgoing.is_none() {
            sent = if body.len() <= COMBINED_BODY_BYTES_MAX {
                self.combined.clear();
                self.combined.extend_from_slice(&head);
                self.combined.extend_from_slice(body);
                self.wire.send(&self.combined)?
            } else {
                self.wire.send_two(&head, body)?
            };
        }
        self.queue.push_bytes(&head[sent.min(head.len())..]);
        self.queue.push_bytes(&body[sent.saturating_sub(head.len())..]);
        Ok(())
    }

    /// Sends queued frames while there is space; returns `true` if any bytes were sent.
    fn try_flush(&mut self) -> Result<bool, CloseReason> {
        if !self.is_writable || self.has_hung_up {
            return Ok(false);
        }
        let mut went = self.wire.flush()?;
        went |= self.outgoing.is_some() && self.flush_data()?;
        while self.outgoing.is_none() && !self.queue.is_empty() {
            match self.wire.send(self.queue.unsent_bytes())? {
                0 => {
                    self.is_writable = false;
                    break;
                }
                count => self.queue.remove_sent(count),
            }
            went = true;
        }
        // If TLS has kept bytes, epoll reports when there is room for them.
        self.is_writable &= !self.wire.has_unsent();
        Ok(went)
    }

    /// Discards unsent frames if the send failed because the peer has closed the connection. It
    /// ignores this error, so that the peer's earlier answers are still received.
    fn discard_unsent_if_closed<T: Default>(
        &mut self,
        sent: Result<T, CloseReason>,
    ) -> Result<T, CloseReason> {
        if !matches!(sent, Err(CloseReason::ClosedByPeer)) {
            return sent;
        }
        self.has_hung_up = true;
        self.is_readable = true;
        self.queue = SendQueue::default();
        self.outgoing = None;
        Ok(T::default())
    }

    /// Returns `None` for a read without data, or an error if the peer has closed the connection.
    fn nothing_received<T>(&self) -> Result<Option<T>, CloseReason> {
        if self.has_hung_up { Err(CloseReason::ClosedByPeer) } else { Ok(None) }
    }

    /// Returns `true` if a part of a frame or of a TLS record has arrived.
    fn is_within_frame(&self) -> bool {
        self.incoming.is_some() || self.inbound.pending_bytes() > 0 || self.wire.is_within_record()
    }

    /// Reads available bytes into bulk memory or the receive buffer.
    fn fill(&mut self) -> Result<ReadResult, CloseReason> {
        let free = self.inbound.free_space();
        if let Some(incoming) =
            self.incoming.as_mut().filter(|it| it.bytes >= DIRECT_READ_BYTES_MIN)
            && let Some((memory, offset)) = &incoming.into
        {
            let spare_bytes = free.len().min(SPARE_BYTES);
            let spare = &mut free[..spare_bytes];
            if let Some(received) = self.wire.receive_memory(memory, *offset, incoming.bytes, spare)
            {
                let received = received?;
                if let ReadResult::Bytes { count, .. } = received {
                    let direct = incoming.bytes.min(count as u64);
                    incoming.count_arrived(direct);
                    self.inbound.mark_received(count - direct as usize); // At most count.
                }
                return Ok(received);
            }
        }
        let received = self.wire.receive(free)?;
        if let ReadResult::Bytes { count, .. } = received {
            self.inbound.mark_received(count);
        }
        Ok(received)
    }

    /// Moves received bytes into bulk memory. Returns the header of the data once all of it has
    /// arrived.
    fn take_data(&mut self) -> Option<FrameHeader> {
        let incoming = self.incoming.as_mut()?;
        while incoming.bytes > 0 {
            let received = self.inbound.take_body_bytes(incoming.bytes);
            if received.is_empty() {
                return None;
            }
            let count = received.len() as u64;
            if let Some((memory, offset)) = &incoming.into {
                memory.write(*offset, received);
            }
            incoming.count_arrived(count);
        }
        let header = incoming.header;
        self.incoming = None;
        Some(FrameHeader { body_bytes: 0, ..header })
    }

    /// Sends outgoing bulk data; returns `true` if any bytes were sent.
    fn flush_data(&mut self) -> Result<bool, CloseReason> {
        let mut went = false;
        while let Some(outgoing) = &mut self.outgoing {
            let head = &self.combined[outgoing.head_sent_bytes..];
            let UnsentData { memory, offset, bytes, .. } = outgoing;
            let sent = self.wire.send_memory(head, memory, *offset, *bytes)?;
            if sent == 0 {
                self.is_writable = false;
                break;
            }
            went = true;
            let of_head = sent.min(head.len());
            outgoing.head_sent_bytes += of_head;
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
