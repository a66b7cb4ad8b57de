//! Both sides copying: whoever transfers takes the one half, and asks the owner to take the other.
//!
//! ```text
//!  who transfers                            whose memory it is
//!  Help, for the second half ────────────▶  looks up its own memory, maps the other's, once
//!  copies the first half                    copies the second half, as a transfer of its own
//!                            ◀──────────── Done
//! ```

use super::exchange::Asked;
use super::remote::Direction;
use super::tables::{Progress, TransferId};
use super::{BulkMemory, BulkPart};
use crate::drive::state::State;
use crate::engine::{BulkHandle, BulkMessage, BulkRefusal, PeerKey};
use crate::{BulkError, FrameError};

/// Less is copied by one side alone: asking costs as much as copying it.
pub(super) const HALVED_BYTES_MIN: u64 = 1 << 15;
/// Halves begin on a page.
const PAGE_BYTES: u64 = 4096;
/// A peer may ask for so many at a time, and have so many memories of its own asked for.
const HELPED_MAX: usize = 16;

/// What a peer asks for.
pub(super) struct Help {
    /// As the peer counts them.
    pub(super) transfer: u64,
    /// This side's memory, and where the piece begins in it.
    pub(super) ours: (BulkHandle, u64),
    /// The peer's.
    pub(super) theirs: (BulkHandle, u64),
    pub(super) bytes: u64,
    /// Whether this side's memory is read, or written.
    pub(super) is_read: bool,
}

impl Asked<'_> {
    /// Whether the handle that the part names is of this side's memory, and lets the peer do its half.
    pub(super) fn check_halves(&self, state: &State) -> Result<(), BulkError> {
        let Some(ours) = self.part.halved else { return Ok(()) };
        let known = state.bulk.registered.get(&ours.id);
        let is_ours = known.is_some_and(|it| it.handle == ours && it.memory.is(self.memory));
        if !is_ours {
            return Err(BulkError::NotOurs);
        }
        let allowed = match self.direction {
            Direction::Pull => ours.rights.may_write(),
            Direction::Push => ours.rights.may_read(),
        };
        if allowed { Ok(()) } else { Err(BulkRefusal::Rights.into()) }
    }
}

impl State {
    /// Leaves the second half of a transfer to the owner, if that was asked for. Both memories are mapped.
    pub(super) fn ask_for_help(&mut self, id: TransferId) {
        let Some(transfer) = self.bulk.transfers.get_mut(id) else { return };
        let Some(into) = transfer.halved else { return };
        let own_bytes = (transfer.bytes / 2).next_multiple_of(PAGE_BYTES).min(transfer.bytes);
        let bytes = transfer.bytes - own_bytes;
        if bytes == 0 || transfer.bytes < HALVED_BYTES_MIN {
            return;
        }
        (transfer.own_bytes, transfer.is_helped) = (own_bytes, true);
        let (peer, handle) = (transfer.peer, transfer.handle);
        let (offset, into_offset) = (transfer.theirs + own_bytes, transfer.ours + own_bytes);
        let (transfer, pulls) = (id.word(), transfer.direction == Direction::Pull);
        let help = BulkMessage::Help { transfer, handle, offset, into, into_offset, bytes, pulls };
        self.say(peer, &help);
    }

    /// This side's half is done.
    pub(super) fn own_half_done(&mut self, id: TransferId) {
        match self.bulk.transfers.get(id) {
            Some(transfer) if transfer.is_helped => self.set_progress(id, Progress::Helped),
            _ => self.finish(id, Ok(())),
        }
    }

    /// The peer's half is done.
    pub(super) fn other_half_done(&mut self, id: TransferId) {
        let Some(transfer) = self.bulk.transfers.get_mut(id) else { return };
        transfer.is_helped = false;
        if matches!(transfer.progress, Progress::Helped) {
            self.finish(id, Ok(()));
        }
    }

    /// A peer asks this side to copy a piece between their memories.
    pub(super) fn help(&mut self, peer: PeerKey, help: &Help) -> Result<(), FrameError> {
        if !self.shares_memory(peer) {
            // There is nothing to map over a stream.
            return Err(FrameError::Bulk);
        }
        // What the peer wants done is held to what it may do itself.
        let its = if help.is_read { Direction::Pull } else { Direction::Push };
        let (handle, offset) = help.ours;
        let found = self.bulk_piece(peer, &handle, (offset, help.bytes), its);
        let is_full = self.bulk.helping.values().filter(|it| it.0 == peer).count() >= HELPED_MAX
            || self.bulk.attachments.asked_count(peer) >= HELPED_MAX;
        let memory = match found {
            Ok(_) if is_full => {
                self.refuse(peer, help.transfer, BulkRefusal::Full);
                return Ok(());
            }
            Ok(memory) => memory,
            Err(why) => {
                self.refuse(peer, help.transfer, why);
                return Ok(());
            }
        };
        let direction = if help.is_read { Direction::Push } else { Direction::Pull };
        let (into, into_offset) = help.theirs;
        let part = BulkPart::of(help.bytes).at(into_offset, offset);
        match self.bulk_start(&Asked { peer, direction, handle: &into, memory: &memory, part }) {
            Ok(id) => {
                self.bulk.helping.insert(id, (peer, help.transfer));
                self.tell_helped(id);
            }
            Err(BulkError::Refused(why)) => self.refuse(peer, help.transfer, why),
            Err(_) => self.refuse(peer, help.transfer, BulkRefusal::Full),
        }
        Ok(())
    }

    /// Tells the peer, if that was done on its behalf and is over.
    pub(super) fn tell_helped(&mut self, id: TransferId) {
        if !self.bulk.helping.contains_key(&id) {
            return;
        }
        let Some(result) = self.bulk.transfers.take(id) else { return };
        let Some((peer, transfer)) = self.bulk.helping.remove(&id) else { return };
        match result {
            Ok(()) => self.say(peer, &BulkMessage::Done { transfer }),
            Err(BulkError::Refused(why)) => self.refuse(peer, transfer, why),
            Err(_) => self.refuse(peer, transfer, BulkRefusal::Full),
        }
    }

    /// That memory of this side's is not copied from or to any more, on behalf of whomever.
    pub(super) fn stop_helping_with(&mut self, memory: &BulkMemory) {
        let transfers = &self.bulk.transfers;
        let uses = |id: TransferId| transfers.get(id).is_some_and(|it| it.memory.is(memory));
        let helping = self.bulk.helping.iter().filter(|it| uses(*it.0));
        for (peer, transfer) in helping.map(|it| *it.1).collect::<Vec<_>>() {
            self.give_up_helping(peer, transfer);
            self.refuse(peer, transfer, BulkRefusal::Unknown);
        }
    }

    /// The peer does not want that any more.
    pub(super) fn give_up_helping(&mut self, peer: PeerKey, transfer: u64) {
        let of_it = |it: &(&TransferId, &(PeerKey, u64))| *it.1 == (peer, transfer);
        let found = self.bulk.helping.iter().find(of_it).map(|it| *it.0);
        if let Some(id) = found {
            self.bulk.helping.remove(&id);
            self.bulk_give_up(id);
        }
    }
}
