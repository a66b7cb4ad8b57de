//! What an endpoint knows of bulk transfers: what it has registered, what of others it has at hand, and
//! what is under way.

use super::memory::BulkMemory;
use super::remote::{Direction, Remote};
use crate::engine::{
    Arrival, Backlog, BulkHandle, BulkRefusal, PeerKey, Proof, Rights, TRANSFER_LIMIT, is_within,
};
use crate::{BulkError, MemoryError};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A transfer that this side has begun, as it counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransferId(u64);

impl TransferId {
    const GENERATION_MASK: u32 = u32::MAX >> 1;

    fn new(place: u32, generation: u32) -> Self {
        Self(u64::from(generation & Self::GENERATION_MASK) << 32 | u64::from(place))
    }

    fn place(self) -> usize {
        // Cut to its width.
        self.0 as u32 as usize
    }

    /// As it is sent; below [`TRANSFER_LIMIT`].
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    pub(crate) fn of(word: u64) -> Self {
        Self(word)
    }
}

/// Of data, whose number it carries: the sender's, who pushes.
pub(crate) const PUSHED: u64 = TRANSFER_LIMIT;

#[derive(Debug)]
pub(crate) enum Progress {
    /// For the other memory to be at hand.
    Waiting,
    /// So much is copied.
    Copying(u64),
    /// The other side has part in it.
    Under,
    /// This side's half is copied, the other's is not yet.
    Helped,
}

#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) peer: PeerKey,
    pub(crate) direction: Direction,
    pub(crate) handle: BulkHandle,
    pub(crate) memory: BulkMemory,
    pub(crate) theirs: u64,
    pub(crate) ours: u64,
    pub(crate) bytes: u64,
    pub(crate) deadline_ns: u64,
    pub(crate) progress: Progress,
    /// The handle of this side's memory, if both sides are to copy.
    pub(crate) halved: Option<BulkHandle>,
    /// How much of it this side copies.
    pub(crate) own_bytes: u64,
    /// The other side copies the rest, and has not said that it is done.
    pub(crate) is_helped: bool,
}

#[derive(Debug)]
enum Slot {
    Free,
    Live(Box<Transfer>),
    Done(Result<(), BulkError>),
}

/// Transfers by number.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    slots: Vec<(u32, Slot)>,
    free: Vec<u32>,
}

impl Transfers {
    fn place(&mut self, max: u32) -> Option<u32> {
        self.free.pop().or_else(|| {
            let place = u32::try_from(self.slots.len()).ok().filter(|&it| it < max)?;
            self.slots.push((0, Slot::Free));
            Some(place)
        })
    }

    fn put(&mut self, slot: Slot, max: u32) -> Option<TransferId> {
        let place = self.place(max)?;
        let at = &mut self.slots[place as usize];
        at.1 = slot;
        Some(TransferId::new(place, at.0))
    }

    pub(crate) fn insert(&mut self, transfer: Transfer, max: u32) -> Option<TransferId> {
        self.put(Slot::Live(Box::new(transfer)), max)
    }

    /// One that was done at once.
    pub(crate) fn insert_done(
        &mut self,
        result: Result<(), BulkError>,
        max: u32,
    ) -> Option<TransferId> {
        self.put(Slot::Done(result), max)
    }

    #[inline]
    fn slot(&self, id: TransferId) -> Option<&Slot> {
        let (generation, slot) = self.slots.get(id.place())?;
        // Cut to its width: places are counted in u32.
        (TransferId::new(id.place() as u32, *generation) == id).then_some(slot)
    }

    /// One that is under way.
    pub(crate) fn get(&self, id: TransferId) -> Option<&Transfer> {
        match self.slot(id) {
            Some(Slot::Live(transfer)) => Some(transfer),
            _ => None,
        }
    }

    /// As [`get`](Self::get), to move on.
    pub(crate) fn get_mut(&mut self, id: TransferId) -> Option<&mut Transfer> {
        self.slot(id)?;
        match &mut self.slots[id.place()].1 {
            Slot::Live(transfer) => Some(transfer),
            _ => None,
        }
    }

    /// It is done, if it was under way.
    pub(crate) fn finish(&mut self, id: TransferId, result: Result<(), BulkError>) {
        if self.get(id).is_some() {
            self.slots[id.place()].1 = Slot::Done(result);
        }
    }

    /// Until when it is under way; `None` when it is not.
    #[inline]
    pub(crate) fn deadline_ns(&self, id: TransferId) -> Option<u64> {
        self.get(id).map(|it| it.deadline_ns)
    }

    fn vacate(&mut self, id: TransferId) -> Slot {
        let at = &mut self.slots[id.place()];
        at.0 = at.0.wrapping_add(1) & TransferId::GENERATION_MASK;
        // As in slot().
        self.free.push(id.place() as u32);
        std::mem::replace(&mut at.1, Slot::Free)
    }

    /// How it came out, and forgets it; `None` while it is under way.
    #[inline]
    pub(crate) fn take(&mut self, id: TransferId) -> Option<Result<(), BulkError>> {
        match self.slot(id) {
            Some(Slot::Live(_)) => None,
            None | Some(Slot::Free) => Some(Err(BulkError::Stale)),
            Some(Slot::Done(_)) => match self.vacate(id) {
                Slot::Done(result) => Some(result),
                _ => None,
            },
        }
    }

    /// Forgets it, as it was under way; `None` if it was not.
    pub(crate) fn remove(&mut self, id: TransferId) -> Option<Transfer> {
        self.slot(id).filter(|it| !matches!(it, Slot::Free))?;
        match self.vacate(id) {
            Slot::Live(transfer) => Some(*transfer),
            _ => None,
        }
    }

    /// Those under way that are of that kind.
    pub(crate) fn find(&self, is: impl Fn(&Transfer) -> bool) -> Vec<TransferId> {
        let slots = self.slots.iter().enumerate();
        let found = slots.filter_map(|(place, (generation, slot))| match slot {
            // As in slot().
            Slot::Live(it) if is(it) => Some(TransferId::new(place as u32, *generation)),
            _ => None,
        });
        found.collect()
    }
}

/// A memory of this side that others know.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) handle: BulkHandle,
    pub(crate) memory: BulkMemory,
    /// Who has it at hand.
    pub(crate) attached: Vec<PeerKey>,
    /// Nobody new gets it.
    pub(crate) withdrawn: bool,
}

impl Registered {
    /// Peers write to it through the kernel, and this process's allocator knows nothing of that.
    pub(crate) fn is_lent(&self) -> bool {
        self.handle.rights.may_write() && self.memory.regions().any(|it| it.file().is_none())
    }
}

/// A memory of a peer.
#[derive(Debug, Clone)]
pub(crate) enum Attachment {
    Asked(BulkHandle),
    Here(Arc<Remote>),
    /// The kernel does not let us: by messages.
    Denied,
}

/// Memories of peers, by peer and by number.
#[derive(Debug, Default)]
pub(crate) struct Attachments {
    all: HashMap<(PeerKey, u64), Attachment>,
    /// The one that was used last, which most often is the next too.
    recent: Option<(PeerKey, u64, Arc<Remote>)>,
}

impl Attachments {
    /// The memory of that peer, if it is at hand.
    #[inline]
    pub(crate) fn here(&mut self, peer: PeerKey, id: u64) -> Option<&Arc<Remote>> {
        let is_recent = matches!(&self.recent, Some(it) if it.0 == peer && it.1 == id);
        if !is_recent {
            let Some(Attachment::Here(remote)) = self.all.get(&(peer, id)) else { return None };
            self.recent = Some((peer, id, Arc::clone(remote)));
        }
        self.recent.as_ref().map(|it| &it.2)
    }

    pub(crate) fn get(&self, peer: PeerKey, id: u64) -> Option<&Attachment> {
        self.all.get(&(peer, id))
    }

    pub(crate) fn insert(&mut self, peer: PeerKey, id: u64, attachment: Attachment) {
        self.recent = None;
        self.all.insert((peer, id), attachment);
    }

    pub(crate) fn remove(&mut self, peer: PeerKey, id: u64) -> Option<Attachment> {
        self.recent = None;
        self.all.remove(&(peer, id))
    }

    pub(crate) fn forget(&mut self, peer: PeerKey) {
        self.recent = None;
        self.all.retain(|key, _| key.0 != peer);
    }

    pub(crate) fn forget_denied(&mut self) {
        self.all.retain(|_, it| !matches!(it, Attachment::Denied));
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// How many of that peer's were asked for, and not answered yet.
    pub(crate) fn asked_count(&self, peer: PeerKey) -> usize {
        let asked = |it: &(&(PeerKey, u64), &Attachment)| {
            it.0.0 == peer && matches!(it.1, Attachment::Asked(_))
        };
        self.all.iter().filter(asked).count()
    }

    /// Those at hand.
    pub(crate) fn at_hand(&self) -> impl Iterator<Item = (PeerKey, u64)> {
        let here = self.all.iter().filter(|(_, it)| matches!(it, Attachment::Here(_)));
        here.map(|(&key, _)| key)
    }
}

/// Data that this side sends.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) peer: PeerKey,
    pub(crate) call: u64,
    pub(crate) memory: BulkMemory,
    /// Where in the memory the transfer begins.
    pub(crate) offset: u64,
    /// How much of it was sent.
    pub(crate) sent: u64,
    pub(crate) bytes: u64,
    /// Of this side's handles, where the peer pulls.
    pub(crate) registered: Option<u64>,
}

/// Data that this side receives.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) memory: BulkMemory,
    /// Where in the memory the transfer begins.
    pub(crate) offset: u64,
    pub(crate) arrival: Arrival,
    /// Of this side's handles, where the peer pushes.
    pub(crate) registered: Option<u64>,
}

/// Of a peer's rings at a time.
const READS_MAX: u32 = 64;

/// Memory that a peer may still write, until the peer has hung up.
#[derive(Debug)]
pub(crate) struct Lingering {
    socket: OwnedFd,
    memory: BulkMemory,
}

impl Lingering {
    pub(crate) fn new(socket: OwnedFd, memory: BulkMemory) -> Self {
        Self { socket, memory }
    }

    /// Whether the peer has hung up, so that the memory can go.
    pub(crate) fn is_over(&self) -> bool {
        let mut rest = [0; 64];
        // Who rings and rings is asked again another time.
        for _ in 0..READS_MAX {
            match recv(&self.socket, &mut rest, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return errno != Errno::AGAIN,
            }
        }
        false
    }

    /// The memory is never given back: better lost than written to when it is something else.
    pub(crate) fn lose(self) {
        std::mem::forget(self.memory);
    }
}

#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) registered: HashMap<u64, Registered>,
    next_id: u64,
    pub(crate) attachments: Attachments,
    pub(crate) transfers: Transfers,
    pub(crate) copying: VecDeque<TransferId>,
    /// Data to be sent, of each peer that has any, by its number.
    pub(crate) outgoing: HashMap<PeerKey, Backlog<Outgoing>>,
    /// Data that is received, of each peer that sends any, by its number.
    pub(crate) incoming: HashMap<PeerKey, HashMap<u64, Incoming>>,
    pub(crate) lingering: Vec<Lingering>,
    /// Transfers on behalf of peers: whose, and as the peer counts them.
    pub(crate) helping: HashMap<TransferId, (PeerKey, u64)>,
    /// What peers read to know whom they look into, and where it is.
    proof: Option<(BulkMemory, Proof)>,
    pub(crate) stats: BulkStats,
}

/// What an endpoint has moved so far, on behalf of its own transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct BulkStats {
    /// Transfers that this side has begun.
    pub transfers_count: u64,
    /// Bytes copied between memory that both sides have mapped.
    pub mapped_bytes: u64,
    /// Bytes that the kernel copied from one process to the other.
    pub process_bytes: u64,
    /// Bytes that came or went as messages, of peers' transfers too.
    pub message_bytes: u64,
    /// Memories of peers that the kernel does not let this process look into: they go by messages.
    pub denied_count: u64,
    /// What peers asked for and were refused.
    pub refused_count: u64,
}

fn random() -> Result<u128, MemoryError> {
    crate::drive::random::random().map_err(|errno| MemoryError::Random(errno.kind()))
}

impl Tables {
    pub(crate) fn new() -> Self {
        Self {
            registered: HashMap::new(),
            next_id: 0,
            attachments: Attachments::default(),
            transfers: Transfers::default(),
            copying: VecDeque::new(),
            outgoing: HashMap::new(),
            incoming: HashMap::new(),
            lingering: Vec::new(),
            helping: HashMap::new(),
            proof: None,
            stats: BulkStats::default(),
        }
    }

    /// There is something to copy or to send.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        !self.copying.is_empty() || !self.outgoing.is_empty()
    }

    /// Data is sent to that peer from now on.
    pub(crate) fn send(&mut self, outgoing: Outgoing) {
        let (peer, call) = (outgoing.peer, outgoing.call);
        self.outgoing.entry(peer).or_default().push(Some(call), 0, outgoing);
    }

    /// Returns `true` if data of that number is still to be sent.
    pub(crate) fn sends(&self, peer: PeerKey, call: u64) -> bool {
        self.outgoing.get(&peer).is_some_and(|it| it.contains(call))
    }

    /// Data of that number is not sent any more.
    pub(crate) fn stop_sending(&mut self, peer: PeerKey, call: u64) {
        if let Some(its) = self.outgoing.get_mut(&peer) {
            its.cancel(call);
            if its.is_empty() {
                self.outgoing.remove(&peer);
            }
        }
    }

    /// Data of that number is received from now on.
    pub(crate) fn receive(&mut self, peer: PeerKey, call: u64, incoming: Incoming) {
        self.incoming.entry(peer).or_default().insert(call, incoming);
    }

    /// The data of that number that is being received.
    pub(crate) fn received(&mut self, peer: PeerKey, call: u64) -> Option<&mut Incoming> {
        self.incoming.get_mut(&peer)?.get_mut(&call)
    }

    /// Data of that number is not received any more. Returns `true` if it was.
    pub(crate) fn stop_receiving(&mut self, peer: PeerKey, call: u64) -> bool {
        let Some(its) = self.incoming.get_mut(&peer) else { return false };
        let was_received = its.remove(&call).is_some();
        if its.is_empty() {
            self.incoming.remove(&peer);
        }
        was_received
    }

    /// How many are sent to or received from that peer.
    pub(crate) fn under_way_count(&self, peer: PeerKey) -> usize {
        self.outgoing.get(&peer).map_or(0, Backlog::len)
            + self.incoming.get(&peer).map_or(0, HashMap::len)
    }

    pub(crate) fn lends(&self) -> bool {
        self.lingers() || self.registered.values().any(|it| it.is_lent() && !it.attached.is_empty())
    }

    pub(crate) fn lingers(&self) -> bool {
        !self.lingering.is_empty()
    }

    pub(crate) fn register(
        &mut self,
        memory: BulkMemory,
        rights: Rights,
        memories_max: u32,
    ) -> Result<BulkHandle, MemoryError> {
        if self.registered.len() >= memories_max as usize {
            return Err(MemoryError::Full { memories_max });
        }
        let (id, bytes) = (self.next_id, memory.len_bytes());
        let handle = BulkHandle { id, key: random()?, bytes, rights };
        self.next_id += 1;
        let registered = Registered { handle, memory, attached: Vec::new(), withdrawn: false };
        self.registered.insert(id, registered);
        Ok(handle)
    }

    /// The memory of that handle, if it is one.
    pub(crate) fn known(&mut self, handle: &BulkHandle) -> Result<&mut Registered, BulkRefusal> {
        let registered = self.registered.get_mut(&handle.id).ok_or(BulkRefusal::Unknown)?;
        let known = &registered.handle;
        if registered.withdrawn || known.key != handle.key {
            Err(BulkRefusal::Unknown)
        } else if known.rights != handle.rights {
            Err(BulkRefusal::Rights)
        } else if known.bytes != handle.bytes {
            Err(BulkRefusal::Outside)
        } else {
            Ok(registered)
        }
    }

    /// The piece of that memory, if there is one and the handle gives that right.
    pub(crate) fn piece(
        &mut self,
        handle: &BulkHandle,
        (offset, bytes): (u64, u64),
        direction: Direction,
    ) -> Result<BulkMemory, BulkRefusal> {
        let registered = self.known(handle)?;
        may(handle, (offset, bytes), direction)?;
        Ok(registered.memory.clone())
    }

    pub(crate) fn proof(&mut self) -> Result<Proof, MemoryError> {
        if let Some((_, proof)) = &self.proof {
            return Ok(*proof);
        }
        let word = random()?;
        let memory = BulkMemory::plain(word.to_ne_bytes().to_vec());
        let address = memory.regions().next().map_or(0, |region| region.address());
        let proof = Proof { address, word };
        self.proof = Some((memory, proof));
        Ok(proof)
    }

    /// Peers that have that memory at hand, and may write to it through the kernel.
    pub(crate) fn users_count(&self, id: u64) -> usize {
        self.registered.get(&id).filter(|it| it.is_lent()).map_or(0, |it| it.attached.len())
    }
}

/// Whether a handle gives that right, to that piece.
pub(crate) fn may(
    handle: &BulkHandle,
    (offset, bytes): (u64, u64),
    direction: Direction,
) -> Result<(), BulkRefusal> {
    let allowed = match direction {
        Direction::Pull => handle.rights.may_read(),
        Direction::Push => handle.rights.may_write(),
    };
    if !allowed {
        Err(BulkRefusal::Rights)
    } else if !is_within(offset, bytes, handle.bytes) {
        Err(BulkRefusal::Outside)
    } else {
        Ok(())
    }
}
