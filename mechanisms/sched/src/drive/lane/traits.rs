//! Traits of a lane and of its two ends.

/// Greatest number of slots of a lane.
pub const LANE_SLOTS_MAX: u32 = 1 << 24;

/// Bit of a slot's first word that is reserved for the lane.
pub const LANE_BIT: u64 = 1 << 63;

/// Error of making a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// The number of slots is outside its range.
    #[error("mailbox_slots_count={slots_count}: must lie in 1..={LANE_SLOTS_MAX}")]
    Slots {
        /// The requested number.
        slots_count: u32,
    },
}

/// Layout of the slots between two threads.
pub trait Lane: Send + Sync + 'static {
    /// Name in tables.
    const NAME: &'static str;
    /// End that pushes slots of `W` words.
    type Sender<const W: usize>: LaneSender<W>;
    /// End that pops slots of `W` words.
    type Receiver<const W: usize>: LaneReceiver<W>;

    /// Makes a lane of at least `slots_count` slots: exactly as many with [`Laps`](super::Laps),
    /// [`Plain`](super::Plain) and [`Cached`](super::Cached); the others round up to whole lines.
    ///
    /// # Errors
    /// [`LaneError`].
    #[allow(clippy::type_complexity)]
    fn pair<const W: usize>(
        slots_count: u32,
    ) -> Result<(Self::Sender<W>, Self::Receiver<W>), LaneError>;
}

/// Pushing end of a lane.
pub trait LaneSender<const W: usize>: Send + 'static {
    /// `true` if [`publish`](Self::publish) has an effect.
    const NEEDS_PUBLISH: bool = true;

    /// Pushes a slot, with bit 63 of its first word zero; returns `false` if the lane is full, or
    /// looked full.
    ///
    /// The receiver sees the slot at the next [`publish`](Self::publish) at the latest.
    fn push(&mut self, words: [u64; W]) -> bool;

    /// Pushes as many of these slots, in order, as fit; returns their number.
    #[inline(always)]
    fn push_all(&mut self, slots: &[[u64; W]]) -> usize {
        slots.iter().take_while(|&&words| self.push(words)).count()
    }

    /// Returns `true` if a push would succeed. `true` holds until this end pushes; `false` may be
    /// stale.
    fn has_free_slot(&mut self) -> bool;

    /// Returns a number of pushes that would succeed: not zero if [`has_free_slot`] is `true`.
    /// `slots_count` is the number wanted; the result may be greater.
    ///
    /// [`has_free_slot`]: Self::has_free_slot
    #[inline(always)]
    fn free_count(&mut self, _slots_count: usize) -> usize {
        usize::from(self.has_free_slot())
    }

    /// Makes all pushed slots visible to the receiver.
    fn publish(&mut self);
}

/// Popping end of a lane.
pub trait LaneReceiver<const W: usize>: Send + 'static {
    /// Pops the oldest slot, with bit 63 of its first word zero, if there is one.
    fn pop(&mut self) -> Option<[u64; W]>;

    /// Pops slots in order, as many as there are and `slots` has room for; returns their number.
    #[inline(always)]
    fn pop_all(&mut self, slots: &mut [[u64; W]]) -> usize {
        let mut popped = 0;
        for slot in slots {
            let Some(words) = self.pop() else { break };
            *slot = words;
            popped += 1;
        }
        popped
    }

    /// Announces that no pop follows soon, so that the sender learns of the free slots.
    fn release(&mut self);
}

/// Checks that a lane may have this number of slots.
pub(super) fn validate(slots_count: u32) -> Result<(), LaneError> {
    match (1..=LANE_SLOTS_MAX).contains(&slots_count) {
        true => Ok(()),
        false => Err(LaneError::Slots { slots_count }),
    }
}
