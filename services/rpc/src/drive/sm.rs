//! Shared memory transport: messages in the segment, and a socket that wakes a sleeping peer and
//! reports the exit of its process.
//!
//! A message is published by its sequence number alone, on the same cache line as its header and
//! the first 32 bytes of its body. The same word acknowledges the messages that the sender has
//! read, so that an answer also frees the memory of its request. While no messages come back, a
//! sender reads now and then how far the peer has read. Both ends write nothing else in common.
//!
//! **No wake-up is lost**: the reader declares its sleep in a
//! [`ParkWord`](handover_notify::ParkWord), and checks for messages once more; the sender
//! publishes, and then reads that word, unless the peer has announced that it never sleeps. A
//! sender that waits for space does the same with `wants_space`.

use super::bulk::BulkMemory;
use super::link::{Link, SendQueue};
use super::socket;
use crate::engine::{BULK_SEGMENTS_MAX, FRAME_HEADER_BYTES, FileId, FrameHeader, FrameKind};
use crate::raw::{
    INLINE_BODY_BYTES_MAX, MessageSlot, Segment, SegmentEnd, file_id, peer_credentials,
};
use crate::{CloseReason, FrameError};
use handover_base::sync::shared::{AtomicU32, Ordering};
use handover_notify::SleepObject;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

/// Byte sent to wake the peer; the value does not matter.
const WAKE_BYTE: u8 = b'!';
/// Maximum number of tries to wake the peer while the kernel lacks memory for it.
const WAKE_TRIES_MAX: u32 = 100;
/// Interval of these tries.
const WAKE_RETRY_INTERVAL: Duration = Duration::from_millis(1);
/// Alignment of long bodies, in bytes, so that each starts on its own cache line.
const LINE_BYTES: u64 = 64;
/// Offset below which a long body is stored without reading the peer's read position again.
const UNCHECKED_OFFSET_MAX: u64 = 1 << 15;

/// One end of a connection over shared memory.
#[derive(Debug)]
pub(crate) struct SharedMemoryLink {
    segment: Segment,
    /// Index of this end: 0 for the connector, 1 for the acceptor.
    end_index: usize,
    /// `true` if the peer never sleeps.
    peer_spins: bool,
    body_bytes_max: u32,
    /// Number of messages sent to the peer.
    sent_count: u64,
    /// Number of messages that the peer is known to have read.
    acked_count: u64,
    /// Number of messages that the peer had read when it sent the last message received. It is at
    /// most `sent_count`, and at most the number of messages that the peer has read.
    peer_read_count: u64,
    /// Number of messages received from the peer.
    received_count: u64,
    /// Offset of the next long body. It keeps increasing across laps of the buffer.
    body_head: u64,
    /// Offset of the oldest long body that may still be read. It keeps increasing across laps of
    /// the buffer.
    body_tail: u64,
    /// Long bodies that the peer may still read. Each has the number of its message, and the end of
    /// the body.
    bodies: VecDeque<(u64, u64)>,
    queue: SendQueue,
    /// Socket on which a byte wakes the peer. Its end of stream is the end of the connection. It is
    /// not an eventfd, since a peer could make a write to a shared eventfd block.
    socket: OwnedFd,
    /// Received files that no frame has referred to yet, in the order of their arrival.
    files: VecDeque<(FileId, OwnedFd)>,
    /// `true` if the socket may have wake-up bytes or files that were not read.
    may_have_unread_bytes: bool,
    /// Process id of the peer, if visible in this pid namespace.
    pid: Option<i32>,
}

/// Maximum number of received files that no frame has referred to yet.
const FILES_MAX: usize = 2 * BULK_SEGMENTS_MAX;
/// Maximum number of consecutive reads of the socket. A peer that sends bytes all the time must not
/// keep others waiting.
const READS_MAX: usize = 64;

impl SharedMemoryLink {
    pub(crate) fn new(
        segment: Segment,
        end_index: usize,
        peer_spins: bool,
        body_bytes_max: u32,
        socket: OwnedFd,
    ) -> Self {
        let pid = peer_credentials(socket.as_fd()).ok().and_then(|(pid, _)| pid);
        Self {
            segment,
            end_index,
            peer_spins,
            body_bytes_max,
            sent_count: 0,
            acked_count: 0,
            peer_read_count: 0,
            received_count: 0,
            body_head: 0,
            body_tail: 0,
            bodies: VecDeque::new(),
            queue: SendQueue::default(),
            socket,
            files: VecDeque::new(),
            may_have_unread_bytes: false,
            pid,
        }
    }

    #[inline]
    fn own_end(&self) -> &SegmentEnd {
        self.segment.end_by_index(self.end_index)
    }

    #[inline]
    fn peer_end(&self) -> &SegmentEnd {
        self.segment.end_by_index(1 - self.end_index)
    }

    /// Returns the slot of the next message to receive.
    #[inline]
    fn next_slot(&self) -> &MessageSlot {
        self.segment.slot(1 - self.end_index, self.received_count)
    }

    /// Reads wake-up bytes and at most one file from the socket. Returns the number of bytes, and
    /// `true` if a file came with them. Returns `None` if there are no bytes.
    fn read_wakeups(&mut self, wake_bytes: &mut [u8]) -> Option<(usize, bool)> {
        let mut received = Vec::new();
        // An error is not handled here: epoll reports the end of the connection.
        let count = socket::receive_fds(self.socket.as_fd(), wake_bytes, &mut received).ok()?;
        let had_files = !received.is_empty();
        let known = received.into_iter().filter_map(|it| Some((file_id(it.as_fd())?, it)));
        self.files.extend(known);
        (count > 0).then_some((count, had_files))
    }

    /// Reads the socket until it is empty, READS_MAX reads were made or FILES_MAX files are held.
    fn read_all_wakeups(&mut self) {
        let mut wake_bytes = [0; 64];
        for _ in 0..READS_MAX {
            if self.files.len() >= FILES_MAX {
                break;
            }
            let read = self.read_wakeups(&mut wake_bytes);
            // The kernel stops a read behind bytes that came with a file, so there may be more.
            if read.is_none_or(|(count, had_files)| count < wake_bytes.len() && !had_files) {
                self.may_have_unread_bytes = false;
                return;
            }
        }
        self.may_have_unread_bytes = true;
    }

    /// Removes and returns a received file. Drops the files that arrived before it.
    fn take_received_file(&mut self, file: FileId) -> Option<OwnedFd> {
        let at = self.files.iter().position(|it| it.0 == file)?;
        self.files.drain(..at);
        self.files.pop_front().map(|it| it.1)
    }

    /// Writes a message to the segment for the peer to read. Returns `false` if there is no space
    /// for it.
    #[inline]
    fn publish(&mut self, header: &FrameHeader, body: &[u8]) -> Result<bool, CloseReason> {
        if self.sent_count - self.acked_count >= u64::from(self.segment.slots_count()) {
            self.update_progress()?;
            if self.sent_count - self.acked_count >= u64::from(self.segment.slots_count()) {
                return Ok(false);
            }
        }
        if body.len() > INLINE_BODY_BYTES_MAX {
            let Some(offset) = self.allocate(body.len())? else { return Ok(false) };
            self.segment.write_body(self.end_index, offset, body);
            let slot = self.segment.slot(self.end_index, self.sent_count);
            slot.inline[0].store(offset.into(), Ordering::Relaxed);
        } else if !body.is_empty() {
            let slot = self.segment.slot(self.end_index, self.sent_count);
            for (word, eight) in slot.inline.iter().zip(body.chunks(8)) {
                let mut bytes = [0; 8];
                bytes[..eight.len()].copy_from_slice(eight);
                word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
            }
        }
        let slot = self.segment.slot(self.end_index, self.sent_count);
        for (slot, word) in slot.header.iter().zip(header.words()) {
            slot.store(word, Ordering::Relaxed);
        }
        self.sent_count += 1;
        // Each truncates to the 32 bits that the slot has for its number.
        let sequence = u64::from(self.sent_count as u32) | self.received_count << 32;
        // Release: publishes the header and the body to the Acquire in the peer's
        // poll_for_message(), after which the peer may overwrite the messages that this end has
        // read.
        slot.sequence.store(sequence, Ordering::Release);
        if !self.peer_spins && self.peer_end().status.asleep.claim_wake(|| None).is_some() {
            self.wake_peer();
        }
        Ok(true)
    }

    #[cold]
    fn wake_peer(&self) {
        for _ in 0..WAKE_TRIES_MAX {
            match socket::send(self.socket.as_fd(), &[WAKE_BYTE]) {
                // The kernel lacks memory. No other message would wake the peer.
                Err(Errno::NOBUFS | Errno::NOMEM) => thread::sleep(WAKE_RETRY_INTERVAL),
                // It fails otherwise if the peer is disconnected, which epoll reports. It sends
                // nothing if the socket's buffer is full of wake-up bytes that the peer has not
                // read: one more is not needed.
                Ok(_) | Err(_) => return,
            }
        }
        // Disconnects: a peer that is not woken may never answer.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Reads the number of messages that the peer has read, and frees their space. Fails if the
    /// number is impossible.
    #[cold]
    fn update_progress(&mut self) -> Result<(), CloseReason> {
        // Acquire: pairs with the Release in mark_read() of the peer, which has read the bytes that
        // are overwritten next.
        let taken = self.peer_end().progress.taken.load(Ordering::Acquire);
        if taken < self.acked_count || taken > self.sent_count {
            return Err(FrameError::InvalidValue.into());
        }
        self.acked_count = taken;
        self.free_read_bodies();
        Ok(())
    }

    /// Frees the space of the long bodies that the peer is known to have read.
    fn free_read_bodies(&mut self) {
        while let Some(&(number, end)) = self.bodies.front()
            && number < self.acked_count
        {
            self.body_tail = end;
            self.bodies.pop_front();
        }
        if self.bodies.is_empty() {
            // Starts at the beginning again, because those cache lines are in the cache.
            (self.body_head, self.body_tail) = (0, 0);
        }
    }

    /// Returns `true` if a message with a body of `bytes` bytes can be published now.
    fn has_space(&mut self, bytes: usize) -> Result<bool, CloseReason> {
        self.update_progress()?;
        let has_slot = self.sent_count - self.acked_count < u64::from(self.segment.slots_count());
        Ok(has_slot && (bytes <= INLINE_BODY_BYTES_MAX || self.next_range(bytes).is_some()))
    }

    /// Allocates space for a long body and returns its offset; `None` if there is no space.
    fn allocate(&mut self, bytes: usize) -> Result<Option<u32>, CloseReason> {
        self.free_read_bodies();
        if self.body_head >= UNCHECKED_OFFSET_MAX {
            self.update_progress()?;
        }
        let place = self.allocate_known(bytes);
        if place.is_some() {
            return Ok(place);
        }
        // The peer may have read more since.
        self.update_progress()?;
        Ok(self.allocate_known(bytes))
    }

    /// Allocates space for a long body, based on the last known read position of the peer.
    fn allocate_known(&mut self, bytes: usize) -> Option<u32> {
        let (start, end) = self.next_range(bytes)?;
        self.body_head = end;
        self.bodies.push_back((self.sent_count, end));
        // Less than shared_bytes, which is a u32.
        Some((start % u64::from(self.segment.shared_bytes())) as u32)
    }

    /// Returns the start and end of the next long body. Both keep increasing across laps of the
    /// buffer. Returns `None` if there is no space.
    fn next_range(&self, bytes: usize) -> Option<(u64, u64)> {
        let shared_bytes = u64::from(self.segment.shared_bytes());
        let bytes = (bytes as u64).next_multiple_of(LINE_BYTES);
        let mut head = self.body_head;
        if head % shared_bytes + bytes > shared_bytes {
            // A body is not split at the end of the buffer: it starts at the beginning instead.
            head = head.next_multiple_of(shared_bytes);
        }
        (head + bytes - self.body_tail <= shared_bytes).then_some((head, head + bytes))
    }

    /// Polls for a message `polls` times, without other work; returns `true` if a message has
    /// arrived.
    #[inline]
    pub(crate) fn poll_for_message(&self, polls: u32) -> bool {
        let slot = self.next_slot();
        // Both truncate to 32 bits: a slot that was not written again holds a number of the
        // previous lap, or 0.
        let number = (self.received_count + 1) as u32;
        // Acquire: pairs with the Release in publish() of the peer.
        (0..polls).any(|_| slot.sequence.load(Ordering::Acquire) as u32 == number)
    }

    /// Decodes the header of the message that has arrived.
    #[inline]
    fn next_header(&self) -> Result<FrameHeader, FrameError> {
        let slot = self.next_slot();
        let word = |at: usize| slot.header[at].load(Ordering::Relaxed);
        FrameHeader::from_words([word(0), word(1), word(2)], self.body_bytes_max)
    }

    /// Copies the body of the message that has arrived out of shared memory. Replaces the contents
    /// of `body`. Fails, and leaves `body` unchanged, if the body lies outside of the buffer for
    /// long bodies.
    #[inline]
    fn read_body(&self, header: &FrameHeader, body: &mut Vec<u8>) -> Result<(), FrameError> {
        let bytes = header.body_bytes as usize;
        if bytes > INLINE_BODY_BYTES_MAX {
            return self.read_long(bytes, body);
        }
        self.read_inline(bytes, body);
        Ok(())
    }

    /// Copies a long body; see [`read_body`](Self::read_body).
    fn read_long(&self, bytes: usize, body: &mut Vec<u8>) -> Result<(), FrameError> {
        let offset = self.next_slot().inline[0].load(Ordering::Relaxed);
        let shared_bytes = u64::from(self.segment.shared_bytes());
        let outside = FrameError::Outside { offset, bytes: bytes as u64, shared_bytes };
        let end = offset.checked_add(bytes as u64).ok_or(outside)?;
        let offset = u32::try_from(offset).map_err(|_wider| outside)?;
        if end > shared_bytes {
            return Err(outside);
        }
        body.clear();
        self.segment.read_body(1 - self.end_index, offset, bytes, body);
        Ok(())
    }

    /// Copies a body out of its slot.
    #[inline]
    fn read_inline(&self, bytes: usize, body: &mut Vec<u8>) {
        let slot = self.next_slot();
        body.clear();
        if bytes > 0 {
            for word in &slot.inline[..bytes.div_ceil(8)] {
                body.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            body.truncate(bytes);
        }
    }

    /// Prefetches the slot of the next message to send. An answer or another call usually follows a
    /// received message.
    #[inline]
    fn prefetch_next(&self) {
        self.segment.prefetch_slot_for_write(self.end_index, self.sent_count);
    }

    /// Counts the message as read, which frees its slot for the peer. Records how many messages the
    /// peer had read.
    #[inline]
    fn mark_read(&mut self) {
        // Relaxed: poll_for_message() has read the same value of this word with Acquire.
        let sequence = self.next_slot().sequence.load(Ordering::Relaxed);
        // The cast truncates to the 32 bits that the slot has. The count never decreases, so the
        // sum is correct, or too small if 2^32 messages were read in between; update_progress()
        // reads the exact number.
        let newly_read = ((sequence >> 32) as u32).wrapping_sub(self.peer_read_count as u32);
        let peer_read_count = self.peer_read_count + u64::from(newly_read);
        // Only a peer that breaks the protocol has read more than was sent; its number is ignored.
        if peer_read_count <= self.sent_count {
            self.peer_read_count = peer_read_count;
            // update_progress() may know more: this message was sent before.
            self.acked_count = self.acked_count.max(peer_read_count);
        }
        self.received_count += 1;
        let progress = &self.own_end().progress;
        // Release: pairs with the Acquire in update_progress() of the peer.
        progress.taken.store(self.received_count, Ordering::Release);
    }

    /// Polls `polls` times for the result of `call`. Returns `true` after taking the result, with
    /// its body in `body`. Any other message is left for `receive`.
    #[inline]
    pub(crate) fn take_answer(&mut self, call: u64, polls: u32, body: &mut Vec<u8>) -> bool {
        if !self.poll_for_message(polls) {
            return false;
        }
        self.prefetch_next();
        match self.next_header() {
            Ok(header) if header.kind == FrameKind::Response && header.call == call => {
                let is_read = self.read_body(&header, body).is_ok();
                if is_read {
                    self.mark_read();
                }
                is_read
            }
            // receive() handles every other message, and errors.
            Ok(_) | Err(_) => false,
        }
    }

    /// Wakes the peer if it waits for space.
    #[inline]
    fn notify_space(&self) {
        let wants_space = &self.peer_end().status.wants_space;
        // Relaxed: if this load is too early to see the peer's store, a later call sees it, at the
        // latest the one after the fence before this end sleeps.
        if wants_space.load(Ordering::Relaxed) != 0 && wants_space.swap(0, Ordering::Relaxed) != 0 {
            self.wake_peer();
        }
    }

    /// Announces that this end is about to sleep, so that a peer that sends wakes it. The caller
    /// polls once more afterwards.
    pub(crate) fn declare_sleep(&mut self) {
        if self.may_have_unread_bytes {
            self.read_all_wakeups();
        }
        self.own_end().status.asleep.declare_sleep(SleepObject::Elsewhere);
    }

    /// Publishes the CPU that this end runs on, plus one; returns the peer's. It is 0 if unknown.
    pub(crate) fn exchange_cpus(&self, cpu_plus_one: u32) -> u32 {
        // Relaxed, here and below: hints.
        store_if_changed(&self.own_end().status.cpu_plus_one, cpu_plus_one);
        self.peer_end().status.cpu_plus_one.load(Ordering::Relaxed)
    }

    /// Publishes how many others need the peer's CPU; returns how many others need this end's CPU,
    /// as the peer has published.
    pub(crate) fn exchange_sharers(&self, peer_cpu_sharers: u32) -> u32 {
        store_if_changed(&self.own_end().status.peer_cpu_sharers, peer_cpu_sharers);
        self.peer_end().status.peer_cpu_sharers.load(Ordering::Relaxed)
    }

    pub(crate) fn declare_awake(&mut self) {
        self.own_end().status.asleep.withdraw_sleep();
    }
}

/// Stores `value` if `word` holds another one, so that the cache line is not written in vain.
fn store_if_changed(word: &AtomicU32, value: u32) {
    if word.load(Ordering::Relaxed) != value {
        word.store(value, Ordering::Relaxed);
    }
}

impl Link for SharedMemoryLink {
    #[inline]
    fn send(&mut self, header: FrameHeader, body: &[u8]) -> Result<(), CloseReason> {
        if self.queue.is_empty() && self.publish(&header, body)? {
            return Ok(());
        }
        self.queue.push_bytes(&header.encode());
        self.queue.push_bytes(body);
        Ok(())
    }

    #[inline]
    fn receive(
        &mut self,
        body: &mut Vec<u8>,
        _eager: bool,
    ) -> Result<Option<FrameHeader>, CloseReason> {
        if !self.poll_for_message(1) {
            self.notify_space();
            return Ok(None);
        }
        self.prefetch_next();
        let header = self.next_header()?;
        self.read_body(&header, body)?;
        self.mark_read();
        Ok(Some(header))
    }

    fn flush(&mut self) -> Result<bool, CloseReason> {
        let mut queue = std::mem::take(&mut self.queue);
        let mut went = false;
        while let Some((head, rest)) =
            queue.unsent_bytes().split_first_chunk::<FRAME_HEADER_BYTES>()
        {
            let header = FrameHeader::decode(head, u32::MAX)?;
            let bytes = header.body_bytes as usize;
            if !self.publish(&header, &rest[..bytes])? {
                break;
            }
            queue.remove_sent(FRAME_HEADER_BYTES + bytes);
            went = true;
        }
        self.queue = queue;
        if !self.queue.is_empty() {
            // Relaxed: ordered by the fence before sleeping, and by the next read of the peer's
            // progress.
            self.own_end().status.wants_space.store(1, Ordering::Relaxed);
        }
        Ok(went)
    }

    fn queued_bytes(&self) -> usize {
        self.queue.len_bytes()
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn on_ready(&mut self, _reads_until_empty: bool) {
        // A woken end checks the shared memory first. It reads the wake-up bytes before it sleeps
        // again, or at the next notification.
        if self.may_have_unread_bytes {
            self.read_all_wakeups();
        } else {
            self.may_have_unread_bytes = true;
        }
    }

    fn is_in_shared_memory(&self) -> bool {
        true
    }

    fn close(&mut self) {
        // An error means that the peer broke the protocol; the connection is closed anyway.
        let _ = self.flush();
        self.wake_peer();
    }

    fn process_id(&self) -> Option<i32> {
        self.pid
    }

    fn send_file(&mut self, file: BorrowedFd<'_>) -> bool {
        socket::send_fds(self.socket.as_fd(), &[WAKE_BYTE], &[file]) == Ok(1)
    }

    fn take_file(&mut self, file: FileId) -> Option<OwnedFd> {
        let mut wake_bytes = [0; 64];
        // The socket may hold as many files again that were not read.
        for _ in 0..2 * FILES_MAX {
            if let Some(file) = self.take_received_file(file) {
                return Some(file);
            }
            // A file is sent before the frame that refers to it, so it is there or was lost.
            self.read_wakeups(&mut wake_bytes)?;
            if self.files.len() > FILES_MAX {
                self.files.pop_front();
            }
        }
        self.take_received_file(file)
    }

    fn send_data(
        &mut self,
        header: FrameHeader,
        memory: &BulkMemory,
        offset: u64,
    ) -> Result<bool, CloseReason> {
        let bytes = header.body_bytes as usize;
        if !self.queue.is_empty() {
            return Ok(false);
        }
        // Checked before the copy, since the send is retried each iteration while the peer does not
        // read.
        if !self.has_space(bytes)? {
            // Relaxed: as in flush().
            self.own_end().status.wants_space.store(1, Ordering::Relaxed);
            return Ok(false);
        }
        // At most message_bytes_max, twice which fits the shared buffer.
        let mut body = vec![0; bytes];
        memory.read(offset, &mut body);
        self.publish(&header, &body)
    }

    fn duplicate_socket(&self) -> Option<OwnedFd> {
        // Cloning fails if descriptors run out; then there is no socket to wait on.
        self.socket.try_clone().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::Region;
    use std::os::unix::net::UnixStream;

    /// Returns both ends of a connection whose segment has four slots and 4 KiB for long bodies.
    fn connected_links() -> [SharedMemoryLink; 2] {
        let (ours, theirs) = UnixStream::pair().expect("create a socket pair");
        let (segment, file) = Segment::create(4, 4096).expect("create a segment");
        let mapped = Segment::map(&file, 4, 4096).expect("mapped again").expect("it is sealed");
        [
            SharedMemoryLink::new(segment, 0, true, 4096, ours.into()),
            SharedMemoryLink::new(mapped, 1, true, 4096, theirs.into()),
        ]
    }

    /// Sends a message of this kind with that body from one end to the other, and returns the
    /// received body.
    fn pass(
        links: &mut [SharedMemoryLink; 2],
        from: usize,
        kind: FrameKind,
        sent: &[u8],
    ) -> Vec<u8> {
        let header = FrameHeader { body_bytes: sent.len() as u32, kind, method: 0, call: 7 };
        links[from].send(header, sent).expect("the frame is sent");
        let mut body = Vec::new();
        let received = links[1 - from].receive(&mut body, false).expect("no invalid frame");
        assert_eq!(received, Some(header));
        body
    }

    #[test]
    fn answer_acknowledges_its_request_whose_memory_is_reused() {
        let mut links = connected_links();
        for number in 0..100u64 {
            let request = vec![number as u8; 1000];
            assert_eq!(pass(&mut links, 0, FrameKind::Request, &request), request);
            // The server's previous answer was acknowledged by this request, and this request is
            // not yet.
            assert_eq!(links.each_ref().map(|it| it.acked_count), [number; 2]);
            assert_eq!(links[0].body_head, 1024);
            let answer = vec![!number as u8; 2000];
            assert_eq!(pass(&mut links, 1, FrameKind::Response, &answer), answer);
            assert_eq!(links.each_ref().map(|it| it.acked_count), [number + 1, number]);
            assert_eq!(links[1].body_head, 2048);
        }
    }

    #[test]
    fn answer_of_any_length_is_taken_and_every_other_message_is_left() {
        let (mut links, mut body) = (connected_links(), Vec::new());
        for bytes in [0, 96, 97, 2000] {
            let answer = vec![7u8; bytes];
            let header = FrameHeader {
                body_bytes: bytes as u32,
                kind: FrameKind::Response,
                method: 0,
                call: 7,
            };
            links[1].send(header, &answer).expect("the frame is sent");
            assert!(!links[0].take_answer(8, 1, &mut body), "took the answer to another call");
            assert!(links[0].take_answer(7, 1, &mut body), "left an answer of {bytes} bytes");
            assert_eq!(body, answer);
        }
        // An answer whose body ends one byte outside of the buffer.
        let slot = links[1].segment.slot(1, 4);
        slot.header[0].store((FrameKind::Response as u64) << 32 | 97, Ordering::Relaxed);
        slot.header[2].store(7, Ordering::Relaxed);
        slot.inline[0].store(4096 - 96, Ordering::Relaxed);
        slot.sequence.store(5, Ordering::Relaxed);
        assert!(!links[0].take_answer(7, 1, &mut body), "took an invalid answer");
        assert!(links[0].receive(&mut body, false).is_err());
    }

    #[test]
    fn message_sent_before_the_last_check_of_the_progress_does_not_undo_it() {
        let mut links = connected_links();
        // Sent before the acceptor has read any message.
        let header = FrameHeader { body_bytes: 0, kind: FrameKind::OneWay, method: 0, call: 0 };
        links[1].send(header, &[]).expect("the frame is sent");
        for _ in 0..3 {
            pass(&mut links, 0, FrameKind::OneWay, b"read");
        }
        assert!(links[0].has_space(0).expect("the peer's number is valid"));
        assert_eq!(links[0].acked_count, 3);
        let received = links[0].receive(&mut Vec::new(), false).expect("no invalid frame");
        assert_eq!((received, links[0].acked_count), (Some(header), 3));
        pass(&mut links, 0, FrameKind::OneWay, b"read");
        pass(&mut links, 1, FrameKind::OneWay, b"read");
        assert_eq!(links[0].acked_count, 4);
    }

    #[test]
    fn acknowledgement_of_messages_that_were_never_sent_is_ignored() {
        let mut links = connected_links();
        pass(&mut links, 0, FrameKind::OneWay, b"read");
        let slot = links[1].segment.slot(1, 0);
        slot.header[0].store((FrameKind::OneWay as u64) << 32, Ordering::Relaxed);
        slot.sequence.store(1 | 2 << 32, Ordering::Relaxed);
        let received = links[0].receive(&mut Vec::new(), false).expect("no invalid frame");
        assert!(received.is_some());
        assert_eq!((links[0].acked_count, links[0].peer_read_count), (0, 0));
    }

    #[test]
    fn messages_in_flight_both_ways_arrive_unchanged_when_bodies_and_numbers_wrap_around() {
        // Numbers are truncated to 32 bits in the slots.
        const START: u64 = (1 << 32) - 100;
        const IN_FLIGHT_MAX: usize = 6;
        let mut links = connected_links();
        for link in &mut links {
            (link.sent_count, link.acked_count) = (START, START);
            (link.peer_read_count, link.received_count) = (START, START);
            link.own_end().progress.taken.store(START, Ordering::Relaxed);
        }
        let (mut sent, mut body) = ([VecDeque::new(), VecDeque::new()], Vec::new());
        let (mut random, mut laps_count) = (1u64, 0);
        for number in 0..20_000u32 {
            // A linear congruential generator with Knuth's constants for 64 bits.
            random = random.wrapping_mul(6_364_136_223_846_793_005);
            random = random.wrapping_add(1_442_695_040_888_963_407);
            let (from, bytes) = ((random >> 63) as usize, (random >> 40) as usize % 2000);
            if (random >> 62) & 1 == 0 && sent[from].len() < IN_FLIGHT_MAX {
                let message = vec![number as u8; bytes];
                let kind = FrameKind::OneWay;
                let header = FrameHeader { body_bytes: bytes as u32, kind, method: 0, call: 0 };
                links[from].send(header, &message).expect("the frame is sent");
                sent[from].push_back(message);
            } else {
                // Sends what has waited for space. If no message has arrived afterwards, none is in
                // flight.
                links[from].flush().expect("the peer's number is valid");
                let received = links[1 - from].receive(&mut body, false).expect("no invalid frame");
                assert_eq!(received.map(|_| &body), sent[from].pop_front().as_ref());
            }
            laps_count += u32::from(links[from].body_head > 4096);
        }
        assert!(laps_count > 0, "no body was stored behind the end of the buffer");
        assert!(links.iter().all(|it| it.peer_read_count > 1 << 32), "{links:?}");
    }

    #[test]
    fn passed_file_is_identified_by_its_inode_and_not_its_order() {
        let (ours, theirs) = UnixStream::pair().expect("create a socket pair");
        let (segment, _file) = Segment::create(2, 4096).expect("create a segment");
        let mut sm = SharedMemoryLink::new(segment, 0, false, 64, ours.into());
        let regions = [0; 4].map(|_| Region::create_shared(1).expect("create shared memory"));
        let id = |at: usize| regions[at].file_id().expect("the region has no file");
        let pass = |at: usize| {
            let file = regions[at].file().expect("it has one");
            assert_eq!(socket::send_fds(theirs.as_fd(), &[WAKE_BYTE], &[file]), Ok(1));
        };
        [0, 1, 2].into_iter().for_each(pass);
        assert!(sm.take_file(id(3)).is_none(), "a file that was never sent was returned");
        assert!(sm.take_file(id(1)).is_some_and(|it| file_id(it.as_fd()) == Some(id(1))));
        assert!(sm.take_file(id(0)).is_none(), "a file was returned after a later one was taken");
        pass(3);
        assert!(sm.take_file(id(2)).is_some() && sm.take_file(id(3)).is_some());
        // More files than are kept: the oldest are dropped first.
        (0..FILES_MAX).for_each(|_| pass(0));
        [1, 2].into_iter().for_each(pass);
        // The socket is read at the second notification.
        sm.on_ready(false);
        assert!(sm.files.is_empty() && sm.may_have_unread_bytes);
        sm.on_ready(false);
        assert!(sm.files.len() <= FILES_MAX && sm.may_have_unread_bytes);
        assert!(sm.take_file(id(2)).is_some() && sm.files.is_empty());
    }
}
