//! Gate that opens once: participants that come before wait in a list whose nodes are on their own
//! stacks; the participant that opens the gate takes the list.
//!
//! ```text
//!            enqueue: push          set: swap
//!    ┌───────┐      ┌─────────────┐      ┌─────┐
//!    │ EMPTY │ ───▶ │ the newest  │ ───▶ │ SET │
//!    └───────┘      │ waiter      │      └─────┘
//!        │          └─────────────┘         ▲
//!        ├──────────────────────────────────┘
//!        └── abandon ──▶ ABANDONED ── set ──▶ SET ── close ──▶ CLOSING ──▶ EMPTY
//! ```
//!
//! A waiter that gives up takes the whole list, removes itself, and puts back the rest: a list that
//! is only ever taken whole has no ABA problem. [`Withdrawals`] counts the lists that are out; a
//! gate that is being closed counts as open until they are back, so that no waiter misses the
//! opening.
//!
//! Bit 0 of the word is `CLAIMED`: a participant is writing the value behind the gate.

use handover_base::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use handover_base::sync::{UnsafeCell, const_unless_loom, thread};
use std::ptr;

/// Bit of the gate's word that is set while a participant writes the value behind the gate.
const CLAIMED: usize = 1;
/// Value of the word of an open gate.
const SET: usize = 3;
/// Value of the word of a gate at which no participant will ever wait.
const ABANDONED: usize = 4;
/// Value of the word of a gate that is being closed.
const CLOSING: usize = 7;
/// Bits that are all set only in [`SET`] and [`CLOSING`]. In both, the gate counts as open.
const OPEN_MASK: usize = SET & CLOSING;

/// Node of a gate's list of waiters, on the waiter's stack.
#[derive(Debug)]
#[repr(align(8))]
pub struct WaitNode<W> {
    next: UnsafeCell<*mut WaitNode<W>>,
    waiter: UnsafeCell<Option<W>>,
}

impl<W> WaitNode<W> {
    /// Creates a node that is in no list.
    #[must_use]
    pub fn new() -> Self {
        Self { next: UnsafeCell::new(ptr::null_mut()), waiter: UnsafeCell::new(None) }
    }
}

impl<W> Default for WaitNode<W> {
    fn default() -> Self {
        Self::new()
    }
}

/// State of a gate before it was opened.
#[derive(Debug)]
pub enum PreviousState<W> {
    /// The gate was closed, and these participants waited.
    Waiting(Waiters<W>),
    /// The gate was abandoned, so that no participant will ever wait at it.
    Abandoned,
    /// The gate was already open.
    Open,
}

/// Gate at which participants wait until another one opens it. `W` is the means to wake a waiter.
#[derive(Debug)]
pub struct Gate<W> {
    /// Address of the newest waiter's node, or null, possibly with the bit [`CLAIMED`]; or one of
    /// the values [`SET`], [`ABANDONED`] and [`CLOSING`].
    word: AtomicPtr<WaitNode<W>>,
}

/// Number of running calls of [`Gate::withdraw`] that may hold the list of waiters. A call that has
/// put the list back does not count. The counter is outside the gate, because gates that are never
/// closed do not need it.
#[derive(Debug, Default)]
pub struct Withdrawals(AtomicU32);

impl Withdrawals {
    const_unless_loom! {
        /// Makes a count of zero.
        #[must_use]
        pub const fn new() -> Self {
            Self(AtomicU32::new(0))
        }
    }
}

// SAFETY: waiters move from the thread that enqueues to the thread that opens the gate, through the
// word; nothing else is shared.
unsafe impl<W: Send> Send for Gate<W> {}
// SAFETY: waiters are `Send`, and move between threads through the atomic word only.
unsafe impl<W: Send> Sync for Gate<W> {}

/// Returns `true` if `word` is the word of an open gate.
fn is_open<W>(word: *mut WaitNode<W>) -> bool {
    word.addr() & OPEN_MASK == OPEN_MASK
}

/// Converts a state, such as [`SET`], into the word of a gate.
fn state_word<W>(word: usize) -> *mut WaitNode<W> {
    ptr::without_provenance_mut(word)
}

impl<W> Gate<W> {
    const_unless_loom! {
        /// Makes a closed gate without waiters.
        #[must_use]
        pub const fn new() -> Self {
            Self { word: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    /// Makes a closed gate on which no participant will ever wait.
    #[must_use]
    pub fn abandoned() -> Self {
        Self { word: AtomicPtr::new(state_word(ABANDONED)) }
    }

    /// Returns `true` if the gate is open; then all writes before its opening are visible.
    #[inline]
    #[must_use]
    pub fn is_set(&self) -> bool {
        // Acquire: pairs with the Release in set().
        is_open(self.word.load(Ordering::Acquire))
    }

    /// Claims the right to open the gate; returns `true` to the first caller only.
    #[inline]
    #[must_use]
    pub fn claim(&self) -> bool {
        // Relaxed: only one claim succeeds, so a claim has no earlier one to synchronise with.
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word.addr() & CLAIMED != 0 {
                return false;
            }
            let claimed = word.map_addr(|addr| addr | CLAIMED);
            // Release: keeps the nodes published that enqueue() has published for the Acquire in
            // set().
            match self.word.compare_exchange_weak(
                word,
                claimed,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Opens the gate; returns its previous state, with the waiters to wake.
    #[inline]
    pub fn set(&self) -> PreviousState<W> {
        // Acquire: pairs with the Release in enqueue(): the nodes are visible.
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            // An exchange that also replaced CLOSING would let a second participant close the gate.
            if is_open(word) {
                return PreviousState::Open;
            }
            match self.word.compare_exchange_weak(
                word,
                state_word(SET),
                // Publishes earlier writes to the Acquire in is_set() and enqueue().
                Ordering::AcqRel,
                Ordering::Acquire, // pairs with the Release in enqueue()
            ) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        match word.addr() {
            ABANDONED => PreviousState::Abandoned,
            _ => {
                PreviousState::Waiting(Waiters::from_newest(word.map_addr(|addr| addr & !CLAIMED)))
            }
        }
    }

    /// Declares that no participant will ever wait, and returns `true`. Returns `false`, without a
    /// change, if the gate is open or claimed, or participants wait.
    #[inline]
    #[must_use]
    pub fn abandon(&self) -> bool {
        // Release: this thread's accesses come before what follows set(). Acquire: if the gate is
        // open, the writes before its opening are visible.
        self.word
            .compare_exchange(
                ptr::null_mut(),
                state_word(ABANDONED),
                Ordering::Release, // publishes to the AcqRel in set()
                Ordering::Acquire, // pairs with the AcqRel in set()
            )
            .is_ok()
    }

    /// Closes an open gate; `&mut self` proves that no other participant accesses it.
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// Closes the gate if it is open; returns `true` if it was open. All calls of `withdraw` must
    /// count in `withdrawals`.
    ///
    /// Spins, and yields the CPU, while a waiter that gives up holds the list of the others: they
    /// find the gate open when it puts the list back.
    pub fn close(&self, withdrawals: &Withdrawals) -> bool {
        // Acquire: pairs with the Release in set(), and by it with the counts of withdrawals whose
        // lists set() has not found.
        let closing = self.word.compare_exchange(
            state_word(SET),
            state_word(CLOSING),
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if closing.is_err() {
            return false;
        }
        // Acquire: pairs with the Release at the end of withdraw().
        while withdrawals.0.load(Ordering::Acquire) != 0 {
            thread::yield_now();
        }
        // Release: publishes earlier accesses to the Acquire in set() and enqueue(). A store is
        // enough: only the participant that has written CLOSING replaces it.
        self.word.store(ptr::null_mut(), Ordering::Release);
        true
    }

    /// Adds `node` with `waiter` to the list of waiters. Returns `waiter` as the error if the gate
    /// is already open.
    ///
    /// # Safety
    /// Unless the waiter is returned, `node` must stay valid and untouched until the waiter was
    /// handed out by [`Waiters`] or withdrawn, and the caller of `enqueue` must not access it after
    /// the call.
    #[inline]
    pub unsafe fn enqueue(&self, node: *mut WaitNode<W>, waiter: W) -> Result<(), W> {
        // SAFETY: the caller guarantees that `node` is valid; it is in no list yet.
        let node_ref = unsafe { &*node };
        // SAFETY: no other thread knows the node before the exchange below succeeds.
        node_ref.waiter.with_mut(|cell| unsafe { *cell = Some(waiter) });
        // Acquire: if the gate is open, the writes before its opening are visible.
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if is_open(word) {
                // SAFETY: the node was not published, as no exchange below has succeeded.
                let waiter = node_ref.waiter.with_mut(|cell| unsafe { (*cell).take() });
                return waiter.map_or(Ok(()), Err);
            }
            let next = word.map_addr(|addr| addr & !CLAIMED);
            let claimed = word.addr() & CLAIMED;
            // SAFETY: no other thread knows the node before the exchange below succeeds.
            node_ref.next.with_mut(|cell| unsafe { *cell = next });
            // Release: publishes the node to the Acquire in set(). Acquire: as for the load.
            match self.word.compare_exchange_weak(
                word,
                node.map_addr(|addr| addr | claimed),
                Ordering::Release, // publishes to the AcqRel in set()
                Ordering::Acquire, // pairs with the AcqRel in set()
            ) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }

    /// Removes `node` from the list of waiters, if the list contains it. `withdrawals` is the
    /// counter passed to [`close`](Self::close), or any if the gate is never closed.
    ///
    /// # Safety
    /// `node` was enqueued in this gate; if its waiter was or is being handed out, it stays valid
    /// until that is over.
    pub unsafe fn withdraw(
        &self,
        node: *mut WaitNode<W>,
        withdrawals: &Withdrawals,
    ) -> WithdrawResult<W> {
        // Relaxed: published by the exchange below, which set() reads before close() reads this.
        withdrawals.0.fetch_add(1, Ordering::Relaxed);
        // Acquire: pairs with the Release in enqueue(): the nodes are visible.
        let mut word = self.word.load(Ordering::Acquire);
        let newest = loop {
            let newest = word.map_addr(|addr| addr & !CLAIMED);
            if is_open(word) || newest.addr() <= ABANDONED {
                break ptr::null_mut();
            }
            // Acquire: as for the load. Release: keeps earlier publications through this word
            // intact.
            match self.word.compare_exchange_weak(
                word,
                state_word(word.addr() & CLAIMED),
                Ordering::AcqRel,  // pairs with the Release in enqueue()
                Ordering::Acquire, // pairs with the Release in enqueue()
            ) {
                Ok(_) => break newest,
                Err(now) => word = now,
            }
        };
        let rest = DetachedList::remove(newest, node);
        let waiters_to_wake = self.put_back(&rest);
        // Release: pairs with the Acquire in close(): the list is back.
        withdrawals.0.fetch_sub(1, Ordering::Release);
        WithdrawResult { was_queued: rest.was_queued, waiters_to_wake }
    }

    /// Puts a list of waiters back into the gate. Returns the waiters instead if the gate was
    /// opened meanwhile.
    fn put_back(&self, chain: &DetachedList<W>) -> Waiters<W> {
        if chain.newest.is_null() {
            return Waiters::from_newest(ptr::null_mut());
        }
        // Acquire: if the gate is open, the writes before its opening are visible to the waiters
        // woken here.
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if is_open(word) {
                return Waiters::from_newest(chain.newest);
            }
            let next = word.map_addr(|addr| addr & !CLAIMED);
            let claimed = word.addr() & CLAIMED;
            // SAFETY: the chain was taken from the gate, so it is owned here, and it is not empty.
            let oldest = unsafe { &(*chain.oldest).next };
            // SAFETY: the chain is owned here, so no other thread accesses its links.
            oldest.with_mut(|cell| unsafe { *cell = next });
            // Release and Acquire: as in enqueue().
            match self.word.compare_exchange_weak(
                word,
                chain.newest.map_addr(|addr| addr | claimed),
                Ordering::Release, // publishes to the AcqRel in set()
                Ordering::Acquire, // pairs with the AcqRel in set()
            ) {
                Ok(_) => return Waiters::from_newest(ptr::null_mut()),
                Err(now) => word = now,
            }
        }
    }
}

/// Result of [`Gate::withdraw`]: a flag that the node was in the list, and other waiters to
/// wake.
#[derive(Debug)]
pub struct WithdrawResult<W> {
    /// `true` if the node was in the list; then no other participant will wake its waiter.
    /// Otherwise another participant has removed the list with the node, and wakes the waiter or
    /// puts the list back.
    pub was_queued: bool,
    /// Other waiters that the caller must wake; empty unless the gate was opened meanwhile.
    pub waiters_to_wake: Waiters<W>,
}

/// List of waiters, while it is removed from the gate.
struct DetachedList<W> {
    newest: *mut WaitNode<W>,
    oldest: *mut WaitNode<W>,
    /// `true` if the list contained the removed node.
    was_queued: bool,
}

impl<W> DetachedList<W> {
    /// Removes `node` from the detached list that starts with `newest`; returns the other nodes.
    fn remove(newest: *mut WaitNode<W>, node: *mut WaitNode<W>) -> Self {
        let mut chain = Self { newest, oldest: ptr::null_mut(), was_queued: false };
        let mut at = newest;
        while !at.is_null() {
            // SAFETY: a node is valid until its waiter is handed out (contract of enqueue()), and
            // the list is owned here.
            let cell = unsafe { &(*at).next };
            // SAFETY: the list is owned here, so no other thread accesses its links.
            let next = cell.with(|cell| unsafe { *cell });
            if at != node {
                chain.oldest = at;
            } else if chain.oldest.is_null() {
                (chain.newest, chain.was_queued) = (next, true);
            } else {
                chain.was_queued = true;
                // SAFETY: `chain.oldest` is a node of the list, valid as above.
                let before = unsafe { &(*chain.oldest).next };
                // SAFETY: the list is owned here, so no other thread accesses its links.
                before.with_mut(|cell| unsafe { *cell = next });
            }
            at = next;
        }
        chain
    }
}

impl<W> Default for Gate<W> {
    fn default() -> Self {
        Self::new()
    }
}

/// Waiters removed from a gate, in order of arrival. Those that came while another waiter withdrew
/// are before the waiters that had come earlier.
#[derive(Debug)]
pub struct Waiters<W> {
    /// Node of the waiter that is returned next; null at the end.
    next: *mut WaitNode<W>,
}

impl<W> Waiters<W> {
    /// Creates the iterator from the list that starts with the newest waiter; reverses the list.
    #[inline]
    fn from_newest(newest: *mut WaitNode<W>) -> Self {
        let mut reversed: *mut WaitNode<W> = ptr::null_mut();
        let mut node = newest;
        while !node.is_null() {
            // SAFETY: a node is valid until its waiter is handed out (contract of enqueue()).
            let older = unsafe { &(*node).next };
            // SAFETY: the whole list is owned by the caller, which has taken it from the gate.
            let next = older.with_mut(|cell| unsafe { std::mem::replace(&mut *cell, reversed) });
            reversed = node;
            node = next;
        }
        Self { next: reversed }
    }
}

impl<W> Iterator for Waiters<W> {
    type Item = W;

    #[inline]
    fn next(&mut self) -> Option<W> {
        let node = self.next;
        if node.is_null() {
            return None;
        }
        // SAFETY: the node is valid until its waiter is woken, which happens after this function
        // returns it.
        let node = unsafe { &*node };
        // SAFETY: the list is owned by `self`, so no other thread accesses its links.
        self.next = node.next.with(|cell| unsafe { *cell });
        // SAFETY: the list is owned by `self`, so no other thread accesses its waiters.
        node.waiter.with_mut(|cell| unsafe { (*cell).take() })
    }
}

// Under Miri too, which sees accesses to nodes that are freed or shared without synchronisation.
#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::thread::{self as os, Thread};

    /// Waiting thread, by the flag that wakes it.
    #[derive(Clone)]
    struct Sleeper(Arc<AtomicBool>, Thread);

    impl Sleeper {
        fn new() -> Self {
            Self(Arc::default(), os::current())
        }

        fn wake(self) {
            // Release: pairs with the Acquire in wait_at().
            self.0.store(true, Ordering::Release);
            self.1.unpark();
        }
    }

    /// Waits at the gate, with a node on the stack, as a fiber does.
    fn wait_at(gate: &Gate<Sleeper>) {
        let (mut node, sleeper) = (WaitNode::new(), Sleeper::new());
        // SAFETY: the node is valid until the flag is set, which happens after the waiter was
        // handed out.
        if unsafe { gate.enqueue(&raw mut node, sleeper.clone()) }.is_ok() {
            // Acquire: pairs with the Release in wake().
            while !sleeper.0.load(Ordering::Acquire) {
                os::park();
            }
        }
    }

    fn open(gate: &Gate<Sleeper>) {
        if let PreviousState::Waiting(waiters) = gate.set() {
            waiters.for_each(Sleeper::wake);
        }
    }

    #[test]
    fn waiters_see_the_value_that_was_written_before_the_gate_opened() {
        for _ in 0..if cfg!(miri) { 3 } else { 300 } {
            let (gate, value) = (Gate::new(), std::sync::atomic::AtomicU32::new(0));
            os::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        wait_at(&gate);
                        // Relaxed: ordered by the gate.
                        assert_eq!(value.load(Ordering::Relaxed), 7);
                    });
                }
                assert!(
                    gate.claim() && !gate.claim(),
                    "the first claim failed, or the second succeeded"
                );
                value.store(7, Ordering::Relaxed); // Relaxed: as above
                open(&gate);
            });
            assert!(gate.is_set());
            assert!(matches!(gate.set(), PreviousState::Open));
        }
    }

    #[test]
    fn gate_that_is_closed_and_opened_again_wakes_each_round() {
        let (gate, withdrawals) = (Gate::new(), Withdrawals::new());
        for _ in 0..if cfg!(miri) { 3 } else { 300 } {
            os::scope(|scope| {
                scope.spawn(|| wait_at(&gate));
                open(&gate);
            });
            assert!(gate.close(&withdrawals) && !gate.close(&withdrawals));
        }
    }

    #[test]
    fn withdrawn_waiter_is_not_handed_out_and_others_keep_their_order() {
        let withdrawals = Withdrawals::new();
        for withdrawn in 0..4 {
            let gate = Gate::new();
            let mut nodes: [WaitNode<usize>; 3] = Default::default();
            let first = nodes.as_mut_ptr();
            for index in 0..3 {
                // SAFETY: `index` is below the array's length; the nodes outlive the gate, and are
                // accessed through `first` only.
                assert!(unsafe { gate.enqueue(first.wrapping_add(index), index) }.is_ok());
            }
            if withdrawn < 3 {
                // SAFETY: as above; the node was enqueued in this gate.
                let result = unsafe { gate.withdraw(first.wrapping_add(withdrawn), &withdrawals) };
                assert!(result.was_queued && result.waiters_to_wake.count() == 0);
                // SAFETY: as above.
                let again = unsafe { gate.withdraw(first.wrapping_add(withdrawn), &withdrawals) };
                assert!(!again.was_queued);
            }
            let PreviousState::Waiting(waiters) = gate.set() else {
                panic!("the gate was already open")
            };
            let others: Vec<usize> = (0..3).filter(|index| *index != withdrawn).collect();
            assert_eq!(waiters.collect::<Vec<_>>(), others);
        }
    }

    #[test]
    fn abandoned_gate_has_no_waiters_and_an_open_one_cannot_be_abandoned() {
        let gate = Gate::<Cell<u8>>::new();
        assert!(gate.abandon() && !gate.abandon());
        assert!(matches!(gate.set(), PreviousState::Abandoned));
        assert!(!gate.abandon() && gate.is_set());
        assert!(matches!(Gate::<Cell<u8>>::abandoned().set(), PreviousState::Abandoned));
    }
}
