//! Queues that are strung through their members: to queue is to write a pointer, never to allocate.

use handover_base::sync::atomic::{AtomicPtr, Ordering};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// What a member carries for the queue that it is in.
#[derive(Debug)]
pub struct Link {
    next: AtomicPtr<Link>,
}

impl Link {
    /// In no queue.
    #[must_use]
    pub fn new() -> Self {
        Self { next: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::new()
    }
}

/// Something owned that can be strung up by its link.
///
/// # Safety
/// `into_link` must give a pointer that stays valid until `from_link` takes it back, and that no
/// other owner has; `from_link` must undo `into_link`.
pub unsafe trait Linked: Sized {
    /// Gives up the member for the pointer to its link.
    fn into_link(self) -> NonNull<Link>;

    /// Takes the member back.
    ///
    /// # Safety
    /// `link` must come from `into_link`, and be taken back once.
    unsafe fn from_link(link: NonNull<Link>) -> Self;
}

/// First in, first out, for one owner at a time.
#[derive(Debug)]
pub struct List<M: Linked> {
    head: *mut Link,
    /// Meaningless while `head` is null.
    tail: *mut Link,
    members: PhantomData<M>,
}

// SAFETY: a list owns its members, whose pointers are nobody else's; it may go where they may.
unsafe impl<M: Linked + Send> Send for List<M> {}

impl<M: Linked> List<M> {
    /// Without members.
    #[must_use]
    pub const fn new() -> Self {
        Self { head: ptr::null_mut(), tail: ptr::null_mut(), members: PhantomData }
    }

    /// Whether there is no member.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Puts a member behind all others.
    #[inline]
    pub fn push_back(&mut self, member: M) {
        let link = member.into_link().as_ptr();
        // SAFETY: the member was given to us, and its link with it.
        let next = unsafe { &(*link).next };
        // Relaxed: who reads it later has been given the list, by something that synchronises.
        next.store(ptr::null_mut(), Ordering::Relaxed);
        if self.head.is_null() {
            self.head = link;
        } else {
            // SAFETY: the list is not empty, so its tail is a member that we own.
            let last = unsafe { &(*self.tail).next };
            last.store(link, Ordering::Relaxed);
        }
        self.tail = link;
    }

    /// Puts a member before all others.
    #[inline]
    pub fn push_front(&mut self, member: M) {
        let link = member.into_link().as_ptr();
        // SAFETY: the member was given to us, and its link with it.
        let next = unsafe { &(*link).next };
        next.store(self.head, Ordering::Relaxed);
        if self.head.is_null() {
            self.tail = link;
        }
        self.head = link;
    }

    /// Takes the first member.
    #[inline]
    pub fn pop_front(&mut self) -> Option<M> {
        let link = NonNull::new(self.head)?;
        // SAFETY: members of the list are ours, and valid.
        let next = unsafe { &link.as_ref().next };
        self.head = next.load(Ordering::Relaxed);
        // SAFETY: it was given up when it was pushed, and is not in the list any more.
        Some(unsafe { M::from_link(link) })
    }
}

impl<M: Linked> Default for List<M> {
    fn default() -> Self {
        Self::new()
    }
}

/// Filled by any thread, emptied by one, all at once.
///
/// Treiber's stack, of which only the whole is ever taken: so a member cannot come back while somebody
/// compares with it, and there is no ABA.
#[derive(Debug)]
pub struct Inbox<M: Linked> {
    newest: AtomicPtr<Link>,
    members: PhantomData<M>,
}

// SAFETY: an inbox hands members from any thread to another; nothing but the atomic is shared.
unsafe impl<M: Linked + Send> Send for Inbox<M> {}
// SAFETY: as above.
unsafe impl<M: Linked + Send> Sync for Inbox<M> {}

impl<M: Linked> Inbox<M> {
    /// Without members.
    #[must_use]
    pub fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()), members: PhantomData }
    }

    /// Whether there is no member; who empties it may rely on false.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // Relaxed: a hint; take() synchronises.
        self.newest.load(Ordering::Relaxed).is_null()
    }

    /// Puts a member in.
    #[inline]
    pub fn push(&self, member: M) {
        let link = member.into_link().as_ptr();
        // Relaxed: compared, not followed.
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: the member was given to us, and is in no queue before the exchange succeeds.
            let next = unsafe { &(*link).next };
            next.store(newest, Ordering::Relaxed);
            // Release: publishes the member to the Acquire in take().
            match self.newest.compare_exchange_weak(
                newest,
                link,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// Takes all members, the oldest first.
    pub fn take(&self) -> List<M> {
        let mut list = List::new();
        // Acquire: pairs with the Release in push(); the chain of exchanges carries all of them.
        let mut newest = self.newest.swap(ptr::null_mut(), Ordering::Acquire);
        while let Some(link) = NonNull::new(newest) {
            // SAFETY: what was pushed is valid until it is taken back, which happens here, and the
            // next one is read before.
            newest = unsafe { &link.as_ref().next }.load(Ordering::Relaxed);
            // SAFETY: it was given up in push() and nobody else takes.
            list.push_front(unsafe { M::from_link(link) });
        }
        list
    }
}

impl<M: Linked> Default for Inbox<M> {
    fn default() -> Self {
        Self::new()
    }
}
