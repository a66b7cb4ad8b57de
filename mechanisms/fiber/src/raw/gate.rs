//! A gate that opens once: who comes before waits in a list that is strung through the waiters' own
//! stacks; who opens it takes the list.
//!
//! ```text
//!            enlist: push           set: swap
//!    ┌───────┐      ┌─────────────┐      ┌─────┐
//!    │ EMPTY │ ───▶ │ the newest  │ ───▶ │ SET │
//!    └───────┘      │ waiter      │      └─────┘
//!        │          └─────────────┘         ▲
//!        ├──────────────────────────────────┘
//!        └── abandon ──▶ ABANDONED ── set ──▶ SET
//! ```
//!
//! Who does not want to wait any longer takes the whole list, itself out of it, and puts back the rest: a list that is
//! only ever taken whole has no ABA.
//!
//! Bit 0 of the word is `CLAIMED`: somebody is writing what is to be seen behind the gate.

use handover_base::sync::UnsafeCell;
use handover_base::sync::atomic::{AtomicPtr, Ordering};
use std::ptr;

const CLAIMED: usize = 1;
const SET: usize = 3;
const ABANDONED: usize = 4;

/// A waiter's place in the list, on its own stack.
#[derive(Debug)]
#[repr(align(8))]
pub struct Node<W> {
    next: UnsafeCell<*mut Node<W>>,
    waiter: UnsafeCell<Option<W>>,
}

impl<W> Node<W> {
    /// In no list.
    #[must_use]
    pub fn new() -> Self {
        Self { next: UnsafeCell::new(ptr::null_mut()), waiter: UnsafeCell::new(None) }
    }
}

impl<W> Default for Node<W> {
    fn default() -> Self {
        Self::new()
    }
}

/// How the gate was found by who opened it.
#[derive(Debug)]
pub enum Opened<W> {
    /// These waited, the first comer first.
    For(Waiters<W>),
    /// Nobody will ever come.
    ForNobody,
    /// It stood open already.
    Before,
}

/// A gate; `W` is how to wake a waiter.
#[derive(Debug)]
pub struct Gate<W> {
    word: AtomicPtr<Node<W>>,
}

// SAFETY: waiters are handed from the thread that enlists to the one that opens the gate, through the
// word; nothing else is shared.
unsafe impl<W: Send> Send for Gate<W> {}
// SAFETY: as above.
unsafe impl<W: Send> Sync for Gate<W> {}

fn mark<W>(word: usize) -> *mut Node<W> {
    ptr::without_provenance_mut(word)
}

impl<W> Gate<W> {
    /// A closed gate before which nobody waits.
    #[cfg(not(handover_loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self { word: AtomicPtr::new(ptr::null_mut()) }
    }

    /// A closed gate before which nobody waits.
    #[cfg(handover_loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { word: AtomicPtr::new(ptr::null_mut()) }
    }

    /// A closed gate to which nobody will ever come.
    #[must_use]
    pub fn abandoned() -> Self {
        Self { word: AtomicPtr::new(mark(ABANDONED)) }
    }

    /// Whether it stands open: if so, what was written before it was opened is seen.
    #[inline]
    #[must_use]
    pub fn is_set(&self) -> bool {
        // Acquire: pairs with the Release in set().
        self.word.load(Ordering::Acquire).addr() == SET
    }

    /// Whether the caller, and nobody else, is to open it.
    #[inline]
    #[must_use]
    pub fn claim(&self) -> bool {
        // Relaxed: whoever claims has nothing to learn from who claimed before, as there is but one.
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word.addr() & CLAIMED != 0 {
                return false;
            }
            let claimed = word.map_addr(|addr| addr | CLAIMED);
            // Release: keeps what enlist() has published for the Acquire in set().
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

    /// Opens it.
    #[inline]
    pub fn set(&self) -> Opened<W> {
        // Release: publishes what was written before to the Acquire in is_set() and enlist().
        // Acquire: pairs with the Release in enlist(): the nodes are seen.
        let before = self.word.swap(mark(SET), Ordering::AcqRel);
        match before.addr() {
            SET => Opened::Before,
            ABANDONED => Opened::ForNobody,
            _ => Opened::For(Waiters::of(before.map_addr(|addr| addr & !CLAIMED))),
        }
    }

    /// Says that nobody will ever wait; false if it stands open.
    #[inline]
    #[must_use]
    pub fn abandon(&self) -> bool {
        // Release: what this thread did comes before what set() leads to. Acquire: if it is set, what
        // was written before is seen.
        self.word
            .compare_exchange(
                ptr::null_mut(),
                mark(ABANDONED),
                Ordering::Release, // publishes to the AcqRel in set()
                Ordering::Acquire, // pairs with the AcqRel in set()
            )
            .is_ok()
    }

    /// Closes it again: nobody else may know it.
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// Closes it again if it stands open; whether it did.
    pub fn close(&self) -> bool {
        // AcqRel: what came before is behind the gate; pairs with set() and is_set().
        self.word
            .compare_exchange(mark(SET), ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Waits in `node`, or gives the waiter back when the gate stands open.
    ///
    /// # Safety
    /// Unless it is given back, `node` must stay where it is, untouched, until the waiter was handed
    /// out by [`Waiters`]; after that the caller of `enlist` may not touch it any more.
    #[inline]
    pub unsafe fn enlist(&self, node: *mut Node<W>, waiter: W) -> Result<(), W> {
        // SAFETY: the caller's promise; it is in no list yet.
        let node_ref = unsafe { &*node };
        // SAFETY: nobody else knows the node before the exchange below succeeds.
        node_ref.waiter.with_mut(|cell| unsafe { *cell = Some(waiter) });
        // Acquire: if it is set, what was written before is seen.
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word.addr() == SET {
                // SAFETY: the node was not published.
                let waiter = node_ref.waiter.with_mut(|cell| unsafe { (*cell).take() });
                return waiter.map_or(Ok(()), Err);
            }
            let next = word.map_addr(|addr| addr & !CLAIMED);
            let claimed = word.addr() & CLAIMED;
            // SAFETY: as above.
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

    /// Takes `node` out of the list, if it is there.
    ///
    /// # Safety
    /// `node` was enlisted here; and if its waiter was or is handed out, it stays where it is until that is over.
    pub unsafe fn withdraw(&self, node: *mut Node<W>) -> Withdrawn<W> {
        // Acquire: pairs with the Release in enlist(): the nodes are seen.
        let mut word = self.word.load(Ordering::Acquire);
        let newest = loop {
            let newest = word.map_addr(|addr| addr & !CLAIMED);
            if word.addr() == SET || newest.addr() <= ABANDONED {
                return Withdrawn { was_there: false, opened_for: Waiters::of(ptr::null_mut()) };
            }
            // Acquire: as for the load. Release: none of what is published here is taken back.
            match self.word.compare_exchange_weak(
                word,
                mark(word.addr() & CLAIMED),
                Ordering::AcqRel,  // pairs with the Release in enlist()
                Ordering::Acquire, // pairs with the Release in enlist()
            ) {
                Ok(_) => break newest,
                Err(now) => word = now,
            }
        };
        let rest = Chain::without(newest, node);
        Withdrawn { was_there: rest.was_there, opened_for: self.put_back(&rest) }
    }

    /// Puts a list back; or who is in it, if the gate was opened meanwhile.
    fn put_back(&self, chain: &Chain<W>) -> Waiters<W> {
        if chain.newest.is_null() {
            return Waiters::of(ptr::null_mut());
        }
        // Acquire: if it is set, what was written before is seen by those whom we wake.
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word.addr() == SET {
                return Waiters::of(chain.newest);
            }
            let next = word.map_addr(|addr| addr & !CLAIMED);
            let claimed = word.addr() & CLAIMED;
            // SAFETY: the chain is ours since it was taken from the gate, and not empty.
            let oldest = unsafe { &(*chain.oldest).next };
            // SAFETY: as above.
            oldest.with_mut(|cell| unsafe { *cell = next });
            // As in enlist().
            match self.word.compare_exchange_weak(
                word,
                chain.newest.map_addr(|addr| addr | claimed),
                Ordering::Release, // publishes to the AcqRel in set()
                Ordering::Acquire, // pairs with the AcqRel in set()
            ) {
                Ok(_) => return Waiters::of(ptr::null_mut()),
                Err(now) => word = now,
            }
        }
    }
}

/// How a waiter that does not want to wait any longer was found.
#[derive(Debug)]
pub struct Withdrawn<W> {
    /// In the list, and nobody will hand it out. Otherwise somebody has it in hand, or will have it again.
    pub was_there: bool,
    /// The gate was opened meanwhile: these, who were in the list too, are to be woken by the caller.
    pub opened_for: Waiters<W>,
}

/// A list that was taken from the gate.
struct Chain<W> {
    newest: *mut Node<W>,
    oldest: *mut Node<W>,
    was_there: bool,
}

impl<W> Chain<W> {
    /// The list that begins with `newest`, which is the caller's, without `node`.
    fn without(newest: *mut Node<W>, node: *mut Node<W>) -> Self {
        let mut chain = Self { newest, oldest: ptr::null_mut(), was_there: false };
        let mut at = newest;
        while !at.is_null() {
            // SAFETY: a node stays valid until its waiter is handed out (enlist()'s promise), and the list is ours.
            let cell = unsafe { &(*at).next };
            // SAFETY: as above.
            let next = cell.with(|cell| unsafe { *cell });
            if at != node {
                chain.oldest = at;
            } else if chain.oldest.is_null() {
                (chain.newest, chain.was_there) = (next, true);
            } else {
                chain.was_there = true;
                // SAFETY: as above.
                let before = unsafe { &(*chain.oldest).next };
                // SAFETY: as above.
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

/// Those who waited, the first comer first.
#[derive(Debug)]
pub struct Waiters<W> {
    next: *mut Node<W>,
}

impl<W> Waiters<W> {
    /// From the newest, with the list as it was pushed.
    #[inline]
    fn of(newest: *mut Node<W>) -> Self {
        let mut reversed: *mut Node<W> = ptr::null_mut();
        let mut node = newest;
        while !node.is_null() {
            // SAFETY: a node stays valid until its waiter is handed out (enlist()'s promise).
            let older = unsafe { &(*node).next };
            // SAFETY: the whole list belongs to who opened the gate.
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
        // SAFETY: the node is valid until its waiter is woken, which happens after this.
        let node = unsafe { &*node };
        // SAFETY: the list is ours.
        self.next = node.next.with(|cell| unsafe { *cell });
        // SAFETY: the list is ours.
        node.waiter.with_mut(|cell| unsafe { (*cell).take() })
    }
}
