//! Intrusive queues: a push writes pointers, and never allocates.

use handover_base::sync::atomic::{AtomicPtr, Ordering};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// Intrusive pointer to the next member of a [`List`] or [`Inbox`]. Unspecified in the last member
/// of a list.
#[derive(Debug, Default)]
pub struct ListLink {
    next: AtomicPtr<ListLink>,
}

impl ListLink {
    /// Creates a link that is in no queue.
    #[must_use]
    pub fn new() -> Self {
        Self { next: AtomicPtr::new(ptr::null_mut()) }
    }
}

/// Value that contains a [`ListLink`], so that intrusive queues can own it.
///
/// # Safety
/// `into_link` must return a pointer that stays valid until `from_link` takes it back, and that no
/// other owner has; `from_link` must undo `into_link`.
pub unsafe trait Linked: Sized {
    /// Converts the member into a pointer to its link.
    fn into_link(self) -> NonNull<ListLink>;

    /// Converts a pointer from [`into_link`](Self::into_link) back into the member.
    ///
    /// # Safety
    /// `link` must come from `into_link`, and each such pointer must be converted back at most
    /// once.
    unsafe fn from_link(link: NonNull<ListLink>) -> Self;
}

/// Intrusive first-in, first-out list, accessed by one thread at a time.
#[derive(Debug)]
pub struct List<M: Linked> {
    head: *mut ListLink,
    /// Link of the last member; unspecified while `head` is null.
    tail: *mut ListLink,
    members: PhantomData<M>,
}

// SAFETY: a list owns its members, whose pointers have no other owner, and `M` is `Send`.
unsafe impl<M: Linked + Send> Send for List<M> {}

impl<M: Linked> List<M> {
    /// Makes an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { head: ptr::null_mut(), tail: ptr::null_mut(), members: PhantomData }
    }

    /// Returns `true` if the list is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Appends a member.
    #[inline]
    pub fn push_back(&mut self, member: M) {
        let link = member.into_link().as_ptr();
        if self.head.is_null() {
            self.head = link;
        } else {
            // SAFETY: the list is not empty, so its tail is the link of a member that it owns.
            let last = unsafe { &(*self.tail).next };
            // Relaxed: a later reader gets the list through an operation that synchronises.
            last.store(link, Ordering::Relaxed);
        }
        self.tail = link;
    }

    /// Prepends a member.
    #[inline]
    pub fn push_front(&mut self, member: M) {
        let link = member.into_link().as_ptr();
        // SAFETY: the member was passed in, and owns its link.
        let next = unsafe { &(*link).next };
        next.store(self.head, Ordering::Relaxed);
        if self.head.is_null() {
            self.tail = link;
        }
        self.head = link;
    }

    /// Removes and returns the first member; `None` if the list is empty.
    #[inline]
    pub fn pop_front(&mut self) -> Option<M> {
        let link = NonNull::new(self.head)?;
        self.head = if self.head == self.tail {
            ptr::null_mut()
        } else {
            // SAFETY: the list owns its members, so their links are valid.
            unsafe { &link.as_ref().next }.load(Ordering::Relaxed)
        };
        // SAFETY: a method that added the member got this pointer from into_link(), and it was just
        // removed from the list.
        Some(unsafe { M::from_link(link) })
    }

    /// Appends a member, then removes and returns the first member. Returns `member` as the error
    /// if the list is empty. If the list has one member, its link is not accessed.
    #[inline]
    pub fn rotate(&mut self, member: M) -> Result<M, M> {
        let Some(first) = NonNull::new(self.head) else { return Err(member) };
        let link = member.into_link().as_ptr();
        if self.head == self.tail {
            self.head = link;
        } else {
            // SAFETY: the list owns its members, so their links are valid.
            self.head = unsafe { &first.as_ref().next }.load(Ordering::Relaxed);
            // SAFETY: the list is not empty, so its tail is the link of a member that it owns.
            let last = unsafe { &(*self.tail).next };
            last.store(link, Ordering::Relaxed); // Relaxed: as in push_back()
        }
        self.tail = link;
        // SAFETY: a method that added the member got this pointer from into_link(), and it was just
        // removed from the list.
        Ok(unsafe { M::from_link(first) })
    }
}

impl<M: Linked> Default for List<M> {
    fn default() -> Self {
        Self::new()
    }
}

/// Intrusive queue to which any thread pushes, and from which one thread removes all members at
/// once.
///
/// Treiber's stack. Members are only ever taken all at once, by an unconditional swap, so there is
/// no ABA problem.
#[derive(Debug)]
pub struct Inbox<M: Linked> {
    newest: AtomicPtr<ListLink>,
    members: PhantomData<M>,
}

// SAFETY: an inbox moves members, which are `Send`, between threads; only the atomic is shared.
unsafe impl<M: Linked + Send> Send for Inbox<M> {}
// SAFETY: a shared inbox moves members, which are `Send`, between threads through the atomic.
unsafe impl<M: Linked + Send> Sync for Inbox<M> {}

impl<M: Linked> Inbox<M> {
    /// Makes an empty inbox.
    #[must_use]
    pub fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()), members: PhantomData }
    }

    /// Returns `true` if the inbox is empty. A result of `false` stays valid for the thread that
    /// calls [`take_all`](Self::take_all).
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // Relaxed: a hint; take() synchronises.
        self.newest.load(Ordering::Relaxed).is_null()
    }

    /// Pushes a member.
    #[inline]
    pub fn push(&self, member: M) {
        let link = member.into_link().as_ptr();
        // Relaxed: compared, not dereferenced.
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: the member was passed in, and is in no queue before the exchange succeeds.
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

    /// Removes and returns all members, the oldest first.
    pub fn take_all(&self) -> List<M> {
        let mut list = List::new();
        // Acquire: pairs with the Release in push(); the release sequence of the exchanges covers
        // all members.
        let mut newest = self.newest.swap(ptr::null_mut(), Ordering::Acquire);
        while let Some(link) = NonNull::new(newest) {
            // SAFETY: a pushed link is valid until it is converted back, which happens below; the
            // next pointer is read before that.
            newest = unsafe { &link.as_ref().next }.load(Ordering::Relaxed);
            // SAFETY: push() got this pointer from into_link(), and the swap above removed it from
            // the inbox.
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

// Under Miri too, which sees members that are freed twice, leaked, or accessed after they are
// freed.
#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;
    use std::thread;

    /// Member in a box of its own.
    #[repr(C)]
    struct Body {
        link: ListLink,
        number: u32,
    }

    struct Member(Box<Body>);

    impl Member {
        fn new(number: u32) -> Self {
            Self(Box::new(Body { link: ListLink::new(), number }))
        }
    }

    // SAFETY: the box is leaked into a pointer to its first field, the link, and rebuilt from that
    // pointer once.
    unsafe impl Linked for Member {
        fn into_link(self) -> NonNull<ListLink> {
            NonNull::from(Box::leak(self.0)).cast()
        }

        unsafe fn from_link(link: NonNull<ListLink>) -> Self {
            // SAFETY: the caller guarantees that the link came from into_link().
            Self(unsafe { Box::from_raw(link.cast::<Body>().as_ptr()) })
        }
    }

    fn drain(list: &mut List<Member>) -> Vec<u32> {
        std::iter::from_fn(|| list.pop_front()).map(|member| member.0.number).collect()
    }

    #[test]
    fn list_is_first_in_first_out_at_both_ends() {
        let mut list = List::new();
        assert!(list.is_empty() && list.pop_front().is_none());
        for number in 1..4 {
            list.push_back(Member::new(number));
        }
        list.push_front(Member::new(0));
        assert_eq!(list.pop_front().map(|member| member.0.number), Some(0));
        list.push_back(Member::new(4));
        assert_eq!(drain(&mut list), [1, 2, 3, 4]);
        list.push_front(Member::new(5));
        list.push_back(Member::new(6));
        assert_eq!(drain(&mut list), [5, 6]);
        assert!(list.is_empty());
    }

    #[test]
    fn rotation_appends_one_member_and_removes_the_first() {
        let mut list = List::new();
        let refused = list.rotate(Member::new(0));
        assert!(list.is_empty() && refused.is_err_and(|member| member.0.number == 0));
        for count in 1..4 {
            for number in 0..count {
                list.push_back(Member::new(number));
            }
            let removed = list.rotate(Member::new(count));
            assert!(removed.is_ok_and(|member| member.0.number == 0));
            assert_eq!(drain(&mut list), (1..=count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn inbox_returns_each_member_of_each_thread_once_in_order() {
        const EACH: u32 = if cfg!(miri) { 20 } else { 10_000 };
        let inbox = Inbox::new();
        let mut received: [Vec<u32>; 2] = Default::default();
        thread::scope(|scope| {
            for sender in 0..2 {
                let inbox = &inbox;
                scope.spawn(move || {
                    (0..EACH).for_each(|number| inbox.push(Member::new(2 * number + sender)));
                });
            }
            while received.iter().map(Vec::len).sum::<usize>() < 2 * EACH as usize {
                for number in drain(&mut inbox.take_all()) {
                    received[number as usize % 2].push(number / 2);
                }
                thread::yield_now();
            }
        });
        assert!(received.iter().all(|numbers| numbers.iter().copied().eq(0..EACH)));
        assert!(inbox.is_empty());
    }
}
