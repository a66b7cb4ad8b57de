//! Messages about bulk transfers, and checks of their contents.
//!
//! ```text
//!  requester                                    owner
//!  shared memory:  Attach ───────────────▶  looks up the handle, its key and its rights
//!                  maps it    ◀──────────── Attached, and the files
//!                  copies, as often as it likes, until Detach
//!                  Help   ───────────────▶  copies a piece itself, the requester's memory attached likewise
//!                             ◀──────────── Done
//!  UCX:            Attach ───────────────▶  looks up the handle, its key and its rights
//!                  gets, puts ◀──────────── AttachedRemote, as often as it likes, until Detach
//!  streams:        Read   ───────────────▶  looks up the handle, its key, its rights, the place
//!                  receives   ◀──────────── data, piece by piece
//!                  Write, data ──────────▶  checks the same, receives
//!                             ◀──────────── Done
//! ```

use crate::{BulkRefusal, FrameError};
use serde::{Deserialize, Serialize};

/// Maximum number of segments of a memory.
pub const BULK_SEGMENTS_MAX: usize = 64;

/// Access rights that a handle gives to its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Rights {
    /// The holder may pull from the memory.
    Read,
    /// The holder may push into the memory.
    Write,
    /// The holder may pull and push.
    ReadWrite,
}

impl Rights {
    /// Returns `true` if the holder may pull.
    #[must_use]
    pub fn may_read(self) -> bool {
        self != Rights::Write
    }

    /// Returns `true` if the holder may push.
    #[must_use]
    pub fn may_write(self) -> bool {
        self != Rights::Read
    }
}

/// Handle of a memory that an endpoint has registered, to be sent to peers like any argument.
///
/// A handle contains no address, and can be used only by peers that are connected to its endpoint.
/// The owner checks every use against its registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BulkHandle {
    /// Id of the memory, assigned by its endpoint.
    pub(crate) id: u64,
    /// Random number that a peer cannot guess.
    pub(crate) key: u128,
    /// Length of the memory, in bytes.
    pub(crate) bytes: u64,
    pub(crate) rights: Rights,
}

impl BulkHandle {
    /// Returns the length of the memory, in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the access rights of the holder.
    #[must_use]
    pub fn rights(&self) -> Rights {
        self.rights
    }
}

/// Returns `true` if the `bytes` bytes from `offset` on lie within `total_bytes`.
#[must_use]
pub fn is_range_within(offset: u64, bytes: u64, total_bytes: u64) -> bool {
    offset.checked_add(bytes).is_some_and(|end| end <= total_bytes)
}

/// Identity of a file on this machine. A receiver notices by it that a passed descriptor was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    /// Device number of the file's file system.
    pub device: u64,
    /// Inode number of the file.
    pub inode: u64,
}

/// Location of a memory segment for a peer on the same machine. It is in a file, or in the owner's
/// address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SegmentLocation {
    /// Segment in a file that is passed to the peer. If the file did not arrive, the segment cannot
    /// be mapped.
    File {
        /// Length of the segment, in bytes.
        bytes: u64,
        /// Identity of the file that contains the segment.
        file: FileId,
    },
    /// Segment in the owner's address space.
    Process {
        /// Start address of the segment.
        address: u64,
        /// Length of the segment, in bytes.
        bytes: u64,
    },
}

impl SegmentLocation {
    /// Returns the length of the segment, in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        match *self {
            SegmentLocation::File { bytes, .. } | SegmentLocation::Process { bytes, .. } => bytes,
        }
    }
}

/// Segment of a memory, with the key by which a peer's transport accesses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyedSegment {
    /// Start address of the segment in the owner's address space.
    pub address: u64,
    /// Length of the segment, in bytes.
    pub bytes: u64,
    /// Packed key of the owner's transport for the segment.
    pub key: Vec<u8>,
}

/// Random word in the owner's address space. A peer checks with it that it accesses the right
/// process. A peer that reads the expected word there may also read the process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckWord {
    /// Address of the word in the owner's address space.
    pub address: u64,
    /// Expected value of the word.
    pub word: u128,
}

/// Request that the owner copies a range to or from the requester's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelpRequest {
    /// Number of the transfer, assigned by the requester.
    pub transfer: u64,
    /// Handle of the owner's memory.
    pub handle: BulkHandle,
    /// Offset of the range in the owner's memory, in bytes.
    pub offset: u64,
    /// Handle of the requester's memory.
    pub into: BulkHandle,
    /// Offset of the range in the requester's memory, in bytes.
    pub into_offset: u64,
    /// Length of the range, in bytes.
    pub bytes: u64,
    /// `true` if the owner's memory is the source of the copy, `false` if it is the target.
    pub pulls: bool,
}

/// Message about a bulk transfer. The requester is the peer that pulls or pushes; the owner is the
/// peer whose memory it uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BulkMessage {
    /// Requester to owner: requests access to the memory.
    Attach(BulkHandle),
    /// Owner to requester: grants access, with the location of the memory.
    Attached {
        /// Id of the memory's handle.
        id: u64,
        /// Locations of the memory's segments.
        segments: Vec<SegmentLocation>,
        /// Check word for segments in the owner's address space.
        check_word: CheckWord,
    },
    /// Owner to requester: refuses an `Attach`.
    AttachRefused {
        /// Id of the memory's handle.
        id: u64,
        /// Reason of the refusal.
        why: BulkRefusal,
    },
    /// Owner to requester: the memory is being withdrawn.
    Detach {
        /// Id of the memory's handle.
        id: u64,
    },
    /// Requester to owner: the memory is no longer used.
    Detached {
        /// Id of the memory's handle.
        id: u64,
    },
    /// Requester to owner: requests the data of a range.
    Read {
        /// Number of the transfer, assigned by the requester.
        transfer: u64,
        /// Handle of the memory to read.
        handle: BulkHandle,
        /// Offset of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes.
        bytes: u64,
    },
    /// Requester to owner: announces data for a range.
    Write {
        /// Number of the transfer, assigned by the requester.
        transfer: u64,
        /// Handle of the memory to write.
        handle: BulkHandle,
        /// Offset of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes.
        bytes: u64,
    },
    /// Owner to requester: all data has arrived, or was copied.
    Done {
        /// Transfer number of the `Write`, of the `Help`, or of a `Read` of 0 bytes.
        transfer: u64,
    },
    /// Owner to requester: refuses a transfer.
    Refused {
        /// Transfer number of the `Read`, the `Write` or the `Help`.
        transfer: u64,
        /// Reason of the refusal.
        why: BulkRefusal,
    },
    /// Requester to owner: cancels a transfer.
    Cancel {
        /// Transfer number of the `Read`, the `Write` or the `Help`.
        transfer: u64,
    },
    /// Requester to owner: asks the owner to copy a range to or from the requester's memory.
    Help(HelpRequest),
    /// Owner to requester: grants access through the transport. Without segments, the data must be
    /// sent in messages.
    AttachedRemote {
        /// Id of the memory's handle.
        id: u64,
        /// Segments of the memory that are not empty.
        segments: Vec<KeyedSegment>,
    },
}

/// Exclusive upper limit of transfer numbers. In data frames, the bit above them says which peer
/// assigned the number.
pub const TRANSFER_NUMBER_LIMIT: u64 = 1 << 63;

impl BulkMessage {
    /// Appends the encoded message to `into`, and returns the vector.
    #[must_use]
    pub fn encode(&self, into: Vec<u8>) -> Vec<u8> {
        // Encoding fails only for types that do not know their length; these do.
        postcard::to_extend(self, into).unwrap_or_default()
    }

    /// Decodes a message of a peer.
    ///
    /// # Errors
    /// [`FrameError`] if the bytes are not a message, or the message has invalid contents.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let (message, rest) =
            postcard::take_from_bytes::<Self>(bytes).map_err(|_| FrameError::Bulk)?;
        let is_sound = rest.is_empty()
            && match &message {
                Self::Attached { segments, .. } => {
                    segments.len() <= BULK_SEGMENTS_MAX && segments_total_bytes(segments).is_some()
                }
                Self::AttachedRemote { segments, .. } => {
                    segments.len() <= BULK_SEGMENTS_MAX && keyed_total_bytes(segments).is_some()
                }
                Self::Read { transfer, .. }
                | Self::Write { transfer, .. }
                | Self::Done { transfer }
                | Self::Refused { transfer, .. }
                | Self::Cancel { transfer }
                | Self::Help(HelpRequest { transfer, .. }) => *transfer < TRANSFER_NUMBER_LIMIT,
                _ => true,
            };
        if is_sound { Ok(message) } else { Err(FrameError::Bulk) }
    }
}

/// Returns the total length, in bytes, of the segments. Returns `None` if the total exceeds
/// `i64::MAX` or an address range overflows.
#[must_use]
pub fn segments_total_bytes(segments: &[SegmentLocation]) -> Option<u64> {
    segments.iter().try_fold(0u64, |sum, segment| {
        if let SegmentLocation::Process { address, bytes } = segment {
            address.checked_add(*bytes)?;
        }
        sum.checked_add(segment.len_bytes()).filter(|&sum| sum <= i64::MAX as u64)
    })
}

/// Returns the total length of the segments, in bytes. Returns `None` if the total exceeds
/// `i64::MAX` or an address range overflows.
#[must_use]
pub fn keyed_total_bytes(segments: &[KeyedSegment]) -> Option<u64> {
    segments.iter().try_fold(0u64, |sum, segment| {
        segment.address.checked_add(segment.bytes)?;
        sum.checked_add(segment.bytes).filter(|&sum| sum <= i64::MAX as u64)
    })
}

/// Check of the order and the total length of incoming data. Each piece must follow the previous
/// one, and their total must not exceed the agreed length.
///
/// ```
/// use handover_rpc::engine::ArrivalCheck;
/// let mut arrival = ArrivalCheck::new(10);
/// assert!(!arrival.accept_if_next(0, 11), "accepted a range beyond the agreed length");
/// assert!(arrival.accept_if_next(0, 6) && !arrival.is_complete());
/// assert!(!arrival.accept_if_next(0, 4), "accepted a range that has already arrived");
/// assert!(arrival.accept_if_next(6, 4) && arrival.is_complete());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrivalCheck {
    arrived_bytes: u64,
    /// Total length of the data, in bytes.
    bytes: u64,
}

impl ArrivalCheck {
    /// Starts to check data of `bytes` bytes in total.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { arrived_bytes: 0, bytes }
    }

    /// Counts a piece as arrived if it is the next one and within the agreed length. Returns `true`
    /// if it is.
    pub fn accept_if_next(&mut self, offset: u64, bytes: u64) -> bool {
        let fits = offset == self.arrived_bytes && is_range_within(offset, bytes, self.bytes);
        if fits {
            self.arrived_bytes += bytes;
        }
        fits
    }

    /// Returns `true` if all data has arrived.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.arrived_bytes == self.bytes
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
    fn encoded_message_decodes_to_the_same_message() {
        let transfer = TRANSFER_NUMBER_LIMIT - 1;
        let (handle, offset, bytes) = (handle(), 7, u64::MAX);
        let file = FileId { device: 1, inode: u64::MAX };
        let segments = vec![
            SegmentLocation::File { bytes: 9, file },
            SegmentLocation::Process { address: 1 << 47, bytes: 1 },
        ];
        let check_word = CheckWord { address: 5, word: 6 };
        let why = BulkRefusal::Outside;
        for message in [
            BulkMessage::Attach(handle),
            BulkMessage::Attached { id: 3, segments, check_word },
            BulkMessage::AttachRefused { id: 3, why },
            BulkMessage::Detach { id: 3 },
            BulkMessage::AttachedRemote {
                id: 3,
                segments: vec![KeyedSegment { address: 1 << 47, bytes: 1, key: vec![7; 90] }],
            },
            BulkMessage::Detached { id: 3 },
            BulkMessage::Read { transfer, handle, offset, bytes },
            BulkMessage::Write { transfer, handle, offset, bytes },
            BulkMessage::Done { transfer },
            BulkMessage::Refused { transfer, why },
            BulkMessage::Cancel { transfer },
            BulkMessage::Help(HelpRequest {
                transfer,
                handle,
                offset,
                into: BulkHandle { id: 4, ..handle },
                into_offset: 8,
                bytes,
                pulls: true,
            }),
        ] {
            let mut encoded = message.encode(Vec::new());
            assert_eq!(BulkMessage::decode(&encoded), Ok(message));
            encoded.push(0);
            assert_eq!(
                BulkMessage::decode(&encoded),
                Err(FrameError::Bulk),
                "decoded a message with trailing bytes"
            );
        }
    }

    #[test]
    fn longest_message_fits_the_limit() {
        let (file, word) = (FileId { device: u64::MAX, inode: u64::MAX }, u128::MAX);
        let segments = vec![SegmentLocation::File { bytes: u64::MAX, file }; BULK_SEGMENTS_MAX];
        let check_word = CheckWord { address: u64::MAX, word };
        let encoded =
            BulkMessage::Attached { id: u64::MAX, segments, check_word }.encode(Vec::new());
        assert!(
            encoded.len() <= crate::engine::BULK_MESSAGE_BYTES_MAX as usize,
            "{}",
            encoded.len()
        );
    }

    #[test]
    fn invalid_message_is_refused() {
        let check_word = CheckWord { address: 0, word: 0 };
        let attached = |segments| BulkMessage::Attached { id: 0, segments, check_word };
        let file = FileId { device: 1, inode: 2 };
        for message in [
            BulkMessage::Done { transfer: TRANSFER_NUMBER_LIMIT },
            attached(vec![SegmentLocation::File { bytes: 1, file }; BULK_SEGMENTS_MAX + 1]),
            attached(vec![SegmentLocation::File { bytes: u64::MAX / 2, file }; 3]),
            attached(vec![SegmentLocation::Process { address: u64::MAX, bytes: 1 }]),
        ] {
            let encoded = message.encode(Vec::new());
            assert_eq!(BulkMessage::decode(&encoded), Err(FrameError::Bulk), "{message:?}");
        }
    }

    proptest! {
        #[test]
        fn range_check_agrees_with_128_bit_arithmetic(offset: u64, bytes: u64, total: u64) {
            let end = u128::from(offset) + u128::from(bytes);
            prop_assert_eq!(is_range_within(offset, bytes, total), end <= u128::from(total));
        }

        #[test]
        fn random_bytes_are_refused_or_encode_to_the_same_bytes(bytes: Vec<u8>) {
            if let Ok(message) = BulkMessage::decode(&bytes) {
                prop_assert_eq!(BulkMessage::decode(&message.encode(Vec::new())), Ok(message));
            }
        }

        #[test]
        fn arrivals_are_in_order_and_no_more_than_agreed(
            total in 0u64..100, pieces in proptest::collection::vec((0u64..110, 0u64..60), 0..20),
        ) {
            let (mut arrival, mut came) = (ArrivalCheck::new(total), 0);
            for (offset, bytes) in pieces {
                let before = came;
                if arrival.accept_if_next(offset, bytes) {
                    prop_assert_eq!(offset, before);
                    came += bytes;
                }
                prop_assert!(came <= total);
                prop_assert_eq!(arrival.is_complete(), came == total);
            }
        }
    }
}
