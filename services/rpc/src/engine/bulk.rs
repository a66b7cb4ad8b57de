//! What two sides say to each other about bulk transfers, and what must hold of it.
//!
//! ```text
//!  who transfers                            whose memory it is
//!  shared memory:  Attach ───────────────▶  looks up the handle, its key and its rights
//!                  maps it    ◀──────────── Attached, and the files
//!                  copies, as often as it likes, until Detach
//!                  Help   ───────────────▶  copies a piece itself, the asker's memory mapped likewise
//!                             ◀──────────── Done
//!  streams:        Read   ───────────────▶  looks up the handle, its key, its rights, the place
//!                  receives   ◀──────────── data, piece by piece
//!                  Write, data ──────────▶  looks it up, receives
//!                             ◀──────────── Done
//! ```

use crate::FrameError;
use serde::{Deserialize, Serialize};

/// How many segments a memory may have.
pub const SEGMENTS_MAX: usize = 64;

/// What the holder of a handle may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Rights {
    /// Pull from it.
    Read,
    /// Push into it.
    Write,
    /// Both.
    ReadWrite,
}

impl Rights {
    /// Whether they allow to pull.
    #[must_use]
    pub fn may_read(self) -> bool {
        self != Rights::Write
    }

    /// Whether they allow to push.
    #[must_use]
    pub fn may_write(self) -> bool {
        self != Rights::Read
    }
}

/// Memory that an endpoint has registered, as others know it: to be sent to them like any argument.
///
/// It says nothing of where the memory is, and is worth nothing to who is not connected to that endpoint.
/// Whatever a handle says is held against what is registered, by the endpoint that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BulkHandle {
    pub(crate) id: u64,
    pub(crate) key: u128,
    pub(crate) bytes: u64,
    pub(crate) rights: Rights,
}

impl BulkHandle {
    /// How long the memory is.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.bytes
    }

    /// What may be done with it.
    #[must_use]
    pub fn rights(&self) -> Rights {
        self.rights
    }
}

/// Whether `bytes` from `offset` on lie within `total_bytes`.
#[must_use]
pub fn is_within(offset: u64, bytes: u64, total_bytes: u64) -> bool {
    offset.checked_add(bytes).is_some_and(|end| end <= total_bytes)
}

/// Why the owner of a memory refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum BulkRefusal {
    /// No memory of that handle is registered, or not any more.
    #[error("no such memory is registered there")]
    Unknown,
    /// The handle does not give this right.
    #[error("the handle does not give this right")]
    Rights,
    /// Beyond the end of the memory.
    #[error("the place lies outside of the memory")]
    Outside,
    /// As many transfers are under way as there may be, or descriptors are short.
    #[error("too much is under way there")]
    Full,
}

/// Which file it is, of all of a machine's: files that are passed can be lost on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    /// The number of its file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// Where a segment is, to who shares memory with its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Located {
    /// In one of the files that are passed. If that did not arrive, it cannot be reached this way.
    File {
        /// How long it is.
        bytes: u64,
        /// Which file.
        file: FileId,
    },
    /// In the owner's address space.
    Process {
        /// Where it begins.
        address: u64,
        /// How long it is.
        bytes: u64,
    },
}

impl Located {
    /// How long the segment is.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match *self {
            Located::File { bytes, .. } | Located::Process { bytes, .. } => bytes,
        }
    }
}

/// A word in the owner's address space: who can read it there looks into the right process, and may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Where it is.
    pub address: u64,
    /// What is there.
    pub word: u128,
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BulkMessage {
    /// To the owner: that memory is wanted.
    Attach(BulkHandle),
    /// To who has asked: here it is.
    Attached {
        /// Of the handle.
        id: u64,
        /// Where it is.
        segments: Vec<Located>,
        /// For segments in the owner's address space.
        proof: Proof,
    },
    /// To who has asked: no.
    AttachRefused {
        /// Of the handle.
        id: u64,
        /// Why.
        why: BulkRefusal,
    },
    /// To who has it: it is withdrawn.
    Detach {
        /// Of the handle.
        id: u64,
    },
    /// To the owner: nothing of it is used here any more.
    Detached {
        /// Of the handle.
        id: u64,
    },
    /// To the owner: a piece of it is wanted.
    Read {
        /// As who asks counts them.
        transfer: u64,
        /// Whose piece.
        handle: BulkHandle,
        /// Where it begins.
        offset: u64,
        /// How long it is.
        bytes: u64,
    },
    /// To the owner: a piece of it comes.
    Write {
        /// As who asks counts them.
        transfer: u64,
        /// Whose piece.
        handle: BulkHandle,
        /// Where it begins.
        offset: u64,
        /// How long it is.
        bytes: u64,
    },
    /// From the owner: all of it has come, or was copied.
    Done {
        /// Of the `Write` or the `Help`.
        transfer: u64,
    },
    /// From the owner: no.
    Refused {
        /// Of the `Read`, the `Write` or the `Help`.
        transfer: u64,
        /// Why.
        why: BulkRefusal,
    },
    /// To the owner: it is not wanted any more.
    Cancel {
        /// Of the `Read`, the `Write` or the `Help`.
        transfer: u64,
    },
    /// To the owner: copy this piece yourself, between your memory and the asker's.
    Help {
        /// As who asks counts them.
        transfer: u64,
        /// The owner's memory.
        handle: BulkHandle,
        /// Where the piece begins in it.
        offset: u64,
        /// The asker's memory.
        into: BulkHandle,
        /// Where the piece begins in that.
        into_offset: u64,
        /// How long it is.
        bytes: u64,
        /// Whether the owner's memory is read, and not written.
        pulls: bool,
    },
}

/// Numbers of transfers are below: the bit above says in data whose number it is.
pub const TRANSFER_LIMIT: u64 = 1 << 63;

impl BulkMessage {
    /// As bytes, behind what is in `into`.
    #[must_use]
    pub fn encode(&self, into: Vec<u8>) -> Vec<u8> {
        // Fails for types that do not know their length, and these do.
        postcard::to_extend(self, into).unwrap_or_default()
    }

    /// From bytes of a peer.
    ///
    /// # Errors
    /// [`FrameError`] when they are none, or say what cannot be.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let (message, rest) =
            postcard::take_from_bytes::<Self>(bytes).map_err(|_| FrameError::Bulk)?;
        let is_sound = rest.is_empty()
            && match &message {
                Self::Attached { segments, .. } => {
                    segments.len() <= SEGMENTS_MAX && total_bytes(segments).is_some()
                }
                Self::Read { transfer, .. }
                | Self::Write { transfer, .. }
                | Self::Done { transfer }
                | Self::Refused { transfer, .. }
                | Self::Cancel { transfer }
                | Self::Help { transfer, .. } => *transfer < TRANSFER_LIMIT,
                _ => true,
            };
        if is_sound { Ok(message) } else { Err(FrameError::Bulk) }
    }
}

/// How long they are together; `None` where counting or their addresses begin again.
#[must_use]
pub fn total_bytes(segments: &[Located]) -> Option<u64> {
    segments.iter().try_fold(0u64, |sum, segment| {
        if let Located::Process { address, bytes } = segment {
            address.checked_add(*bytes)?;
        }
        sum.checked_add(segment.bytes()).filter(|&sum| sum <= i64::MAX as u64)
    })
}

/// Data that is expected, in order and no more of it than was agreed.
///
/// ```
/// use handover_rpc::engine::Arrival;
/// let mut arrival = Arrival::new(10);
/// assert!(!arrival.accepts(0, 11), "more than was agreed");
/// assert!(arrival.accepts(0, 6) && !arrival.is_whole());
/// assert!(!arrival.accepts(0, 4), "it has come");
/// assert!(arrival.accepts(6, 4) && arrival.is_whole());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    came_bytes: u64,
    bytes: u64,
}

impl Arrival {
    /// So much is to come.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { came_bytes: 0, bytes }
    }

    /// Whether this piece is the next one, which then counts as come.
    pub fn accepts(&mut self, offset: u64, bytes: u64) -> bool {
        let fits = offset == self.came_bytes && is_within(offset, bytes, self.bytes);
        if fits {
            self.came_bytes += bytes;
        }
        fits
    }

    /// Whether all has come.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.came_bytes == self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn handle() -> BulkHandle {
        BulkHandle { id: 3, key: u128::MAX - 5, bytes: 1 << 40, rights: Rights::Write }
    }

    #[test]
    fn every_message_comes_back() {
        let transfer = TRANSFER_LIMIT - 1;
        let (handle, offset, bytes) = (handle(), 7, u64::MAX);
        let file = FileId { device: 1, inode: u64::MAX };
        let segments =
            vec![Located::File { bytes: 9, file }, Located::Process { address: 1 << 47, bytes: 1 }];
        let proof = Proof { address: 5, word: 6 };
        let why = BulkRefusal::Outside;
        for message in [
            BulkMessage::Attach(handle),
            BulkMessage::Attached { id: 3, segments, proof },
            BulkMessage::AttachRefused { id: 3, why },
            BulkMessage::Detach { id: 3 },
            BulkMessage::Detached { id: 3 },
            BulkMessage::Read { transfer, handle, offset, bytes },
            BulkMessage::Write { transfer, handle, offset, bytes },
            BulkMessage::Done { transfer },
            BulkMessage::Refused { transfer, why },
            BulkMessage::Cancel { transfer },
            BulkMessage::Help {
                transfer,
                handle,
                offset,
                into: BulkHandle { id: 4, ..handle },
                into_offset: 8,
                bytes,
                pulls: true,
            },
        ] {
            let mut encoded = message.encode(Vec::new());
            assert_eq!(BulkMessage::decode(&encoded), Ok(message));
            encoded.push(0);
            assert_eq!(BulkMessage::decode(&encoded), Err(FrameError::Bulk), "with more behind it");
        }
    }

    #[test]
    fn the_longest_message_is_as_long_as_may_be() {
        let (file, word) = (FileId { device: u64::MAX, inode: u64::MAX }, u128::MAX);
        let segments = vec![Located::File { bytes: u64::MAX, file }; SEGMENTS_MAX];
        let proof = Proof { address: u64::MAX, word };
        let encoded = BulkMessage::Attached { id: u64::MAX, segments, proof }.encode(Vec::new());
        assert!(encoded.len() <= crate::engine::BULK_BYTES_MAX as usize, "{}", encoded.len());
    }

    #[test]
    fn what_cannot_be_is_no_message() {
        let proof = Proof { address: 0, word: 0 };
        let attached = |segments| BulkMessage::Attached { id: 0, segments, proof };
        let file = FileId { device: 1, inode: 2 };
        for message in [
            BulkMessage::Done { transfer: TRANSFER_LIMIT },
            attached(vec![Located::File { bytes: 1, file }; SEGMENTS_MAX + 1]),
            attached(vec![Located::File { bytes: u64::MAX / 2, file }; 3]),
            attached(vec![Located::Process { address: u64::MAX, bytes: 1 }]),
        ] {
            let encoded = message.encode(Vec::new());
            assert_eq!(BulkMessage::decode(&encoded), Err(FrameError::Bulk), "{message:?}");
        }
    }

    proptest! {
        #[test]
        fn a_place_is_within_as_whole_numbers_say(offset: u64, bytes: u64, total: u64) {
            let end = u128::from(offset) + u128::from(bytes);
            prop_assert_eq!(is_within(offset, bytes, total), end <= u128::from(total));
        }

        #[test]
        fn rubbish_is_refused_or_comes_back(bytes: Vec<u8>) {
            if let Ok(message) = BulkMessage::decode(&bytes) {
                prop_assert_eq!(BulkMessage::decode(&message.encode(Vec::new())), Ok(message));
            }
        }

        #[test]
        fn arrivals_are_in_order_and_no_more_than_agreed(
            total in 0u64..100, pieces in proptest::collection::vec((0u64..110, 0u64..60), 0..20),
        ) {
            let (mut arrival, mut came) = (Arrival::new(total), 0);
            for (offset, bytes) in pieces {
                let before = came;
                if arrival.accepts(offset, bytes) {
                    prop_assert_eq!(offset, before);
                    came += bytes;
                }
                prop_assert!(came <= total);
                prop_assert_eq!(arrival.is_whole(), came == total);
            }
        }
    }
}
