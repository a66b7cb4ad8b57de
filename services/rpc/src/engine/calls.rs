//! Table of calls that wait for answers.

use super::frame::Refusal;
use crate::{CallError, CloseReason, Failure};

/// Key of a connected peer. It is the index of its slot, and the number of earlier uses of the
/// slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerKey {
    /// Index of the peer's slot in the table.
    pub slot: u32,
    /// Number of earlier uses of the slot.
    pub generation: u32,
}

/// Identifier of a call, encoded in frames. It is the index of the call's slot in the caller's
/// table, and the number of earlier uses of the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId(u64);

impl CallId {
    /// Returns the call ID as encoded in a frame.
    #[inline]
    #[must_use]
    pub fn word(self) -> u64 {
        self.0
    }

    #[inline]
    fn new(slot: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(slot))
    }

    #[inline]
    fn slot(self) -> u32 {
        // Truncates to the lower 32 bits, which hold the slot.
        self.0 as u32
    }
}

/// Placeholder, used only within an endpoint, for the number of a one-way call. It also stands for
/// the number of a call that has not started.
pub const ONE_WAY_CALL_NUMBER: u64 = u64::MAX;

/// Outcome of a call at its caller: result, refusal, or disconnection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallCompletion {
    /// The call succeeded; the body is the result.
    Result,
    /// The peer refused the call; the body may contain the reason.
    Refused(Refusal),
    /// The connection was closed before the answer arrived.
    Disconnected(CloseReason),
}

impl CallCompletion {
    /// Converts the outcome to the result of the call; `read` decodes its body.
    #[inline]
    pub(crate) fn into_result<T>(
        self,
        body: &[u8],
        read: impl FnOnce(&[u8]) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        match self {
            CallCompletion::Result => read(body),
            CallCompletion::Refused(refusal) => Err(refusal_error(refusal, body)),
            CallCompletion::Disconnected(gone) => Err(gone.into()),
        }
    }
}

#[cold]
fn refusal_error(refusal: Refusal, body: &[u8]) -> CallError {
    match refusal {
        Refusal::Unknown => CallError::Unknown,
        Refusal::BadArguments => CallError::BadArguments,
        Refusal::Panicked => CallError::Panicked,
        Refusal::TooLong => CallError::ResultTooLong,
        Refusal::Full => CallError::PeerFull,
        Refusal::Unsent => CallError::ResultUnsent,
        Refusal::Failed => {
            postcard::from_bytes::<Failure>(body).map_or(CallError::BadResult, CallError::Failed)
        }
    }
}

/// State of a slot in the table of calls.
#[derive(Debug)]
enum SlotState {
    /// The slot is in the list of free slots.
    Free {
        /// Index of the next free slot; [`NO_SLOT`] at the end of the list.
        next: u32,
    },
    Pending,
    Done(CallCompletion),
}

/// Slot for a call in the table.
#[derive(Debug)]
struct CallSlot {
    generation: u32,
    peer: PeerKey,
    /// Deadline of the call, in ns; `u64::MAX` for none.
    deadline_ns: u64,
    state: SlotState,
    /// Body of the answer. Its memory is reused for the slot's next call.
    body: Vec<u8>,
}

/// Maximum capacity of a result buffer that is kept for the next call, in bytes.
const BODY_KEPT_BYTES_MAX: usize = 1 << 16;
/// Maximum total capacity of the result buffers in free slots, in bytes.
const BODIES_KEPT_BYTES_MAX: usize = 1 << 20;
/// Value in place of a slot's index if there is no slot.
const NO_SLOT: u32 = u32::MAX;

/// Table of an endpoint's calls that are pending, or complete and not returned yet.
///
/// A call keeps its slot until its outcome is taken or the call is removed. An answer that comes
/// later finds another generation in the slot, and is dropped. An answer counts only if it comes
/// from the peer that was called.
///
/// ```
/// use handover_rpc::engine::{Calls, CallCompletion, PeerKey};
/// let (peer, other) = (PeerKey { slot: 0, generation: 0 }, PeerKey { slot: 1, generation: 0 });
/// let mut calls = Calls::new(10);
/// let id = calls.start(peer, u64::MAX).expect("start a call");
/// assert!(!calls.complete_call(id.word(), other, CallCompletion::Result, b"forged"));
/// assert!(calls.complete_call(id.word(), peer, CallCompletion::Result, b"42"));
/// assert_eq!(calls.take_completed(id, |outcome, body| (outcome, body.to_vec())),
///     Some((CallCompletion::Result, b"42".to_vec())));
/// assert!(!calls.complete_call(id.word(), peer, CallCompletion::Result, b"twice"));
/// ```
#[derive(Debug)]
pub struct Calls {
    slots: Vec<CallSlot>,
    /// Index of the first free slot; [`NO_SLOT`] if there is none.
    first_free: u32,
    calls_max: u32,
    under_way_count: u32,
    /// Number of answers that arrived for no pending call.
    late_count: u64,
    /// Total capacity of the result buffers in free slots, in bytes.
    kept_bytes: usize,
}

impl Calls {
    /// Creates a table of at most `calls_max` calls. Memory grows with the highest number of
    /// concurrent calls.
    #[must_use]
    pub fn new(calls_max: u32) -> Self {
        Self {
            slots: Vec::new(),
            first_free: NO_SLOT,
            calls_max,
            under_way_count: 0,
            late_count: 0,
            kept_bytes: 0,
        }
    }

    /// Adds a pending call to `peer`, and returns its identifier. Returns `None` if `calls_max`
    /// calls are in the table.
    #[inline]
    pub fn start(&mut self, peer: PeerKey, deadline_ns: u64) -> Option<CallId> {
        if self.first_free == NO_SLOT {
            self.grow()?;
        }
        let index = self.first_free;
        let slot = &mut self.slots[index as usize];
        let SlotState::Free { next } = slot.state else {
            unreachable!("a slot of the free list is in use")
        };
        self.first_free = next;
        self.under_way_count += 1;
        self.kept_bytes -= slot.body.capacity();
        slot.state = SlotState::Pending;
        slot.peer = peer;
        slot.deadline_ns = deadline_ns;
        Some(CallId::new(index, slot.generation))
    }

    /// Adds a free slot; returns `None` if there are `calls_max` slots.
    #[cold]
    fn grow(&mut self) -> Option<()> {
        let index = u32::try_from(self.slots.len()).ok().filter(|&it| it < self.calls_max)?;
        self.slots.push(CallSlot {
            generation: 0,
            peer: PeerKey { slot: NO_SLOT, generation: 0 },
            deadline_ns: u64::MAX,
            state: SlotState::Free { next: self.first_free },
            body: Vec::new(),
        });
        self.first_free = index;
        Some(())
    }

    #[inline]
    fn slot(&self, id: CallId) -> Option<&CallSlot> {
        let slot = self.slots.get(id.slot() as usize)?;
        let same = CallId::new(id.slot(), slot.generation) == id;
        (same && !matches!(slot.state, SlotState::Free { .. })).then_some(slot)
    }

    /// Stores the outcome of a call whose number a peer has sent. Returns `false` if no such call
    /// is pending, or if another peer was called.
    #[inline]
    pub fn complete_call(
        &mut self,
        id: u64,
        peer: PeerKey,
        outcome: CallCompletion,
        body: &[u8],
    ) -> bool {
        let id = CallId(id);
        if !self.is_pending(id, peer) {
            self.late_count += 1;
            return false;
        }
        let slot = &mut self.slots[id.slot() as usize];
        slot.state = SlotState::Done(outcome);
        slot.body.clear();
        slot.body.extend_from_slice(body);
        true
    }

    /// Returns `Some(true)` if the outcome of a call is stored, `Some(false)` if the call is
    /// pending. Returns `None` if the call is not in the table.
    #[inline]
    #[must_use]
    pub fn is_done(&self, id: CallId) -> Option<bool> {
        self.slot(id).map(|slot| matches!(slot.state, SlotState::Done(_)))
    }

    /// Returns `true` if the call was made to that peer and is not answered yet.
    #[inline]
    #[must_use]
    pub fn is_pending(&self, id: CallId, peer: PeerKey) -> bool {
        self.slot(id).is_some_and(|it| it.peer == peer && matches!(it.state, SlotState::Pending))
    }

    /// Returns the deadline of a call in ns, `u64::MAX` for none. Returns `None` if the call is not
    /// in the table.
    #[inline]
    #[must_use]
    pub fn deadline_ns(&self, id: CallId) -> Option<u64> {
        self.slot(id).map(|slot| slot.deadline_ns)
    }

    /// Returns the peer that was called; `None` if the call is not in the table.
    #[must_use]
    pub fn peer(&self, id: CallId) -> Option<PeerKey> {
        self.slot(id).map(|slot| slot.peer)
    }

    /// Removes a completed call and passes its outcome and body to `read`. Returns `None` if the
    /// call is not complete.
    #[inline]
    pub fn take_completed<R>(
        &mut self,
        id: CallId,
        read: impl FnOnce(CallCompletion, &[u8]) -> R,
    ) -> Option<R> {
        if !self.is_done(id)? {
            return None;
        }
        let slot = &mut self.slots[id.slot() as usize];
        let state = std::mem::replace(&mut slot.state, SlotState::Free { next: self.first_free });
        let SlotState::Done(outcome) = state else {
            unreachable!("a call that is done has no outcome")
        };
        let read = read(outcome, &slot.body);
        self.vacate(id.slot());
        Some(read)
    }

    /// Removes a call in any state; a later answer is dropped. Returns `false` if the call is not
    /// in the table.
    #[inline]
    pub fn remove(&mut self, id: CallId) -> bool {
        let known = self.slot(id).is_some();
        if known {
            self.vacate(id.slot());
        }
        known
    }

    #[inline]
    /// Frees a slot, and keeps its result buffer if the limits allow this.
    fn vacate(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.state = SlotState::Free { next: self.first_free };
        slot.generation = slot.generation.wrapping_add(1);
        let bytes = slot.body.capacity();
        if bytes > BODY_KEPT_BYTES_MAX.min(BODIES_KEPT_BYTES_MAX - self.kept_bytes) {
            slot.body = Vec::new();
        } else {
            self.kept_bytes += bytes;
        }
        self.first_free = index;
        self.under_way_count -= 1;
    }

    /// Completes all pending calls to a disconnected peer with [`CallCompletion::Disconnected`].
    /// Returns their number.
    pub fn fail_calls_to(&mut self, peer: PeerKey, why: &CloseReason) -> usize {
        let mut failed = 0;
        for slot in &mut self.slots {
            if slot.peer == peer && matches!(slot.state, SlotState::Pending) {
                slot.state = SlotState::Done(CallCompletion::Disconnected(why.clone()));
                slot.body.clear();
                failed += 1;
            }
        }
        failed
    }

    /// Returns the number of calls that are pending, or complete and not returned by
    /// [`take_completed`](Self::take_completed).
    #[must_use]
    pub fn calls_count(&self) -> u32 {
        self.under_way_count
    }

    /// Returns the number of answers that arrived for no pending call.
    #[must_use]
    pub fn late_answers_count(&self) -> u64 {
        self.late_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerKey = PeerKey { slot: 3, generation: 1 };

    #[test]
    fn calls_max_is_enforced_and_slots_are_reused() {
        let mut calls = Calls::new(2);
        let (one, two) = (calls.start(PEER, 5), calls.start(PEER, 6));
        let (Some(one), Some(two)) = (one, two) else {
            panic!("a table of two calls refused the second")
        };
        assert_eq!(calls.start(PEER, 7), None);
        assert!(calls.remove(one) && !calls.remove(one));
        let three = calls.start(PEER, 8).expect("slot of a forgotten call");
        assert_ne!(three, one);
        assert_eq!([calls.deadline_ns(one), calls.deadline_ns(three)], [None, Some(8)]);
        assert_eq!((calls.is_done(two), calls.calls_count()), (Some(false), 2));
    }

    #[test]
    fn memory_kept_for_results_is_bounded_over_all_calls() {
        const RESULT_BYTES: usize = 60_000;
        let held = |calls: &Calls| calls.slots.iter().map(|it| it.body.capacity()).sum::<usize>();
        let mut calls = Calls::new(100);
        for round in 0..3 {
            let ids: Vec<CallId> = (0..100).map_while(|_| calls.start(PEER, 0)).collect();
            for id in &ids {
                assert!(calls.complete_call(
                    id.word(),
                    PEER,
                    CallCompletion::Result,
                    &[7; RESULT_BYTES]
                ));
            }
            assert!(held(&calls) >= 100 * RESULT_BYTES, "round {round}");
            for id in ids {
                assert_eq!(calls.take_completed(id, |_, body| body.len()), Some(RESULT_BYTES));
            }
            assert!(
                (RESULT_BYTES..=BODIES_KEPT_BYTES_MAX).contains(&held(&calls)),
                "round {round}"
            );
            assert_eq!(calls.kept_bytes, held(&calls));
        }
    }

    #[test]
    fn disconnected_peer_fails_its_own_pending_calls_only() {
        let mut calls = Calls::new(9);
        let other = PeerKey { generation: 2, ..PEER };
        let (its, others) = (calls.start(PEER, 0).unwrap(), calls.start(other, 0).unwrap());
        let done = calls.start(PEER, 0).unwrap();
        assert!(calls.complete_call(done.word(), PEER, CallCompletion::Result, b"x"));
        assert_eq!(calls.fail_calls_to(PEER, &CloseReason::ClosedByPeer), 1);
        assert_eq!(
            calls.take_completed(its, |it, _| it),
            Some(CallCompletion::Disconnected(CloseReason::ClosedByPeer))
        );
        assert_eq!(calls.take_completed(done, |it, _| it), Some(CallCompletion::Result));
        assert_eq!(calls.is_done(others), Some(false));
    }
}
