//! What an endpoint knows of bulk transfers: what it has registered, what of others it has at hand, and
//! what is under way.

use super::memory::BulkMemory;
use super::remote::{Direction, Remote};
use crate::engine::{
    Arrival, BulkHandle, BulkRefusal, PeerKey, Proof, Rights, TRANSFER_LIMIT, is_within,
};
use crate::{BulkError, MemoryError};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::Read;
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
    Done(Result<(), BulkError>),
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
}

/// Transfers by number.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    slots: Vec<(u32, Option<Transfer>)>,
    free: Vec<u32>,
}

impl Transfers {
    pub(crate) fn insert(&mut self, transfer: Transfer, max: u32) -> Option<TransferId> {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                let place = u32::try_from(self.slots.len()).ok().filter(|&it| it < max)?;
                self.slots.push((0, None));
                place
            }
        };
        let slot = &mut self.slots[place as usize];
        slot.1 = Some(transfer);
        Some(TransferId::new(place, slot.0))
    }

    pub(crate) fn get(&self, id: TransferId) -> Option<&Transfer> {
        let (generation, transfer) = self.slots.get(id.place())?;
        // Cut to its width: places are counted in u32.
        let same = TransferId::new(id.place() as u32, *generation) == id;
        transfer.as_ref().filter(|_| same)
    }

    pub(crate) fn get_mut(&mut self, id: TransferId) -> Option<&mut Transfer> {
        let (generation, transfer) = self.slots.get_mut(id.place())?;
        // As in get().
        let same = TransferId::new(id.place() as u32, *generation) == id;
        transfer.as_mut().filter(|_| same)
    }

    pub(crate) fn remove(&mut self, id: TransferId) -> Option<Transfer> {
        self.get(id)?;
        let slot = &mut self.slots[id.place()];
        slot.0 = slot.0.wrapping_add(1) & TransferId::GENERATION_MASK;
        // As in get().
        self.free.push(id.place() as u32);
        slot.1.take()
    }

    /// Those under way that are of that kind.
    pub(crate) fn find(&self, is: impl Fn(&Transfer) -> bool) -> Vec<TransferId> {
        let slots = self.slots.iter().enumerate();
        let found = slots.filter_map(|(place, (generation, transfer))| {
            let transfer = transfer.as_ref().filter(|it| !it.is_done() && is(it))?;
            let _ = transfer;
            Some(TransferId::new(place as u32, *generation)) // As in get().
        });
        found.collect()
    }
}

impl Transfer {
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.progress, Progress::Done(_))
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
        loop {
            match recv(&self.socket, &mut rest, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return errno != Errno::AGAIN,
            }
        }
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
    pub(crate) attachments: HashMap<(PeerKey, u64), Attachment>,
    pub(crate) transfers: Transfers,
    pub(crate) copying: VecDeque<TransferId>,
    pub(crate) outgoing: VecDeque<Outgoing>,
    pub(crate) incoming: HashMap<(PeerKey, u64), Incoming>,
    pub(crate) lingering: Vec<Lingering>,
    /// What peers read to know whom they look into, and where it is.
    proof: Option<(BulkMemory, Proof)>,
    pub(crate) stats: BulkStats,
}

/// What an endpoint has moved so far, on behalf of its own transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut it| it.read_exact(&mut bytes));
    read.map_err(|error| MemoryError::Random(error.kind()))?;
    Ok(u128::from_ne_bytes(bytes))
}

impl Tables {
    pub(crate) fn new() -> Self {
        Self {
            registered: HashMap::new(),
            next_id: 0,
            attachments: HashMap::new(),
            transfers: Transfers::default(),
            copying: VecDeque::new(),
            outgoing: VecDeque::new(),
            incoming: HashMap::new(),
            lingering: Vec::new(),
            proof: None,
            stats: BulkStats::default(),
        }
    }

    /// There is something to copy or to send.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        !self.copying.is_empty() || !self.outgoing.is_empty()
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
