//! Who waits for which answer.

use super::frame::Refusal;
use crate::Gone;

/// A peer, as an endpoint counts them: its place, and how often that place was given away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerKey {
    /// Which place.
    pub place: u32,
    /// Whose turn in it.
    pub generation: u32,
}

/// A call, as its caller counts: its place, and how often that place was given away. As it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId(u64);

impl CallId {
    /// As it is sent.
    #[inline]
    #[must_use]
    pub fn word(self) -> u64 {
        self.0
    }

    #[inline]
    fn new(place: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(place))
    }

    #[inline]
    fn place(self) -> u32 {
        // Cut to its width.
        self.0 as u32
    }
}

/// How a call came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The body is the result.
    Result,
    /// The peer gives none; the body may say why.
    Refused(Refusal),
    /// The connection ended first.
    Gone(Gone),
}

#[derive(Debug)]
enum State {
    Free { next: u32 },
    Pending,
    Done(Outcome),
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    peer: PeerKey,
    /// `u64::MAX` for none.
    deadline_ns: u64,
    state: State,
    /// Kept when the call is over, for the next one's result.
    body: Vec<u8>,
}

/// Longest result whose memory is kept when a call is over.
const BODY_KEPT_BYTES: usize = 1 << 16;
/// Memory that is kept by all places that are free.
const BODIES_KEPT_BYTES: usize = 1 << 20;
const NONE: u32 = u32::MAX;

/// The calls under way of one caller.
///
/// A call keeps its place until it is taken; an answer that comes later finds another generation there, and
/// is dropped. An answer counts only if it comes from the peer that was asked.
///
/// ```
/// use handover_rpc::engine::{Calls, Outcome, PeerKey};
/// let (peer, other) = (PeerKey { place: 0, generation: 0 }, PeerKey { place: 1, generation: 0 });
/// let mut calls = Calls::new(10);
/// let id = calls.start(peer, u64::MAX).expect("there is room");
/// assert!(!calls.complete(id.word(), other, Outcome::Result, b"forged"));
/// assert!(calls.complete(id.word(), peer, Outcome::Result, b"42"));
/// assert_eq!(calls.take(id, |outcome, body| (outcome, body.to_vec())),
///     Some((Outcome::Result, b"42".to_vec())));
/// assert!(!calls.complete(id.word(), peer, Outcome::Result, b"twice"));
/// ```
#[derive(Debug)]
pub struct Calls {
    slots: Vec<Slot>,
    free: u32,
    calls_max: u32,
    under_way: u32,
    late: u64,
    /// Capacity of the bodies of places that are free.
    kept_bytes: usize,
}

impl Calls {
    /// Room for so many at a time; memory follows the most that ever were.
    #[must_use]
    pub fn new(calls_max: u32) -> Self {
        Self { slots: Vec::new(), free: NONE, calls_max, under_way: 0, late: 0, kept_bytes: 0 }
    }

    /// A call to that peer begins. `None` when there are as many as may be.
    #[inline]
    pub fn start(&mut self, peer: PeerKey, deadline_ns: u64) -> Option<CallId> {
        if self.free == NONE {
            self.grow()?;
        }
        let place = self.free;
        let slot = &mut self.slots[place as usize];
        let State::Free { next } = slot.state else { unreachable!("the list of the free") };
        self.free = next;
        self.under_way += 1;
        self.kept_bytes -= slot.body.capacity();
        slot.state = State::Pending;
        slot.peer = peer;
        slot.deadline_ns = deadline_ns;
        Some(CallId::new(place, slot.generation))
    }

    #[cold]
    fn grow(&mut self) -> Option<()> {
        let place = u32::try_from(self.slots.len()).ok().filter(|&it| it < self.calls_max)?;
        self.slots.push(Slot {
            generation: 0,
            peer: PeerKey { place: NONE, generation: 0 },
            deadline_ns: u64::MAX,
            state: State::Free { next: self.free },
            body: Vec::new(),
        });
        self.free = place;
        Some(())
    }

    #[inline]
    fn slot(&self, id: CallId) -> Option<&Slot> {
        let slot = self.slots.get(id.place() as usize)?;
        let same = CallId::new(id.place(), slot.generation) == id;
        (same && !matches!(slot.state, State::Free { .. })).then_some(slot)
    }

    /// What came for a call, of which a peer gave the number. False when nobody waits for it, or it was
    /// asked of another.
    #[inline]
    pub fn complete(&mut self, id: u64, peer: PeerKey, outcome: Outcome, body: &[u8]) -> bool {
        let id = CallId(id);
        if !self.is_pending(id, peer) {
            self.late += 1;
            return false;
        }
        let slot = &mut self.slots[id.place() as usize];
        slot.state = State::Done(outcome);
        slot.body.clear();
        slot.body.extend_from_slice(body);
        true
    }

    /// Whether its outcome is there; `None` when there is no such call.
    #[inline]
    #[must_use]
    pub fn is_done(&self, id: CallId) -> Option<bool> {
        self.slot(id).map(|slot| matches!(slot.state, State::Done(_)))
    }

    /// Whether that peer was asked, and has not answered yet.
    #[inline]
    #[must_use]
    pub fn is_pending(&self, id: CallId, peer: PeerKey) -> bool {
        self.slot(id).is_some_and(|it| it.peer == peer && matches!(it.state, State::Pending))
    }

    /// Until when it is waited for, `u64::MAX` for ever; `None` when there is no such call.
    #[inline]
    #[must_use]
    pub fn deadline_ns(&self, id: CallId) -> Option<u64> {
        self.slot(id).map(|slot| slot.deadline_ns)
    }

    /// The peer that was asked.
    #[must_use]
    pub fn peer(&self, id: CallId) -> Option<PeerKey> {
        self.slot(id).map(|slot| slot.peer)
    }

    /// Ends a call that is done, and hands over its outcome and the body. `None` when it is not done.
    #[inline]
    pub fn take<R>(&mut self, id: CallId, read: impl FnOnce(Outcome, &[u8]) -> R) -> Option<R> {
        if !self.is_done(id)? {
            return None;
        }
        let slot = &mut self.slots[id.place() as usize];
        let state = std::mem::replace(&mut slot.state, State::Free { next: self.free });
        let State::Done(outcome) = state else { unreachable!("just looked") };
        let read = read(outcome, &slot.body);
        self.vacate(id.place());
        Some(read)
    }

    /// Ends a call as it is: what comes for it later is dropped. False when there is no such call.
    #[inline]
    pub fn forget(&mut self, id: CallId) -> bool {
        let known = self.slot(id).is_some();
        if known {
            self.vacate(id.place());
        }
        known
    }

    #[inline]
    fn vacate(&mut self, place: u32) {
        let slot = &mut self.slots[place as usize];
        slot.state = State::Free { next: self.free };
        slot.generation = slot.generation.wrapping_add(1);
        let bytes = slot.body.capacity();
        if bytes > BODY_KEPT_BYTES.min(BODIES_KEPT_BYTES - self.kept_bytes) {
            slot.body = Vec::new();
        } else {
            self.kept_bytes += bytes;
        }
        self.free = place;
        self.under_way -= 1;
    }

    /// That peer is gone: whoever waits for it is told. How many that were.
    pub fn fail(&mut self, peer: PeerKey, why: &Gone) -> usize {
        let mut failed = 0;
        for slot in &mut self.slots {
            if slot.peer == peer && matches!(slot.state, State::Pending) {
                slot.state = State::Done(Outcome::Gone(why.clone()));
                slot.body.clear();
                failed += 1;
            }
        }
        failed
    }

    /// How many are under way, or done and not taken.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.under_way
    }

    /// How many answers nobody waited for.
    #[must_use]
    pub fn late_count(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerKey = PeerKey { place: 3, generation: 1 };

    #[test]
    fn there_are_no_more_calls_than_may_be_and_places_are_used_again() {
        let mut calls = Calls::new(2);
        let (one, two) = (calls.start(PEER, 5), calls.start(PEER, 6));
        let (Some(one), Some(two)) = (one, two) else { panic!("there is room for two") };
        assert_eq!(calls.start(PEER, 7), None);
        assert!(calls.forget(one) && !calls.forget(one));
        let three = calls.start(PEER, 8).expect("one was forgotten");
        assert_ne!(three, one);
        assert_eq!([calls.deadline_ns(one), calls.deadline_ns(three)], [None, Some(8)]);
        assert_eq!((calls.is_done(two), calls.count()), (Some(false), 2));
    }

    #[test]
    fn memory_kept_for_later_results_is_bounded_for_all_calls_together() {
        const RESULT_BYTES: usize = 60_000;
        let held = |calls: &Calls| calls.slots.iter().map(|it| it.body.capacity()).sum::<usize>();
        let mut calls = Calls::new(100);
        for round in 0..3 {
            let ids: Vec<CallId> = (0..100).map_while(|_| calls.start(PEER, 0)).collect();
            for id in &ids {
                assert!(calls.complete(id.word(), PEER, Outcome::Result, &[7; RESULT_BYTES]));
            }
            assert!(held(&calls) >= 100 * RESULT_BYTES, "round {round}");
            for id in ids {
                assert_eq!(calls.take(id, |_, body| body.len()), Some(RESULT_BYTES));
            }
            assert!((RESULT_BYTES..=BODIES_KEPT_BYTES).contains(&held(&calls)), "round {round}");
            assert_eq!(calls.kept_bytes, held(&calls));
        }
    }

    #[test]
    fn who_is_gone_answers_its_own_calls_and_no_others() {
        let mut calls = Calls::new(9);
        let other = PeerKey { generation: 2, ..PEER };
        let (its, others) = (calls.start(PEER, 0).unwrap(), calls.start(other, 0).unwrap());
        let done = calls.start(PEER, 0).unwrap();
        assert!(calls.complete(done.word(), PEER, Outcome::Result, b"x"));
        assert_eq!(calls.fail(PEER, &Gone::HungUp), 1);
        assert_eq!(calls.take(its, |it, _| it), Some(Outcome::Gone(Gone::HungUp)));
        assert_eq!(calls.take(done, |it, _| it), Some(Outcome::Result));
        assert_eq!(calls.is_done(others), Some(false));
    }
}
