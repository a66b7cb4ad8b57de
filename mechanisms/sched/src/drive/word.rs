//! Packet descriptions in a word, as they go through a mailbox.
//!
//! ```text
//! 63    62       46      26     0
//! │ lane │ dropped │ length │ flow │ tag │
//! ```

/// Exclusive upper bound of flow numbers.
pub const FLOWS_MAX: u32 = 1 << 20;

/// Maximum length in bytes of a packet in a mailbox.
pub const LENGTH_MAX_BYTES: u32 = 65_535;

/// Exclusive upper bound of tags ([`Offer::tag`]).
pub const TAGS_MAX: u32 = 1 << 26;

/// Position of the flow number's lowest bit in a packed packet.
const FLOW_SHIFT: u32 = 26;
/// Position of the length's lowest bit in a packed packet.
const LENGTH_SHIFT: u32 = 46;
/// Flag of a packed packet that the arbiter has dropped.
const DROPPED_BIT: u64 = 1 << 62;

/// Packet that a client sends to be scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Number of the packet's flow in the scheduler, below [`FLOWS_MAX`]. Packets of one flow leave
    /// in the order in which they were sent if one client sends them.
    pub flow: u32,
    /// Length in bytes, in `1..=LENGTH_MAX_BYTES`.
    pub length_bytes: u32,
    /// Value chosen by the caller, below [`TAGS_MAX`], for example the number of the packet's
    /// buffer.
    pub tag: u32,
}

/// Packet that the arbiter has released for transmission.
pub type Departure = Offer;

impl Offer {
    /// Returns `true` if every field is in its range. The packet can then be packed into a word.
    #[inline(always)]
    pub(super) fn fits(&self) -> bool {
        let length_fits = self.length_bytes.wrapping_sub(1) < LENGTH_MAX_BYTES;
        self.flow < FLOWS_MAX && self.tag < TAGS_MAX && length_fits
    }

    #[inline(always)]
    pub(super) fn pack(&self) -> u64 {
        debug_assert!(self.fits());
        u64::from(self.tag)
            | u64::from(self.flow) << FLOW_SHIFT
            | u64::from(self.length_bytes) << LENGTH_SHIFT
    }

    /// Packs the packet into a word, with the flag that the arbiter has dropped the packet.
    #[inline(always)]
    pub(super) fn pack_dropped(&self) -> u64 {
        self.pack() | DROPPED_BIT
    }

    #[inline(always)]
    pub(super) fn length_bytes_of(word: u64) -> u32 {
        (word >> LENGTH_SHIFT) as u32 & LENGTH_MAX_BYTES
    }

    /// Unpacks the packet in `word`; returns it, with `true` if the arbiter dropped it.
    #[inline(always)]
    pub(super) fn unpack(word: u64) -> (Self, bool) {
        let tag = word as u32 & ((1 << FLOW_SHIFT) - 1);
        let flow = (word >> FLOW_SHIFT) as u32 & (FLOWS_MAX - 1);
        let length_bytes = Self::length_bytes_of(word);
        (Self { flow, length_bytes, tag }, word & DROPPED_BIT != 0)
    }
}

/// Identity of a packet in an arbiter's scheduler: the client, and the client's tag.
///
/// One word instead of two halves, so that it is written and read at once: a read of one word right
/// after a write of its two halves has to wait until both have reached the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(u64);

impl Token {
    /// Creates a token, for a scheduler used without an arbiter.
    #[inline(always)]
    pub const fn new(client: u32, tag: u32) -> Self {
        Self((client as u64) << 32 | tag as u64)
    }

    /// Returns the index of the client's port in the arbiter.
    #[inline(always)]
    pub(super) fn client(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the client's tag; with stamping, the index of the packet's stamps.
    #[inline(always)]
    pub(super) fn tag(self) -> u32 {
        self.0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_packet_unpacks_to_the_same_packet() {
        for flow in [0, 1, 999_999, FLOWS_MAX - 1] {
            for length_bytes in [1, 64, 1500, LENGTH_MAX_BYTES] {
                for tag in [0, 1, TAGS_MAX - 1] {
                    let offer = Offer { flow, length_bytes, tag };
                    assert!(offer.fits());
                    assert_eq!(Offer::unpack(offer.pack()), (offer, false));
                    assert_eq!(Offer::unpack(offer.pack_dropped()), (offer, true));
                    assert_eq!(offer.pack_dropped() >> 63, 0);
                }
            }
        }
    }

    #[test]
    fn packet_outside_the_limits_does_not_fit() {
        let fine = Offer { flow: 0, length_bytes: 1, tag: 0 };
        assert!(!Offer { flow: FLOWS_MAX, ..fine }.fits());
        assert!(!Offer { length_bytes: 0, ..fine }.fits());
        assert!(!Offer { length_bytes: LENGTH_MAX_BYTES + 1, ..fine }.fits());
        assert!(!Offer { tag: TAGS_MAX, ..fine }.fits());
    }
}
