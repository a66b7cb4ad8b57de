//! Bulk transfers of an endpoint: starting them, handling bulk messages, and copying and sending
//! data.

use super::halves::Help;
use super::memory::BulkMemory;
use super::remote::{Direction, Remote};
use super::tables::{
    Attachment, Incoming, Lingering, Outgoing, PUSHED, Progress, Transfer, TransferId, may,
};
use super::{BulkPart, BulkPath};
use crate::clock;
use crate::drive::calling::after;
use crate::drive::state::State;
use crate::engine::{
    Arrival, Backlog, BulkHandle, BulkMessage, BulkRefusal, FileId, Header, Kind, Located, PeerKey,
    Proof,
};
use crate::raw::Store;
use crate::{BulkError, FrameError, Gone, WithdrawError};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes copied or sent before other work has its turn.
const CHUNK_BYTES: u64 = 1 << 20;
/// Maximum number of bytes queued for a peer in a turn before they are sent.
const QUEUED_IN_TURN_BYTES_MAX: usize = 1 << 16;
/// Maximum time for which a dropped endpoint waits for peers to release memory that they may write.
const PARTING: Duration = Duration::from_millis(100);
/// Maximum number of remembered attachments; beyond it, idle ones are released and must be asked
/// for again.
const ATTACHMENTS_MAX: usize = 4096;

/// File id that no file has, so that the receiver finds the file missing.
const NO_FILE: FileId = FileId { device: u64::MAX, inode: u64::MAX };

/// Parameters of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) peer: PeerKey,
    pub(crate) direction: Direction,
    pub(crate) handle: &'a BulkHandle,
    pub(crate) memory: &'a BulkMemory,
    pub(crate) part: BulkPart,
}

impl Asked<'_> {
    fn check(&self) -> Result<(), BulkError> {
        let BulkPart { theirs, ours, bytes, .. } = self.part;
        let memory_bytes = self.memory.len_bytes();
        if !crate::engine::is_within(ours, bytes, memory_bytes) {
            return Err(BulkError::Outside { offset: ours, bytes, memory_bytes });
        }
        Ok(may(self.handle, (theirs, bytes), self.direction)?)
    }
}

/// Returns the frame of a message.
fn framed(message: &BulkMessage) -> (Header, Vec<u8>) {
    let body = message.encode(Vec::new());
    let body_bytes = body.len() as u32; // Bounded by SEGMENTS_MAX.
    (Header { body_bytes, kind: Kind::Bulk, method: 0, call: 0 }, body)
}

impl State {
    // Starting transfers.

    /// Does the transfer at once if the peer's memory is attached and the range is small; returns
    /// `None` otherwise.
    #[inline]
    pub(crate) fn bulk_at_once(&mut self, asked: &Asked<'_>) -> Option<Result<(), BulkError>> {
        let BulkPart { theirs, ours, bytes, .. } = asked.part;
        if bytes > CHUNK_BYTES || asked.part.is_halved() {
            return None;
        }
        let store = self.store(asked.direction, asked.memory, asked.handle);
        let remote = self.bulk.attachments.here(asked.peer, asked.handle.id)?;
        if remote.handle != *asked.handle {
            return Some(Err(BulkRefusal::Unknown.into()));
        }
        if let Err(error) = asked.check() {
            return Some(Err(error));
        }
        let copied = remote.copy(asked.direction, theirs, (asked.memory, ours), bytes, store);
        if copied != Ok(bytes) {
            return None; // `bulk_start` retries the transfer and reports the error.
        }
        self.bulk.stats.transfers_count += 1;
        match remote.is_mapped() {
            true => self.bulk.stats.mapped_bytes += bytes,
            false => self.bulk.stats.process_bytes += bytes,
        }
        Some(Ok(()))
    }

    /// Returns the kind of stores for a copy: non-temporal ones if the target memory is too long
    /// for the caches.
    #[inline]
    fn store(&self, direction: Direction, ours: &BulkMemory, theirs: &BulkHandle) -> Store {
        let to_bytes = match direction {
            Direction::Pull => ours.len_bytes(),
            Direction::Push => theirs.bytes,
        };
        match to_bytes >= self.config.streamed_bytes_min {
            true => Store::Streaming,
            false => Store::Cached,
        }
    }

    pub(crate) fn bulk_start(&mut self, asked: &Asked<'_>) -> Result<TransferId, BulkError> {
        let max = self.config.transfers_max;
        // First, as it checks for itself: a copy of a few KiB takes as long as the checks.
        if let Some(done) = self.bulk_at_once(asked) {
            done?;
            return self.bulk.transfers.insert_done(max).ok_or(BulkError::Full);
        }
        asked.check()?;
        asked.check_halves(self)?;
        if !self.is_connected(asked.peer) {
            return Err(BulkError::Stale);
        }
        let BulkPart { theirs, ours, bytes, timeout, halved } = asked.part;
        let deadline_ns = timeout.map_or(u64::MAX, after);
        let transfer = Transfer {
            peer: asked.peer,
            direction: asked.direction,
            handle: *asked.handle,
            memory: asked.memory.clone(),
            theirs,
            ours,
            bytes,
            deadline_ns,
            progress: Progress::Waiting,
            halved,
            own_bytes: bytes,
            is_helped: false,
        };
        let id = self.bulk.transfers.insert(transfer, max).ok_or(BulkError::Full)?;
        self.bulk.stats.transfers_count += 1;
        self.proceed(id);
        Ok(id)
    }

    /// Moves a waiting transfer to its next state.
    fn proceed(&mut self, id: TransferId) {
        let Some(transfer) = self.bulk.transfers.get_mut(id) else { return };
        let (peer, handle) = (transfer.peer, transfer.handle);
        let in_memory = self.shares_memory(peer) && self.config.bulk_maps;
        match self.bulk.attachments.get(peer, handle.id) {
            Some(Attachment::Here(remote)) if remote.handle != handle => {
                self.finish(id, Err(BulkRefusal::Unknown.into()));
            }
            Some(Attachment::Here(remote)) => {
                let is_mapped = remote.is_mapped();
                self.set_progress(id, Progress::Copying(0));
                if is_mapped {
                    self.ask_for_help(id);
                }
                self.bulk.copying.push_back(id);
            }
            Some(Attachment::Asked(asked)) if *asked == handle => {}
            Some(Attachment::Asked(_)) => self.finish(id, Err(BulkRefusal::Unknown.into())),
            Some(Attachment::Denied) => self.by_messages(id),
            None if in_memory => {
                self.make_room_for_attachment();
                self.bulk.attachments.insert(peer, handle.id, Attachment::Asked(handle));
                self.say(peer, &BulkMessage::Attach(handle));
            }
            None => self.by_messages(id),
        }
    }

    fn make_room_for_attachment(&mut self) {
        if self.bulk.attachments.count() < ATTACHMENTS_MAX {
            return;
        }
        // Memories that were found to need messages are asked for again at their next use.
        self.bulk.attachments.forget_denied();
        let copying: Vec<_> = self
            .bulk
            .copying
            .iter()
            .filter_map(|id| self.bulk.transfers.get(*id).map(|it| (it.peer, it.handle.id)))
            .collect();
        let here = self.bulk.attachments.at_hand();
        let idle: Vec<_> = here.filter(|key| !copying.contains(key)).collect();
        for (peer, id) in idle {
            self.bulk.attachments.remove(peer, id);
            self.say(peer, &BulkMessage::Detached { id });
        }
    }

    /// Restarts the whole transfer by messages, even if a part was copied: the two ways do not mix.
    fn by_messages(&mut self, id: TransferId) {
        let Some(transfer) = self.bulk.transfers.get_mut(id) else { return };
        transfer.progress = Progress::Under;
        let Transfer { peer, direction, handle, theirs: offset, ours, bytes, .. } = *transfer;
        let (memory, transfer) = (transfer.memory.clone(), id.word());
        match direction {
            Direction::Pull => {
                let arrival = Arrival::new(bytes);
                let incoming = Incoming { memory, offset: ours, arrival, registered: None };
                self.bulk.receive(peer, transfer, incoming);
                self.say(peer, &BulkMessage::Read { transfer, handle, offset, bytes });
            }
            Direction::Push => {
                let opening = BulkMessage::Write { transfer, handle, offset, bytes };
                if bytes == 0 {
                    return self.say(peer, &opening);
                }
                // The message goes with the first of the data.
                let (call, opening) = (transfer | PUSHED, Some(opening));
                let (offset, sent, registered) = (ours, 0, None);
                let it = Outgoing { peer, call, memory, offset, sent, bytes, registered, opening };
                self.bulk.send(it);
            }
        }
    }

    pub(super) fn set_progress(&mut self, id: TransferId, progress: Progress) {
        if let Some(transfer) = self.bulk.transfers.get_mut(id) {
            transfer.progress = progress;
        }
    }

    pub(super) fn finish(&mut self, id: TransferId, result: Result<(), BulkError>) {
        self.bulk.transfers.finish(id, result);
        self.tell_helped(id);
    }

    /// Cancels a transfer. From now on, this side neither reads nor writes memory for it.
    pub(crate) fn bulk_give_up(&mut self, id: TransferId) {
        let Some(transfer) = self.bulk.transfers.remove(id) else { return };
        self.bulk.copying.retain(|&it| it != id);
        if matches!(transfer.progress, Progress::Under) {
            let (peer, word) = (transfer.peer, id.word());
            self.forget_data(peer, word, word | PUSHED);
            if let Some(link) = self.link(peer) {
                link.let_go(&transfer.memory);
            }
            self.say(peer, &BulkMessage::Cancel { transfer: word });
        } else if transfer.is_helped {
            self.say(transfer.peer, &BulkMessage::Cancel { transfer: id.word() });
        }
    }

    /// Stops receiving data under the number `received`, and sending data under the number `sent`.
    fn forget_data(&mut self, peer: PeerKey, received: u64, sent: u64) {
        if self.bulk.stop_receiving(peer, received)
            && let Some(link) = self.link(peer)
        {
            link.drop_data(received);
        }
        self.bulk.stop_sending(peer, sent);
    }

    /// Returns how memory of that handle is reached, once this is known.
    pub(crate) fn bulk_path(&self, peer: PeerKey, handle: &BulkHandle) -> Option<BulkPath> {
        match self.bulk.attachments.get(peer, handle.id) {
            Some(Attachment::Here(remote)) if remote.is_mapped() => Some(BulkPath::Mapped),
            Some(Attachment::Here(_)) => Some(BulkPath::Process),
            Some(Attachment::Denied) => Some(BulkPath::Messages),
            Some(Attachment::Asked(_)) => None,
            None if self.shares_memory(peer) && self.config.bulk_maps => None,
            None => self.is_connected(peer).then_some(BulkPath::Messages),
        }
    }

    // Withdrawing memory.

    /// Refuses new uses of a memory, tells the peers that have it attached, and ends transfers by
    /// messages.
    pub(crate) fn bulk_withdraw(&mut self, handle: &BulkHandle) -> Result<(), WithdrawError> {
        let known = self.bulk.registered.get_mut(&handle.id);
        let registered = known.filter(|it| it.handle == *handle).ok_or(WithdrawError::Unknown)?;
        registered.withdrawn = true;
        let (id, memory) = (handle.id, registered.memory.clone());
        for peer in registered.attached.clone() {
            self.say(peer, &BulkMessage::Detach { id });
        }
        for peer in self.peers().collect::<Vec<_>>() {
            if let Some(link) = self.link(peer) {
                link.let_go(&memory);
            }
        }
        self.stop_helping_with(&memory);
        // Ends transfers of this memory by messages.
        let outgoing = self.bulk.outgoing.values().flat_map(|its| its.iter());
        let outgoing = outgoing.filter(|it| it.registered == Some(id));
        let mut ended: Vec<_> = outgoing.map(|it| (it.peer, it.call)).collect();
        for (&peer, its) in &self.bulk.incoming {
            let incoming = its.iter().filter(|(_, it)| it.registered == Some(id));
            ended.extend(incoming.map(|(call, _)| (peer, call & !PUSHED)));
        }
        for (peer, transfer) in ended {
            self.forget_data(peer, transfer | PUSHED, transfer);
            self.refuse(peer, transfer, BulkRefusal::Unknown);
        }
        Ok(())
    }

    /// Removes and returns a withdrawn memory; `None` while a peer may still write to it through
    /// the kernel.
    pub(crate) fn bulk_withdrawn(&mut self, handle: &BulkHandle) -> Option<BulkMemory> {
        if self.bulk.users_count(handle.id) > 0 {
            return None;
        }
        self.bulk.registered.remove(&handle.id).map(|it| it.memory)
    }

    // Messages of peers.

    pub(super) fn say(&mut self, peer: PeerKey, message: &BulkMessage) {
        let (header, body) = framed(message);
        // An error is ignored: a disconnected peer need not be told.
        let _ = self.send(peer, header, &body);
    }

    /// Sends a message at the end of this turn, with the others of the turn in one system call.
    fn say_in_turn(&mut self, peer: PeerKey, message: &BulkMessage) {
        let (header, body) = framed(message);
        if !self.has_room_in_turn(peer) {
            // An error is ignored: a disconnected peer need not be told.
            let _ = self.send(peer, header, &body);
            return;
        }
        let Some(link) = self.link(peer) else { return };
        let sent = link.send_later(header, &body);
        let is_queued = link.queued_bytes() > 0;
        match sent {
            Ok(()) if is_queued => self.flush_in_turn(),
            Ok(()) => {}
            Err(gone) => self.close(peer, &gone),
        }
    }

    /// Returns `true` if little is queued for that peer, perhaps as it was sent just now.
    fn has_room_in_turn(&mut self, peer: PeerKey) -> bool {
        // Calls to a peer are refused above a quarter of the limit.
        let max = QUEUED_IN_TURN_BYTES_MAX.min(self.config.queued_bytes_max as usize / 4);
        let Some(link) = self.link(peer) else { return false };
        if link.queued_bytes() <= max {
            return true;
        }
        match link.flush() {
            Ok(_) => link.queued_bytes() <= max,
            Err(gone) => {
                self.close(peer, &gone);
                false
            }
        }
    }

    pub(super) fn refuse(&mut self, peer: PeerKey, transfer: u64, why: BulkRefusal) {
        self.bulk.stats.refused_count += 1;
        self.say(peer, &BulkMessage::Refused { transfer, why });
    }

    /// Handles a bulk message.
    pub(crate) fn bulk_message(&mut self, peer: PeerKey, body: &[u8]) -> Result<(), FrameError> {
        match BulkMessage::decode(body)? {
            BulkMessage::Attach(handle) => return self.attach(peer, handle),
            BulkMessage::Attached { id, segments, proof } => {
                return self.attached(peer, id, &segments, proof);
            }
            BulkMessage::AttachRefused { id, why } => {
                let asked = self.bulk.attachments.remove(peer, id);
                if !matches!(asked, Some(Attachment::Asked(_))) {
                    return Err(FrameError::Bulk);
                }
                for waiting in self.waiting_for(peer, id) {
                    self.finish(waiting, Err(why.into()));
                }
            }
            BulkMessage::Detach { id } => self.detach(peer, id),
            BulkMessage::Detached { id } => {
                if let Some(registered) = self.bulk.registered.get_mut(&id) {
                    registered.attached.retain(|&it| it != peer);
                }
            }
            BulkMessage::Read { transfer, handle, offset, bytes } => {
                if self.bulk.sends(peer, transfer) {
                    return Err(FrameError::Bulk);
                }
                match self.bulk_piece(peer, &handle, (offset, bytes), Direction::Pull) {
                    Err(why) => self.refuse(peer, transfer, why),
                    Ok(_) if bytes == 0 => self.say(peer, &BulkMessage::Done { transfer }),
                    Ok(memory) => {
                        let (call, sent, registered) = (transfer, 0, Some(handle.id));
                        let opening = None;
                        let it = Outgoing {
                            peer,
                            call,
                            memory,
                            offset,
                            sent,
                            bytes,
                            registered,
                            opening,
                        };
                        self.bulk.send(it);
                    }
                }
            }
            BulkMessage::Write { transfer, handle, offset, bytes } => {
                let call = transfer | PUSHED;
                if self.bulk.received(peer, call).is_some() {
                    return Err(FrameError::Bulk);
                }
                match self.bulk_piece(peer, &handle, (offset, bytes), Direction::Push) {
                    Err(why) => self.refuse(peer, transfer, why),
                    Ok(_) if bytes == 0 => self.say(peer, &BulkMessage::Done { transfer }),
                    Ok(memory) => {
                        let (arrival, registered) = (Arrival::new(bytes), Some(handle.id));
                        let incoming = Incoming { memory, offset, arrival, registered };
                        self.bulk.receive(peer, call, incoming);
                    }
                }
            }
            BulkMessage::Done { transfer } => return self.other_side_done(peer, transfer),
            BulkMessage::Refused { transfer, why } => {
                self.forget_data(peer, transfer, transfer | PUSHED);
                let id = TransferId::of(transfer);
                if self.bulk.transfers.get(id).is_some_and(|it| it.peer == peer) {
                    self.finish(id, Err(why.into()));
                }
            }
            BulkMessage::Cancel { transfer } => {
                self.forget_data(peer, transfer | PUSHED, transfer);
                self.give_up_helping(peer, transfer);
            }
            BulkMessage::Help { transfer, handle, offset, into, into_offset, bytes, pulls } => {
                let (ours, theirs) = ((handle, offset), (into, into_offset));
                let help = Help { transfer, ours, theirs, bytes, is_read: pulls };
                return self.help(peer, &help);
            }
        }
        Ok(())
    }

    pub(super) fn bulk_piece(
        &mut self,
        peer: PeerKey,
        handle: &BulkHandle,
        place: (u64, u64),
        direction: Direction,
    ) -> Result<BulkMemory, BulkRefusal> {
        if self.bulk.under_way_count(peer) >= self.config.transfers_max as usize {
            return Err(BulkRefusal::Full);
        }
        self.bulk.piece(handle, place, direction)
    }

    /// Handles a peer's request to access a memory.
    fn attach(&mut self, peer: PeerKey, handle: BulkHandle) -> Result<(), FrameError> {
        if !self.shares_memory(peer) {
            // Addresses and the check word must not be sent over a stream.
            return Err(FrameError::Bulk);
        }
        let id = handle.id;
        let proof = self.bulk.proof();
        let found = match (self.bulk.known(&handle), proof) {
            (Ok(registered), Ok(proof)) => {
                if !registered.attached.contains(&peer) {
                    registered.attached.push(peer);
                }
                Ok((registered.memory.clone(), proof))
            }
            (Ok(_), Err(_)) => Err(BulkRefusal::Full),
            (Err(why), _) => Err(why),
        };
        let (memory, proof) = match found {
            Ok(found) => found,
            Err(why) => {
                self.bulk.stats.refused_count += 1;
                self.say(peer, &BulkMessage::AttachRefused { id, why });
                return Ok(());
            }
        };
        let mut segments = Vec::with_capacity(memory.segments_count());
        for region in memory.regions() {
            let for_reading = match handle.rights.may_write() {
                true => None,
                false => region.file_for_reading().and_then(Result::ok),
            };
            let file = match &for_reading {
                Some(file) => Some(file.as_fd()),
                None => region.file().filter(|_| handle.rights.may_write()),
            };
            if let (Some(file), Some(link)) = (file, self.link(peer)) {
                // If there is no room for the file, the peer finds it missing and transfers by
                // messages. It must not write to this memory through the kernel, as file-backed
                // memory does not count as lent (Registered::is_lent).
                let _ = link.send_file(file);
            }
            let (bytes, address) = (region.bytes() as u64, region.address());
            segments.push(match region.file() {
                Some(_) => Located::File { bytes, file: region.file_id().unwrap_or(NO_FILE) },
                None => Located::Process { address, bytes },
            });
        }
        self.say(peer, &BulkMessage::Attached { id, segments, proof });
        Ok(())
    }

    /// Handles the owner's answer to `Attach`.
    fn attached(
        &mut self,
        peer: PeerKey,
        id: u64,
        segments: &[Located],
        proof: Proof,
    ) -> Result<(), FrameError> {
        let Some(&Attachment::Asked(handle)) = self.bulk.attachments.get(peer, id) else {
            return Err(FrameError::Bulk);
        };
        if crate::engine::total_bytes(segments) != Some(handle.bytes) {
            return Err(FrameError::Bulk);
        }
        let looks = self.config.bulk_looks_into_processes;
        let pid = self.process_of(peer).filter(|_| looks);
        let take_file = |file| self.link(peer).and_then(|link| link.take_file(file));
        let attachment = match Remote::reach(handle, segments, proof, pid, take_file) {
            Some(remote) => Attachment::Here(Arc::new(remote)),
            None => {
                self.bulk.stats.denied_count += 1;
                self.say(peer, &BulkMessage::Detached { id });
                Attachment::Denied
            }
        };
        self.bulk.attachments.insert(peer, id, attachment);
        for waiting in self.waiting_for(peer, id) {
            self.proceed(waiting);
        }
        Ok(())
    }

    fn waiting_for(&self, peer: PeerKey, id: u64) -> Vec<TransferId> {
        self.bulk.transfers.find(|it| {
            it.peer == peer && it.handle.id == id && matches!(it.progress, Progress::Waiting)
        })
    }

    /// Handles the withdrawal of a memory by its owner.
    fn detach(&mut self, peer: PeerKey, id: u64) {
        match self.bulk.attachments.get(peer, id) {
            // The owner will refuse the pending request.
            Some(Attachment::Asked(_)) => return,
            Some(_) => self.bulk.attachments.remove(peer, id),
            None => None,
        };
        let copying = self.bulk.transfers.find(|it| {
            let is_copied = matches!(it.progress, Progress::Copying(_) | Progress::Helped);
            it.peer == peer && it.handle.id == id && is_copied
        });
        for transfer in copying {
            self.bulk.copying.retain(|&it| it != transfer);
            self.finish(transfer, Err(BulkRefusal::Unknown.into()));
        }
        self.say(peer, &BulkMessage::Detached { id });
    }

    /// Handles the peer's report that pushed data has arrived, that an empty pull is done, or that
    /// its half is copied.
    fn other_side_done(&mut self, peer: PeerKey, word: u64) -> Result<(), FrameError> {
        let id = TransferId::of(word);
        let transfer = self.bulk.transfers.get(id);
        let Some(transfer) = transfer.filter(|it| it.peer == peer) else {
            return Ok(()); // Cancelled meanwhile.
        };
        if transfer.is_helped {
            self.other_half_done(id);
            return Ok(());
        }
        let all = match transfer.direction {
            Direction::Pull => transfer.bytes == 0,
            Direction::Push => !self.bulk.sends(peer, word | PUSHED),
        };
        if !all || !matches!(transfer.progress, Progress::Under) {
            return Err(FrameError::Bulk);
        }
        self.forget_data(peer, word, word | PUSHED);
        self.finish(id, Ok(()));
        Ok(())
    }

    /// Handles data: in shared memory with its body; on a stream first the header, and then, with
    /// no bytes, the end of the body.
    pub(crate) fn bulk_data(
        &mut self,
        peer: PeerKey,
        header: Header,
        body: &[u8],
    ) -> Result<(), FrameError> {
        let (offset, bytes) = (header.method, u64::from(header.body_bytes));
        let streams = !self.shares_memory(peer);
        if bytes == 0 && !streams {
            return Err(FrameError::Bulk);
        }
        let Some(incoming) = self.bulk.received(peer, header.call) else { return Ok(()) };
        if bytes > 0 {
            if !incoming.arrival.accepts(offset, bytes) {
                return Err(FrameError::Bulk);
            }
            let (memory, at) = (incoming.memory.clone(), incoming.offset + offset);
            self.bulk.stats.message_bytes += bytes;
            if streams {
                if let Some(link) = self.link(peer) {
                    link.receive_data(Some((memory, at)));
                }
                return Ok(());
            }
            memory.write(at, body);
        }
        if self.bulk.received(peer, header.call).is_some_and(|it| it.arrival.is_whole()) {
            self.bulk.stop_receiving(peer, header.call);
            match header.call & PUSHED {
                0 => self.finish(TransferId::of(header.call), Ok(())),
                _ => self.say_in_turn(peer, &BulkMessage::Done { transfer: header.call & !PUSHED }),
            }
        }
        Ok(())
    }

    // Copying and sending.

    /// Copies and sends a piece of the transfers under way. Returns `true` if there was any.
    #[cold]
    pub(crate) fn bulk_turn(&mut self) -> bool {
        let copied = self.copy_some();
        let sent = self.send_some();
        // Before handlers run, which would take the queued bytes for those of a peer that does not read.
        self.flush_if_due() || sent || copied
    }

    fn copy_some(&mut self) -> bool {
        let Some(id) = self.bulk.copying.pop_front() else { return false };
        let Some(transfer) = self.bulk.transfers.get(id) else { return true };
        let (peer, handle) = (transfer.peer, transfer.handle);
        let Progress::Copying(done) = transfer.progress else { return true };
        let direction = transfer.direction;
        if transfer.deadline_ns != u64::MAX && clock::now_ns() >= transfer.deadline_ns {
            self.finish(id, Err(BulkError::Deadline));
            return true;
        }
        let here = self.bulk.attachments.get(peer, handle.id);
        let Some(Attachment::Here(remote)) = here.cloned() else {
            self.finish(id, Err(BulkRefusal::Unknown.into()));
            return true;
        };
        let own_bytes = transfer.own_bytes;
        let bytes = (own_bytes - done).min(CHUNK_BYTES);
        let (theirs, ours) = (transfer.theirs + done, transfer.ours + done);
        let store = self.store(direction, &transfer.memory, &handle);
        let memory = (&transfer.memory, ours);
        match remote.copy(direction, theirs, memory, bytes, store) {
            Ok(count) => {
                match remote.is_mapped() {
                    true => self.bulk.stats.mapped_bytes += count,
                    false => self.bulk.stats.process_bytes += count,
                }
                if done + count == own_bytes {
                    self.own_half_done(id);
                } else {
                    self.set_progress(id, Progress::Copying(done + count));
                    self.bulk.copying.push_back(id);
                }
            }
            Err(Errno::PERM | Errno::NOSYS) => {
                self.bulk.stats.denied_count += 1;
                self.bulk.attachments.insert(peer, handle.id, Attachment::Denied);
                self.say(peer, &BulkMessage::Detached { id: handle.id });
                self.by_messages(id);
            }
            Err(Errno::SRCH) => self.close(peer, &Gone::HungUp),
            Err(errno) => {
                let call = match direction {
                    Direction::Pull => "process_vm_readv",
                    Direction::Push => "process_vm_writev",
                };
                self.finish(id, Err(BulkError::Memory { call, errno }));
            }
        }
        true
    }

    /// Sends data of each peer's transfers in turn, while there is room.
    fn send_some(&mut self) -> bool {
        let mut did = false;
        for peer in self.bulk.outgoing.keys().copied().collect::<Vec<_>>() {
            let count = self.bulk.outgoing.get(&peer).map_or(0, Backlog::len);
            // Ends when there is no room, or the peer is disconnected.
            did |= (0..count).take_while(|_| self.send_piece(peer)).count() > 0;
        }
        did
    }

    /// Sends the next piece to that peer. Returns `false` if there is no room for it now.
    fn send_piece(&mut self, peer: PeerKey) -> bool {
        let bytes_max = self.message_bytes_max(peer) as u64;
        if !self.has_room_in_turn(peer) {
            return false;
        }
        let its = self.bulk.outgoing.get_mut(&peer);
        let Some(mut it) = its.and_then(Backlog::pop) else { return false };
        // At most CHUNK_BYTES, which fits a u32.
        let body_bytes = (it.bytes - it.sent).min(CHUNK_BYTES).min(bytes_max) as u32;
        let header = Header { body_bytes, kind: Kind::Data, method: it.sent, call: it.call };
        if let Some(opening) = it.opening.take() {
            self.say_in_turn(peer, &opening);
        }
        let Some(link) = self.link(peer) else { return false };
        let sent = link.send_data(header, &it.memory, it.offset + it.sent);
        let is_queued = link.queued_bytes() > 0;
        if is_queued {
            self.flush_in_turn();
        }
        if sent == Ok(true) {
            self.bulk.stats.message_bytes += u64::from(body_bytes);
            it.sent += u64::from(body_bytes);
        }
        match it.sent < it.bytes {
            true => self.bulk.send(it),
            false => self.bulk.stop_sending(peer, it.call),
        }
        sent.unwrap_or_else(|gone| {
            self.close(peer, &gone);
            false
        })
    }

    // Disconnected peers, and the endpoint's end.

    /// Ends all transfers with a disconnected peer.
    pub(crate) fn bulk_forget(&mut self, peer: PeerKey, why: &Gone, socket: Option<OwnedFd>) {
        for id in self.bulk.transfers.find(|it| it.peer == peer) {
            self.finish(id, Err(why.clone().into()));
        }
        let transfers = &self.bulk.transfers;
        self.bulk.copying.retain(|&id| transfers.get(id).is_some());
        self.bulk.outgoing.remove(&peer);
        self.bulk.incoming.remove(&peer);
        self.bulk.attachments.forget(peer);
        // This side no longer writes to the peer's memory. The shutdown tells the peer now, rather
        // than when the lingering socket is closed: the peer may itself be waiting for this side.
        if let Some(socket) = &socket {
            // An error means that the peer has already closed the connection.
            let _ = shutdown(socket, Shutdown::Write);
        }
        for registered in self.bulk.registered.values_mut() {
            if !registered.attached.contains(&peer) {
                continue;
            }
            registered.attached.retain(|&it| it != peer);
            // A peer that closed the connection itself no longer writes; one that this side
            // disconnected may write until it notices.
            if *why != Gone::HungUp && registered.is_lent() {
                let memory = registered.memory.clone();
                match socket.as_ref().and_then(|it| it.try_clone().ok()) {
                    Some(socket) => self.bulk.lingering.push(Lingering::new(socket, memory)),
                    None => std::mem::forget(memory),
                }
            }
        }
    }

    /// Releases lingering memory whose writers have closed the connection.
    pub(crate) fn bulk_let_go(&mut self) {
        self.bulk.lingering.retain(|it| !it.is_over());
    }

    /// Waits at most PARTING for peers that may still write this side's memory, and leaks memory
    /// that they have not released by then.
    pub(crate) fn bulk_part(&mut self) {
        if !self.bulk.lends() {
            return;
        }
        for peer in self.peers().collect::<Vec<_>>() {
            self.disconnect(peer);
        }
        let began = Instant::now();
        while self.bulk.lingers() && began.elapsed() < PARTING {
            self.bulk_let_go();
            std::thread::sleep(PARTING / 100);
        }
        self.bulk.lingering.drain(..).for_each(Lingering::lose);
    }
}
